"""Scorers for scikit-learn's searches, and a way to choose by a selection rule.

With ``sklearn.set_config(enable_metadata_routing=True)`` they ask for ``sensitive_features``, and for ``sample_weight``
where it is passed; gaps are negated, so that larger is better.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from sklearn.metrics import make_scorer

from fairdro import metrics
from fairdro.errors import InputError
from fairdro.selection import KeepAccuracy, Rule

__all__ = [
    "SCORERS",
    "balanced_accuracy_scorer",
    "choose_by",
    "dca_scorer",
    "demographic_parity_scorer",
    "deo_scorer",
    "equalized_odds_scorer",
    "standard_accuracy_scorer",
    "worst_accuracy_scorer",
]


def _scorer(metric: Callable[..., float], *, gap: bool) -> Any:
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(metric, greater_is_better=not gap)
        return scorer.set_score_request(sensitive_features=True, sample_weight=True)


balanced_accuracy_scorer = _scorer(metrics.balanced_accuracy, gap=False)
worst_accuracy_scorer = _scorer(metrics.worst_accuracy, gap=False)
standard_accuracy_scorer = _scorer(metrics.standard_accuracy, gap=False)
dca_scorer = _scorer(metrics.dca, gap=True)
deo_scorer = _scorer(metrics.deo, gap=True)
equalized_odds_scorer = _scorer(metrics.equalized_odds_difference, gap=True)
demographic_parity_scorer = _scorer(metrics.demographic_parity_difference, gap=True)

SCORERS = {
    "accuracy": balanced_accuracy_scorer,
    "dca": dca_scorer,
    "deo": deo_scorer,
    "worst_accuracy": worst_accuracy_scorer,
    "standard_accuracy": standard_accuracy_scorer,
    "equalized_odds_difference": equalized_odds_scorer,
    "demographic_parity_difference": demographic_parity_scorer,
}
"""What :func:`choose_by` needs: ``GridSearchCV(..., scoring=SCORERS, refit=choose_by(rule))``."""


def choose_by(rule: Rule | None = None) -> Callable[[dict[str, Any]], int]:
    """Return a ``refit`` for ``GridSearchCV`` that chooses a point by a selection rule, by default the paper's.

    A search for the smallest DCA alone would find a constant prediction, which is fair and useless. Plain accuracy, which
    the paper's rule wants to keep 95 % of, is the best of the search.

    Parameters
    ----------
    rule : Rule, optional
        See :mod:`fairdro.selection`.
    """
    chosen_rule = KeepAccuracy() if rule is None else rule

    def refit(cv_results: dict[str, Any]) -> int:
        try:
            points = pd.DataFrame({name: np.abs(cv_results[f"mean_test_{name}"]) for name in SCORERS})  # gaps are negated
        except KeyError as error:
            raise InputError("Use scoring=fairdro.estimators.scoring.SCORERS beside choose_by.") from error
        sound = np.flatnonzero(np.isfinite(points).all(axis=1))
        if len(sound) == 0:
            raise InputError("Every fit of the search failed.")
        kept = points.iloc[sound]
        return int(sound[chosen_rule(kept, kept.iloc[int(kept["accuracy"].argmax())]).index])

    return refit
