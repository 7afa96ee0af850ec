"""The geometry of a frontier of accuracy against unfairness: pure functions."""

from typing import Any

import numpy as np

from fairdro.errors import InputError


def non_dominated(accuracy: Any, dca: Any) -> np.ndarray:
    """Return the indices of points that no other point beats in both ways, by falling accuracy.

    Of points with equal accuracy and DCA the first is kept.

    Parameters
    ----------
    accuracy, dca : array-like of shape (P,)
        Of every point.

    Returns
    -------
    ndarray of int

    Examples
    --------
    >>> from fairdro.frontier import non_dominated
    >>> accuracy, dca = [0.80, 0.79, 0.78, 0.77, 0.70], [0.15, 0.06, 0.07, 0.04, 0.03]
    >>> non_dominated(accuracy, dca)
    array([0, 1, 3, 4])
    """
    accuracy, dca = _points(accuracy, dca)
    order = np.lexsort((dca, -accuracy))
    best_before = np.concatenate([[np.inf], np.minimum.accumulate(dca[order])[:-1]])
    return order[dca[order] < best_before]


def convex_envelope(accuracy: Any, dca: Any) -> np.ndarray:
    """Return the indices of the lower-right corners of the points' convex hull, by falling accuracy (the paper's curves).

    Parameters
    ----------
    accuracy, dca : array-like of shape (P,)
        Of every point.

    Returns
    -------
    ndarray of int

    Examples
    --------
    >>> from fairdro.frontier import convex_envelope
    >>> accuracy, dca = [0.80, 0.79, 0.78, 0.77, 0.70], [0.15, 0.06, 0.07, 0.04, 0.03]
    >>> convex_envelope(accuracy, dca)
    array([0, 1, 3, 4])
    """
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

    Parameters
    ----------
    accuracy, dca : array-like of shape (P,)
        Of every point.
    min_accuracy : float
        The accuracy to keep.

    Returns
    -------
    int

    See Also
    --------
    fairdro.selection.KeepAccuracy : The same as a selection rule.

    Examples
    --------
    >>> from fairdro.frontier import best_dca
    >>> accuracy, dca = [0.80, 0.79, 0.78, 0.77, 0.70], [0.15, 0.06, 0.07, 0.04, 0.03]
    >>> best_dca(accuracy, dca, min_accuracy=0.95 * 0.80)
    3
    """
    accuracy, dca = _points(accuracy, dca)
    eligible = np.flatnonzero(accuracy >= min_accuracy)
    if len(eligible) == 0:
        best = accuracy.max()
        raise InputError(f"No point keeps an accuracy of {min_accuracy:.4f}; the best has {best:.4f}. Lower the demand.")
    return int(eligible[np.lexsort((-accuracy[eligible], dca[eligible]))[0]])


def best_accuracy(accuracy: Any, dca: Any, *, max_dca: float) -> int:
    """Return the index of the largest accuracy among points with at most ``max_dca``; of equals, the fairer.

    Parameters
    ----------
    accuracy, dca : array-like of shape (P,)
        Of every point.
    max_dca : float
        The limit.

    Returns
    -------
    int

    See Also
    --------
    fairdro.selection.LimitDCA : The same as a selection rule.

    Examples
    --------
    >>> from fairdro.frontier import best_accuracy
    >>> accuracy, dca = [0.80, 0.79, 0.78, 0.77, 0.70], [0.15, 0.06, 0.07, 0.04, 0.03]
    >>> best_accuracy(accuracy, dca, max_dca=0.05)
    3
    """
    accuracy, dca = _points(accuracy, dca)
    eligible = np.flatnonzero(dca <= max_dca)
    if len(eligible) == 0:
        raise InputError(f"No point has a DCA of {max_dca:.4f} or less; the fairest has {dca.min():.4f}. Raise the limit.")
    return int(eligible[np.lexsort((dca[eligible], -accuracy[eligible]))[0]])


def knee(accuracy: Any, dca: Any) -> int:
    """Return the index of the point of the envelope farthest below the line between its ends, both axes scaled to one.

    Beyond it fairness costs more accuracy than before.

    Parameters
    ----------
    accuracy, dca : array-like of shape (P,)
        Of every point.

    Returns
    -------
    int

    See Also
    --------
    fairdro.selection.Knee : The same as a selection rule.

    Examples
    --------
    >>> from fairdro.frontier import knee
    >>> accuracy, dca = [0.80, 0.79, 0.78, 0.77, 0.70], [0.15, 0.06, 0.07, 0.04, 0.03]
    >>> knee(accuracy, dca)
    1
    """
    accuracy, dca = _points(accuracy, dca)
    hull = convex_envelope(accuracy, dca)
    if len(hull) < 3:
        return int(hull[-1])
    x = (accuracy[hull] - accuracy[hull[-1]]) / (accuracy[hull[0]] - accuracy[hull[-1]])
    y = (dca[hull] - dca[hull[-1]]) / (dca[hull[0]] - dca[hull[-1]])
    return int(hull[np.argmax(x - y)])


def fill_holes(strengths: Any, accuracy: Any, dca: Any, number: int) -> list[float]:
    """Return ``number`` new strengths between those tried, where neighbouring points are far apart.

    Again and again the widest step from one strength to the next, in accuracy and DCA, is divided into one more part; parts
    of a step are equal on a logarithmic scale. At least two strengths above 0 must have been tried.
    """
    accuracy, dca = _points(accuracy, dca)
    strengths = np.asarray(strengths, dtype=np.float64)
    order = np.argsort(strengths, kind="stable")
    order = order[strengths[order] > 0]
    strengths, accuracy, dca = strengths[order], accuracy[order], dca[order]
    if len(strengths) < 2:
        raise InputError("To fill holes, at least two strengths above 0 must have been tried.")
    width = np.hypot(np.diff(accuracy), np.diff(dca))
    parts = np.ones(len(width), dtype=np.int64)
    for _ in range(number):
        parts[np.argmax(width / parts)] += 1
    inner = [np.geomspace(strengths[i], strengths[i + 1], n + 1)[1:-1] for i, n in enumerate(parts)]
    return [float(f"{value:.6g}") for value in np.concatenate(inner)]


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
