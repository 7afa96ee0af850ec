"""Which samples a mini-batch holds."""

from __future__ import annotations

import torch
from torch import Tensor

from fairdro.cells import Cells
from fairdro.errors import InputError, unknown_name

__all__ = ["SAMPLING", "draw_epoch"]

SAMPLING = ["equal", "weighted", "uniform"]


def draw_epoch(cells: Cells, batch_size: int, sampling: str, rng: torch.Generator) -> Tensor:
    """Draw the batches of one epoch.

    Parameters
    ----------
    cells : Cells
    batch_size : int
    sampling : {"equal", "weighted", "uniform"}
        Equal: the same number from every non-empty cell in every batch, each cell gone through in random order again and
        again (paper, Algorithm 1). Weighted: with replacement, every cell equally likely (the authors' code). Uniform: a
        shuffle. Soft groups are always drawn uniformly: where cells share samples, other rates would shift their means.
    rng : torch.Generator

    Returns
    -------
    Tensor of int64, shape (batches, rows per batch)
        ``N // batch_size`` batches, at least one. With equal sampling a batch has ``batch_size`` rows rounded down to a
        multiple of the number of cells.
    """
    n = len(cells)
    batches = max(n // batch_size, 1)
    if sampling not in SAMPLING:
        raise unknown_name("sampling", sampling, SAMPLING)
    if sampling == "uniform" or cells.soft:
        rows = min(batch_size, n)
        return torch.randperm(n, generator=rng)[: batches * rows].view(batches, rows)
    cell = cells.y * cells.n_groups + cells.groups
    if sampling == "weighted":
        return _weighted(cell, (batches, batch_size), rng)
    return _equal(cell, batches, batch_size, rng)


def _weighted(cell: Tensor, shape: tuple[int, int], rng: torch.Generator) -> Tensor:
    cumulative = (1 / cell.bincount().double())[cell].cumsum(0)
    draws = torch.rand(shape, generator=rng, dtype=torch.float64) * cumulative[-1]
    return torch.searchsorted(cumulative, draws, right=True).clamp(max=len(cell) - 1)


def _equal(cell: Tensor, batches: int, batch_size: int, rng: torch.Generator) -> Tensor:
    members = cell.argsort(stable=True).split(cell.unique(return_counts=True)[1].tolist())
    share = batch_size // len(members)
    if share == 0:
        raise InputError(f"A batch of {batch_size} cannot hold a sample of each of {len(members)} cells; enlarge it.")
    parts = []
    for rows in members:
        needed = batches * share
        rounds = [rows[torch.randperm(len(rows), generator=rng)] for _ in range(-(-needed // len(rows)))]
        parts.append(torch.cat(rounds)[:needed].view(batches, share))
    return torch.cat(parts, dim=1)
