"""Plain training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from fairdro.errors import unknown_name
from fairdro.methods.base import Method, State, Task, uniform

OBJECTIVES = ["balanced", "standard"]


@dataclass(frozen=True)
class Scratch(Method):
    r"""Empirical risk minimisation, the baseline of every comparison.

    Balanced, every cell counts the same: :math:`\frac{1}{|Y||A|} \sum_{y,a} L_{y,a}` (the paper's main tables). Standard,
    every sample counts the same.

    Parameters
    ----------
    objective : {"balanced", "standard"}, default "balanced"
    """

    name: ClassVar[str] = "scratch"

    objective: Literal["balanced", "standard"] = "balanced"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective not in OBJECTIVES:
            raise unknown_name("objective", self.objective, OBJECTIVES)

    def begin(self, task: Task) -> State:
        """Fix the weights once."""
        if self.objective == "balanced":
            weights = uniform(task.counts)
        else:
            weights = task.n_classes * task.counts / task.counts.sum()
        return {"weights": task.per_model(weights)}

    def weights(self, state: State) -> Tensor:
        """Return the same weights always."""
        return state["weights"]
