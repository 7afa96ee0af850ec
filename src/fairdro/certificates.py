"""Certificates: upper bounds on gaps between groups that hold with probability 1 - delta, at any number of rows.

The rows must be independent, and the model fixed before they were looked at: rows that trained it, or by which it was
chosen, certify nothing. What is proven, and how, is in :mod:`fairdro.bounds`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fairdro.bounds import clopper_pearson_upper, gap_bound
from fairdro.errors import InputError, check_share
from fairdro.metrics import Confusion, cell_accuracy, class_codes, confusion

__all__ = ["Certificate", "Plan", "certify", "rows_needed"]

MOST_ROWS, LEAST_DELTA = 1e9, 1e-9
NOISE = 2000  # draws of what will be observed
METHOD = "exact binomial tests of the cells, combined (Lancaster)"
CERTIFIED = {
    "dca": "DCA, the gap in accuracy between groups",
    "deo": "DEO, the gap in predictions between groups",
    "equalized_odds_difference": "equalised-odds difference",
    "worst_error": "error of the worst class and group",
}
"""What a certificate bounds, in words."""


@dataclass(frozen=True)
class Certificate:
    """What rows that neither trained nor chose a model say for certain of its gaps.

    A bound is too small with a probability of at most ``delta``, each by itself: where several are relied on at once, divide
    delta by their number. Made by :func:`~fairdro.selection.certify`.

    Attributes
    ----------
    dca, deo, equalized_odds_difference, worst_error : float
        Upper bounds.
    delta : float
        Probability with which a bound may be too small.
    confusion : Confusion
        How the rows were predicted.
    method : str
        How the bounds were computed, in words.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdro.selection import certify
    >>> certificate = certify(np.array([[[90, 10], [85, 15]], [[20, 80], [30, 70]]]))
    >>> round(certificate.dca, 2), round(certificate.observed["dca"], 3)
    (0.16, 0.075)
    >>> certificate.rows
    400
    """

    dca: float
    deo: float
    equalized_odds_difference: float
    worst_error: float
    delta: float
    confusion: Confusion
    method: str = METHOD

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.confusion.counts.sum())

    @property
    def cell_counts(self) -> np.ndarray:
        """Number of rows per class and group ``(Y, A)``."""
        return self.confusion.counts.sum(-1).astype(np.int64)

    @property
    def bounds(self) -> dict[str, float]:
        """The upper bounds by name."""
        return {name: getattr(self, name) for name in CERTIFIED}

    @cached_property
    def observed(self) -> dict[str, float]:
        """The same figures as observed on these rows; NaN where there are no rows."""
        gaps = {name: self.confusion.metric(name) for name in CERTIFIED if name != "worst_error"}
        return gaps | {"worst_error": 1 - self.confusion.metric("worst_accuracy")}

    @property
    def remarks(self) -> list[str]:
        """Sentences on what the gaps are about, and of which classes nothing can be certified, as a group has no rows."""
        names = self.confusion.class_names
        about = [self.confusion.about] if self.confusion.about else []
        if len(self.confusion.group_names) == 1:
            about.append("There is one group only, and no gap.")
        return about + [
            f"Nothing can be certified of class {names[y]}: there are no rows of it in group "
            f"{self.confusion.group_names[int(np.argmin(self.cell_counts[y]))]}; collect some, or merge groups."
            for y in range(len(names))
            if self.cell_counts[y].min() == 0
        ]

    def sentence(self, max_dca: float | None = None) -> str:
        """Say in words what is certified of the DCA, and, where that is more than ``max_dca``, how many rows would do.

        Parameters
        ----------
        max_dca : float, optional
            A limit that was wanted.

        Returns
        -------
        str
        """
        said = (
            f"Certified with {confidence(self.delta)} % confidence by {self.rows:,} rows: the gap in accuracy between "
            f"groups (DCA) is at most {percent_up(self.dca)} % (observed: {_gap_text(self.observed['dca'])})."
        )
        parts = [said, *self.remarks]
        if max_dca is not None and self.dca > max_dca:
            parts.append(self._plan(max_dca))
        return " ".join(parts)

    def further(self) -> str:
        """Say in words what is certified of the other figures."""
        others = [f"{CERTIFIED[name]}: {percent_up(bound)} %" for name, bound in self.bounds.items() if name != "dca"]
        return f"Likewise at most, each by itself: {'; '.join(others)}."

    def _plan(self, max_dca: float) -> str:
        try:
            plan = rows_needed(self.confusion, max_dca, delta=self.delta)
        except InputError as error:
            return str(error)
        return f"About {plan} such rows would certify {percent_of(max_dca)} %."

    def __str__(self) -> str:
        return self.sentence()

    def to_dict(self) -> dict[str, Any]:
        """Return all as JSON holds it; an observed figure without rows is None."""
        accuracy = cell_accuracy(self.confusion.counts)
        cells = [
            {"class": label, "group": group, "rows": int(n), "accuracy": None if n == 0 else float(accuracy[y, a])}
            for y, label in enumerate(self.confusion.class_names)
            for a, (group, n) in enumerate(zip(self.confusion.group_names, self.cell_counts[y], strict=True))
        ]
        observed = {name: None if math.isnan(value) else value for name, value in self.observed.items()}
        fair = self.confusion.fair_classes
        return {
            "method": self.method,
            "delta": self.delta,
            "rows": self.rows,
            "bounds": self.bounds,
            "observed": observed,
            "fair_classes": None if fair is None else [self.confusion.class_names[k] for k in fair],
            "cells": cells,
            "sentence": self.sentence(),
        }


def confidence(delta: float) -> str:
    """Return the confidence of a delta in percent."""
    return f"{100 * (1 - delta):.12g}"


def percent_of(share: float) -> str:
    """Return percent as people write a limit."""
    return f"{100 * share:.4g}"


def percent_up(share: float) -> str:
    """Return percent with one digit, rounded up, so that what is said is certified too."""
    return f"{min(math.ceil(1000 * share - 1e-9) / 10, 100):.1f}"


def _gap_text(gap: float) -> str:
    return "no rows to tell" if math.isnan(gap) else f"{100 * gap:.1f} %"


def certify(
    judged: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    delta: float = 0.05,
    fair_classes: Any = None,
    labels: Any = None,
) -> Certificate:
    """Bound DCA, DEO, equalised-odds difference and the worst cell's error from above, with confidence 1 - delta.

    Valid at any number of rows, classes and groups, for a model that was fixed before these rows were looked at. Each bound
    holds by itself; where several are relied on at once, divide delta by their number. A class in which a group has no rows
    counts with a gap of 1. With two classes DEO is DCA; with more, its bound is the mean of one per prediction, each at an
    equal part of delta.

    Parameters
    ----------
    judged : Confusion, ndarray of shape (Y, A, Y), tuple, or array-like of shape (N,)
        How rows were predicted: counts by class, group and prediction; true classes, predictions and groups of the rows as
        a tuple; or their true classes.
    y_pred : array-like of shape (N,), optional
        What was predicted, with true classes.
    sensitive_features : array-like, optional
        Groups, likewise; see :func:`~fairdro.metrics.confusion`.
    delta : float, default 0.05
        Probability with which a bound may be too small.
    fair_classes : list of labels, optional
        Classes that gaps between groups are about; by default those of the Confusion, or all.
    labels : list of labels, optional
        All classes, where some do not occur among the true ones.

    Returns
    -------
    Certificate

    See Also
    --------
    rows_needed : How many rows would certify a limit.
    CertifiedDCA : A selection rule by certificates.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdro.selection import certify
    >>> print(certify(np.array([[[90, 10], [85, 15]], [[20, 80], [30, 70]]])))
    Certified with 95 % confidence by 400 rows: the gap in accuracy between groups (DCA) is at most 16.4 % (observed: 7.5 %).
    >>> certify([1, 1, 0, 0] * 50, [1, 1, 0, 1] * 50, sensitive_features=["f", "m"] * 100).rows
    200
    """
    check_delta(delta)
    found = _confusion(judged, y_pred, sensitive_features, labels)
    if fair_classes is not None:
        found = replace(found, fair_classes=class_codes(fair_classes, np.asarray(found.class_names)))
    counts = found.counts
    fair = list(range(len(counts))) if found.fair_classes is None else list(found.fair_classes)
    sizes = counts.sum(-1)
    own = np.einsum("yay->ya", counts)
    dca = _mean_gap(own[fair], sizes[fair], delta)
    deo = dca
    if len(counts) > 2:
        deo = float(np.mean([_mean_gap(counts[fair, :, k], sizes[fair], delta / len(counts)) for k in range(len(counts))]))
    odds = max(_mean_gap(counts[[y], :, k], sizes[[y]], delta) for y in fair for k in range(len(counts)))
    worst = float(clopper_pearson_upper(sizes - own, sizes, delta).max())
    return Certificate(dca, deo, odds, worst, float(delta), found)


def check_delta(delta: Any) -> None:
    """Refuse what is no probability of an error."""
    check_share(delta, "delta")
    if not LEAST_DELTA <= delta < 1:
        raise InputError(f"delta must lie between {LEAST_DELTA:g} and 1, got {delta}; 0.05 stands for 95 % confidence.")


def _confusion(judged: Any, y_pred: Any, sensitive: Any, labels: Any) -> Confusion:
    """Return what is to be certified as a Confusion with whole rows."""
    if isinstance(judged, tuple) and len(judged) == 3 and y_pred is None:
        judged, y_pred, sensitive = judged
    if y_pred is not None:
        if sensitive is None:
            raise InputError("certify needs sensitive_features beside y_true and y_pred: the groups of the rows.")
        judged = confusion(judged, y_pred, sensitive_features=sensitive, labels=labels)
    elif not isinstance(judged, Confusion):
        judged = _named(judged)
    if not judged.countable or not np.array_equal(judged.counts, np.round(judged.counts)):
        raise InputError(
            "Rows with weights, and groups in shares, cannot be certified; count every row once, in the group it belongs to."
        )
    return judged


def _named(counts: Any) -> Confusion:
    """Return counts as a Confusion whose classes and groups are called by their numbers."""
    table = _numbers(counts, "counts")
    if table.ndim != 3 or table.shape[0] != table.shape[2] or 0 in table.shape:
        raise InputError(
            "certify takes a Confusion, counts of shape (Y, A, Y), or true classes with y_pred and sensitive_features; got "
            f"shape {table.shape}."
        )
    if not np.isfinite(table).all() or (table < 0).any():
        raise InputError("Counts must be finite and not negative.")
    return Confusion(table, [str(k) for k in range(table.shape[0])], [str(a) for a in range(table.shape[1])])


def _numbers(values: Any, what: str) -> np.ndarray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"These {what} are no table of numbers: {error}.") from error


def _mean_gap(right: np.ndarray, sizes: np.ndarray, delta: float) -> float:
    """Return the bound of the mean over classes of the largest gap; 1 of a class with a cell without rows."""
    seen = (sizes > 0).all(1)
    if sizes.shape[1] < 2:
        return 0.0
    return float((gap_bound(right[None, seen], sizes[seen], delta)[0] + (~seen).sum()) / len(sizes))


@dataclass(frozen=True)
class Plan:
    """How many rows to collect, made by :func:`~fairdro.selection.rows_needed`.

    Attributes
    ----------
    rows : int
        In all.
    cells : ndarray of shape (Y, A)
        Of every class and group.

    Examples
    --------
    >>> from fairdro.selection import rows_needed
    >>> plan = rows_needed([[0.90, 0.88], [0.80, 0.77]], 0.05)
    >>> plan.cells.shape, bool(plan.cells.sum() == plan.rows)
    ((2, 2), True)
    """

    rows: int
    cells: np.ndarray

    def __str__(self) -> str:
        digits = 10 ** max(len(str(self.rows)) - 2, 0)
        return f"{-(-self.rows // digits) * digits:,}"


def rows_needed(judged: Any, max_dca: float, *, shares: Any = None, delta: float = 0.05, chance: float = 0.8) -> Plan:
    """Return about how many rows will certify a DCA of at most ``max_dca``, if accuracies are what is observed or guessed.

    Parameters
    ----------
    judged : Confusion, ndarray of shape (Y, A, Y), or array-like of shape (Y, A)
        Rows that were predicted, of which accuracies and shares of the cells are taken; or accuracies alone.
    max_dca : float
        The bound that is wanted.
    shares : array-like of shape (Y, A), optional
        How rows will be spread over the cells; by default as observed, or all the same.
    delta : float, default 0.05
        Probability with which the bound may be too small.
    chance : float, default 0.8
        How likely the rows shall be to certify it.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        If no number of rows would do, as the gap itself is as large.

    See Also
    --------
    certify : What the rows then certify.

    Examples
    --------
    >>> from fairdro.selection import rows_needed
    >>> print(rows_needed([[0.90, 0.88], [0.80, 0.77]], 0.05))
    7,600
    """
    check_delta(delta)
    check_share(max_dca, "max_dca")
    check_share(chance, "chance")
    if chance in (0, 1):
        raise InputError(f"chance must lie between 0 and 1, got {chance}; no number of rows is sure to do.")
    accuracy, spread, fair = _rates_and_shares(judged, shares)
    rates, share = accuracy[fair], spread[fair]
    gap = float(_sum_of_gaps(rates))
    wanted = f"No number of rows would certify {percent_of(max_dca)} %"
    if (share == 0).any() or np.isnan(gap):
        raise InputError(f"{wanted} while a class and group have no rows.")
    if gap / len(rates) >= max_dca:
        raise InputError(f"{wanted} if the gap is {100 * gap / len(rates):.1f} %.")
    noise = np.random.default_rng(0).standard_normal((NOISE, *rates.shape)) * np.sqrt(rates * (1 - rates) / share)

    def enough(n: float) -> bool:
        observed = np.quantile(_sum_of_gaps(rates + noise / math.sqrt(n)), chance)  # gaps are observed too large on the mean
        margin = gap_bound((rates * n * share)[None], n * share, delta)[0] - gap
        return bool((observed + margin) / len(rates) <= max_dca)

    low, high = 1.0, MOST_ROWS
    if not enough(high):
        raise InputError(f"More than {MOST_ROWS:,.0f} rows would be needed to certify {percent_of(max_dca)} %.")
    while high / low > 1.005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    cells = np.ceil(high * spread).astype(np.int64)
    return Plan(int(cells.sum()), cells)


def _sum_of_gaps(rates: np.ndarray) -> np.ndarray:
    return (rates.max(-1) - rates.min(-1)).sum(-1)


def _rates_and_shares(judged: Any, shares: Any) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Return accuracies and shares of the cells ``(Y, A)``, and the classes that gaps are about."""
    if isinstance(judged, Confusion) or np.ndim(judged) == 3:
        found = _confusion(judged, None, None, None)
        accuracy, spread, fair = cell_accuracy(found.counts), found.counts.sum(-1), found.fair_classes
    else:
        accuracy, fair = _numbers(judged, "accuracies"), None
        if accuracy.ndim != 2 or 0 in accuracy.shape or not ((accuracy >= 0) & (accuracy <= 1)).all():
            raise InputError(
                "rows_needed takes a Confusion, counts, or a table of accuracies: a row per class, shares up to 1."
            )
        spread = np.ones_like(accuracy)
    if shares is not None:
        spread = _numbers(shares, "shares")
        if spread.shape != accuracy.shape or not np.isfinite(spread).all() or (spread < 0).any() or spread.sum() == 0:
            raise InputError(f"shares must hold a number per class and group, shape {accuracy.shape}, none negative.")
    return accuracy, spread / (spread.sum() or 1.0), list(range(len(accuracy))) if fair is None else list(fair)
