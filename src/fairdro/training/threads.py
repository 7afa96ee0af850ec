"""A deliberate number of threads: small products run slower, sometimes much slower, on several of torch's own."""

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

import torch


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
