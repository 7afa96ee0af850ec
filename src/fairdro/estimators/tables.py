"""From a table in a file to a fair model, to predictions, to an audit: what the command line does for tables."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.model_selection import ShuffleSplit
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from fairdro._utils.extras import require
from fairdro.errors import InputError, unknown_name
from fairdro.estimators.boosting import FairDROBoostingClassifier
from fairdro.estimators.cv import FairDROClassifierCV
from fairdro.estimators.encoder import MISSING, TableEncoder
from fairdro.estimators.head import FairDROHead, fit_head
from fairdro.estimators.head_classifier import FairDROHeadClassifier
from fairdro.groups import TOO_FEW, encode_groups
from fairdro.metrics import Confusion, confusion
from fairdro.selection import KEEP_CLASS_ACCURACY
from fairdro.training.engines import models_for_tables

PREDICTED = "predicted"
MAX_CLASSES = 100
CLASSES = [pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_large_string]
FOLDS = 5
ROWS_FOR_FOLDS = 200_000  # a larger table holds a fifth out once: enough to judge, and five times faster
ROWS_PER_PIECE = 100_000
ESTIMATORS = [
    "sklearn.linear_model.LogisticRegression",
    "sklearn.ensemble.RandomForestClassifier",
    "sklearn.ensemble.ExtraTreesClassifier",
    "sklearn.ensemble.HistGradientBoostingClassifier",
    "sklearn.naive_bayes.GaussianNB",
    "sklearn.neighbors.KNeighborsClassifier",
    "sklearn.neural_network.MLPClassifier",
    "lightgbm.LGBMClassifier",
    "xgboost.XGBClassifier",
]
SCALED = {"LogisticRegression", "KNeighborsClassifier", "MLPClassifier"}


@dataclass(frozen=True)
class FittedTable:
    """A model of a table, and what there is to say of it.

    Attributes
    ----------
    model : Pipeline
        The encoder and the classifier; takes a DataFrame with the table's columns.
    before, after : Confusion
        Held-out rows as plain training and as the model predict them.
    rho : float
    notes : list of str
        Sentences on what was done to the data.
    """

    model: Pipeline
    before: Confusion
    after: Confusion
    rho: float
    notes: list[str]


def fit_table(
    table: pa.Table,
    *,
    target: str,
    groups: Sequence[str],
    drop: Sequence[str] = (),
    rho: float | None = None,
    keep_accuracy: float = 0.95,
    keep_class_accuracy: float = KEEP_CLASS_ACCURACY,
    floor: float | None = None,
    objective: str = "balanced",
    model: str = "linear",
    small_cells: str = "warn",
    min_cell_size: int = TOO_FEW,
    estimator: str | None = None,
    verbose: bool = False,
) -> FittedTable:
    """Train on a table; the group columns are for fairness only and are not features.

    Parameters
    ----------
    table : pyarrow.Table
    target : str
        Column to predict; rows without it are left out.
    groups : sequence of str
        Sensitive columns; every combination of their values is a group, a missing value one of them.
    drop : sequence of str
        Columns to leave out of the features.
    rho : float, optional
        Radius; if missing, it is chosen on held-out rows by the paper's rule.
    keep_accuracy : float
        Share of plain training's accuracy which the rule keeps.
    keep_class_accuracy, floor
        The guard against levelling down, see :class:`~fairdro.FairDROClassifierCV`.
    objective : {"balanced", "standard"}
        Whether that is accuracy over classes and groups that count the same, or ordinary accuracy.
    model : {"linear", "mlp", "boosting", "head"}
        ``head`` is a classifier of scikit-learn with a FairDRO head.
    small_cells, min_cell_size
        As of :class:`~fairdro.FairDROClassifier`.
    estimator : str, optional
        The classifier of ``head``, one of :data:`ESTIMATORS`; by default logistic regression.
    verbose : bool
        Show progress on a terminal.
    """
    _check_columns(table, [target, *groups, *drop])
    _check_options(target, groups, model, rho, keep_accuracy)
    if estimator is not None and model != "head":
        raise InputError("An estimator is for model head only; leave it out.")
    notes: list[str] = []
    table = _with_target(table, target, notes)
    y = _labels(table[target], target)
    sensitive = _sensitive(table, groups, notes)
    features = table.drop_columns(list({target, *groups, *drop}))
    if not features.column_names:
        raise InputError("There is no column left to learn from, beside the target and the groups.")
    trees, large = model == "boosting", table.num_rows > ROWS_FOR_FOLDS
    encoder = TableEncoder(one_hot=not trees)
    X = encoder.fit_transform(_as_pandas(features))
    options: dict[str, Any] = {
        "keep_accuracy": keep_accuracy,
        "keep_class_accuracy": keep_class_accuracy,
        "floor": floor,
        "objective": objective,
        "cv": ShuffleSplit(1, test_size=1 / FOLDS, random_state=0) if large else FOLDS,
        "small_cells": small_cells,
        "min_cell_size": min_cell_size,
    }
    classifier: FairDROHeadClassifier | FairDROClassifierCV
    if trees:
        classifier = FairDROBoostingClassifier(rho, verbose=verbose, **options)
    elif model == "head":
        classifier = FairDROHeadClassifier(_estimator(estimator), rho=rho, **options)
    else:
        classifier = FairDROClassifierCV(rho, model=model, verbose=verbose, **options)
    classifier.fit(X, y, sensitive_features=sensitive)
    notes += encoder.notes_
    if classifier.merged_groups_:
        merged = ", ".join(map(repr, classifier.merged_groups_))
        notes.append(f"Groups are merged so that all have {min_cell_size} rows of every class: {merged} count as one.")
    return FittedTable(
        model=Pipeline([("encode", encoder), ("classify", classifier)]),
        before=classifier.held_out(0),
        after=classifier.held_out(),
        rho=classifier.rho_,
        notes=notes,
    )


def _check_options(target: str, groups: Sequence[str], model: str, rho: float | None, keep_accuracy: float) -> None:
    if model not in (known := [*models_for_tables(), "head"]):
        raise unknown_name("model", model, known)
    if not groups:
        raise InputError("Name at least one sensitive column to be fair to (--group).")
    if len(set(groups)) < len(groups):
        raise InputError("A sensitive column is named twice.")
    if target in groups:
        raise InputError(f"{target!r} cannot be both the target and a group.")
    if rho is not None and not 0 <= rho < math.inf:
        raise InputError(f"rho must be zero or a positive number, got {rho:g}.")
    if not 0 <= keep_accuracy <= 1:
        raise InputError(f"The share of accuracy to keep must lie between 0 and 1, got {keep_accuracy:g}.")


def _with_target(table: pa.Table, target: str, notes: list[str]) -> pa.Table:
    """Return the rows that have a target, and say how many have none."""
    known = pa.compute.is_valid(table[target])
    if (lacking := table.num_rows - pa.compute.sum(known).as_py()) == 0:
        return table
    notes.append(f"{lacking:,} rows without a value of {target!r} are left out.")
    return table.filter(known)


def _estimator(name: str | None) -> Any:
    """Return a classifier by its dotted name, from a list of known ones; scaled where it needs that."""
    name = ESTIMATORS[0] if name is None else name
    if name not in ESTIMATORS:
        raise unknown_name("estimator", name, ESTIMATORS)
    module, _, kind = name.rpartition(".")
    package = module.partition(".")[0]
    found = getattr(require(module, extra=package, what="Heads on such estimators"), kind)
    if kind in SCALED:
        return make_pipeline(StandardScaler(), found(**({"max_iter": 1000} if kind == "LogisticRegression" else {})))
    return found(**({"verbosity": -1} if package == "lightgbm" else {}))


def fit_head_table(
    table: pa.Table,
    *,
    target: str,
    groups: Sequence[str],
    class_columns: str,
    group_columns: str | None,
    rho: float | None = None,
    keep_accuracy: float = 0.95,
    **guarded: Any,
) -> tuple[FairDROHead, list[str]]:
    """Fit a head to a table with probabilities of rows that no model was trained on; return it, and what was done.

    Parameters
    ----------
    table : pyarrow.Table
    target : str
        Column with the class.
    groups : sequence of str
        Sensitive columns.
    class_columns, group_columns : str
        Names of the columns with probabilities, with a ``*`` where the name of the class or group stands, e.g. ``p_*``.
        Without group columns the head infers no groups.
    rho, keep_accuracy
        As of :func:`fit_table`.
    **guarded
        ``keep_class_accuracy``, ``floor`` and ``objective``, likewise.
    """
    _check_columns(table, [target, *groups])
    _check_options(target, groups, "head", rho, keep_accuracy)
    notes: list[str] = []
    table = _with_target(table, target, notes)
    y, sensitive = _labels(table[target], target).astype(str), _sensitive(table, groups, notes)
    classes = _starred(table, class_columns)
    columns: dict[str, Any] = {"class": list(classes.values()), "group": None}
    p_group = None
    if group_columns is not None:
        found, names = _starred(table, group_columns), encode_groups(sensitive).names
        if lacking := [name for name in names if name not in found]:
            raise InputError(f"There is no column like {group_columns!r} for the group {lacking[0]!r}.")
        columns["group"] = [found[name] for name in names]
        p_group = _numbers_of(table, columns["group"])
    head = fit_head(
        _numbers_of(table, columns["class"]), p_group, y, sensitive, classes=list(classes), rho=rho,
        keep_accuracy=keep_accuracy, infer_groups=group_columns is not None, **guarded,
    )  # fmt: skip
    head._columns_ = columns
    return head, notes


def _starred(table: pa.Table, pattern: str) -> dict[str, str]:
    """Return the columns that fit a name with a star, by what stands for it."""
    if pattern.count("*") != 1:
        raise InputError(f"{pattern!r} must have one * where the name of the class or group stands, for example 'p_*'.")
    before, _, after = pattern.partition("*")
    found = {name[len(before) : len(name) - len(after)]: name for name in table.column_names if fnmatchcase(name, pattern)}
    if len(found) < 2:
        raise InputError(f"Fewer than two columns fit {pattern!r}; the table has: {', '.join(table.column_names[:20])}.")
    return found


def _numbers_of(table: pa.Table, names: Sequence[str]) -> np.ndarray:
    _check_columns(table, names)
    try:
        return np.column_stack([table[name].to_numpy().astype(np.float64) for name in names])
    except (TypeError, ValueError) as error:
        raise InputError(f"The columns {', '.join(names)} must hold probabilities: {error}.") from error


def predict_head_table(head: FairDROHead, table: pa.Table) -> pa.Table:
    """Return columns for the predicted class and the probability of every class.

    Parameters
    ----------
    head : FairDROHead
        Of :func:`fit_head_table`.
    table : pyarrow.Table
        With the columns of probabilities it was fitted to.
    """
    columns = getattr(head, "_columns_", None)
    if columns is None:
        raise InputError("The head was saved in Python and knows no columns; load it there with fairdro.load.")
    p_class = _numbers_of(table, columns["class"])
    p_group = None if columns["group"] is None else _numbers_of(table, columns["group"])
    values = [head.predict(p_class, p_group), *head.predict_proba(p_class, p_group).T]
    return pa.table(dict(zip(_added(head.classes_, table), values, strict=True)))


def _added(classes: Iterable[Any], table: pa.Table) -> list[str]:
    """Name the columns that predictions add, if the table has none of them."""
    added = [PREDICTED, *(probability_column(c) for c in classes)]
    if taken := [name for name in added if name in table.column_names]:
        raise InputError(f"The table has a column {taken[0]!r} already; rename or remove it.")
    return added


def predict_table(model: Pipeline, table: pa.Table) -> tuple[pa.Table, list[str]]:
    """Return columns for the predicted class and the probability of every class, and what there is to say of the table.

    Parameters
    ----------
    model : Pipeline
        Of :func:`fit_table`.
    table : pyarrow.Table
        With the columns it was trained on, of the same kinds; others are ignored.
    """
    classes = model.classes_
    added = _added(classes, table)
    pieces, unseen = [], dict.fromkeys((column.name for column in model[0].columns_), np.zeros(2, dtype=np.int64))
    for first in range(0, table.num_rows, ROWS_PER_PIECE):
        frame = _as_pandas(table.slice(first, ROWS_PER_PIECE))
        pieces.append(model.predict_proba(frame))
        unseen = {name: unseen[name] + counts for name, counts in model[0].count_unseen(frame).items()}
    probabilities = np.concatenate(pieces)
    columns = [classes[probabilities.argmax(1)], *probabilities.T]
    predictions = pa.table({name: pa.array(column) for name, column in zip(added, columns, strict=True)})
    notes = [
        f"{name!r} misses {missing:,} of {table.num_rows:,} values."
        for name, (missing, _) in unseen.items() if missing
    ] + [
        f"{new:,} values of {name!r} were never seen in training." for name, (_, new) in unseen.items() if new
    ]  # fmt: skip
    return predictions, notes


def string_columns(model: Any) -> list[str]:
    """Return the columns that a model of :func:`fit_table` takes as strings."""
    if not isinstance(model, Pipeline):
        raise InputError("The model was saved without its table encoder; load it in Python with fairdro.load.")
    return [column.name for column in model[0].columns_ if column.kind == "category"]


def probability_column(label: object) -> str:
    """Return the name of the column with a class's probability."""
    return f"probability of {label}"


def audit_table(table: pa.Table, *, target: str, prediction: str, groups: Sequence[str]) -> tuple[Confusion, list[str]]:
    """Judge predictions, whoever made them; return how rows were predicted, and sentences on what was left out.

    Parameters
    ----------
    table : pyarrow.Table
    target, prediction : str
        Columns with the truth and with what was predicted; rows that lack one are left out.
    groups : sequence of str
        Sensitive columns; every combination of their values is a group, a missing value one of them.
    """
    _check_columns(table, [target, prediction, *groups])
    if not groups:
        raise InputError("Name at least one sensitive column to judge by (--group).")
    notes: list[str] = []
    known = pa.compute.and_(pa.compute.is_valid(table[target]), pa.compute.is_valid(table[prediction]))
    if (lacking := table.num_rows - pa.compute.sum(known).as_py()) > 0:
        notes.append(f"{lacking:,} rows without {target!r} or {prediction!r} are left out.")
        table = table.filter(known)
    truth, predicted = _labels(table[target], target, several=False), _labels(table[prediction], prediction, several=False)
    return confusion(truth, predicted, sensitive_features=_sensitive(table, groups, notes)), notes


def _check_columns(table: pa.Table, names: Sequence[str]) -> None:
    for name in names:
        if name not in table.column_names:
            names = [" ".join(other.split()) for other in table.column_names]
            shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise InputError(f"There is no column {name!r} in the table; it has: {shown}.")


def _as_pandas(table: pa.Table) -> pd.DataFrame:
    try:
        return table.to_pandas(split_blocks=True, date_as_object=False, ignore_metadata=True)
    except (pa.ArrowException, ValueError, OverflowError) as error:  # a date of the year 9999 and the like
        raise InputError(f"The table holds values that cannot be read: {str(error).splitlines()[0]}.") from error


def _labels(column: pa.ChunkedArray, name: str, *, several: bool = True) -> np.ndarray:
    """Return the classes of a column, or say why they cannot be classes."""
    if len(column) == 0:
        raise InputError(f"No row has a value in the column {name!r}.")
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not any(fits(kind) for fits in CLASSES):
        raise InputError(
            f"The column {name!r} holds values of the kind {kind}, which are no classes; turn them into strings."
        )
    number = len(pa.compute.unique(column))
    if several and number < 2:
        raise InputError(f"The column {name!r} has one value only; there is nothing to predict.")
    if number > MAX_CLASSES:
        raise InputError(
            f"The column {name!r} has {number:,} different values, too many for classes (at most {MAX_CLASSES}); put "
            "its values into fewer."
        )
    labels = column.to_pandas().to_numpy()
    if labels.dtype.kind == "f" and (labels % 1 != 0).any():
        raise InputError(f"The column {name!r} holds fractions, which are no classes; put its values into a few.")
    return labels


def _sensitive(table: pa.Table, groups: Sequence[str], notes: list[str]) -> pd.DataFrame:
    """Return the group columns as strings, a missing value as a value of its own."""
    frame = table.select(list(dict.fromkeys(groups))).to_pandas(ignore_metadata=True)
    for name in frame.columns:
        if missing := int(frame[name].isna().sum()):
            notes.append(f"{missing:,} rows without a value of {name!r} are a group of their own.")
        values = frame[name]
        whole = pd.api.types.is_float_dtype(values) and bool((values.dropna() % 1 == 0).all())
        strings = (values.astype("Int64") if whole else values).astype(str).astype(object)
        frame[name] = strings.where(values.notna(), MISSING)
    return frame
