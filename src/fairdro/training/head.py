r"""A head on probabilities of class and group that serves groups alike, by any method that weighs cells.

The classifier that minimises the weighted errors of the cells is known without training,

.. math:: \hat y(x) = \arg\max_y \sum_a \frac{w_{y,a}}{\pi_{y,a}}\, p(y, a \mid x),

with :math:`\pi` the means of :math:`p(y, a \mid x)` over the data, so that every cell counts the same even where a model has
not learned yet how frequent it is. The method responds to its errors; what is fitted is :math:`w` alone.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.methods import CellMeans, Method, Task
from fairdro.training.controller import Controller
from fairdro.training.trained import Trained, check_two_classes, mistaken, most_likely

DAMPING = 0.3
STEPS = 100


@dataclass(frozen=True, kw_only=True)
class Head(Trained):
    """Weights by which probabilities of cells become predictions, for P points.

    Attributes
    ----------
    share : Tensor of shape (Y, A)
        The mean probabilities of the cells; zero for those without rows.
    """

    share: Tensor

    def predict(self, X: np.ndarray) -> Tensor:
        """Return class codes ``(1, P, N)``, given the probabilities of cells ``(N, Y, A)``."""
        return most_likely(class_scores(X, self.share, self.weights[0]))[None]


def class_scores(probabilities: np.ndarray, share: Tensor, weights: Tensor) -> Tensor:
    """Return the score of every class ``(P, N, Y)``: probabilities of cells ``(N, Y, A)`` by weights ``(P, Y, A)``."""
    return _weighted(_relative(probabilities, share), weights)


def _relative(probabilities: np.ndarray, share: Tensor) -> Tensor:
    """Return the probabilities of the cells over their shares ``(Y, A, N)``, zero for cells without rows."""
    inverse = torch.where(share > 0, 1 / share.clamp(min=1e-12), 0)
    return (torch.from_numpy(probabilities) * inverse).float().permute(1, 2, 0).contiguous()


def _weighted(relative: Tensor, weights: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the weighted sums over groups ``(P, N, Y)``, a view of ``(Y, P, N)``."""
    return torch.bmm(weights.float().transpose(0, 1), relative, out=out).permute(1, 2, 0)


def head_refusal(method: Method) -> str | None:
    """Say why a head, or boosted trees, cannot be trained by a method, if so."""
    if not method.weighs_cells() or method.needs_loss:
        return f"Boosted trees know methods that weigh cells by their errors only, and {method.name} does not; leave it out."
    return None


def fit_head(probabilities: np.ndarray, cells: Cells, method: Method, *, steps: int = STEPS) -> Head:
    """Let a method respond to the errors of the best classifier under its weights, until both converge.

    Parameters
    ----------
    probabilities : ndarray of shape (N, Y, A)
        Of cells, by models that were not trained on the row.
    cells : Cells
        Of the same rows.
    method : Method
        All its points at once.
    steps : int
        The method's own step is damped to 0.3 of it, falling to nothing.
    """
    if (refusal := head_refusal(method)) is not None:
        raise InputError(refusal)
    check_two_classes(cells.counts)
    if len(probabilities) != len(cells):
        raise InputError(f"There are probabilities of {len(probabilities)} rows, but {len(cells)} labels.")
    start = time.perf_counter()
    share = torch.from_numpy(np.average(probabilities, axis=0, weights=cells.sample_weight)).where(cells.counts > 0, 0)
    relative = _relative(probabilities, share)
    scores = relative.new_empty(cells.n_classes, method.points, len(cells))
    wrong = relative.new_empty(method.points, len(cells))
    controller = Controller(method, Task(cells.counts, (1, method.points), hidden=False), steps)
    for _ in controller.rounds():
        for step in controller.steps():
            mistaken(_weighted(relative, controller.weights[0], out=scores), cells.y, out=wrong)
            means = CellMeans(cells.means(wrong).double()[None])
            if not controller.update(means, damping=DAMPING * (1 - step / steps)):
                break  # it responds between rounds, or never
    seconds, sound = time.perf_counter() - start, torch.zeros(1, method.points, dtype=torch.bool)
    return Head(share=share, diverged=sound, seconds=seconds, **controller.results())
