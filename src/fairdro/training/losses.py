"""Cross-entropy in the full-batch solver, for rows that are all of one class, with its gradient written out.

Logits are ``(n, outputs * models)``, values ``(n, models)``; ties go to the lower class.
"""

import torch
from torch import Tensor


class BinaryLoss:
    """Two classes need one logit, the difference."""

    outputs = 1

    def wrong(self, logits: Tensor, y: int) -> Tensor:
        """Return the 0-1 error."""
        compare = torch.le if y else torch.gt
        return compare(logits, 0, out=torch.empty_like(logits))

    def value(self, logits: Tensor, y: int) -> Tensor:
        """Return the cross-entropy."""
        return torch.nn.functional.softplus(-logits if y else logits)

    def gradient(self, logits: Tensor, y: int) -> Tensor:
        """Return the gradient."""
        return logits.sigmoid().sub_(y)

    def class_logits(self, W: Tensor) -> Tensor:
        """Give each class half of the difference."""
        return torch.cat([-W / 2, W / 2], dim=-2)


class MulticlassLoss:
    """A logit per class, those of all models side by side."""

    def __init__(self, n_classes: int) -> None:
        self.outputs = n_classes

    def wrong(self, logits: Tensor, y: int) -> Tensor:
        """Return the 0-1 error."""
        of_class = self._by_class(logits)
        own = of_class[:, y : y + 1]
        lost = torch.cat([of_class[:, :y] >= own, of_class[:, y + 1 :] > own], dim=1)
        return lost.any(1).to(logits.dtype)

    def value(self, logits: Tensor, y: int) -> Tensor:
        """Return the cross-entropy."""
        return -self._by_class(logits).log_softmax(1)[:, y]

    def gradient(self, logits: Tensor, y: int) -> Tensor:
        """Return the gradient."""
        gradient = self._by_class(logits).softmax(1)
        gradient[:, y] -= 1
        return gradient.flatten(1)

    def class_logits(self, W: Tensor) -> Tensor:
        """Return the parameters as they are."""
        return W

    def _by_class(self, logits: Tensor) -> Tensor:
        return logits.unflatten(-1, (self.outputs, -1))


ClassLoss = BinaryLoss | MulticlassLoss
