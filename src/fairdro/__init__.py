"""Group-fair training by classwise distributionally robust optimisation."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairdro.data import load_dataset
    from fairdro.estimators import (
        FairClassifier,
        FairDROBoostingClassifier,
        FairDROClassifier,
        FairDROClassifierCV,
        FairDROHead,
        FairDROHeadClassifier,
        TableEncoder,
        fit_head,
        load,
        model_card,
        save,
    )
    from fairdro.networks.loss import FairDROLoss, FairLoss

    __version__: str

__all__ = [
    "FairClassifier", "FairDROBoostingClassifier", "FairDROClassifier", "FairDROClassifierCV", "FairDROHead",
    "FairDROHeadClassifier", "FairDROLoss", "FairLoss", "TableEncoder", "__version__", "fit_head", "load", "load_dataset",
    "model_card", "save",
]  # fmt: skip

HOMES = {"FairDROLoss": "networks.loss", "FairLoss": "networks.loss", "load_dataset": "data"}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: torch and scikit-learn take a while."""
    if name == "__version__":
        return import_module("importlib.metadata").version("fairdro")
    if name in __all__:
        return getattr(import_module(f"fairdro.{HOMES.get(name, 'estimators')}"), name)
    raise AttributeError(f"module 'fairdro' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
