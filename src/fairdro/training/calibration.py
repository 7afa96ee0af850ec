"""Probabilities of cells made right on held-out rows, by a temperature of the class and one of the group."""

import numpy as np
import torch
from torch import Tensor

from fairdro.cells import Cells

LEAST = 1e-6  # below, a probability is as good as zero
WARMEST, NEWTON_STEPS = 20.0, 30
MOST_ROWS = 100_000  # that say what the temperatures, or the thresholds of a head, are


def calibrated(probabilities: np.ndarray, temperatures: np.ndarray) -> np.ndarray:
    r"""Return probabilities of cells ``(N, Y, A)`` at other temperatures of the class and of the group given the class.

    .. math:: p'(y, a \mid x) \propto p(y \mid x)^{1/T_1}\; p(a \mid x, y)^{1/T_2},

    each factor normalised by itself.
    """
    if (temperatures == 1).all():
        return probabilities
    of_class, of_group = _factors(probabilities)
    return _warmed(of_class, temperatures[0])[:, :, None] * _warmed(of_group, temperatures[1])


def _factors(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the logarithms of the probabilities of classes ``(N, Y)`` and of groups given the class ``(N, Y, A)``."""
    of_class = probabilities.sum(-1)
    of_group = probabilities / np.maximum(of_class, LEAST**2)[:, :, None]
    return np.log(np.maximum(of_class, LEAST)), np.log(np.maximum(of_group, LEAST))


def _warmed(logs: np.ndarray, temperature: float) -> np.ndarray:
    return torch.from_numpy(logs / temperature).softmax(-1).numpy()


def fit_temperatures(probabilities: np.ndarray, cells: Cells) -> np.ndarray:
    """Return the temperatures of class and group with the smallest log-loss."""
    rows = some_rows(len(cells))
    some, place = cells.take(rows), np.arange(len(rows))
    of_class, of_group = _factors(probabilities[rows.numpy()])
    y, weight = some.y.numpy(), np.ones(len(rows)) if some.sample_weight is None else some.sample_weight.double().numpy()
    of_classes = np.zeros_like(of_class)
    of_classes[place, y] = weight
    of_groups = some.membership.double().numpy() * weight[:, None]
    return np.array([_temperature(of_class, of_classes), _temperature(of_group[place, y], of_groups)])


def some_rows(n: int) -> Tensor:
    """Return the numbers of :data:`MOST_ROWS` rows at most, evenly spread."""
    return torch.linspace(0, n - 1, min(n, MOST_ROWS), dtype=torch.float64).long()


def _temperature(logs: np.ndarray, target: np.ndarray) -> float:
    """Return the temperature of the smallest log-loss, which is convex in its inverse, by Newton's method."""
    inverse, weight = 1.0, target.sum(1)
    for _ in range(NEWTON_STEPS):
        p = _warmed(logs, 1 / inverse)
        mean = (p * logs).sum(1)
        gradient = float((target * logs).sum() - weight @ mean)
        hessian = float(weight @ ((p * logs**2).sum(1) - mean**2))
        before = inverse
        if hessian > 0:
            inverse = float(np.clip(inverse + gradient / hessian, max(inverse / 4, 1 / WARMEST), min(inverse * 4, WARMEST)))
        if abs(inverse - before) < 1e-4 * before:
            break
    return 1 / inverse
