"""Proxy-Lagrangian optimisation."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fairdro.methods.base import Baseline, Batch, LogRange, Scalars, State, Task


@dataclass(frozen=True)
class PL(Baseline):
    r"""Proxy-Lagrangian optimisation (Cotter et al., 2019) of equal errors within each class.

    For every class and every two neighbouring groups a, b, two constraints :math:`err_a - err_b \le \kappa` and the
    reverse. The models minimise :math:`\lambda_0 L + \sum_k \lambda_k\, proxy_k`, where the proxies have hinge losses in
    place of errors. :math:`\lambda` is the stationary distribution of a column-stochastic matrix M, which follows the true
    violations g (of the objective: 0) at every mini-batch:

    .. math:: M \leftarrow M \circ \exp(\eta\, g \lambda^T), \text{ columns made to sum to one}

    Parameters
    ----------
    eta : float or sequence of float, default 1
        Step of the multipliers.
    kappa : float or sequence of float, default 0.01
        Gap in error that is tolerated. The paper searches up to 10, but no gap exceeds 1.
    class_weight : sequence of float, optional
        What errors on every class cost, relative to each other; by default the same.
    objective : {"balanced", "standard"}, default "balanced"
        What plain training counts the same: every cell, or every sample.

    Examples
    --------
    >>> from fairdro.methods import PL
    >>> PL.sweep(4).eta  # over the paper's range
    (0.01, 0.01, 100.0, 100.0)
    """

    name: ClassVar[str] = "pl"
    search: ClassVar[dict[str, LogRange]] = {"eta": LogRange(1e-2, 1e2), "kappa": LogRange(1e-2, 1e1)}

    eta: Scalars = 1.0
    kappa: Scalars = 0.01

    def begin(self, task: Task) -> State:
        """Start from a matrix of equal entries."""
        size = 2 * task.n_classes * (task.n_groups - 1) + 1
        M = torch.full((size, size), 1 / size)
        return {"M": task.per_model(M), "plain": task.per_model(self.plain_weights(task))}

    def weights(self, state: State) -> Tensor:
        """Return the plain weights times the multiplier of the objective."""
        return state["plain"] * stationary(state["M"])[..., :1, None]

    def observe(self, state: State, batch: Batch) -> State:
        """Move the multipliers by the constraints' violations in the batch."""
        wrong = (batch.logits.argmax(-1) != batch.y.unsqueeze(-2)).to(batch.losses.dtype)
        violation = self._constraints(batch.means(wrong).double(), batch)
        violation = torch.cat([torch.zeros_like(violation[..., :1]), violation], dim=-1)
        step = self.hyperparameter("eta") * violation[..., :, None] * stationary(state["M"])[..., None, :]
        raised = state["M"] * (step - step.amax(-2, keepdim=True)).exp()
        return {**state, "M": raised / raised.sum(-2, keepdim=True)}

    def penalty(self, state: State, batch: Batch) -> Tensor:
        """Return the proxies times their multipliers."""
        target = batch.y.unsqueeze(-2).expand(batch.losses.shape)[..., None]
        margins = (1 - batch.logits.gather(-1, target) + batch.logits).clamp(min=0)
        hinge = (margins.sum(-1) - 1) / batch.logits.shape[-1]  # the true class itself adds 1
        proxies = self._constraints(batch.means(hinge), batch)
        return (stationary(state["M"])[..., 1:].to(proxies.dtype) * proxies).sum(-1)

    def _constraints(self, per_cell: Tensor, batch: Batch) -> Tensor:
        """Return the constraints of every class and pair of neighbours, both ways; 0 where a cell has no samples."""
        gap = per_cell[..., :-1] - per_cell[..., 1:]
        both = torch.stack([gap, -gap], dim=-1) - self.hyperparameter("kappa")[..., None].to(gap)
        known = (batch.present[..., :-1] & batch.present[..., 1:])[..., None]
        return both.where(known, 0).flatten(-3)


def stationary(M: Tensor) -> Tensor:
    """Return the distribution that a column-stochastic matrix ``(..., m, m)`` leaves unchanged."""
    size = M.shape[-1]
    system = M - torch.eye(size).to(M)
    system[..., -1, :] = 1
    target = torch.zeros(size).to(M)
    target[-1] = 1
    solution = torch.linalg.solve(system, target.expand(*M.shape[:-1]))
    return solution.clamp(min=0) / solution.clamp(min=0).sum(-1, keepdim=True)
