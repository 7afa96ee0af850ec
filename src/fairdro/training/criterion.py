"""Every method as a loss of one network."""

import inspect
import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from fairdro.cells import Cells
from fairdro.errors import InputError, unknown_name
from fairdro.methods import Batch, CellMeans, Method, Task
from fairdro.training.controller import Controller
from fairdro.training.inputs import logits_in
from fairdro.training.minibatch import see, weighted_loss
from fairdro.training.processes import added_up, gathered, world

Averaging = Literal["batch", "counts"]
PASSES_WITHOUT_STEP, BATCHES_WITHOUT_STEP = 3, 20_000  # beyond, a forgotten step() is likely


class FairLoss(nn.Module):
    r"""Any method as a loss: the cells weighted as it says, and its penalty.

    .. math:: \frac{1}{|Y|} \sum_{y,a} w_{y,a} \bar\ell_{y,a} + \text{penalty}

    with the mean cross-entropy :math:`\bar\ell_{y,a}` of a cell in the batch. In training mode the errors are collected per
    cell as batches go by, so that :meth:`step` needs no second pass over the data. All that the method remembers is in
    buffers: a checkpoint that holds the loss's ``state_dict`` resumes exactly. Under ``torch.distributed`` the statistics
    are those of all processes, and the loss is that of the whole batch; for a method with a penalty, or one that observes
    every batch, all processes need batches of the same size.

    Parameters
    ----------
    method : Method
        One point, e.g. ``LBC(eta=1.0)``.
    n_classes, n_groups : int
        Their numbers; ``y`` and ``group`` are codes below them.
    total_steps : int
        How often :meth:`step` will be called, e.g. the number of epochs.
    counts : Tensor of shape (Y, A), optional
        Training samples per cell, by which some methods weight; without them all cells count as equally large.
    averaging : {"batch", "counts"}, default "batch"
        What the losses of a cell are divided by: the samples that it has in the batch, so that :math:`\bar\ell` is a mean;
        or those that it has in a batch of this size on average, by the counts. With ``counts`` the loss is a mean over
        samples, and gradients that are accumulated over micro-batches are those of the whole batch; with ``batch`` they
        are not.

    Attributes
    ----------
    controller : Controller
        What the method remembers, and how often it was updated.

    See Also
    --------
    FairDROLoss : FairDRO with parameters of its own.

    Examples
    --------
    >>> import torch
    >>> from fairdro import FairLoss
    >>> from fairdro.methods import GroupDRO
    >>> _ = torch.manual_seed(0)
    >>> x, y, group = torch.randn(64, 5), torch.randint(0, 2, (64,)), torch.randint(0, 2, (64,))
    >>> model = torch.nn.Linear(5, 2)
    >>> criterion = FairLoss(GroupDRO(), n_classes=2, n_groups=2, total_steps=3)
    >>> optimiser = torch.optim.SGD([*model.parameters()], lr=0.1)
    >>> for epoch in range(3):
    ...     optimiser.zero_grad()
    ...     criterion(model(x), y, group).backward()
    ...     optimiser.step()
    ...     criterion.step()  # after every epoch
    >>> criterion.weights.shape
    torch.Size([2, 2])
    """

    seen: Tensor
    sums: Tensor
    means: Tensor
    batches: int = 0

    def __init__(
        self,
        method: Method,
        *,
        n_classes: int,
        n_groups: int,
        total_steps: int,
        counts: Tensor | None = None,
        averaging: Averaging = "batch",
    ) -> None:
        super().__init__()
        for name, number in {"n_classes": n_classes, "n_groups": n_groups, "total_steps": total_steps}.items():
            if not isinstance(number, int | np.integer) or isinstance(number, bool) or not 1 <= number < 2**31:
                raise InputError(f"{name} must be a positive whole number, got {number!r}.")
        if method.points > 1:
            raise InputError("A loss is for one model: give every hyperparameter one value.")
        if averaging not in get_args(Averaging):
            raise unknown_name("averaging", averaging, list(get_args(Averaging)))
        if averaging == "counts" and counts is None:
            raise InputError("averaging='counts' needs counts: the training samples of every class and group.")
        self.has_counts, self.averaging = counts is not None, averaging
        counts = _checked_counts(counts, n_classes, n_groups)
        self.method, self.n_classes, self.n_groups = method, n_classes, n_groups
        self._told: set[str] = set()
        self.controller = Controller(method, Task(counts.double(), (1, 1)), total_steps)
        self.controller.records = False  # a loop of one's own may be long
        statistics = 1 + method.needs_loss + method.needs_probabilities * n_classes  # the error, and what else is read
        self.register_buffer("seen", torch.zeros(n_classes, n_groups, 1, dtype=torch.float64))
        self.register_buffer("sums", torch.zeros(n_classes, n_groups, statistics, dtype=torch.float64))
        self.register_buffer("means", torch.full_like(self.sums, torch.nan))

    @property
    def weights(self) -> Tensor:
        """The method's weights of the cells ``(Y, A)``; for FairDRO, q."""
        return self.controller.weights[0, 0]

    def forward(
        self, logits: Tensor, y: Tensor, a: Tensor, *, features: Tensor | None = None, teacher: Tensor | None = None
    ) -> Tensor:
        """Return the loss of a batch.

        Parameters
        ----------
        logits : Tensor of shape (B, Y)
        y : Tensor of int64, shape (B,)
        a : Tensor
            Group codes ``(B,)``, or shares ``(B, A)`` in floating point.
        features, teacher : Tensor of shape (B, ...), optional
            A hidden layer of the model, and of its teacher, for methods that read them (FairHSIC, MFD).
        """
        with torch.autocast(logits.device.type, enabled=False):
            batch = self._see(_precise(logits), y, a, features, teacher)
            if self.method.observes_batches():
                self.controller.observe(_on_cpu(batch))
            loss = weighted_loss(batch, self.controller.weights)
            if self.method.has_penalty():
                loss = loss + self.method.penalty(self.controller.state, batch).sum()
            if self._gathers:
                loss = loss + (world() - 1) * (loss - loss.detach())  # each process has the gradient of its own rows only
            return loss

    def _see(self, logits: Tensor, y: Tensor, a: Tensor, features: Tensor | None, teacher: Tensor | None) -> Batch:
        """Gather what the method may know of a batch, and collect its statistics."""
        self._check(logits, y, a)
        cells = Cells(y, a, n_classes=self.n_classes, n_groups=self.n_groups)
        if self.training and logits.requires_grad and self._sound(logits.detach()):  # a validation loss teaches nothing
            self._collect(logits.detach(), cells)
            self._watch(logits.detach())
        hidden = [None if part is None else _precise(part).flatten(1) for part in (features, teacher)]
        if self._gathers:
            self._check_sizes(len(y))
            logits, y, a = gathered(logits), gathered(y), gathered(a)
            hidden = [None if part is None else gathered(part) for part in hidden]
            cells = Cells(y, a, n_classes=self.n_classes, n_groups=self.n_groups)
        indicator = cells.indicator.to(logits.dtype)
        in_all_batches = indicator.sum(0)
        if not self._gathers:
            in_all_batches = added_up(in_all_batches) / world()  # the mean over processes is that of the whole batch
        if self.averaging == "counts":
            counts = self.controller.counts.flatten().to(indicator)
            in_all_batches = in_all_batches.sum() * counts / counts.sum()
        averaging = indicator / in_all_batches.clamp(min=1e-12)
        of_model, of_teacher = (None if part is None else part[None, None] for part in hidden)
        membership = cells.membership.to(logits.dtype)[None]
        return see(logits[None, None], y[None], membership, averaging[None], features=of_model, teacher=of_teacher)

    @property
    def _gathers(self) -> bool:
        """Whether every process must see the batches of all: a penalty is no sum over samples."""
        return world() > 1 and (self.method.has_penalty() or self.method.observes_batches())

    def _check(self, logits: Tensor, y: Tensor, a: Tensor) -> None:
        """Refuse what cannot be a batch; values only where looking costs nothing."""
        if not all(isinstance(part, Tensor) for part in (logits, y, a)):
            raise InputError("logits, y and a must be tensors; make them by torch.as_tensor.")
        if logits.dim() != 2 or logits.shape[1] != self.n_classes:
            raise InputError(f"logits must have a column per class ({self.n_classes}), got shape {tuple(logits.shape)}.")
        n = len(logits)
        if y.shape != (n,) or y.dtype != torch.int64:
            raise InputError(f"y must hold {n} class codes of type int64, got {y.dtype} of shape {tuple(y.shape)}.")
        codes, shares = a.shape == (n,) and a.dtype == torch.int64, a.shape == (n, self.n_groups) and a.is_floating_point()
        if not codes and not shares:
            raise InputError(
                f"a must hold {n} group codes of type int64, or shares in floating point of shape ({n}, {self.n_groups}); "
                f"got {a.dtype} of shape {tuple(a.shape)}."
            )
        if y.device.type != "cpu" or n == 0:
            return
        if y.min() < 0 or y.max() >= self.n_classes or (codes and (a.min() < 0 or a.max() >= self.n_groups)):
            raise InputError(f"y and a must be codes below {self.n_classes} and {self.n_groups}.")
        if shares and not (bool((a >= 0).all()) and torch.allclose(a.float().sum(-1), torch.ones(n), atol=1e-3)):
            raise InputError("The shares of every row of a must sum to one, and none may be negative.")

    def _sound(self, logits: Tensor) -> bool:
        """Whether a batch can teach the weights anything; on a GPU, looking would make it wait."""
        sound = logits.device.type != "cpu" or bool(logits.isfinite().all())
        if not sound:
            self._tell("Logits are not finite: the network diverged. Such batches do not count for the weights.")
        return sound

    def _watch(self, logits: Tensor) -> None:
        """Say once what a training loop probably forgot."""
        self.batches += 1
        if self.batches == 1 and logits.device.type == "cpu" and len(logits) > 1:
            total = logits.sum(-1)
            if bool(((logits > 0) & (logits < 1)).all()) and torch.allclose(total, torch.ones_like(total), atol=1e-4):
                self._tell("The first batch looks like probabilities: all rows sum to one. Pass logits, without softmax.")
        passes = float(self.seen.sum() / self.controller.counts.sum()) if self.has_counts else 0.0
        if passes > PASSES_WITHOUT_STEP or self.batches > BATCHES_WITHOUT_STEP:
            self._tell("The loss has seen many batches without step(), by which weights respond; call it after every epoch.")

    def _tell(self, sentence: str) -> None:
        """Say something once to whoever wrote the loop; an engine of ours, which records, speaks for itself."""
        if sentence not in self._told and not self.controller.records:
            self._told.add(sentence)
            warnings.warn(sentence, UserWarning, stacklevel=_outside())

    def _check_sizes(self, n: int) -> None:
        most = torch.tensor([n, -n], device=self.seen.device)
        torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
        if int(most[0]) != -int(most[1]):
            raise InputError(
                f"{self.method.name} needs batches of the same size on all processes; drop the last one, or choose a size "
                f"that {world()} divides."
            )

    @torch.no_grad()
    def _collect(self, logits: Tensor, cells: Cells) -> None:
        statistics = [(logits.argmax(-1) != cells.y).double()[:, None]]
        if self.method.needs_loss:
            statistics.append(nn.functional.cross_entropy(logits, cells.y, reduction="none").double()[:, None])
        if self.method.needs_probabilities:
            statistics.append(logits.softmax(-1).double())
        indicator = cells.indicator.double()
        self.sums.add_((indicator.T @ torch.cat(statistics, dim=1)).view_as(self.sums))
        self.seen.add_(indicator.sum(0).view_as(self.seen))

    @torch.no_grad()
    def step(self, model: nn.Module | None = None, batches: Iterable[tuple[Any, Tensor, Tensor]] = ()) -> None:
        """Let the method respond to the errors, after every epoch or every so many batches.

        Parameters
        ----------
        model, batches : optional
            The exact way, and the paper's: the errors of a pass over all training batches of ``(x, y, a)`` in evaluation
            mode, instead of those collected while training. Under ``torch.distributed`` each process passes its share.
        """
        if model is not None:
            self._measure(model, batches)
        if float(added_up(self.seen).sum()) == 0:
            self._tell(
                "step() was called, but no batch was seen since the last one: the weights respond to the same errors."
            )
        if int(self.controller.updates) >= self.controller.steps_per_round:
            self._tell(
                f"step() was called more often than total_steps = {self.controller.steps_per_round}: the weights hardly "
                "move any more. Pass the number of all steps."
            )
        self.batches = 0
        self._take_means()
        self.controller.update(self._means)

    def next_round(self) -> None:
        """Begin the next training of a method with several (LBC, EGR), after the last :meth:`step` of this one."""
        self.controller.next_round(self._means)

    def _measure(self, model: nn.Module, batches: Iterable[tuple[Any, Tensor, Tensor]]) -> None:
        """Replace what was collected by the statistics of a pass in evaluation mode."""
        self._forget()
        was_training = model.training
        model.eval()
        for x, y, a in batches:
            self._collect(_precise(logits_in(model(x))), Cells(y, a, n_classes=self.n_classes, n_groups=self.n_groups))
        model.train(was_training)

    def _take_means(self) -> None:
        """Take the means of what was collected, and start collecting anew; a cell that was not seen keeps its last mean."""
        seen = added_up(self.seen)
        self.means.copy_((added_up(self.sums) / seen).where(seen > 0, self.means))
        self._forget()

    @property
    def _means(self) -> CellMeans:
        """The last means; a cell with samples, none of them seen so far, takes that of its class, a class that of all."""
        means, empty = self.means.cpu(), (self.controller.counts == 0).cpu()[..., None]
        of_class = means.nanmean(1, keepdim=True)
        of_class = of_class.where(~of_class.isnan(), means.nanmean((0, 1), keepdim=True).nan_to_num(0)).expand_as(means)
        filled = means.where(~means.isnan() | empty, of_class)[None, None]
        loss = filled[..., 1] if self.method.needs_loss else None
        probabilities = filled[..., -self.n_classes :] if self.method.needs_probabilities else None
        return CellMeans(filled[..., 0], loss, probabilities)

    def _forget(self) -> None:
        self.seen.zero_()
        self.sums.zero_()

    def extra_repr(self) -> str:
        """Show the method."""
        return f"{self.method}, total_steps={self.controller.steps_per_round}, averaging={self.averaging!r}"


def _checked_counts(counts: Any, n_classes: int, n_groups: int) -> Tensor:
    """Return the samples per cell, or say what is wrong with them; ones where they are not given."""
    if counts is None:
        return torch.ones(n_classes, n_groups)
    try:
        counts = torch.as_tensor(counts)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"counts must hold numbers: {error}.") from error
    if counts.shape != (n_classes, n_groups):
        raise InputError(f"counts must have a row per class and a column per group, got shape {tuple(counts.shape)}.")
    if not bool(counts.isfinite().all()) or bool((counts < 0).any()) or int((counts.sum(1) > 0).sum()) < min(2, n_classes):
        raise InputError("counts must be numbers of samples: none negative or missing, and two classes at least with some.")
    return counts


def _outside() -> int:
    """Return how many frames lie between a warning and the first that is neither ours nor PyTorch's."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in {"fairdro", "torch"}:
        level, frame = level + 1, frame.f_back
    return level


def _precise(values: Tensor) -> Tensor:
    """Return values in single precision at least."""
    return values if values.dtype == torch.float64 else values.float()


def _on_cpu(batch: Batch) -> Batch:
    return replace(batch, **{key: value.cpu() for key, value in vars(batch).items() if value is not None})
