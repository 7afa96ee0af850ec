"""Cross-entropy as boosting needs it: gradients and hessians of the scores, in memory that is used again."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fairdro.cells import Cells
from fairdro.models.trees import Growing
from fairdro.training.trained import most_likely

FLOOR = 1e-6


def n_scores(n_classes: int) -> int:
    """Return the number of scores per row: two classes need one."""
    return 1 if n_classes == 2 else n_classes


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return probabilities ``(N, Y)`` of scores ``(N, Y)``, or of one score ``(N, 1)`` for two classes."""
    given = torch.from_numpy(scores)
    if scores.shape[1] == 1:
        second = given[:, 0].sigmoid()
        return torch.stack([1 - second, second], dim=1).numpy()
    return given.softmax(1).numpy()


def predicted(scores: np.ndarray) -> np.ndarray:
    """Return the most likely class of every row ``(N,)``."""
    return scores[:, 0] > 0 if scores.shape[1] == 1 else most_likely(torch.from_numpy(scores)).numpy()


def class_targets(cells: Cells) -> Tensor:
    """Return the shares of the classes to predict ``(N, Y)``."""
    return functional.one_hot(cells.y, cells.n_classes).float()


def group_targets(cells: Cells) -> Tensor:
    """Return the shares of the groups to predict ``(N, A)``."""
    return cells.membership.float()


def log_loss(scores: np.ndarray, target: Tensor, weight: Tensor | None) -> float:
    """Return the mean cross-entropy of shares ``(N, Y)``."""
    given = torch.from_numpy(scores).float()
    if scores.shape[1] == 1:
        loss = functional.binary_cross_entropy_with_logits(given[:, 0], target[:, 1], reduction="none")
    else:
        loss = functional.cross_entropy(given, target, reduction="none")
    return float(loss.mean() if weight is None else (weight * loss).sum() / weight.sum())


class CrossEntropy:
    """The weighted cross-entropy of shares to predict ``(N, K)``, in single precision as the libraries keep gradients.

    All is kept class by class, and in the same memory every time: both are faster.
    """

    def __init__(self, target: Tensor) -> None:
        self.target = (target if target.shape[1] > 2 else target[:, 1:]).T.contiguous()
        self.p, self.gradient, self.hessian = (torch.empty_like(self.target) for _ in range(3))

    def derivatives(self, scores: Tensor, weight: Tensor | None) -> tuple[np.ndarray, np.ndarray]:
        """Return gradient and hessian ``(N, K)`` at scores ``(K, N)``, one for two classes, by weights ``(N,)``."""
        width = len(scores)
        if width == 1:
            torch.sigmoid(scores, out=self.p)
        else:
            torch.softmax(scores, 0, out=self.p)
        torch.sub(self.p, self.target, out=self.gradient)
        torch.sub(1, self.p, out=self.hessian).mul_(self.p).clamp_(min=FLOOR)
        if width > 1:
            self.hessian *= width / (width - 1)
        if weight is not None:
            self.gradient *= weight
            self.hessian *= weight.abs()
        return self.gradient.T.numpy(), self.hessian.T.numpy()


class Scores:
    """The scores of training rows, copied class by class in single precision ``(K, N)``."""

    def __init__(self, growing: Growing) -> None:
        self.growing = growing
        self.values = torch.from_numpy(growing.scores()).T.float().contiguous()

    def read(self) -> Tensor:
        """Copy them as they are now."""
        return self.values.copy_(torch.from_numpy(self.growing.scores()).T)
