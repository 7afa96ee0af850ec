"""What all classifiers share: validation, classes and groups, prediction from scores."""

import numbers
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, InvalidParameterError, validate_parameter_constraints
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from fairdro.cells import Cells, check_weights
from fairdro.errors import InputError
from fairdro.estimators.parts import group_probabilities, infer_groups
from fairdro.estimators.saving import SavingMixin
from fairdro.groups import TOO_FEW, Groups, encode_groups, settle_small_cells
from fairdro.methods import OBJECTIVES
from fairdro.metrics import class_codes
from fairdro.training.rows import RowsOnDisk, total

COUNT, POSITIVE = Interval(numbers.Integral, 0, None, closed="left"), Interval(numbers.Integral, 1, None, closed="left")
CONSTRAINTS: dict[str, list[Any]] = {
    **{name: [str] for name in ("backend", "errors", "joint", "method", "missing_groups", "model", "objective", "strategy")},
    "cv": ["cv_object"],
    "early_stopping": [POSITIVE, None],
    "infer_groups": ["boolean"],
    "learning_rate": [Interval(numbers.Real, 0, None, closed="neither")],
    "max_iter": [POSITIVE, None],
    "min_cell_size": [COUNT],
    "min_child_samples": [POSITIVE],
    "n_estimators": [POSITIVE],
    "n_jobs": [Interval(numbers.Integral, None, -1, closed="right"), POSITIVE, None],
    "num_leaves": [Interval(numbers.Integral, 2, None, closed="left")],
    "random_state": ["random_state"],
    "small_cells": [str],
    "tol": [Interval(numbers.Real, 0, 1, closed="both")],
    "verbose": ["boolean"],
}
"""What parameters of these names must be, in all classifiers; others are checked where they are used."""


class CellsMixin:
    """Classes and groups of rows, as every model here takes them."""

    classes_: np.ndarray
    objective: str = OBJECTIVES[0]
    class_weight: Any = None
    fair_classes: Any = None
    small_cells: str = "warn"
    min_cell_size: int = TOO_FEW
    missing_groups: str = "refuse"
    class_weight_: np.ndarray | None = None
    _counted: ClassVar[str] = "rows"
    _fair_codes_: list[int] | None = None
    _unknown_: str = ""
    _weight_scale_: float = 1.0

    def _check_parameters(self) -> None:
        """Refuse parameters that cannot be, in scikit-learn's words, before anything is trained."""
        parameters: dict[str, Any] = self.get_params(deep=False)  # type: ignore[attr-defined] # scikit-learn's
        given = {name: value for name, value in parameters.items() if name in CONSTRAINTS}
        for name, value in given.items():
            if isinstance(value, bool | np.bool_) and CONSTRAINTS[name] != ["boolean"]:
                raise InputError(f"{name} of {type(self).__name__} must not be {value}.")
        try:
            validate_parameter_constraints(CONSTRAINTS, given, caller_name=type(self).__name__)
        except InvalidParameterError as error:
            raise InputError(str(error)) from error

    def _cells(self, codes: np.ndarray, sensitive: Any, weight: np.ndarray | None, X: Any = None) -> Cells:
        """Return the cells of rows of classes ``codes``: groups that are too small settled, those that are missing too."""
        self._settle_classes(total(X, torch.from_numpy(np.bincount(codes, minlength=len(self.classes_)))).numpy())
        groups = self._groups(codes, sensitive, X)
        scale = 1.0
        if weight is not None:
            check_weights(weight, len(codes))
            scale = float(2.0 ** np.floor(np.log2(weight.max())))  # a power of two, so that whole numbers stay exact
            weight = weight / scale
        cells = Cells.from_labels(codes, groups, n_classes=len(self.classes_), sample_weight=weight)
        known = cells.known_part
        self.cell_counts_ = total(X, known.counts).numpy() * scale
        self._countable_ = weight is None and not known.soft
        self._unknown_, self._weight_scale_ = self._say_unknown(X, groups), scale
        return cells

    def _settled(self, X: Any, cells: Cells) -> Cells:
        """Return the cells with shares of the groups that are missing, where these are to be inferred."""
        return self._inferred(X, cells) if cells.known is not None and not cells.unknown_group else cells

    def _fit_rows(self, passed: Any, X: Any, cells: Cells) -> None:
        """Train on rows: as they were passed, as they were validated, and their cells."""
        self._fit(X, self._settled(X, cells))

    def _fit(self, X: Any, cells: Cells) -> None:
        """Train on validated rows and keep what prediction needs."""
        raise NotImplementedError

    def _settle_classes(self, sizes: np.ndarray) -> None:
        """Keep what errors on every class cost, and which classes are to be fair, given the rows of every class ``(Y,)``."""
        self._fair_codes_ = None
        if (fair := class_codes(self.fair_classes, self.classes_)) is not None:
            self._fair_codes_ = list(fair)
        self.class_weight_ = None if self.class_weight is None else self._costs(sizes)

    def _costs(self, sizes: np.ndarray) -> np.ndarray:
        """Return what errors on every class cost ``(Y,)``; a class that is not named costs one, as in scikit-learn."""
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            return np.ones(len(sizes)) if self.objective == OBJECTIVES[0] else sizes.sum() / (len(sizes) * sizes)
        named = ", ".join(map(str, self.classes_))
        sentence = f"class_weight must be 'balanced' or a dictionary of positive costs by class ({named})"
        if not isinstance(self.class_weight, Mapping):
            raise InputError(f"{sentence}, got {self.class_weight!r}.")
        costs = np.ones(len(self.classes_))
        for label, cost in self.class_weight.items():
            if not isinstance(cost, int | float | np.number) or not 0 < cost < np.inf:
                raise InputError(f"{sentence}, got {cost!r} for {label!r}.")
            (place,) = class_codes([label], self.classes_, what="class_weight") or (0,)
            costs[place] = cost
        return costs

    def _by_class(self) -> dict[str, Any]:
        """Return what errors on every class cost, and the codes of the classes that are to be fair."""
        costs = None if self.class_weight_ is None else tuple(self.class_weight_.tolist())
        return {"class_weight": costs, "fair_classes": None if self._fair_codes_ is None else tuple(self._fair_codes_)}

    def _facts(self) -> dict[str, object]:
        """Return what the card says of the classes."""
        facts: dict[str, object] = {}
        if self._fair_codes_ is not None:
            named = ", ".join(str(self.classes_[k]) for k in self._fair_codes_)
            facts["fair_classes"] = f"{named}: gaps between groups are about these classes only"
        if self.class_weight_ is not None:
            costs = zip(self.classes_, self.class_weight_, strict=True)
            facts["class_weight"] = ", ".join(f"{name}: {cost:.4g}" for name, cost in costs)
        return facts

    def _groups(self, codes: np.ndarray, sensitive: Any, X: Any) -> Groups:
        given = sensitive is not None
        found = Groups(np.zeros(len(codes), dtype=np.int64), ["all"])
        if given:
            found = encode_groups(sensitive, self.missing_groups)
        if len(found.names) == 1 and self._wants_groups():
            without = "" if given else "fit was called without sensitive_features: "
            warnings.warn(f"{without}all rows are one group, with nothing to be fair between.", UserWarning, stacklevel=5)
        groups = found
        if given:
            counts = self._held_out_counts(X, Cells.from_labels(codes, found, n_classes=len(self.classes_)))
            counts = counts * self._share_trained()
            names, how, floor = [str(c) for c in self.classes_], self.small_cells, self.min_cell_size
            groups = settle_small_cells(found, counts, class_names=names, how=how, floor=floor, rows=self._counted)
        self.group_names_ = groups.names
        self.merged_groups_ = [name for name in found.names if name not in groups.names]
        return groups

    def _held_out_counts(self, X: Any, cells: Cells) -> np.ndarray:
        """Return how many rows of every cell the model will be judged by ``(Y, A)``."""
        return total(X, cells.known_part.counts).numpy()

    def _share_trained(self) -> float:
        """Return the share of rows that is not set aside."""
        return 1.0

    def _seed(self) -> int:
        """Return the seed of what is drawn."""
        raise NotImplementedError

    def _inferred(self, X: Any, cells: Cells) -> Cells:
        """Return the cells with inferred shares of the groups that are missing."""
        raise NotImplementedError

    def _say_unknown(self, X: Any, groups: Groups) -> str:
        """Say how many rows are of unknown group, of those of all processes, and what becomes of them."""
        unknown, rows = total(X, torch.tensor([groups.n_unknown, len(groups)])).tolist()
        if unknown == 0:
            return ""
        fate = "are trained on, but do not count for fairness" if groups.unknown_group else "count by inferred shares"
        return (
            f"The group of {unknown:,} of {rows:,} rows is not known: in training they {fate}. Figures "
            "count rows of known group only."
        )

    def _wants_groups(self) -> bool:
        """Whether there is something to be fair about."""
        return True


class BaseClassifier(CellsMixin, SavingMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """A classifier that is fair between groups; subclasses train in ``_fit`` and give scores in ``decision_function``."""

    __metadata_request__fit: ClassVar = {"sensitive_features": True}

    random_state: Any = 0
    _TABLE: ClassVar[dict[str, Any]] = {"dtype": [np.float64, np.float32], "accept_sparse": "csr"}

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None) -> Self:
        """Train.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix or RowsOnDisk of shape (N, D)
            Features.
        y : array-like of shape (N,)
            Classes, labels of any kind.
        sensitive_features : array-like, Series, DataFrame or list of columns, optional
            Groups: one column, several (their combinations are the groups), or a table of shares that sum to one in every
            row. Without them there is one group.
        sample_weight : array-like of shape (N,), optional
            Counts a row as this many, within its cell.

        Returns
        -------
        self
        """
        self._check_parameters()
        self._fit_rows(X, *self._validated(X, y, sensitive_features, sample_weight))
        return self

    def _validated(self, X: Any, y: Any, sensitive: Any, weight: Any) -> tuple[Any, Cells]:
        """Return the rows as scikit-learn checks them, and their cells."""
        if isinstance(X, RowsOnDisk):
            return X, self._cells_on_disk(X, y, sensitive, weight)
        X, y = validate_data(self, X, y, **self._TABLE)
        check_classification_targets(y)
        if weight is not None:
            weight = _check_sample_weight(weight, X, dtype=np.float64)
        self.classes_, codes = np.unique(y, return_inverse=True)
        return X, self._cells(codes, sensitive, weight, X)

    def _cells_on_disk(self, X: RowsOnDisk, y: pd.Categorical, sensitive: Groups, weight: Any) -> Cells:
        """Return the cells of rows on disk; every process names all classes and groups, also those it has no rows of."""
        if weight is not None or sensitive.soft or self.missing_groups == "infer":
            raise InputError("Rows on disk have no weights, and neither soft nor inferred groups; take fewer into memory.")
        if self._share_trained() < 1:
            raise InputError("Rows on disk cannot be set aside to certify; leave out certify, and certify on other rows.")
        self.classes_, self.n_features_in_ = np.asarray(y.categories), X.shape[1]
        return self._cells(y.codes.astype(np.int64), sensitive, None, X)

    def _inferred(self, X: Any, cells: Cells) -> Cells:
        model, features = self._group_model(X)
        return infer_groups(cells, group_probabilities(model, features, cells, self._seed()))

    def _group_model(self, X: Any) -> tuple[Any, Any]:
        """Return a classifier that tells groups apart, for rows whose group is missing, and the features it takes."""
        return LogisticRegression(max_iter=1000), StandardScaler(with_mean=False).fit_transform(X)

    def _seed(self) -> int:
        if isinstance(self.random_state, numbers.Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of the classes ``(N, Y)``; of two classes, the score of the second over the first ``(N,)``.

        Parameters
        ----------
        X : array-like or DataFrame of shape (N, D)
            Rows to predict; no group is needed.
        """
        raise NotImplementedError

    def predict(self, X: Any) -> np.ndarray:
        """Return the class that is decided for every row: that of the largest score of :meth:`decision_function`.

        Parameters
        ----------
        X : array-like or DataFrame of shape (N, D)
            Rows to predict; no group is needed.

        Returns
        -------
        ndarray of shape (N,)
        """
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes ``(N, Y)`` among people like those trained on, calibrated.

        They say how likely a class is, not what is decided: see :meth:`predict`.

        Parameters
        ----------
        X : array-like or DataFrame of shape (N, D)
            Rows to predict; no group is needed.

        Returns
        -------
        ndarray of shape (N, Y)
        """
        raise NotImplementedError
