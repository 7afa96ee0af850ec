"""FairDRO's component ablations that regularise directly instead of by weights."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fairdro.methods.base import Batch, LogRange, Scalars, State, Variant
from fairdro.methods.regulariser import Regulariser
from fairdro.methods.scratch import Scratch

ROOT_FLOOR = 1e-12  # keeps the gradient of the root finite where groups are equal


@dataclass(frozen=True)
class RVP(Scratch):
    r"""Risk variance penalisation within each class (Xie et al., 2020): Lemma 1's objective itself, on cross-entropy.

    .. math:: L_{bal} + \frac{1}{|Y|} \sum_y \sqrt{\rho\, Var_a(L_{y,a})}

    Parameters
    ----------
    rho : float or sequence of float, default 1
        Strength of the penalty.
    class_weight : sequence of float, optional
        What errors on every class cost, relative to each other; by default the same.
    objective : {"balanced", "standard"}, default "balanced"
        What plain training counts the same: every cell, or every sample.

    Examples
    --------
    >>> from fairdro.methods import RVP
    >>> RVP.sweep(3).rho  # over the paper's range
    (0.01, 1.0, 100.0)
    """

    name: ClassVar[str] = "rvp"
    takes_unknown_group: ClassVar[bool] = False
    search: ClassVar[dict[str, LogRange]] = {"rho": LogRange(1e-2, 1e2)}

    rho: Scalars = 1.0

    def penalty(self, state: State, batch: Batch) -> Tensor:
        """Return the mean over classes of the root of rho times the variance over the groups that are there."""
        means, present = batch.means(batch.losses), batch.present
        number = present.sum(-1).clamp(min=1)
        centre = (means * present).sum(-1, keepdim=True) / number[..., None]
        variance = ((means - centre).square() * present).sum(-1) / number
        return (self.hyperparameter("rho")[..., 0].to(means) * variance + ROOT_FLOOR).sqrt().mean(-1)


@dataclass(frozen=True)
class WithoutDRO(Regulariser):
    r"""FairDRO without DRO: the gap of the cells' cross-entropies as a regulariser.

    .. math:: L_{bal} + \lambda \frac{1}{|Y|} \sum_y (\max_a L_{y,a} - \min_a L_{y,a})

    Parameters
    ----------
    lam : float or sequence of float, default 1
        Strength of the regulariser; several values train as many models.
    variant : {"paper", "code"}, default "paper"
        The authors' code has the mean over cells of :math:`|L_{y,a} - mean_a L_{y,a}|`, half as much for two groups.
    class_weight : sequence of float, optional
        What errors on every class cost, relative to each other; by default the same.
    objective : {"balanced", "standard"}, default "balanced"
        What plain training counts the same: every cell, or every sample.

    Examples
    --------
    >>> from fairdro.methods import WithoutDRO
    >>> WithoutDRO.sweep(3).lam  # over the paper's range
    (0.01, 1.0, 100.0)
    """

    name: ClassVar[str] = "fairdro_wo_dro"
    search: ClassVar[dict[str, LogRange]] = {"lam": LogRange(1e-2, 1e2)}
    variant: Variant = "paper"

    def regulariser(self, state: State, batch: Batch) -> Tensor:
        """Return the mean over classes of the gap between the groups that are there."""
        means, present = batch.means(batch.losses), batch.present
        if self.variant == "code":
            number = present.sum(-1, keepdim=True).clamp(min=1)
            centre = (means * present).sum(-1, keepdim=True) / number
            return ((means - centre).abs() * present / number).sum(-1).mean(-1)
        gap = means.where(present, -torch.inf).amax(-1) - means.where(present, torch.inf).amin(-1)
        return gap.where(present.any(-1), 0).mean(-1)
