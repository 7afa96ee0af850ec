"""Independence of features and group as a regulariser."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fairdro.errors import InputError
from fairdro.methods.base import Batch, LogRange, State
from fairdro.methods.regulariser import Regulariser, squared_distances

FEWEST = 4  # samples of a class that the unbiased estimator needs


@dataclass(frozen=True)
class FairHSIC(Regulariser):
    r"""Hilbert-Schmidt independence of features and group within each class (Quadrianto et al., 2019).

    With K and L the kernels of the features and of the groups of the n samples of a class, diagonals set to 0, the unbiased
    estimator of Song et al. (2012) is

    .. math:: HSIC_y = \frac{1}{n (n - 3)} \left[ tr(K L) + \frac{1^T K 1\; 1^T L 1}{(n - 1)(n - 2)}
              - \frac{2}{n - 2} 1^T K L 1 \right]

    and :math:`\lambda \sum_y HSIC_y` is added to the loss. A class with fewer than four samples in the batch adds nothing.
    Batches hold every cell equally; the authors' hold every class equally.

    Parameters
    ----------
    lam : float or sequence of float, default 1
        Strength of the regulariser; several values train as many models.
    kernel : {"gaussian", "polynomial"}, default "gaussian"
        Of rows made to length one: :math:`\exp(-d^2 / (2 \bar{d^2}))` with the mean over the class, or
        :math:`(x^T x')^2` as the authors' code has it for text.
    class_weight : sequence of float, optional
        What errors on every class cost, relative to each other; by default the same.
    objective : {"balanced", "standard"}, default "balanced"
        What plain training counts the same: every cell, or every sample.

    Examples
    --------
    >>> from fairdro.methods import FairHSIC
    >>> FairHSIC.sweep(3).lam  # over the paper's range
    (0.01, 10.0, 10000.0)
    """

    name: ClassVar[str] = "fairhsic"
    search: ClassVar[dict[str, LogRange]] = {"lam": LogRange(1e-2, 1e4)}
    needs_features: ClassVar[bool] = True

    kernel: Literal["gaussian", "polynomial"] = "gaussian"

    def regulariser(self, state: State, batch: Batch) -> Tensor:
        """Return the sum over classes of the dependence."""
        if batch.features is None:
            raise InputError("FairHSIC needs the features of a hidden layer.")
        of_class = torch.nn.functional.one_hot(batch.y, batch.logits.shape[-1]).to(batch.features.dtype)[..., None, :, :]
        membership = batch.membership[..., None, :, :]
        return hsic(self._kernel(batch.features, of_class), self._kernel(membership, of_class), of_class)

    def _kernel(self, rows: Tensor, of_class: Tensor) -> Tensor:
        """Return the kernel ``(*bank, B, B)`` between samples of the same class; 0 elsewhere and on the diagonal."""
        unit = torch.nn.functional.normalize(rows, dim=-1)
        others = of_class @ of_class.mT * (1 - torch.eye(rows.shape[-2]).to(rows))
        if self.kernel == "polynomial":
            return (unit @ unit.mT).square() * others
        distances = squared_distances(unit, unit)
        same = of_class @ of_class.mT
        pairs = of_class.sum(-2, keepdim=True).square().clamp(min=1)
        mean = ((distances.detach() * same).sum(-1, keepdim=True).mT @ of_class) / pairs  # (*bank, 1, Y)
        return (-distances / (2 * mean @ of_class.mT)).exp() * others


def hsic(K: Tensor, L: Tensor, of_class: Tensor) -> Tensor:
    """Sum over classes of the unbiased estimator, for kernels ``(..., B, B)`` and one-hot classes ``(..., B, Y)``."""
    n = of_class.sum(-2).clamp(min=FEWEST)
    k, ell = K.sum(-1, keepdim=True), L.sum(-1, keepdim=True)
    per_row = (K * L).sum(-1, keepdim=True), k, ell, k * ell
    trace, total_k, total_l, cross = ((values.mT @ of_class).squeeze(-2) for values in per_row)
    value = (trace + total_k * total_l / ((n - 1) * (n - 2)) - 2 * cross / (n - 2)) / (n * (n - 3))
    return value.where(of_class.sum(-2) >= FEWEST, 0).sum(-1)
