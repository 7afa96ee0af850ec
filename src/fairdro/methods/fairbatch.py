"""Batch selection as re-weighting."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fairdro.errors import InputError
from fairdro.methods.base import Baseline, CellMeans, LogRange, Scalars, State, Task, Variant, uniform


@dataclass(frozen=True)
class FairBatch(Baseline):
    r"""FairBatch for equalised odds (Roh et al., 2021), for any number of classes and groups.

    :math:`\lambda^y_a` is the rate at which samples of class y are drawn from group a. After every epoch the class with the
    largest gap between the mean losses of two groups shifts its rates to the group with the larger one:

    .. math:: \lambda^y_a \leftarrow \lambda^y_a + \alpha, \quad
              \lambda^y_{a'} \leftarrow \lambda^y_{a'} - \alpha / (|A| - 1),

    cut to [0, 1] and made to sum to one. Rates are applied as weights of the cells' mean losses, which has the same expected
    gradient as drawing at these rates and less noise, and lets models with different rates share batches.

    Parameters
    ----------
    alpha : float or sequence of float, default 0.01
        Step of the rates.
    variant : {"paper", "code"}, default "paper"
        The authors' code compares neighbouring groups only, the same for two groups. Its other habit, the balanced loss on
        batches at these rates, cancels the rates and is not offered.
    class_weight : sequence of float, optional
        What errors on every class cost, relative to each other; by default the same.
    objective : {"balanced", "standard"}, default "balanced"
        Balanced, classes count the same and rates start equal; standard, both start from the data's own.

    Examples
    --------
    >>> import torch
    >>> from fairdro.methods import FairBatch, Task
    >>> task = Task(torch.tensor([[40.0, 10.0], [30.0, 20.0]]))  # samples of every class and group
    >>> method = FairBatch(alpha=0.1)
    >>> method.weights(method.begin(task))
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]], dtype=torch.float64)
    """

    name: ClassVar[str] = "fairbatch"
    search: ClassVar[dict[str, LogRange]] = {"alpha": LogRange(1e-3, 1e2)}
    needs_loss: ClassVar[bool] = True

    alpha: Scalars = 0.01
    variant: Variant = "paper"

    def begin(self, task: Task) -> State:
        """Start from equal rates, or from those of the data."""
        per_class = task.counts.sum(-1, keepdim=True)
        if self.objective == "balanced":
            rates, share = uniform(task.counts), (per_class > 0).double()
        else:
            rates, share = task.counts / per_class.clamp(min=1e-12), task.n_classes * per_class / task.counts.sum()
        return {"rates": task.per_model(rates), "class_share": task.per_model(share.expand_as(task.counts))}

    def weights(self, state: State) -> Tensor:
        """Return the rates times the share of the class."""
        return state["class_share"] * state["rates"]

    def update(self, state: State, cells: CellMeans, progress: float) -> State:
        """Shift the rates of the class with the largest gap."""
        if cells.loss is None:
            raise InputError("FairBatch needs the mean loss of every cell.")
        rates, present = state["rates"], ~cells.loss.isnan()
        gap, losing = self._largest_gap(cells.loss, present)
        in_class = torch.nn.functional.one_hot(gap.argmax(-1), rates.shape[-2]).bool()[..., None]
        worst = torch.nn.functional.one_hot(losing, rates.shape[-1]).bool()
        alpha = self.hyperparameter("alpha")
        others = (present.sum(-1, keepdim=True) - 1).clamp(min=1)
        moved = torch.where(worst, rates + alpha, rates - alpha / others).clamp(0, 1).where(present, 0)
        moved = moved / moved.sum(-1, keepdim=True).clamp(min=1e-12)
        shifts = in_class & (gap > 0)[..., None]
        return {**state, "rates": moved.where(shifts, rates)}

    def _largest_gap(self, loss: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest gap between two groups of every class ``(*bank, Y)``, and the group that loses by it."""
        if self.variant == "paper" or loss.shape[-1] == 1:
            high = loss.where(present, -torch.inf)
            gap = high.amax(-1) - loss.where(present, torch.inf).amin(-1)
            return gap.where(present.any(-1), -torch.inf), high.argmax(-1)
        steps = loss.diff(dim=-1).nan_to_num(0)
        gap, pair = steps.abs().max(-1)
        rises = steps.gather(-1, pair[..., None]).squeeze(-1) >= 0
        return gap, pair + rises.long()
