"""Rows of one cell each in blocks, in memory or read from a file when they are looked at, and samples of them that grow."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fairdro.cells import Cells
from fairdro.training.rows import ScaledRows, total

SHARDS = 8  # always this many partial sums, added in order: the number of threads changes no result

# Kernels round the last few numbers of an array in another way than the rest. Blocks are therefore padded with zeros.
ROW_MULTIPLE, FEATURE_MULTIPLE = 4, 4

# Of rows on disk: from which part of the steps on a sample is taken, as a share of the largest, and from when on all rows.
GROWTH = ((0.0, 1 / 16), (0.5, 1 / 4), (0.75, 1.0))
ALL_ROWS = 0.9
FEWEST_PER_CELL, ROWS_PER_FEATURE = 1024, 10  # that a sample needs to be of use
MOST_PER_CELL = 2**17  # the standard error of an accuracy is then 0.14 points at most


def padded(size: int, multiple: int) -> int:
    """Return the next multiple."""
    return -(-size // multiple) * multiple


@dataclass(frozen=True)
class Block:
    """Rows of one class.

    Attributes
    ----------
    read : callable
        Returns the rows ``(n, D + 1)``, with a column of ones.
    y : int
        Their class.
    judge : int
        The copy of the models whose errors count.
    shares : list of (int, Tensor)
        The block's cells, and how much each row counts in them.
    whole : bool
        Whether every row counts as one in the block's one cell.
    """

    read: Callable[[], Tensor]
    y: int
    judge: int
    shares: list[tuple[int, Tensor]]
    whole: bool


def blocks_of(X: Tensor | ScaledRows, cells: Cells, judge: Tensor, most: int) -> list[Block]:
    """Sort rows by cell, or by class where groups are soft, and by fold, and cut them into blocks of at most so many."""
    groups_per_stratum = cells.n_groups if cells.soft else 1
    whole = not cells.soft and cells.sample_weight is None
    blocks = []
    parts = [(stratum, copy, rows[judge[rows] == copy]) for stratum, rows in cells.strata.items() for copy in judge.unique()]
    pieces = [(stratum, int(copy), piece) for stratum, copy, rows in parts for piece in rows.split(most) if len(piece) > 0]
    for stratum, copy, rows in pieces:
        first, n = stratum * groups_per_stratum, len(rows)
        read = partial(_read, X, rows)
        if isinstance(X, Tensor):
            read = partial(_same, read())
        shares = torch.zeros(groups_per_stratum, padded(n, ROW_MULTIPLE), dtype=X.dtype)
        shares[:, :n] = 1 if whole else cells.indicator[rows, first : first + groups_per_stratum].T
        blocks.append(Block(read, first // cells.n_groups, copy, list(enumerate(shares, start=first)), whole))
    return blocks


def _read(X: Tensor | ScaledRows, rows: Tensor) -> Tensor:
    n, d = len(rows), X.shape[1]
    features = torch.empty(padded(n, ROW_MULTIPLE), padded(d + 1, FEATURE_MULTIPLE), dtype=X.dtype)
    features[n:], features[:, d + 1 :], features[:n, d] = 0, 0, 1
    if isinstance(X, ScaledRows):
        X.read_into(features[:n, :d], rows)
    else:
        features[:n, :d] = X[rows]
    return features


def _same(features: Tensor) -> Tensor:
    return features


@dataclass(frozen=True)
class Pass:
    """What a step goes through: shards of blocks by thread, and how many rows of every cell each copy learns from."""

    portions: list[list[list[Block]]]
    counts: Tensor

    @classmethod
    def over(cls, blocks: list[Block], counts: Tensor, threads: int) -> "Pass":
        """Divide blocks into shards, and these, in their order, among threads."""
        shards = [blocks[i::SHARDS] for i in range(min(SHARDS, len(blocks)))] or [[]]
        number = threads if len(blocks) >= SHARDS else 1
        bounds = [round(i * len(shards) / number) for i in range(number + 1)]
        return cls([shards[i:j] for i, j in itertools.pairwise(bounds) if i < j], counts)


def growing_samples(X: ScaledRows, cells: Cells, counts: Tensor) -> tuple[list[tuple[float, Tensor]], float]:
    """Return samples of rows, from which part of the steps on each is gone through, and from which all rows are.

    A sample holds about equally many rows of every cell, and all of a cell that has no more; none is larger than half of
    all rows, or too small to learn from. ``counts`` are of all processes.
    """
    largest = min(MOST_PER_CELL, X.X.most_numbers // (X.shape[1] * counts.numel()))
    fewest = max(FEWEST_PER_CELL, ROWS_PER_FEATURE * X.shape[1] / counts.numel())
    samples: list[tuple[float, Tensor]] = []
    begin = 0.0
    for start, part in GROWTH:
        begin = start if samples else 0.0
        if largest * part < fewest:
            continue
        shares = (largest * part / counts.flatten()).tolist()
        rows = torch.cat([X.drawn(of_cell, shares[k]) for k, of_cell in cells.strata.items()])
        if 2 * float(total(X, torch.tensor(float(len(rows))))) > float(counts.sum()):
            return samples, begin
        samples.append((begin, rows.sort().values))
    return samples, ALL_ROWS if samples else 0.0
