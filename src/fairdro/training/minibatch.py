"""Mini-batch training of a bank of models: the paper's Algorithm 1 for S seeds times P points at once."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fairdro._utils.progress import OnStep
from fairdro._utils.seeding import generator
from fairdro.cells import Cells, CellTotals, take_rows
from fairdro.errors import InputError
from fairdro.methods import Batch, CellMeans, Method, Task
from fairdro.models import ModelBank, get_model
from fairdro.training.controller import Controller
from fairdro.training.sampling import draw_epoch
from fairdro.training.threads import torch_threads
from fairdro.training.trained import TrainedBank, check_training_data, has_diverged, mistaken


def train_minibatch(
    X: Any,
    cells: Cells,
    method: Method,
    *,
    model: str = "linear",
    seeds: Sequence[int] = (0,),
    epochs: int = 70,
    batch_size: int = 128,
    lr: float = 1e-3,
    weight_decay: float = 1e-3,
    sampling: str | None = None,
    teacher: TrainedBank | None = None,
    on_step: OnStep | None = None,
) -> TrainedBank:
    """Train by AdamW with a cosine schedule, batches drawn as the method asks, weights updated after every epoch.

    Every model of a seed sees the same batches; results do not depend on which other models are in the bank, up to float
    rounding.

    Parameters
    ----------
    X : Tensor, array or DataFrame of shape (N, D)
        Standardised features.
    cells : Cells
    method : Method
        Its P points are trained for each of the seeds.
    model : {"linear", "mlp"}
    seeds : sequence of int
        Each decides initial weights and batch order.
    epochs, batch_size, lr, weight_decay
        Defaults are the paper's.
    sampling : {"equal", "uniform"}, optional
        See :func:`~fairdro.training.sampling.draw_epoch`; by default as the method is defined, equal for most.
    teacher : TrainedBank, optional
        For a method that learns from one: a model of the same kind for every seed. If missing, it is trained first.
    on_step : callable, optional
        Called after every epoch with the number of finished epochs and of all.
    """
    X = check_training_data(X, cells)
    _check_options(seeds, epochs, batch_size, lr, weight_decay)
    start = time.perf_counter()
    bank = get_model(model)(X.shape[1], cells.n_classes, seeds=seeds, points=method.points)
    sampling = sampling or method.sampling
    taught_first = epochs if method.teacher() is not None and teacher is None else 0

    def tell(epochs_done: int, _: int) -> None:
        if on_step is not None:
            on_step(epochs_done, taught_first + method.rounds * epochs)

    task = Task(cells.counts, bank.bank, bank.hidden, cells.unknown_group)
    controller = Controller(method, task, epochs, on_step=lambda done, total: tell(taught_first + done, total))
    if (plain := method.teacher()) is not None and teacher is None:
        teacher = train_minibatch(
            X, cells, plain, model=model, seeds=seeds, epochs=epochs, batch_size=batch_size, lr=lr,
            weight_decay=weight_decay, sampling=sampling, on_step=tell,
        )  # fmt: skip
    teaching = None if teacher is None else _check_teacher(teacher.model, bank, method)
    draw = partial(draw_epoch, cells, batch_size, sampling)
    new_optimiser = partial(torch.optim.AdamW, lr=lr, weight_decay=weight_decay, fused=True)
    overflowed, earlier = _train_rounds(bank, controller, X, cells, teaching, draw, new_optimiser)
    with torch_threads(1):
        final = training_means(bank, X, cells, loss=True)
    diverged, seconds = overflowed | has_diverged(final, cells.counts), time.perf_counter() - start
    found = controller.results()
    return TrainedBank(model=bank, method=method, earlier=earlier, diverged=diverged, seconds=seconds, **found)


def _train_rounds(
    bank: ModelBank,
    controller: Controller,
    X: Tensor,
    cells: Cells,
    teacher: ModelBank | None,
    draw: Callable[[torch.Generator], Tensor],
    new_optimiser: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer],
) -> tuple[Tensor, tuple[dict[str, Tensor], ...]]:
    """Train every round; return which models overflowed ``(S, P)``, and those of earlier rounds that start anew."""
    method, streams = controller.method, [generator(seed, "batches") for seed in bank.seeds]
    initial = {key: value.clone() for key, value in bank.state_dict().items()}
    overflowed, earlier = torch.zeros(bank.bank, dtype=torch.bool), []
    with torch_threads(1):
        for round_number in controller.rounds():
            if method.restart and round_number > 0:
                earlier.append({key: value.clone() for key, value in bank.state_dict().items()})
                bank.load_state_dict(initial)
            optimiser = new_optimiser(bank.parameters())
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=controller.steps_per_round)
            for _ in controller.steps():
                before = [p.detach().clone() for p in bank.parameters()]
                rows = torch.stack([draw(rng) for rng in streams], dim=1)
                _train_epoch(bank, optimiser, controller, X, cells, rows, teacher)
                schedule.step()
                overflowed |= restore_overflowed(bank, before)
                wanted = {"loss": method.needs_loss, "probabilities": method.needs_probabilities}
                controller.update(training_means(bank, X, cells, **wanted))
    return overflowed, tuple(earlier)


def _train_epoch(
    bank: ModelBank,
    optimiser: torch.optim.Optimizer,
    controller: Controller,
    X: Tensor,
    cells: Cells,
    rows: Tensor,
    teacher: ModelBank | None,
) -> None:
    """Train on the batches ``rows`` ``(batches, S, B)``."""
    method, weights = controller.method, controller.weights
    drawn = cells.take(rows)
    for batch, y, membership, averaging in zip(rows, drawn.y, drawn.membership, drawn.averaging, strict=True):
        x = take_rows(X, batch)
        features = bank.features(x) if method.needs_features else None
        logits = bank(x) if features is None else bank.head(features)
        with torch.no_grad():
            teacher_features = None if teacher is None else teacher.features(x)
        seen = see(logits, y, membership, averaging, features=features, teacher=teacher_features)
        if method.observes_batches():
            controller.observe(seen)
            weights = controller.weights
        loss = weighted_loss(seen, weights)
        if method.has_penalty():
            loss = loss + method.penalty(controller.state, seen).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def _check_options(seeds: object, epochs: int, batch_size: int, lr: float, weight_decay: float) -> None:
    if not isinstance(seeds, Sequence) or len(seeds) == 0:
        raise InputError("seeds must be a sequence of at least one whole number, for example (0,).")
    if not (isinstance(epochs, int) and isinstance(batch_size, int)) or epochs < 1 or batch_size < 1:
        raise InputError(f"epochs and batch_size must be positive whole numbers, got {epochs} and {batch_size}.")
    if not lr > 0 or not weight_decay >= 0:
        raise InputError(f"lr must be positive and weight_decay not negative, got {lr} and {weight_decay}.")


def _check_teacher(teacher: ModelBank, bank: ModelBank, method: Method) -> ModelBank:
    """Return the teacher's models, or say why they cannot teach these."""
    if method.teacher() is None:
        raise InputError(f"{method.name} learns from no teacher; leave it out.")
    wanted = (bank.bank[0], 1)
    if type(teacher) is not type(bank) or teacher.bank != wanted or teacher.n_features != bank.n_features:
        raise InputError(
            f"The teacher must be a bank of {wanted[0]} x 1 models of the kind {type(bank).__name__} for {bank.n_features} "
            f"columns, not of {teacher.bank[0]} x {teacher.bank[1]} models of the kind {type(teacher).__name__} for "
            f"{teacher.n_features}."
        )
    return teacher


@torch.no_grad()
def restore_overflowed(bank: ModelBank, before: list[Tensor]) -> Tensor:
    """Put models that left the finite numbers back to where they were; return which, ``(S, P)``."""
    finite = torch.stack([p.isfinite().flatten(2).all(-1) for p in bank.parameters()]).all(0)
    if not bool(finite.all()):
        for parameter, old in zip(bank.parameters(), before, strict=True):
            parameter[~finite] = old[~finite]
    return ~finite


def see(logits: Tensor, y: Tensor, membership: Tensor, averaging: Tensor, **seen: Tensor | None) -> Batch:
    """Gather what is known of a batch: logits ``(S, P, B, Y)``, labels ``(S, B)``, its cells, and features if seen."""
    return Batch(logits, cross_entropy(logits, y), y, membership, averaging, **seen)


def weighted_loss(batch: Batch, weights: Tensor) -> Tensor:
    """Mean over classes of the weighted cell losses, summed over the bank, whose models do not share parameters.

    A cell without samples in the batch adds nothing.
    """
    means = batch.means(batch.losses)
    return (weights.to(means.dtype) * means).sum() / weights.shape[-2]


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy ``(S, P, N)`` of logits ``(S, P, N, Y)``, for labels ``(N,)`` or ``(S, N)``."""
    if logits.shape[-1] == 2:  # the same value in half the time
        difference = logits[..., 1] - logits[..., 0]
        return torch.nn.functional.softplus(difference) - difference * y.unsqueeze(-2)
    target = y.unsqueeze(-2).expand(logits.shape[:-1])
    return logits.logsumexp(-1) - logits.gather(-1, target[..., None])[..., 0]


@torch.no_grad()
def training_means(bank: ModelBank, X: Tensor, cells: Cells, *, loss: bool, probabilities: bool = False) -> CellMeans:
    """Cell means over the whole training set: of 0-1 error, and of cross-entropy and probabilities where asked for."""

    def judge(rows: Tensor) -> dict[str, CellTotals]:
        logits, part = bank(X[rows[0] : rows[-1] + 1]), cells.take(rows)
        totals = {"error": part.totals(mistaken(logits, part.y))}
        if loss:
            totals["loss"] = part.totals(cross_entropy(logits, part.y))
        if probabilities:
            totals["probabilities"] = part.totals(logits.softmax(-1).movedim(-1, 0))
        return totals

    first, *rest = [judge(rows) for rows in torch.arange(len(X)).split(bank.rows_per_pass)]
    means = {key: sum((other[key] for other in rest), total).means.double() for key, total in first.items()}
    if probabilities:
        means["probabilities"] = means["probabilities"].movedim(0, -1)
    return CellMeans(**means)
