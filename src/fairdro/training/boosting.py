r"""Boosted trees that serve groups alike, in two ways, by every method that only weighs cells.

``weights``: the cell weights :math:`w_{y,a}` scale the gradients of boosting, :math:`w\,(p - 1[y])`, and their absolute
values the curvatures, :math:`|w|\,p\,(1 - p)`; the method answers after every round.

``head``: trees give the probabilities of the class and of the group, both from x alone, for rows they have not seen; a head
(:mod:`fairdro.training.heads`) reads them. So the trees are grown once for a whole frontier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fairdro.cells import Cells
from fairdro.errors import InputError, unknown_name
from fairdro.methods import CellMeans, Method, State, Task
from fairdro.models.trees import Growing, Table, Trees, TreeSettings, tabulate
from fairdro.seeding import generator, number
from fairdro.training.heads import BoostedHead, check_weighs_cells, damped, fit_head
from fairdro.training.trained import History, most_likely

__all__ = [
    "STRATEGIES",
    "BoostedBank",
    "BoostedWeights",
    "JointTrees",
    "Watched",
    "boost_joint",
    "boost_weights",
    "out_of_fold",
    "train_boosted",
]

STRATEGIES = ["head", "weights"]
DAMPING = 0.1
FLOOR = 1e-6
ROUNDS_AT_ONCE = 10

OnStep = Callable[[int, int], object]


def _softmax(scores: np.ndarray) -> np.ndarray:
    """Return probabilities ``(N, Y)`` of scores ``(N, Y)``, or of one score ``(N, 1)`` for two classes."""
    given = torch.from_numpy(scores)
    if scores.shape[1] == 1:
        second = given[:, 0].sigmoid()
        return torch.stack([1 - second, second], dim=1).numpy()
    return given.softmax(1).numpy()


class _CrossEntropy:
    """The weighted cross-entropy of shares to predict ``(N, K)``, in single precision as the libraries keep gradients.

    All is kept class by class, and in the same memory every time: both are faster.
    """

    def __init__(self, target: Tensor) -> None:
        self.target = (target if target.shape[1] > 2 else target[:, 1:]).T.contiguous()
        self.p, self.slope, self.curvature = (torch.empty_like(self.target) for _ in range(3))

    def gradients(self, scores: Tensor, weight: Tensor | None) -> tuple[np.ndarray, np.ndarray]:
        """Return slope and curvature ``(N, K)`` at scores ``(K, N)``, of which two classes have one, by weights ``(N,)``."""
        width = len(scores)
        if width == 1:
            torch.sigmoid(scores, out=self.p)
        else:
            torch.softmax(scores, 0, out=self.p)
        torch.sub(self.p, self.target, out=self.slope)
        torch.sub(1, self.p, out=self.curvature).mul_(self.p).clamp_(min=FLOOR)
        if width > 1:
            self.curvature *= width / (width - 1)
        if weight is not None:
            self.slope *= weight
            self.curvature *= weight.abs()
        return self.slope.T.numpy(), self.curvature.T.numpy()


class _Scores:
    """The scores of training rows, copied class by class in single precision ``(K, N)``."""

    def __init__(self, growing: Growing) -> None:
        self.growing = growing
        self.values = torch.from_numpy(growing.scores()).T.float().contiguous()

    def read(self) -> Tensor:
        """Copy them as they are now."""
        return self.values.copy_(torch.from_numpy(self.growing.scores()).T)


def _surprise(scores: np.ndarray, target: Tensor, weight: Tensor | None) -> float:
    """Return the mean cross-entropy of shares ``(N, Y)``."""
    given = torch.from_numpy(scores).float()
    if scores.shape[1] == 1:
        loss = functional.binary_cross_entropy_with_logits(given[:, 0], target[:, 1], reduction="none")
    else:
        loss = functional.cross_entropy(given, target, reduction="none")
    return float(loss.mean() if weight is None else (weight * loss).sum() / weight.sum())


def _codes(scores: np.ndarray) -> np.ndarray:
    """Return the likeliest class of every row ``(N,)``."""
    return scores[:, 0] > 0 if scores.shape[1] == 1 else most_likely(torch.from_numpy(scores)).numpy()


def _width(n: int) -> int:
    return 1 if n == 2 else n


@dataclass(frozen=True)
class Watched:
    """Rows that say when to stop growing.

    Attributes
    ----------
    X : ndarray of shape (M, D)
    cells : Cells
    patience : int
        Rounds without progress after which growing ends.
    """

    X: np.ndarray
    cells: Cells
    patience: int


def _classes(cells: Cells) -> Tensor:
    return functional.one_hot(cells.y, cells.n_classes).float()


def _groups(cells: Cells) -> Tensor:
    return cells.membership.float()


def _weight(cells: Cells) -> Tensor | None:
    return None if cells.sample_weight is None else cells.sample_weight.float()


@dataclass(frozen=True)
class JointTrees:
    """Trees that predict the class and trees that predict the group.

    Attributes
    ----------
    classes : Trees
    groups : Trees, or None
        None where there is one group.
    rounds : tuple of int
        How many were grown of each.
    """

    classes: Trees
    groups: Trees | None
    rounds: tuple[int, int]

    def probabilities(self, X: np.ndarray) -> np.ndarray:
        r"""Return :math:`p(y | x)\, p(a | x)` for every row ``(N, Y, A)``."""
        of_group = np.ones((len(X), 1)) if self.groups is None else _softmax(self.groups.scores(X))
        return _softmax(self.classes.scores(X))[:, :, None] * of_group[:, None, :]


def boost_joint(
    X: np.ndarray,
    cells: Cells,
    settings: TreeSettings,
    *,
    rounds: tuple[int, int] | None = None,
    watched: Watched | None = None,
) -> JointTrees:
    """Grow trees that predict the class, and trees that predict the group or the shares of soft groups.

    Parameters
    ----------
    X : ndarray of shape (N, D)
        Missing values may be NaN.
    cells : Cells
    settings : TreeSettings
    rounds : tuple of int, optional
        Of class and group, instead of those of the settings.
    watched : Watched, optional
        Rows that say when to stop.
    """
    table = tabulate(X, settings, None if watched is None else watched.X)
    of_classes, of_groups = rounds or (settings.rounds, settings.rounds)
    classes, of_classes = _boost(table, cells, of_classes, _classes, watched)
    if cells.n_groups == 1:
        return JointTrees(classes, None, (of_classes, of_groups))
    groups, of_groups = _boost(table, cells, of_groups, _groups, watched)
    return JointTrees(classes, groups, (of_classes, of_groups))


def _boost(
    table: Table, cells: Cells, rounds: int, target_of: Callable[[Cells], Tensor], watched: Watched | None
) -> tuple[Trees, int]:
    """Grow trees that predict shares ``(N, K)``; return them and the number of rounds."""
    target, weight = target_of(cells), _weight(cells)
    growing, objective = table.grow(_width(target.shape[1])), _CrossEntropy(target)
    scores = _Scores(growing)
    outside = None if watched is None else (target_of(watched.cells), _weight(watched.cells))
    best, least = rounds, np.inf
    for step in range(rounds):
        growing.step(*objective.gradients(scores.read(), weight))
        if watched is not None and outside is not None:
            loss = _surprise(growing.held_scores(), *outside)
            if loss < least:
                best, least = step + 1, loss
            elif step + 1 - best >= watched.patience:
                break
    return growing.finish(None if watched is None else best), best


def out_of_fold(
    X: np.ndarray,
    cells: Cells,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
    settings: TreeSettings,
    *,
    patience: int | None = None,
    on_step: OnStep | None = None,
) -> tuple[np.ndarray, tuple[int, int]]:
    """Return every row's probabilities ``(N, Y, A)`` by trees that have not seen it, and the mean rounds of class and group.

    Parameters
    ----------
    folds : sequence of (train, test)
        Rows; those that are never tested have NaN.
    patience : int, optional
        Rounds without progress on the tested rows after which growing ends.
    on_step : callable, optional
        Called with the number of finished folds and of all.
    """
    outside = np.full((len(cells), cells.n_classes, cells.n_groups), np.nan)
    grown = []
    for i, (train, test) in enumerate(folds):
        own, tested = (cells.take(torch.from_numpy(rows)) for rows in (train, test))
        watched = None if patience is None else Watched(X[test], tested, patience)
        trees = boost_joint(X[train], own, settings, watched=watched)
        outside[test] = trees.probabilities(X[test])
        grown.append(trees.rounds)
        if on_step is not None:
            on_step(i + 1, len(folds))
    mean = np.mean(grown, axis=0).round()
    return outside, (int(mean[0]), int(mean[1]))


@dataclass(frozen=True)
class BoostedWeights:
    """Trees grown with the weights of cells, for P points.

    Attributes
    ----------
    method : Method
    trees : list of Trees
        One per point.
    rounds : list of int
        How many were kept of each.
    weights : Tensor of shape (1, P, Y, A)
        The cell weights of the last round that was kept.
    history : History
        Of one entry per round.
    """

    method: Method
    trees: list[Trees]
    rounds: list[int]
    weights: Tensor
    history: History

    def predict(self, X: np.ndarray) -> Tensor:
        """Return class codes ``(1, P, N)``."""
        return torch.from_numpy(np.stack([_codes(trees.scores(X)) for trees in self.trees])).long()[None]


def _completed(errors: Tensor, unseen: Tensor) -> Tensor:
    """Fill in cells that no held-out row is in, by the mean of their class, or else of all classes."""
    of_class = errors.nanmean(-1, keepdim=True)
    likely = of_class.where(~of_class.isnan(), of_class.nanmean(-2, keepdim=True))
    return torch.where(unseen, likely, errors)


class _Plain:
    """A booster that is judged by held-out rows, or by those it is trained on."""

    def __init__(self, growing: Growing, *, held: bool) -> None:
        self.growing, self.scores = growing, _Scores(growing)
        self.judged = growing.held_scores if held else growing.scores

    def step(self, objective: _CrossEntropy, weight: Tensor, _: Tensor) -> np.ndarray:
        """Grow a round; return the scores ``(N, K)`` of the rows that judge it."""
        self.growing.step(*objective.gradients(self.scores.read(), weight))
        return self.judged()


class _Bagged:
    """A booster whose rounds see half of the rows each, judged by what the other half gets from them."""

    def __init__(self, growing: Growing) -> None:
        self.growing, self.scores = growing, _Scores(growing)
        self.outside = torch.zeros_like(self.scores.values)

    def step(self, objective: _CrossEntropy, weight: Tensor, left_out: Tensor) -> np.ndarray:
        """Grow a round; return the scores ``(N, K)`` of all rows by the rounds that left them out, times two."""
        before = self.scores.values
        self.outside.addcmul_(before, left_out, value=-2)
        self.growing.step(*objective.gradients(before, weight))
        self.outside.addcmul_(self.scores.read(), left_out, value=2)
        return self.outside.T.numpy()


def _draw_half(n: int, rng: np.random.Generator) -> Tensor:
    """Draw ones for about half of the rows, zeros for the others ``(N,)``."""
    drawn = np.frombuffer(rng.bytes((n + 7) // 8), dtype=np.uint8)
    return torch.from_numpy(np.unpackbits(drawn, count=n)).float()


def boost_weights(
    X: np.ndarray,
    cells: Cells,
    method: Method,
    settings: TreeSettings,
    *,
    held: Sequence[int] | np.ndarray = (),
    bagged: bool = False,
    keep_best: bool = False,
    on_step: OnStep | None = None,
) -> BoostedWeights:
    r"""Grow trees whose gradients are scaled by the method's weights, which it updates after every round.

    A method that answers to training errors is deceived: trees make few of them, and equal ones, long before new rows are
    served alike. So it may answer to rows that are held out, or to every row by those trees that have not seen it.

    Parameters
    ----------
    X : ndarray of shape (N, D)
        Missing values may be NaN.
    cells : Cells
    method : Method
        A booster per point, round by round.
    settings : TreeSettings
    held : rows, optional
        Rows that are not trained on, to whose errors the method answers.
    bagged : bool
        Every round is trained on half of the rows, drawn anew, and the method answers to the errors that rows have by the
        rounds that left them out. Not with ``held``.
    keep_best : bool
        Keep the trees up to the round at which the weighted error :math:`\frac{1}{|Y|} \sum_{y,a} w^*_{y,a} e_{y,a}` was
        smallest, with :math:`w^*` the method's full answer to the errors :math:`e`: for FairDRO, its own robust objective.
    on_step : callable, optional
    """
    check_weighs_cells(method, cells)
    held = np.asarray(held, dtype=np.int64)
    if bagged and len(held):
        raise InputError("The method answers to held-out rows or to rows out of bag, not to both; leave out held or bagged.")
    own = np.setdiff1d(np.arange(len(cells)), held)
    trained, judged = cells.take(torch.from_numpy(own)), cells.take(torch.from_numpy(held if len(held) else own))
    table = tabulate(X[own], settings, X[held] if len(held) else None)
    objective, plain = _CrossEntropy(_classes(trained)), _weight(trained)
    truth = judged.y.numpy() if cells.n_classes > 2 else judged.y.bool().numpy()
    unseen = (judged.counts == 0) & (trained.counts > 0) if len(held) and bool((judged.counts == 0).any()) else None
    scale = len(own) / (cells.n_classes * trained.counts.clamp(min=1e-12))
    state = method.begin(Task(trained.counts, (1, method.points)))
    wrong, left_out = torch.empty(method.points, len(judged)), torch.zeros(len(own))
    states: list[State] = []
    errors: list[Tensor] = []
    for training_round in range(method.rounds):
        fresh = [table.grow(_width(cells.n_classes)) for _ in range(method.points)]
        growing = [_Bagged(one) if bagged else _Plain(one, held=len(held) > 0) for one in fresh]
        bags = np.random.default_rng(number(settings.seed, "bags"))
        for step in range(settings.rounds):
            states.append(state)
            with torch.inference_mode():  # spares operations as small as these a quarter of their time
                per_row = trained.spread((method.weights(state)[0] * scale).float())
                if plain is not None:
                    per_row *= plain
                if bagged:
                    bag = _draw_half(len(own), bags)
                    per_row *= bag
                    torch.sub(1, bag, out=left_out)
                for one, weight, row in zip(growing, per_row, wrong.numpy(), strict=True):
                    np.not_equal(_codes(one.step(objective, weight, left_out)), truth, out=row)
                error = judged.means(wrong).double()[None]
                errors.append(error if unseen is None else _completed(error, unseen))
                means = CellMeans(errors[-1])
                state = damped(state, method.update(state, means, step / settings.rounds), DAMPING)
            if on_step is not None:
                on_step(training_round * settings.rounds + step + 1, method.rounds * settings.rounds)
        if training_round + 1 < method.rounds:
            state = method.next_round(state, means)
    best = torch.full((method.points,), settings.rounds)
    if keep_best:
        best = _robust_errors(method, states[-settings.rounds :], errors[-settings.rounds :]).argmin(0) + 1
    weights, error = torch.cat([method.weights(one) for one in states]), torch.cat(errors)
    kept = weights[-settings.rounds :][best - 1, torch.arange(method.points)][None]
    trees = [one.finish(rounds) for one, rounds in zip(fresh, best.tolist(), strict=True)]
    return BoostedWeights(method, trees, best.tolist(), kept, History(weights[:, None], 1 - error[:, None]))


def _robust_errors(method: Method, states: list[State], errors: list[Tensor]) -> Tensor:
    """Weigh the errors of every round by the method's full answer to them ``(T, P)``, a few rounds at once."""
    found = []
    for first in range(0, len(states), ROUNDS_AT_ONCE):
        some = slice(first, first + ROUNDS_AT_ONCE)
        state, error = {key: torch.cat([one[key] for one in states[some]]) for key in states[0]}, torch.cat(errors[some])
        answer = method.weights(method.update(state, CellMeans(error), 0.0))
        found.append((answer * error).nansum((-1, -2)))
    return torch.cat(found)


@dataclass(frozen=True)
class BoostedBank:
    """Boosted trees for P points, as an engine gives them; see :class:`~fairdro.training.TrainedBank`.

    Attributes
    ----------
    fitted : BoostedHead or BoostedWeights
    trees : JointTrees, or None
        Those that a head reads.
    seconds : float
    """

    fitted: BoostedHead | BoostedWeights
    trees: JointTrees | None
    seconds: float

    @property
    def history(self) -> History:
        """What happened in training."""
        return self.fitted.history

    @property
    def diverged(self) -> Tensor:
        """Models that are not to be used ``(1, P)``: none."""
        return torch.zeros(1, self.fitted.method.points, dtype=torch.bool)

    def predict(self, X: Tensor) -> Tensor:
        """Return class codes ``(1, P, N)`` for rows ``(N, D)``."""
        rows = X.double().numpy()
        return self.fitted.predict(rows if self.trees is None else self.trees.probabilities(rows))


def train_boosted(
    X: Tensor,
    cells: Cells,
    method: Method,
    *,
    strategy: str = "head",
    settings: TreeSettings | None = None,
    folds: int = 5,
    on_step: OnStep | None = None,
) -> BoostedBank:
    """Train every point of a method with boosted trees.

    Parameters
    ----------
    X : Tensor of shape (N, D)
    cells : Cells
    method : Method
        One that only weighs cells.
    strategy : {"head", "weights"}
    settings : TreeSettings, optional
    folds : int
        For a head, every row is predicted by trees of the other folds.
    on_step : callable, optional
        Called with the number of finished steps and of all.
    """
    if strategy not in STRATEGIES:
        raise unknown_name("strategy", strategy, STRATEGIES)
    check_weighs_cells(method, cells)
    start = time.perf_counter()
    settings, rows = TreeSettings() if settings is None else settings, X.double().numpy()
    if strategy == "weights":
        fitted = boost_weights(rows, cells, method, settings, bagged=True, keep_best=True, on_step=on_step)
        return BoostedBank(fitted, None, time.perf_counter() - start)
    order = torch.randperm(len(cells), generator=generator(settings.seed, "folds")).numpy()
    parts = [(np.delete(order, np.s_[fold::folds]), order[fold::folds]) for fold in range(folds)]
    outside, _ = out_of_fold(rows, cells, parts, settings, on_step=on_step)
    head = fit_head(outside, cells, method)
    return BoostedBank(head, boost_joint(rows, cells, settings), time.perf_counter() - start)
