"""The paper's ablations that are FairDRO with one switch turned, under names of their own."""

from dataclasses import dataclass
from typing import Any, ClassVar

from fairdro.methods.base import LogRange
from fairdro.methods.fairdro import FairDRO, Smoothing, Uncertainty


@dataclass(frozen=True)
class FairDROWithoutSmoothing(FairDRO):
    """FairDRO whose q is the best response itself after every epoch.

    Parameters
    ----------
    rho, classwise, uncertainty, smoothing, signal, softness, objective, fair_classes, class_weight
        As of :class:`FairDRO`, with ``smoothing="none"``.

    Examples
    --------
    >>> import torch
    >>> from fairdro.methods import FairDROWithoutSmoothing, Task
    >>> task = Task(torch.tensor([[40.0, 10.0], [30.0, 20.0]]))  # samples of every class and group
    >>> method = FairDROWithoutSmoothing(rho=0.3)
    >>> method.weights(method.begin(task))
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]], dtype=torch.float64)
    >>> from fairdro.methods import CellMeans
    >>> cells = CellMeans(error=torch.tensor([[0.1, 0.3], [0.2, 0.2]], dtype=torch.float64))
    >>> method.weights(method.update(method.begin(task), cells, progress=0.0)).round(decimals=3)
    tensor([[0.2260, 0.7740],
            [0.5000, 0.5000]], dtype=torch.float64)
    """

    name: ClassVar[str] = "fairdro_wo_smoothing"
    stepwise: ClassVar[dict[str, Any]] = {}

    smoothing: Smoothing = "none"


@dataclass(frozen=True)
class FairDROWithoutClasswise(FairDRO):
    """FairDRO with one q over all cells instead of one per class.

    Parameters
    ----------
    rho, classwise, uncertainty, smoothing, signal, softness, objective, fair_classes, class_weight
        As of :class:`FairDRO`, with ``classwise=False``.

    Examples
    --------
    >>> import torch
    >>> from fairdro.methods import FairDROWithoutClasswise, Task
    >>> task = Task(torch.tensor([[40.0, 10.0], [30.0, 20.0]]))  # samples of every class and group
    >>> method = FairDROWithoutClasswise(rho=0.3)
    >>> method.weights(method.begin(task))
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]], dtype=torch.float64)
    >>> from fairdro.methods import CellMeans
    >>> cells = CellMeans(error=torch.tensor([[0.1, 0.3], [0.2, 0.2]], dtype=torch.float64))
    >>> method.weights(method.update(method.begin(task), cells, progress=0.0)).round(decimals=3)
    tensor([[0.1130, 0.8870],
            [0.5000, 0.5000]], dtype=torch.float64)
    """

    name: ClassVar[str] = "fairdro_wo_classwise"

    classwise: bool = False


@dataclass(frozen=True)
class FairDRONonNegative(FairDRO):
    """FairDRO over the part of the chi-square ball without negative weights.

    Parameters
    ----------
    rho, classwise, uncertainty, smoothing, signal, softness, objective, fair_classes, class_weight
        As of :class:`FairDRO`, with ``uncertainty="chi_square_nonnegative"``.

    Examples
    --------
    >>> import torch
    >>> from fairdro.methods import FairDRONonNegative, Task
    >>> task = Task(torch.tensor([[40.0, 10.0], [30.0, 20.0]]))  # samples of every class and group
    >>> method = FairDRONonNegative(rho=0.3)
    >>> method.weights(method.begin(task))
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]], dtype=torch.float64)
    >>> from fairdro.methods import CellMeans
    >>> cells = CellMeans(error=torch.tensor([[0.1, 0.3], [0.2, 0.2]], dtype=torch.float64))
    >>> method.weights(method.update(method.begin(task), cells, progress=0.0)).round(decimals=3)
    tensor([[0.2260, 0.7740],
            [0.5000, 0.5000]], dtype=torch.float64)
    """

    name: ClassVar[str] = "fairdro_nonnegative"
    stepwise: ClassVar[dict[str, Any]] = {}

    uncertainty: Uncertainty = "chi_square_nonnegative"


@dataclass(frozen=True)
class ClasswiseSimplex(FairDRO):
    """FairDRO over the whole simplex of each class; rho has no meaning.

    Parameters
    ----------
    rho, classwise, uncertainty, smoothing, signal, softness, objective, fair_classes, class_weight
        As of :class:`FairDRO`, with ``uncertainty="simplex"``.

    Examples
    --------
    >>> import torch
    >>> from fairdro.methods import ClasswiseSimplex, Task
    >>> task = Task(torch.tensor([[40.0, 10.0], [30.0, 20.0]]))  # samples of every class and group
    >>> method = ClasswiseSimplex()
    >>> method.weights(method.begin(task))
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]], dtype=torch.float64)
    >>> from fairdro.methods import CellMeans
    >>> cells = CellMeans(error=torch.tensor([[0.1, 0.3], [0.2, 0.2]], dtype=torch.float64))
    >>> method.weights(method.update(method.begin(task), cells, progress=0.0)).round(decimals=3)
    tensor([[0., 1.],
            [1., 0.]], dtype=torch.float64)
    """

    name: ClassVar[str] = "classwise_simplex"
    search: ClassVar[dict[str, LogRange]] = {}
    stepwise: ClassVar[dict[str, Any]] = {}

    uncertainty: Uncertainty = "simplex"


@dataclass(frozen=True)
class GroupDRO(ClasswiseSimplex):
    """Group DRO (Sagawa et al., 2020) over all cells, optimised like FairDRO by a smoothed best response.

    Parameters
    ----------
    rho, classwise, uncertainty, smoothing, signal, softness, objective, fair_classes, class_weight
        As of :class:`FairDRO`, with ``uncertainty="simplex"`` and ``classwise=False``.

    Examples
    --------
    >>> import torch
    >>> from fairdro.methods import GroupDRO, Task
    >>> task = Task(torch.tensor([[40.0, 10.0], [30.0, 20.0]]))  # samples of every class and group
    >>> method = GroupDRO()
    >>> method.weights(method.begin(task))
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]], dtype=torch.float64)
    >>> from fairdro.methods import CellMeans
    >>> cells = CellMeans(error=torch.tensor([[0.1, 0.3], [0.2, 0.2]], dtype=torch.float64))
    >>> method.weights(method.update(method.begin(task), cells, progress=0.0)).round(decimals=3)
    tensor([[0., 2.],
            [0., 0.]], dtype=torch.float64)
    """

    name: ClassVar[str] = "group_dro"

    classwise: bool = False
