r"""A head that reads probabilities of class and group so that groups are served alike, by any method that weighs cells.

The classifier that minimises the weighted errors of the cells is known without training,

.. math:: \hat y(x) = \arg\max_y \sum_a \frac{w_{y,a}}{\pi_{y,a}}\, p(y, a \mid x),

with :math:`\pi` the means of :math:`p(y, a \mid x)` over the data, so that every cell counts the same even where trees have
not learned yet how frequent it is. The method answers to its errors; what is fitted is :math:`w` alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.methods import CellMeans, Method, State, Task
from fairdro.training.trained import History, mistaken, most_likely

__all__ = ["BoostedHead", "check_weighs_cells", "damped", "fit_head", "read_joint"]

DAMPING = 0.3
STEPS = 100


@dataclass(frozen=True)
class BoostedHead:
    """Weights of cells by which boosted probabilities are read, for P points.

    Attributes
    ----------
    method : Method
    state : State
    share : Tensor of shape (Y, A)
        The mean probabilities of the cells; zero for those without rows.
    history : History
        Of one entry per step.
    """

    method: Method
    state: State
    share: Tensor
    history: History

    @property
    def weights(self) -> Tensor:
        """Final cell weights ``(1, P, Y, A)``."""
        return self.method.weights(self.state)

    def predict(self, probabilities: np.ndarray) -> Tensor:
        """Return class codes ``(1, P, N)``, given the probabilities of cells ``(N, Y, A)``."""
        return most_likely(read_joint(probabilities, self.share, self.weights[0]))[None]


def read_joint(probabilities: np.ndarray, share: Tensor, weights: Tensor) -> Tensor:
    """Return what speaks for every class ``(P, N, Y)``: probabilities of cells ``(N, Y, A)`` by weights ``(P, Y, A)``."""
    return _read(_relative(probabilities, share), weights)


def _relative(probabilities: np.ndarray, share: Tensor) -> Tensor:
    """Return the probabilities of the cells over their shares ``(Y, A, N)``, zero for cells without rows."""
    inverse = torch.where(share > 0, 1 / share.clamp(min=1e-12), 0)
    return (torch.from_numpy(probabilities) * inverse).float().permute(1, 2, 0).contiguous()


def _read(relative: Tensor, weights: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the weighted sums over groups ``(P, N, Y)``, a view of ``(Y, P, N)``."""
    return torch.bmm(weights.float().transpose(0, 1), relative, out=out).permute(1, 2, 0)


def fit_head(probabilities: np.ndarray, cells: Cells, method: Method, *, steps: int = STEPS) -> BoostedHead:
    """Let a method answer to the errors of the best classifier under its weights, until both rest.

    Parameters
    ----------
    probabilities : ndarray of shape (N, Y, A)
        From :class:`JointTrees`, by trees that have not seen the row.
    cells : Cells
        Of the same rows.
    method : Method
        All its points at once.
    steps : int
        The method's own step is damped to 0.3 of it, falling to nothing.
    """
    check_weighs_cells(method, cells)
    if len(probabilities) != len(cells):
        raise InputError(f"There are probabilities of {len(probabilities)} rows, but {len(cells)} labels.")
    task = Task(cells.counts, (1, method.points))
    share = torch.from_numpy(np.average(probabilities, axis=0, weights=cells.sample_weight)).where(cells.counts > 0, 0)
    relative = _relative(probabilities, share)
    state = method.begin(task)
    scores = relative.new_empty(cells.n_classes, method.points, len(cells))
    wrong = relative.new_empty(method.points, len(cells))
    weights, accuracy = [], []
    for training_round in range(method.rounds):
        for step in range(steps):
            weights.append(method.weights(state))
            mistaken(_read(relative, weights[-1][0], out=scores), cells.y, out=wrong)
            means = CellMeans(cells.means(wrong).double()[None])
            accuracy.append(1 - means.error)
            moved = method.update(state, means, step / steps)
            if moved is state:  # it answers between rounds, or never
                break
            state = damped(state, moved, DAMPING * (1 - step / steps))
        if training_round + 1 < method.rounds:
            state = method.next_round(state, means)
    return BoostedHead(method, state, share, History(torch.stack(weights), torch.stack(accuracy)))


def check_weighs_cells(method: Method, cells: Cells) -> None:
    """Refuse methods that do more than weigh cells by their errors, and rows of one class."""
    if "fullbatch" not in method.solvers() or method.needs_loss:
        raise InputError(f"Boosted trees know methods that weigh cells by their errors only, and {method.name} does not.")
    method.check(Task(cells.counts, hidden=False))
    if int((cells.counts.sum(-1) > 0).sum()) < 2:
        raise InputError("The training rows hold one class only; a classifier needs at least two.")


def damped(old: State, new: State, damping: float) -> State:
    """Return a state on the way from one to another."""
    return {key: old[key].lerp(value, damping) if value.is_floating_point() else value for key, value in new.items()}
