"""Boosted trees with a head: trees for the probabilities of class and group, both from x alone, and a head on them.

Every row is first predicted by trees that have not seen it; a head (:mod:`fairdro.training.head`) is fitted to these
probabilities. So the trees are grown once for a whole frontier. The bench and the classifier both walk this way.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fairdro._utils.progress import OnStep
from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.methods import Method
from fairdro.models.trees import Trees, TreeSettings, tabulate
from fairdro.training.folds import fold_numbers, stratified_folds
from fairdro.training.gradients import CrossEntropy, Scores, class_targets, group_targets, log_loss, n_scores, softmax
from fairdro.training.head import Head, OutOfFold, fit_head, fit_held_out, head_refusal
from fairdro.training.threads import end_if_in_vain, in_threads, torch_threads
from fairdro.training.trained import Trained, check_two_classes

What = Literal["class", "group"]
Folds = Sequence[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class CellTrees:
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
        of_group = np.ones((len(X), 1)) if self.groups is None else softmax(self.groups.scores(X))
        return _joined(softmax(self.classes.scores(X)), of_group)


def _joined(of_class: np.ndarray, of_group: np.ndarray) -> np.ndarray:
    """Return the probabilities of cells ``(N, Y, A)`` from those of classes and of groups."""
    return of_class[:, :, None] * of_group[:, None, :]


@dataclass(frozen=True, kw_only=True)
class HeadTrees(Trained):
    """Trees for the probabilities of cells, and a head on them for P points."""

    trees: CellTrees
    head: Head

    def predict(self, X: Any) -> Tensor:
        """Return class codes ``(1, P, N)`` for rows ``(N, D)``."""
        return self.head.predict(self.trees.probabilities(np.asarray(X, dtype=np.float64)))


def train_head_trees(
    X: np.ndarray,
    cells: Cells,
    method: Method,
    settings: TreeSettings,
    *,
    out_of_fold: OutOfFold | None = None,
    held_out: tuple[np.ndarray, Cells] | None = None,
    on_step: OnStep | None = None,
) -> HeadTrees:
    """Grow trees once and fit a head to them for every point of a method.

    Parameters
    ----------
    X : ndarray of shape (N, D)
        Missing values may be NaN.
    cells : Cells
    method : Method
        One that only weighs cells.
    settings : TreeSettings
    out_of_fold : OutOfFold, optional
        From :func:`predict_out_of_fold`, where it is known already.
    held_out : tuple of ndarray and Cells, optional
        Rows to fit the head to, instead of out-of-fold predictions; they also say when to stop growing.
    on_step : callable, optional
        Called with the number of finished models of folds and of all.
    """
    if (refusal := head_refusal(method)) is not None:
        raise InputError(refusal)
    check_two_classes(cells.counts)
    start, judged = time.perf_counter(), None
    if held_out is not None:
        trees = grow_cell_trees(X, cells, settings.for_rows(len(X)), held=held_out)
        head, counts = fit_held_out(trees.probabilities(held_out[0]), held_out[1], method, seed=settings.seed)
        judged = counts[None]
    else:
        found = predict_out_of_fold(X, cells, settings, on_step=on_step) if out_of_fold is None else out_of_fold
        known = np.flatnonzero(found.fold >= 0)
        head = fit_head(found.probabilities[known], cells.take(torch.from_numpy(known)), method)
        trees = grow_cell_trees(X, cells, settings.for_rows(len(X)), rounds=found.rounds)
    return HeadTrees(
        trees=trees,
        head=head,
        weights=head.weights,
        history=head.history,
        diverged=head.diverged,
        seconds=time.perf_counter() - start,
        held_out=judged,
    )


def predict_out_of_fold(
    X: np.ndarray,
    cells: Cells,
    settings: TreeSettings,
    *,
    folds: Folds | None = None,
    on_step: OnStep | None = None,
) -> OutOfFold:
    """Predict every row by trees that have not seen it; the rows held out also say when to stop growing.

    The trees of class and group of all folds are independent, and are grown side by side.

    Parameters
    ----------
    folds : sequence of (train, test), optional
        Rows; by default five folds stratified by cell.
    on_step : callable, optional
        Called with the number of finished models and of all.
    """
    folds = stratified_folds(cells, seed=settings.seed) if folds is None else folds
    at_once, settings = settings.for_rows(min(len(train) for train, _ in folds)).divided(X)
    models = _models_of(cells)

    def grow(task: tuple[tuple[np.ndarray, np.ndarray], What]) -> tuple[np.ndarray, int]:
        (train, test), what = task
        own, tested = (cells.take(torch.from_numpy(rows)) for rows in (train, test))
        trees, rounds = _grow(X[train], own, settings, what, settings.n_estimators, (X[test], tested))
        return softmax(trees.scores(X[test])), rounds

    done = in_threads(grow, [(fold, what) for fold in folds for what in models], at_once, on_step=on_step)
    probabilities = np.full((len(cells), cells.n_classes, cells.n_known_groups), np.nan)
    for i, (_, test) in enumerate(folds):
        of_class, *of_group = (found for found, _ in done[i * len(models) : (i + 1) * len(models)])
        probabilities[test] = _joined(of_class, of_group[0] if of_group else np.ones((len(test), 1)))
    rounds = [round(float(np.mean([grown for _, grown in done[i :: len(models)]]))) for i in range(len(models))]
    return OutOfFold(probabilities, fold_numbers(folds, len(cells)), (rounds[0], rounds[-1]))


def grow_cell_trees(
    X: np.ndarray,
    cells: Cells,
    settings: TreeSettings,
    *,
    rounds: tuple[int, int] | None = None,
    held: tuple[np.ndarray, Cells] | None = None,
) -> CellTrees:
    """Grow trees that predict the class, and trees that predict the group or the shares of soft groups.

    Parameters
    ----------
    rounds : tuple of int, optional
        Of class and group, instead of ``n_estimators``.
    held : tuple of ndarray and Cells, optional
        Rows that say when to stop growing, as ``early_stopping`` has it.
    """
    at_once, settings = settings.divided(X)
    most = dict(zip(_models_of(cells), rounds or (settings.n_estimators, settings.n_estimators), strict=False))
    grown = in_threads(lambda what: _grow(X, cells, settings, what, most[what], held), list(most), at_once)
    (classes, of_classes), (groups, of_groups) = grown[0], grown[1] if len(grown) > 1 else (None, grown[0][1])
    return CellTrees(classes, groups, (of_classes, of_groups))


def grow_class_trees(X: np.ndarray, cells: Cells, settings: TreeSettings, held: tuple[np.ndarray, Cells]) -> Trees:
    """Grow trees that predict the class, every row counting the same; rows that are held out say when to stop."""
    settings = settings.divided(X)[1]
    with torch_threads(1):
        return _grow(X, cells, settings, "class", settings.n_estimators, held)[0]


def _models_of(cells: Cells) -> list[What]:
    """Name the models of a joint: there is none of the group where there is one group only."""
    return ["class"] if cells.n_known_groups == 1 else ["class", "group"]


def _of_known_groups(cells: Cells) -> Cells:
    """Return the cells with rows of unknown group at weight zero, and no group for them."""
    if cells.known is None:
        return cells
    groups, last = cells.groups, cells.n_known_groups - 1
    groups = groups[:, : last + 1] if cells.soft else groups.clamp(max=last)
    weight = cells.known.float() * (1 if cells.sample_weight is None else cells.sample_weight)
    return Cells(cells.y, groups, n_classes=cells.n_classes, n_groups=last + 1, sample_weight=weight)


def _grow(
    X: np.ndarray, cells: Cells, settings: TreeSettings, what: What, rounds: int, held: tuple[np.ndarray, Cells] | None
) -> tuple[Trees, int]:
    """Grow trees of class or group, until held-out rows, if any, are not predicted better for so many rounds."""

    def target_of(some: Cells) -> tuple[Tensor, Tensor | None]:
        some = some if what == "class" else _of_known_groups(some)
        return (class_targets if what == "class" else group_targets)(some), some.sample_weight

    patience = None if held is None else settings.early_stopping
    table = tabulate(X, settings, None if held is None or patience is None else held[0])
    target, weight = target_of(cells)
    growing, objective = table.grow(n_scores(target.shape[1])), CrossEntropy(target)
    scores = Scores(growing)
    if held is None or patience is None:
        for _ in range(rounds):
            end_if_in_vain()
            growing.step(*objective.derivatives(scores.read(), weight))
        return growing.finish(), rounds
    held_target, held_weight = target_of(held[1])
    best, least = rounds, np.inf
    for step in range(rounds):
        end_if_in_vain()
        growing.step(*objective.derivatives(scores.read(), weight))
        loss = log_loss(growing.held_scores(), held_target, held_weight)
        if loss < least:
            best, least = step + 1, loss
        elif step + 1 - best >= patience:
            break
    return growing.finish(best), best
