"""Several processes that train together under ``torch.distributed``; alone, a process is all of them."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from fairdro.errors import InputError

T = TypeVar("T")
LONGEST = timedelta(days=7)  # that a process may read longer than another; one that has ended is noticed at once
PATIENCE = timedelta(seconds=10)  # with the first, until it has said why all end


class LostProcessError(InputError):
    """Another process has ended, or this one was told to."""

    def __init__(self) -> None:
        super().__init__("The processes that train together end, as one of them has ended or was told to.")


@contextmanager
def processes() -> Iterator[None]:
    """Join the other processes if this one was started by ``torchrun``, and leave them at the end."""
    started = "TORCHELASTIC_RUN_ID" in os.environ and not dist.is_initialized()
    if started:
        signal.signal(signal.SIGTERM, _end)  # which torchrun sends when another process has ended
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=LONGEST)
    try:
        yield
    except InputError:
        if started:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # there is a sentence to say
        raise
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
    with _all_there():
        dist.all_gather(parts, values.detach().contiguous())
    parts[rank()] = values
    return torch.cat(parts)


def added_up(values: Tensor) -> Tensor:
    """Return the sum over all processes."""
    if world() == 1:
        return values
    total = values.clone()
    with _all_there():
        dist.all_reduce(total)
    return total


def gathered_arrays(values: np.ndarray) -> list[np.ndarray]:
    """Return an array ``(N, ...)`` of every process, each with its own number of rows."""
    if world() == 1:
        return [values]
    own = torch.from_numpy(np.ascontiguousarray(values).copy())
    lengths = [torch.empty(1, dtype=torch.int64) for _ in range(world())]
    with _all_there():
        dist.all_gather(lengths, torch.tensor([len(own)]))
        longest = max(int(length) for length in lengths)
        padded = torch.cat([own, own.new_zeros(longest - len(own), *own.shape[1:])])
        parts = [torch.empty_like(padded) for _ in range(world())]
        dist.all_gather(parts, padded)
    return [part[: int(length)].numpy() for part, length in zip(parts, lengths, strict=True)]


def gathered_text(text: str) -> list[str]:
    """Return a text of every process."""
    return [part.tobytes().decode() for part in gathered_arrays(np.frombuffer(text.encode(), dtype=np.uint8))]


def agreed(work: Callable[[], T]) -> T:
    """Do this process's share of some work; where that of one is refused, all refuse it by the same sentence."""
    if world() == 1:
        return work()
    refused, done = "", None
    try:
        done = work()
    except InputError as error:
        refused = str(error)
    if refusals := [text for text in gathered_text(refused) if text]:
        raise InputError(refusals[0])
    return done  # type: ignore[return-value] # there is no refusal, so it is what was done


def first_says(say: Callable[[], object]) -> None:
    """Let the first process say something, and the others wait for that: torchrun ends all as soon as one ends."""
    store = dist.distributed_c10d._get_default_store()
    if rank() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say()
        store.set("said", "")
    else:
        with suppress(RuntimeError):  # it takes too long, or has ended
            store.wait(["said"], PATIENCE)


@contextmanager
def _all_there() -> Iterator[None]:
    """Say in a sentence that another process has ended."""
    try:
        yield
    except RuntimeError as error:
        raise LostProcessError from error


def _end(*_: object) -> None:
    raise LostProcessError
