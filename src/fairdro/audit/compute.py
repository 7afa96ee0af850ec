"""From columns to an audit: what is counted as favourable, by which groups, and what there is to say of the rows."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fairdro.audit.rates import (
    Grouping,
    calibration_table,
    paired,
    rate_changes,
    rate_table,
    score_table,
)
from fairdro.errors import InputError
from fairdro.estimators.columns import check_columns, labels_of, sensitive_columns
from fairdro.groups import MISSING, Groups, encode_groups
from fairdro.metrics import Confusion, confusion

GOOD_WORDS = {"1", "true", "yes", "y", "approved", "accepted", "granted", "hired", "selected", "positive", "pass", "good"}


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


@dataclass(frozen=True)
class Rates:
    """An outcome by group: the table of :func:`~fairdro.audit.rates.rate_table`."""

    outcome: Outcome
    table: pd.DataFrame

    @property
    def reference(self) -> str | None:
        """The group that others are compared with; None where nobody is selected."""
        return next(iter(self.table.index[self.table["reference"]]), None)


@dataclass(frozen=True)
class Judged:
    """A prediction beside the truth, and a certificate of its gap, where there is one."""

    prediction: str
    confusion: Confusion
    certificate: Any = None


@dataclass(frozen=True)
class Part:
    """All there is by one sensitive column, or by the combinations of all.

    Attributes
    ----------
    grouping : Grouping
    rates : list of Rates
        An entry per outcome.
    rate_changes : list of (Outcome, DataFrame)
        With two predictions: how rates change, by the outcome of the second.
    judged : list of Judged
        With a target: an entry per prediction.
    accuracy_changes : DataFrame, optional
        With a target and two predictions: how the accuracy of every class and group changes.
    scores, calibration : DataFrame, optional
        With a score; the second also needs a target.
    """

    grouping: Grouping
    rates: list[Rates]
    rate_changes: list[tuple[Outcome, pd.DataFrame]]
    judged: list[Judged]
    accuracy_changes: pd.DataFrame | None
    scores: pd.DataFrame | None
    calibration: pd.DataFrame | None


@dataclass(frozen=True)
class Audit:
    """An audit, as plain tables.

    Attributes
    ----------
    rows : int
        How many were counted.
    predictions : list of str
        None, one or two columns.
    target, score : str, optional
        Columns.
    threshold : float, optional
        Scores above it count as favourable.
    at_median : bool
        Whether the threshold is the median of the scores.
    favourable : str, optional
        The prediction that is counted; None where every one is.
    parts : list of Part
        By every sensitive column, then by their combinations.
    notes : list of str
        Sentences on what was left out or assumed.
    """

    rows: int
    predictions: list[str]
    target: str | None
    score: str | None
    threshold: float | None
    at_median: bool
    favourable: str | None
    parts: list[Part]
    notes: list[str] = field(default_factory=list)


def audit_table(
    table: pa.Table | pd.DataFrame,
    *,
    groups: Sequence[str],
    predictions: Sequence[str] = (),
    target: str | None = None,
    score: str | None = None,
    threshold: float | None = None,
    favourable: str | None = None,
    fair_classes: Sequence[str] | None = None,
    missing_groups: str = "group",
) -> Audit:
    """Audit predictions or scores, whoever made them.

    Parameters
    ----------
    table : pyarrow.Table or DataFrame
        Rows that lack a prediction, a score or the target are left out.
    groups : sequence of str
        Sensitive columns; each is looked at by itself, and all their combinations.
    predictions : sequence of str
        One column with what was predicted, or two to compare.
    target : str, optional
        Column with the truth: adds accuracies, gaps between them and, with a score, calibration.
    score : str, optional
        Column of numbers, more is better; with a target and within 0 and 1, the probability of the favourable class.
    threshold : float, optional
        Scores above it count as favourable; by default their median.
    favourable : str, optional
        The prediction that is good for people. Of two classes, by default 1, true, yes and the like, or else the last in
        order; of more, every class is counted.
    fair_classes : sequence of str, optional
        Names of the classes that gaps in accuracy are about; by default all.
    missing_groups : {"group", "ignore", "refuse"}
        Whether rows without a group are a group of their own, or shown and not compared.
    """
    table = pa.Table.from_pandas(table, preserve_index=False) if isinstance(table, pd.DataFrame) else table
    if missing_groups == "infer":
        raise InputError("An audit cannot infer groups, as it has no model of them; use 'group' or 'ignore'.")
    columns = _Columns(table, list(groups), list(predictions), target, score, threshold)
    outcomes = columns.outcomes(favourable)
    judged = columns.judgements(fair_classes)
    sensitive = sensitive_columns(columns.table, groups, missing_groups, columns.notes)
    grouped = [_grouped(sensitive[names], missing_groups) for names in _subsets(list(groups))]
    _look_at_groups(grouped[-1][0], columns)
    parts = [_part(columns, by, outcomes, judged) for by in grouped]
    return Audit(
        columns.table.num_rows, columns.predictions, target, score, columns.threshold, columns.at_median,
        columns.favourable, parts, columns.notes,
    )  # fmt: skip


def _subsets(groups: list[str]) -> list[list[str]]:
    """Return every column by itself, then all together."""
    return [[name] for name in groups] + ([groups] if len(groups) > 1 else [])


class _Columns:
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
        _check_names(table, groups, predictions, named)
        if threshold is not None and score is None:
            raise InputError("A threshold is for a score; name the column that holds it (--score), or leave it out.")
        if threshold is not None and not math.isfinite(threshold):
            raise InputError(f"The threshold must be a number, got {threshold:g}.")
        self.table = self._whole(table, named)
        self.scores = np.empty(0) if score is None else _numbers(self.table[score], score)
        self.at_median = score is not None and threshold is None
        self.threshold = float(np.median(self.scores)) if self.at_median else threshold

    def _whole(self, table: pa.Table, named: list[str]) -> pa.Table:
        known = np.ones(table.num_rows, dtype=bool)
        for name in named:
            column = table[name]
            valid = pa.compute.is_valid(column)
            if pa.types.is_floating(column.type):
                valid = pa.compute.and_not(valid, pa.compute.is_nan(column).fill_null(fill_value=False))
            known &= valid.to_numpy()
        if (lacking := int((~known).sum())) > 0:
            words = " or ".join(map(repr, named))
            self.notes.append(f"{lacking:,} rows without {words} are left out.")
        if not known.any():
            raise InputError(f"No row has a value in {' and '.join(map(repr, named))}.")
        return table.filter(pa.array(known))

    @cached_property
    def labels(self) -> dict[str, np.ndarray]:
        """Predictions and target, as classes."""
        names = [*self.predictions, *([self.target] if self.target else [])]
        return {name: _labels(self.table[name], name) for name in names}

    def outcomes(self, favourable: str | None) -> list[Outcome]:
        """Return what is counted as favourable."""
        found = []
        by_name = {name: np.array([str(v) for v in values.tolist()]) for name, values in self.labels.items()}
        if by_name:
            counted = self._favourable(favourable)
            self.favourable = counted[0] if len(counted) == 1 else None
            found = [
                Outcome(name, value, f"{name} is {value}", by_name[name] == value)
                for value in counted for name in self.predictions
            ]  # fmt: skip
        elif favourable is not None:
            raise InputError("There is no prediction or target that could be favourable; leave --favourable out.")
        if self.score is not None:
            words = f"{self.score} above {self.threshold:.4g}" + (" (the median)" if self.at_median else "")
            found.append(Outcome(self.score, None, words, self.scores > self.threshold))
        return found

    def _favourable(self, asked: str | None) -> list[str]:
        """Return the values that are counted, one unless there are several classes and none was named."""
        values = np.unique(np.concatenate([np.unique(v).astype(object) for v in self.labels.values()]).astype(str)).tolist()
        values = _binary(values)
        if asked is not None:
            if asked not in values:
                shown = ", ".join(map(repr, values[:10])) + (", ..." if len(values) > 10 else "")
                columns = " or ".join(map(repr, self.labels))
                raise InputError(f"The favourable value {asked!r} does not occur in {columns}; there is: {shown}.")
            return [asked]
        if len(values) > 2:
            self.notes.append("Which of several predictions is favourable was not said (--favourable): rates are of every one.")
            return values
        good = [value for value in values if value.casefold() in GOOD_WORDS]
        taken = good[0] if len(good) == 1 else values[-1]
        other = f" of {' and '.join(map(repr, values))}" if len(values) > 1 else ", the only value"
        self.notes.append(f"{taken!r}{other} is counted as the favourable prediction, as none was named (--favourable).")
        return [taken]

    def judgements(self, fair_classes: Sequence[str] | None) -> dict[str, Any]:
        """Return what the functions of :mod:`fairdro.metrics` need beside a prediction, if there is a target."""
        if self.target is None:
            if fair_classes:
                raise InputError("Fair classes are about accuracies, which need the truth; name its column (--target).")
            return {}
        known, truth = np.unique(self.labels[self.target]), self.labels[self.target]
        for name in self.predictions:
            predicted = self.labels[name]
            if len(strange := np.setdiff1d(predicted, known)) > 0 and len(np.intersect1d(predicted, known)) > 0:
                self.notes.append(f"{name!r} holds {strange[0]!r}, which never occurs in {self.target!r}.")
                known = np.union1d(known, strange)
        if not self.predictions:
            self.notes.append("Without a column of predictions (--prediction) there are no accuracies.")
        return {"truth": truth, "options": {"fair_classes": fair_classes or None, "labels": known}}


def _check_names(table: pa.Table, groups: list[str], predictions: list[str], named: list[str]) -> None:
    check_columns(table, [*named, *groups])
    if not groups:
        raise InputError("Name at least one sensitive column to judge by (--group).")
    if len(set(groups)) < len(groups):
        raise InputError("A sensitive column is named twice.")
    if not predictions and len(named) == 0:
        raise InputError("Name the column of predictions (--prediction), or of a score (--score).")
    if len(predictions) > 2 or len(set(predictions)) < len(predictions):
        raise InputError("Give one column of predictions, or two different ones to compare.")
    if twice := [name for name in groups if name in named]:
        raise InputError(f"{twice[0]!r} cannot be a group and something else, too.")
    if table.num_rows == 0:
        raise InputError("The table holds no rows.")


def _labels(column: pa.ChunkedArray, name: str) -> np.ndarray:
    labels = labels_of(column, name, several=False)
    return labels.astype(np.int64) if labels.dtype.kind == "f" else labels  # whole, as labels_of found


def _binary(values: list[str]) -> list[str]:
    """Complete the values of a column of 0 and 1, or of false and true, one of which may never occur."""
    for pair in (["0", "1"], ["False", "True"]):
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


def _grouped(sensitive: pd.DataFrame, missing_groups: str) -> tuple[Grouping, Groups]:
    """Return the groups of some columns, also as metrics take them."""
    encoded = encode_groups(sensitive, missing_groups)
    names, codes = list(encoded.names), encoded.values
    if encoded.n_unknown:
        label = MISSING
        while label in names:
            label = f"({label})"
        names.append(label)
    lacking = np.asarray(sensitive.isna().any(axis=1))
    unknown = np.bincount(codes[lacking], minlength=len(names)) > 0
    columns = [str(name) for name in sensitive.columns]
    return Grouping(columns, names, codes, unknown, compared=missing_groups == "group"), encoded


def _look_at_groups(grouping: Grouping, columns: _Columns) -> None:
    """Refuse a single group, and say how many rows have none."""
    known = [name for name, unknown in zip(grouping.names, grouping.unknown, strict=True) if not unknown]
    if not known or len(grouping.names if grouping.compared else known) < 2:
        raise InputError(f"There is one group only by {grouping.title!r}, {grouping.names[0]!r}: nothing to compare.")
    lacking = int(grouping.sizes[grouping.unknown].sum())
    if lacking and not grouping.compared:
        counted = f"{lacking:,} of {columns.table.num_rows:,} rows have no group"
        columns.notes.append(f"{counted}: their rate is shown, but they are not compared and have no accuracies.")


def _part(columns: _Columns, by: tuple[Grouping, Groups], outcomes: list[Outcome], judged: dict[str, Any]) -> Part:
    grouping, encoded = by
    rates = [Rates(outcome, rate_table(outcome.favoured, grouping)) for outcome in outcomes]
    pairs = [(a, b) for a in outcomes for b in outcomes if len(columns.predictions) == 2 and _are_pair(a, b, columns)]
    accuracies: list[Judged] = []
    changed = None
    if judged and columns.predictions:
        accuracies = [Judged(name, _confusion(judged, columns.labels[name], encoded)) for name in columns.predictions]
        if len(accuracies) == 2:
            before, after = (one.confusion for one in accuracies)
            lost = _lost(judged, *(columns.labels[name] for name in columns.predictions), before.class_names, grouping)
            changed = paired(before, after, lost[:, : len(before.group_names)])
    scores = calibration = None
    if columns.score is not None:
        scores = score_table(columns.scores, grouping, rates[-1].reference)
        calibration = _calibration(columns, grouping)
    return Part(
        grouping, rates, [(b, rate_changes(a.favoured, b.favoured, grouping)) for a, b in pairs], accuracies, changed,
        scores, calibration,
    )  # fmt: skip


def _are_pair(a: Outcome, b: Outcome, columns: _Columns) -> bool:
    return [a.column, b.column] == columns.predictions and a.value == b.value


def _confusion(judged: dict[str, Any], predicted: np.ndarray, groups: Groups) -> Confusion:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*rows have no group", UserWarning)  # said in a note
        return confusion(judged["truth"], predicted, sensitive_features=groups, **judged["options"])


def _lost(judged: dict[str, Any], first: np.ndarray, second: np.ndarray, class_names: list[str], by: Grouping) -> np.ndarray:
    """Count rows by class and group ``(Y, A)`` that the first prediction has right and the second wrong."""
    lost, truth = (first == judged["truth"]) & (second != judged["truth"]), judged["truth"].astype(str)
    return np.stack([by.count((lost & (truth == name)).astype(np.float64)) for name in class_names])


def _calibration(columns: _Columns, grouping: Grouping) -> pd.DataFrame | None:
    """Compare a score with the truth, where it can be the probability of the favourable class; otherwise say why not, once."""
    if columns.target is None:
        return None
    reason = ""
    if columns.favourable is None:
        reason = "which class it foretells was not said (--favourable)"
    elif columns.scores.min() < 0 or columns.scores.max() > 1:
        reason = "it is no probability, as it leaves the range from 0 to 1"
    if reason:
        sentence = f"Calibration of {columns.score!r} is not shown: {reason}."
        columns.notes += [sentence] if sentence not in columns.notes else []
        return None
    positive = np.array([str(v) for v in columns.labels[columns.target].tolist()]) == columns.favourable
    return calibration_table(columns.scores, positive, grouping)
