"""The engine for one network of any kind: the paper's algorithm with mini-batches, on one process or many.

Batches, augmentation and dropout of an epoch are drawn from the seed and the number of the epoch alone, and a checkpoint is
written whole after each: a training that was killed and resumes ends with the weights of one that was not.
"""

import math
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from fairdro._utils.hashing import digest
from fairdro._utils.progress import OnStep
from fairdro._utils.seeding import generator, number
from fairdro.cells import Cells
from fairdro.errors import InputError, unknown_name
from fairdro.methods import Method
from fairdro.training.checkpoint import Checkpoint, Parts
from fairdro.training.criterion import FairLoss
from fairdro.training.inputs import ROWS_PER_PASS, Inputs, hidden, in_order, logits_in, logits_of, some_of, to_device
from fairdro.training.processes import rank, world
from fairdro.training.sampling import draw_epoch
from fairdro.training.trained import DIVERGED_LOSS, Trained, most_likely

Schedule = Literal["cosine", "linear"]
SCHEDULES = list(get_args(Schedule))
Precision = Literal["float32", "bfloat16"]
PRECISIONS = list(get_args(Precision))


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Parameters
    ----------
    epochs, batch_size : int
        Passes over the training samples, and how many samples a batch has.
    lr, weight_decay : float
        Of AdamW.
    schedule : {"cosine", "linear"}
        Cosine falls from epoch to epoch; linear rises over the share ``warm_up`` of all batches and falls over the rest.
    warm_up : float
        That share.
    clip : float, optional
        Largest norm of the gradient.
    update_every : int, optional
        Batches between two updates of the method, counted over all epochs; by default, and at most, an epoch.
    exact : bool
        Whether an update takes the errors of a pass over all training samples in evaluation mode, or
        those collected while training, which costs nothing.
    precision : {"float32", "bfloat16"}, optional
        Of the network's matrix products and convolutions; its weights and the loss stay in single precision. By default
        ``bfloat16`` on a GPU and ``float32`` elsewhere; CPUs gain by ``bfloat16`` only if they have instructions for it.

    Examples
    --------
    >>> from fairdro.training.network import Recipe
    >>> recipe = Recipe(epochs=10, schedule="linear", warm_up=0.1)
    >>> [round(recipe.lr_factor(epoch, batch=50, batches=100), 2) for epoch in (0, 1, 5)]
    [0.5, 0.94, 0.5]
    """

    epochs: int = 70
    batch_size: int = 128
    lr: float = 1e-3
    weight_decay: float = 1e-3
    schedule: Schedule = "cosine"
    warm_up: float = 0.0
    clip: float | None = None
    update_every: int | None = None
    exact: bool = True
    precision: Precision | None = None

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise unknown_name("schedule", self.schedule, SCHEDULES)
        if self.precision is not None and self.precision not in PRECISIONS:
            raise unknown_name("precision", self.precision, PRECISIONS)
        if self.epochs < 1 or self.batch_size < 1 or (self.update_every is not None and self.update_every < 1):
            raise InputError("epochs, batch_size and update_every must be positive whole numbers.")
        if not self.lr > 0 or not self.weight_decay >= 0 or not 0 <= self.warm_up < 1:
            raise InputError("lr must be positive, weight_decay not negative, and warm_up a share below 1.")

    def lr_factor(self, epoch: int, batch: int, batches: int) -> float:
        """Return what the step size is multiplied by.

        Parameters
        ----------
        epoch, batch : int
            Which one is next, from 0.
        batches : int
            How many an epoch has.
        """
        if self.schedule == "cosine":
            return (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        progress = (epoch * batches + batch) / (self.epochs * batches)
        return progress / self.warm_up if progress < self.warm_up else (1 - progress) / (1 - self.warm_up)


@dataclass(frozen=True, kw_only=True)
class TrainedNetwork(Trained):
    """A trained network: one seed, one point of a method; the seconds are those of all parts, where it was resumed.

    Attributes
    ----------
    model : nn.Module
    criterion : FairLoss
        With what the method remembers.
    losses : list of float
        Mean loss of every epoch.
    """

    model: nn.Module
    criterion: FairLoss
    losses: list[float]

    def predict(self, X: Inputs) -> Tensor:
        """Return class codes ``(1, 1, N)``."""
        return most_likely(logits_of(self.model, X))[None, None]


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
        return logits_in(self.model(x)), None


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
        What it reads, see :class:`~fairdro.training.inputs.Inputs`.
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
        File to write after every epoch, and to resume from if it is there.
    on_step : callable, optional
        Called after every batch with the number of finished batches and of all.

    Returns
    -------
    TrainedNetwork
        With the ``model``, the ``weights`` of cells, the mean ``losses`` of the epochs, and ``predict(inputs)``, which gives
        class codes ``(1, 1, N)``.

    Examples
    --------
    >>> import torch
    >>> from fairdro.cells import Cells
    >>> from fairdro.methods import FairDRO
    >>> from fairdro.training.network import Recipe, train_network
    >>> class Rows:
    ...     def __init__(self, x):
    ...         self.x = x
    ...     def __len__(self):
    ...         return len(self.x)
    ...     def batch(self, rows, rng=None):
    ...         return self.x[rows]
    >>> _ = torch.manual_seed(0)
    >>> x, y, group = torch.randn(200, 3), torch.arange(200) % 2, torch.arange(200) // 2 % 2
    >>> x[:, 0] += 2 * y - group
    >>> cells = Cells(y, group, n_classes=2, n_groups=2)
    >>> trained = train_network(torch.nn.Linear(3, 2), Rows(x), cells, FairDRO(rho=1.0), Recipe(epochs=5), device="cpu")
    >>> trained.predict(Rows(x)).shape, trained.weights.shape
    (torch.Size([1, 1, 200]), torch.Size([1, 1, 2, 2]))
    """
    recipe = Recipe() if recipe is None else recipe
    if len(inputs) != len(cells):
        raise InputError(f"There are {len(inputs)} inputs but {len(cells)} labels.")
    if (method.teacher() is None) != (teacher is None):
        wanted = "learns from a teacher; pass one" if teacher is None else "learns from no teacher"
        raise InputError(f"{method.name} {wanted}.")
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    trainer = _Trainer(model, inputs, cells, method, recipe, seed, teacher, place)
    saved = None if checkpoint is None else Checkpoint(checkpoint, trainer.fingerprint())
    if saved is not None:
        saved.resume(trainer.restore)
    while trainer.epoch < trainer.epochs and not trainer.diverged:
        trainer.train_epoch(on_step)
        if saved is not None and rank() == 0:
            saved.save(trainer.parts())
    results = trainer.criterion.controller.results() | {"losses": trainer.losses, "seconds": trainer.seconds}
    diverged = torch.tensor([[trainer.diverged]])
    return TrainedNetwork(model=model, criterion=trainer.criterion, diverged=diverged, **results)


@dataclass
class _Trainer:
    """One training: what changes from epoch to epoch, and how."""

    model: nn.Module
    inputs: Inputs
    cells: Cells
    method: Method
    recipe: Recipe
    seed: int
    teacher: nn.Module | None
    device: torch.device

    def __post_init__(self) -> None:
        method, recipe, cells = self.method, self.recipe, self.cells
        self.model.to(self.device)
        if self.teacher is not None:
            self.teacher.to(self.device).eval()
        self.outputs: nn.Module = _Outputs(self.model, with_features=method.needs_features)
        if world() > 1:
            if self.device.type == "cuda":
                nn.SyncBatchNorm.convert_sync_batchnorm(self.model)
            self.outputs = nn.parallel.DistributedDataParallel(self.outputs)
        self.optimiser = self._new_optimiser()
        n_classes, n_groups = cells.counts.shape
        self.batches = max(len(cells) // recipe.batch_size, 1)
        self.update_every = min(recipe.update_every or self.batches, self.batches)
        self.epochs = recipe.epochs * method.rounds
        updates = max(recipe.epochs * self.batches // self.update_every, 1)
        self.criterion = FairLoss(method, n_classes=n_classes, n_groups=n_groups, total_steps=updates, counts=cells.counts)
        self.criterion.to(self.device)
        self.criterion.controller.records = True
        self.initial = {key: value.clone() for key, value in self.model.state_dict().items()} if method.restart else {}
        self.losses: list[float] = []
        self.seconds = 0.0

    @property
    def epoch(self) -> int:
        """Number of finished epochs."""
        return len(self.losses)

    @property
    def diverged(self) -> bool:
        """Whether the loss left the finite numbers."""
        return len(self.losses) > 0 and not math.isfinite(self.losses[-1])

    def _new_optimiser(self) -> torch.optim.Optimizer:
        decay, groups = self.recipe.weight_decay, getattr(self.model, "parameter_groups", None)
        parameters = self.model.parameters() if groups is None else groups(decay)
        return torch.optim.AdamW(parameters, lr=self.recipe.lr, weight_decay=decay)

    def train_epoch(self, on_step: OnStep | None) -> None:
        """Train on the batches of the next epoch, and let the method respond."""
        start = time.perf_counter()
        epoch, in_round = self.epoch, self.epoch % self.recipe.epochs
        if in_round == 0 and epoch > 0:
            self._next_round()
        rng = generator(self.seed, f"epoch/{epoch}")
        torch.manual_seed(number(self.seed, f"dropout/{epoch}/{rank()}"))
        rows = draw_epoch(self.cells, self.recipe.batch_size, self.method.sampling, rng)[:, rank() :: world()]
        augmenting = generator(self.seed, f"augment/{epoch}/{rank()}")
        self.model.train()
        total = 0.0
        for i, batch in enumerate(rows):
            for group in self.optimiser.param_groups:
                group["lr"] = self.recipe.lr * self.recipe.lr_factor(in_round, i, len(rows))
            total += self._train_batch(batch, augmenting)
            if (in_round * len(rows) + i + 1) % self.update_every == 0:
                self._update()
            if on_step is not None:
                on_step(epoch * len(rows) + i + 1, self.epochs * len(rows))
        self.losses.append(total / len(rows))
        self.seconds += time.perf_counter() - start
        self._warn_if_diverging()

    def _train_batch(self, rows: Tensor, rng: torch.Generator) -> float:
        x, y, a = self._take(rows, rng)
        with self._mixed_precision():
            logits, features = self.outputs(x)
            with torch.no_grad():
                teacher_features = None if self.teacher is None else hidden(self.teacher, x)
        loss = self.criterion(logits, y, a, features=features, teacher=teacher_features)
        self.optimiser.zero_grad()
        loss.backward()
        if self.recipe.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        self.optimiser.step()
        return float(loss.detach())

    def _mixed_precision(self) -> torch.autocast:
        precision = self.recipe.precision or ("bfloat16" if self.device.type == "cuda" else "float32")
        return torch.autocast(self.device.type, enabled=precision == "bfloat16", dtype=torch.bfloat16)

    def _take(self, rows: Tensor, rng: torch.Generator | None) -> tuple[Any, Tensor, Tensor]:
        x = self.inputs.batch(rows, rng)
        return to_device(x, self.device), self.cells.y[rows].to(self.device), self.cells.groups[rows].to(self.device)

    def _update(self) -> None:
        if not (self.recipe.exact and self.method.adaptive):
            self.criterion.step()
            return
        own = in_order(self.inputs, torch.arange(len(self.cells))[rank() :: world()])
        with self._mixed_precision():
            self.criterion.step(self.model, (self._take(rows, None) for rows in own.split(ROWS_PER_PASS)))

    def _next_round(self) -> None:
        self.criterion.next_round()
        self.optimiser = self._new_optimiser()
        if self.method.restart:
            self.model.load_state_dict(self.initial)

    def _warn_if_diverging(self) -> None:
        """Warn early of a loss that grows beyond all bounds, upwards or, with negative weights, downwards."""
        last = self.losses[-1]
        if self.diverged or abs(last) > DIVERGED_LOSS * math.log(self.cells.n_classes):
            signed = float(self.criterion.weights.min()) < 0
            smaller = "radius, as negative weights can cause this, or lr" if signed else "lr"
            told = f"The loss of epoch {self.epoch} is {last:.3g}; use a smaller {smaller}."
            warnings.warn(told, RuntimeWarning, stacklevel=4)

    def fingerprint(self) -> str:
        """Return a hash of all that a checkpoint must agree with."""
        teacher = [] if self.teacher is None else self.teacher.state_dict().values()
        settings = [asdict(self.recipe), repr(self.method), self.seed]
        return digest(settings, self.cells.y, self.cells.groups, *some_of(self.inputs), *teacher)

    def parts(self) -> Parts:
        """Return all that changes from epoch to epoch."""
        optimiser = self.optimiser.state_dict()["state"]
        return {
            "model": self.model.state_dict(),
            "initial": self.initial,
            "criterion": self.criterion.state_dict(),
            "optimiser": {f"{i}/{key}": torch.as_tensor(v) for i, state in optimiser.items() for key, v in state.items()},
            "history": vars(self.criterion.controller.history),
            "progress": {name: torch.tensor(getattr(self, name), dtype=torch.float64) for name in ("losses", "seconds")},
        }

    def restore(self, parts: Parts) -> None:
        """Take over what :meth:`parts` gave."""
        self.model.load_state_dict(parts["model"])
        self.initial = parts.get("initial", {})
        self.criterion.load_state_dict(parts["criterion"])
        self.criterion.controller.seen = list(zip(parts["history"]["weights"], parts["history"]["accuracy"], strict=True))
        optimiser: dict[int, dict[str, Tensor]] = {}
        for key, value in parts["optimiser"].items():
            index, _, name = key.partition("/")
            optimiser.setdefault(int(index), {})[name] = value
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": optimiser})
        self.losses, self.seconds = parts["progress"]["losses"].tolist(), float(parts["progress"]["seconds"])
