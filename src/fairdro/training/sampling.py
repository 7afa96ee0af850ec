"""Which samples a mini-batch holds."""

import torch
from torch import Tensor

from fairdro.cells import Cells
from fairdro.errors import InputError, unknown_name

SAMPLING = ["equal", "uniform"]


def draw_epoch(cells: Cells, batch_size: int, sampling: str, rng: torch.Generator) -> Tensor:
    """Draw the rows of one epoch, ``(batches, rows per batch)``: ``N // batch_size`` batches, at least one.

    Parameters
    ----------
    sampling : {"equal", "uniform"}
        Equal: the same number from every non-empty cell in every batch, each cell gone through in random order again and
        again (paper, Algorithm 1), so that a batch is rounded down to a multiple of the number of cells. Uniform: a shuffle.
        Soft groups are always drawn uniformly: where cells share samples, other rates would shift their means.
    """
    if sampling not in SAMPLING:
        raise unknown_name("sampling", sampling, SAMPLING)
    n = len(cells)
    batches = max(n // batch_size, 1)
    if sampling == "uniform" or cells.soft:
        size = min(batch_size, n)
        return torch.randperm(n, generator=rng)[: batches * size].view(batches, size)
    members = cells.strata.values()
    share = batch_size // len(members)
    if share == 0:
        raise InputError(f"A batch of {batch_size} cannot hold a sample of each of {len(members)} cells; enlarge it.")
    needed = batches * share
    parts = []
    for rows in members:
        rounds = [rows[torch.randperm(len(rows), generator=rng)] for _ in range(-(-needed // len(rows)))]
        parts.append(torch.cat(rounds)[:needed].view(batches, share))
    return torch.cat(parts, dim=1)
