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

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairdro.certificates import certify, rows_needed
from fairdro.errors import InputError, check_share, unknown_name
from fairdro.fixed_sequence import CertifiedDCA
from fairdro.frontier import best_accuracy, best_dca, knee
from fairdro.groups import TOO_FEW
from fairdro.metrics import FairClasses, kept_accuracy, metric_table
from fairdro.who_pays import KEEP_CLASS_ACCURACY, changes, who_pays

__all__ = [
    "RULES",
    "CertifiedDCA",
    "Choice",
    "Guard",
    "KeepAccuracy",
    "Knee",
    "LimitDCA",
    "Rule",
    "certify",
    "changes",
    "rows_needed",
    "rule_from",
    "who_pays",
]


@dataclass(frozen=True)
class Choice:
    """The position of a chosen point, and why it was chosen: what a selection rule returns.

    Attributes
    ----------
    index : int
        Row of the points.
    why : str
        The reason, which the model card says.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdro.selection import Choice
    >>> def best_worst(points, plain):
    ...     return Choice(int(points["worst_accuracy"].argmax()), "the best worst cell")
    >>> points = pd.DataFrame({"accuracy": [0.80, 0.79], "dca": [0.15, 0.06], "worst_accuracy": [0.60, 0.68]})
    >>> best_worst(points, plain=points.iloc[0])
    Choice(index=1, why='the best worst cell')
    """

    index: int
    why: str


Rule = Callable[[pd.DataFrame, pd.Series], Choice]
"""A selection rule: called with a DataFrame of points and the row of plain training, it returns a :class:`Choice`."""


@dataclass(frozen=True)
class Guard:
    """Keeps any rule from levelling down: from points at which a class is given up to make its groups equal.

    Parameters
    ----------
    keep_class_accuracy : float, default 0.8
        Share of plain training's accuracy that every class must keep, averaged over its groups.
    floor : float, optional
        Accuracy that the worst class and group must have.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdro.selection import Guard
    >>> points = pd.DataFrame({
    ...     "class_accuracy_0": [0.80, 0.85, 0.95],
    ...     "class_accuracy_1": [0.80, 0.70, 0.50],
    ...     "worst_accuracy": [0.70, 0.65, 0.48],
    ... })
    >>> Guard(keep_class_accuracy=0.8).passes(points, points.iloc[0])
    array([ True,  True, False])
    """

    keep_class_accuracy: float = KEEP_CLASS_ACCURACY
    floor: float | None = None

    def __post_init__(self) -> None:
        check_share(self.keep_class_accuracy, "keep_class_accuracy")
        if self.floor is not None:
            check_share(self.floor, "floor")

    def __str__(self) -> str:
        asked = (
            [f"every class keeps {100 * self.keep_class_accuracy:g} % of its accuracy"] if self.keep_class_accuracy else []
        )
        if self.floor is not None:
            asked.append(f"the worst class and group have {100 * self.floor:g} %")
        return f"while {' and '.join(asked)} where that can be" if asked else ""

    def passes(self, points: pd.DataFrame, plain: pd.Series) -> np.ndarray:
        """Return which points a rule may choose ``(P,)``.

        Parameters
        ----------
        points : DataFrame
            A row per point, with its metrics.
        plain : Series
            The row of plain training.

        Returns
        -------
        ndarray of bool, shape (P,)
        """
        classes = [name for name in points.columns if name.startswith("class_accuracy_")]
        kept = points[classes].to_numpy() >= self.keep_class_accuracy * plain[classes].to_numpy(np.float64)
        kept |= np.isnan(points[classes].to_numpy())  # a class without rows
        above = points["worst_accuracy"].to_numpy() >= (0 if self.floor is None else self.floor)
        return np.asarray(kept.all(axis=1) & above)

    def objection(self, point: pd.Series, plain: pd.Series, class_names: Sequence[str]) -> str:
        """Say why a point does not pass, and which parameter would let it; empty where it does.

        Parameters
        ----------
        point, plain : Series
            The metrics of a point and of plain training.
        class_names : sequence of str
            Names of the classes.

        Returns
        -------
        str
        """
        for k, name in enumerate(class_names):
            before, after = plain[f"class_accuracy_{k}"], point[f"class_accuracy_{k}"]
            if after < self.keep_class_accuracy * before:
                asked = f"keep_class_accuracy asks for {100 * self.keep_class_accuracy:g} %"
                return f"{name} keeps {100 * after / before:.0f} % of plain training's accuracy ({asked})"
        if self.floor is not None and point["worst_accuracy"] < self.floor:
            worst = f"the worst class and group have {100 * point['worst_accuracy']:.1f} %"
            return f"{worst} (floor asks for {100 * self.floor:g} %)"
        return ""


@dataclass(frozen=True)
class KeepAccuracy:
    """The smallest DCA that keeps a share of plain training's accuracy; the paper's rule with 95 %.

    Parameters
    ----------
    keep_accuracy : float, default 0.95
        The share.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdro.selection import KeepAccuracy
    >>> points = pd.DataFrame({"accuracy": [0.80, 0.79, 0.77, 0.70], "dca": [0.15, 0.06, 0.04, 0.03]})
    >>> KeepAccuracy(0.95)(points, plain=points.iloc[0])
    Choice(index=2, why='the smallest DCA at an accuracy of 76.00 % or more')
    """

    keep_accuracy: float = 0.95

    def __post_init__(self) -> None:
        check_share(self.keep_accuracy, "keep_accuracy")

    def __str__(self) -> str:
        return f"smallest DCA that keeps {100 * self.keep_accuracy:g} % of plain training's accuracy"

    def __call__(self, points: pd.DataFrame, plain: pd.Series) -> Choice:
        """Choose a point.

        Parameters
        ----------
        points : DataFrame
            A row per point, with its metrics.
        plain : Series
            The row of plain training.

        Returns
        -------
        Choice
        """
        limit = self.keep_accuracy * float(plain["accuracy"])
        index = best_dca(points["accuracy"], points["dca"], min_accuracy=limit)
        return Choice(index, f"the smallest DCA at an accuracy of {100 * limit:.2f} % or more")


@dataclass(frozen=True)
class LimitDCA:
    """The largest accuracy with a DCA of at most a limit.

    Parameters
    ----------
    max_dca : float, default 0.05
        The limit.

    See Also
    --------
    CertifiedDCA : The same with a certificate.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdro.selection import LimitDCA
    >>> points = pd.DataFrame({"accuracy": [0.80, 0.79, 0.77, 0.70], "dca": [0.15, 0.06, 0.04, 0.03]})
    >>> LimitDCA(0.05)(points, plain=points.iloc[0])
    Choice(index=2, why='the largest accuracy with a DCA of at most 5 %')
    """

    max_dca: float = 0.05

    def __post_init__(self) -> None:
        check_share(self.max_dca, "max_dca")

    def __str__(self) -> str:
        return f"largest accuracy with a DCA of at most {100 * self.max_dca:g} %"

    def __call__(self, points: pd.DataFrame, plain: pd.Series) -> Choice:
        """Choose a point.

        Parameters
        ----------
        points : DataFrame
            A row per point, with its metrics.
        plain : Series
            The row of plain training.

        Returns
        -------
        Choice
        """
        return Choice(best_accuracy(points["accuracy"], points["dca"], max_dca=self.max_dca), f"the {self}")


@dataclass(frozen=True)
class Knee:
    """The knee of the envelope, beyond which fairness costs more.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdro.selection import Knee
    >>> points = pd.DataFrame({"accuracy": [0.80, 0.79, 0.77, 0.70], "dca": [0.15, 0.06, 0.04, 0.03]})
    >>> Knee()(points, plain=points.iloc[0])
    Choice(index=1, why="farthest below the line between the frontier's ends")
    """

    def __str__(self) -> str:
        return "knee of the frontier"

    def __call__(self, points: pd.DataFrame, plain: pd.Series) -> Choice:
        """Choose a point.

        Parameters
        ----------
        points : DataFrame
            A row per point, with its metrics.
        plain : Series
            The row of plain training.

        Returns
        -------
        Choice
        """
        return Choice(knee(points["accuracy"], points["dca"]), "farthest below the line between the frontier's ends")


@dataclass(frozen=True)
class AsAsked:
    """The largest radius, which was asked for, whatever the figures are."""

    def __str__(self) -> str:
        return "one that was asked for"

    def __call__(self, points: pd.DataFrame, plain: pd.Series) -> Choice:
        """Choose the last point."""
        return Choice(len(points) - 1, "asked for")


RULES: dict[str, Callable[..., KeepAccuracy | LimitDCA | Knee | CertifiedDCA]] = {
    "keep-accuracy": KeepAccuracy,
    "max-dca": LimitDCA,
    "knee": Knee,
    "certified-dca": CertifiedDCA,
}
"""The selection rules by the names that :func:`rule_from`, ``--select`` and saved models know; add one of your own here."""


def rule_from(text: str) -> KeepAccuracy | LimitDCA | Knee | CertifiedDCA:
    """Read a selection rule from its text, as the command line takes it.

    Parameters
    ----------
    text : str
        ``keep-accuracy=0.95``, ``max-dca=0.05``, ``knee`` or ``certified-dca=0.05``; with a
        delta, ``certified-dca=0.05,0.1``.

    Returns
    -------
    KeepAccuracy, LimitDCA, Knee or CertifiedDCA

    Examples
    --------
    >>> from fairdro.selection import rule_from
    >>> rule_from("max-dca=0.05")
    LimitDCA(max_dca=0.05)
    >>> print(rule_from("certified-dca=0.05,0.1"))
    most accurate whose DCA is certified to be at most 5 %, with 90 % confidence
    """
    name, given, values = text.partition("=")
    if name not in RULES:
        raise unknown_name("selection rule", name, ["keep-accuracy=0.95", "max-dca=0.05", "knee", "certified-dca=0.05"])
    try:
        return RULES[name](*([float(value) for value in values.split(",")] if given else []))
    except (InputError, ValueError, TypeError) as error:
        raise InputError(
            f"The selection rule {text!r} needs a share between 0 and 1, for example keep-accuracy=0.95 or max-dca=0.05."
        ) from error


def points_rule_from(text: str) -> KeepAccuracy | LimitDCA | Knee:
    """Read a selection rule that goes by points alone."""
    if isinstance(rule := rule_from(text), CertifiedDCA):
        raise InputError("certified-dca needs rows that are set aside to certify, and a bench sets none aside; use max-dca.")
    return rule


def rule_text(rule: Any) -> str | None:
    """Write a selection rule so that :func:`rule_from` reads it; None for one of another kind."""
    for name, kind in RULES.items():
        if type(rule) is kind:
            values = ",".join(repr(float(value)) for value in vars(rule).values())
            return f"{name}={values}" if values else name
    return None


def check_rule(rule: Any) -> Rule:
    """Return a selection rule, also from its text; refuse what is none before anything is trained."""
    if isinstance(rule, str):
        return rule_from(rule)
    if isinstance(rule, type) or not callable(rule):
        raise InputError(f"A selection rule is called with points and plain training, e.g. LimitDCA(0.05); got {rule!r}.")
    try:
        inspect.signature(rule).bind(None, None)
    except TypeError as error:
        raise InputError(f"A selection rule takes two arguments, points and plain training; {rule!r} does not.") from error
    except ValueError:  # of a callable that does not tell
        pass
    return rule


def choose(rule: Rule, points: pd.DataFrame, plain: pd.Series, guard: Guard | None = None) -> Choice:
    """Let a rule choose one of the points, whose rows it may also name by their number; refuse what is no choice.

    Points that do not pass the guard are chosen only where the rule finds none that do.
    """
    passing = np.ones(len(points), dtype=bool) if guard is None else guard.passes(points, plain)
    if not isinstance(rule, AsAsked) and 0 < passing.sum() < len(points):
        try:
            choice = choose(rule, points[passing], plain)
            return Choice(int(np.flatnonzero(passing)[choice.index]), choice.why)
        except InputError:  # none of them satisfies the rule, but others may
            return choose(rule, points, plain)
    choice = rule(points.reset_index(drop=True), plain)
    index = getattr(choice, "index", None)
    if not isinstance(choice, Choice) or not isinstance(index, int | np.integer) or not 0 <= index < len(points):
        raise InputError(f"A selection rule returns Choice(index, why) with an index below {len(points)}, got {choice!r}.")
    return choice


def plain_radius(radii: Sequence[float] | np.ndarray) -> int:
    """Return the position of the radius that stands for plain training: the smallest."""
    return int(np.argmin(radii))


def points_of(
    counts: np.ndarray,
    *,
    objective: str = "balanced",
    class_weight: Sequence[float] | None = None,
    fair_classes: FairClasses = None,
) -> pd.DataFrame:
    """Return what a rule sees of points ``(P, Y, A, Y)``: their metrics, ``accuracy`` being the one that is kept."""
    table = metric_table(counts, fair_classes)
    return table.assign(accuracy=kept_accuracy(counts, objective, class_weight))


def small_cells(counts: np.ndarray) -> np.ndarray:
    """Return which cells have some held-out rows, but too few to judge ``(Y, A)``, given ``(P, Y, A, Y)``."""
    sizes = counts[0].sum(-1)
    return np.asarray((sizes > 0) & (sizes < TOO_FEW))


def judged_cells(counts: np.ndarray, fair_classes: FairClasses = None) -> np.ndarray:
    """Return counts ``(P, Y, A, Y)`` without cells that are too small, unless no gap would be left to choose by."""
    left = np.where(small_cells(counts)[:, :, None], 0, counts)
    return left if has_gap(left, fair_classes) else counts


def has_gap(counts: np.ndarray, fair_classes: FairClasses = None) -> bool:
    """Whether a class that is to be fair has rows of two groups."""
    groups = (counts[0].sum(-1) > 0).sum(-1)[slice(None) if fair_classes is None else list(fair_classes)]
    return bool((groups > 1).any())


def choose_radius(
    counts: np.ndarray,
    radii: Sequence[float] | np.ndarray,
    rule: Rule,
    *,
    diverged: np.ndarray | None = None,
    guard: Guard | None = None,
    seen: np.ndarray | None = None,
    every_cell: bool = False,
    **kept: Any,
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
    guard : Guard, optional
        Points that do not pass it are chosen only where no other satisfies the rule.
    seen : ndarray of shape (P, Y, A, Y), optional
        What the rule goes by, where that is more than ``counts``: rows whose groups are inferred, by their shares.
    every_cell : bool
        Whether the rule also goes by cells with too few rows to judge.
    **kept
        ``objective``, ``class_weight`` and ``fair_classes``, as in :func:`points_of`: which accuracy the rule gets, and
        which classes gaps are about.

    Returns
    -------
    choice : Choice
    frontier : DataFrame
        A row per radius: ``rho``, the metrics of ``counts``, ``diverged``, with a guard ``levels_down`` where it does not
        pass, with class weights the ``weighted_accuracy``, and which is ``selected``.
    """
    diverged = np.zeros(len(radii), dtype=bool) if diverged is None else diverged
    sound = np.flatnonzero(~diverged)
    if len(sound) == 0 or (isinstance(rule, AsAsked) and diverged[-1]):
        raise InputError(f"Training diverged at rho = {radii[-1]:g}; try smaller radii.")
    shown, fair = counts if seen is None else seen, kept.get("fair_classes")
    points = points_of(shown if every_cell else judged_cells(shown, fair), **kept)
    plain = points.iloc[plain_radius(radii)]
    choice = choose(rule, points.iloc[sound], plain, guard)
    choice = Choice(int(sound[choice.index]), choice.why)
    told: dict[str, Any] = {} if guard is None else {"levels_down": ~guard.passes(points, plain)}
    if kept.get("class_weight") is not None:
        told["weighted_accuracy"] = kept_accuracy(counts, kept.get("objective", "balanced"), kept["class_weight"])
    frontier = metric_table(counts, fair).assign(diverged=diverged, **told, selected=np.arange(len(radii)) == choice.index)
    frontier.insert(0, "rho", np.asarray(radii, dtype=np.float64))
    return choice, frontier
