"""A deliberate number of threads: independent work side by side, with one thread of the libraries each.

Threads of OpenMP, torch's and LightGBM's, wait for each other by spinning. Where other processes need the cores, every small
operation that is divided among them may wait for a time slice, and work takes ten or fifty times as long.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from fairdro._utils.progress import OnStep

Item = TypeVar("Item")
Result = TypeVar("Result")


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
    """Give a pool of threads in each of which, and in the caller, torch computes with one."""
    with torch_threads(1), ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield pool


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
