"""Packages that are not needed by all, imported where they are."""

from importlib import import_module
from typing import Any

from fairdro.errors import MissingExtraError


def require(package: str, *, extra: str, what: str) -> Any:
    """Import a package, or say in a sentence which extra of fairdro brings it, and what needs it (in the plural)."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtraError(f"{what} need {package}: pip install 'fairdro[{extra}]'.", name=package) from error
