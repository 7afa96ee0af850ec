"""What columns hold: numbers, dates or categories, and what some rows of a table say of them."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pandas as pd

from fairdro.errors import InputError
from fairdro.training.rows import draws_of

MAX_VALUES = 1000  # a column of more strings than this is a name or an identifier, not a category
MOST_NUMBERS = 1 << 16  # of a column that is learned in pieces, for its median; of more there is a sample


@dataclass(frozen=True)
class Summary:
    """What some rows say of a column; those of other rows can be added.

    Attributes
    ----------
    name : str
    rows, missing : int
        How many rows there are, and how many without a value.
    kind : {"number", "date", "category"}, optional
        None if there is no value.
    counts : dict of str to int
        Of a category: how often each value occurs.
    numbers, draws : tuple of ndarray
        Of a number or date: all values or, where these were too many, a random sample, and the random draw of each, a
        whole number of 32 bits. Those with the smallest draws are kept: the sample depends neither on the order nor on the
        pieces in which rows come.
    halved : int
        How often the sample was halved.
    low, high : float
        Of all values.
    whole : bool
        Whether they all are whole numbers.
    """

    name: str
    rows: int
    missing: int
    kind: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    numbers: tuple[np.ndarray, ...] = ()
    draws: tuple[np.ndarray, ...] = ()
    halved: int = 0
    low: float = np.inf
    high: float = -np.inf
    whole: bool = True

    @classmethod
    def of(cls, values: pd.Series, name: str, draws: np.ndarray | None = None) -> Self:
        """Look at the values of some rows, whose random draws are ``draws`` (N,); by default, by their places."""
        missing = int(values.isna().sum())
        found = cls(name, len(values), missing)
        if missing == len(values):
            return found
        values = plain_values(values)
        kind = kind_of(values)
        if kind == "category":
            codes, strings = strings_in(values)
            counts = np.bincount(codes[codes >= 0], minlength=len(strings)).tolist()
            return replace(found, kind=kind, counts=dict(zip(strings, counts, strict=True)))
        numbers = numbers_in(values, name, kind)
        drawn, valid = draws_of(np.arange(len(numbers))) if draws is None else draws, ~np.isnan(numbers)
        numbers, drawn = numbers[valid], drawn[valid]
        whole = bool((np.floor(numbers) == numbers).all())
        low, high = float(numbers.min()), float(numbers.max())
        return replace(found, kind=kind, numbers=(numbers,), draws=(drawn,), low=low, high=high, whole=whole)

    def __add__(self, other: Self) -> Self:
        kinds = {self.kind, other.kind} - {None}
        if len(kinds) > 1:
            raise InputError(f"The column {self.name!r} holds a {self.kind} in some rows and a {other.kind} in others.")
        counts = dict(self.counts)
        for value, count in other.counts.items():
            counts[value] = counts.get(value, 0) + count
        if len(counts) > MAX_VALUES:
            raise too_many_values({self.name: len(counts)}, "at least ")
        halved = max(self.halved, other.halved)
        mine, theirs = self._halved(halved), other._halved(halved)
        return replace(
            self,
            rows=self.rows + other.rows,
            missing=self.missing + other.missing,
            kind=next(iter(kinds), None),
            counts=counts,
            numbers=mine.numbers + theirs.numbers,
            draws=mine.draws + theirs.draws,
            halved=halved,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            whole=self.whole and other.whole,
        )._bounded()

    def _bounded(self) -> Self:
        """Return a summary that keeps not too many numbers."""
        found = self
        while sum(map(len, found.numbers)) > MOST_NUMBERS:
            found = found._halved(found.halved + 1)
        return found

    def _halved(self, times: int) -> Self:
        """Return a summary whose sample was halved so many times."""
        if self.halved >= times:
            return self
        kept = [drawn < 2.0 ** (32 - times) for drawn in self.draws]
        numbers, draws = (
            tuple(part[own] for part, own in zip(parts, kept, strict=True)) for parts in (self.numbers, self.draws)
        )
        return replace(self, numbers=numbers, draws=draws, halved=times)

    @property
    def median(self) -> float:
        """The median of a number or date; of more than ``MOST_NUMBERS`` that were learned in pieces, that of a sample."""
        return float(np.median(np.concatenate(self.numbers)))

    @property
    def characters(self) -> int:
        """Of all strings."""
        return sum(len(value) * count for value, count in self.counts.items())

    def to_state(self) -> dict[str, Any]:
        """Return all but the numbers and their draws as plain numbers and strings."""
        return {name: value for name, value in vars(self).items() if name not in {"numbers", "draws"}}


def too_many_values(numbers: Mapping[str, int], at_least: str = "") -> InputError:
    """Build the sentence for columns of strings that are no categories, by the numbers of their values."""
    if len(numbers) == 1:
        ((name, number),) = numbers.items()
        which, them = f"The column {name!r} has {at_least}{number:,} different strings, too many for categories", "it"
    else:
        named = ", ".join(f"{name!r} ({number:,})" for name, number in numbers.items())
        which, them = f"These columns have too many different strings for categories: {named}", "them"
    drop = " ".join(f"--drop {shlex.quote(name)}" for name in numbers) if len(numbers) > 1 else "--drop"
    return InputError(
        f"{which} (at most {MAX_VALUES:,}); leave {them} out ({drop}), put values into fewer, or turn strings of dates or "
        "numbers into these."
    )


def summaries_of(X: Any, draws: np.ndarray | None = None) -> list[Summary]:
    """Return what the rows of a table say of its columns; ``draws`` (N,) are as of :meth:`Summary.of`."""
    table = as_frame(X)
    return [Summary.of(table[name], str(name), draws) for name in table.columns]


def as_frame(X: Any) -> pd.DataFrame:
    """Return a table of pandas, polars or pyarrow, or an array, as a DataFrame that may be changed."""
    if hasattr(X, "to_pandas"):
        X = X.to_pandas()
    if isinstance(X, pd.DataFrame):
        table = X.copy(deep=False)
    elif getattr(X, "ndim", 0) == 2:
        table = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    else:
        raise InputError(f"The features must be a table with rows and columns, got {type(X).__name__}.")
    if len(table) == 0:
        raise InputError("The table has no rows.")
    if not table.columns.map(str).is_unique:
        raise InputError("The table has two columns of the same name; rename one.")
    return table


def kind_of(values: pd.Series) -> str:
    """Return whether a column holds numbers, dates or categories."""
    if pd.api.types.is_datetime64_any_dtype(values):
        return "date"
    return "number" if pd.api.types.is_numeric_dtype(values) else "category"


def plain_values(values: pd.Series) -> pd.Series:
    """Return a column of objects as what they are: numbers of any kind, dates, lengths of time in days."""
    if isinstance(values.dtype, pd.ArrowDtype):
        values = values.astype(object)
    if values.dtype == object:
        values = values.infer_objects()
        found = pd.api.types.infer_dtype(values, skipna=True)
        if found in {"decimal", "boolean"}:  # truths are numbers, also where one is missing
            values = values.astype(float)
        elif found == "date":
            values = pd.to_datetime(values)
    return values.dt.total_seconds() / 86_400 if pd.api.types.is_timedelta64_dtype(values) else values


def numbers_in(values: pd.Series, name: str, kind: str) -> np.ndarray:
    """Return a column as numbers, NaN where missing; a date as days since 1970."""
    values = plain_values(values)
    if kind == "date":
        if values.isna().all():
            return np.full(len(values), np.nan)
        in_utc = values if values.dt.tz is None else values.dt.tz_convert(None)  # a moment is the same in every zone
        seconds = in_utc.to_numpy("datetime64[s]")
        return np.where(np.isnat(seconds), np.nan, seconds.astype(np.int64) / 86_400)
    if kind_of(values) != "number":
        read = pd.to_numeric(values, errors="coerce")
        if (wrong := read.isna() & values.notna()).any():
            raise InputError(
                f"The column {name!r} holds numbers in training, but here strings like {values[wrong].iloc[0]!r}."
            )
        values = read
    numbers = values.to_numpy(np.float64, na_value=np.nan)
    if np.isinf(numbers).any():
        raise InputError(f"The column {name!r} has infinite values; leave them empty or give them a number.")
    return numbers


def strings_in(values: pd.Series) -> tuple[np.ndarray, list[str]]:
    """Return codes, -1 where missing, and the distinct values as strings."""
    try:
        codes, distinct = pd.factorize(values)
    except TypeError:  # lists and the like cannot be hashed
        codes, distinct = pd.factorize(values.map(str, na_action="ignore"))
    codes_of_string, strings = pd.factorize(np.array([_string(value) for value in distinct], dtype=object))
    return np.append(codes_of_string, -1)[codes], list(strings)


def _string(value: Any) -> str:
    """Return a value as a string; a whole number is the same in a column of integers and in one with missing values."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
