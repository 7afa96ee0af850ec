r"""Cell weights inside boosting: they scale its gradients, and the method responds after every round.

The gradient of a row is :math:`w\,(p - 1[y])`, its hessian :math:`|w|\,p\,(1 - p)`.

A method that responds to training errors is deceived: trees make few of them, and equal ones, long before new rows are
served alike. So it may respond to rows that are held out, or to every row by those trees that have not seen it.
"""

import time
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairdro._utils.progress import OnStep
from fairdro._utils.seeding import number
from fairdro.cells import Cells
from fairdro.errors import InputError, unknown_name
from fairdro.methods import CellMeans, Method, State, Task
from fairdro.models.trees import Growing, Trees, TreeSettings, tabulate
from fairdro.training.controller import Controller
from fairdro.training.folds import hold_out
from fairdro.training.gradients import CrossEntropy, Scores, class_targets, n_scores, predicted
from fairdro.training.head import head_refusal
from fairdro.training.threads import one_thread_each
from fairdro.training.trained import Trained, check_two_classes

ERRORS = ["out_of_bag", "held_out", "training"]
HELD_OUT = 0.25
DAMPING = 0.1
ROUNDS_AT_ONCE = 10


@dataclass(frozen=True, kw_only=True)
class WeightedTrees(Trained):
    """Trees grown with the weights of cells, for P points; the weights are those of the last round that was kept.

    Attributes
    ----------
    trees : list of Trees
        One per point.
    rounds : list of int
        How many were kept of each.
    """

    trees: list[Trees]
    rounds: list[int]

    def predict(self, X: Any) -> Tensor:
        """Return class codes ``(1, P, N)`` for rows ``(N, D)``."""
        rows = np.asarray(X, dtype=np.float64)
        return torch.from_numpy(np.stack([predicted(trees.scores(rows)) for trees in self.trees])).long()[None]


def train_weighted_trees(
    X: np.ndarray,
    cells: Cells,
    method: Method,
    settings: TreeSettings,
    *,
    errors: str = "out_of_bag",
    held: np.ndarray | None = None,
    on_step: OnStep | None = None,
) -> WeightedTrees:
    r"""Grow trees whose gradients are scaled by the method's weights, which it updates after every round.

    Parameters
    ----------
    X : ndarray of shape (N, D)
        Missing values may be NaN.
    cells : Cells
    method : Method
        A booster per point, round by round.
    settings : TreeSettings
        With ``early_stopping``, all rounds are grown and those up to the one are kept at which the weighted error
        :math:`\frac{1}{|Y|} \sum_{y,a} w^*_{y,a} e_{y,a}` was smallest, with :math:`w^*` the method's full response to the
        errors :math:`e`: for FairDRO, its own robust objective.
    errors : {"out_of_bag", "held_out", "training"}
        What the method responds to: the errors that rows have by the rounds that left them out, when every round is trained
        on half of the rows, drawn anew; those of ``held``, which are not trained on; or training errors.
    held : ndarray of int, optional
        Rows to hold out; by default a quarter.
    on_step : callable, optional
    """
    if errors not in ERRORS:
        raise unknown_name("kind of errors", errors, ERRORS)
    if (refusal := head_refusal(method)) is not None:
        raise InputError(refusal)
    check_two_classes(cells.counts)
    start = time.perf_counter()
    held = hold_out(cells, HELD_OUT, settings.seed + 1)[1] if held is None else held
    held = held if errors == "held_out" else held[:0]
    own = np.setdiff1d(np.arange(len(cells)), held)
    at_once, settings = settings.for_rows(len(X)).divided(X)
    with one_thread_each(at_once) as pool:
        forest = _Forest(X, cells, own, held, method, settings, pool, at_once, bagged=errors == "out_of_bag")
        task = Task(forest.trained.counts, (1, method.points), hidden=False, unknown_group=cells.unknown_group)
        controller = Controller(method, task, settings.n_estimators, on_step=on_step)
        states: list[State] = []
        for _ in controller.rounds():
            states.clear()
            forest.plant()
            for _ in controller.steps():
                states.append(controller.state)
                with torch.inference_mode():  # spares operations as small as these a quarter of their time
                    controller.update(forest.grow(controller.weights[0]), damping=DAMPING)
    history = controller.history
    kept = torch.full((method.points,), len(states))
    if settings.early_stopping is not None:
        kept = _robust_errors(method, states, 1 - history.accuracy[-len(states) :, 0]).argmin(0) + 1
    weights = history.weights[-len(states) :, 0][kept - 1, torch.arange(method.points)][None]
    return WeightedTrees(
        trees=forest.finish(kept.tolist()),
        rounds=kept.tolist(),
        weights=weights,
        history=history,
        diverged=torch.zeros(1, method.points, dtype=torch.bool),
        seconds=time.perf_counter() - start,
    )


class _Forest:
    """A booster per point, grown round by round on the same rows."""

    def __init__(
        self,
        X: np.ndarray,
        cells: Cells,
        own: np.ndarray,
        held: np.ndarray,
        method: Method,
        settings: TreeSettings,
        pool: Executor,
        at_once: int,
        *,
        bagged: bool,
    ) -> None:
        self.trained = cells.take(torch.from_numpy(own))
        self.judged = cells.take(torch.from_numpy(held)) if len(held) else self.trained
        self.held, self.bagged, self.settings, self.points = len(held) > 0, bagged, settings, method.points
        self.table = tabulate(X[own], settings, X[held] if len(held) else None)
        portions = [places for places in np.array_split(np.arange(self.points), at_once) if len(places)]
        self.portions = [(places, CrossEntropy(class_targets(self.trained))) for places in portions]
        self.pool = pool
        self.truth = self.judged.y.numpy() if cells.n_classes > 2 else self.judged.y.bool().numpy()
        unseen = (self.judged.counts == 0) & (self.trained.counts > 0)
        self.unseen = unseen if bool(unseen.any()) else None
        self.scale = len(own) / (cells.n_classes * self.trained.counts.clamp(min=1e-12))
        self.wrong, self.left_out = torch.empty(method.points, len(self.judged)), torch.zeros(len(own))

    def plant(self) -> None:
        """Begin anew."""
        self.growing = [self.table.grow(n_scores(self.trained.n_classes)) for _ in range(self.points)]
        self.boosters = [_Bagged(one) if self.bagged else _Plain(one, held=self.held) for one in self.growing]
        self.bags = np.random.default_rng(number(self.settings.seed, "bags"))
        self.planted = False

    def grow(self, weights: Tensor) -> CellMeans:
        """Grow one more round of every booster by cell weights ``(P, Y, A)``; return the errors to respond to."""
        per_row = self.trained.spread((weights * self.scale).float())
        if self.trained.sample_weight is not None:
            per_row *= self.trained.sample_weight
        if self.bagged:
            bag = _draw_half(len(self.trained), self.bags)
            per_row *= bag
            torch.sub(1, bag, out=self.left_out)
        wrong = self.wrong.numpy()

        @torch.inference_mode()
        def grow(portion: tuple[np.ndarray, CrossEntropy]) -> None:
            for i in portion[0]:
                scores = self.boosters[i].step(portion[1], per_row[i], self.left_out)
                np.not_equal(predicted(scores), self.truth, out=wrong[i])

        alone = len(self.portions) == 1 or not self.planted  # XGBoost lays out the rows that all share in the first round
        list(map(grow, self.portions) if alone else self.pool.map(grow, self.portions))
        self.planted = True
        error = self.judged.means(self.wrong).double()[None]
        return CellMeans(error if self.unseen is None else _completed(error, self.unseen))

    def finish(self, rounds: list[int]) -> list[Trees]:
        """Return the trees of the first so many rounds."""
        return [one.finish(kept) for one, kept in zip(self.growing, rounds, strict=True)]


class _Plain:
    """A booster that is judged by held-out rows, or by those it is trained on."""

    def __init__(self, growing: Growing, *, held: bool) -> None:
        self.growing, self.scores = growing, Scores(growing)
        self.judged = growing.held_scores if held else growing.scores

    def step(self, objective: CrossEntropy, weight: Tensor, _: Tensor) -> np.ndarray:
        """Grow a round; return the scores ``(N, K)`` of the rows that judge it."""
        self.growing.step(*objective.derivatives(self.scores.read(), weight))
        return self.judged()


class _Bagged:
    """A booster whose rounds see half of the rows each, judged by what the other half gets from them."""

    def __init__(self, growing: Growing) -> None:
        self.growing, self.scores = growing, Scores(growing)
        self.out_of_bag = torch.zeros_like(self.scores.values)

    def step(self, objective: CrossEntropy, weight: Tensor, left_out: Tensor) -> np.ndarray:
        """Grow a round; return the scores ``(N, K)`` of all rows by the rounds that left them out, times two."""
        before = self.scores.values
        self.out_of_bag.addcmul_(before, left_out, value=-2)
        self.growing.step(*objective.derivatives(before, weight))
        self.out_of_bag.addcmul_(self.scores.read(), left_out, value=2)
        return self.out_of_bag.T.numpy()


def _draw_half(n: int, rng: np.random.Generator) -> Tensor:
    """Draw ones for about half of the rows, zeros for the others ``(N,)``."""
    drawn = np.frombuffer(rng.bytes((n + 7) // 8), dtype=np.uint8)
    return torch.from_numpy(np.unpackbits(drawn, count=n)).float()


def _completed(errors: Tensor, unseen: Tensor) -> Tensor:
    """Fill in cells that no held-out row is in, by the mean of their class, or else of all classes."""
    of_class = errors.nanmean(-1, keepdim=True)
    likely = of_class.where(~of_class.isnan(), of_class.nanmean(-2, keepdim=True))
    return torch.where(unseen, likely, errors)


def _robust_errors(method: Method, states: list[State], errors: Tensor) -> Tensor:
    """Weigh the errors of every round ``(T, P, Y, A)`` by the method's full response to them; a few rounds at once."""
    found = []
    for first in range(0, len(states), ROUNDS_AT_ONCE):
        some = slice(first, first + ROUNDS_AT_ONCE)
        state = {key: torch.cat([one[key] for one in states[some]]) for key in states[0]}
        response = method.costed_weights(method.update(state, CellMeans(errors[some]), 0.0))
        found.append((response * errors[some]).nansum((-1, -2)))
    return torch.cat(found)
