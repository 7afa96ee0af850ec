"""What a network reads, and passes of a network over it."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fairdro._utils.progress import OnStep
from fairdro.errors import InputError

ROWS_PER_PASS = 256


class Inputs(Protocol):
    """What a network reads: images, texts, rows.

    Inputs may also have ``in_order(rows)``, which returns rows in the order that is cheapest to go through.

    Examples
    --------
    >>> import torch
    >>> class Rows:
    ...     def __init__(self, x):
    ...         self.x = x
    ...     def __len__(self):
    ...         return len(self.x)
    ...     def batch(self, rows, rng=None):
    ...         return self.x[rows]
    >>> inputs = Rows(torch.randn(100, 3))
    >>> len(inputs), inputs.batch(torch.tensor([5, 2])).shape
    (100, torch.Size([2, 3]))
    """

    def __len__(self) -> int: ...

    def batch(self, rows: Tensor, rng: torch.Generator | None = None) -> Any:
        """Return the inputs of some rows, a tensor or a dictionary of tensors; with ``rng``, augmented for training.

        Parameters
        ----------
        rows : Tensor of int64
            Their numbers.
        rng : torch.Generator, optional
            What augmentation is drawn from.
        """


def in_order(inputs: Inputs, rows: Tensor) -> Tensor:
    """Return rows in the order that is cheapest to go through."""
    order = getattr(inputs, "in_order", None)
    return rows if order is None else order(rows)


def some_of(inputs: Inputs) -> list[Tensor]:
    """Return the tensors of a few rows, by which other inputs are told apart."""
    x = inputs.batch(torch.linspace(0, len(inputs) - 1, min(len(inputs), ROWS_PER_PASS)).long())
    return list(x.values()) if isinstance(x, dict) else [x]


def to_device(x: Any, device: torch.device) -> Any:
    """Move a tensor, or a dictionary of tensors."""
    if isinstance(x, dict):
        return {key: value.to(device) for key, value in x.items()}
    return x.to(device)


def hidden(model: nn.Module, x: Any) -> Tensor:
    """Return the last hidden layer of a model that has ``features``."""
    return model.features(x)  # type: ignore[operator]


def logits_in(out: Any) -> Tensor:
    """Return the logits in what a model gives: a tensor, or an object with ``logits``."""
    return getattr(out, "logits", out)


def logits_of(model: nn.Module, inputs: Inputs, on_step: OnStep | None = None) -> Tensor:
    """Return the logits ``(N, Y)`` of all inputs in evaluation mode."""
    return _in_passes(model, inputs, lambda x: logits_in(model(x)), on_step)


def features_of(model: nn.Module, inputs: Inputs, on_step: OnStep | None = None) -> Tensor:
    """Return the features of the last hidden layer ``(N, F)`` of all inputs in evaluation mode."""
    if not hasattr(model, "features"):
        raise InputError("The model needs a method features(x) that gives its last hidden layer.")
    return _in_passes(model, inputs, lambda x: hidden(model, x).flatten(1), on_step)


@torch.no_grad()
def _in_passes(model: nn.Module, inputs: Inputs, of: Callable[[Any], Tensor], on_step: OnStep | None) -> Tensor:
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    order = in_order(inputs, torch.arange(len(inputs)))
    parts = []
    for i, rows in enumerate(order.split(ROWS_PER_PASS)):
        parts.append(of(to_device(inputs.batch(rows), device)).float().cpu())
        if on_step is not None:
            on_step(min((i + 1) * ROWS_PER_PASS, len(inputs)), len(inputs))
    model.train(was_training)
    return torch.cat(parts)[order.argsort()]
