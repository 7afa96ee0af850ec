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
    objective : {"balanced", "standard"}, default "balanced"
    """

    name: ClassVar[str] = "scratch"
    takes_unknown_group: ClassVar[bool] = True
