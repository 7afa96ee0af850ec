"""Rows that are too many for memory: kept in a file, read by blocks, and shared by the processes that train together."""

import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from fairdro.training.processes import added_up, gathered_arrays, world

BYTES_AT_ONCE = 1 << 25
SPLIT_BITS = 8  # of a draw, which say whether a row is held out; the others say which samples it is in
HELD_OUT = 0.2
MOST_NUMBERS = 2**26  # in the largest sample, which is kept in memory


def draws_of(numbers: np.ndarray) -> np.ndarray:
    """Return a random draw for each of some numbers ``(N,)``, always the same one for the same number.

    By the finalizer of SplitMix64 (Steele, Lea and Flood, 2014). So which rows are held out, or in a sample, depends neither
    on the order in which they are kept nor on how processes share them.
    """
    x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(32)).astype(np.uint32)


def held_out(draws: np.ndarray) -> np.ndarray:
    """Return which rows are held out, about a fifth, by their draws ``(N,)``."""
    return (draws & (2**SPLIT_BITS - 1)) < HELD_OUT * 2**SPLIT_BITS


class RowsOnDisk:
    """Rows in an open file, numbers in C order without a header; under ``torch.distributed``, this process's share of them.

    Parameters
    ----------
    file : binary file, open for reading
    shape : tuple of int
        ``(N, D)``.
    dtype : str
        Of the numbers in the file; they are read as single precision.
    draws : ndarray of uint32, shape (N,), optional
        A random draw per row, :func:`draws_of` of its number in the table; by default, of its place.

    Attributes
    ----------
    most_numbers : int
        How many numbers of a sample of the rows may be in memory.
    """

    ndim = 2

    def __init__(
        self, file: BinaryIO, shape: tuple[int, int], dtype: str = "float32", draws: np.ndarray | None = None
    ) -> None:
        self.file, self.shape, self.dtype = file, shape, np.dtype(dtype)
        self.most_numbers = MOST_NUMBERS
        self.draws = draws_of(np.arange(shape[0])) if draws is None else draws

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return some rows ``(n, D)``, in any order; the file is gone through once, forwards."""
        if len(rows) > 1 and not bool((rows[1:] >= rows[:-1]).all()):
            order = np.argsort(rows, kind="stable")
            out = np.empty((len(rows), self.shape[1]), dtype=np.float32)
            out[order] = self[rows[order]]
            return out
        parts = [window[own] for window, own in self._windows(rows)]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty((0, self.shape[1]), np.float32), *parts])

    def _windows(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
        """Read the stretches of the file in which rows lie, and say where in each."""
        most = max(BYTES_AT_ONCE // (self.dtype.itemsize * self.shape[1]), 1)
        start = 0
        while start < len(rows):
            first = int(rows[start])
            stop = int(np.searchsorted(rows, first + most))
            end, own = int(rows[stop - 1]) + 1, rows[start:stop] - first
            whole = len(own) == end - first and bool((own[1:] > own[:-1]).all())
            yield self._read(first, end), slice(None) if whole else own
            start = stop

    def _read(self, first: int, end: int) -> np.ndarray:
        out = np.empty((end - first, self.shape[1]), dtype=self.dtype)
        view, offset = out.data.cast("B"), first * self.shape[1] * self.dtype.itemsize
        while view:
            if (read := os.preadv(self.file.fileno(), [view], offset)) == 0:
                raise OSError("The file of rows ends too early.")
            view, offset = view[read:], offset + read
        return out.astype(np.float32, copy=False)

    def moments(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance ``(D,)`` of some rows of every process, in double precision."""
        count, mean, squares = 0.0, np.zeros(self.shape[1]), np.zeros(self.shape[1])
        for window, own in self._windows(rows):
            part = window[own]
            center = part.mean(0, dtype=np.float64)
            part = part - center.astype(np.float32)
            more = np.einsum("ij,ij->j", part, part, dtype=np.float64)
            both = count + len(part)
            squares += more + (center - mean) ** 2 * (count * len(part) / both)
            mean += (center - mean) * (len(part) / both)
            count = both
        rows_of_all = total(self, torch.tensor(count))
        mean_of_all = (total(self, torch.from_numpy(count * mean)) / rows_of_all).numpy()
        squares_of_all = total(self, torch.from_numpy(squares + count * (mean - mean_of_all) ** 2))
        return mean_of_all, (squares_of_all / rows_of_all).numpy()

    def sample(self, share: float) -> np.ndarray:
        """Return the numbers of about this share of the rows; a smaller sample is part of a larger one."""
        return np.flatnonzero(self.drawn(np.arange(len(self)), share))

    def drawn(self, rows: np.ndarray, share: float | np.ndarray) -> np.ndarray:
        """Return which of some rows ``(n,)`` are in a sample of about this share, of all or by row."""
        return (self.draws[rows] >> SPLIT_BITS) < np.asarray(share) * 2.0 ** (32 - SPLIT_BITS)


class DrawnSplit:
    """A splitter as scikit-learn's: rows of a :class:`RowsOnDisk` are held out once, by :func:`held_out`."""

    def split(self, X: RowsOnDisk, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Give the rows to train on and those to hold out."""
        held = held_out(X.draws)
        yield np.flatnonzero(~held), np.flatnonzero(held)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return 1."""
        return 1


class ScaledRows:
    """Some rows on disk, scaled when they are read: ``(x - mean) / scale``."""

    def __init__(
        self, X: RowsOnDisk, rows: np.ndarray, mean: np.ndarray, scale: np.ndarray, dtype: torch.dtype = torch.float32
    ) -> None:
        self.X, self.rows, self.dtype = X, rows, dtype
        self.shift, self.inverse = torch.from_numpy(-mean / scale).to(dtype), torch.from_numpy(1 / scale).to(dtype)

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, D)``."""
        return len(self.rows), self.X.shape[1]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, places: Tensor | slice) -> Tensor:
        """Return the rows at some places, scaled."""
        return self._scaled(self._raw(places))

    def read_into(self, out: Tensor, places: Tensor) -> None:
        """Write the rows at some places, scaled, into a tensor of as many rows."""
        self._scaled(self._raw(places), out)

    def _raw(self, places: Tensor | slice) -> np.ndarray:
        return self.X[self.rows[places.numpy() if isinstance(places, Tensor) else places]]

    def _scaled(self, rows: np.ndarray, out: Tensor | None = None) -> Tensor:
        return torch.addcmul(self.shift, torch.from_numpy(rows).to(self.dtype), self.inverse, out=out)

    def drawn(self, places: Tensor, share: float) -> Tensor:
        """Return the places that are in a sample of about this share."""
        return places[torch.from_numpy(self.X.drawn(self.rows[places.numpy()], share))]


def is_shared(X: Any) -> bool:
    """Whether rows are a share of those of several processes."""
    return isinstance(X, RowsOnDisk | ScaledRows) and world() > 1


def gathered(X: Any, values: Tensor) -> Tensor:
    """Return the values ``(n, ...)`` of all processes that share the rows, one after another; each has its own n."""
    if not is_shared(X):
        return values
    return torch.cat([torch.from_numpy(part) for part in gathered_arrays(values.numpy())])


def total(X: Any, values: Tensor) -> Tensor:
    """Return the sum of what every process found on its share of the rows; of rows in memory, what was found."""
    return added_up(values) if is_shared(X) else values
