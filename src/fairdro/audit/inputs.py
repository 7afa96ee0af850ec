"""The columns that an audit looks at: what they must be, which rows have them, and which outcomes are favourable."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa

from fairdro.errors import InputError
from fairdro.estimators.columns import check_columns, known, labels_of
from fairdro.groups import encode_labels
from fairdro.metrics import FairClasses, class_codes

GOOD_WORDS = {"1", "true", "yes", "y", "approved", "accepted", "granted", "hired", "selected", "positive", "pass", "good"}
PAIRS = (["0", "1"], ["False", "True"])  # columns of these have two classes, whichever occur


@dataclass(frozen=True)
class Outcome:
    """What is counted: rows that a column decides favourably.

    Attributes
    ----------
    column : str
    value : str, optional
        The prediction that is counted; None for a score.
    words : str
        Both in words.
    favoured : ndarray of bool, shape (N,)
    """

    column: str
    value: str | None
    words: str
    favoured: np.ndarray


class Columns:
    """The columns that are looked at, without rows that lack one; what is assumed of them goes to ``notes``."""

    def __init__(
        self,
        table: pa.Table,
        groups: list[str],
        predictions: list[str],
        target: str | None,
        score: str | None,
        threshold: float | None,
    ) -> None:
        self.notes: list[str] = []
        self.predictions, self.target, self.score = predictions, target, score
        self.favourable: str | None = None
        named = [*predictions, *([target] if target else []), *([score] if score else [])]
        _check_names(table, groups, predictions, score, named)
        if threshold is not None and score is None:
            raise InputError("A threshold is for a score; name the column that holds it (--score), or leave it out.")
        if threshold is not None and not math.isfinite(threshold):
            raise InputError(f"The threshold must be a number, got {threshold:g}.")
        self.table = self._whole(table, named)
        self.scores = np.empty(0) if score is None else _numbers(self.table[score], score)
        self.at_median = score is not None and threshold is None
        self.threshold = float(np.median(self.scores)) if self.at_median else threshold

    def _whole(self, table: pa.Table, named: list[str]) -> pa.Table:
        whole = np.ones(table.num_rows, dtype=bool)
        for name in named:
            whole &= known(table[name]).to_numpy()
        if (lacking := int((~whole).sum())) > 0:
            words = " or ".join(map(repr, named))
            self.notes.append(f"{lacking:,} rows without {words} are left out.")
        if not whole.any():
            raise InputError(f"No row has a value in {' and '.join(map(repr, named))}.")
        return table.filter(pa.array(whole))

    @cached_property
    def _coded(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Predictions and target as codes of classes ``(N,)``, and the classes in order."""
        names = [*self.predictions, *([self.target] if self.target else [])]
        if not names:
            return {}, np.empty(0)
        columns = _of_one_kind({name: _labels(self.table[name], name) for name in names})
        codes, classes = encode_labels(np.concatenate(list(columns.values())), "predictions")
        return dict(zip(names, np.split(codes, len(names)), strict=True)), classes

    @property
    def codes(self) -> dict[str, np.ndarray]:
        """The codes of predictions and target."""
        return self._coded[0]

    @property
    def class_names(self) -> list[str]:
        """What the codes stand for."""
        return [str(label) for label in self._coded[1].tolist()]

    def is_value(self, name: str, value: str | None) -> np.ndarray:
        """Return in which rows ``(N,)`` a prediction or the target is a class, given by its name."""
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
            found.append(Outcome(str(self.score), None, words, self.scores > self.threshold))
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


def as_arrow(table: pa.Table | pd.DataFrame) -> pa.Table:
    """Return a table of pyarrow, or say why a DataFrame cannot be one."""
    if isinstance(table, pa.Table):
        return table
    try:
        return pa.Table.from_pandas(table.rename(columns=str), preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InputError(f"The table cannot be read: {str(error).splitlines()[0]}.") from error


def _check_names(table: pa.Table, groups: list[str], predictions: list[str], score: str | None, named: list[str]) -> None:
    check_columns(table, [*named, *groups])
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
    if table.num_rows == 0:
        raise InputError("The table holds no rows.")


def _labels(column: pa.ChunkedArray, name: str) -> np.ndarray:
    if pa.types.is_floating(column.type) and pa.compute.any(pa.compute.not_equal(column, pa.compute.floor(column))).as_py():
        raise InputError(f"The column {name!r} holds fractions, so it is a score rather than classes; name it by --score.")
    labels = labels_of(column, name, several=False)
    return labels.astype(np.int64) if labels.dtype.kind == "f" else labels  # whole, as labels_of found


def _of_one_kind(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Refuse labels of different kinds, which never agree; false and true are 0 and 1 beside numbers."""
    if any(labels.dtype.kind in "iu" for labels in columns.values()):
        columns = {name: labels.astype(np.int64) if labels.dtype.kind == "b" else labels for name, labels in columns.items()}
    for (first, a), (second, b) in pairwise(columns.items()):
        if (a.dtype.kind in "iu") != (b.dtype.kind in "iu") or (a.dtype.kind == "b") != (b.dtype.kind == "b"):
            raise InputError(f"{first!r} holds labels like {a[0]!s}, {second!r} like {b[0]!s}: bring them to one kind.")
    return columns


def _binary(values: list[str]) -> list[str]:
    """Complete the values of a column of 0 and 1, or of false and true, one of which may never occur."""
    for pair in PAIRS:
        if set(values) <= set(pair):
            return pair
    return values


def _numbers(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """Return a column of scores, or say that it holds none."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        example = next((v for v in column.to_pylist() if not _is_number(v)), column[0].as_py())
        raise InputError(f"The column {name!r} must hold numbers to be a score, but has {str(example)[:40]!r}.")
    scores = column.cast(pa.float64()).to_numpy()
    if not np.isfinite(scores).all():
        raise InputError(f"The column {name!r} holds infinite values, which are no scores; replace them.")
    return scores


def _is_number(value: object) -> bool:
    try:
        return math.isfinite(float(str(value)))
    except ValueError:
        return False
