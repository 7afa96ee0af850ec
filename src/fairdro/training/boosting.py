r"""Boosted trees that serve groups alike, in two ways, by every method that only weighs cells.

``weights``: the cell weights :math:`w_{y,a}` scale the gradients of boosting, :math:`w\,(p - 1[y])`, and their absolute
values the curvatures, :math:`|w|\,p\,(1 - p)`; the method answers after every round.

``head``: trees give the probabilities of the class and of the group, both from x alone. The classifier that minimises the
weighted errors of the cells is then known without training,

.. math:: \hat y(x) = \arg\max_y \sum_a \frac{w_{y,a}}{\pi_{y,a}}\, p(y \mid x)\, p(a \mid x),

with :math:`\pi` the cells' shares of the data; the method answers to its errors on rows that the trees have not seen. So the
trees are grown once for a whole frontier, and what is fitted to be fair is :math:`w` alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairdro.cells import Cells
from fairdro.errors import InputError, unknown_name
from fairdro.methods import CellMeans, Method, State, Task
from fairdro.models.trees import Table, Trees, TreeSettings, tabulate
from fairdro.seeding import generator
from fairdro.training.trained import History, mistaken, most_likely

__all__ = [
    "STRATEGIES",
    "BoostedBank",
    "BoostedHead",
    "BoostedWeights",
    "JointTrees",
    "Watched",
    "boost_joint",
    "boost_weights",
    "fit_head",
    "out_of_fold",
    "read_joint",
    "train_boosted",
]

STRATEGIES = ["head", "weights"]
HELD = 4  # one of so many rows is held out of the trees' training for the method to answer to

DAMPING = 0.3
STEPS = 100
ROUND_DAMPING = 0.1
FLOOR = 1e-6

OnStep = Callable[[int, int], object]


def _softmax(scores: np.ndarray) -> np.ndarray:
    """Return probabilities ``(N, Y)`` of scores ``(N, Y)``, or of one score ``(N, 1)`` for two classes."""
    given = torch.from_numpy(scores)
    if scores.shape[1] == 1:
        second = given[:, 0].sigmoid()
        return torch.stack([1 - second, second], dim=1).numpy()
    return given.softmax(1).numpy()


def _gradients(scores: np.ndarray, target: Tensor, weight: Tensor | None) -> tuple[np.ndarray, np.ndarray]:
    """Return slope and curvature of the weighted cross-entropy, for shares ``(N, Y)`` to predict and weights ``(N,)``.

    In single precision, as the libraries keep them.
    """
    given = torch.from_numpy(scores).float()
    if scores.shape[1] == 1:
        p = given.sigmoid()
        slope, curvature = p - target[:, 1:], p * (1 - p)
    else:
        p = given.softmax(1)
        slope, curvature = p - target, scores.shape[1] / (scores.shape[1] - 1) * p * (1 - p)
    curvature.clamp_(min=FLOOR)
    if weight is not None:
        slope, curvature = weight[:, None] * slope, weight.abs()[:, None] * curvature
    return slope.numpy(), curvature.numpy()


def _surprise(scores: np.ndarray, target: Tensor, weight: Tensor | None) -> float:
    """Return the mean cross-entropy of shares ``(N, Y)``."""
    likely = torch.from_numpy(_softmax(scores)).float().clamp_(min=FLOOR)
    loss = -(target * likely.log_()).sum(1)
    return float(loss.mean() if weight is None else (weight * loss).sum() / weight.sum())


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
    return torch.nn.functional.one_hot(cells.y, cells.n_classes).float()


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
    growing = table.grow(_width(target.shape[1]))
    outside = None if watched is None else (target_of(watched.cells), _weight(watched.cells))
    best, least = rounds, np.inf
    for step in range(rounds):
        growing.step(*_gradients(growing.scores(), target, weight))
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
class BoostedHead:
    """Weights of cells by which boosted probabilities are read, for P points.

    Attributes
    ----------
    method : Method
    state : State
    share : Tensor of shape (Y, A)
        The cells' shares of the training rows.
    history : History
        Of one entry per step.
    """

    method: Method
    state: State
    share: Tensor
    history: History

    @property
    def weights(self) -> Tensor:
        """Final cell weights ``(1, P, Y, A)``."""
        return self.method.weights(self.state)

    def predict(self, probabilities: np.ndarray) -> Tensor:
        """Return class codes ``(1, P, N)``, given the probabilities of cells ``(N, Y, A)``."""
        return most_likely(read_joint(probabilities, self.share, self.weights[0]))[None]


def read_joint(probabilities: np.ndarray, share: Tensor, weights: Tensor) -> Tensor:
    """Return what speaks for every class ``(P, N, Y)``: probabilities of cells ``(N, Y, A)`` by weights ``(P, Y, A)``."""
    return _read(_relative(probabilities, share), weights.float())


def _relative(probabilities: np.ndarray, share: Tensor) -> Tensor:
    """Return the probabilities of the cells over their shares, zero for cells without rows."""
    inverse = torch.where(share > 0, 1 / share.clamp(min=1e-12), 0)
    return (torch.from_numpy(probabilities) * inverse).float()


def _read(relative: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sums over groups ``(P, N, Y)``."""
    return torch.einsum("nya,pya->pny", relative, weights)


def fit_head(probabilities: np.ndarray, cells: Cells, method: Method, *, steps: int = STEPS) -> BoostedHead:
    """Let a method answer to the errors of the best classifier under its weights, until both rest.

    Parameters
    ----------
    probabilities : ndarray of shape (N, Y, A)
        From :class:`JointTrees`, by trees that have not seen the row.
    cells : Cells
        Of the same rows.
    method : Method
        All its points at once.
    steps : int
        The method's own step is damped to 0.3 of it, falling to nothing.
    """
    _check(method, cells)
    if len(probabilities) != len(cells):
        raise InputError(f"There are probabilities of {len(probabilities)} rows, but {len(cells)} labels.")
    task = Task(cells.counts, (1, method.points))
    share = cells.counts / cells.counts.sum()
    relative = _relative(probabilities, share)
    state = method.begin(task)
    weights, accuracy = [], []
    for training_round in range(method.rounds):
        for step in range(steps):
            weights.append(method.weights(state))
            wrong = mistaken(_read(relative, weights[-1][0].float()), cells.y)
            means = CellMeans(cells.means(wrong).double()[None])
            accuracy.append(1 - means.error)
            moved = method.update(state, means, step / steps)
            if moved is state:  # it answers between rounds, or never
                break
            state = _damped(state, moved, DAMPING * (1 - step / steps))
        if training_round + 1 < method.rounds:
            state = method.next_round(state, means)
    return BoostedHead(method, state, share, History(torch.stack(weights), torch.stack(accuracy)))


def _check(method: Method, cells: Cells) -> None:
    if "fullbatch" not in method.solvers() or method.needs_loss:
        raise InputError(f"Boosted trees know methods that weigh cells by their errors only, and {method.name} does not.")
    method.check(Task(cells.counts, hidden=False))
    if int((cells.counts.sum(-1) > 0).sum()) < 2:
        raise InputError("The training rows hold one class only; a classifier needs at least two.")


def _damped(old: State, new: State, damping: float) -> State:
    """Return a state on the way from one to another."""
    return {
        key: old[key] + damping * (value - old[key]) if value.is_floating_point() else value for key, value in new.items()
    }


@dataclass(frozen=True)
class BoostedWeights:
    """Trees grown with the weights of cells, for P points.

    Attributes
    ----------
    method : Method
    state : State
    trees : list of Trees
        One per point.
    history : History
        Of one entry per round.
    """

    method: Method
    state: State
    trees: list[Trees]
    history: History

    @property
    def weights(self) -> Tensor:
        """Final cell weights ``(1, P, Y, A)``."""
        return self.method.weights(self.state)

    def predict(self, X: np.ndarray) -> Tensor:
        """Return class codes ``(1, P, N)``."""
        return torch.stack([torch.from_numpy(_softmax(trees.scores(X)).argmax(1)) for trees in self.trees])[None]


def boost_weights(
    X: np.ndarray,
    cells: Cells,
    method: Method,
    settings: TreeSettings,
    *,
    held: Sequence[int] | np.ndarray = (),
    on_step: OnStep | None = None,
) -> BoostedWeights:
    """Grow trees whose gradients are scaled by the method's weights, which it updates after every round.

    Parameters
    ----------
    X : ndarray of shape (N, D)
        Missing values may be NaN.
    cells : Cells
    method : Method
        A booster per point, round by round.
    settings : TreeSettings
    held : rows, optional
        Rows that are not trained on, to whose errors the method answers. Without them it answers to training errors, which
        trees make few of; then the weights say little about new rows.
    on_step : callable, optional
    """
    _check(method, cells)
    held = np.asarray(held, dtype=np.int64)
    own = np.setdiff1d(np.arange(len(cells)), held)
    trained, watched = cells.take(torch.from_numpy(own)), cells.take(torch.from_numpy(held if len(held) else own))
    state = method.begin(Task(trained.counts, (1, method.points)))
    target, plain = _classes(trained), _weight(trained)
    table = tabulate(X[own], settings, X[held] if len(held) else None)
    scale = len(own) / (cells.n_classes * trained.counts.clamp(min=1e-12))
    weights, accuracy = [], []
    growing = []
    for training_round in range(method.rounds):
        growing = [table.grow(_width(cells.n_classes)) for _ in range(method.points)]
        for step in range(settings.rounds):
            weights.append(method.weights(state))
            per_row = trained.spread(weights[-1][0] * scale).float()
            wrong = torch.empty(method.points, len(watched))
            for p, booster in enumerate(growing):
                weight = per_row[p] if plain is None else per_row[p] * plain
                booster.step(*_gradients(booster.scores(), target, weight))
                scores = booster.held_scores() if len(held) else booster.scores()
                wrong[p] = torch.from_numpy(_softmax(scores).argmax(1)) != watched.y
            means = CellMeans(watched.means(wrong).double()[None])
            accuracy.append(1 - means.error)
            state = _damped(state, method.update(state, means, step / settings.rounds), ROUND_DAMPING)
            if on_step is not None:
                on_step(training_round * settings.rounds + step + 1, method.rounds * settings.rounds)
        if training_round + 1 < method.rounds:
            state = method.next_round(state, means)
    history = History(torch.stack(weights), torch.stack(accuracy))
    return BoostedWeights(method, state, [booster.finish() for booster in growing], history)


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
    _check(method, cells)
    start = time.perf_counter()
    settings, rows = TreeSettings() if settings is None else settings, X.double().numpy()
    order = torch.randperm(len(cells), generator=generator(settings.seed, "folds")).numpy()
    if strategy == "weights":
        fitted = boost_weights(rows, cells, method, settings, held=order[::HELD], on_step=on_step)
        return BoostedBank(fitted, None, time.perf_counter() - start)
    parts = [(np.delete(order, np.s_[fold::folds]), order[fold::folds]) for fold in range(folds)]
    outside, _ = out_of_fold(rows, cells, parts, settings, on_step=on_step)
    head = fit_head(outside, cells, method)
    return BoostedBank(head, boost_joint(rows, cells, settings), time.perf_counter() - start)
