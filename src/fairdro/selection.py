"""Which point of a frontier to take: selection rules, pure functions of what confusion tensors say.

A selection rule is a callable ``rule(points, plain) -> Choice``:

- ``points`` is a DataFrame with a row per point and the columns of :func:`~fairdro.metrics.metric_table`: ``accuracy``,
  ``dca``, ``worst_accuracy`` and all other metrics, and ``class_accuracy_0`` and so on, the accuracy of every
  class averaged over groups (in a ``GridSearchCV`` those of :data:`~fairdro.estimators.scoring.SCORERS`);
- ``plain`` is the row of plain training, a Series with the same entries;
- ``Choice.index`` is the position of the chosen row, ``Choice.why`` says why. A rule that no point satisfies raises an
  :class:`~fairdro.errors.InputError`.

The largest accuracy of the worst cell, as a rule of one's own:

>>> def best_worst(points, plain):
...     return Choice(int(points["worst_accuracy"].argmax()), "the best worst cell")
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairdro.errors import InputError, unknown_name
from fairdro.frontier import best_accuracy, best_dca, knee
from fairdro.metrics import metric_table

__all__ = [
    "RULES",
    "AsAsked",
    "Choice",
    "KeepAccuracy",
    "Knee",
    "LimitDCA",
    "Rule",
    "check_rule",
    "choose",
    "choose_radius",
    "plain_radius",
    "rule_from",
    "rule_text",
]


@dataclass(frozen=True)
class Choice:
    """The position of a chosen point, and why it was chosen."""

    index: int
    why: str


Rule = Callable[[pd.DataFrame, pd.Series], Choice]


def _check_share(value: Any, name: str) -> None:
    if not isinstance(value, int | float | np.number) or not 0 <= value <= 1:
        raise InputError(f"{name} must be a share between 0 and 1, got {value!r}.")


@dataclass(frozen=True)
class KeepAccuracy:
    """The smallest DCA that keeps a share of plain training's accuracy; the paper's rule with 95 %."""

    keep_accuracy: float = 0.95

    def __post_init__(self) -> None:
        _check_share(self.keep_accuracy, "keep_accuracy")

    def __str__(self) -> str:
        return f"smallest DCA that keeps {100 * self.keep_accuracy:g} % of plain training's accuracy"

    def __call__(self, points: pd.DataFrame, plain: pd.Series) -> Choice:
        """Choose a point."""
        limit = self.keep_accuracy * float(plain["accuracy"])
        index = best_dca(points["accuracy"], points["dca"], min_accuracy=limit)
        return Choice(index, f"the smallest DCA at an accuracy of {100 * limit:.2f} % or more")


@dataclass(frozen=True)
class LimitDCA:
    """The largest accuracy with a DCA of at most a limit."""

    max_dca: float = 0.05

    def __post_init__(self) -> None:
        _check_share(self.max_dca, "max_dca")

    def __str__(self) -> str:
        return f"largest accuracy with a DCA of at most {100 * self.max_dca:g} %"

    def __call__(self, points: pd.DataFrame, plain: pd.Series) -> Choice:
        """Choose a point."""
        return Choice(best_accuracy(points["accuracy"], points["dca"], max_dca=self.max_dca), f"the {self}")


@dataclass(frozen=True)
class Knee:
    """The knee of the envelope, beyond which fairness costs more."""

    def __str__(self) -> str:
        return "knee of the frontier"

    def __call__(self, points: pd.DataFrame, plain: pd.Series) -> Choice:
        """Choose a point."""
        return Choice(knee(points["accuracy"], points["dca"]), "farthest below the line between the frontier's ends")


@dataclass(frozen=True)
class AsAsked:
    """The largest radius, which was asked for, whatever the figures are."""

    def __str__(self) -> str:
        return "one that was asked for"

    def __call__(self, points: pd.DataFrame, plain: pd.Series) -> Choice:
        """Choose the last point."""
        return Choice(len(points) - 1, "asked for")


RULES: dict[str, Callable[..., KeepAccuracy | LimitDCA | Knee]] = {
    "keep-accuracy": KeepAccuracy,
    "max-dca": LimitDCA,
    "knee": Knee,
}


def rule_from(text: str) -> KeepAccuracy | LimitDCA | Knee:
    """Read a selection rule: ``keep-accuracy=0.95``, ``max-dca=0.05`` or ``knee``."""
    name, given, value = text.partition("=")
    if name not in RULES:
        raise unknown_name("selection rule", name, ["keep-accuracy=0.95", "max-dca=0.05", "knee"])
    try:
        return RULES[name](*([float(value)] if given else []))
    except (InputError, ValueError, TypeError) as error:
        raise InputError(
            f"The selection rule {text!r} needs a share between 0 and 1, for example keep-accuracy=0.95 or max-dca=0.05."
        ) from error


def rule_text(rule: Any) -> str | None:
    """Write a selection rule so that :func:`rule_from` reads it; None for one of another kind."""
    for name, kind in RULES.items():
        if type(rule) is kind:
            return "=".join([name, *(repr(float(value)) for value in vars(rule).values())])
    return None


def check_rule(rule: Any) -> Rule:
    """Return a selection rule, also from its text; refuse what is none before anything is trained."""
    if isinstance(rule, str):
        return rule_from(rule)
    if isinstance(rule, type) or not callable(rule):
        raise InputError(f"A selection rule is called with points and plain training, e.g. LimitDCA(0.05); got {rule!r}.")
    return rule


def choose(rule: Rule, points: pd.DataFrame, plain: pd.Series) -> Choice:
    """Let a rule choose one of the points, whose rows it may also name by their number; refuse what is no choice."""
    choice = rule(points.reset_index(drop=True), plain)
    index = getattr(choice, "index", None)
    if not isinstance(choice, Choice) or not isinstance(index, int | np.integer) or not 0 <= index < len(points):
        raise InputError(f"A selection rule returns Choice(index, why) with an index below {len(points)}, got {choice!r}.")
    return choice


def plain_radius(radii: Sequence[float] | np.ndarray) -> int:
    """Return the position of the radius that stands for plain training: the smallest."""
    return int(np.argmin(radii))


def choose_radius(
    counts: np.ndarray, radii: Sequence[float] | np.ndarray, rule: Rule, *, diverged: np.ndarray | None = None
) -> tuple[Choice, pd.DataFrame]:
    """Choose a radius by a rule.

    Parameters
    ----------
    counts : ndarray of shape (P, Y, A, Y)
        Held-out rows by radius, class, group and prediction.
    radii : sequence of float, length P
    rule : Rule
    diverged : ndarray of bool, shape (P,), optional
        Radii that are not to be chosen.

    Returns
    -------
    choice : Choice
    frontier : DataFrame
        A row per radius: ``rho``, the metrics, ``diverged``, and which is ``selected``.
    """
    diverged = np.zeros(len(radii), dtype=bool) if diverged is None else diverged
    sound = np.flatnonzero(~diverged)
    if len(sound) == 0 or (isinstance(rule, AsAsked) and diverged[-1]):
        raise InputError(f"Training diverged at rho = {radii[-1]:g}; try smaller radii.")
    points = metric_table(counts)
    choice = choose(rule, points.iloc[sound], points.iloc[plain_radius(radii)])
    choice = Choice(int(sound[choice.index]), choice.why)
    frontier = points.assign(diverged=diverged, selected=np.arange(len(radii)) == choice.index)
    frontier.insert(0, "rho", np.asarray(radii, dtype=np.float64))
    return choice, frontier
