"""The engine for one network of any kind: the paper's algorithm with mini-batches, on one process or many.

Batches, augmentation and dropout of an epoch are drawn from the seed and the number of the epoch alone, and a checkpoint is
written whole after each: a training that was killed and goes on ends with the weights of one that was not.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import safetensors
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from fairdro.cells import Cells
from fairdro.errors import InputError, unknown_name
from fairdro.files import write_whole
from fairdro.methods import Method
from fairdro.seeding import generator, number
from fairdro.training.criterion import FairLoss
from fairdro.training.processes import rank, world
from fairdro.training.sampling import draw_epoch
from fairdro.training.trained import RUNAWAY_LOSS

__all__ = ["Inputs", "Recipe", "TrainedNetwork", "features_of", "logits_of", "train_network"]

OnStep = Callable[[int, int], object]

SCHEDULES = ["cosine", "linear", "constant"]
ROWS_PER_PASS = 256


class Inputs(Protocol):
    """What a network reads: images, texts, rows.

    Inputs may also have ``in_order(rows)``, which returns rows in the order that is cheapest to go through.
    """

    def __len__(self) -> int: ...

    def batch(self, rows: Tensor, rng: torch.Generator | None = None) -> Any:
        """Return the inputs of some rows, a tensor or a dictionary of tensors; with ``rng``, augmented for training."""
        ...


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Parameters
    ----------
    epochs, batch_size : int
    lr, weight_decay : float
        Of AdamW.
    schedule : {"cosine", "linear", "constant"}
        Cosine falls from epoch to epoch; linear rises over the share ``warm_up`` of all batches and falls over the rest.
    warm_up : float
    clip : float, optional
        Largest norm of the gradient.
    update_every : int, optional
        Batches between two updates of the method, counted over all epochs; by default, and at most, an epoch.
    exact : bool
        Whether an update takes the errors of a pass over all training samples in evaluation mode, as the paper does, or
        those collected while training, which costs nothing.
    sampling : str, optional
        How batches are drawn; by default as the method is defined.
    """

    epochs: int = 70
    batch_size: int = 128
    lr: float = 1e-3
    weight_decay: float = 1e-3
    schedule: str = "cosine"
    warm_up: float = 0.0
    clip: float | None = None
    update_every: int | None = None
    exact: bool = True
    sampling: str | None = None

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise unknown_name("schedule", self.schedule, SCHEDULES)
        if self.epochs < 1 or self.batch_size < 1 or (self.update_every is not None and self.update_every < 1):
            raise InputError("epochs, batch_size and update_every must be positive whole numbers.")
        if not self.lr > 0 or not self.weight_decay >= 0 or not 0 <= self.warm_up < 1:
            raise InputError("lr must be positive, weight_decay not negative, and warm_up a share below 1.")

    def lr_factor(self, epoch: int, batch: int, batches: int) -> float:
        """Return what the step size is multiplied by."""
        if self.schedule == "cosine":
            return (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        if self.schedule == "constant":
            return 1.0
        progress = (epoch * batches + batch) / (self.epochs * batches)
        return progress / self.warm_up if progress < self.warm_up else (1 - progress) / (1 - self.warm_up)


@dataclass(frozen=True)
class TrainedNetwork:
    """What came of a training.

    Attributes
    ----------
    model : nn.Module
    criterion : FairLoss
        With the method's final weights.
    losses : list of float
        Mean loss of every epoch.
    weights : Tensor of shape (epochs, Y, A)
        The cell weights after every epoch.
    diverged : bool
    seconds : float
        Of all its parts, where it was stopped and went on.
    """

    model: nn.Module
    criterion: FairLoss
    losses: list[float]
    weights: Tensor
    diverged: bool
    seconds: float


class _Outputs(nn.Module):
    """A network whose forward gives logits and, where asked for, the features of its last hidden layer."""

    def __init__(self, model: nn.Module, *, with_features: bool) -> None:
        super().__init__()
        self.model, self.with_features = model, with_features
        if with_features and not (hasattr(model, "features") and hasattr(model, "head")):
            raise InputError("The method reads hidden features: the model needs methods features(x) and head(features).")

    def forward(self, x: Any) -> tuple[Tensor, Tensor | None]:
        if self.with_features:
            features = hidden(self.model, x)
            return self.model.head(features), features  # type: ignore[operator]
        out = self.model(x)
        return getattr(out, "logits", out), None


def train_network(
    model: nn.Module,
    inputs: Inputs,
    cells: Cells,
    method: Method,
    recipe: Recipe | None = None,
    *,
    seed: int = 0,
    teacher: nn.Module | None = None,
    device: str | torch.device | None = None,
    checkpoint: Path | None = None,
    on_step: OnStep | None = None,
) -> TrainedNetwork:
    """Train a network by a method.

    Under ``torch.distributed`` every process calls this with the same arguments and takes its share of every batch; the
    result is that of one process with the same batches. Batch normalisation is the exception: on GPUs it takes the
    statistics of the whole batch, elsewhere those of each process's share.

    Parameters
    ----------
    model : nn.Module
        Maps a batch of ``inputs`` to logits ``(B, Y)``, or to an object with ``logits``. It is trained in place. For methods
        that read hidden features it needs ``features(x)`` and ``head(features)``. Its ``parameter_groups(weight_decay)``, if
        it has them, say which parameters decay.
    inputs : Inputs
    cells : Cells
        Of the same samples.
    method : Method
        One point.
    recipe : Recipe, optional
        By default the paper's for tables and images.
    seed : int
        Decides batches, augmentation and dropout; initial weights are the model's own.
    teacher : nn.Module, optional
        For a method that learns from one (MFD): a trained model of the same kind.
    device : optional
        By default a GPU if there is one, with mixed precision.
    checkpoint : Path, optional
        File to write after every epoch, and to go on from if it is there.
    on_step : callable, optional
        Called after every batch with the number of finished batches and of all.
    """
    recipe = Recipe() if recipe is None else recipe
    if len(inputs) != len(cells):
        raise InputError(f"There are {len(inputs)} inputs but {len(cells)} labels.")
    if (method.teacher() is None) != (teacher is None):
        raise InputError(
            f"{method.name} {'learns from a teacher; pass one' if teacher is None else 'learns from no teacher'}."
        )
    trainer = _Trainer(model, inputs, cells, method, recipe, seed=seed, teacher=teacher, device=device)
    if checkpoint is not None:
        trainer.resume(checkpoint)
    while trainer.epoch < trainer.epochs and not trainer.diverged:
        trainer.train_epoch(trainer.epoch, on_step)
        if checkpoint is not None and rank() == 0:
            trainer.save(checkpoint)
    weights = torch.stack(trainer.weights_seen)
    return TrainedNetwork(model, trainer.criterion, trainer.losses, weights, trainer.diverged, trainer.seconds)


class _Trainer:
    """One training: what changes from epoch to epoch, and how."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Inputs,
        cells: Cells,
        method: Method,
        recipe: Recipe,
        *,
        seed: int,
        teacher: nn.Module | None,
        device: str | torch.device | None,
    ) -> None:
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.model, self.inputs, self.cells, self.method, self.recipe = model.to(self.device), inputs, cells, method, recipe
        self.seed, self.sampling = seed, recipe.sampling or method.sampling
        self.teacher = None if teacher is None else teacher.to(self.device).eval()
        self.outputs: nn.Module = _Outputs(self.model, with_features=method.needs_features)
        if world() > 1:
            if self.device.type == "cuda":
                nn.SyncBatchNorm.convert_sync_batchnorm(self.model)
            self.outputs = nn.parallel.DistributedDataParallel(self.outputs)
        self.optimiser = self._new_optimiser()
        self.batches = max(len(cells) // recipe.batch_size, 1)
        self.updates = min(recipe.update_every or self.batches, self.batches)
        self.epoch, self.epochs = 0, recipe.epochs * method.rounds
        self.criterion = FairLoss(
            method,
            n_classes=cells.n_classes,
            n_groups=cells.n_groups,
            total_steps=max(recipe.epochs * self.batches // self.updates, 1),
            counts=cells.counts,
        ).to(self.device)
        self.initial = {key: value.clone() for key, value in self.model.state_dict().items()} if method.restart else {}
        self.losses: list[float] = []
        self.weights_seen: list[Tensor] = []
        self.seconds = 0.0

    @property
    def diverged(self) -> bool:
        """Whether the loss left the finite numbers."""
        return len(self.losses) > 0 and not math.isfinite(self.losses[-1])

    def _new_optimiser(self) -> torch.optim.Optimizer:
        decay = self.recipe.weight_decay
        groups = getattr(self.model, "parameter_groups", None)
        return torch.optim.AdamW(
            self.model.parameters() if groups is None else groups(decay), lr=self.recipe.lr, weight_decay=decay
        )

    def train_epoch(self, epoch: int, on_step: OnStep | None) -> None:
        """Train on the batches of one epoch, and let the method answer."""
        start = time.perf_counter()
        in_round = epoch % self.recipe.epochs
        if in_round == 0 and epoch > 0:
            self._next_round()
        rng = generator(self.seed, f"epoch/{epoch}")
        torch.manual_seed(number(self.seed, f"dropout/{epoch}/{rank()}"))
        rows = draw_epoch(self.cells, self.recipe.batch_size, self.sampling, rng)[:, rank() :: world()]
        augmenting = generator(self.seed, f"augment/{epoch}/{rank()}")
        self.model.train()
        total = 0.0
        for i, batch in enumerate(rows):
            for group in self.optimiser.param_groups:
                group["lr"] = self.recipe.lr * self.recipe.lr_factor(in_round, i, len(rows))
            total += self._train_batch(batch, augmenting)
            if (in_round * len(rows) + i + 1) % self.updates == 0:
                self._update()
            if on_step is not None:
                on_step(epoch * len(rows) + i + 1, self.epochs * len(rows))
        self.epoch = epoch + 1
        self.losses.append(total / len(rows))
        self.weights_seen.append(self.criterion.weights.cpu().clone())
        self.seconds += time.perf_counter() - start
        self._watch()

    def _train_batch(self, rows: Tensor, rng: torch.Generator) -> float:
        x, y, a = self._take(rows, rng)
        with torch.autocast(self.device.type, enabled=self.device.type == "cuda", dtype=torch.bfloat16):
            logits, features = self.outputs(x)
            with torch.no_grad():
                lesson = None if self.teacher is None else hidden(self.teacher, x)
        loss = self.criterion(logits, y, a, features=features, teacher=lesson)
        self.optimiser.zero_grad()
        loss.backward()
        if self.recipe.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        self.optimiser.step()
        return float(loss.detach())

    def _take(self, rows: Tensor, rng: torch.Generator | None) -> tuple[Any, Tensor, Tensor]:
        x = self.inputs.batch(rows, rng)
        return to_device(x, self.device), self.cells.y[rows].to(self.device), self.cells.groups[rows].to(self.device)

    def _update(self) -> None:
        if not (self.recipe.exact and self.method.adaptive):
            self.criterion.step()
            return
        own = _in_order(self.inputs, torch.arange(len(self.cells))[rank() :: world()])
        self.criterion.step(_Logits(self.model), (self._take(rows, None) for rows in own.split(ROWS_PER_PASS)))
        self.model.train()

    def _next_round(self) -> None:
        self.criterion.next_round()
        self.optimiser = self._new_optimiser()
        if self.method.restart:
            self.model.load_state_dict(self.initial)

    def _watch(self) -> None:
        """Warn early of a loss that ran away, upwards or, with negative weights, downwards."""
        last = self.losses[-1]
        if self.diverged or abs(last) > RUNAWAY_LOSS * math.log(self.cells.n_classes):
            signed = float(self.criterion.weights.min()) < 0
            smaller = "radius, as negative weights can cause this, or lr" if signed else "lr"
            warnings.warn(
                f"The loss of epoch {self.epoch} is {last:.3g}; use a smaller {smaller}.", RuntimeWarning, stacklevel=4
            )

    def _tensors(self) -> dict[str, Tensor]:
        """Return all that changes from epoch to epoch, by name."""
        tensors = {f"model/{key}": value for key, value in self.model.state_dict().items()}
        tensors |= {f"initial/{key}": value for key, value in self.initial.items()}
        tensors |= {f"criterion/{key}": value for key, value in self.criterion.state_dict().items()}
        for index, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser/{index}/{key}": torch.as_tensor(value) for key, value in state.items()}
        tensors["losses"] = torch.tensor(self.losses, dtype=torch.float64)
        tensors["weights"] = torch.stack(self.weights_seen)
        return {key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()}

    @cached_property
    def _about(self) -> str:
        """What a checkpoint must agree with to go on."""
        recipe = {f.name: getattr(self.recipe, f.name) for f in fields(self.recipe)}
        labels = [self.cells.y, self.cells.groups]
        lesson = [] if self.teacher is None else list(self.teacher.state_dict().values())
        known = digest([*labels, *some_of(self.inputs), *lesson])
        return json.dumps([recipe, repr(self.method), self.seed, known], sort_keys=True)

    def save(self, path: Path) -> None:
        """Write a checkpoint, whole or not at all."""
        about = {"epoch": str(self.epoch), "seconds": str(self.seconds), "about": self._about}
        write_whole(path, safetensors.torch.save(self._tensors(), about))

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint, if there is one."""
        if not path.exists():
            return
        try:
            with safetensors.safe_open(path, "pt") as file:
                about = file.metadata()
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
            if about["about"] != self._about:
                raise InputError(
                    f"The checkpoint {path} is of another training (method, recipe, seed, data or teacher); name another."
                )
            parts: dict[str, dict[str, Tensor]] = {}
            for key, value in tensors.items():
                part, _, name = key.partition("/")
                parts.setdefault(part, {})[name] = value
            self.model.load_state_dict(parts["model"])
            self.criterion.load_state_dict(parts["criterion"])
            self._load_optimiser(parts["optimiser"])
            self.initial = parts.get("initial", {})
            self.losses, self.weights_seen = tensors["losses"].tolist(), list(tensors["weights"])
            self.epoch, self.seconds = int(about["epoch"]), float(about["seconds"])
        except (SafetensorError, KeyError, RuntimeError, TypeError, OSError) as error:
            raise InputError(f"The checkpoint {path} cannot be used ({error}); delete it to begin anew.") from error

    def _load_optimiser(self, tensors: dict[str, Tensor]) -> None:
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            index, _, name = key.partition("/")
            state.setdefault(int(index), {})[name] = value
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state})


def _in_order(inputs: Inputs, rows: Tensor) -> Tensor:
    order = getattr(inputs, "in_order", None)
    return rows if order is None else order(rows)


def some_of(inputs: Inputs) -> list[Tensor]:
    """Return the tensors of a few rows, by which other inputs are told apart."""
    x = inputs.batch(torch.linspace(0, len(inputs) - 1, min(len(inputs), ROWS_PER_PASS)).long())
    return list(x.values()) if isinstance(x, dict) else [x]


def digest(tensors: Iterable[Tensor]) -> str:
    """Return a hash of tensors."""
    known = hashlib.sha256()
    for tensor in tensors:
        known.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        known.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return known.hexdigest()


class _Logits(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Any) -> Tensor:
        out = self.model(x)
        return getattr(out, "logits", out)


def to_device(x: Any, device: torch.device) -> Any:
    """Move a tensor, or a dictionary of tensors."""
    if isinstance(x, dict):
        return {key: value.to(device) for key, value in x.items()}
    return x.to(device)


def hidden(model: nn.Module, x: Any) -> Tensor:
    """Return the last hidden layer of a model that has ``features``."""
    return model.features(x)  # type: ignore[operator]


@torch.no_grad()
def _in_passes(model: nn.Module, inputs: Inputs, of: Callable[[Any], Tensor], on_step: OnStep | None) -> Tensor:
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    order = _in_order(inputs, torch.arange(len(inputs)))
    parts = []
    for i, rows in enumerate(order.split(ROWS_PER_PASS)):
        parts.append(of(to_device(inputs.batch(rows), device)).float().cpu())
        if on_step is not None:
            on_step(min((i + 1) * ROWS_PER_PASS, len(inputs)), len(inputs))
    model.train(was_training)
    return torch.cat(parts)[order.argsort()]


def logits_of(model: nn.Module, inputs: Inputs, on_step: OnStep | None = None) -> Tensor:
    """Return the logits ``(N, Y)`` of all inputs in evaluation mode."""
    return _in_passes(model, inputs, _Logits(model), on_step)


def features_of(model: nn.Module, inputs: Inputs, on_step: OnStep | None = None) -> Tensor:
    """Return the features of the last hidden layer ``(N, F)`` of all inputs in evaluation mode."""
    if not hasattr(model, "features"):
        raise InputError("The model needs a method features(x) that gives its last hidden layer.")
    return _in_passes(model, inputs, lambda x: hidden(model, x).flatten(1), on_step)
