"""Frontiers of accuracy against unfairness, and which point to choose: pure functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairdro.errors import InputError

__all__ = ["best_dca", "convex_envelope", "non_dominated"]


def non_dominated(accuracy: Any, dca: Any) -> np.ndarray:
    """Return the indices of points that no other point beats in both ways, by falling accuracy.

    Of points with equal accuracy and DCA the first is kept.
    """
    accuracy, dca = _points(accuracy, dca)
    order = np.lexsort((dca, -accuracy))
    best_before = np.concatenate([[np.inf], np.minimum.accumulate(dca[order])[:-1]])
    return order[dca[order] < best_before]


def convex_envelope(accuracy: Any, dca: Any) -> np.ndarray:
    """Return the indices of the lower-right corners of the points' convex hull, by falling accuracy (the paper's curves)."""
    accuracy, dca = _points(accuracy, dca)
    hull: list[int] = []
    for i in non_dominated(accuracy, dca).tolist():
        while len(hull) >= 2 and _above_chord(hull[-2], hull[-1], i, accuracy, dca):
            hull.pop()
        hull.append(i)
    return np.array(hull, dtype=np.int64)


def best_dca(accuracy: Any, dca: Any, *, min_accuracy: float) -> int:
    """Return the index of the smallest DCA among points with at least ``min_accuracy``; of equals, the more accurate.

    With ``min_accuracy`` 95 % of Scratch's accuracy this is the paper's rule.
    """
    accuracy, dca = _points(accuracy, dca)
    eligible = np.flatnonzero(accuracy >= min_accuracy)
    if len(eligible) == 0:
        raise InputError(
            f"No point keeps an accuracy of {min_accuracy:.4f}; the best has {accuracy.max():.4f}. Lower the demand."
        )
    return int(eligible[np.lexsort((-accuracy[eligible], dca[eligible]))[0]])


def _points(accuracy: Any, dca: Any) -> tuple[np.ndarray, np.ndarray]:
    accuracy, dca = np.asarray(accuracy, dtype=np.float64), np.asarray(dca, dtype=np.float64)
    if accuracy.shape != dca.shape or accuracy.ndim != 1 or len(accuracy) == 0:
        raise InputError("A frontier needs one accuracy and one DCA per point, and at least one point.")
    if np.isnan(accuracy).any() or np.isnan(dca).any():
        raise InputError("A frontier cannot hold a point without accuracy or DCA (NaN); leave it out.")
    return accuracy, dca


def _above_chord(i: int, j: int, k: int, accuracy: np.ndarray, dca: np.ndarray) -> bool:
    """Whether point j lies on or above the line from i to k."""
    slope_ij = (dca[j] - dca[i]) * (accuracy[k] - accuracy[i])
    slope_ik = (dca[k] - dca[i]) * (accuracy[j] - accuracy[i])
    return bool(slope_ij <= slope_ik)
