"""Group-fair training by classwise distributionally robust optimisation."""

from typing import Any

from fairdro.data import load_dataset

__all__ = ["FairClassifier", "FairDROClassifier", "FairDROClassifierCV", "TableEncoder", "load", "load_dataset", "save"]


def __getattr__(name: str) -> Any:
    """Import the classifiers when they are asked for: scikit-learn takes a while."""
    if name in __all__:
        from fairdro import estimators  # noqa: PLC0415

        return getattr(estimators, name)
    raise AttributeError(f"module 'fairdro' has no attribute {name!r}")
