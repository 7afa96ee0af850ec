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
from fairdro.models.trees import Trees, TreeSettings, grow
from fairdro.seeding import generator
from fairdro.training.trained import History, most_likely

__all__ = [
    "STRATEGIES",
    "BoostedBank",
    "BoostedHead",
    "BoostedWeights",
    "Watched",
    "boost_classes",
    "boost_groups",
    "boost_weights",
    "fit_head",
    "joint",
    "out_of_fold",
    "read_joint",
    "train_boosted",
]

STRATEGIES = ["head", "weights"]
HELD = 4  # one of so many rows is held out of the trees' training for the method to answer to

DAMPING = 0.3
STEPS = 300
ROUND_DAMPING = 0.1
FLOOR = 1e-6

OnStep = Callable[[int, int], object]


def _softmax(scores: np.ndarray) -> np.ndarray:
    """Return probabilities ``(N, Y)`` of scores ``(N, Y)``, or of one score ``(N, 1)`` for two classes."""
    if scores.shape[1] == 1:
        second = 0.5 * (1 + np.tanh(scores[:, 0] / 2))
        return np.stack([1 - second, second], axis=1)
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _gradients(scores: np.ndarray, target: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return slope and curvature of the weighted cross-entropy, for shares ``(N, Y)`` to predict and weights ``(N,)``."""
    if scores.shape[1] == 1:
        p = _softmax(scores)[:, 1]
        return (weight * (p - target[:, 1]))[:, None], (np.abs(weight) * np.maximum(p * (1 - p), FLOOR))[:, None]
    p = _softmax(scores)
    slope = weight[:, None] * (p - target)
    classes = scores.shape[1]
    return slope, np.abs(weight)[:, None] * np.maximum(classes / (classes - 1) * p * (1 - p), FLOOR)


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


def _classes(cells: Cells) -> np.ndarray:
    return torch.nn.functional.one_hot(cells.y, cells.n_classes).double().numpy()


def _groups(cells: Cells) -> np.ndarray:
    return cells.membership.double().numpy()


def _boost(
    X: np.ndarray,
    cells: Cells,
    settings: TreeSettings,
    target_of: Callable[[Cells], np.ndarray],
    watched: Watched | None,
) -> tuple[Trees, int]:
    """Grow trees that predict shares ``(N, K)``; return them and the number of rounds."""
    target, plain = target_of(cells), _weight(cells)
    weight = np.ones(len(X)) if plain is None else plain
    growing = grow(X, _width(target.shape[1]), settings, None if watched is None else watched.X)
    outside = None if watched is None else target_of(watched.cells)
    best, least = settings.rounds, np.inf
    for step in range(settings.rounds):
        growing.step(*_gradients(growing.scores(), target, weight))
        if watched is not None and outside is not None:
            surprise = -np.log(np.maximum(_softmax(growing.held_scores()), FLOOR))
            loss = float(np.average((outside * surprise).sum(1), weights=_weight(watched.cells)))
            if loss < least:
                best, least = step + 1, loss
            elif step + 1 - best >= watched.patience:
                break
    return growing.finish(None if watched is None else best), best


def boost_classes(X: np.ndarray, cells: Cells, settings: TreeSettings, watched: Watched | None = None) -> tuple[Trees, int]:
    """Grow trees that predict the class; return them and the number of rounds."""
    return _boost(X, cells, settings, _classes, watched)


def boost_groups(
    X: np.ndarray, cells: Cells, settings: TreeSettings, watched: Watched | None = None
) -> tuple[Trees | None, int]:
    """Grow trees that predict the group, or the shares of soft groups, none for one group; and the number of rounds."""
    return (None, settings.rounds) if cells.n_groups == 1 else _boost(X, cells, settings, _groups, watched)


def _weight(cells: Cells) -> np.ndarray | None:
    return None if cells.sample_weight is None else cells.sample_weight.double().numpy()


def joint(classes: Trees, groups: Trees | None, X: np.ndarray) -> np.ndarray:
    r"""Return :math:`p(y | x)\, p(a | x)` for every row ``(N, Y, A)``."""
    of_group = np.ones((len(X), 1)) if groups is None else _softmax(groups.scores(X))
    return _softmax(classes.scores(X))[:, :, None] * of_group[:, None, :]


def out_of_fold(
    X: np.ndarray,
    cells: Cells,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
    settings: TreeSettings,
    *,
    patience: int | None = None,
    on_step: OnStep | None = None,
) -> tuple[np.ndarray, tuple[int, int]]:
    """Return :func:`joint` of every row by trees that have not seen it, and the mean rounds of class and group.

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
        classes, of_classes = boost_classes(X[train], own, settings, watched)
        groups, of_groups = boost_groups(X[train], own, settings, watched)
        outside[test] = joint(classes, groups, X[test])
        grown.append((of_classes, of_groups))
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
        """Return class codes ``(1, P, N)``, given :func:`joint` ``(N, Y, A)``."""
        return most_likely(read_joint(probabilities, self.share, self.weights[0]))[None]


def read_joint(probabilities: np.ndarray, share: Tensor, weights: Tensor) -> Tensor:
    """Return what speaks for every class ``(P, N, Y)``, given :func:`joint` ``(N, Y, A)`` and weights ``(P, Y, A)``."""
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
        From :func:`joint`, by trees that have not seen the row.
    cells : Cells
        Of the same rows.
    method : Method
        All its points at once.
    steps : int
        The method's own step, falling from 1 to 0, is damped to 0.3 of it.
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
            wrong = most_likely(_read(relative, weights[-1][0].float())) != cells.y
            means = CellMeans(cells.means(wrong.float()).double()[None])
            accuracy.append(1 - means.error)
            moved = method.update(state, means, step / steps)
            if moved is state:  # it answers between rounds, or never
                break
            state = _damped(state, moved, DAMPING)
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
    outside = X[held] if len(held) else None
    scale = len(own) / (cells.n_classes * trained.counts.clamp(min=1e-12))
    weights, accuracy = [], []
    growing = []
    for training_round in range(method.rounds):
        growing = [grow(X[own], _width(cells.n_classes), settings, outside) for _ in range(method.points)]
        for step in range(settings.rounds):
            weights.append(method.weights(state))
            per_row = trained.spread(weights[-1][0] * scale).numpy()
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
    trees : tuple of Trees, or None
        Those of class and group, for a head.
    seconds : float
    """

    fitted: BoostedHead | BoostedWeights
    trees: tuple[Trees, Trees | None] | None
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
        return self.fitted.predict(rows if self.trees is None else joint(*self.trees, rows))


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
    trees = (boost_classes(rows, cells, settings)[0], boost_groups(rows, cells, settings)[0])
    return BoostedBank(head, trees, time.perf_counter() - start)
