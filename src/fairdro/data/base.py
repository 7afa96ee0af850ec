"""What a dataset is, how it is split, and how its features are scaled."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fairdro._utils.hashing import digest
from fairdro.cells import Cells
from fairdro.errors import InputError, unknown_name
from fairdro.groups import Groups, encode_groups

PROTOCOLS = ["validated", "paper"]
PARTS = ["train", "validation", "test"]


@dataclass(frozen=True)
class Dataset:
    """A table for classification with groups.

    Attributes
    ----------
    name : str
        Of the dataset.
    X : DataFrame
        Numeric features, not scaled; columns the groups are made of are not among them.
    y : ndarray of int64, shape (N,)
        Class codes, indices into ``class_names``.
    groups : Groups
        Codes, or shares of soft groups.
    sensitive : DataFrame
        The sensitive columns as they were collected.
    class_names : list of str
        A name per class.
    card : str
        Where the data come from, under which licence, what they hold and what was done to them, in Markdown.
    parts : dict of str to ndarray of int64, optional
        Rows of ``train``, ``test`` and, where there is one, ``validation``, for a dataset that comes with its own parts.
    trained : bool, default False
        Whether the features are those of a network that was trained on the ``train`` part, and may know it by heart.

    See Also
    --------
    fairdro.load_dataset : Loads one.

    Examples
    --------
    >>> from fairdro import load_dataset
    >>> data = load_dataset("compas")
    >>> len(data), data.class_names, data.group_names
    (6167, ['did not re-offend', 're-offended'], ['Non-Caucasian', 'Caucasian'])
    >>> data.y[:3], data.a[:3]
    (array([0, 1, 1]), array([0, 0, 0]))
    """

    name: str
    X: pd.DataFrame
    y: np.ndarray
    groups: Groups
    sensitive: pd.DataFrame
    class_names: list[str]
    card: str
    parts: dict[str, np.ndarray] | None = None
    trained: bool = False

    def __len__(self) -> int:
        return len(self.y)

    @property
    def a(self) -> np.ndarray:
        """Group codes ``(N,)``, indices into ``group_names``, or shares of soft groups ``(N, A)``."""
        return self.groups.values

    @property
    def group_names(self) -> list[str]:
        """One name per group."""
        return self.groups.names

    @cached_property
    def cells(self) -> Cells:
        """Class and group of every row."""
        return Cells.from_labels(self.y, self.groups, n_classes=len(self.class_names))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the features, classes, groups and parts."""
        names = [list(self.X.columns), self.class_names, self.group_names, list(self.parts or {}), self.trained]
        return digest(names, self.X.to_numpy(np.float64), self.y, self.a, *(self.parts or {}).values())

    def split(self, protocol: str = "validated", *, seed: int = 0) -> "Split":
        """Split into train, validation and test parts, with features scaled by the train part.

        80 % of a random permutation train, the rest test; seed 0 is the paper's split. A dataset with its own parts keeps
        them with seed 0. With others its rows change places at random, so that every part has as many of every class and
        group as before (of soft groups, by the largest share), but for rows with the features of an earlier one: these are
        left out then, so that no copy is in two parts.

        Parameters
        ----------
        protocol : {"validated", "paper"}
            ``validated`` keeps the last fifth of the training rows for validation, unless there is such a part, and leaves
            constant columns alone. ``paper`` has no validation part and scales a column that is constant in training by
            1e-7, as the authors' preprocessing does: a value unseen in training becomes 1e7.
        seed : int
            Only 0 for features of a network that was trained on the ``train`` part. In a dataset with its own parts constant
            columns are left alone by both protocols.

        Returns
        -------
        Split
        """
        check_protocol(protocol)
        if not isinstance(seed, int) or not 0 <= seed < 2**32:
            raise InputError(f"The seed of a split must be a whole number from 0 to 4294967295, got {seed}.")
        if self.trained and seed != 0:
            raise InputError(
                f"The features of {self.name} are those of a network trained on its train part, which must not test or "
                "validate it; leave the split at 0."
            )
        parts = self._own_parts(seed)
        if protocol == "paper":
            parts.pop("validation", None)
        elif "validation" not in parts:
            parts["train"], parts["validation"] = four_fifths(parts["train"])
        train = parts["train"]
        X = self.X.to_numpy(np.float64)
        mean, scale = X[train].mean(axis=0), X[train].std(axis=0)
        scale[np.ptp(X[train], axis=0) == 0] = 1e-7 if protocol == "paper" and self.parts is None else 1.0

        def part(rows: np.ndarray) -> Part:
            features = torch.as_tensor((X[rows] - mean) / scale, dtype=torch.float32)
            return Part(features, Cells.from_labels(self.y[rows], self.groups.take(rows), n_classes=len(self.class_names)))

        return Split(**{name: part(rows) for name, rows in parts.items()})

    def _own_parts(self, seed: int) -> dict[str, np.ndarray]:
        """Return the rows of every part, before a validation part is left out or made."""
        if self.parts is None:
            train, test = four_fifths(np.random.RandomState(seed).permutation(len(self)))
            return {"train": train, "test": test}
        return dict(self.parts) if seed == 0 else self._shuffled(self.parts, seed)

    def _shuffled(self, parts: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
        """Return parts among which the rows of every cell have changed places, without copies."""
        part = np.full(len(self), -1)
        for i, own in enumerate(parts.values()):
            part[own] = i
        rows = np.flatnonzero(part >= 0)
        rows = rows[~pd.Series([digest(x) for x in self.X.to_numpy()[rows]]).duplicated().to_numpy()]
        group = self.a.argmax(-1) if self.groups.soft else self.a
        cell = self.y * (group.max() + 1) + group
        rng = np.random.default_rng(seed)
        shuffled = rng.permutation(rows)
        shuffled = shuffled[cell[shuffled].argsort(kind="stable")]
        places = part[rows[cell[rows].argsort(kind="stable")]]  # in the same order of cells
        return {name: rng.permutation(shuffled[places == i]) for i, name in enumerate(parts)}


@dataclass(frozen=True)
class Part:
    """Some rows of a dataset.

    Attributes
    ----------
    X : Tensor of shape (n, D)
        Features, scaled by the train part.
    cells : Cells
        Class and group of every row.

    Examples
    --------
    >>> from fairdro import load_dataset
    >>> data = load_dataset("compas")
    >>> part = data.split().test
    >>> part.X.shape, part.cells.counts  # rows by class and group
    (torch.Size([1234, 400]), tensor([[428., 255.],
            [391., 160.]], dtype=torch.float64))
    """

    X: Tensor
    cells: Cells


@dataclass(frozen=True)
class Split:
    """Parts of a dataset, made by :meth:`Dataset.split`.

    Attributes
    ----------
    train, test : Part
        Rows to train on, and to test on.
    validation : Part, optional
        Rows to choose by; None in the paper's protocol.

    Examples
    --------
    >>> from fairdro import load_dataset
    >>> data = load_dataset("compas")
    >>> split = data.split("validated", seed=0)
    >>> len(split.train.X), len(split.validation.X), len(split.test.X)
    (3946, 987, 1234)
    """

    train: Part
    test: Part
    validation: Part | None = None


def check_protocol(protocol: str) -> None:
    """Refuse a protocol that does not exist."""
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)


def four_fifths(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Divide rows into the first 80 % and the last 20 %."""
    cut = int(0.8 * len(rows))
    return rows[:cut], rows[cut:]


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
