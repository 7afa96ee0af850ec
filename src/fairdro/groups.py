"""Labels to codes: classes and groups of any hashable kind, soft membership, groups that are too small.

Several sensitive columns become one group per combination. Soft groups are a membership matrix ``(N, A)``.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from fairdro.errors import InputError, unknown_name

MAX_GROUPS = 1000
TOO_FEW = 30  # rows of a cell below which its accuracy is mostly chance: a 95 % interval is 36 points wide at 29 rows
SMALL_CELLS = ["warn", "merge", "refuse"]
MISSING_GROUPS = ["refuse", "infer", "ignore", "group"]
MISSING = "(missing)"


@dataclass(frozen=True)
class Groups:
    """Group labels as codes, or as soft membership.

    Attributes
    ----------
    values : ndarray
        ``(N,)`` integer codes, or ``(N, A)`` membership whose rows sum to one.
    names : list of str
        One name per group.
    known : ndarray of bool, shape (N,), optional
        Whether the group of a sample is known, where not all are.
    unknown_group : bool
        Whether samples of unknown group are a further group behind the last, without a name; otherwise their membership is
        equal shares of the groups they may belong to.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdro.groups import Groups
    >>> groups = Groups(np.array([0, 1, 1]), ["heads", "tails"])
    >>> len(groups), groups.soft
    (3, False)
    >>> Groups(np.array([[1.0, 0.0], [0.3, 0.7]]), ["heads", "tails"]).soft
    True
    """

    values: np.ndarray
    names: list[str]
    known: np.ndarray | None = None
    unknown_group: bool = False

    @property
    def soft(self) -> bool:
        """Whether a sample may belong to several groups in shares."""
        return self.values.ndim == 2

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: np.ndarray) -> Self:
        """Groups of the samples at ``rows``.

        Parameters
        ----------
        rows : ndarray of int
            Their numbers.
        """
        return replace(self, values=self.values[rows], known=None if self.known is None else self.known[rows])

    @property
    def n_unknown(self) -> int:
        """How many samples are of unknown group."""
        return 0 if self.known is None else int((~self.known).sum())


def _familiar(values: Any) -> Any:
    """Turn a tensor into an array, and a table or column of polars or pyarrow into one of pandas."""
    values = values.numpy(force=True) if isinstance(values, torch.Tensor) else values
    values = values.to_arrow() if hasattr(values, "to_arrow") else values  # of polars
    if isinstance(values, pa.Table | pa.Array | pa.ChunkedArray):
        return values.to_pandas(integer_object_nulls=True)  # whole numbers stay whole, also where one is missing
    return values.to_pandas() if hasattr(values, "to_pandas") else values


def as_column(values: Any, what: str) -> pd.Index:
    """Take one column of labels from a list, array, tensor, Series or one-column table of pandas, polars or pyarrow."""
    values = _familiar(values)
    if isinstance(values, str) or not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0:
        raise InputError(f"{what} must be a column of labels, got {values!r}.")
    if isinstance(values, pd.DataFrame | np.ndarray) and values.ndim == 2 and values.shape[1] == 1:
        values = np.asarray(values)[:, 0]
    if getattr(values, "ndim", 1) != 1:
        raise InputError(f"{what} must be one column, but its shape is {tuple(values.shape)}.")
    if getattr(values, "dtype", None) == np.float16:
        values = values.astype(np.float32)
    if isinstance(values, list | tuple):  # whole numbers stay whole, also where one is missing
        values = pd.Series(values, dtype=object)
        values = values if values.isna().any() else values.infer_objects()
    if getattr(getattr(values, "dtype", None), "kind", "") == "O":
        return pd.Index(values, tupleize_cols=False, dtype=object)
    return pd.Index(values, tupleize_cols=False)


def encode_labels(values: Any, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Turn one column of hashable labels (numbers, strings, tuples) into integer codes and the sorted distinct labels.

    ``what`` is what an error message calls the column.
    """
    codes, labels = _codes_and_labels(values, what)
    if (missing := int((codes < 0).sum())) > 0:
        raise InputError(f"{what} has missing values ({missing} of {len(codes)}); drop those rows or give them a label.")
    return codes, labels


def _codes_and_labels(values: Any, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Encode one column; the code of a missing value is -1."""
    column = as_column(values, what)
    if len(column) == 0:
        raise InputError(f"{what} is empty.")
    try:
        codes, labels = column.factorize()
    except TypeError as error:
        raise InputError(f"{what} holds labels that cannot be compared ({error}); use numbers or strings.") from error
    try:
        order = labels.argsort()
    except TypeError:  # labels of different types have no order of their own
        order = np.array(sorted(range(len(labels)), key=lambda i: (type(labels[i]).__name__, repr(labels[i]))))
    if len(labels) == 0:
        return codes, np.asarray(labels)
    sorted_labels = np.asarray(labels[order])
    if (codes < 0).any() and sorted_labels.dtype.kind == "f" and (sorted_labels % 1 == 0).all():
        sorted_labels = sorted_labels.astype(np.int64)  # whole numbers, which a missing one among them made fractions
    return np.where(codes < 0, -1, np.argsort(order)[codes]), sorted_labels


def encode_groups(sensitive_features: Any, missing_groups: str = "refuse", *, counts: np.ndarray | None = None) -> Groups:
    """Turn sensitive features into groups.

    Parameters
    ----------
    sensitive_features : array-like, Series, DataFrame, dict, list of columns, or Groups
        One column: a group per distinct value. Several columns: a group per combination that occurs. A floating-point
        table with entries in [0, 1] whose rows sum to one: soft membership, a column per group. Groups stay as they are.
    missing_groups : {"refuse", "infer", "ignore", "group"}, default "refuse"
        What to do where a sensitive feature is missing: raise an error; prepare to infer the group, by equal shares of those
        that the other features allow; let all such samples be the ``unknown_group``; or take a missing value as a value.
    counts : ndarray of shape (N,), optional
        How many samples each row of one or several columns stands for; by default one.
    """
    if missing_groups not in MISSING_GROUPS:
        raise unknown_name("way with missing groups", missing_groups, MISSING_GROUPS)
    if isinstance(sensitive_features, Groups):
        return sensitive_features
    table = _as_table(sensitive_features)
    if _is_membership(table):
        return _membership(table, missing_groups)
    names = [f"sensitive feature {str(c)!r}" for c in table.columns]
    columns = [_codes_and_labels(table[c], name) for c, name in zip(table.columns, names, strict=True)]
    counts = np.ones(len(table), dtype=np.int64) if counts is None else counts
    for (codes, _), name in zip(columns, names, strict=True):
        refuse_missing(int(counts[codes < 0].sum()), int(counts.sum()), name, missing_groups)
    if missing_groups == "group":
        columns = [_with_missing_as_label(*column) for column in columns]
    by_column = np.column_stack([codes for codes, _ in columns])
    known = np.asarray((by_column >= 0).all(axis=1))
    if not known.any():
        raise InputError("No row has a group: every row misses a sensitive feature.")
    combinations, found = _distinct_rows(by_column[known])
    groups = _named(combinations, [labels for _, labels in columns], int(counts.sum()))
    codes = np.full(len(table), len(groups), dtype=np.int64)
    codes[known] = found
    if known.all():
        return Groups(codes, groups)
    if missing_groups == "ignore":
        return Groups(codes, groups, known, unknown_group=True)
    possible = ((by_column[:, None] < 0) | (by_column[:, None] == combinations)).all(-1).astype(np.float64)
    possible[possible.sum(1) == 0] = 1  # a combination that no known row has
    return Groups(possible / possible.sum(axis=1, keepdims=True), groups, known)


def _distinct_rows(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows of ``codes`` (N, K) in order, and which of them each row is, without sorting all rows."""
    found = np.zeros(len(codes), dtype=np.int64)
    for column in codes.T:
        found, _ = pd.factorize(found * (int(column.max()) + 1) + column, sort=True)
    example = np.empty(int(found.max()) + 1, dtype=np.int64)
    example[found] = np.arange(len(codes))
    return codes[example], found


def _named(combinations: np.ndarray, labels: list[np.ndarray], n: int) -> list[str]:
    """Name the combinations of values that are groups, unless there are too many for ``n`` rows."""
    parts = [[str(labels[j][c]) for j, c in enumerate(row)] for row in combinations]
    names = [", ".join(part) for part in parts]
    if len(set(names)) < len(names):  # values with commas
        names = [", ".join(map(repr, part)) for part in parts]
    limit = max(50, min(MAX_GROUPS, n // 10))
    if len(names) > limit:
        raise InputError(
            f"The sensitive features make {len(names)} groups of {n} rows, too many to mean anything (at most "
            f"{limit}); put values into bins, or pass a membership table whose rows sum to one."
        )
    return names


def refuse_missing(number: int, n: int, what: str, missing_groups: str) -> None:
    """Refuse that so many of ``n`` rows miss a sensitive feature, where ``missing_groups`` says so."""
    if number > 0 and missing_groups == "refuse":
        raise InputError(
            f"{what} has missing values ({number} of {n}). Say what they mean by missing_groups: 'infer' the group from the "
            "other columns, 'ignore' it (such rows train, but do not count for fairness), or 'group', a group of its own."
        )


def _with_missing_as_label(codes: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give missing values a code and a label of their own, which no other value has."""
    if (codes >= 0).all():
        return codes, labels
    label = MISSING
    while label in {str(other) for other in labels}:
        label = f"({label})"
    return np.where(codes < 0, len(labels), codes), np.append(labels.astype(object), label)


def _membership(table: pd.DataFrame, missing_groups: str) -> Groups:
    """Return soft groups; rows that lack a share are of unknown group."""
    shares, names = table.to_numpy(np.float64), [str(c) for c in table.columns]
    known = ~np.isnan(shares).any(axis=1)
    refuse_missing(int((~known).sum()), len(table), "sensitive_features", missing_groups)
    shares = np.where(known[:, None], shares / np.nansum(shares, axis=1, keepdims=True), 1 / len(names))
    if known.all():
        return Groups(shares, names)
    if missing_groups == "infer":
        return Groups(shares, names, known)
    shares = np.column_stack([np.where(known[:, None], shares, 0), ~known])
    if missing_groups == "ignore":
        return Groups(shares, names, known, unknown_group=True)
    return Groups(shares, [*names, str(_with_missing_as_label(np.array([-1]), np.array(names))[1][-1])])


def settle_small_cells(
    groups: Groups, counts: np.ndarray, *, class_names: list[str], how: str, floor: int = TOO_FEW, rows: str = "rows"
) -> Groups:
    """Deal with cells that have too few rows to mean anything, given the rows per cell ``(Y, A)``.

    Parameters
    ----------
    how : {"warn", "merge", "refuse"}
        Say which they are; merge groups with such a cell into one, with the next smallest until it has enough; or raise an
        error.
    floor : int
        Rows a cell should have.
    rows : str
        What is counted, in words.
    """
    if how not in SMALL_CELLS:
        raise unknown_name("way with small cells", how, SMALL_CELLS)
    if (counts >= floor).all():
        return groups
    if how == "merge":
        return _merge_small(groups, counts, floor)
    few = np.argwhere((counts > 0) & (counts < floor))
    small = [f"{class_names[k]} / {groups.names[a]} ({counts[k, a]:.3g})" for k, a in few]
    empty = f"{int((counts == 0).sum())} have none" if (counts == 0).any() else ""
    named = ", ".join(small[:5]) + (f" and {len(small) - 5} more" if len(small) > 5 else "")
    sentence = (
        f"Some classes and groups have fewer than {floor} {rows}, too few to mean anything: "
        f"{'; '.join(part for part in (named, empty) if part)}."
    )
    if how == "refuse":
        raise InputError(f"{sentence} Merge groups (small_cells='merge'), or lower min_cell_size.")
    warnings.warn(f"{sentence} Merge groups with small_cells='merge'.", UserWarning, stacklevel=4)
    return groups


def _merge_small(groups: Groups, counts: np.ndarray, floor: int) -> Groups:
    by_size = np.argsort(counts.min(axis=0), kind="stable")
    number = int((counts.min(axis=0) < floor).sum())
    while (counts[:, by_size[:number]].sum(axis=1) < floor).any() and number < len(by_size):
        number += 1
    merged, kept = np.sort(by_size[:number]), np.sort(by_size[number:])
    if len(kept) == 0:
        raise InputError(
            f"With at least {floor} rows in every class and group, all groups merge into one; lower min_cell_size, or use "
            "fewer sensitive columns."
        )
    names = [groups.names[a] for a in merged]
    named = " or ".join(names[:4]) + (f" or {len(names) - 4} more" if len(names) > 4 else "")
    if groups.soft:
        behind = groups.values[:, len(groups.names) :]  # of unknown group
        values = np.column_stack([groups.values[:, kept], groups.values[:, merged].sum(axis=1), behind])
    else:
        place = np.full(len(groups.names) + 1, len(kept))
        place[kept], place[-1] = np.arange(len(kept)), len(kept) + 1
        values = place[groups.values]
    return replace(groups, values=values, names=[*(groups.names[a] for a in kept), named])


def _as_table(features: Any) -> pd.DataFrame:
    features = _familiar(features)
    if isinstance(features, list | tuple) and len(features) > 0:
        features = [_familiar(column) for column in features]
        if all(isinstance(column, pd.Series | np.ndarray) and column.ndim == 1 for column in features):
            named = [getattr(column, "name", None) or f"group {j}" for j, column in enumerate(features)]
            if len(set(named)) < len(named):
                raise InputError("sensitive_features has two columns of the same name; rename one.")
            features = {name: np.asarray(column) for name, column in zip(named, features, strict=True)}
        elif all(isinstance(row, list) for row in features):
            features = pd.DataFrame(features).rename(columns="group {}".format)
    try:
        if isinstance(features, pd.DataFrame | dict):
            table = pd.DataFrame(features)
        elif getattr(features, "ndim", 1) == 2:
            table = pd.DataFrame(features, columns=[f"group {j}" for j in range(features.shape[1])])
        else:
            name = getattr(features, "name", None)
            column = as_column(features, "sensitive_features")
            table = pd.DataFrame({"group" if name is None else name: pd.Series(column)})
    except ValueError as error:
        raise InputError(f"sensitive_features must be columns of equal length: {error}.") from error
    if table.shape[0] == 0 or table.shape[1] == 0:
        raise InputError("sensitive_features is empty.")
    if not table.columns.is_unique:
        raise InputError("sensitive_features has two columns of the same name; rename one.")
    return table


def _is_membership(table: pd.DataFrame) -> bool:
    """Whether a table of several floating-point columns is soft membership; if it only looks like it, say so."""
    if table.shape[1] < 2 or not all(pd.api.types.is_float_dtype(dtype) for dtype in table.dtypes):
        return False
    shares = table.to_numpy(np.float64)
    shares = shares[~np.isnan(shares).any(axis=1)]
    if len(shares) == 0:
        raise InputError("No row has a group: every row misses a sensitive feature.")
    totals = shares.sum(axis=1)
    if (shares >= 0).all() and np.allclose(totals, 1, atol=1e-3):
        return True
    if (shares % 1 != 0).any():
        raise InputError(
            "sensitive_features looks like soft membership, but its entries are not shares that sum to one in every row "
            f"(rows sum to between {totals.min():.4g} and {totals.max():.4g}); normalise it, or put values into bins."
        )
    return False
