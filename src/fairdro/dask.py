"""A FairDRO head on models that a Dask cluster trains, by stock distributed LightGBM or XGBoost.

What is large stays on the cluster: two models are trained there, of the class and of the group, and predict a sample of rows
that they have not seen. Only these probabilities come back, for :func:`fairdro.fit_head`.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fairdro._utils.extras import require
from fairdro.errors import InputError, check_share
from fairdro.estimators import FairDROHead, FairDROHeadClassifier, fit_head
from fairdro.estimators.parts import proba_of
from fairdro.groups import MAX_GROUPS, TOO_FEW, Groups, encode_groups, encode_labels
from fairdro.selection import Rule
from fairdro.training.head import Part
from fairdro.training.trained import check_two_classes

ENGINES = ("DaskLGBMClassifier", "DaskXGBClassifier")
MOST_LABELS = 10 * MAX_GROUPS  # classes and groups together that a partition tells of
ROWS_PER_GROUP = 10  # with fewer, encode_groups takes many groups for a mistake


class DaskFairDROHeadClassifier(FairDROHeadClassifier):
    """:class:`~fairdro.FairDROHeadClassifier` on Dask collections, with models that the cluster trains.

    A share of rows is held out, at random in every partition. Models of the class and of the group are trained on the
    others and predict a sample of the held-out rows, to which a head is fitted in this process. The models are then
    trained again on all rows.

    ``fit`` needs a current Dask client, and workers with memory for the rows, as LightGBM and XGBoost do. It reads the
    features three times; pass persisted collections where reading is slow. Dask repeats what a lost worker has read or
    predicted, but LightGBM and XGBoost do not recover from one that is lost while they train: call ``fit`` again then.

    Parameters
    ----------
    estimator : DaskLGBMClassifier or DaskXGBClassifier, optional
        Of ``lightgbm.dask`` or ``xgboost.dask``; by default the former as it comes. Without early stopping.
    group_estimator : likewise, optional
        By default the same as ``estimator``.
    rho, keep_accuracy, rule, rhos, keep_class_accuracy, floor, objective, fair_classes, infer_groups
        As of :class:`~fairdro.FairDROHeadClassifier`.
    validation_fraction : float, default 0.2
        Share of rows that is held out.
    rows_per_cell : int, default 100_000
        Held-out rows of a class and group that the head is fitted to, about so many at most; they count for all.
    refit : bool, default True
        Whether models are trained again on all rows, as in memory. Without, ``frontier_`` is about those that predict.
    min_cell_size : int, default 30
        Of held-out rows.
    random_state : int, default 0
        Seed of the rows that are held out, and of the default models.

    Attributes
    ----------
    estimators_ : list of LGBMClassifier or XGBClassifier
        The model of the class and that of the group.
    head, frontier_, rho_, weights_, classes_, group_names_, cell_counts_, ...
        As of :class:`~fairdro.FairDROHeadClassifier`; counts are of held-out rows.

    See Also
    --------
    fairdro.FairDROHeadClassifier : The same in memory.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> from distributed import Client
    >>> from fairdro import load_dataset
    >>> from fairdro.dask import DaskFairDROHeadClassifier
    >>> from xgboost.dask import DaskXGBClassifier
    >>> data = load_dataset("compas")
    >>> rows = dd.from_pandas(data.X.iloc[:, :8].assign(y=data.y, race=data.a), npartitions=2)
    >>> X = rows.drop(columns=["y", "race"])
    >>> trees = DaskXGBClassifier(n_estimators=5)
    >>> with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0"):
    ...     model = DaskFairDROHeadClassifier(trees, rhos=[0, 1], refit=False)
    ...     model = model.fit(X, rows["y"], sensitive_features=rows["race"])
    >>> model.frontier_["rho"].tolist()
    [0.0, 1.0]
    >>> model.predict(data.X.iloc[:5, :8]).shape  # also of Dask collections
    (5,)
    """

    def __init__(
        self,
        estimator: Any = None,
        group_estimator: Any = None,
        *,
        rho: float | None = None,
        keep_accuracy: float = 0.95,
        rule: Rule | str | None = None,
        rhos: Sequence[float] | None = None,
        keep_class_accuracy: float = 0.8,
        floor: float | None = None,
        objective: str = "balanced",
        fair_classes: Any = None,
        infer_groups: bool = True,
        validation_fraction: float = 0.2,
        rows_per_cell: int = 100_000,
        refit: bool = True,
        min_cell_size: int = TOO_FEW,
        random_state: int = 0,
    ) -> None:
        self.estimator, self.group_estimator = estimator, group_estimator
        self.rho, self.keep_accuracy, self.rule, self.rhos = rho, keep_accuracy, rule, rhos
        self.keep_class_accuracy, self.floor = keep_class_accuracy, floor
        self.objective, self.fair_classes, self.infer_groups = objective, fair_classes, infer_groups
        self.validation_fraction, self.rows_per_cell, self.refit = validation_fraction, rows_per_cell, refit
        self.min_cell_size, self.random_state = min_cell_size, random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_share(self.validation_fraction, "validation_fraction")
        if self.validation_fraction in (0, 1):
            raise InputError("validation_fraction must leave rows to train on and rows for the head; 0.2 is usual.")
        most: Any = self.rows_per_cell
        if isinstance(most, bool) or not isinstance(most, numbers.Integral) or int(most) < 1:
            raise InputError(f"rows_per_cell must be a positive whole number, got {most!r}.")
        if self._certifying_rule() is not None:
            raise InputError("A model on Dask collections is not certified by its rule; certify it by further rows.")
        for model in (self._of_class(), self._of_group()):
            if not any(kind.__name__ in ENGINES for kind in type(model).__mro__):
                raise InputError(f"A model must be a {' or a '.join(ENGINES)}, got {type(model).__name__}.")

    def _of_class(self) -> Any:
        if self.estimator is None:
            lightgbm = require("lightgbm.dask", extra="lightgbm", what="Boosted trees")
            return lightgbm.DaskLGBMClassifier(random_state=self._seed(), verbosity=-1)
        return self.estimator

    def _model(self, part: Part) -> Any:
        asked = self._of_group() if part.what == "group" else self._of_class()
        return type(asked)(**asked.get_params(deep=False))  # a client cannot be cloned

    def fit(self, X: Any, y: Any, *, sensitive_features: Any) -> Self:  # type: ignore[override] # rows have no weights here
        """Train.

        Parameters
        ----------
        X : Dask DataFrame or Array of shape (N, D)
            Of numbers, and of categories that are known: ``X.categorize()``.
        y : Dask Series or Array of shape (N,)
        sensitive_features : Dask Series, DataFrame or Array
            Groups; several columns make a group of every combination that occurs.
        """
        self._check_parameters()
        table, labels, sensitive = _as_frame(X, "X"), _as_frame(y, "y"), _as_frame(sensitive_features, "sensitive_features")
        _check_features(table)
        validate_data(self, table._meta, skip_check_array=True)
        rows = _Rows.of(table, labels, sensitive, _client())
        seed, share = self._seed(), float(self.validation_fraction)
        self.joint_ = "independent" if self.infer_groups and len(rows.group_names) > 1 else "classes"
        self.estimators_ = self._train(rows, seed, share)
        self._fit_to_sample(rows, seed, share)
        if self.refit:
            self.estimators_ = self._train(rows, seed, 0.0)
        return self

    def _train(self, rows: _Rows, seed: int, share: float) -> list[Any]:
        """Train the models of class and group, one after the other, on all rows but a share that is held out."""
        features, y, a, weight = rows.collections(_training_rows, seed, share)
        wanted = {Part("class"): y} | ({Part("group"): a} if self.joint_ == "independent" else {})
        with warnings.catch_warnings():  # LightGBM says so also where none is given
            warnings.filterwarnings("ignore", "Parameter n_jobs will be ignored", UserWarning)
            with _workers_stay():
                return [
                    _local(self._model(part).fit(features, codes, sample_weight=weight)) for part, codes in wanted.items()
                ]

    def _fit_to_sample(self, rows: _Rows, seed: int, share: float) -> None:
        """Predict a sample of the rows that were held out, and fit the head to it."""
        rates = np.minimum(share, self.rows_per_cell / np.maximum(rows.counts, 1))
        p_class, p_group, y, a = rows.arrays(_predicted_sample, seed, rates, self.estimators_)
        head = fit_head(
            p_class,
            p_group if self.infer_groups else None,
            rows.classes[y],
            Groups(a, rows.group_names),
            classes=rows.classes,
            sample_weight=None if (rates == share).all() else share / rates[y, a],
            random_state=seed,
            **self._of_head(),
        )
        _copy_fitted(head, self)

    def _of_head(self) -> dict[str, Any]:
        """Return the parameters that are those of a head."""
        return {name: getattr(self, name) for name in FairDROHead().get_params().keys() & self.get_params(deep=False)}

    def to_local(self) -> FairDROHeadClassifier:
        """Return the same model as a :class:`~fairdro.FairDROHeadClassifier`, which needs neither Dask nor a cluster."""
        check_is_fitted(self)
        models = clone(self.estimators_[0]), clone(self.estimators_[-1])
        local = FairDROHeadClassifier(*models, random_state=self.random_state, **self._of_head())
        _copy_fitted(self, local)
        return local

    def save(self, folder: str | Path) -> None:
        """Save the model of :meth:`to_local` into a folder, without pickle; :func:`fairdro.load` reads it."""
        self.to_local().save(folder)

    def predict(self, X: Any) -> Any:
        """Return the class of every row; of a Dask collection, one that is computed when it is asked for."""
        check_is_fitted(self)
        return self._by_part("predict", X, pd.Series(self.classes_, name="predicted").iloc[:0])

    def predict_proba(self, X: Any) -> Any:
        """Return how likely the classes are ``(N, Y)``, calibrated on held-out rows; not what is decided."""
        check_is_fitted(self)
        return self._by_part("predict_proba", X, pd.DataFrame(columns=self.classes_, dtype=np.float64))

    def decision_function(self, X: Any) -> Any:
        """Return the scores of the classes ``(N, Y)``; of two classes, that of the second minus the first ``(N,)``."""
        check_is_fitted(self)
        one, several = pd.Series(dtype=np.float64), pd.DataFrame(columns=self.classes_, dtype=np.float64)
        return self._by_part("decision_function", X, several if len(self.classes_) > 2 else one)

    def _by_part(self, method: str, X: Any, like: Any) -> Any:
        """Call a method of the local model, on partitions of a Dask collection; ``like`` is what it gives, without rows."""
        local = self.to_local()
        if not _library("dask").is_dask_collection(X):
            return getattr(local, method)(X)
        table = _as_frame(X, "X")
        validate_data(self, table._meta, reset=False, skip_check_array=True)
        meta = like.set_axis(table._meta.index[:0])
        found = table.map_partitions(_of_part, _library("dask").delayed(local), method, like, meta=meta)
        if not isinstance(X, _library("dask.array").Array):
            return found
        return found.to_dask_array(lengths=None if np.isnan(X.chunks[0]).any() else X.chunks[0])


@dataclass(frozen=True)
class _Rows:
    """The partitions of a table, with the codes of its classes and groups."""

    client: Any
    parts: list[tuple[Any, ...]]  # the number of a partition; its features, classes and groups, which are not computed yet
    features: pd.DataFrame  # without rows
    codes: pd.DataFrame  # of class and group, by the labels that occur together
    classes: Any
    group_names: list[str]
    counts: np.ndarray  # of every class and group

    @classmethod
    def of(cls, X: Any, y: Any, sensitive: Any, client: Any) -> _Rows:
        """Count the classes and groups that there are, by a pass over their columns, and give them codes."""
        number = [table.npartitions for table in (X, y, sensitive)]
        if len(set(number)) > 1:
            raise InputError(f"X, y and sensitive_features must have the same partitions, but have {number} of them.")
        if len(y.columns) != 1:
            raise InputError(f"y must be one column, but it has {len(y.columns)}.")
        first, whole, *labels = map(_delayed, (X[list(X.columns[:1])], X, y, sensitive))
        tally = _library("dask").delayed(_tally)
        tallies = client.gather(client.compute([tally(*part) for part in zip(first, *labels, strict=True)]))
        parts = list(zip(range(len(whole)), whole, *labels, strict=True))
        return cls(client, parts, X._meta, *_coded(pd.concat(tallies), sensitive.columns))

    def collections(self, function: Any, *arguments: Any) -> list[Any]:
        """Return a table and its columns of class, group and weight, which stay on the workers."""
        parts, frame = self._compute(function, *arguments), _library("dask.dataframe")
        like = [self.features, *(pd.Series(dtype=kind) for kind in (np.int64, np.int64, np.float64))]
        pieces = [self.client.map(itemgetter(j), parts, pure=False) for j in range(len(like))]
        return [frame.from_delayed(own, meta=meta, verify_meta=False) for own, meta in zip(pieces, like, strict=True)]

    def arrays(self, function: Any, *arguments: Any) -> list[np.ndarray]:
        """Return arrays of what a function gives for all partitions."""
        parts = self.client.gather(self._compute(function, *arguments))
        return [np.concatenate(values) for values in zip(*parts, strict=True)]

    def _compute(self, function: Any, *arguments: Any) -> list[Any]:
        """Let the workers call a function on every partition, and leave out what has no rows."""
        shared = self.client.scatter([self.codes, *arguments], broadcast=True)
        task = _library("dask").delayed(function)
        done = self.client.compute([task(*part, *shared) for part in self.parts])
        sizes = self.client.gather(self.client.map(lambda part: len(part[0]), done, pure=False))
        if not any(sizes):
            raise InputError("There are too few rows to train on some and to hold out others; use FairDROHeadClassifier.")
        return [part for part, size in zip(done, sizes, strict=True) if size > 0]


@contextmanager
def _workers_stay() -> Iterator[None]:
    """Say in a sentence that a worker was lost: boosters that train together cannot go on without it."""
    try:
        yield
    except (CancelledError, _library("distributed").KilledWorker) as error:
        raise RuntimeError(
            "A worker of the cluster ended while trees were trained on it, and the library that trains them cannot go on "
            "without it; look into the worker's log, it may have run out of memory, and call fit again."
        ) from error


def _delayed(table: Any) -> list[Any]:
    """Return the partitions of a table as they are; optimised, small ones of a few columns would be joined."""
    return table.simplify().to_delayed(optimize_graph=False)


def _coded(tallies: pd.Series, features: pd.Index) -> tuple[pd.DataFrame, np.ndarray, list[str], np.ndarray]:
    """Return the codes of class and group by their labels, the classes, the groups, and how many rows there are of each."""
    if len(tallies) == 0:
        raise InputError("y is empty.")
    rows = tallies.groupby(level=list(range(1 + len(features))), dropna=False, sort=False).sum()
    labels, total = rows.index.to_frame(index=False), rows.sum()
    for column, what in zip(labels, ["y", *(f"sensitive feature {str(name)!r}" for name in features)], strict=True):
        if (missing := int(rows[labels[column].isna().to_numpy()].sum())) > 0:
            raise InputError(f"{what} has missing values ({missing} of {total}); drop those rows or give them a label.")
    check_classification_targets(labels[0])
    y, classes = encode_labels(labels[0], "y")
    sensitive = labels.drop(columns=0)
    if (number := len(sensitive.drop_duplicates())) > MAX_GROUPS:
        raise InputError(f"The sensitive features make {number} groups or more, too many to mean anything; use bins.")
    groups = encode_groups(pd.concat([sensitive] * ROWS_PER_GROUP))
    if groups.soft:
        raise InputError("Groups in shares are not supported on Dask collections; pass columns of groups.")
    a, counts = groups.values[: len(rows)], np.zeros((len(classes), len(groups.names)))
    np.add.at(counts, (y, a), rows.to_numpy())
    check_two_classes(torch.from_numpy(counts))
    return pd.DataFrame({"y": y, "a": a}, index=rows.index), classes, groups.names, counts


def _labels(y: pd.DataFrame, sensitive: pd.DataFrame) -> pd.DataFrame:
    """Return class and sensitive features of rows as plain columns, named by their places."""
    columns = [table.iloc[:, j] for table in (y, sensitive) for j in range(table.shape[1])]
    return pd.DataFrame({j: np.asarray(column) for j, column in enumerate(columns)})


def _tally(X: pd.DataFrame, y: pd.DataFrame, sensitive: pd.DataFrame) -> pd.Series:
    """Count the rows of a partition by class and sensitive features."""
    if len(set(sizes := [len(X), len(y), len(sensitive)])) > 1:
        raise InputError(f"A partition has {sizes} rows of X, y and sensitive_features; they must be the same rows.")
    tally = _labels(y, sensitive).value_counts(dropna=False)
    if len(tally) > MOST_LABELS:
        raise InputError(
            f"A partition has {len(tally):,} combinations of class and group, too many to mean anything; use bins."
        )
    return tally


def _codes(y: pd.DataFrame, sensitive: pd.DataFrame, known: pd.DataFrame) -> np.ndarray:
    """Return the codes of class and group of every row ``(2, N)``."""
    places = known.index.get_indexer(pd.MultiIndex.from_frame(_labels(y, sensitive)))
    if (places < 0).any():
        raise InputError("y or sensitive_features changed while they were read; persist the collections first.")
    return known.to_numpy()[places].T


def _draws(seed: int, partition: int, n: int) -> np.ndarray:
    """Return a random number of every row; those below a share are held out."""
    return np.random.default_rng([seed, partition]).random(n)


def _training_rows(
    partition: int, X: pd.DataFrame, labels: Any, sensitive: Any, known: pd.DataFrame, seed: int, share: float
) -> tuple[pd.DataFrame, pd.Series, pd.Series, pd.Series]:
    """Return features, class, group and weight of the rows of a partition that are not held out.

    A worker of LightGBM gives codes to the classes that it sees, and trees are wrong, in silence, where workers see others.
    So a row of weight zero is added for every class and group that the partition lacks.
    """
    kept = np.flatnonzero(_draws(seed, partition, len(X)) >= share)
    codes = _codes(labels, sensitive, known)[:, kept]
    absent = [np.setdiff1d(known[name], own) for name, own in zip(known, codes, strict=True)]
    more = max(map(len, absent)) if len(kept) else 0
    n, weight = len(kept) + more, np.repeat([1.0, 0.0], [len(kept), more])
    y, a = (np.concatenate([own, new, own[:1].repeat(more)])[:n] for own, new in zip(codes, absent, strict=True))
    return X.iloc[np.append(kept, kept[:1].repeat(more))], pd.Series(y), pd.Series(a), pd.Series(weight)


def _predicted_sample(
    partition: int, X: pd.DataFrame, labels: Any, sensitive: Any, known: pd.DataFrame, seed: int, rates: Any, models: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return probabilities of class and group, class and group of a sample of the rows that are held out."""
    y, a = _codes(labels, sensitive, known)
    rows = np.flatnonzero(_draws(seed, partition, len(X)) < rates[y, a])
    found = [np.full((len(rows), width), 1 / width) for width in rates.shape]
    for i, model in enumerate(models if len(rows) else []):
        found[i] = proba_of(model, X.iloc[rows], rates.shape[i])
    return found[0], found[1], y[rows], a[rows]


def _of_part(part: pd.DataFrame, model: FairDROHeadClassifier, method: str, like: Any) -> Any:
    """Call a method of a model on a partition, which may be empty."""
    values = getattr(model, method)(part) if len(part) else like.to_numpy()
    named = {"name": like.name, "dtype": like.dtype} if like.ndim == 1 else {"columns": like.columns}
    return type(like)(values, index=part.index, **named)


def _copy_fitted(source: Any, target: Any) -> None:
    """Copy what was fitted, which are attributes that end in an underscore."""
    for name in [name for name in vars(source) if name.endswith("_")]:
        setattr(target, name, getattr(source, name))


def _local(model: Any) -> Any:
    """Return a model that a cluster has trained as one that needs none, and takes one thread."""
    if hasattr(model, "to_local"):  # of LightGBM
        return model.to_local().set_params(n_jobs=1)
    local = require("xgboost", extra="xgboost", what="Boosted trees").XGBClassifier(**model.get_params() | {"n_jobs": 1})
    local.load_model(bytearray(model.get_booster().save_raw("ubj")))
    return local


def _library(name: str) -> Any:
    return require(name, extra="dask", what="Classifiers on Dask collections")


def _client() -> Any:
    try:
        return _library("distributed").default_client()
    except ValueError as error:
        raise InputError("There is no Dask cluster; connect to one, or start one: distributed.Client().") from error


def _as_frame(values: Any, what: str) -> Any:
    """Return a Dask collection as a DataFrame."""
    array, frame = _library("dask.array"), _library("dask.dataframe")
    if isinstance(values, array.Array) and values.ndim in (1, 2):
        values = frame.from_dask_array(values if values.ndim == 1 else values.rechunk({1: -1}))
    if isinstance(values, frame.Series):
        values = values.to_frame()
    if not isinstance(values, frame.DataFrame) or len(values.columns) == 0:
        raise InputError(f"{what} must be a Dask DataFrame, Series or Array, got {type(values).__name__}.")
    return values


def _check_features(table: Any) -> None:
    """Refuse columns that LightGBM and XGBoost do not take, or not alike in all partitions."""
    for name, dtype in table.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype) and not table[name].cat.known:
            raise InputError(f"The categories of column {name!r} are not known yet; call X.categorize() first.")
        if pd.api.types.is_string_dtype(dtype):
            raise InputError(f"Column {name!r} holds strings; where they are categories, say so: X.categorize().")
