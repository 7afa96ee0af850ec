"""From a table as it was collected to features: dates as numbers, categories one-hot, missing values handled."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fairdro.errors import InputError
from fairdro.estimators.summaries import (
    MAX_VALUES,
    Summary,
    as_frame,
    kind_of,
    numbers_in,
    plain_values,
    strings_in,
    summaries_of,
    too_many_values,
)

LARGEST = 1e37  # what single precision holds
OTHER, MISSING = "(other)", "(missing)"
NUMBER, DATE = re.compile(r"\s*[-+]?\d[\d,]*(\.\d+)?\s*"), re.compile(r"\s*\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class Column:
    """How one column becomes features.

    Attributes
    ----------
    name : str
    kind : {"number", "date", "category"}
    missing : bool
        Whether values were missing; then a feature says so.
    median : float
        Of a number: what stands for a missing value, and what is subtracted, so that single precision is enough.
    values : tuple of str
        Of a category: those with a feature each.
    others : bool
        Of a category: whether there are rarer values, which share a feature, also with values never seen.
    """

    name: str
    kind: str
    missing: bool
    median: float = 0.0
    values: tuple[str, ...] = ()
    others: bool = False

    @property
    def features(self) -> list[str]:
        """Names of the features it makes, one-hot."""
        of_values = [f"{self.name} = {value}" for value in self.categories] if self.kind == "category" else [self.name]
        return of_values + [f"{self.name} = {MISSING}"] * self.missing

    @property
    def categories(self) -> list[str]:
        """Values of a category, rarer ones as one."""
        return [*self.values, *[OTHER] * self.others]


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """Make features of a table: numbers and dates from their median on, categories one-hot, missing values marked.

    Nothing is scaled: fairdro's classifiers scale for themselves.

    Parameters
    ----------
    max_categories : int, default 100
        Features of one category at most; rarer values share one.
    one_hot : bool, default True
        False for models that know categories and missing values, such as boosted trees: the features are then a DataFrame
        with a column each, in which categories are categories and missing values are missing.

    Attributes
    ----------
    columns_ : list of Column
        How every column becomes features.
    notes_ : list of str
        A sentence on every column that was changed in a way to know about.
    feature_names_in_ : ndarray of str
        Columns of the table.
    n_features_in_ : int
        Their number.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdro import TableEncoder
    >>> table = pd.DataFrame({"age": [20.0, 30.0, None], "job": ["clerk", "nurse", "clerk"]})
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'age = (missing)', 'job = clerk', 'job = nurse']
    >>> encoder.transform(table)
    array([[-5.,  0.,  1.,  0.],
           [ 5.,  0.,  0.,  1.],
           [ 0.,  1.,  1.,  0.]], dtype=float32)
    """

    def __init__(self, max_categories: int = 100, *, one_hot: bool = True) -> None:
        self.max_categories = max_categories
        self.one_hot = one_hot

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn values and medians.

        Parameters
        ----------
        X : DataFrame (pandas or polars), or array
            The table.
        y : ignored
            As scikit-learn passes it.

        Returns
        -------
        self
        """
        return self.learn(summaries_of(X))

    def learn(self, summaries: Sequence[Summary]) -> Self:
        """Learn from summaries of the columns, of a table or added up over its pieces.

        Parameters
        ----------
        summaries : sequence of Summary
            An entry per column.

        Returns
        -------
        self
        """
        if not isinstance(self.max_categories, int) or self.max_categories < 2:
            raise InputError(f"max_categories must be a whole number of at least 2, got {self.max_categories!r}.")
        if not isinstance(self.one_hot, bool):
            raise InputError(f"one_hot must be true or false, got {self.one_hot!r}.")
        if many := {found.name: len(found.counts) for found in summaries if len(found.counts) > MAX_VALUES}:
            raise too_many_values(many)
        self.notes_: list[str] = []
        self.columns_ = [column for summary in summaries if (column := self._column(summary)) is not None]
        if not self.columns_:
            raise InputError("There is no column to learn from: all values are missing, or there are no columns.")
        self.feature_names_in_ = np.array([summary.name for summary in summaries], dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        return self

    def _column(self, found: Summary) -> Column | None:
        name, missing = found.name, found.missing
        if found.kind is None:
            self.notes_.append(f"{name!r} has no values and is left out.")
            return None
        if found.kind == "category":
            return self._category(found)
        if max(-found.low, found.high) > LARGEST:
            raise InputError(f"The column {name!r} has numbers too large to compute with; give it another unit.")
        if missing and self.one_hot:
            self.notes_.append(
                f"{name!r} misses {missing:,} of {found.rows:,} values; they count as its median, and as missing."
            )
        return Column(name, found.kind, missing > 0, found.median)

    def _category(self, found: Summary) -> Column:
        name, missing, counts = found.name, found.missing, found.counts
        self._note_strings(name, counts)
        kept = sorted(counts, key=lambda value: (-counts[value], value))
        others = len(counts) > self.max_categories
        if others:
            kept = kept[: self.max_categories - 1]
            self.notes_.append(f"{name!r} has {len(counts):,} values; all but the {len(kept)} most frequent count as one.")
        if missing and self.one_hot:
            self.notes_.append(f"{name!r} misses {missing:,} of {found.rows:,} values; missing is a category of its own.")
        return Column(name, "category", missing > 0, values=tuple(sorted(kept)), others=others)

    def _note_strings(self, name: str, counts: Mapping[str, int]) -> None:
        """Say where categories are mostly numbers or dates, which is hardly meant."""
        total = sum(counts.values())
        for kind, fits in (("numbers", NUMBER.fullmatch), ("dates", DATE.match)):
            strange = [value for value in counts if not fits(value)]
            others = sum(counts[value] for value in strange)
            if others > 0.1 * total or (kind == "numbers" and not strange):  # all of them are codes
                continue
            beside = f", as it has {strange[0]!r} beside them" if strange else ""
            self.notes_.append(
                f"{name!r} holds {kind} as strings{beside}: they are categories; turn them into {kind} if that is not meant."
            )

    def transform(self, X: Any) -> np.ndarray | pd.DataFrame:
        """Return the features ``(N, D)``, one-hot in single precision; further columns of the table are ignored.

        Parameters
        ----------
        X : DataFrame (pandas or polars), or array
            The table.

        Returns
        -------
        ndarray of shape (N, D), or DataFrame
        """
        check_is_fitted(self)
        table = as_frame(X)
        table.columns = table.columns.map(str)
        if lacking := [column.name for column in self.columns_ if column.name not in table.columns]:
            raise InputError(f"The table lacks columns the model was trained on: {', '.join(map(repr, lacking[:5]))}.")
        if not self.one_hot:
            columns = {column.name: _as_it_is(column, table[column.name]) for column in self.columns_}
            return pd.DataFrame(columns, index=table.index)
        out = np.zeros((len(table), len(self.get_feature_names_out())), dtype=np.float32)
        first = 0
        for column in self.columns_:
            _write(column, table[column.name], out[:, first : (first := first + len(column.features))])
        return out

    def count_unseen(self, X: Any) -> dict[str, tuple[int, int]]:
        """Return for every column how many values are missing, and how many were never seen in training.

        Parameters
        ----------
        X : DataFrame (pandas or polars), or array
            The table.

        Returns
        -------
        dict of str to (int, int)
        """
        table = as_frame(X)
        table.columns = table.columns.map(str)
        counts = {}
        for column in self.columns_:
            values = plain_values(table[column.name])
            known = pd.Index(column.values)
            codes, strings = strings_in(values) if column.kind == "category" else (np.empty(0, dtype=np.int64), [])
            new = ~pd.Index(strings, dtype=object).isin(known)
            counts[column.name] = int(values.isna().sum()), int(np.append(new, False)[codes].sum())
        return counts

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the features.

        Parameters
        ----------
        input_features : ignored
            As scikit-learn passes it.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        names = [column.features if self.one_hot else [column.name] for column in self.columns_]
        return np.array([name for of_column in names for name in of_column], dtype=object)

    def to_state(self) -> dict[str, Any]:
        """Return all that was learned as plain numbers and strings.

        Returns
        -------
        dict
        """
        return {
            "max_categories": self.max_categories,
            "one_hot": self.one_hot,
            "inputs": self.feature_names_in_.tolist(),
            "columns": [asdict(column) for column in self.columns_],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Build a fitted encoder from :meth:`to_state`.

        Parameters
        ----------
        state : dict
            What it returned.

        Returns
        -------
        TableEncoder
        """
        encoder = cls(state["max_categories"], one_hot=state["one_hot"])
        encoder.columns_ = [Column(**{**column, "values": tuple(column["values"])}) for column in state["columns"]]
        encoder.feature_names_in_ = np.array(state["inputs"], dtype=object)
        encoder.n_features_in_ = len(encoder.feature_names_in_)
        encoder.notes_ = []
        return encoder


def _check_kind(column: Column, values: pd.Series) -> None:
    """Refuse values of another kind than in training."""
    kind = kind_of(plain_values(values))
    if values.notna().any() and {column.kind, kind} in ({"number", "date"}, {"date", "category"}) and kind != column.kind:
        raise InputError(f"The column {column.name!r} holds a {column.kind} in training, but here a {kind}.")


def _places(column: Column, values: pd.Series) -> np.ndarray:
    """Return the category of every row by its position, -1 where it is missing or not known."""
    codes, strings = strings_in(values)
    places = pd.Index(column.values).get_indexer(pd.Index(strings))
    if column.others:
        places[places < 0] = len(column.values)
    return np.append(places, -1)[codes]


def _as_it_is(column: Column, values: pd.Series) -> Any:
    """Return a column with its missing values, categories as such."""
    _check_kind(column, values)
    if column.kind == "category":
        return pd.Categorical.from_codes(_places(column, values), categories=pd.Index(column.categories))
    return numbers_in(values, column.name, column.kind)


def _write(column: Column, values: pd.Series, out: np.ndarray) -> None:
    """Write a column's one-hot features into its part of the table."""
    _check_kind(column, values)
    if column.kind == "category":
        places = _places(column, values)
        known = np.flatnonzero(places >= 0)
        out[known, places[known]] = 1
        missing = values.isna().to_numpy()
    else:
        numbers = numbers_in(values, column.name, column.kind)
        missing = np.isnan(numbers)
        out[:, 0] = np.where(missing, 0, numbers - column.median)
    if column.missing:
        out[:, -1] = missing
