r"""A head on probabilities of class and group that serves groups alike, by any method that weighs cells.

The classifier that minimises the weighted errors of the cells is known without training,

.. math:: \hat y(x) = \arg\max_y \sum_a \frac{w_{y,a}}{\pi_{y,a}}\, p(y, a \mid x),

with :math:`\pi` the means of :math:`p(y, a \mid x)` over the data, so that every cell counts the same even where a model has
not learned yet how frequent it is. The method responds to its errors; what is fitted is :math:`w`, and before it two
temperatures, as models that know their training rows by heart are too sure of others.

LinearPost (Xian and Zhao, 2024) reaches the same family of classifiers by a linear program that trusts the probabilities.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.methods import CellMeans, FairDRO, Method, Task
from fairdro.metrics import confusion_counts
from fairdro.training.calibration import calibrated, fit_temperatures, some_rows
from fairdro.training.controller import Controller, History
from fairdro.training.folds import fold_numbers, stratified_folds
from fairdro.training.threads import torch_threads
from fairdro.training.trained import Trained, check_two_classes, most_likely

DAMPING = 0.3
STEPS, MOST_STEPS = 150, 2400
TOLERANCE = 1e-3  # of the robust error
ROWS_PER_BLOCK = 8192
THRESHOLDS = 2000  # tried for a class
SWEEPS = 20


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
    """Rows of one cell, or of one class where groups are soft, in pieces that fit the cache; the errors of heads on them."""

    def __init__(self, relative: Tensor, cells: Cells) -> None:
        self.counts, self.blocks = cells.counts, []
        for of_stratum in cells.strata.values():
            for rows in of_stratum.split(ROWS_PER_BLOCK):
                part, own = cells.take(rows), int(cells.y[rows[0]])
                share = part.membership if part.sample_weight is None else part.membership * part.sample_weight[:, None]
                by_class = relative[rows].permute(1, 2, 0)
                margins = [
                    (k, torch.cat([by_class[own], -by_class[k]])) for k in range(cells.n_classes) if k != own
                ]  # times weights, by how much the own class leads
                group = None if cells.soft or part.sample_weight is not None else int(part.groups[0])
                self.blocks.append((own, margins, group, share.float()))

    def errors(self, weights: Tensor) -> Tensor:
        """Return the mean error of every cell ``(P, Y, A)`` under weights ``(P, Y, A)``; NaN for an empty one."""
        weights = weights.float()
        total = torch.zeros(len(weights), *self.counts.shape)
        for own, margins, group, share in self.blocks:
            lost = None
            for k, margin in margins:
                lead = torch.cat([weights[:, own], weights[:, k]], dim=1) @ margin
                behind = (torch.le if k < own else torch.lt)(lead, 0, out=lead)  # ties go to the lower class
                lost = behind if lost is None else torch.maximum(lost, behind, out=lost)
            if lost is None:
                continue
            if group is None:
                total[:, own] += lost @ share
            else:
                total[:, own, group] += lost.sum(1)
        return total.double() / self.counts.where(self.counts > 0, torch.nan)


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
    if (refusal := head_refusal(method)) is not None:
        raise InputError(refusal)
    check_two_classes(cells.counts)
    if len(probabilities) != len(cells):
        raise InputError(f"There are probabilities of {len(probabilities)} rows, but {len(cells)} labels.")
    start = time.perf_counter()
    with torch_threads(1):
        temperatures = fit_temperatures(probabilities, cells)
        probabilities = calibrated(probabilities, temperatures)
    share = torch.from_numpy(np.average(probabilities, axis=0, weights=cells.sample_weight)).where(cells.counts > 0, 0)
    controller = Controller(method, Task(share, (1, method.points), hidden=False), STEPS)
    with torch_threads(1):
        blocks = _Blocks(_relative(probabilities, share), cells)
        for _ in controller.rounds():
            converged = _converge(controller, blocks)
    if (number := int((~converged).sum())) > 0:
        warnings.warn(
            f"{number} of {method.points} heads have not converged: a class and group has too few rows, or the "
            "probabilities say too little. Use smaller radii.",
            RuntimeWarning,
            stacklevel=2,
        )
    seconds, sound = time.perf_counter() - start, torch.zeros(1, method.points, dtype=torch.bool)
    return Head(
        share=share,
        converged=converged,
        temperatures=temperatures,
        diverged=sound,
        seconds=seconds,
        **controller.results(),
    )


def _converge(controller: Controller, blocks: _Blocks) -> Tensor:
    """Respond until no point drifts any more; return which have converged ``(1, P)``.

    Errors of finitely many rows jump, and at a jump responses alternate for ever around the weights that settle there. So
    what counts is their mean over the second half of the steps: the drift of the weights, by what it gains in error. A point
    that has converged stays as it is, whatever others need.
    """
    steps, moving = STEPS, torch.ones(controller.weights.shape[:2], dtype=torch.bool)
    error = torch.empty_like(controller.weights)
    while True:
        controller.restart(steps)
        points = moving[0].nonzero()[:, 0]
        for step in controller.steps():
            error[0, points] = blocks.errors(controller.weights[0, points])
            before = controller.state
            if not controller.update(CellMeans(error), damping=DAMPING * (1 - step / steps)):
                return torch.ones_like(moving)  # it responds between rounds, or never
            if len(points) < moving.numel():
                controller.state = {key: _where(moving, new, before[key]) for key, new in controller.state.items()}
        half = controller.seen[-(steps // 2) :]
        pace = DAMPING * steps / 24  # the sum of damping times smoothing over these steps, each 1 - t / T
        drift = (controller.weights - half[0][0]) / pace
        mean = 1 - torch.stack([accuracy for _, accuracy in half]).mean(0)
        converged = (drift * mean).nansum((-1, -2)).abs() / mean.shape[-2] <= TOLERANCE
        moving = ~converged
        steps *= 2
        if bool(converged.all()) or steps > MOST_STEPS:
            return converged


def _where(moving: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Return the new state of points that move ``(1, P)``, and the old one of others."""
    return torch.where(moving.view(*moving.shape, *[1] * (new.dim() - 2)), new, old)


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
    fit: Callable[[np.ndarray, Cells, Any], Head] = fit_head,
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
        :func:`fit_head`, or for FairDRO :func:`fit_thresholds`.
    """
    part = np.arange(len(fold)) % 2 if len(np.unique(fold)) == 1 else fold
    predictions = torch.empty(method.points, len(fold), dtype=torch.int16)
    for i in np.unique(part):
        fitted, judged = np.flatnonzero(part != i), np.flatnonzero(part == i)
        head = fit(probabilities[fitted], cells.take(torch.from_numpy(fitted)), method)
        predictions[:, torch.from_numpy(judged)] = head.predict(probabilities[judged])[0].short()
    return predictions


def fit_held_out(probabilities: np.ndarray, cells: Cells, method: Method, *, seed: int = 0) -> tuple[Head, np.ndarray]:
    """Fit a head to rows that are held out; also return how heads of the other folds predict them ``(P, Y, A, Y)``."""
    fold = fold_numbers(stratified_folds(cells, seed=seed), len(cells))
    counts = confusion_counts(predict_heads(probabilities, cells, method, fold), cells)
    return fit_head(probabilities, cells, method), counts


def fit_thresholds(probabilities: np.ndarray, cells: Cells, method: FairDRO) -> Head:
    r"""Fit a head that reads the probabilities of the classes alone, and infers no group.

    It predicts the class with the largest :math:`u_y\, p(y \mid x)`; the multipliers :math:`u` are those with the smallest
    robust error :math:`\frac{1}{|Y|} \sum_y \max_{q \in Q_\rho} \sum_a q_a e_{y,a}` (plus what the standard objective
    adds), searched for one class after the other until none gains.

    Parameters
    ----------
    probabilities : ndarray of shape (N, Y, 1)
        Of the classes, by a model that was not trained on the row.
    cells : Cells
    method : FairDRO
        All its points at once.
    """
    check_two_classes(cells.counts)
    start = time.perf_counter()
    p_class = probabilities[:, :, 0]
    share = torch.from_numpy(np.average(p_class, axis=0, weights=cells.sample_weight))
    logs = torch.from_numpy(np.log(np.maximum(p_class, 1e-12))) - share.clamp(min=1e-12).log()
    radii = np.atleast_1d(method.rho)
    found, errors = zip(*(_search(logs, cells, replace(method, rho=float(rho), softness=0.0)) for rho in radii), strict=True)
    weights = torch.stack(found).softmax(-1)[None, :, :, None]
    history = History(weights[None].expand(1, -1, -1, -1, cells.n_groups), 1 - torch.stack(errors)[None, None])
    seconds, sound = time.perf_counter() - start, torch.zeros(1, len(radii), dtype=torch.bool)
    return Head(weights=weights, share=share[:, None], converged=~sound, history=history, diverged=sound, seconds=seconds)


def _search(logs: Tensor, cells: Cells, method: FairDRO) -> tuple[Tensor, Tensor]:
    """Return the logarithms of the multipliers ``(Y,)`` with the smallest robust error, and the errors ``(Y, A)``."""
    n_classes, state = cells.n_classes, method.begin(Task(cells.counts))
    shift, least, best = torch.zeros(n_classes, dtype=torch.float64), torch.inf, torch.zeros(n_classes, cells.n_groups)
    for _ in range(SWEEPS if n_classes > 2 else 1):
        before = float(least)
        for k in range(1, n_classes):  # only ratios count
            others = logs + shift
            others[:, k] = -torch.inf
            rival, other = others.max(1)
            needed = rival - logs[:, k]  # the shift above which a row is predicted as k
            bounds = torch.quantile(
                needed[some_rows(len(needed))], torch.linspace(0, 1, THRESHOLDS, dtype=torch.float64)
            ).unique()
            place = torch.searchsorted(bounds, needed)  # predicted as k from this bound on
            own = cells.y == k
            error = _step_errors(place, own, other != cells.y, cells, len(bounds))
            worst = method.costed_weights(method.update(state, CellMeans(error), 0.0))  # the best response itself
            robust = (worst * error).nansum((-1, -2))
            if float(robust.min()) < least:
                i = int(robust.argmin())
                least, best, shift[k] = float(robust[i]), error[i], float(bounds[i]) + 1e-9
        if before - float(least) < 1e-6:
            break
    return shift, best


def _step_errors(place: Tensor, own: Tensor, wrong_below: Tensor, cells: Cells, n: int) -> Tensor:
    """Return the errors of the cells ``(n, Y, A)`` at n bounds of a class.

    Its own rows are wrong below their place and right from there on; other rows are wrong from there on, and below where
    ``wrong_below``.
    """
    onset = torch.where(own, -1.0, 1.0 - wrong_below.double())
    changes = torch.zeros(n + 1, cells.n_classes * cells.n_groups, dtype=torch.float64)
    changes.index_add_(0, place.clamp(max=n), cells.indicator.double() * onset[:, None])
    start = cells.totals(torch.where(own, 1.0, wrong_below.double())).sums
    total = start.flatten() + changes[:-1].cumsum(0)
    return total.unflatten(-1, start.shape) / cells.counts.where(cells.counts > 0, torch.nan)
