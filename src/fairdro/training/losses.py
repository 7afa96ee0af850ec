"""Losses of the full-batch solver, for rows that are all of one class, with their slopes written out."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

__all__ = ["INNER_LOSSES", "BinaryLoss", "InnerLoss", "MulticlassLoss"]

INNER_LOSSES = ["cross_entropy", "smoothed_error"]
WARM_START = 1 / 3
LAST_TEMPERATURE = 0.15


def temperature(inner: str, progress: float) -> float | None:
    """Temperature of the smoothed error, falling from 1; None while the loss is cross-entropy."""
    if inner == "cross_entropy" or progress < WARM_START:
        return None
    return float(LAST_TEMPERATURE ** ((progress - WARM_START) / (1 - WARM_START)))


class InnerLoss(Protocol):
    """A loss of logits ``(n, outputs * models)`` of rows of class y; values are ``(n, models)``."""

    outputs: int

    def wrong(self, logits: Tensor, y: int) -> Tensor:
        """Return the 0-1 error; ties go to the lower class."""
        ...

    def cross_entropy(self, logits: Tensor, y: int) -> Tensor:
        """Return the cross-entropy."""
        ...

    def signal_and_slope(self, logits: Tensor, y: int, wrong: Tensor, progress: float) -> tuple[Tensor, Tensor]:
        """Return what the weights respond to (``wrong`` itself with cross-entropy), and the loss's slope by the logits."""
        ...

    def class_logits(self, W: Tensor) -> Tensor:
        """Turn parameters ``(..., outputs, models)`` into those of a logit per class ``(..., Y, models)``."""
        ...


class BinaryLoss:
    """Two classes need one logit, the difference."""

    outputs = 1

    def __init__(self, inner: str) -> None:
        self.inner = inner

    def wrong(self, logits: Tensor, y: int) -> Tensor:
        """Return the 0-1 error."""
        compare = torch.le if y else torch.gt
        return compare(logits, 0, out=torch.empty_like(logits))

    def cross_entropy(self, logits: Tensor, y: int) -> Tensor:
        """Return the cross-entropy."""
        return torch.nn.functional.softplus(-logits if y else logits)

    def signal_and_slope(self, logits: Tensor, y: int, wrong: Tensor, progress: float) -> tuple[Tensor, Tensor]:
        """Return the signal and the slope."""
        heat = temperature(self.inner, progress)
        if heat is None:
            return wrong, logits.sigmoid().sub_(y)
        steepness = (1 - 2 * y) / heat
        error = (logits * steepness).sigmoid()
        return error, error * (1 - error) * steepness

    def class_logits(self, W: Tensor) -> Tensor:
        """Give each class half of the difference."""
        return torch.cat([-W / 2, W / 2], dim=-2)


class MulticlassLoss:
    """A logit per class, those of all models side by side."""

    def __init__(self, inner: str, n_classes: int) -> None:
        self.inner = inner
        self.outputs = n_classes

    def wrong(self, logits: Tensor, y: int) -> Tensor:
        """Return the 0-1 error."""
        of_class = self._by_class(logits)
        own = of_class[:, y : y + 1]
        lost = torch.cat([of_class[:, :y] >= own, of_class[:, y + 1 :] > own], dim=1)
        return lost.any(1).to(logits.dtype)

    def cross_entropy(self, logits: Tensor, y: int) -> Tensor:
        """Return the cross-entropy."""
        return -self._by_class(logits).log_softmax(1)[:, y]

    def signal_and_slope(self, logits: Tensor, y: int, wrong: Tensor, progress: float) -> tuple[Tensor, Tensor]:
        """Return the signal and the slope; the smoothed error's margin is that to the strongest other class."""
        of_class = self._by_class(logits)
        heat = temperature(self.inner, progress)
        if heat is None:
            slope = of_class.softmax(1)
            slope[:, y] -= 1
            return wrong, slope.flatten(1)
        others = of_class.clone()
        others[:, y] = -torch.inf
        rival_logit, rival = others.max(1, keepdim=True)
        error = ((rival_logit[:, 0] - of_class[:, y]) / heat).sigmoid()
        steepness = error * (1 - error) / heat
        slope = torch.zeros_like(of_class).scatter_(1, rival, steepness[:, None])
        slope[:, y] = -steepness
        return error, slope.flatten(1)

    def class_logits(self, W: Tensor) -> Tensor:
        """Return the parameters as they are."""
        return W

    def _by_class(self, logits: Tensor) -> Tensor:
        return logits.unflatten(-1, (self.outputs, -1))
