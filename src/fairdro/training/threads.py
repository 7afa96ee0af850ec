"""A deliberate number of threads: independent work side by side, with one thread of the libraries each.

Threads of OpenMP, torch's and LightGBM's, wait for each other by spinning. Where other processes need the cores, every small
operation that is divided among them may wait for a time slice, and work takes ten or fifty times as long.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from fairdro._utils.progress import OnStep

Item = TypeVar("Item")
Result = TypeVar("Result")
_own = threading.local()


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Set the number of threads torch computes with, and put back the former one at the end."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def one_thread_each(workers: int) -> Iterator[Executor]:
    """Give a pool of threads in each of which, and in the caller, torch computes with one.

    Where the caller fails or is interrupted, what has not begun is left out, and what runs ends where it asks
    :func:`end_if_in_vain`.
    """
    in_vain = threading.Event()

    def begin() -> None:
        torch.set_num_threads(1)
        _own.in_vain = in_vain

    with torch_threads(1), ThreadPoolExecutor(workers, initializer=begin) as pool:
        try:
            yield pool
        except BaseException:
            in_vain.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def end_if_in_vain() -> None:
    """End long work in a thread of a pool if nobody waits for it any more."""
    if hasattr(_own, "in_vain") and _own.in_vain.is_set():
        raise CancelledError


def in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int, *, on_step: OnStep | None = None
) -> list[Result]:
    """Return ``work(item)`` of every item, in their order, by so many threads in each of which torch computes with one.

    Work must not change warning filters, which are the whole process's. ``on_step`` is called by the caller's own thread.
    """
    done = []
    with one_thread_each(threads) as pool:
        for result in map(work, items) if min(threads, len(items)) <= 1 else pool.map(work, items):
            done.append(result)
            if on_step is not None:
                on_step(len(done), len(items))
    return done
