"""Several processes that train together under ``torch.distributed``; alone, a process is all of them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor


@contextmanager
def processes() -> Iterator[None]:
    """Join the other processes if this one was started by ``torchrun``, and leave them at the end."""
    started = "TORCHELASTIC_RUN_ID" in os.environ and not dist.is_initialized()
    if started:
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield
    finally:
        if started:
            dist.destroy_process_group()


def world() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if world() > 1 else 0


def gathered(values: Tensor) -> Tensor:
    """Return the rows of all processes, of which there are equally many; gradients flow to this process's own."""
    parts = [torch.empty_like(values) for _ in range(world())]
    dist.all_gather(parts, values.detach().contiguous())
    parts[rank()] = values
    return torch.cat(parts)


def added_up(values: Tensor) -> Tensor:
    """Return the sum over all processes."""
    if world() == 1:
        return values
    total = values.clone()
    dist.all_reduce(total)
    return total
