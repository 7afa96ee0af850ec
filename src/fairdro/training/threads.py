"""A deliberate number of threads: small products run slower, sometimes much slower, on several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["torch_threads"]


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Set the number of threads torch computes with, and put back the former one at the end."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
