"""Group-fair training by classwise distributionally robust optimisation."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairdro.boosting import FairDROBoostingClassifier
    from fairdro.data import load_dataset
    from fairdro.estimators import FairClassifier, FairDROClassifier, FairDROClassifierCV, load, model_card, save
    from fairdro.loss import FairDROLoss, FairLoss
    from fairdro.preprocessing import TableEncoder

__all__ = [
    "FairClassifier",
    "FairDROBoostingClassifier",
    "FairDROClassifier",
    "FairDROClassifierCV",
    "FairDROLoss",
    "FairLoss",
    "TableEncoder",
    "load",
    "load_dataset",
    "model_card",
    "save",
]

HOMES = {
    "FairDROBoostingClassifier": "boosting",
    "FairDROLoss": "loss",
    "FairLoss": "loss",
    "TableEncoder": "preprocessing",
    "load_dataset": "data",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: torch and scikit-learn take a while."""
    if name in __all__:
        return getattr(import_module(f"fairdro.{HOMES.get(name, 'estimators')}"), name)
    raise AttributeError(f"module 'fairdro' has no attribute {name!r}")
