"""What a dataset is, how it is split, and how its features are scaled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fairdro.cells import Cells, Groups, encode_groups
from fairdro.errors import InputError, unknown_name

__all__ = ["PROTOCOLS", "Dataset", "Part", "Split", "embedded_card", "embedded_table", "groups_from"]

PROTOCOLS = ["paper", "validated"]


@dataclass(frozen=True)
class Dataset:
    """A table for classification with groups.

    Attributes
    ----------
    name : str
    X : DataFrame
        Numeric features, not scaled; columns the groups are made of are not among them.
    y : ndarray of int64, shape (N,)
        Class codes, indices into ``class_names``.
    a : ndarray, shape (N,)
        Group codes, indices into ``group_names``.
    sensitive : DataFrame
        The sensitive columns as they were collected.
    class_names, group_names : list of str
    card : str
        Where the data come from, under which licence, what they hold and what was done to them, in Markdown.
    """

    name: str
    X: pd.DataFrame
    y: np.ndarray
    a: np.ndarray
    sensitive: pd.DataFrame
    class_names: list[str]
    group_names: list[str]
    card: str

    def __len__(self) -> int:
        return len(self.y)

    @property
    def counts(self) -> np.ndarray:
        """Samples per cell ``(Y, A)``."""
        counts = np.zeros((len(self.class_names), len(self.group_names)), dtype=np.int64)
        np.add.at(counts, (self.y, self.a), 1)
        return counts

    @property
    def cells(self) -> Cells:
        """Class and group of every row."""
        return Cells.from_labels(self.y, Groups(self.a, self.group_names), n_classes=len(self.class_names))

    @property
    def fingerprint(self) -> str:
        """Hash of the features, classes and groups."""
        digest = hashlib.sha256(json.dumps([list(self.X.columns), self.class_names, self.group_names]).encode())
        for array in (self.X.to_numpy(np.float64), self.y, self.a):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def split(self, protocol: str = "paper", *, seed: int = 0) -> Split:
        """Split into train, validation and test parts, with features scaled by the train part.

        80 % of a random permutation train, the rest test; seed 0 is the paper's split.

        Parameters
        ----------
        protocol : {"paper", "validated"}
            ``paper`` has no validation part and scales a column that is constant in training by 1e-7, as the authors'
            preprocessing does: a value unseen in training becomes 1e7. ``validated`` keeps the last fifth of the training
            rows for validation and leaves constant columns alone.
        seed : int
        """
        if protocol not in PROTOCOLS:
            raise unknown_name("protocol", protocol, PROTOCOLS)
        if not isinstance(seed, int) or not 0 <= seed < 2**32:
            raise InputError(f"The seed of a split must be a whole number from 0 to 4294967295, got {seed}.")
        order = np.random.RandomState(seed).permutation(len(self))
        train, test = np.split(order, [int(0.8 * len(self))])
        if protocol == "paper":
            return self._scaled(train, None, test, constant_scale=1e-7)
        train, validation = np.split(train, [int(0.8 * len(train))])
        return self._scaled(train, validation, test, constant_scale=1.0)

    def _scaled(self, train: np.ndarray, validation: np.ndarray | None, test: np.ndarray, *, constant_scale: float) -> Split:
        X = self.X.to_numpy(np.float64)
        mean, scale = X[train].mean(axis=0), X[train].std(axis=0)
        scale[np.ptp(X[train], axis=0) == 0] = constant_scale

        def part(rows: np.ndarray) -> Part:
            features = torch.as_tensor((X[rows] - mean) / scale, dtype=torch.float32)
            groups = Groups(self.a[rows], self.group_names)
            return Part(features, Cells.from_labels(self.y[rows], groups, n_classes=len(self.class_names)))

        return Split(part(train), None if validation is None else part(validation), part(test))


@dataclass(frozen=True)
class Part:
    """Scaled features ``(n, D)`` of some rows, and their cells."""

    X: Tensor
    cells: Cells


@dataclass(frozen=True)
class Split:
    """Parts of a dataset; ``validation`` is None in the paper's protocol."""

    train: Part
    validation: Part | None
    test: Part


def groups_from(sensitive: pd.DataFrame, columns: str | Sequence[str], dataset: str) -> tuple[Groups, list[str]]:
    """Make groups of the named sensitive columns, one per combination that occurs; return the names as a list too."""
    columns = [columns] if isinstance(columns, str) else list(columns)
    if not columns:
        raise InputError(f"Name at least one sensitive column of {dataset}: {', '.join(sensitive.columns)}.")
    for column in columns:
        if column not in sensitive.columns:
            raise unknown_name(f"sensitive column of {dataset}", column, list(sensitive.columns))
    return encode_groups(sensitive[columns]), columns


def embedded_table(name: str) -> pd.DataFrame:
    """Read a Parquet table that ships with the package."""
    with resources.files("fairdro.data").joinpath("embedded", f"{name}.parquet").open("rb") as file:
        return pd.read_parquet(file)


def embedded_card(name: str) -> str:
    """Read the data card that ships beside it."""
    return resources.files("fairdro.data").joinpath("embedded", f"{name}.md").read_text(encoding="utf-8")
