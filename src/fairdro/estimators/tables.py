"""From a table in a file to a fair model and to predictions: what the command line does for tables."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.model_selection import ShuffleSplit
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from fairdro._utils.extras import require
from fairdro.errors import InputError, unknown_name
from fairdro.estimators.boosting import FairDROBoostingClassifier
from fairdro.estimators.certification import rows_to_set_aside
from fairdro.estimators.columns import (
    as_pandas,
    check_columns,
    check_drop,
    labels_of,
    numbers_of,
    sensitive_columns,
    starred,
    with_target,
)
from fairdro.estimators.cv import FairDROClassifierCV
from fairdro.estimators.encoder import TableEncoder
from fairdro.estimators.head import FairDROHead, fit_head
from fairdro.estimators.head_classifier import FairDROHeadClassifier
from fairdro.groups import encode_groups
from fairdro.metrics import Confusion
from fairdro.models import BANKS
from fairdro.selection import plain_radius
from fairdro.training.engines import models_for_tables

PREDICTED = "predicted"
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
    model : Pipeline or FairDROHead
        The encoder and the classifier, which take a DataFrame with the table's columns; or a head.
    notes : list of str
        Sentences on what was done to the data.
    """

    model: Any
    notes: list[str]

    @property
    def final(self) -> FairDROHead | FairDROClassifierCV | FairDROHeadClassifier:
        """The classifier or head, which has the frontier."""
        return self.model[-1] if isinstance(self.model, Pipeline) else self.model

    @property
    def columns(self) -> dict[str, Confusion]:
        """Held-out rows as different models predict them, by what they are called."""
        final = self.final
        shown = {"as usual": final.ordinary()}
        if final.objective == "balanced" or final.class_weight_ is not None:
            shown["plain"] = final.held_out(plain_radius(final.frontier_["rho"].to_numpy()))
        return shown | {"fair": final.held_out()}


def fit_table(
    table: pa.Table,
    *,
    target: str,
    groups: Sequence[str],
    drop: Sequence[str] = (),
    rho: float | None = None,
    keep_accuracy: float = 0.95,
    model: str = "linear",
    estimator: str | None = None,
    missing_groups: str = "group",
    class_weight: Mapping[str, float] | str | None = None,
    verbose: bool = False,
    **options: Any,
) -> FittedTable:
    """Train on a table; the group columns are for fairness only and are not features.

    Parameters
    ----------
    table : pyarrow.Table
    target : str
        Column to predict; rows without it are left out.
    groups : sequence of str
        Sensitive columns; every combination of their values is a group.
    drop : sequence of str
        Columns to leave out of the features.
    rho : float, optional
        Radius; if missing, it is chosen on held-out rows by the paper's rule.
    keep_accuracy : float
        Share of plain training's accuracy which the rule keeps.
    model : {"linear", "mlp", "boosting", "head"}
        ``head`` is a classifier of scikit-learn with a FairDRO head.
    estimator : str, optional
        The classifier of ``head``, one of :data:`ESTIMATORS`; by default logistic regression.
    missing_groups : {"refuse", "infer", "ignore", "group"}
        As of :class:`~fairdro.FairDROClassifier`; by default, a missing value is a group of its own.
    class_weight : mapping of str to float, or "balanced", optional
        Costs by the names of classes.
    verbose : bool
        Show progress on a terminal.
    **options
        ``objective``, ``fair_classes``, ``keep_class_accuracy``, ``floor``, ``small_cells``, ``min_cell_size``, ``rule``,
        ``certify`` and ``delta``, as of :class:`~fairdro.FairDROClassifierCV`; ``max_iter`` of models of layers.
    """
    check_columns(table, [target, *groups, *drop])
    check_drop(target, groups, drop)
    check_options(target, groups, model, rho=rho, keep_accuracy=keep_accuracy, estimator=estimator, **options)
    notes: list[str] = []
    table = with_target(table, target, notes)
    y = labels_of(table[target], target)
    sensitive = sensitive_columns(table, groups, missing_groups, notes)
    features = table.drop_columns(list({target, *groups, *drop}))
    if not features.column_names:
        raise InputError("There is no column left to learn from, beside the target and the groups.")
    trees, large = model == "boosting", table.num_rows > ROWS_FOR_FOLDS
    encoder = TableEncoder(one_hot=not trees)
    aside = rows_to_set_aside(y, sensitive, missing_groups, options)
    frame = as_pandas(features)
    X = encoder.fit(frame if aside is None else frame[~aside]).transform(frame)
    options |= {
        "keep_accuracy": keep_accuracy,
        "cv": ShuffleSplit(1, test_size=1 / FOLDS, random_state=0) if large else FOLDS,
        "missing_groups": missing_groups,
        "class_weight": costs_of(class_weight, y),
        "certify": aside,
    }
    classifier: FairDROHeadClassifier | FairDROClassifierCV
    if trees:
        classifier = FairDROBoostingClassifier(rho, verbose=verbose, **options)
    elif model == "head":
        classifier = FairDROHeadClassifier(_estimator(estimator), rho=rho, **options)
    else:
        classifier = FairDROClassifierCV(rho, model=model, verbose=verbose, **options)
    classifier.fit(X, y, sensitive_features=sensitive)
    return fitted(encoder, classifier, notes)


def fitted(encoder: TableEncoder, classifier: Any, notes: list[str]) -> FittedTable:
    """Return a fitted encoder and classifier as one model, with what there is to say of both after ``notes``."""
    notes = [*notes, *encoder.notes_, *([classifier._unknown_] if classifier._unknown_ else [])]
    if classifier.merged_groups_:
        merged, least = ", ".join(map(repr, classifier.merged_groups_)), classifier.min_cell_size
        notes.append(f"Groups are merged so that all have {least} held-out rows of every class: {merged} count as one.")
    return FittedTable(Pipeline([("encode", encoder), ("classify", classifier)]), notes)


def costs_of(given: Mapping[str, float] | str | None, y: np.ndarray) -> Any:
    """Return costs by the labels of the classes, given by their names."""
    if given is None or isinstance(given, str):
        return given
    labels = {str(label): label for label in np.unique(y).tolist()}
    if strange := [name for name in given if name not in labels]:
        raise InputError(f"class_weight names {strange[0]!r}; the classes are: {', '.join(labels)}.")
    return {labels[name]: cost for name, cost in given.items()}


def check_options(
    target: str,
    groups: Sequence[str],
    model: str,
    *,
    rho: float | None = None,
    keep_accuracy: float = 0.95,
    estimator: str | None = None,
    **others: Any,
) -> None:
    """Refuse options that cannot be, before anything is read or trained."""
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
    if estimator is not None and model != "head":
        raise InputError("An estimator is for model head only; leave it out.")
    if "max_iter" in others and model not in BANKS:
        raise InputError(f"max_iter is for models of layers ({', '.join(BANKS)}); leave it out.")


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
    missing_groups: str = "group",
    class_weight: Mapping[str, float] | str | None = None,
    **options: Any,
) -> FittedTable:
    """Fit a head to a table with probabilities of rows that no model was trained on.

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
    rho, keep_accuracy, missing_groups, class_weight
        As of :func:`fit_table`.
    **options
        ``objective``, ``fair_classes``, ``keep_class_accuracy``, ``floor``, ``rule``, ``certify`` and ``delta``, likewise.
    """
    check_columns(table, [target, *groups])
    check_options(target, groups, "head", rho=rho, keep_accuracy=keep_accuracy)
    notes: list[str] = []
    table = with_target(table, target, notes)
    y = labels_of(table[target], target).astype(str)
    sensitive = sensitive_columns(table, groups, missing_groups, notes)
    classes = starred(table, class_columns)
    columns: dict[str, Any] = {"class": list(classes.values()), "group": None}
    p_group = None
    if group_columns is not None:
        found, names = starred(table, group_columns), encode_groups(sensitive, missing_groups).names
        if lacking := [name for name in names if name not in found]:
            hint = "; or say by missing_groups that rows without one are ignored or inferred" if notes else ""
            raise InputError(f"There is no column like {group_columns!r} for the group {lacking[0]!r}{hint}.")
        columns["group"] = [found[name] for name in names]
        p_group = numbers_of(table, columns["group"])
    head = fit_head(
        numbers_of(table, columns["class"]), p_group, y, sensitive, classes=list(classes), rho=rho,
        keep_accuracy=keep_accuracy, infer_groups=group_columns is not None, missing_groups=missing_groups,
        class_weight=costs_of(class_weight, y), **options,
    )  # fmt: skip
    head._columns_ = columns
    return FittedTable(head, [*notes, *([head._unknown_] if head._unknown_ else [])])


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
    p_class = numbers_of(table, columns["class"])
    p_group = None if columns["group"] is None else numbers_of(table, columns["group"])
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
    notes: list[str] = []
    pieces = (table.slice(first, ROWS_PER_PIECE) for first in range(0, table.num_rows, ROWS_PER_PIECE))
    return pa.concat_tables(predict_tables(model, pieces, notes)).combine_chunks(), notes


def predict_tables(model: Pipeline, tables: Iterable[pa.Table], notes: list[str]) -> Iterator[pa.Table]:
    """Give the predictions of one table after another, and add to ``notes`` what there is to say of all when they end.

    Parameters
    ----------
    model : Pipeline
        Of :func:`fit_table`.
    tables : iterable of pyarrow.Table
        As of :func:`predict_table`, each small enough for memory.
    notes : list of str
    """
    rows, unseen = 0, dict.fromkeys((column.name for column in model[0].columns_), np.zeros(2, dtype=np.int64))
    for table in tables:
        added = _added(model.classes_, table)
        frame = as_pandas(table)
        features = model[0].transform(frame)
        columns = [model[-1].predict(features), *model[-1].predict_proba(features).T]
        unseen = {name: unseen[name] + counts for name, counts in model[0].count_unseen(frame).items()}
        rows += table.num_rows
        yield pa.table({name: pa.array(column) for name, column in zip(added, columns, strict=True)})
    notes += [f"{name!r} misses {missing:,} of {rows:,} values." for name, (missing, _) in unseen.items() if missing]
    notes += [f"{new:,} values of {name!r} were never seen in training." for name, (_, new) in unseen.items() if new]


def string_columns(model: Any) -> list[str]:
    """Return the columns that a model of :func:`fit_table` takes as strings."""
    if not isinstance(model, Pipeline):
        raise InputError("The model was saved without its table encoder; load it in Python with fairdro.load.")
    return [column.name for column in model[0].columns_ if column.kind == "category"]


def probability_column(label: object) -> str:
    """Return the name of the column with a class's probability."""
    return f"probability of {label}"
