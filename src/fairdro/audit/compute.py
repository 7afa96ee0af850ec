"""From columns to an audit: what is counted as favourable, by which groups, and what there is to say of the rows."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow as pa

from fairdro._utils.parts import Parts
from fairdro._utils.progress import Stage, quiet
from fairdro.audit.inputs import Columns, Outcome
from fairdro.audit.rates import (
    Grouping,
    calibration_table,
    cell_table,
    paired,
    rate_changes,
    rate_table,
    score_table,
    unpaired,
)
from fairdro.certificates import Certificate, certify
from fairdro.errors import InputError
from fairdro.groups import MISSING, encode_groups
from fairdro.metrics import Confusion, FairClasses


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
    """A prediction beside the truth, and what these rows certify of its gaps if they neither trained nor chose the model."""

    prediction: str
    confusion: Confusion
    certificate: Certificate

    @cached_property
    def cells(self) -> pd.DataFrame:
        """The accuracy of every class and group, as of :func:`~fairdro.audit.rates.cell_table`."""
        return cell_table(self.confusion)


@dataclass(frozen=True)
class Part:
    """All there is by one sensitive column, or by the combinations of some.

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
    since : list of (str, DataFrame)
        With an earlier table: what changed, in words, and by how much.
    """

    grouping: Grouping
    rates: list[Rates]
    rate_changes: list[tuple[Outcome, pd.DataFrame]]
    judged: list[Judged]
    accuracy_changes: pd.DataFrame | None
    scores: pd.DataFrame | None
    calibration: pd.DataFrame | None
    since: list[tuple[str, pd.DataFrame]] = field(default_factory=list)


@dataclass(frozen=True)
class Audit:
    """An audit, as plain tables; made by :func:`audit_table`.

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

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdro.audit import audit_table
    >>> table = pd.DataFrame({
    ...     "sex": ["f"] * 100 + ["m"] * 100,
    ...     "hired": ["no"] * 70 + ["yes"] * 30 + ["no"] * 50 + ["yes"] * 50,
    ... })
    >>> audit = audit_table(table, groups=["sex"], predictions=["hired"])
    >>> [part.grouping.title for part in audit.parts]
    ['sex']
    >>> audit.notes
    ["'yes' of 'no' and 'yes' is counted as the favourable prediction, as none was named (--favourable)."]
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
    table: pa.Table | pd.DataFrame | Parts,
    *,
    groups: Sequence[str],
    predictions: Sequence[str] = (),
    target: str | None = None,
    score: str | None = None,
    threshold: float | None = None,
    favourable: str | None = None,
    fair_classes: Sequence[str] | None = None,
    missing_groups: str = "group",
    earlier: pa.Table | pd.DataFrame | Parts | None = None,
    stage: Stage = quiet,
) -> Audit:
    """Audit predictions or scores, whoever made them.

    Parameters
    ----------
    table : pyarrow.Table, DataFrame or Parts
        Read once, by batches; what is kept are counts and, with a score, 12 bytes per row. Rows that
        lack a prediction, a score or the target are left out.
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
    earlier : pyarrow.Table, DataFrame or Parts, optional
        The same columns of other rows, e.g. of last year: adds what has changed since.
    stage : callable, optional
        Shows how far reading has come.

    Returns
    -------
    Audit

    See Also
    --------
    in_short : What was found, in sentences.
    write_audit : A page, Markdown or JSON.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdro.audit import audit_table
    >>> table = pd.DataFrame({
    ...     "sex": ["f"] * 100 + ["m"] * 100,
    ...     "hired": ["no"] * 70 + ["yes"] * 30 + ["no"] * 50 + ["yes"] * 50,
    ... })
    >>> audit = audit_table(table, groups=["sex"], predictions=["hired"])
    >>> audit.rows, audit.favourable
    (200, 'yes')
    >>> audit.parts[0].rates[0].table[["rows", "rate", "ratio"]].round(2)
           rows  rate  ratio
    group
    f       100   0.3    0.6
    m       100   0.5    1.0
    """
    if missing_groups == "infer":
        raise InputError("An audit cannot infer groups, as it has no model of them; use 'group' or 'ignore'.")
    with stage("reading") as on_step:
        columns = Columns(table, list(groups), list(predictions), target, score, threshold, on_step)
    outcomes = columns.outcomes(favourable)
    fair = columns.fair_codes(fair_classes)
    sensitive = columns.sensitive(missing_groups)
    grouped = [_grouped(sensitive[names], missing_groups, columns.counts) for names in _subsets(list(groups))]
    _look_at_groups(grouped[-1], columns)
    parts = [_part(columns, by, outcomes, fair) for by in grouped]
    if earlier is not None:
        try:
            before = audit_table(
                earlier, groups=groups, predictions=predictions, target=target, score=score, threshold=columns.threshold,
                favourable=columns.favourable, fair_classes=fair_classes, missing_groups=missing_groups, stage=stage,
            )  # fmt: skip
        except InputError as error:
            raise InputError(f"Of the earlier table: {error}") from error
        columns.notes.append(f"The earlier table has {before.rows:,} rows.")
        columns.notes += [f"Of the earlier table: {note}" for note in before.notes]
        parts = [replace(now, since=_since(then, now)) for then, now in zip(before.parts, parts, strict=True)]
    return Audit(
        columns.rows, columns.predictions, target, score, columns.threshold, columns.at_median,
        columns.favourable, parts, columns.notes,
    )  # fmt: skip


def _subsets(groups: list[str]) -> list[list[str]]:
    """Return every column by itself, then every two, then all together."""
    pairs = [list(pair) for pair in itertools.combinations(groups, 2)]
    return [[name] for name in groups] + pairs + ([groups] if len(groups) > 2 else [])


def _grouped(sensitive: pd.DataFrame, missing_groups: str, counts: np.ndarray) -> Grouping:
    """Return the groups of some columns."""
    encoded = encode_groups(sensitive, missing_groups, counts=counts)
    names = list(encoded.names)
    if encoded.n_unknown:
        label = MISSING
        while label in names:
            label = f"({label})"
        names.append(label)
    lacking = np.asarray(sensitive.isna().any(axis=1))
    unknown = np.bincount(encoded.values[lacking], minlength=len(names)) > 0
    columns = [str(name) for name in sensitive.columns]
    return Grouping(columns, names, encoded.values, unknown, missing_groups == "group", counts)


def _look_at_groups(grouping: Grouping, columns: Columns) -> None:
    """Refuse a single group, and say how many rows have none."""
    known = [name for name, unknown in zip(grouping.names, grouping.unknown, strict=True) if not unknown]
    if not known or len(grouping.names if grouping.compared else known) < 2:
        raise InputError(f"There is one group only by {grouping.title!r}, {grouping.names[0]!r}: nothing to compare.")
    lacking = int(grouping.sizes[grouping.unknown].sum())
    if lacking and not grouping.compared:
        counted = f"{lacking:,} of {columns.rows:,} rows have no group"
        columns.notes.append(f"{counted}: their rate is shown, but they are not compared and have no accuracies.")


def _part(columns: Columns, by: Grouping, outcomes: list[Outcome], fair: FairClasses) -> Part:
    rates = [Rates(outcome, rate_table(outcome.favoured, by)) for outcome in outcomes]
    pairs = [(a, b) for a in outcomes for b in outcomes if _are_pair(a, b, columns)]
    accuracies = [] if columns.target is None else [_judge(name, columns, by, fair) for name in columns.predictions]
    changed = None
    if len(accuracies) == 2:
        before, after = (one.confusion for one in accuracies)
        changed = paired(before, after, _lost(columns, by)[:, : len(before.group_names)])
    scores = calibration = None
    if columns.score is not None:
        small = by.codes.astype(np.min_scalar_type(len(by.names)))
        of_rows = replace(by, codes=small[columns.of_row], counts=None)
        scores = score_table(columns.scores, of_rows, rates[-1].reference)
        calibration = _calibration(columns, of_rows)
    return Part(
        by, rates, [(b, rate_changes(a.favoured, b.favoured, by)) for a, b in pairs], accuracies, changed, scores,
        calibration,
    )  # fmt: skip


def _since(before: Part, now: Part) -> list[tuple[str, pd.DataFrame]]:
    """Compare rates, and accuracies where there are some, with those of an earlier table."""
    then = {(rates.outcome.column, rates.outcome.value): rates.table for rates in before.rates}
    found = [
        (rates.outcome.words, unpaired(then[key], rates.table, "rate"))
        for rates in now.rates if (key := (rates.outcome.column, rates.outcome.value)) in then
    ]  # fmt: skip
    for first, second in zip(before.judged, now.judged, strict=True):
        changed = unpaired(first.cells, second.cells, "accuracy")
        changed.index = pd.Index([f"{label} / {group}" for label, group in changed.index], name="class / group")
        found.append((f"{second.prediction} is right", changed))
    return found


def _are_pair(a: Outcome, b: Outcome, columns: Columns) -> bool:
    return [a.column, b.column] == columns.predictions and a.value == b.value


def _judge(name: str, columns: Columns, by: Grouping, fair: FairClasses) -> Judged:
    """Count predictions by class and group ``(Y, A, Y)``; rows that are not compared are left out."""
    shape = (len(columns.class_names), len(by.names), len(columns.class_names))
    cells = np.ravel_multi_index((columns.codes[str(columns.target)], by.codes, columns.codes[name]), shape)
    counts = np.bincount(cells, weights=columns.counts, minlength=math.prod(shape)).reshape(shape)
    shown = np.flatnonzero(~by.unknown | by.compared)
    names = [by.names[a] for a in shown]
    judged = Confusion(counts[:, shown], columns.class_names, names, fair_classes=fair)
    return Judged(name, judged, certify(judged))


def _lost(columns: Columns, by: Grouping) -> np.ndarray:
    """Count rows by class and group ``(Y, A)`` that the first prediction has right and the second wrong."""
    truth, first, second = (columns.codes[str(name)] for name in (columns.target, *columns.predictions))
    lost = (first == truth) & (second != truth)
    return np.stack([by.count(lost & (truth == y)) for y in range(len(columns.class_names))])


def _calibration(columns: Columns, grouping: Grouping) -> pd.DataFrame | None:
    """Compare a score with the truth, where it can be the probability of the favourable class; else say why not, once."""
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
    positive = columns.is_value(columns.target, columns.favourable)[columns.of_row]
    return calibration_table(columns.scores, positive, grouping)
