"""Boosted trees with a head: trees for the probabilities of class and group, both from x alone, and a head on them.

Every row is first predicted by trees that have not seen it; a head (:mod:`fairdro.training.head`) is fitted to these
probabilities. So the trees are grown once for a whole frontier. The bench and the classifier both walk this way.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairdro._utils.progress import OnStep
from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.methods import Method
from fairdro.models.trees import Table, Trees, TreeSettings, tabulate
from fairdro.training.folds import fold_numbers, stratified_folds
from fairdro.training.gradients import CrossEntropy, Scores, class_targets, group_targets, log_loss, n_scores, softmax
from fairdro.training.head import Head, OutOfFold, fit_head, fit_held_out, head_refusal
from fairdro.training.trained import Trained, check_two_classes

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
        return softmax(self.classes.scores(X))[:, :, None] * of_group[:, None, :]


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
        Called with the number of finished folds and of all.
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

    Parameters
    ----------
    folds : sequence of (train, test), optional
        Rows; by default five folds stratified by cell.
    on_step : callable, optional
        Called with the number of finished folds and of all.
    """
    folds = stratified_folds(cells, seed=settings.seed) if folds is None else folds
    settings = settings.for_rows(min(len(train) for train, _ in folds))
    probabilities = np.full((len(cells), cells.n_classes, cells.n_known_groups), np.nan)
    rounds = []
    for i, (train, test) in enumerate(folds):
        own, tested = (cells.take(torch.from_numpy(rows)) for rows in (train, test))
        trees = grow_cell_trees(X[train], own, settings, held=(X[test], tested))
        probabilities[test] = trees.probabilities(X[test])
        rounds.append(trees.rounds)
        if on_step is not None:
            on_step(i + 1, len(folds))
    mean = np.mean(rounds, axis=0).round()
    return OutOfFold(probabilities, fold_numbers(folds, len(cells)), (int(mean[0]), int(mean[1])))


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
    if settings.early_stopping is None:
        held = None
    table = tabulate(X, settings, None if held is None else held[0])
    of_classes, of_groups = rounds or (settings.n_estimators, settings.n_estimators)
    stop = None if held is None else (held[1], settings.early_stopping or of_classes)
    classes, of_classes = _grow(table, cells, of_classes, class_targets, stop)
    if cells.n_known_groups == 1:
        return CellTrees(classes, None, (of_classes, of_groups))
    if stop is not None:
        stop = (_of_known_groups(stop[0]), stop[1])
    groups, of_groups = _grow(table, _of_known_groups(cells), of_groups, group_targets, stop)
    return CellTrees(classes, groups, (of_classes, of_groups))


def grow_class_trees(X: np.ndarray, cells: Cells, settings: TreeSettings, held: tuple[np.ndarray, Cells]) -> Trees:
    """Grow trees that predict the class, every row counting the same; rows that are held out say when to stop."""
    table = tabulate(X, settings, held[0])
    stop = None if settings.early_stopping is None else (held[1], settings.early_stopping)
    return _grow(table, cells, settings.n_estimators, class_targets, stop)[0]


def _of_known_groups(cells: Cells) -> Cells:
    """Return the cells with rows of unknown group at weight zero, and no group for them."""
    if cells.known is None:
        return cells
    groups, last = cells.groups, cells.n_known_groups - 1
    groups = groups[:, : last + 1] if cells.soft else groups.clamp(max=last)
    weight = cells.known.float() * (1 if cells.sample_weight is None else cells.sample_weight)
    return Cells(cells.y, groups, n_classes=cells.n_classes, n_groups=last + 1, sample_weight=weight)


def _grow(
    table: Table, cells: Cells, rounds: int, target_of: Callable[[Cells], Tensor], stop: tuple[Cells, int] | None
) -> tuple[Trees, int]:
    """Grow trees that predict shares ``(N, K)``, until held-out rows are not predicted better for so many rounds."""
    target = target_of(cells)
    growing, objective = table.grow(n_scores(target.shape[1])), CrossEntropy(target)
    scores = Scores(growing)
    if stop is None:
        for _ in range(rounds):
            growing.step(*objective.derivatives(scores.read(), cells.sample_weight))
        return growing.finish(), rounds
    held, patience = stop
    held_target, best, least = target_of(held), rounds, np.inf
    for step in range(rounds):
        growing.step(*objective.derivatives(scores.read(), cells.sample_weight))
        loss = log_loss(growing.held_scores(), held_target, held.sample_weight)
        if loss < least:
            best, least = step + 1, loss
        elif step + 1 - best >= patience:
            break
    return growing.finish(best), best
