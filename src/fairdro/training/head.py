r"""A head on probabilities of class and group that serves groups alike, by any method that weighs cells.

The classifier that minimises the weighted errors of the cells is known without training,

.. math:: \hat y(x) = \arg\max_y \sum_a \frac{w_{y,a}}{\pi_{y,a}}\, p(y, a \mid x),

with :math:`\pi` the means of :math:`p(y, a \mid x)` over the data, so that every cell counts the same even where a model has
not learned yet how frequent it is. The method responds to its errors; what is fitted is :math:`w`, and before it two
temperatures, as models that know their training rows by heart are too sure of others.

LinearPost (Xian and Zhao, 2024) reaches the same family of classifiers by a linear program that trusts the probabilities.
"""

import itertools
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.methods import CellMeans, Method, Task
from fairdro.metrics import confusion_counts
from fairdro.training.calibration import calibrated, fit_temperatures
from fairdro.training.controller import Controller
from fairdro.training.folds import fold_numbers, stratified_folds
from fairdro.training.threads import end_if_in_vain, in_threads, torch_threads
from fairdro.training.trained import Trained, check_two_classes, most_likely

DAMPING = 0.3
STEPS, MOST_STEPS = 150, 2400
TOLERANCE = 1e-3  # of the robust error
ROWS_PER_BLOCK = 8192
SMALL_CELL = 2048  # rows; smaller cells of a class are judged in one go
ROWS_TOGETHER = 50_000  # up to so many, heads of folds are fitted side by side, which takes fewer operations
HEADS_TOGETHER = 3  # so many by a thread


@dataclass(frozen=True, kw_only=True)
class Head(Trained):
    """Weights by which probabilities of cells become predictions, for P points.

    Attributes
    ----------
    share : Tensor of shape (Y, A)
        The mean probabilities of the cells; zero for those without rows. A is 1 for a head that reads no groups.
    converged : Tensor of bool, shape (1, P)
    temperatures : ndarray of shape (2,)
        See :func:`~fairdro.training.calibration.calibrated`.
    """

    share: Tensor
    converged: Tensor
    temperatures: np.ndarray = field(default_factory=lambda: np.ones(2))

    def predict(self, X: np.ndarray) -> Tensor:
        """Return class codes ``(1, P, N)``, given the probabilities of cells ``(N, Y, A)``."""
        return most_likely(class_scores(calibrated(X, self.temperatures), self.share, self.weights[0]))[None]


def class_scores(probabilities: np.ndarray, share: Tensor, weights: Tensor) -> Tensor:
    """Return the score of every class ``(P, N, Y)``: probabilities of cells ``(N, Y, A)`` by weights ``(P, Y, A)``."""
    relative = _relative(probabilities, share).permute(1, 2, 0).contiguous()
    return torch.bmm(weights.float().transpose(0, 1), relative).permute(1, 2, 0)


def _relative(probabilities: np.ndarray, share: Tensor) -> Tensor:
    """Return the probabilities of the cells over their shares ``(N, Y, A)``, zero for cells without rows."""
    inverse = torch.where(share > 0, 1 / share.clamp(min=1e-12), 0)
    return (torch.from_numpy(probabilities) * inverse).float()


def head_refusal(method: Method) -> str | None:
    """Say why a head, or boosted trees, cannot be trained by a method, if so."""
    if not method.weighs_cells() or method.needs_loss:
        return f"A head needs a method that weighs cells by their errors only, and {method.name} does not; leave it out."
    return None


class _Blocks:
    """Rows of one class, or of one cell where cells are large, in pieces that fit the cache; the errors of heads on them."""

    def __init__(self, relative: Tensor, cells: Cells) -> None:
        self.counts, self.blocks = cells.counts, []
        n_classes, by_class = cells.n_classes, cells.soft or cells.sample_weight is not None
        by_class = by_class or len(cells) < SMALL_CELL * cells.counts.numel()
        self.own = torch.arange(n_classes)[:, None].expand(-1, n_classes - 1)
        self.rivals = torch.tensor([[k for k in range(n_classes) if k != own] for own in range(n_classes)])
        tiny = torch.finfo(torch.float32).tiny
        self.needed = torch.where(self.rivals < self.own, tiny, 0.0)[:, :, None, None]  # ties go to the lower class
        for of_stratum in (cells.ungrouped if by_class else cells).strata.values():
            own = int(cells.y[of_stratum[0]])
            for rows in of_stratum.split(ROWS_PER_BLOCK):
                part = cells.take(rows)
                share = part.membership if part.sample_weight is None else part.membership * part.sample_weight[:, None]
                scores = relative[rows].permute(1, 2, 0)
                margin = torch.cat([scores[self.own[own]], -scores[self.rivals[own]]], dim=1)
                group = None if by_class else int(part.groups[0])
                self.blocks.append((own, margin, group, share.float().T.contiguous().T))

    def errors(self, weights: Tensor) -> Tensor:
        """Return the mean error of every cell ``(P, Y, A)`` under weights ``(P, Y, A)``; NaN for an empty one."""
        by_class = weights.float().transpose(0, 1)
        pairs = torch.cat([by_class[self.own], by_class[self.rivals]], dim=-1)
        total = torch.zeros_like(by_class)
        for own, margin, group, share in self.blocks:
            lead = torch.bmm(pairs[own], margin)  # of the own class over every other
            behind = torch.lt(lead, self.needed[own], out=lead)
            lost = behind[0] if len(behind) == 1 else behind.amax(0)
            if group is None:
                total[own].addmm_(lost, share)
            else:
                total[own, :, group] += lost.sum(1)
        return total.transpose(0, 1).double() / self.counts.where(self.counts > 0, torch.nan)


def fit_head(probabilities: np.ndarray, cells: Cells, method: Method) -> Head:
    """Let a method respond to the errors of the best classifier under its weights, until both converge.

    The method's own step is damped to 0.3 of it and falls to nothing over 150 steps; where it could still gain then,
    it goes on for twice as many, and so on.

    Parameters
    ----------
    probabilities : ndarray of shape (N, Y, A)
        Of cells, by models that were not trained on the row.
    cells : Cells
        Of the same rows.
    method : Method
        All its points at once.

    Warns
    -----
    RuntimeWarning
        If a point has not converged.
    """
    return fit_heads([(probabilities, cells)], method)[0]


def fit_heads(parts: Sequence[tuple[np.ndarray, Cells]], method: Method) -> list[Head]:
    """Fit a head to each of several sets of rows, side by side; each is as :func:`fit_head` fits it.

    Where there are several, their histories are not kept.
    """
    if (refusal := head_refusal(method)) is not None:
        raise InputError(refusal)
    start = time.perf_counter()
    with torch_threads(1):
        prepared = [_prepare(probabilities, cells) for probabilities, cells in parts]
        begun = [method.begin(task) for task in (Task(one.share, (1, method.points), hidden=False) for one in prepared)]
        controller = Controller(method, Task(prepared[0].share, (len(parts), method.points), hidden=False), STEPS)
        controller.state = {key: torch.cat([state[key] for state in begun]) for key in begun[0]}
        controller.records = len(parts) == 1
        with torch.inference_mode():  # spares operations as small as these some of their time
            for _ in controller.rounds():
                converged = _converge(controller, [one.blocks for one in prepared])
        weights, converged = controller.weights.clone(), converged.clone()  # as tensors that know of gradients
    for number in (~converged).sum(1).tolist():
        if number > 0:
            warnings.warn(
                f"{number} of {method.points} heads have not converged: a class and group has too few rows, or the "
                "probabilities say too little. Use smaller radii.",
                RuntimeWarning,
                stacklevel=3,
            )
    seconds, sound = time.perf_counter() - start, torch.zeros(1, method.points, dtype=torch.bool)
    return [
        Head(
            weights=weights[i : i + 1],
            history=controller.history,
            share=one.share,
            converged=converged[i : i + 1],
            temperatures=one.temperatures,
            diverged=sound,
            seconds=seconds,
        )
        for i, one in enumerate(prepared)
    ]


class _Prepared(NamedTuple):
    """What the head of some rows begins with."""

    temperatures: np.ndarray
    share: Tensor
    blocks: _Blocks


def _prepare(probabilities: np.ndarray, cells: Cells) -> _Prepared:
    """Calibrate the probabilities of rows, and lay them out."""
    check_two_classes(cells.counts)
    if len(probabilities) != len(cells):
        raise InputError(f"There are probabilities of {len(probabilities)} rows, but {len(cells)} labels.")
    temperatures = fit_temperatures(probabilities, cells)
    probabilities = calibrated(probabilities, temperatures)
    share = torch.from_numpy(np.average(probabilities, axis=0, weights=cells.sample_weight)).where(cells.counts > 0, 0)
    return _Prepared(temperatures, share, _Blocks(_relative(probabilities, share), cells))


def _converge(controller: Controller, blocks: list[_Blocks]) -> Tensor:
    """Respond until no point drifts any more; return which have converged ``(F, P)``, for F sets of rows.

    Errors of finitely many rows jump, and at a jump responses alternate for ever around the weights that settle there. So
    what counts is their mean over the second half of the steps: the drift of the weights, by what it gains in error. A point
    that has converged stays as it is, whatever others need.
    """
    steps, moving = STEPS, torch.ones(controller.weights.shape[:2], dtype=torch.bool)
    error = torch.empty_like(controller.weights)
    while True:
        controller.restart(steps)
        points = [(i, of_part.nonzero()[:, 0]) for i, of_part in enumerate(moving) if of_part.any()]
        for step in controller.steps():
            end_if_in_vain()
            weights = controller.weights
            if step in (0, steps - steps // 2):
                before, total = weights, torch.zeros_like(error)
            for i, some in points:
                error[i, some] = blocks[i].errors(weights[i, some])
            total += error
            if not controller.update(CellMeans(error), damping=DAMPING * (1 - step / steps), moving=moving):
                return torch.ones_like(moving)  # it responds between rounds, or never
        pace = DAMPING * steps / 24  # the sum of damping times smoothing over these steps, each 1 - t / T
        drift, mean = (controller.weights - before) / pace, total / (steps // 2)
        converged = (drift * mean).nansum((-1, -2)).abs() / mean.shape[-2] <= TOLERANCE
        moving = ~converged
        steps *= 2
        if bool(converged.all()) or steps > MOST_STEPS:
            return converged


class Shape(NamedTuple):
    """Numbers of classes and groups."""

    n_classes: int
    n_groups: int


class Part(NamedTuple):
    """A model that a joint is made of: of the class, of the group, of the group in one class, or of both."""

    what: Literal["class", "group", "cells"]
    given: int | None = None

    def width(self, shape: Cells | Shape) -> int:
        """Return the number of things it tells apart."""
        groups = shape.n_known_groups if isinstance(shape, Cells) else shape.n_groups
        sizes = {"class": shape.n_classes, "group": groups, "cells": shape.n_classes * groups}
        return sizes[self.what]

    def target(self, cells: Cells, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return rows to train on, what to predict of them, and how much they count.

        A row of soft groups comes once for every group it has a share in; one whose group is not known says nothing of it.
        """
        y, weight = cells.y.numpy(), None if cells.sample_weight is None else cells.sample_weight.double().numpy()
        if self.given is not None:
            rows = rows[y[rows] == self.given]
        if self.what != "class" and cells.known is not None:
            rows = rows[cells.known.numpy()[rows]]
        groups = cells.groups.numpy()
        if cells.soft and self.what != "class" and bool(np.isin(groups[rows], (0, 1)).all()):
            groups = groups.argmax(1)  # all that are left are whole
        if self.what == "class" or groups.ndim == 1:
            group, counted = groups[rows], None if weight is None else weight[rows]
        else:
            share = groups.astype(np.float64)[rows]
            place, group = np.nonzero(share)
            counted = share[place, group] * (1 if weight is None else weight[rows][place])
            rows = rows[place]
        if self.what == "class":
            return rows, y[rows], counted
        return rows, group if self.what == "group" else y[rows] * cells.n_known_groups + group, counted


def parts_of(joint: str, shape: Cells | Shape) -> list[Part]:
    """Return the models of a joint: ``classes``, ``independent``, ``conditional`` or ``cells``."""
    if joint == "cells":
        return [Part("cells")]
    given = {"classes": [], "independent": [Part("group")]}
    return [Part("class"), *given.get(joint, [Part("group", y) for y in range(shape.n_classes)])]


def join_parts(tables: list[np.ndarray], shape: Cells | Shape) -> np.ndarray:
    """Return the probabilities of cells ``(N, Y, A)`` from those of the parts, or of classes ``(N, Y, 1)``."""
    first, *groups = tables
    if first.shape[1] != shape.n_classes:
        return first.reshape(-1, shape.n_classes, shape.n_groups)
    if not groups:
        return first[:, :, None]
    return first[:, :, None] * (groups[0][:, None, :] if len(groups) == 1 else np.stack(groups, axis=1))


@dataclass(frozen=True)
class OutOfFold:
    """Probabilities of cells by models that have not seen the row.

    Attributes
    ----------
    probabilities : ndarray of shape (N, Y, A)
        NaN for rows that no fold holds out.
    fold : ndarray of int, shape (N,)
        Which fold held the row out, -1 for none.
    rounds : tuple of int
        Of boosted trees: the mean number of rounds of class and group.
    """

    probabilities: np.ndarray
    fold: np.ndarray
    rounds: tuple[int, int] = (0, 0)


def predict_heads(
    probabilities: np.ndarray,
    cells: Cells,
    method: Method,
    fold: np.ndarray,
    fit: Callable[[Sequence[tuple[np.ndarray, Cells]], Any], list[Head]] = fit_heads,
    *,
    threads: int = 1,
) -> Tensor:
    """Return the class codes of rows by heads that were not fitted to them, by point ``(P, N)``.

    Parameters
    ----------
    probabilities : ndarray of shape (N, Y, A)
        Of cells, by models that were not trained on the row.
    cells : Cells
    method : Method
    fold : ndarray of int, shape (N,)
        The head of a fold is fitted to all others. Where there is one fold only, heads are fitted to every second row of it.
    fit : callable
        :func:`fit_heads`, or what returns heads that infer no group.
    threads : int
        That fit heads at the same time; their number changes no result.
    """
    part = np.arange(len(fold)) % 2 if len(np.unique(fold)) == 1 else fold
    predictions = torch.empty(method.points, len(fold), dtype=torch.int16)
    numbers = np.unique(part)

    def fit_some(some: np.ndarray) -> list[tuple[np.ndarray, Tensor]]:
        fitted = [np.flatnonzero(part != i) for i in some]
        heads = fit([(probabilities[rows], cells.take(torch.from_numpy(rows))) for rows in fitted], method)
        judged = [np.flatnonzero(part == i) for i in some]
        return [(rows, head.predict(probabilities[rows])[0]) for rows, head in zip(judged, heads, strict=True)]

    together = HEADS_TOGETHER if len(fold) <= ROWS_TOGETHER else 1
    groups = [numbers[i : i + together] for i in range(0, len(numbers), together)]
    for rows, codes in itertools.chain.from_iterable(in_threads(fit_some, groups, threads)):
        predictions[:, torch.from_numpy(rows)] = codes.short()
    return predictions


def fit_held_out(probabilities: np.ndarray, cells: Cells, method: Method, *, seed: int = 0) -> tuple[Head, np.ndarray]:
    """Fit a head to rows that are held out; also return how heads of the other folds predict them ``(P, Y, A, Y)``."""
    fold = fold_numbers(stratified_folds(cells, seed=seed), len(cells))
    counts = confusion_counts(predict_heads(probabilities, cells, method, fold), cells)
    return fit_head(probabilities, cells, method), counts
