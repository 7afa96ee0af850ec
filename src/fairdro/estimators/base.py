"""What all classifiers share: validation, classes and groups, prediction from scores."""

import numbers
import warnings
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from fairdro.cells import Cells, check_weights
from fairdro.estimators.saving import SavingMixin
from fairdro.groups import TOO_FEW, Groups, encode_groups, settle_small_cells


class CellsMixin:
    """Classes and groups of rows, as every model here takes them."""

    classes_: np.ndarray
    small_cells: str = "warn"
    min_cell_size: int = TOO_FEW

    def _cells(self, codes: np.ndarray, sensitive: Any, weight: np.ndarray | None) -> Cells:
        """Return the cells of rows of classes ``codes``, groups that are too small settled."""
        groups = self._groups(codes, sensitive)
        scale = 1.0
        if weight is not None:
            check_weights(weight, len(codes))
            scale = float(2.0 ** np.floor(np.log2(weight.max())))  # a power of two, so that whole numbers stay exact
            weight = weight / scale
        cells = Cells.from_labels(codes, groups, n_classes=len(self.classes_), sample_weight=weight)
        self.cell_counts_ = cells.counts.numpy() * scale
        self._countable_ = weight is None and not groups.soft
        return cells

    def _groups(self, codes: np.ndarray, sensitive: Any) -> Groups:
        given = sensitive is not None
        found = encode_groups(sensitive) if given else Groups(np.zeros(len(codes), dtype=np.int64), ["all"])
        if len(found.names) == 1 and self._wants_groups():
            without = "" if given else "fit was called without sensitive_features: "
            warnings.warn(f"{without}all rows are one group, with nothing to be fair between.", UserWarning, stacklevel=5)
        counts = Cells.from_labels(codes, found, n_classes=len(self.classes_)).counts.numpy()
        groups = found
        if given:
            names, how, floor = [str(c) for c in self.classes_], self.small_cells, self.min_cell_size
            groups = settle_small_cells(found, counts, class_names=names, how=how, floor=floor)
        self.group_names_ = groups.names
        self.merged_groups_ = [name for name in found.names if name not in groups.names]
        return groups

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
        X : array-like, DataFrame or sparse matrix of shape (N, D)
        y : array-like of shape (N,)
        sensitive_features : array-like, Series, DataFrame or list of columns, optional
            Groups, see :func:`~fairdro.groups.encode_groups`; without them there is one group.
        sample_weight : array-like of shape (N,), optional
            Counts a row as this many, within its cell.
        """
        self._fit(*self._validated(X, y, sensitive_features, sample_weight))
        return self

    def _fit(self, X: Any, cells: Cells) -> None:
        """Train on validated rows and keep what prediction needs."""
        raise NotImplementedError

    def _validated(self, X: Any, y: Any, sensitive: Any, weight: Any) -> tuple[Any, Cells]:
        """Return the rows as scikit-learn checks them, and their cells."""
        X, y = validate_data(self, X, y, **self._TABLE)
        check_classification_targets(y)
        if weight is not None:
            weight = _check_sample_weight(weight, X, dtype=np.float64)
        self.classes_, codes = np.unique(y, return_inverse=True)
        return X, self._cells(codes, sensitive, weight)

    def _seed(self) -> int:
        if isinstance(self.random_state, numbers.Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of the classes ``(N, Y)``; of two classes, the score of the second over the first ``(N,)``."""
        raise NotImplementedError

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of every row."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes ``(N, Y)``."""
        logits = self.decision_function(X)
        if logits.ndim == 1:
            logits = np.column_stack([np.zeros_like(logits), logits])
        return torch.from_numpy(logits).softmax(-1).numpy()
