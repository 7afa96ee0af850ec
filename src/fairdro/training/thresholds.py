"""A head that reads the probabilities of the classes alone, and infers no group."""

import time
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fairdro.cells import Cells
from fairdro.methods import CellMeans, FairDRO, Task
from fairdro.training.calibration import some_rows
from fairdro.training.controller import History
from fairdro.training.head import Head
from fairdro.training.trained import check_two_classes

THRESHOLDS = 2000  # tried for a class
SWEEPS = 20


def fit_thresholds(probabilities: np.ndarray, cells: Cells, method: FairDRO) -> Head:
    r"""Fit a head that reads the probabilities of the classes alone, and infers no group.

    It predicts the class with the largest :math:`u_y\, p(y \mid x)`; the multipliers :math:`u` are those with the smallest
    robust error :math:`\frac{1}{|Y|} \sum_y \max_{q \in Q_\rho} \sum_a q_a e_{y,a}` (plus what the standard objective
    adds), searched for one class after the other until none gains.

    Parameters
    ----------
    probabilities : ndarray of shape (N, Y, 1)
        Of the classes, by a model that was not trained on the row.
    cells : Cells
    method : FairDRO
        All its points at once.
    """
    check_two_classes(cells.counts)
    start = time.perf_counter()
    p_class = probabilities[:, :, 0]
    share = torch.from_numpy(np.average(p_class, axis=0, weights=cells.sample_weight))
    logs = torch.from_numpy(np.log(np.maximum(p_class, 1e-12))) - share.clamp(min=1e-12).log()
    radii = np.atleast_1d(method.rho)
    found, errors = zip(*(_search(logs, cells, replace(method, rho=float(rho), softness=0.0)) for rho in radii), strict=True)
    weights = torch.stack(found).softmax(-1)[None, :, :, None]
    history = History(weights[None].expand(1, -1, -1, -1, cells.n_groups), 1 - torch.stack(errors)[None, None])
    seconds, sound = time.perf_counter() - start, torch.zeros(1, len(radii), dtype=torch.bool)
    return Head(weights=weights, share=share[:, None], converged=~sound, history=history, diverged=sound, seconds=seconds)


def _search(logs: Tensor, cells: Cells, method: FairDRO) -> tuple[Tensor, Tensor]:
    """Return the logarithms of the multipliers ``(Y,)`` with the smallest robust error, and the errors ``(Y, A)``."""
    n_classes, state = cells.n_classes, method.begin(Task(cells.counts))
    shift, least, best = torch.zeros(n_classes, dtype=torch.float64), torch.inf, torch.zeros(n_classes, cells.n_groups)
    for _ in range(SWEEPS if n_classes > 2 else 1):
        before = float(least)
        for k in range(1, n_classes):  # only ratios count
            others = logs + shift
            others[:, k] = -torch.inf
            rival, other = others.max(1)
            needed = rival - logs[:, k]  # the shift above which a row is predicted as k
            bounds = torch.quantile(
                needed[some_rows(len(needed))], torch.linspace(0, 1, THRESHOLDS, dtype=torch.float64)
            ).unique()
            place = torch.searchsorted(bounds, needed)  # predicted as k from this bound on
            own = cells.y == k
            error = _step_errors(place, own, other != cells.y, cells, len(bounds))
            worst = method.costed_weights(method.update(state, CellMeans(error), 0.0))  # the best response itself
            robust = (worst * error).nansum((-1, -2))
            if float(robust.min()) < least:
                i = int(robust.argmin())
                least, best, shift[k] = float(robust[i]), error[i], float(bounds[i]) + 1e-9
        if before - float(least) < 1e-6:
            break
    return shift, best


def _step_errors(place: Tensor, own: Tensor, wrong_below: Tensor, cells: Cells, n: int) -> Tensor:
    """Return the errors of the cells ``(n, Y, A)`` at n bounds of a class.

    Its own rows are wrong below their place and right from there on; other rows are wrong from there on, and below where
    ``wrong_below``.
    """
    onset = torch.where(own, -1.0, 1.0 - wrong_below.double())
    changes = torch.zeros(n + 1, cells.n_classes * cells.n_groups, dtype=torch.float64)
    changes.index_add_(0, place.clamp(max=n), cells.indicator.double() * onset[:, None])
    start = cells.totals(torch.where(own, 1.0, wrong_below.double())).sums
    total = start.flatten() + changes[:-1].cumsum(0)
    return total.unflatten(-1, start.shape) / cells.counts.where(cells.counts > 0, torch.nan)
