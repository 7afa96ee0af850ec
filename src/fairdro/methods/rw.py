"""Re-weighting before training."""

from dataclasses import dataclass
from typing import ClassVar

from fairdro.methods.base import Baseline, State, Task


@dataclass(frozen=True)
class RW(Baseline):
    r"""Reweighing (Kamiran and Calders, 2012): as if class and group were independent.

    Every sample of a cell gets :math:`w_{y,a} = n_y n_a / (N n_{y,a})`, so the cell counts as :math:`n_y n_a / N^2`.
    Balanced, classes count the same and within each the cell counts as :math:`n_a / N`.

    The authors' code computes these weights without applying them, which is Scratch.

    Parameters
    ----------
    class_weight : sequence of float, optional
        What errors on every class cost, relative to each other; by default the same.
    objective : {"balanced", "standard"}, default "balanced"
        What plain training counts the same: every cell, or every sample.

    Examples
    --------
    >>> import torch
    >>> from fairdro.methods import RW, Task
    >>> task = Task(torch.tensor([[40.0, 10.0], [30.0, 20.0]]))  # samples of every class and group
    >>> method = RW()
    >>> method.weights(method.begin(task))
    tensor([[0.7000, 0.3000],
            [0.7000, 0.3000]], dtype=torch.float64)
    """

    name: ClassVar[str] = "rw"

    def begin(self, task: Task) -> State:
        """Fix the weights once, from the counts."""
        share = task.counts / task.counts.sum()
        per_group = share.sum(0).expand_as(share).where(task.counts > 0, 0)
        per_group = per_group / per_group.sum(-1, keepdim=True).clamp(min=1e-12)
        per_class = share.sum(1, keepdim=True) * task.n_classes if self.objective == "standard" else 1
        return {"weights": task.per_model(per_class * per_group)}
