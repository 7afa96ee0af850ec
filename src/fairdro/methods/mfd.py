"""Distillation of features from a teacher, alike for every group."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fairdro.errors import InputError
from fairdro.methods.base import Batch, LogRange, Method, State
from fairdro.methods.regulariser import Regulariser, squared_distances
from fairdro.methods.scratch import Scratch


@dataclass(frozen=True)
class MFD(Regulariser):
    r"""MMD-based fair distillation (Jung et al., 2021).

    In every cell, the features S of the model are drawn to those T of a plainly trained teacher over the whole class:

    .. math:: \frac{\lambda}{2} \sum_{y,a} \overline{k(T_y, T_y)} + \overline{k(S_{y,a}, S_{y,a})}
              - 2\, \overline{k(T_y, S_{y,a})}, \quad k(u, v) = e^{-|u - v|^2 / (2 \sigma)}

    with :math:`\sigma` the mean squared distance of teacher and model over the batch. Cells without samples add nothing.
    Batches hold every cell equally, so that a class of the teacher is made of all groups alike.

    Parameters
    ----------
    lam : float or sequence of float, default 1
        Strength of the regulariser; several values train as many models.
    class_weight : sequence of float, optional
        What errors on every class cost, relative to each other; by default the same.
    objective : {"balanced", "standard"}, default "balanced"
        Of the model and of its teacher; the authors' code has the standard one only.

    Examples
    --------
    >>> from fairdro.methods import MFD
    >>> MFD.sweep(3).lam  # over the paper's range
    (0.01, 10.0, 10000.0)
    >>> MFD(lam=1.0).teacher().name
    'scratch'
    """

    name: ClassVar[str] = "mfd"
    search: ClassVar[dict[str, LogRange]] = {"lam": LogRange(1e-2, 1e4)}
    needs_features: ClassVar[bool] = True

    def teacher(self) -> Method:
        """Return plain training."""
        return Scratch(objective=self.objective)

    def regulariser(self, state: State, batch: Batch) -> Tensor:
        """Return half the sum over cells of the squared discrepancy to the teacher."""
        if batch.features is None or batch.teacher is None:
            raise InputError("MFD needs the features of a hidden layer, and those of a teacher.")
        student, teacher, shape = batch.features, batch.teacher, batch.present.shape[-2:]
        across = squared_distances(teacher, student)
        scale = -0.5 / across.detach().mean((-2, -1), keepdim=True)
        of_class = torch.nn.functional.one_hot(batch.y, shape[0]).to(student.dtype)
        in_class = (of_class / of_class.sum(-2, keepdim=True).clamp(min=1))[..., None, :, :]
        in_cell = batch.averaging[..., None, :, :]
        teachers = _within((scale * squared_distances(teacher, teacher)).exp(), in_class)[..., None]
        students = _within((scale * squared_distances(student, student)).exp(), in_cell).unflatten(-1, shape)
        between = in_class[..., None] * ((scale * across).exp() @ in_cell).unflatten(-1, shape)
        terms = teachers + students - 2 * between.sum(-3)
        return terms.where(batch.present, 0).sum((-2, -1)) / 2


def _within(kernel: Tensor, averaging: Tensor) -> Tensor:
    """Mean of a kernel ``(..., B, B)`` over the pairs within each column of ``averaging`` ``(..., B, C)``."""
    return ((kernel @ averaging) * averaging).sum(-2)
