"""From a table as it was collected to features: dates as numbers, categories one-hot, missing values handled."""

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fairdro.errors import InputError

LARGEST = 1e37  # what single precision holds
MAX_VALUES = 1000  # a column of more strings than this is a name or an identifier, not a category
OTHER, MISSING = "(other)", "(missing)"


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
    notes_ : list of str
        A sentence on every column that was changed in a way to know about.
    feature_names_in_ : ndarray of str
    n_features_in_ : int

    Examples
    --------
    >>> make_pipeline(TableEncoder(), FairDROClassifierCV())  # doctest: +SKIP
    """

    def __init__(self, max_categories: int = 100, *, one_hot: bool = True) -> None:
        self.max_categories = max_categories
        self.one_hot = one_hot

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn values and medians.

        Parameters
        ----------
        X : DataFrame (pandas or polars), or array
        y : ignored
        """
        if not isinstance(self.max_categories, int) or self.max_categories < 2:
            raise InputError(f"max_categories must be a whole number of at least 2, got {self.max_categories!r}.")
        if not isinstance(self.one_hot, bool):
            raise InputError(f"one_hot must be true or false, got {self.one_hot!r}.")
        table = as_frame(X)
        self.notes_: list[str] = []
        self.columns_ = [column for name in table.columns if (column := self._learn(table[name], str(name))) is not None]
        if not self.columns_:
            raise InputError("There is no column to learn from: all values are missing, or there are no columns.")
        self.feature_names_in_ = np.array([str(name) for name in table.columns], dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        return self

    def _learn(self, values: pd.Series, name: str) -> Column | None:
        missing = int(values.isna().sum())
        if missing == len(values):
            self.notes_.append(f"{name!r} has no values and is left out.")
            return None
        values = _plain(values)
        kind = _kind(values)
        if kind == "category":
            return self._learn_category(values, name, missing)
        numbers = _numbers(values, name, kind)
        if np.nanmax(np.abs(numbers)) > LARGEST:
            raise InputError(f"The column {name!r} has numbers too large to compute with; give it another unit.")
        if missing and self.one_hot:
            self.notes_.append(
                f"{name!r} misses {missing:,} of {len(values):,} values; they count as its median, and as missing."
            )
        return Column(name, kind, missing > 0, float(np.nanmedian(numbers)))

    def _learn_category(self, values: pd.Series, name: str, missing: int) -> Column:
        codes, strings = _strings(values)
        if len(strings) > MAX_VALUES:
            raise InputError(
                f"The column {name!r} has {len(strings):,} different strings, too many for categories (at most "
                f"{MAX_VALUES:,}); leave it out (--drop), or put its values into fewer."
            )
        counts = np.bincount(codes[codes >= 0], minlength=len(strings))
        kept = np.argsort(-counts, kind="stable")
        others = len(strings) > self.max_categories
        if others:
            kept = kept[: self.max_categories - 1]
            self.notes_.append(f"{name!r} has {len(strings):,} values; all but the {len(kept)} most frequent count as one.")
        if missing and self.one_hot:
            self.notes_.append(f"{name!r} misses {missing:,} of {len(values):,} values; missing is a category of its own.")
        return Column(name, "category", missing > 0, values=tuple(sorted(strings[i] for i in kept)), others=others)

    def transform(self, X: Any) -> np.ndarray | pd.DataFrame:
        """Return the features ``(N, D)``, one-hot in single precision; further columns of the table are ignored."""
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
        """Return for every column how many values are missing, and how many were never seen in training."""
        table = as_frame(X)
        table.columns = table.columns.map(str)
        counts = {}
        for column in self.columns_:
            values = _plain(table[column.name])
            known = pd.Index(column.values)
            codes, strings = _strings(values) if column.kind == "category" else (np.empty(0, dtype=np.int64), [])
            new = ~pd.Index(strings, dtype=object).isin(known)
            counts[column.name] = int(values.isna().sum()), int(np.append(new, False)[codes].sum())
        return counts

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the features."""
        check_is_fitted(self)
        names = [column.features if self.one_hot else [column.name] for column in self.columns_]
        return np.array([name for of_column in names for name in of_column], dtype=object)

    def to_state(self) -> dict[str, Any]:
        """Return all that was learned as plain numbers and strings."""
        return {
            "max_categories": self.max_categories,
            "one_hot": self.one_hot,
            "inputs": self.feature_names_in_.tolist(),
            "columns": [asdict(column) for column in self.columns_],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Build a fitted encoder from :meth:`to_state`."""
        encoder = cls(state["max_categories"], one_hot=state["one_hot"])
        encoder.columns_ = [Column(**{**column, "values": tuple(column["values"])}) for column in state["columns"]]
        encoder.feature_names_in_ = np.array(state["inputs"], dtype=object)
        encoder.n_features_in_ = len(encoder.feature_names_in_)
        encoder.notes_ = []
        return encoder


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


def _kind(values: pd.Series) -> str:
    if pd.api.types.is_datetime64_any_dtype(values):
        return "date"
    return "number" if pd.api.types.is_numeric_dtype(values) else "category"


def _plain(values: pd.Series) -> pd.Series:
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


def _check_kind(column: Column, values: pd.Series) -> None:
    """Refuse values of another kind than in training."""
    kind = _kind(_plain(values))
    if values.notna().any() and {column.kind, kind} in ({"number", "date"}, {"date", "category"}) and kind != column.kind:
        raise InputError(f"The column {column.name!r} holds a {column.kind} in training, but here a {kind}.")


def _numbers(values: pd.Series, name: str, kind: str) -> np.ndarray:
    """Return a column as numbers, NaN where missing; a date as days since 1970."""
    values = _plain(values)
    if kind == "date":
        if values.isna().all():
            return np.full(len(values), np.nan)
        in_utc = values if values.dt.tz is None else values.dt.tz_convert(None)  # a moment is the same in every zone
        seconds = in_utc.to_numpy("datetime64[s]")
        return np.where(np.isnat(seconds), np.nan, seconds.astype(np.int64) / 86_400)
    if _kind(values) != "number":
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


def _strings(values: pd.Series) -> tuple[np.ndarray, list[str]]:
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


def _places(column: Column, values: pd.Series) -> np.ndarray:
    """Return the category of every row by its position, -1 where it is missing or not known."""
    codes, strings = _strings(values)
    places = pd.Index(column.values).get_indexer(pd.Index(strings))
    if column.others:
        places[places < 0] = len(column.values)
    return np.append(places, -1)[codes]


def _as_it_is(column: Column, values: pd.Series) -> Any:
    """Return a column with its missing values, categories as such."""
    _check_kind(column, values)
    if column.kind == "category":
        return pd.Categorical.from_codes(_places(column, values), categories=pd.Index(column.categories))
    return _numbers(values, column.name, column.kind)


def _write(column: Column, values: pd.Series, out: np.ndarray) -> None:
    """Write a column's one-hot features into its part of the table."""
    _check_kind(column, values)
    if column.kind == "category":
        places = _places(column, values)
        known = np.flatnonzero(places >= 0)
        out[known, places[known]] = 1
        missing = values.isna().to_numpy()
    else:
        numbers = _numbers(values, column.name, column.kind)
        missing = np.isnan(numbers)
        out[:, 0] = np.where(missing, 0, numbers - column.median)
    if column.missing:
        out[:, -1] = missing
