"""The columns of a table from a file: what they must be, labels and groups in them."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fairdro.errors import InputError, unknown_name
from fairdro.groups import MISSING_GROUPS

MAX_CLASSES = 100
EXACT = 2**53  # above, not every whole number is one of double precision
CLASSES = [pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_large_string]


def check_columns(table: pa.Table, names: Sequence[str]) -> None:
    """Refuse columns that are not there, or there twice."""
    for name in names:
        if name not in table.column_names:
            names = [other if other == " ".join(other.split()) else repr(other) for other in table.column_names]
            shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise InputError(f"There is no column {name!r} in the table; it has: {shown}.")
        if table.column_names.count(name) > 1:
            raise InputError(f"The table has two columns named {name!r}; rename one.")


def check_drop(target: str, groups: Sequence[str], drop: Sequence[str]) -> None:
    """Refuse to leave out what is asked for."""
    for name in drop:
        if name in (target, *groups):
            raise InputError(f"{name!r} is the target or a group, and cannot be left out (--drop); neither is a feature.")


def as_pandas(table: pa.Table) -> pd.DataFrame:
    """Return a table as pandas has it, or say that it holds what pandas cannot hold.

    Lists and the like are strings, since in pandas their whole numbers depend on whether another row misses one.
    """
    try:
        for j, field in enumerate(table.schema):
            if pa.types.is_nested(field.type):
                strings = [None if value is None else str(value) for value in table.column(j).to_pylist()]
                table = table.set_column(j, field.name, pa.array(strings, pa.string()))
        return table.to_pandas(split_blocks=True, date_as_object=False, ignore_metadata=True)
    except (pa.ArrowException, ValueError, OverflowError) as error:  # a date of the year 9999 and the like
        raise InputError(f"The table holds values that cannot be read: {str(error).splitlines()[0]}.") from error


def labels_of(column: pa.ChunkedArray, name: str, *, several: bool = True) -> np.ndarray:
    """Return the classes of a column, or say why they cannot be classes."""
    if len(column) == 0:
        raise InputError(f"No row has a value in the column {name!r}.")
    check_kind(column.type, name)
    if pa.types.is_floating(column.type):
        _check_digits(column.to_numpy(), name)
    number = len(pa.compute.unique(column))
    if several and number < 2:
        raise InputError(f"The column {name!r} has one value only; there is nothing to predict.")
    if number > MAX_CLASSES:
        raise InputError(
            f"The column {name!r} has {number:,} different values, too many for classes (at most {MAX_CLASSES}); put "
            "its values into fewer."
        )
    labels = column.to_pandas().to_numpy()
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise InputError(f"The column {name!r} holds infinite values, which are no classes; replace them.")
    if labels.dtype.kind == "f" and (labels % 1 != 0).any():
        raise InputError(f"The column {name!r} holds fractions, which are no classes; put its values into a few.")
    return labels


def check_kind(kind: pa.DataType, name: str) -> None:
    """Refuse a column whose values cannot be classes."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not any(fits(kind) for fits in CLASSES):
        raise InputError(
            f"The column {name!r} holds values of the kind {kind}, which are no classes; turn them into strings."
        )


def _check_digits(values: Any, name: str) -> None:
    """Refuse whole numbers that double precision cannot tell from their neighbours."""
    sizes = np.abs(values)
    if ((sizes >= EXACT) & np.isfinite(sizes)).any():
        raise InputError(
            f"The column {name!r} holds numbers of more than 15 digits, which cannot be told apart; write them as words."
        )


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without a dictionary, of a kind whose values can be compared."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_float16(kind):
        kind = pa.float32()
    elif pa.types.is_string_view(kind):
        kind = pa.string()
    return column.cast(kind)


def known(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return which rows ``(N,)`` have a value."""
    valid = pa.compute.is_valid(column)
    if pa.types.is_floating(column.type):
        valid = pa.compute.and_not(valid, pa.compute.is_nan(column).fill_null(fill_value=False))
    return valid


def with_target(table: pa.Table, target: str, notes: list[str]) -> pa.Table:
    """Return the rows that have a target, and say how many have none."""
    rows = known(table[target])
    if (lacking := table.num_rows - pa.compute.sum(rows).as_py()) == 0:
        return table
    notes.append(without_target(lacking, target))
    return table.filter(rows)


def without_target(lacking: int, target: str) -> str:
    """Say how many rows have no target."""
    return f"{lacking:,} rows without a value of {target!r} are left out."


def without_group(lacking: int, name: str) -> str:
    """Say how many rows have no value of a sensitive column, where that is one of its values."""
    return (
        f"{lacking:,} rows without a value of {name!r} are a group of their own, which counts in every gap; "
        "--missing-groups has other ways."
    )


def starred(table: pa.Table, pattern: str) -> dict[str, str]:
    """Return the columns that fit a name with a star, by what stands for it."""
    if pattern.count("*") != 1:
        raise InputError(f"{pattern!r} must have one * where the name of the class or group stands, for example 'p_*'.")
    before, _, after = pattern.partition("*")
    found = {name[len(before) : len(name) - len(after)]: name for name in table.column_names if fnmatchcase(name, pattern)}
    if len(found) < 2:
        raise InputError(f"Fewer than two columns fit {pattern!r}; the table has: {', '.join(table.column_names[:20])}.")
    return found


def numbers_of(table: pa.Table, names: Sequence[str]) -> np.ndarray:
    """Return columns of numbers ``(N, K)``, or say that they are none."""
    check_columns(table, names)
    try:
        return np.column_stack([table[name].to_numpy().astype(np.float64) for name in names])
    except (TypeError, ValueError) as error:
        raise InputError(f"The columns {', '.join(names)} must hold probabilities: {error}.") from error


def sensitive_columns(table: pa.Table, groups: Sequence[str], missing_groups: str, notes: list[str]) -> pd.DataFrame:
    """Return the group columns as strings, None where a value is missing; note what is done with these."""
    if missing_groups not in MISSING_GROUPS:
        raise unknown_name("way with missing groups", missing_groups, MISSING_GROUPS)
    frame = {}
    for name in dict.fromkeys(groups):
        column = table[name]
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if missing_groups == "group" and column.null_count:
            notes.append(without_group(column.null_count, name))
        if pa.types.is_integer(kind):  # exact, however large
            frame[name] = pd.Series(column.cast(pa.string()).to_pylist(), dtype=object)
            continue
        values = column.to_pandas()
        known = values.notna().to_numpy()
        whole = pd.api.types.is_float_dtype(values) and bool((values[known] % 1 == 0).all())
        if whole:
            _check_digits(values[known], name)
        try:
            strings = (values.astype("Int64") if whole else values).astype(str).astype(object)
        except UnicodeDecodeError as error:
            raise InputError(
                f"The column {name!r} holds bytes that are not in UTF-8, which are no groups; turn them into strings."
            ) from error
        frame[name] = pd.Series(np.where(known, strings, None), dtype=object)
    return pd.DataFrame(frame)
