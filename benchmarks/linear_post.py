r"""LinearPost (Xian and Zhao, 2024), the nearest relative of a head, written anew for the gap that is measured here.

It predicts :math:`\arg\max_y \sum_a w_{y,a} p(y, a \mid x) / \pi_{y,a}` as a head does, with weights from a linear program
that trusts the probabilities: the largest expected accuracy, balanced over classes and groups, such that expected
accuracies of the groups of every class differ by a tolerance at most. The dual is solved by HiGHS,

.. math:: \min_{w, t} \frac{1}{N} \sum_i t_i + \frac{\alpha}{2} \sum_{y,a} |w_{y,a} - \tfrac{1}{YA}| \quad\text{with}\quad
    t_i \ge \sum_a w_{y,a} \frac{p(y, a \mid x_i)}{\pi_{y,a}}, \quad \sum_a w_{y,a} = \tfrac{1}{Y}.

Labels enter by calibration rounds, if at all: where a class is predicted, the mean probabilities of classes and groups are
shifted to their frequencies there, and the program is solved again.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

TOLERANCES = (0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.0)
CALIBRATED_TOLERANCES = (0.2, 0.1, 0.05, 0.02, 0.0)  # fewer, as each takes the program eleven times
MOST_ROWS = 3000  # of the program; a random sample
ROUNDS = 10


class LinearPost:
    """Weights for one tolerance.

    Parameters
    ----------
    tolerance : float
    calibrate : bool
        Whether the probabilities are calibrated to labels by :data:`ROUNDS` rounds first.
    """

    def __init__(self, tolerance: float, *, calibrate: bool = False) -> None:
        self.tolerance, self.rounds = tolerance, ROUNDS if calibrate else 0

    def fit(self, probabilities: np.ndarray, cell: np.ndarray) -> LinearPost:
        """Fit to probabilities of cells ``(N, Y, A)`` and, for calibration, codes ``y * A + a``."""
        n, *shape = probabilities.shape
        rows = np.random.default_rng(0).permutation(n)[:MOST_ROWS]
        labels = np.eye(np.prod(shape))[cell].reshape(probabilities.shape)
        self.steps: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for _ in range(self.rounds):
            share, weights = self._solve(probabilities[rows])
            decided = _decide(probabilities, share, weights)
            shift = np.zeros((shape[0], *shape))
            for y in range(shape[0]):
                if (decided == y).any():
                    shift[y] = (labels - probabilities)[decided == y].mean(0)
            self.steps.append((share, weights, shift))
            probabilities = _shifted(probabilities, shift[decided])
        self.share, self.weights = self._solve(probabilities[rows])
        return self

    def predict(self, probabilities: np.ndarray) -> np.ndarray:
        """Return class codes."""
        for share, weights, shift in self.steps:
            probabilities = _shifted(probabilities, shift[_decide(probabilities, share, weights)])
        return _decide(probabilities, self.share, self.weights)

    def _solve(self, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean probabilities and the weights ``(Y, A)``."""
        n, n_classes, n_groups = probabilities.shape
        cells, plain = n_classes * n_groups, 1 / (n_classes * n_groups)
        share = np.maximum(probabilities.mean(0), 1e-9)
        relative = probabilities / share
        cost = np.concatenate([np.full(n, 1 / n), np.full(2 * cells, self.tolerance / 2)])
        above, bound = [], []
        for y in range(n_classes):
            own = np.zeros((n, n_classes, n_groups))
            own[:, y] = relative[:, y]
            own = sparse.csr_matrix(own.reshape(n, cells))
            above.append(sparse.hstack([-sparse.eye(n), own, -own]))
            bound.append(-plain * relative[:, y].sum(1))
        of_class = np.kron(np.eye(n_classes), np.ones(n_groups))
        balanced = sparse.csr_matrix(np.hstack([np.zeros((n_classes, n)), of_class, -of_class]))
        limits = [(None, None)] * n + [(0, None)] * (2 * cells)
        found = linprog(
            cost, sparse.vstack(above).tocsr(), np.concatenate(bound), balanced, np.zeros(n_classes), limits, "highs-ipm"
        )
        if not found.success:
            raise RuntimeError(found.message)
        difference = found.x[n : n + cells] - found.x[n + cells :]
        return share, plain + difference.reshape(n_classes, n_groups)


def _decide(probabilities: np.ndarray, share: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return (probabilities * (weights / share)).sum(2).argmax(1)


def _shifted(probabilities: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return probabilities moved by a shift, none negative, every row summing to one."""
    moved = np.maximum(probabilities + shift, 0)
    return moved / moved.sum((1, 2), keepdims=True)
