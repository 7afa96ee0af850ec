"""Training rules, one per file, and the registry that names them."""

from fairdro.errors import unknown_name
from fairdro.methods.ablations import (
    ClasswiseSimplex,
    FairDRONonNegative,
    FairDROWithoutClasswise,
    FairDROWithoutSmoothing,
    GroupDRO,
)
from fairdro.methods.base import CellMeans, LogRange, Method, State, Task
from fairdro.methods.fairbatch import FairBatch
from fairdro.methods.fairdro import FairDRO
from fairdro.methods.lbc import LBC
from fairdro.methods.rw import RW
from fairdro.methods.scratch import Scratch

__all__ = [
    "LBC",
    "METHODS",
    "RW",
    "CellMeans",
    "ClasswiseSimplex",
    "FairBatch",
    "FairDRO",
    "FairDRONonNegative",
    "FairDROWithoutClasswise",
    "FairDROWithoutSmoothing",
    "GroupDRO",
    "LogRange",
    "Method",
    "Scratch",
    "State",
    "Task",
    "get_method",
]

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        Scratch,
        RW,
        LBC,
        FairBatch,
        FairDRO,
        FairDROWithoutSmoothing,
        FairDROWithoutClasswise,
        FairDRONonNegative,
        ClasswiseSimplex,
        GroupDRO,
    )
}


def get_method(name: str) -> type[Method]:
    """Return the method class registered under ``name``."""
    if name not in METHODS:
        raise unknown_name("method", name, list(METHODS))
    return METHODS[name]
