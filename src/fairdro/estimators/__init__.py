"""Classifiers with scikit-learn's interface, and what belongs to them."""

from fairdro.estimators.boosting import FairDROBoostingClassifier
from fairdro.estimators.cv import FairDROClassifierCV
from fairdro.estimators.encoder import TableEncoder
from fairdro.estimators.head import FairDROHead, fit_head
from fairdro.estimators.head_classifier import FairDROHeadClassifier
from fairdro.estimators.linear import FairClassifier, FairDROClassifier
from fairdro.estimators.saving import load, model_card, save

__all__ = [
    "FairClassifier",
    "FairDROBoostingClassifier",
    "FairDROClassifier",
    "FairDROClassifierCV",
    "FairDROHead",
    "FairDROHeadClassifier",
    "TableEncoder",
    "fit_head",
    "load",
    "model_card",
    "save",
]
