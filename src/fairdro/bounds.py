r"""Exact upper bounds of gaps between binomial rates.

Rows are independent. Given how many rows every cell ``(y, a)`` has, its successes are binomial with rate :math:`p_{y,a}`,
and cells are independent. To bound is the sum over classes of the largest gap between groups,

.. math:: \sum_y \max_{a, b} (p_{y,a} - p_{y,b}) = \max_\theta \theta, \quad \theta = \sum_y (p_{y,a_y} - p_{y,b_y}),

over all ways to pick two groups in every class.

**One way at a time.** One of these ways is the largest, whichever it is. So if :math:`U_\theta` is an upper bound of each by
itself, at the full delta, then :math:`\max_\theta U_\theta` is one of the sum: nothing is spent on the number of groups.

**Exact tests, combined.** For one way, :math:`P_c` is the exact binomial (Clopper-Pearson) test of cell c against
:math:`p_c`: the probability of so few successes in the better group, or of so many in the worse one. It is uniform or
larger, and cells are independent. So with the quantile function :math:`G_k^{-1}` of the gamma distribution of shape k
(Lancaster, 1961),

.. math:: \Pr\Big(\sum_c G_{k_c}^{-1}(1 - P_c) > G_K^{-1}(1 - \delta)\Big) \le \delta, \quad K \ge \sum_c k_c.

The shapes are :math:`k_c \propto 1 / n_c`, known before any outcome: a small cell may move most.

**The largest that is left.** The bound is the largest :math:`\theta` over all p that this inequality leaves, by Lagrange's
dual, evaluated on a grid, and enlarged by what the grid may miss:

.. math:: \min_\lambda\; \lambda G_K^{-1}(1 - \delta) + \sum_y \max_{a \ne b} (h_{y,a}(\lambda) + l_{y,b}(\lambda)),

where h is how far up a rate may go, and l minus how far down, each less :math:`\lambda` times what that costs.
"""

import math

import numpy as np
from scipy.special import betainccinv, betaincinv, gammaincc, gammainccinv, ndtr, ndtri

SHAPE = 2.0  # mean shape per cell: more is tighter where cells are alike and large, less where errors are few
POINTS, MULTIPLIERS = 128, 160  # of a cell's test, and of lambda
GRID_ERROR = 1e-4  # of a class: what a grid of so many points was seen to miss, at most, beside one of 4,096
BLOCK = 16  # counts at a time
LOWEST = -4.0  # normal score of a test below which it costs nothing


def gap_bound(right: np.ndarray, sizes: np.ndarray, delta: float) -> np.ndarray:
    """Return upper bounds ``(B,)`` of the sum over rows of the largest gap between columns, as the module says.

    Parameters
    ----------
    right : ndarray of shape (B, Y, A)
        Counted successes, of B experiments on the same rows or on as many.
    sizes : ndarray of shape (Y, A)
        Of how many; none is zero.
    delta : float
        Each bound is too small with at most this probability.
    """
    n_classes, n_groups = sizes.shape
    if n_groups < 2 or n_classes == 0:
        return np.zeros(len(right))
    scale = 2 * n_classes * SHAPE / np.sort(1 / sizes, axis=-1)[:, -2:].sum()
    budget = float(gammainccinv(2 * n_classes * SHAPE, delta))
    multipliers = np.geomspace(1e-3, 10, MULTIPLIERS) / math.sqrt(scale)
    dual = np.tile(multipliers * budget, (len(right), 1))
    for of_class, n_rows in zip(np.moveaxis(right, 1, 0), sizes, strict=True):
        better, worse = np.empty((2, len(right), MULTIPLIERS, n_groups))
        for a, n in enumerate(n_rows):
            better[..., a], worse[..., a] = _ends(of_class[:, a], n, scale / n, budget, multipliers)
        pairs = better[..., :, None] + worse[..., None, :]
        pairs[..., np.arange(n_groups), np.arange(n_groups)] = -np.inf
        dual += pairs.max((-2, -1))
    return np.clip(dual.min(1) + GRID_ERROR * n_classes, 0, n_classes)


def _ends(
    right: np.ndarray, n: float, shape: float, budget: float, multipliers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how far a cell's rate may go up, and minus how far down, less what that costs: ``(B, multipliers)`` each."""
    found, place = np.unique(right, return_inverse=True)
    score = np.linspace(LOWEST, -ndtri(gammaincc(shape, budget)), POINTS)
    tail = ndtr(-score)
    cost = gammainccinv(shape, tail)
    cost[0] = 0.0  # also of what lies below
    k, level = found[:, None], tail[None, :]
    with np.errstate(invalid="ignore", divide="ignore"):
        high = np.where(k >= n, 1.0, betainccinv(k + 1, n - k, level))
        low = np.where(k <= 0, 0.0, betaincinv(k, n - k + 1, level))
    price = multipliers[:, None] * cost
    up, down = (
        np.concatenate([(end[i : i + BLOCK, None] - price).max(2) for i in range(0, len(k), BLOCK)]) for end in (high, -low)
    )
    return up[place], down[place]


def clopper_pearson_upper(found: np.ndarray, sizes: np.ndarray, delta: float) -> np.ndarray:
    """Return the exact upper bound of every binomial rate, one-sided; 1 without rows."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(found >= sizes, 1.0, betainccinv(found + 1, sizes - found, delta))
