"""What a dataset of images or texts is: inputs for a network, with classes, groups and parts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fairdro._utils.files import read_table
from fairdro._utils.seeding import generator
from fairdro.cells import Cells
from fairdro.data.base import PARTS, four_fifths
from fairdro.errors import InputError, unknown_name
from fairdro.groups import Groups, encode_groups, encode_labels
from fairdro.training.inputs import Inputs, in_order

SPLIT = "split"


@dataclass(frozen=True)
class Subset:
    """Some rows of inputs."""

    inputs: Inputs
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, rows: Tensor, rng: torch.Generator | None = None) -> Any:
        """Return the inputs of some of these rows."""
        return self.inputs.batch(self.rows[rows], rng)

    def in_order(self, rows: Tensor) -> Tensor:
        """Return some of these rows in the order that is cheapest to go through."""
        place = torch.empty(len(self.inputs), dtype=torch.int64)
        place[self.rows[rows]] = rows
        return place[in_order(self.inputs, self.rows[rows])]


@dataclass(frozen=True)
class Examples:
    """Images or texts with classes and groups.

    Attributes
    ----------
    name : str
        Of the dataset.
    inputs : Inputs
        Of all samples: what a network reads, by ``len(inputs)`` and ``inputs.batch(rows)``.
    y, groups, class_names, parts, card
        As a :class:`Dataset` has them.

    See Also
    --------
    fairdro.load_dataset : Loads those of images and texts.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from fairdro.data import Examples
    >>> from fairdro.groups import Groups
    >>> class Rows:
    ...     def __init__(self, x):
    ...         self.x = x
    ...     def __len__(self):
    ...         return len(self.x)
    ...     def batch(self, rows, rng=None):
    ...         return self.x[rows]
    >>> parts = {"train": np.arange(80), "test": np.arange(80, 100)}
    >>> groups = Groups(np.arange(100) // 2 % 2, ["f", "m"])
    >>> examples = Examples("made", Rows(torch.randn(100, 3)), np.arange(100) % 2, groups, ["no", "yes"], parts, card="")
    >>> inputs, cells = examples.part("test")
    >>> len(inputs), cells.counts.tolist()
    (20, [[5.0, 5.0], [5.0, 5.0]])
    >>> len(examples.with_validation().parts["validation"])
    16
    """

    name: str
    inputs: Inputs
    y: np.ndarray
    groups: Groups
    class_names: list[str]
    parts: dict[str, np.ndarray]
    card: str

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def cells(self) -> Cells:
        """Class and group of every sample."""
        return Cells.from_labels(self.y, self.groups, n_classes=len(self.class_names))

    def part(self, name: str) -> tuple[Subset, Cells]:
        """Return the inputs and cells of a part.

        Parameters
        ----------
        name : str
            ``train``, ``validation`` or ``test``.

        Returns
        -------
        inputs : Inputs
            Of its rows.
        cells : Cells
            Their classes and groups.
        """
        if name not in self.parts:
            raise unknown_name(f"part of {self.name}", name, list(self.parts))
        rows = self.parts[name]
        cells = Cells.from_labels(self.y[rows], self.groups.take(rows), n_classes=len(self.class_names))
        return Subset(self.inputs, torch.as_tensor(rows)), cells

    def with_validation(self) -> Self:
        """Return the same with a validation part: if there is none, a random fifth of the training rows, always the same."""
        if "validation" in self.parts:
            return self
        train = self.parts["train"]
        order = torch.randperm(len(train), generator=generator(0, "validation")).numpy()
        kept, held = (train[np.sort(rows)] for rows in four_fifths(order))
        return replace(self, parts={"train": kept, "validation": held, "test": self.parts["test"]})


@dataclass(frozen=True)
class Listed:
    """What a table of one's own says of its samples: what they are, a path or a text, their classes, groups and parts."""

    samples: list[Any]
    y: np.ndarray
    groups: Groups
    class_names: list[str]
    parts: dict[str, np.ndarray]

    @property
    def sizes(self) -> str:
        """How many samples every part has."""
        return ", ".join(f"{len(rows):,} {part}" for part, rows in self.parts.items())


def read_list(path: Path, *, sample: str, label: str, group: str | Sequence[str], split: str) -> Listed:
    """Read a table in CSV or Parquet with a row per sample, given the names of its columns; ``split`` may be missing."""
    table = read_table(path)
    columns = [group] if isinstance(group, str) else list(dict.fromkeys(group))
    if not columns:
        raise InputError(f"Name at least one column of {path} for the groups.")
    for column in [sample, label, *columns, *([] if split == SPLIT else [split])]:
        if column not in table.column_names:
            raise InputError(f"There is no column {column!r} in {path}; it has: {', '.join(table.column_names[:20])}.")
    frame = table.select(list(dict.fromkeys([label, *columns]))).to_pandas()
    y, labels = encode_labels(frame[label].to_numpy(), f"The column {label!r}")
    if len(labels) < 2:
        raise InputError(f"The column {label!r} has one value only; there is nothing to predict.")
    groups = encode_groups(pd.DataFrame({column: frame[column].to_numpy() for column in columns}))
    named = split in table.column_names
    parts = _named_parts(table[split].to_pylist(), split) if named else _random_parts(len(y))
    return Listed(table[sample].to_pylist(), y, groups, [str(name) for name in labels], parts)


def _named_parts(values: list[Any], column: str) -> dict[str, np.ndarray]:
    """Return the rows of every part that a column names."""
    for value in values:
        if value not in PARTS:
            raise InputError(f"The column {column!r} must hold train, validation or test, got {str(value)!r}.")
    parts = {part: np.flatnonzero(np.array(values) == part) for part in PARTS}
    for part in ("train", "test"):
        if len(parts[part]) == 0:
            raise InputError(f"The column {column!r} has no row with {part!r}; mark some, or remove the column.")
    return {part: rows for part, rows in parts.items() if len(rows) > 0}


def _random_parts(n: int) -> dict[str, np.ndarray]:
    """Return 80 % of the rows for training and the rest for testing, the same for the same number."""
    if n < 2:
        raise InputError("One sample cannot be split into train and test; list more.")
    train, test = four_fifths(torch.randperm(n, generator=generator(0, "split")).numpy())
    return {"train": train, "test": test}
