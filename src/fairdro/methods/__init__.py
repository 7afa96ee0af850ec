"""Methods, one per file, and the registry that names them."""

from collections.abc import Iterable
from dataclasses import fields

from fairdro.errors import InputError, unknown_name
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
    "EGR", "LBC", "METHODS", "MFD", "OBJECTIVES", "PL", "RVP", "RW", "Baseline", "Batch", "CellMeans", "ClasswiseSimplex",
    "Cov", "FairBatch", "FairDRO", "FairDRONonNegative", "FairDROWithoutClasswise", "FairDROWithoutSmoothing", "FairHSIC",
    "GroupDRO", "GroupDROEG", "LogRange", "Method", "Renyi", "Scratch", "State", "Task", "WithoutDRO", "get_method",
]  # fmt: skip

_ALL: list[type[Method]] = [
    Scratch, RW, LBC, FairBatch, Cov, FairHSIC, Renyi, MFD, EGR, PL,
    FairDRO, FairDROWithoutSmoothing, FairDROWithoutClasswise, WithoutDRO, RVP, FairDRONonNegative,
    ClasswiseSimplex, GroupDRO, GroupDROEG,
]  # fmt: skip
METHODS = {method.name: method for method in _ALL}
"""The methods by the names that ``FairClassifier(method=...)`` and the command line take; add one of your own here."""


def get_method(name: str) -> type[Method]:
    """Return the method class registered under ``name``.

    Parameters
    ----------
    name : str
        One of ``METHODS``.

    Returns
    -------
    type

    Examples
    --------
    >>> from fairdro.methods import METHODS, get_method
    >>> get_method("fairdro")
    <class 'fairdro.methods.fairdro.FairDRO'>
    >>> list(METHODS)[:5]
    ['scratch', 'rw', 'lbc', 'fairbatch', 'cov']
    """
    if name not in METHODS:
        raise unknown_name("method", name, list(METHODS))
    return METHODS[name]


def check_hyperparameters(kind: type[Method], names: Iterable[str]) -> None:
    """Refuse names that are no hyperparameters of a method."""
    if unknown := set(names) - {f.name for f in fields(kind)}:
        raise InputError(f"{kind.name} does not have these hyperparameters: {', '.join(sorted(unknown))}.")
