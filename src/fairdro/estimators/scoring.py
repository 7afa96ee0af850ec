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
from fairdro.selection import Guard, KeepAccuracy, Rule, choose
from fairdro.who_pays import KEEP_CLASS_ACCURACY

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
    "worst_class_accuracy_scorer",
]


def _scorer(metric: Callable[..., float], *, gap: bool) -> Any:
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(metric, greater_is_better=not gap)
        return scorer.set_score_request(sensitive_features=True, sample_weight=True)


def _worst_class_accuracy(y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None) -> float:
    judged = metrics.confusion(y_true, y_pred, sensitive_features=sensitive_features, sample_weight=sample_weight)
    return float(np.nanmin(metrics.class_accuracy(judged.counts)))


balanced_accuracy_scorer = _scorer(metrics.balanced_accuracy, gap=False)
"""Scores by :func:`~fairdro.metrics.balanced_accuracy`."""
worst_accuracy_scorer = _scorer(metrics.worst_accuracy, gap=False)
"""Scores by :func:`~fairdro.metrics.worst_accuracy`."""
worst_class_accuracy_scorer = _scorer(_worst_class_accuracy, gap=False)
"""Scores by the accuracy of the worst class, averaged over its groups."""
standard_accuracy_scorer = _scorer(metrics.standard_accuracy, gap=False)
"""Scores by :func:`~fairdro.metrics.standard_accuracy`."""
dca_scorer = _scorer(metrics.dca, gap=True)
"""Scores by :func:`~fairdro.metrics.dca`, negated.

Examples
--------
>>> import sklearn
>>> from sklearn.model_selection import cross_val_score
>>> from fairdro import FairDROClassifier, load_dataset
>>> from fairdro.estimators.scoring import dca_scorer
>>> data = load_dataset("compas")
>>> options = {"cv": 2, "scoring": dca_scorer, "params": {"sensitive_features": data.a}}
>>> with sklearn.config_context(enable_metadata_routing=True):
...     scores = cross_val_score(FairDROClassifier(), data.X.iloc[:, :8], data.y, **options)
>>> bool((scores < 0).all())
True
"""
deo_scorer = _scorer(metrics.deo, gap=True)
"""Scores by :func:`~fairdro.metrics.deo`, negated."""
equalized_odds_scorer = _scorer(metrics.equalized_odds_difference, gap=True)
"""Scores by :func:`~fairdro.metrics.equalized_odds_difference`, negated."""
demographic_parity_scorer = _scorer(metrics.demographic_parity_difference, gap=True)
"""Scores by :func:`~fairdro.metrics.demographic_parity_difference`, negated."""

SCORERS = {
    "accuracy": balanced_accuracy_scorer,
    "dca": dca_scorer,
    "deo": deo_scorer,
    "worst_accuracy": worst_accuracy_scorer,
    "standard_accuracy": standard_accuracy_scorer,
    "equalized_odds_difference": equalized_odds_scorer,
    "demographic_parity_difference": demographic_parity_scorer,
    "worst_class_accuracy": worst_class_accuracy_scorer,
}
"""What :func:`choose_by` needs: ``GridSearchCV(..., scoring=SCORERS, refit=choose_by(rule))``."""


def choose_by(
    rule: Rule | None = None, *, keep_class_accuracy: float = KEEP_CLASS_ACCURACY, floor: float | None = None
) -> Callable[[dict[str, Any]], int]:
    """Return a ``refit`` for ``GridSearchCV`` that chooses a point by a selection rule, by default the paper's.

    A search for the smallest DCA alone would find a constant prediction, which is fair and useless. Plain accuracy, which
    the paper's rule wants to keep 95 % of, is the best of the search.

    Parameters
    ----------
    rule : Rule, optional
        See :mod:`fairdro.selection`.
    keep_class_accuracy : float, default 0.8
        A guard against levelling down: a point whose worst class, averaged over groups, keeps less than this share of the
        accuracy of plain training's worst class is chosen only where no other satisfies the rule. 0 for none.
    floor : float, optional
        Likewise, the least accuracy of the worst class and group.

    Returns
    -------
    callable
        Takes ``cv_results_`` and returns the position of the chosen point.

    Examples
    --------
    >>> import sklearn
    >>> from sklearn.model_selection import GridSearchCV
    >>> from fairdro import FairDROClassifier, load_dataset
    >>> from fairdro.estimators.scoring import SCORERS, choose_by
    >>> from fairdro.selection import LimitDCA
    >>> data = load_dataset("compas")
    >>> options = {"cv": 2, "scoring": SCORERS, "refit": choose_by(LimitDCA(0.06))}
    >>> search = GridSearchCV(FairDROClassifier(), {"rho": [0.0, 10.0]}, **options)
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     found = search.fit(data.X.iloc[:, :8], data.y, sensitive_features=data.a)
    >>> found.best_params_
    {'rho': 10.0}
    """
    chosen_rule, guard = KeepAccuracy() if rule is None else rule, Guard(keep_class_accuracy, floor)

    def refit(cv_results: dict[str, Any]) -> int:
        try:
            points = pd.DataFrame({name: np.abs(cv_results[f"mean_test_{name}"]) for name in SCORERS})  # gaps are negated
        except KeyError as error:
            raise InputError("Use scoring=fairdro.estimators.scoring.SCORERS beside choose_by.") from error
        sound = np.flatnonzero(np.isfinite(points).all(axis=1))
        if len(sound) == 0:
            raise InputError("Every fit of the search failed.")
        kept = points.iloc[sound].rename(columns={"worst_class_accuracy": "class_accuracy_worst"})
        return int(sound[choose(chosen_rule, kept, kept.iloc[int(kept["accuracy"].argmax())], guard).index])

    return refit
