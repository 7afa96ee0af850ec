"""Covariance constraints as a regulariser."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fairdro.methods.base import Batch, LogRange, State
from fairdro.methods.regulariser import Regulariser


@dataclass(frozen=True)
class Cov(Regulariser):
    r"""Covariance of group and misclassified margin (Zafar et al., 2017), for two classes.

    With the margin :math:`d_i` of class 1 and membership :math:`z_i`, for false positives :math:`g_i = \min(0, -d_i)` where
    :math:`y_i = 0`, for false negatives :math:`g_i = \min(0, d_i)` where :math:`y_i = 1`, else 0:

    .. math:: \lambda \sum_{FP, FN} \sum_a \left| \frac{1}{n} \sum_i (z_{i,a} - \bar z_a)\, g_i \right|

    Batches are drawn as the data come: of batches that hold every cell equally, the covariance is another one.

    Parameters
    ----------
    lam : float or sequence of float, default 1
        Strength of the regulariser; several values train as many models.
    class_weight : sequence of float, optional
        What errors on every class cost, relative to each other; by default the same.
    objective : {"balanced", "standard"}, default "balanced"
        What plain training counts the same: every cell, or every sample.

    Examples
    --------
    >>> from fairdro.methods import Cov
    >>> Cov.sweep(3).lam  # over the paper's range
    (0.01, 1.0, 100.0)
    """

    name: ClassVar[str] = "cov"
    search: ClassVar[dict[str, LogRange]] = {"lam": LogRange(1e-2, 1e2)}
    sampling: ClassVar[str] = "uniform"
    max_classes: ClassVar[int | None] = 2

    def regulariser(self, state: State, batch: Batch) -> Tensor:
        """Return the absolute covariances of both kinds of error with the groups."""
        margin = batch.logits[..., 1] - batch.logits[..., 0]
        y = batch.y.unsqueeze(-2)
        centred = batch.membership - batch.membership.mean(-2, keepdim=True)
        size = batch.y.shape[-1]
        false_positive = ((-margin).clamp(max=0) * (y == 0)) @ centred / size
        false_negative = (margin.clamp(max=0) * (y == 1)) @ centred / size
        return false_positive.abs().sum(-1) + false_negative.abs().sum(-1)
