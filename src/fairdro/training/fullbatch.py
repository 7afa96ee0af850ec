"""The deterministic frontier solver for linear models: every step uses all rows, all P points share one matrix product.

Rows are sorted into blocks of one cell each (of one class each where groups are soft). One pass over the blocks gives every
cell's errors and the gradient of every cell's summed loss; only then are the cells weighted. So the weights always respond
to the current models, rows are read once a step, and memory beyond the sorted rows is a few blocks.

With out-of-fold errors there are K + 1 copies of the models side by side, one per fold and the final one, and blocks are of
one fold each. Errors of a block are those of its fold's copy, which gets no gradient from it.
"""

import itertools
import math
import time
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from fairdro._utils.progress import OnStep
from fairdro.cells import Cells, CellTotals
from fairdro.errors import InputError, unknown_name
from fairdro.methods import CellMeans, Method, Task
from fairdro.models import LinearBank
from fairdro.training.blocks import FEATURE_MULTIPLE, Block, Pass, blocks_of, growing_samples, padded
from fairdro.training.controller import Controller
from fairdro.training.folds import stratified_folds
from fairdro.training.losses import BinaryLoss, ClassLoss, MulticlassLoss
from fairdro.training.processes import added_up
from fairdro.training.rows import ScaledRows
from fairdro.training.threads import one_thread_each
from fairdro.training.trained import STEPS, TrainedBank, check_training_data, has_diverged

Errors = Literal["training", "out_of_fold"]

ROWS_PER_BLOCK = 4096
ROWS_ALONE = 16384  # where a single model reads a block, calls cost more than a cache that is too small
TAIL = 0.2
BETAS = (0.7, 0.99)  # less momentum than usual: the weights respond to each step, and delay makes them swing
EPSILON = 1e-5  # gradients below are rounding errors, which Adam would otherwise blow up

# Kernels round narrow products in another way than wide ones. Models are therefore padded with zeros to these multiples, as
# rows are in their blocks: then no result depends on how many models are trained side by side.
MODEL_MULTIPLE = 8
SOFTMAX_MULTIPLE = 16  # models with several classes: the numbers that a kernel takes at once, on any machine
MIN_COLUMNS = 16


def train_fullbatch(
    X: Any,
    cells: Cells,
    method: Method,
    *,
    steps: int = STEPS,
    lr: float = 0.03,
    errors: Errors = "training",
    folds: int = 5,
    l2: float = 0.0,
    double: bool = False,
    alone: bool = False,
    sharded: bool = False,
    on_step: OnStep | None = None,
) -> TrainedBank:
    """Train P linear models, one per point of the method (and S = 1), from zero by Adam with a cosine schedule.

    There is no randomness, and a model does not depend on which others are trained beside it.

    Parameters
    ----------
    X : Tensor, array, DataFrame or ScaledRows of shape (N, D)
        Features of similar scale, e.g. standardised. Of rows on disk, most steps go through a sample that grows, which is
        kept in memory, and the last ones through all (:mod:`fairdro.training.blocks`).
    cells : Cells
    method : Method
        Its weights are updated at every step.
    steps : int, default 200
    lr : float, default 0.03
        Adam's step size at the start.
    errors : {"training", "out_of_fold"}, default "training"
        What the method responds to, and the history holds: errors of the models on the rows they are trained on; or errors
        on every row of a copy that is trained beside them without the row's fold, by the same weights. Either way the
        models that are returned are trained on all rows. Out-of-fold errors cost up to ``folds + 1`` times the time (3 to 5
        times with five folds and 12 points) and the memory for gradients.
    folds : int, default 5
        How many folds, stratified by cell; fewer where a class has fewer rows.
    l2 : float, default 0
        Adds ``l2 / 2 * ||W||^2`` to the objective of every model, the mean over classes of the weighted mean losses of
        cells. As in scikit-learn, ``W`` holds the coefficients of the one logit of two classes, or of the logits of all of
        several, without intercepts. So the objective is that of ``C = 1 / (N * l2)`` with sample weights that sum to N.
    double : bool, default False
        Compute in double precision, at twice the cost.
    alone : bool, default False
        Do not pad a single model to the width of a bank, which is faster. Then its numbers are those of the same model in a
        bank up to float rounding, which the weights' responses to single errors may enlarge; in double precision they agree.
    sharded : bool, default False
        Whether the rows are this process's share of those of all processes under ``torch.distributed``. Every process gets
        the same models; with ``double`` they are those of one process with all rows up to 1e-9. With training errors only.
    on_step : callable, optional
        Called after every step with the number of finished steps and of all.

    Warns
    -----
    RuntimeWarning
        If there is one group only or a cell is empty, if a model diverged, which negative weights can cause, or if one was
        still moving at the end.
    """
    _check_options(method, steps, lr, errors, folds, l2, sharded=sharded, on_disk=isinstance(X, ScaledRows))
    counts = added_up(cells.counts) if sharded else cells.counts
    X = check_training_data(X, cells, torch.float64 if double else torch.float32, counts)
    start = time.perf_counter()
    threads = torch.get_num_threads()
    with one_thread_each(threads) as pool:
        task = Task(counts, (1, method.points), hidden=False, unknown_group=cells.unknown_group)
        controller = Controller(method, task, steps, on_step=on_step)
        copies = _out_of_fold(cells, folds) if errors == "out_of_fold" else _on_training_rows(cells, counts)
        solver = _Solver(X, cells, copies, controller, pool=pool, threads=threads, alone=alone, sharded=sharded)
        solver.solve(lr, l2)
        diverged = solver.diverged()
    seconds = time.perf_counter() - start
    trained = TrainedBank(model=solver.bank(), method=method, diverged=diverged, seconds=seconds, **controller.results())
    trained.warn_if_unsettled()
    return trained


def _check_options(
    method: Method, steps: int, lr: float, errors: str, folds: int, l2: float, *, sharded: bool, on_disk: bool
) -> None:
    """Refuse what makes no sense."""
    if not isinstance(steps, int) or steps < 1 or not lr > 0:
        raise InputError(f"steps must be a positive whole number and lr positive, got {steps} and {lr}.")
    if errors not in get_args(Errors):
        raise unknown_name("kind of errors", errors, list(get_args(Errors)))
    if not isinstance(folds, int) or folds < 2 or not 0 <= l2 < math.inf:
        raise InputError(f"folds must be a whole number from 2 on and l2 not negative, got {folds} and {l2}.")
    if errors == "out_of_fold" and (sharded or on_disk):
        raise InputError("Rows on disk or on several processes can be trained with errors='training' only; use that.")
    if (refusal := fullbatch_refusal(method)) is not None:
        raise InputError(refusal)


def fullbatch_refusal(method: Method) -> str | None:
    """Say why the solver cannot train a method, if so."""
    if not method.weighs_cells():
        return f"{method.name} needs mini-batches; use solver minibatch, or leave it out."
    return None


@dataclass(frozen=True)
class _Copies:
    """Copies of the models, of which the last, the final one, learns from all rows.

    ``judge`` is the copy whose errors count on a row ``(N,)``; unless it is the final one, it does not learn from that row.
    ``counts`` are of the rows that each copy learns from ``(copies, Y, A)``.
    """

    judge: Tensor
    counts: Tensor

    def __len__(self) -> int:
        return len(self.counts)


def _on_training_rows(cells: Cells, counts: Tensor) -> _Copies:
    return _Copies(torch.zeros(len(cells), dtype=torch.int64), counts[None])


def _out_of_fold(cells: Cells, number: int) -> _Copies:
    judge, counts = torch.empty(len(cells), dtype=torch.int64), []
    for copy, (train, test) in enumerate(stratified_folds(cells, number, seed=0)):
        judge[torch.from_numpy(test)] = copy
        counts.append(cells.take(torch.from_numpy(train)).counts)
    return _Copies(judge, torch.stack([*counts, cells.counts]))


def _product(A: Tensor, B: Tensor) -> Tensor:
    """Multiply; by a narrow matrix column by column, which is several times faster than at once."""
    if B.shape[1] == 1 or B.shape[1] >= MIN_COLUMNS:
        return A @ B
    return torch.stack([A.mv(b) for b in B.T], dim=1)


class _Adam:
    """Adam's direction (Kingma and Ba, 2015). Making one of torch's optimisers loads its compiler, a second or more."""

    def __init__(self, like: Tensor) -> None:
        self.mean, self.square = torch.zeros_like(like), torch.zeros_like(like)
        self.steps = 0

    def move(self, gradient: Tensor) -> Tensor:
        """Return the step to take, of size about one."""
        self.steps += 1
        self.mean.mul_(BETAS[0]).add_(gradient, alpha=1 - BETAS[0])
        self.square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        mean, square = self.mean / (1 - BETAS[0] ** self.steps), self.square / (1 - BETAS[1] ** self.steps)
        return mean / (square.sqrt() + EPSILON)


class _Solver:
    """Copies of P linear models side by side in one matrix ``(D + 1, columns)``, and one pass over the rows for all.

    Columns are by output, then by copy, then by model.
    """

    def __init__(
        self,
        X: Tensor | ScaledRows,
        cells: Cells,
        copies: _Copies,
        controller: Controller,
        *,
        pool: Executor,
        threads: int,
        alone: bool,
        sharded: bool,
    ) -> None:
        self.pool, self.sharded = pool, sharded
        self.passes = self._passes(X, cells, copies, ROWS_ALONE if alone else ROWS_PER_BLOCK, threads)
        self.controller, self.counts, self.method = controller, controller.counts, controller.method
        self.loss: ClassLoss = BinaryLoss() if cells.n_classes == 2 else MulticlassLoss(cells.n_classes)
        multiple = MODEL_MULTIPLE if self.loss.outputs == 1 else SOFTMAX_MULTIPLE
        width = padded(max(self.method.points, MIN_COLUMNS // self.loss.outputs), multiple)
        self.models = 1 if alone and self.method.points == 1 else width
        self.copies, self.features = len(copies), X.shape[1]
        columns = self.loss.outputs * self.copies * self.models
        self.W = torch.zeros(padded(self.features + 1, FEATURE_MULTIPLE), columns, dtype=X.dtype)
        self.overflowed = torch.zeros(columns, dtype=torch.bool)

    def _passes(
        self, X: Tensor | ScaledRows, cells: Cells, copies: _Copies, most: int, threads: int
    ) -> list[tuple[float, Pass]]:
        """Return from which part of the steps on which rows are gone through: all of them, after samples that grow."""
        passes = []
        samples, last = growing_samples(X, cells, copies.counts[-1]) if isinstance(X, ScaledRows) else ([], 0.0)
        for begin, rows in samples:
            some = cells.take(rows)
            counts = added_up(some.counts) if self.sharded else some.counts
            passes.append((begin, Pass.over(blocks_of(X[rows], some, copies.judge[rows], most), counts[None], threads)))
        everything = Pass.over(blocks_of(X, cells, copies.judge, most), copies.counts, threads)
        return [*passes, (last, everything)]

    def solve(self, lr: float, l2: float) -> None:
        """Move the method's weights and the models in turn; the models end as their average over the last steps."""
        controller, steps = self.controller, self.controller.steps_per_round
        tail = range(steps - max(round(TAIL * steps), 1), steps)
        for _ in controller.rounds():
            adam, average = _Adam(self.W), torch.zeros_like(self.W)
            for step in controller.steps():
                rows = next(rows for begin, rows in reversed(self.passes) if step >= begin * steps)
                means, gradients = self.sweep(rows, with_loss=self.method.needs_loss)
                controller.update(means)
                gradient = self.combine(gradients, controller.weights, rows.counts)
                if l2 > 0:
                    gradient[: self.features] += l2 * self.W[: self.features]
                self.step(lr * (1 + math.cos(math.pi * step / steps)) / 2 * adam.move(gradient))
                if step in tail:
                    average += self.W / len(tail)
            self.W.copy_(average)

    def step(self, move: Tensor) -> None:
        """Move the models; one that would leave the finite numbers stays where it is."""
        moved = self.W - move
        overflow = ~moved.isfinite().all(0)
        self.W.copy_(self.W.where(overflow, moved))
        self.overflowed |= overflow

    def sweep(self, rows: Pass, *, with_loss: bool, final: bool = False) -> tuple[CellMeans, Tensor]:
        """Go through rows once: means, and the gradient of every cell's summed loss ``(Y * A, D + 1, columns)``.

        The means are of the errors that the method responds to, or with ``final`` of the final models.
        """

        def of_portion(shards: list[list[Block]]) -> list[tuple[Tensor, ...]]:
            return [self._sums(blocks, with_loss=with_loss, final=final) for blocks in shards]

        others = self.pool.map(of_portion, rows.portions[1:])
        parts = [*of_portion(rows.portions[0]), *itertools.chain.from_iterable(others)]
        sums = [sum(rest, first) for first, *rest in zip(*parts, strict=True)]
        errors, losses, gradients = self._of_all_processes(sums) if self.sharded else sums
        counts = rows.counts[-1]
        return CellMeans(self._means(errors, counts), self._means(losses, counts) if with_loss else None), gradients

    def _of_all_processes(self, sums: list[Tensor]) -> list[Tensor]:
        """Add up the sums of all processes, in one message."""
        message = added_up(torch.cat([part.flatten() for part in sums]))
        pieces = message.split([part.numel() for part in sums])
        return [piece.view_as(part) for piece, part in zip(pieces, sums, strict=True)]

    def _sums(self, blocks: list[Block], *, with_loss: bool, final: bool) -> tuple[Tensor, ...]:
        """Sum errors, losses ``(Y * A, 1, models)`` and gradients over some blocks."""
        n_cells, last = self.counts.numel(), self.copies - 1
        errors, losses = self.W.new_zeros(2, n_cells, 1, self.models)
        gradients = self.W.new_zeros(n_cells, *self.W.shape)
        for block in blocks:
            X = block.read()
            logits = _product(X, self.W)
            judged = logits
            if last > 0:
                judged = self._by_copy(logits)[:, :, last if final else block.judge].flatten(1).contiguous()
            wrong = self.loss.wrong(judged, block.y)
            loss = self.loss.value(judged, block.y).T.contiguous() if with_loss else None
            gradient = self.loss.gradient(logits, block.y)
            if block.judge != last:
                self._by_copy(gradient)[:, :, block.judge] = 0
            for cell, share in block.shares:
                errors[cell].addmm_(share[None], wrong)
                if loss is not None:  # model by model, as sums that are rounded depend on the width of a product
                    losses[cell] += torch.stack([of_model.dot(share) for of_model in loss])
                gradients[cell] += _product(X.T, gradient if block.whole else gradient * share[:, None])
        return errors, losses, gradients

    def _means(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Turn sums ``(Y * A, 1, models)`` into means ``(1, P, Y, A)``."""
        per_model = sums[:, 0, : self.method.points].T.unflatten(-1, self.counts.shape)
        return CellTotals(per_model[None].double(), counts).means

    def combine(self, gradients: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
        """Gradient of the mean over classes of the weighted cell means, of every copy over its rows ``(copies, Y, A)``."""
        counts = counts[:, None]
        per_row = weights / (counts * len(self.counts)).where(counts > 0, 1)
        scale = self.W.new_zeros(self.counts.numel(), self.copies, self.models)
        scale[..., : self.method.points] = per_row.flatten(2).movedim(2, 0)
        by_column = scale.flatten(1).repeat(1, self.loss.outputs)
        return (gradients * by_column[:, None, :]).sum(0)

    def bank(self) -> LinearBank:
        """Return the final models as a bank of linear models with a logit per class."""
        points = self.method.points
        W = self.loss.class_logits(self._by_copy(self.W)[:, :, -1]).permute(2, 0, 1)[:points]
        bank = LinearBank(self.features, W.shape[2], points=points).to(W.dtype)
        bank.load_state_dict({"weight": W[None, :, : self.features], "bias": W[None, :, self.features]})
        return bank

    def _by_copy(self, columns: Tensor) -> Tensor:
        return columns.unflatten(-1, (self.loss.outputs, self.copies, self.models))

    def diverged(self) -> Tensor:
        """Models of which a copy overflowed, or whose loss diverged ``(1, P)``."""
        means, _ = self.sweep(self.passes[-1][1], with_loss=True, final=True)
        overflowed = self._by_copy(self.overflowed).flatten(0, 1).any(0)[: self.method.points]
        return has_diverged(means, self.counts) | overflowed
