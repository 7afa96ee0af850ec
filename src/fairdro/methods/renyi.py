"""Renyi correlation as a regulariser."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fairdro.errors import InputError
from fairdro.methods.base import Batch, CellMeans, LogRange, State, Task
from fairdro.methods.regulariser import Regulariser


@dataclass(frozen=True)
class Renyi(Regulariser):
    r"""Renyi correlation of prediction and group within each class (Baharlouei et al., 2020), for two groups.

    With :math:`s_i = \pm 1` the group, :math:`p_{ik}` the predicted probabilities and :math:`W_{yk}` from the last epoch:

    .. math:: \lambda \sum_y \frac{1}{n_y} \sum_{i: y_i = y} \sum_k (-W_{yk}^2 + W_{yk} s_i)\, p_{ik}, \quad
              W_{yk} = \frac{\sum_{i: y_i = y} s_i p_{ik}}{2 \sum_{i: y_i = y} p_{ik}}

    The first epoch has no regularisation: W starts at 0. Batches hold every cell equally, which counts small groups more
    than the authors' batches, drawn as the data come (``sampling="uniform"``), do.

    Parameters
    ----------
    lam : float or sequence of float, default 1
        Strength of the regulariser; several values train as many models.
    class_weight : sequence of float, optional
        What errors on every class cost, relative to each other; by default the same.
    objective : {"balanced", "standard"}, default "balanced"
        What plain training counts the same: every cell, or every sample.

    Examples
    --------
    >>> from fairdro.methods import Renyi
    >>> Renyi.sweep(3).lam  # over the paper's range
    (0.01, 3.16228, 1000.0)
    """

    name: ClassVar[str] = "renyi"
    search: ClassVar[dict[str, LogRange]] = {"lam": LogRange(1e-2, 1e3)}
    max_groups: ClassVar[int | None] = 2
    needs_probabilities: ClassVar[bool] = True

    def begin(self, task: Task) -> State:
        """Start from W = 0."""
        W = torch.zeros(task.n_classes, task.n_classes)
        return {**super().begin(task), "W": task.per_model(W), "counts": task.per_model(task.counts)}

    def regulariser(self, state: State, batch: Batch) -> Tensor:
        """Return the correlation's bound; a class without samples in the batch adds nothing."""
        probabilities = batch.logits.softmax(-1)
        sign = batch.membership @ _signs(batch.membership)
        of_class = torch.nn.functional.one_hot(batch.y, batch.logits.shape[-1]).to(probabilities.dtype)
        share = of_class / of_class.sum(-2, keepdim=True).clamp(min=1)
        W = state["W"].to(probabilities.dtype)
        in_class = share.unsqueeze(-3).mT  # (..., 1, Y, B)
        mean = in_class @ probabilities
        signed = in_class @ (sign[..., None, :, None] * probabilities)
        return (-W.square() * mean + W * signed).sum((-2, -1))

    def update(self, state: State, cells: CellMeans, progress: float) -> State:
        """Take W from the probabilities of the whole training set."""
        if cells.probabilities is None:
            raise InputError("Renyi needs the mean probabilities of every cell.")
        sums = cells.probabilities.nan_to_num(0) * state["counts"][..., None]
        signed = (_signs(sums)[:, None] * sums).sum(-2)
        return {**state, "W": signed / (2 * sums.sum(-2).clamp(min=1e-12))}


def _signs(like: Tensor) -> Tensor:
    return torch.tensor([-1.0, 1.0]).to(like)
