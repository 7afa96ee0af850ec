"""Training rules, one per file, and the registry that names them."""

from fairdro.errors import unknown_name
from fairdro.methods.ablations import (
    ClasswiseSimplex,
    FairDRONonNegative,
    FairDROWithoutClasswise,
    FairDROWithoutSmoothing,
    GroupDRO,
)
from fairdro.methods.base import OBJECTIVES, Baseline, Batch, CellMeans, LogRange, Method, State, Task
from fairdro.methods.cov import Cov
from fairdro.methods.egr import EGR
from fairdro.methods.fairbatch import FairBatch
from fairdro.methods.fairdro import FairDRO
from fairdro.methods.group_dro import GroupDROEG
from fairdro.methods.hsic import FairHSIC
from fairdro.methods.lbc import LBC
from fairdro.methods.mfd import MFD
from fairdro.methods.pl import PL
from fairdro.methods.renyi import Renyi
from fairdro.methods.rw import RW
from fairdro.methods.scratch import Scratch
from fairdro.methods.variance import RVP, WithoutDRO

__all__ = [
    "EGR",
    "LBC",
    "METHODS",
    "MFD",
    "OBJECTIVES",
    "PL",
    "RVP",
    "RW",
    "Baseline",
    "Batch",
    "CellMeans",
    "ClasswiseSimplex",
    "Cov",
    "FairBatch",
    "FairDRO",
    "FairDRONonNegative",
    "FairDROWithoutClasswise",
    "FairDROWithoutSmoothing",
    "FairHSIC",
    "GroupDRO",
    "GroupDROEG",
    "LogRange",
    "Method",
    "Renyi",
    "Scratch",
    "State",
    "Task",
    "WithoutDRO",
    "get_method",
]

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        Scratch,
        RW,
        LBC,
        FairBatch,
        Cov,
        FairHSIC,
        Renyi,
        MFD,
        EGR,
        PL,
        FairDRO,
        FairDROWithoutSmoothing,
        FairDROWithoutClasswise,
        WithoutDRO,
        RVP,
        FairDRONonNegative,
        ClasswiseSimplex,
        GroupDRO,
        GroupDROEG,
    )
}


def get_method(name: str) -> type[Method]:
    """Return the method class registered under ``name``."""
    if name not in METHODS:
        raise unknown_name("method", name, list(METHODS))
    return METHODS[name]
