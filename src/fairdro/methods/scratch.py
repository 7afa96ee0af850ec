"""Plain training."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fairdro.methods.base import Baseline, State, Task


@dataclass(frozen=True)
class Scratch(Baseline):
    r"""Empirical risk minimisation, the baseline of every comparison.

    Balanced: :math:`\frac{1}{|Y||A|} \sum_{y,a} L_{y,a}`. Standard: the mean loss of all samples.

    Parameters
    ----------
    objective : {"balanced", "standard"}, default "balanced"
    """

    name: ClassVar[str] = "scratch"

    def begin(self, task: Task) -> State:
        """Fix the weights once."""
        return {"weights": task.per_model(self.plain_weights(task))}

    def weights(self, state: State) -> Tensor:
        """Return the same weights always."""
        return state["weights"]
