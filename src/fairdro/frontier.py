"""Frontiers of accuracy against unfairness, and which point to choose: pure functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fairdro.errors import InputError, unknown_name

__all__ = [
    "RULES",
    "Asked",
    "Choice",
    "KeepAccuracy",
    "Knee",
    "LimitDCA",
    "Rule",
    "best_accuracy",
    "best_dca",
    "convex_envelope",
    "fill_holes",
    "hypervolume",
    "knee",
    "non_dominated",
    "rule_from",
    "rule_text",
]


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


def best_accuracy(accuracy: Any, dca: Any, *, max_dca: float) -> int:
    """Return the index of the largest accuracy among points with at most ``max_dca``; of equals, the fairer."""
    accuracy, dca = _points(accuracy, dca)
    eligible = np.flatnonzero(dca <= max_dca)
    if len(eligible) == 0:
        raise InputError(f"No point has a DCA of {max_dca:.4f} or less; the fairest has {dca.min():.4f}. Raise the limit.")
    return int(eligible[np.lexsort((dca[eligible], -accuracy[eligible]))[0]])


def knee(accuracy: Any, dca: Any) -> int:
    """Return the index of the point of the envelope farthest below the line between its ends, both axes scaled to one.

    Beyond it fairness costs more accuracy than before.
    """
    accuracy, dca = _points(accuracy, dca)
    hull = convex_envelope(accuracy, dca)
    if len(hull) < 3:
        return int(hull[-1])
    x = (accuracy[hull] - accuracy[hull[-1]]) / (accuracy[hull[0]] - accuracy[hull[-1]])
    y = (dca[hull] - dca[hull[-1]]) / (dca[hull[0]] - dca[hull[-1]])
    return int(hull[np.argmax(x - y)])


def hypervolume(accuracy: Any, dca: Any, *, reference: tuple[float, float]) -> float:
    """Return the area of what the points beat, up to the ``reference`` accuracy and DCA; larger is better.

    Points that are not better than the reference in both ways add nothing.
    """
    accuracy, dca = _points(accuracy, dca)
    better = (accuracy > reference[0]) & (dca < reference[1])
    if not better.any():
        return 0.0
    accuracy, dca = accuracy[better], dca[better]
    front = non_dominated(accuracy, dca)
    heights = np.diff(np.concatenate([[reference[1]], dca[front]]))
    return float(-(heights * (accuracy[front] - reference[0])).sum())


@dataclass(frozen=True)
class Choice:
    """The index of a chosen point, and why it was chosen."""

    index: int
    why: str


@dataclass(frozen=True)
class KeepAccuracy:
    """The smallest DCA that keeps a share of plain training's accuracy; the paper's rule with 95 %."""

    share: float = 0.95

    def __str__(self) -> str:
        return f"smallest DCA that keeps {100 * self.share:g} % of plain training's accuracy"

    def __call__(self, accuracy: Any, dca: Any, *, plain_accuracy: float) -> Choice:
        """Choose a point."""
        limit = self.share * plain_accuracy
        index = best_dca(accuracy, dca, min_accuracy=limit)
        return Choice(index, f"the smallest DCA at an accuracy of {100 * limit:.2f} % or more")


@dataclass(frozen=True)
class LimitDCA:
    """The largest accuracy with a DCA of at most a limit."""

    limit: float = 0.05

    def __str__(self) -> str:
        return f"largest accuracy with a DCA of at most {100 * self.limit:g} %"

    def __call__(self, accuracy: Any, dca: Any, *, plain_accuracy: float) -> Choice:
        """Choose a point."""
        return Choice(best_accuracy(accuracy, dca, max_dca=self.limit), f"the {self}")


@dataclass(frozen=True)
class Knee:
    """The knee of the envelope, beyond which fairness costs more."""

    def __str__(self) -> str:
        return "knee of the frontier"

    def __call__(self, accuracy: Any, dca: Any, *, plain_accuracy: float) -> Choice:
        """Choose a point."""
        return Choice(knee(accuracy, dca), "farthest below the line between the frontier's ends")


Rule = KeepAccuracy | LimitDCA | Knee
RULES: dict[str, Callable[..., Rule]] = {"keep": KeepAccuracy, "max-dca": LimitDCA, "knee": Knee}


@dataclass(frozen=True)
class Asked:
    """The one radius that was asked for, behind plain training, whatever the figures are."""

    blind: ClassVar[bool] = True

    def __str__(self) -> str:
        return "one that was asked for"

    def __call__(self, accuracy: Any, dca: Any, *, plain_accuracy: float) -> Choice:
        """Choose the last point."""
        return Choice(len(accuracy) - 1, "asked for")


def rule_from(text: str) -> Rule:
    """Read a selection rule: ``keep=0.95``, ``max-dca=0.05`` or ``knee``."""
    name, given, value = text.partition("=")
    if name not in RULES:
        raise unknown_name("selection rule", name, [f"{n}=0.95" if n == "keep" else n for n in RULES])
    try:
        share = [float(value)] if given else []
    except ValueError:
        share = [-1.0]
    if any(not 0 <= v <= 1 for v in share) or (share and name == "knee"):
        raise InputError(
            f"The selection rule {text!r} needs a share between 0 and 1, for example keep=0.95 or max-dca=0.05."
        )
    return RULES[name](*share)


def rule_text(rule: Rule) -> str:
    """Write a selection rule so that :func:`rule_from` reads it."""
    name = next(name for name, kind in RULES.items() if type(rule) is kind)
    return "=".join([name, *(repr(float(value)) for value in vars(rule).values())])


def fill_holes(strengths: Any, accuracy: Any, dca: Any, number: int) -> list[float]:
    """Return ``number`` new strengths between those tried, where neighbouring points are far apart.

    Again and again the widest step from one strength to the next, in accuracy and DCA, is divided into one more part; parts
    of a step are equal on a logarithmic scale.

    Parameters
    ----------
    strengths, accuracy, dca : array-like of shape (P,)
        What was tried, and what came of it. At least two strengths above 0.
    number : int
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
