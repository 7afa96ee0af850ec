"""What a dataset of images or texts is: inputs for a network, with classes, groups and parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairdro.cells import Cells, Groups
from fairdro.errors import InputError, unknown_name
from fairdro.seeding import generator
from fairdro.training.network import Inputs

__all__ = ["Examples", "Subset", "named_parts", "random_parts"]

PARTS = ["train", "validation", "test"]


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
        order = getattr(self.inputs, "in_order", None)
        if order is None:
            return rows
        place = torch.empty(len(self.inputs), dtype=torch.int64)
        place[self.rows[rows]] = rows
        return place[order(self.rows[rows])]


@dataclass(frozen=True)
class Examples:
    """Images or texts with classes and groups.

    Attributes
    ----------
    name : str
    inputs : Inputs
        Of all samples.
    y : ndarray of int64, shape (N,)
        Class codes, indices into ``class_names``.
    groups : Groups
        Codes, or shares of soft groups.
    class_names : list of str
    parts : dict of str to ndarray of int64
        Rows of ``train``, ``test`` and, where there is one, ``validation``.
    card : str
        Where the data come from, under which licence, what they hold and what was done to them, in Markdown.
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

    def part(self, name: str) -> tuple[Subset, Cells]:
        """Return the inputs and cells of a part."""
        if name not in self.parts:
            raise unknown_name(f"part of {self.name}", name, list(self.parts))
        rows = self.parts[name]
        groups = Groups(self.groups.values[rows], self.groups.names)
        cells = Cells.from_labels(self.y[rows], groups, n_classes=len(self.class_names))
        return Subset(self.inputs, torch.as_tensor(rows)), cells


def named_parts(values: np.ndarray, column: str) -> dict[str, np.ndarray]:
    """Return the rows of every part that a column names."""
    for value in values:
        if value not in PARTS:
            raise InputError(f"The column {column!r} must hold train, validation or test, got {str(value)!r}.")
    parts = {part: np.flatnonzero(values == part) for part in PARTS}
    for part in ("train", "test"):
        if len(parts[part]) == 0:
            raise InputError(f"The column {column!r} has no row with {part!r}; mark some, or remove the column.")
    return {part: rows for part, rows in parts.items() if len(rows) > 0}


def random_parts(n: int) -> dict[str, np.ndarray]:
    """Return 80 % of the rows for training and the rest for testing, the same for the same number."""
    if n < 2:
        raise InputError("One sample cannot be split into train and test; list more.")
    train, test = np.split(torch.randperm(n, generator=generator(0, "split")).numpy(), [int(0.8 * n)])
    return {"train": train, "test": test}
