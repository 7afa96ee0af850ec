"""Tables and texts in Markdown; whatever comes from data is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["escape", "markdown_table"]


def escape(text: object) -> str:
    """Return a text that Markdown and HTML show as it is, on one line."""
    entities = str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~#!$])", r"\\\1", " ".join(entities.split()))


def markdown_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    columns = list(columns)
    lines = [columns, ["---"] * len(columns), *map(list, rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
