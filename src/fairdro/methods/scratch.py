"""Plain training."""

from dataclasses import dataclass
from typing import ClassVar

from fairdro.methods.base import Baseline


@dataclass(frozen=True)
class Scratch(Baseline):
    r"""Empirical risk minimisation, the baseline of every comparison.

    Balanced: :math:`\frac{1}{|Y||A|} \sum_{y,a} L_{y,a}`. Standard: the mean loss of all samples.

    Parameters
    ----------
    class_weight : sequence of float, optional
        What errors on every class cost, relative to each other; by default the same.
    objective : {"balanced", "standard"}, default "balanced"
        What plain training counts the same: every cell, or every sample.

    Examples
    --------
    >>> import torch
    >>> from fairdro.methods import Scratch, Task
    >>> task = Task(torch.tensor([[40.0, 10.0], [30.0, 20.0]]))  # samples of every class and group
    >>> method = Scratch(objective="standard")
    >>> method.weights(method.begin(task))
    tensor([[0.8000, 0.2000],
            [0.6000, 0.4000]], dtype=torch.float64)
    """

    name: ClassVar[str] = "scratch"
    takes_unknown_group: ClassVar[bool] = True
