"""Group-fair training by classwise distributionally robust optimisation."""

from importlib import import_module
from typing import Any

from fairdro.data import load_dataset

LATER = {
    "FairClassifier": "estimators",
    "FairDROClassifier": "estimators",
    "FairDROClassifierCV": "estimators",
    "FairDROLoss": "loss",
    "FairLoss": "loss",
    "TableEncoder": "preprocessing",
    "load": "estimators",
    "save": "estimators",
}

__all__ = ["load_dataset", *LATER]  # noqa: PLE0604 - texts all


def __getattr__(name: str) -> Any:
    """Import the others when they are asked for: scikit-learn takes a while."""
    if name in LATER:
        return getattr(import_module(f"fairdro.{LATER[name]}"), name)
    raise AttributeError(f"module 'fairdro' has no attribute {name!r}")
