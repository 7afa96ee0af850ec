"""The columns that an audit looks at: what they must be, which rows have them, and which outcomes are favourable."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa

from fairdro._utils.parts import BATCH_ROWS, Parts
from fairdro._utils.progress import OnStep
from fairdro.audit.cells import Cells
from fairdro.errors import InputError
from fairdro.estimators.columns import (
    as_pandas,
    check_columns,
    check_kind,
    known,
    labels_of,
    plain,
    sensitive_columns,
    without_group,
)
from fairdro.groups import encode_labels
from fairdro.metrics import FairClasses, class_codes

GOOD_WORDS = {"1", "true", "yes", "y", "approved", "accepted", "granted", "hired", "selected", "positive", "pass", "good"}
PAIRS = (["0", "1"], ["False", "True"])  # columns of these have two classes, whichever occur


@dataclass(frozen=True)
class Outcome:
    """What is counted: cells whose rows a column decides favourably.

    Attributes
    ----------
    column : str
    value : str, optional
        The prediction that is counted; None for a score.
    words : str
        Both in words.
    favoured : ndarray of bool, shape (C,)
        In which cells.
    """

    column: str
    value: str | None
    words: str
    favoured: np.ndarray


class Columns:
    """The columns that are looked at, of all rows that lack none, counted by what they have in them.

    What is kept are cells: the combinations of values that occur, ``C`` of them. What is assumed goes to ``notes``.

    Parameters
    ----------
    table : pyarrow.Table, DataFrame or Parts
        Read once, by batches.
    groups, predictions : list of str
    target, score : str, optional
    threshold : float, optional
    on_step : callable, optional
        Told how far reading has come.

    Attributes
    ----------
    cells : pyarrow.Table
        The values of every cell. With a score, each is there twice: for rows that are not above the threshold, and
        for those that are.
    counts : ndarray of shape (C,)
        Rows per cell.
    scores, of_row : ndarray of shape (N,)
        With a score: that of every row, and its cell.
    """

    def __init__(
        self,
        table: pa.Table | pd.DataFrame | Parts,
        groups: list[str],
        predictions: list[str],
        target: str | None,
        score: str | None,
        threshold: float | None,
        on_step: OnStep | None = None,
    ) -> None:
        self.notes: list[str] = []
        self.groups, self.predictions, self.target, self.score = groups, predictions, target, score
        self.favourable: str | None = None
        classes = [*predictions, *([target] if target is not None else [])]
        self._classes = list(dict.fromkeys(classes))
        named = [*classes, *([score] if score is not None else [])]
        table = _as_arrow(table, [*named, *groups])
        _check_names(table, groups, predictions, score, named)
        if threshold is not None and score is None:
            raise InputError("A threshold is for a score; name the column that holds it (--score), or leave it out.")
        if threshold is not None and not math.isfinite(threshold):
            raise InputError(f"The threshold must be a number, got {threshold:g}.")
        self._read(table, named, on_step)
        self.at_median = score is not None and threshold is None
        self.threshold = float(np.median(self.scores)) if self.at_median else threshold
        if self.threshold is not None:
            self._split(self.scores > self._precision(self.threshold))

    @property
    def rows(self) -> int:
        """How many lack nothing."""
        return int(self.counts.sum())

    def _read(self, table: pa.Table | Parts, named: list[str], on_step: OnStep | None) -> None:
        cells, scores, lacking, done = Cells(self._classes, self.groups), _Scores(self.score), 0, 0
        n = 0 if self.score is None else _rows(table)
        self.scores, self.of_row = np.empty(n), np.empty(n, dtype=np.int32)
        for batch in _batches(table, {*named, *self.groups}, on_step):
            columns = {name: plain(batch[name]) for name in dict.fromkeys([*named, *self.groups])}
            whole = pa.array(np.logical_and.reduce([known(columns[name]).to_numpy() for name in named]))
            some = pa.table(columns).filter(whole)
            lacking += batch.num_rows - some.num_rows
            if some.num_rows == 0:
                continue
            if self.score is not None:
                self.scores[done : done + some.num_rows] = scores.of(some[self.score])
            for name in self._classes:
                check_kind(some[name].type, name)
                _refuse_fractions(some[name], name)
            found = cells.add(_with_strings(some, self.groups))
            if self.score is not None:
                self.of_row[done : done + some.num_rows] = found
            done += some.num_rows
        if lacking > 0:
            self.notes.append(f"{lacking:,} rows without {' or '.join(map(repr, named))} are left out.")
        if done == 0:
            raise InputError(f"No row has a value in {' and '.join(map(repr, named))}.")
        scores.check()
        self.cells, self.counts, self._precision = cells.table, cells.counts, scores.precision
        self.scores, self.of_row = self.scores[:done], self.of_row[:done]

    def _split(self, above: np.ndarray) -> None:
        """Tell rows with a score above the threshold from others."""
        self.of_row *= 2
        self.of_row += above
        self.cells = self.cells.take(pa.array(np.repeat(np.arange(len(self.counts)), 2)))
        self.counts = np.bincount(self.of_row, minlength=self.cells.num_rows)

    @cached_property
    def _coded(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Predictions and target as codes of classes ``(C,)``, and the classes in order."""
        if not self._classes:
            return {}, np.empty(0)
        columns = _of_one_kind({name: _labels(self.cells[name], name) for name in self._classes})
        codes, classes = encode_labels(np.concatenate(list(columns.values())), "predictions")
        return dict(zip(columns, np.split(codes, len(columns)), strict=True)), classes

    @property
    def codes(self) -> dict[str, np.ndarray]:
        """The codes of predictions and target."""
        return self._coded[0]

    @property
    def class_names(self) -> list[str]:
        """What the codes stand for."""
        return [str(label) for label in self._coded[1].tolist()]

    def is_value(self, name: str, value: str | None) -> np.ndarray:
        """Return in which cells ``(C,)`` a prediction or the target is a class, given by its name."""
        return np.asarray(self.codes[name] == (self.class_names.index(value) if value in self.class_names else -1))

    def outcomes(self, favourable: str | None) -> list[Outcome]:
        """Return what is counted as favourable."""
        found = []
        if self.codes:
            counted = self._favourable(favourable)
            self.favourable = counted[0] if len(counted) == 1 else None
            found = [
                Outcome(name, value, f"{name} is {value}", self.is_value(name, value))
                for value in counted for name in self.predictions
            ]  # fmt: skip
        elif favourable is not None:
            raise InputError("There is no prediction or target that could be favourable; leave --favourable out.")
        if self.threshold is not None:
            words = f"{self.score} is above {self.threshold:.4g}" + (" (the median)" if self.at_median else "")
            found.append(Outcome(str(self.score), None, words, np.arange(len(self.counts)) % 2 == 1))
        return found

    def _favourable(self, asked: str | None) -> list[str]:
        """Return the values that are counted, one unless there are several classes and none was named."""
        values = _binary(self.class_names)
        if asked is not None:
            if asked not in values:
                shown = ", ".join(map(repr, values[:10])) + (", ..." if len(values) > 10 else "")
                columns = " or ".join(map(repr, self.codes))
                raise InputError(f"The favourable value {asked!r} does not occur in {columns}; there is: {shown}.")
            return [asked]
        if len(values) > 2:
            return values
        good = [value for value in values if value.casefold() in GOOD_WORDS]
        taken = good[0] if len(good) == 1 else values[-1]
        other = f" of {' and '.join(map(repr, values))}" if len(values) > 1 else ", the only value"
        self.notes.append(f"{taken!r}{other} is counted as the favourable prediction, as none was named (--favourable).")
        return [taken]

    def sensitive(self, missing_groups: str) -> pd.DataFrame:
        """Return the group columns of the cells as strings, None where one is missing, and note how many rows miss it."""
        strings = sensitive_columns(self.cells, self.groups, missing_groups, [])
        for name in self.groups:
            if strings[name].isna().all():
                raise InputError(f"No row has a value of {name!r}; leave it out (--group).")
        for name in self.groups if missing_groups == "group" else ():
            if lacking := int(self.counts[strings[name].isna()].sum()):
                self.notes.append(without_group(lacking, name))
        return strings

    def fair_codes(self, fair_classes: Sequence[str] | None) -> FairClasses:
        """Return the codes of the classes that gaps are about; refuse predictions that are none of the target's classes."""
        if self.target is None:
            if fair_classes:
                raise InputError("Fair classes are about accuracies, which need the truth; name its column (--target).")
            return None
        truth = set(pd.unique(self.codes[self.target]))
        for name in self.predictions:
            predicted = set(pd.unique(self.codes[name]))
            if strange := sorted(predicted - truth):
                told = f"{name!r} holds {self.class_names[strange[0]]!r}, which never occurs in {self.target!r}"
                if not predicted & truth:
                    raise InputError(f"{told}, and neither does any other value of it: name a column of predicted classes.")
                self.notes.append(f"{told}.")
        if not self.predictions:
            self.notes.append("Without a column of predictions (--prediction) there are no accuracies.")
        return class_codes(fair_classes or None, self._coded[1])


def _as_arrow(table: pa.Table | pd.DataFrame | Parts, names: Collection[str]) -> pa.Table | Parts:
    """Return a table of pyarrow or in files; of a DataFrame, the columns that are named, or why they cannot be read."""
    if isinstance(table, pa.Table | Parts):
        return table
    named = table.rename(columns=str)
    check_columns(pa.table([[] for _ in named.columns], names=list(named.columns)), list(names))
    try:
        columns = {name: _without_periods(named[name]) for name in dict.fromkeys(names)}
        return pa.Table.from_pandas(pd.DataFrame(columns), preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InputError(f"The table cannot be read: {str(error).splitlines()[0]}.") from error


def _without_periods(column: pd.Series) -> pd.Series:
    """Return intervals, as of ``pd.cut``, and periods as strings."""
    kind = column.dtype.categories.dtype if isinstance(column.dtype, pd.CategoricalDtype) else column.dtype
    if not isinstance(kind, pd.IntervalDtype | pd.PeriodDtype):
        return column
    return column.astype(str).where(column.notna(), None)


def _check_names(
    table: pa.Table | Parts, groups: list[str], predictions: list[str], score: str | None, named: list[str]
) -> None:
    check_columns(table.schema.empty_table(), [*named, *groups])
    if not groups:
        raise InputError("Name at least one sensitive column to judge by (--group).")
    if len(set(groups)) < len(groups):
        raise InputError("A sensitive column is named twice.")
    if not predictions and score is None:
        raise InputError("Name the column of predictions (--prediction), or of a score (--score).")
    if len(predictions) > 2 or len(set(predictions)) < len(predictions):
        raise InputError("Give one column of predictions, or two different ones to compare.")
    if twice := [name for name in groups if name in named]:
        raise InputError(f"{twice[0]!r} cannot be a group and something else, too.")
    if _rows(table) == 0:
        raise InputError("The table holds no rows.")


def _rows(table: pa.Table | Parts) -> int:
    return table.rows if isinstance(table, Parts) else table.num_rows


def _batches(table: pa.Table | Parts, names: set[str], on_step: OnStep | None) -> Iterator[pa.Table]:
    if isinstance(table, Parts):
        return (batch for batch, _ in table.batches(names, on_step=on_step))
    return (table.slice(start, BATCH_ROWS) for start in range(0, table.num_rows, BATCH_ROWS))


def _with_strings(table: pa.Table, groups: list[str]) -> pa.Table:
    """Return a table in which groups that are lists or the like, which cannot be counted, are strings."""
    for j, field in enumerate(table.schema):
        if field.name in groups and pa.types.is_nested(field.type):
            strings = as_pandas(table.select([field.name]))[field.name]
            table = table.set_column(j, field.name, pa.array(strings, pa.string()))
    return table


def _refuse_fractions(column: pa.ChunkedArray, name: str) -> None:
    if pa.types.is_floating(column.type) and pa.compute.any(pa.compute.not_equal(column, pa.compute.floor(column))).as_py():
        raise InputError(f"The column {name!r} holds fractions, so it is a score rather than classes; name it by --score.")


def _labels(column: pa.ChunkedArray, name: str) -> np.ndarray:
    labels = labels_of(column, name, several=False)
    return labels.astype(np.int64) if labels.dtype.kind == "f" else labels  # whole, as was found while reading


def _of_one_kind(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Refuse labels of different kinds, which never agree; false and true are 0 and 1 beside numbers."""
    if any(labels.dtype.kind in "iu" for labels in columns.values()):
        columns = {name: labels.astype(np.int64) if _fits(labels) else labels for name, labels in columns.items()}
    for (first, a), (second, b) in pairwise(columns.items()):
        if (a.dtype.kind in "iu") != (b.dtype.kind in "iu") or (a.dtype.kind == "b") != (b.dtype.kind == "b"):
            raise InputError(f"{first!r} holds labels like {a[0]!s}, {second!r} like {b[0]!s}: bring them to one kind.")
    return columns


def _fits(labels: np.ndarray) -> bool:
    return labels.dtype.kind == "b" or (labels.dtype.kind == "u" and labels.max() <= np.iinfo(np.int64).max)


def _binary(values: list[str]) -> list[str]:
    """Complete the values of a column of 0 and 1, or of false and true, one of which may never occur."""
    for pair in PAIRS:
        if set(values) <= set(pair):
            return pair
    return values


class _Scores:
    """A column of scores, taken batch by batch; ``check`` says at the end of one of strings that it holds none."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.first: object = None
        self.precision: type[np.floating] = np.float64  # in which a threshold equals a score

    def of(self, column: pa.ChunkedArray) -> np.ndarray:
        """Return some scores, or say that they are none."""
        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            self.first = column[0].as_py() if self.first is None else self.first
            if strange := [value for value in column.to_pylist() if not _is_number(value)]:
                raise self._refusal(strange[0])
            return np.zeros(len(column))
        self.precision = np.float32 if pa.types.is_float32(kind) else np.float64
        scores = column.cast(pa.float64(), safe=False).to_numpy()
        if not np.isfinite(scores).all():
            raise InputError(f"The column {self.name!r} holds infinite values, which are no scores; replace them.")
        return scores

    def check(self) -> None:
        """Refuse strings that all look like numbers."""
        if self.first is not None:
            raise self._refusal(self.first)

    def _refusal(self, example: object) -> InputError:
        return InputError(f"The column {self.name!r} must hold numbers to be a score, but has {str(example)[:40]!r}.")


def _is_number(value: object) -> bool:
    try:
        return math.isfinite(float(str(value)))
    except ValueError:
        return False
