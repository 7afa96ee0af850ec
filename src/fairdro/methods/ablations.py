"""The paper's ablations that are FairDRO with one switch turned, under names of their own."""

from dataclasses import dataclass
from typing import Any, ClassVar

from fairdro.methods.base import LogRange
from fairdro.methods.fairdro import FairDRO, Smoothing, Uncertainty


@dataclass(frozen=True)
class FairDROWithoutSmoothing(FairDRO):
    """FairDRO whose q is the best response itself after every epoch."""

    name: ClassVar[str] = "fairdro_wo_smoothing"
    stepwise: ClassVar[dict[str, Any]] = {}

    smoothing: Smoothing = "none"


@dataclass(frozen=True)
class FairDROWithoutClasswise(FairDRO):
    """FairDRO with one q over all cells instead of one per class."""

    name: ClassVar[str] = "fairdro_wo_classwise"

    classwise: bool = False


@dataclass(frozen=True)
class FairDRONonNegative(FairDRO):
    """FairDRO over the part of the chi-square ball without negative weights."""

    name: ClassVar[str] = "fairdro_nonnegative"
    stepwise: ClassVar[dict[str, Any]] = {}

    uncertainty: Uncertainty = "chi_square_nonnegative"


@dataclass(frozen=True)
class ClasswiseSimplex(FairDRO):
    """FairDRO over the whole simplex of each class; rho has no meaning."""

    name: ClassVar[str] = "classwise_simplex"
    search: ClassVar[dict[str, LogRange]] = {}
    stepwise: ClassVar[dict[str, Any]] = {}

    uncertainty: Uncertainty = "simplex"


@dataclass(frozen=True)
class GroupDRO(ClasswiseSimplex):
    """Group DRO (Sagawa et al., 2020) over all cells, optimised like FairDRO by a smoothed best response."""

    name: ClassVar[str] = "group_dro"

    classwise: bool = False
