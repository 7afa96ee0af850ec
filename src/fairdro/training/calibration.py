"""Probabilities made right on held-out rows: of cells by two temperatures, of classes by a temperature and offsets."""

import numpy as np
import torch
from torch import Tensor

from fairdro.cells import Cells
from fairdro.training.threads import torch_threads

LEAST = 1e-6  # below, a probability is as good as zero
WARMEST, NEWTON_STEPS = 20.0, 30
PARTS = 21
FEWEST_ROWS = 100  # by which probabilities of classes are calibrated
PRIOR = 1.0  # rows that speak for probabilities as they are
MOST_ROWS = 100_000  # that say what the temperatures, or the thresholds of a head, are


def calibrated(probabilities: np.ndarray, temperatures: np.ndarray) -> np.ndarray:
    r"""Return probabilities of cells ``(N, Y, A)`` at other temperatures of the class and of the group given the class.

    .. math:: p'(y, a \mid x) \propto p(y \mid x)^{1/T_1}\; p(a \mid x, y)^{1/T_2},

    each factor normalised by itself.
    """
    if (temperatures == 1).all():
        return probabilities
    of_class, of_group = _factors(probabilities)
    return _softmax(of_class / temperatures[0])[:, :, None] * _softmax(of_group / temperatures[1])


def _factors(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the logarithms of the probabilities of classes ``(N, Y)`` and of groups given the class ``(N, Y, A)``."""
    of_class = probabilities.sum(-1)
    of_group = probabilities / np.maximum(of_class, LEAST**2)[:, :, None]
    return logarithms(of_class), logarithms(of_group)


def logarithms(probabilities: np.ndarray) -> np.ndarray:
    """Return the logarithms of probabilities, none below that of one in a million."""
    return np.log(np.maximum(probabilities, LEAST))


def _softmax(logs: np.ndarray) -> np.ndarray:
    return torch.from_numpy(logs).softmax(-1).numpy()


def fit_temperatures(probabilities: np.ndarray, cells: Cells) -> np.ndarray:
    """Return the temperatures of class and group with the smallest log-loss."""
    rows = some_rows(len(cells))
    some, place = cells.take(rows), np.arange(len(rows))
    of_class, of_group = _factors(probabilities[rows.numpy()])
    of_groups = some.membership.double().numpy() * _weight(some)[:, None]
    inverse = [fit_scaling(of_class, _class_target(some), offsets=False)[0],
               fit_scaling(of_group[place, some.y.numpy()], of_groups, offsets=False)[0]]  # fmt: skip
    return 1 / np.array(inverse)


@torch_threads(1)
def fit_class_scaling(logs: np.ndarray, cells: Cells) -> np.ndarray:
    """Return a scaling of the classes' log-probabilities or logits ``(N, Y)``, as :func:`scale` takes it.

    Nothing, a temperature, or a temperature and offsets, whichever the rows speak for by Schwarz's criterion; fewer than
    :data:`FEWEST_ROWS` speak for nothing. It goes as far from leaving them as they are as the Brier score falls: a few rows
    that are predicted with far too much certainty move the log-loss, but say little of the others.
    """
    rows = some_rows(len(cells))
    start = np.eye(1, 1 + logs.shape[1])[0]
    if len(rows) < FEWEST_ROWS:
        return start
    logs, target = logs[rows.numpy()], _class_target(cells.take(rows))
    fitted = [(0, start), (1, fit_scaling(logs, target, offsets=False)), (logs.shape[1], fit_scaling(logs, target))]
    _, best = min(fitted, key=lambda one: _log_loss(logs, target, one[1]) + one[0] / 2 * np.log(len(rows)))
    tried = [start + part * (best - start) for part in np.linspace(0, 1, PARTS)]
    weight = target.sum(1, keepdims=True)
    return min(tried, key=lambda scaling: float((weight * (scale(logs, scaling) - (target > 0)) ** 2).sum()))


def _class_target(cells: Cells) -> np.ndarray:
    """Return the weight of every row in the column of its class ``(N, Y)``."""
    target = np.zeros((len(cells), cells.n_classes))
    target[np.arange(len(cells)), cells.y.numpy()] = _weight(cells)
    return target


def _weight(cells: Cells) -> np.ndarray:
    return np.ones(len(cells)) if cells.sample_weight is None else cells.sample_weight.double().numpy()


def some_rows(n: int) -> Tensor:
    """Return the numbers of :data:`MOST_ROWS` rows at most, evenly spread."""
    return torch.linspace(0, n - 1, min(n, MOST_ROWS), dtype=torch.float64).long()


def scale(logs: np.ndarray, scaling: np.ndarray) -> np.ndarray:
    r"""Return the probabilities :math:`\propto \exp(\beta\, l_k + b_k)` of logarithms or logits ``(N, K)``.

    ``scaling`` holds :math:`\beta` and :math:`b` ``(1 + K,)``.
    """
    return _softmax(scaling[0] * logs + scaling[1:])


@torch_threads(1)
def fit_scaling(logs: np.ndarray, target: np.ndarray, *, offsets: bool = True) -> np.ndarray:
    r"""Return the inverse temperature and the offsets of the smallest log-loss ``(1 + K,)``, by Newton's method.

    With two columns that is Platt's scaling; it is convex. A weak prior, of as much weight as a row, speaks for leaving
    probabilities as they are.

    Parameters
    ----------
    logs : ndarray of shape (N, K)
        Logarithms of probabilities, or logits.
    target : ndarray of shape (N, K)
        What is true, times the weight of the row.
    offsets : bool
        Whether to fit them; otherwise they are zero.
    """
    free, weight = 1 + offsets * logs.shape[1], target.sum(1)
    start = np.eye(1, 1 + logs.shape[1])[0]
    found, loss = start, _log_loss(logs, target, start)
    for _ in range(NEWTON_STEPS):
        gradient, hessian = _derivatives(logs, target, weight, found)
        gradient, hessian = gradient + PRIOR * (found - start), hessian + PRIOR * np.eye(len(found))
        move = np.zeros_like(found)
        move[:free] = np.linalg.solve(hessian[:free, :free], gradient[:free])
        size, before = 1.0, loss
        while size > 1e-6:
            tried = found - size * move
            tried[0] = np.clip(tried[0], 1 / WARMEST, WARMEST)
            loss = _log_loss(logs, target, tried) + PRIOR / 2 * float(((tried - start) ** 2).sum())
            if loss <= before:
                break
            size /= 2
        else:
            break
        found = tried
        if before - loss < 1e-9 * max(before, 1.0):
            break
    return found


def _log_loss(logs: np.ndarray, target: np.ndarray, scaling: np.ndarray) -> float:
    scores = torch.from_numpy(scaling[0] * logs + scaling[1:])
    return -float((scores.log_softmax(-1) * torch.from_numpy(target)).sum())


def _derivatives(
    logs: np.ndarray, target: np.ndarray, weight: np.ndarray, scaling: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return gradient and hessian of the log-loss by the inverse temperature and the offsets."""
    p = scale(logs, scaling)
    mean, counted = (p * logs).sum(1), weight[:, None] * p
    gradient = np.append((counted * logs).sum() - (target * logs).sum(), (counted - target).sum(0))
    hessian = np.empty((len(scaling), len(scaling)))
    hessian[0, 0] = (weight * ((p * logs**2).sum(1) - mean**2)).sum()
    hessian[0, 1:] = hessian[1:, 0] = (counted * (logs - mean[:, None])).sum(0)
    hessian[1:, 1:] = np.diag(counted.sum(0)) - (torch.from_numpy(counted).T @ torch.from_numpy(p)).numpy()
    return gradient, hessian
