"""Several processes that train together under ``torch.distributed``; alone, a process is all of them."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor

__all__ = ["added_up", "rank", "world"]


def world() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if world() > 1 else 0


def added_up(values: Tensor) -> Tensor:
    """Return the sum over all processes."""
    if world() == 1:
        return values
    total = values.clone()
    dist.all_reduce(total)
    return total
