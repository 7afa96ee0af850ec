"""What a dataset of images or texts is: inputs for a network, with classes, groups and parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairdro.cells import Cells, Groups
from fairdro.errors import unknown_name
from fairdro.training.network import Inputs

__all__ = ["Examples", "Subset"]


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
