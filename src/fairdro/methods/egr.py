"""Exponentiated-gradient reduction."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fairdro.methods.base import Baseline, Batch, CellMeans, LogRange, Scalars, State, Task, Variant

CODE_BATCH = 128


@dataclass(frozen=True)
class EGR(Baseline):
    r"""Exponentiated-gradient reduction of equalised odds (Agarwal et al., 2018), for two classes.

    With :math:`\mu_{y,a}` the rate of positive predictions in a cell and :math:`\mu_y` in its class, after each full
    training, which starts from the same initial models,

    .. math:: \theta^\pm_{y,a} \leftarrow \theta^\pm_{y,a} \pm \eta\, (\mu_{y,a} - \mu_y), \quad
              \lambda = B\, e^\theta / (1 + \textstyle\sum e^\theta), \quad \Lambda = \lambda^+ - \lambda^-.

    Samples of a cell then cost :math:`C_0 = 1[y \ne 0]\, u` if predicted as 0 and
    :math:`C_1 = 1[y \ne 1]\, u + \Lambda_{y,a} / P_{y,a} - \sum_a \Lambda_{y,a} / P_y` if predicted as 1: they are trained
    with the cheaper label and the weight :math:`|C_0 - C_1|`. The last training uses the average of the multipliers and
    gives the deterministic model that is kept; ``TrainedBank.predict_randomised`` draws from those of
    the rounds before, which is the classifier that the theory speaks of.

    Parameters
    ----------
    eta : float or sequence of float, default 1
        Step of the multipliers.
    bound : float or sequence of float, default 1
        B, the largest sum of the multipliers.
    variant : {"paper", "code"}, default "paper"
        The authors' code has two slips, kept here for comparison: it sums :math:`\Lambda` over the samples of a batch (here
        its expected value for 128), and takes :math:`\mu_y` over all classes.
    class_weight : sequence of float, optional
        What errors on every class cost, relative to each other; by default the same.
    objective : {"balanced", "standard"}, default "balanced"
        ``u`` is 1 / P(y, a), or 1.

    Examples
    --------
    >>> from fairdro.methods import EGR
    >>> EGR.sweep(4).bound  # over the paper's range
    (0.01, 0.01, 10.0, 10.0)
    """

    name: ClassVar[str] = "egr"
    search: ClassVar[dict[str, LogRange]] = {"bound": LogRange(1e-2, 1e1), "eta": LogRange(1e-2, 1e2)}
    max_classes: ClassVar[int | None] = 2
    restart: ClassVar[bool] = True
    rounds: ClassVar[int] = 11  # ten, and one more with the average of their multipliers

    eta: Scalars = 1.0
    bound: Scalars = 1.0
    variant: Variant = "paper"

    def begin(self, task: Task) -> State:
        """Start from theta = 0."""
        zeros = task.per_model(torch.zeros_like(task.counts))
        state = {
            "share": task.per_model(task.counts / task.counts.sum()),
            "theta_up": zeros,
            "theta_down": zeros.clone(),
            "sum": zeros.clone(),
            "finished": torch.zeros((), dtype=torch.int64),
        }
        return self._with_costs(state, self._multipliers(state))

    def weights(self, state: State) -> Tensor:
        """Return the weights of cells that keep their label."""
        return state["weight"].where(state["kept"], 0)

    def penalty(self, state: State, batch: Batch) -> Tensor:
        """Return the loss of cells that are trained with the other label."""
        weight, kept = state["weight"], state["kept"]
        difference = batch.logits[..., 1] - batch.logits[..., 0]
        to_other = torch.nn.functional.softplus(torch.where(batch.y.unsqueeze(-2) == 1, difference, -difference))
        means = batch.means(to_other)
        return (weight.where(~kept, 0).to(means.dtype) * means).sum((-2, -1)) / 2

    def next_round(self, state: State, cells: CellMeans) -> State:
        """Move the multipliers by the gaps in positive predictions; before the last round, take their average."""
        error, share = cells.error.nan_to_num(0), state["share"]
        positive = torch.stack([error[..., 0, :], 1 - error[..., 1, :]], dim=-2)
        pooled = (-1,) if self.variant == "paper" else (-2, -1)
        of_class = (positive * share).sum(pooled, keepdim=True) / share.sum(pooled, keepdim=True).clamp(min=1e-12)
        gap = self.hyperparameter("eta") * (positive - of_class).where(share > 0, 0)
        moved = {
            **state,
            "theta_up": state["theta_up"] + gap,
            "theta_down": state["theta_down"] - gap,
            "sum": state["sum"] + state["multipliers"],
            "finished": state["finished"] + 1,
        }
        if int(moved["finished"]) == self.rounds - 1:
            return self._with_costs(moved, moved["sum"] / (self.rounds - 1))
        return self._with_costs(moved, self._multipliers(moved))

    def _multipliers(self, state: State) -> Tensor:
        both = torch.stack([state["theta_up"], state["theta_down"]], dim=-1)
        largest = both.amax((-3, -2, -1), keepdim=True).clamp(min=0)
        raised = (both - largest).exp()
        scale = self.hyperparameter("bound")[..., None] / ((-largest).exp() + raised.sum((-3, -2, -1), keepdim=True))
        up, down = (scale * raised).unbind(-1)
        return up - down

    def _with_costs(self, state: State, multipliers: Tensor) -> State:
        """Add multipliers, the weight of each cell's mean loss in the engine's mean over classes, and if its label stays."""
        share = state["share"]
        present = share > 0
        cost_0, cost_1 = self.costs(share, multipliers)
        advantage = (cost_0 - cost_1).where(present, 0)
        label = torch.tensor([[False], [True]], device=share.device)
        number = present.sum((-2, -1), keepdim=True) if self.objective == "balanced" else 1
        weight, kept = 2 * share * advantage.abs() / number, (advantage > 0) == label
        return {**state, "multipliers": multipliers, "weight": weight, "kept": kept}

    def costs(self, share: Tensor, multipliers: Tensor) -> tuple[Tensor, Tensor]:
        """Return what predicting 0 and predicting 1 costs a sample of every cell ``(..., 2, A)``."""
        unit = 1 / share.clamp(min=1e-12) if self.objective == "balanced" else torch.ones_like(share)
        label = torch.tensor([[0.0], [1.0]]).to(share)
        of_class = share.sum(-1, keepdim=True)
        total = multipliers.sum(-1, keepdim=True)
        if self.variant == "code":
            total = CODE_BATCH * (of_class * total).sum(-2, keepdim=True)
        per_class = total / of_class.clamp(min=1e-12)
        return label * unit, (1 - label) * unit + multipliers / share.clamp(min=1e-12) - per_class
