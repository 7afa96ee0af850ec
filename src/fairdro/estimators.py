"""The scikit-learn face: any method as a classifier."""

from __future__ import annotations

import warnings
from dataclasses import fields
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fairdro.cells import Cells, encode_groups
from fairdro.errors import InputError
from fairdro.methods import METHODS, Method, get_method
from fairdro.training import TrainedBank, train_fullbatch, train_minibatch

__all__ = ["FairClassifier"]


class FairClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """A classifier trained by any of the methods.

    Parameters
    ----------
    method : str, default "fairdro"
        One of ``fairdro list methods``.
    model : {"linear", "mlp"}, default "linear"
        The linear model has the full-batch solver, where the method allows it; anything else is trained in mini-batches.
    random_state : int, default 0
        Seed of initial weights and batches, where there are any.
    **hyperparameters
        Those of the method, e.g. ``rho=10.0``.

    Attributes
    ----------
    classes_ : ndarray of shape (Y,)
    weights_ : ndarray of shape (Y, A)
        Final cell weights; for FairDRO, q.
    """

    def __init__(
        self, method: str = "fairdro", *, model: str = "linear", random_state: int = 0, **hyperparameters: Any
    ) -> None:
        self.method = method
        self.model = model
        self.random_state = random_state
        self._hyperparameters = dict(hyperparameters)
        for key, value in hyperparameters.items():
            setattr(self, key, value)

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002 - scikit-learn's signature
        """Return the parameters by name, those of the method included."""
        return super().get_params(deep) | {key: getattr(self, key) for key in self._hyperparameters}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of the method included."""
        own = super().get_params(deep=False)
        known = {f.name for kind in METHODS.values() for f in fields(kind)}
        for key, value in params.items():
            if key not in own:
                if key not in known:
                    raise InputError(f"There is no parameter {key!r} of any method; see `fairdro list methods`.")
                self._hyperparameters[key] = value
            setattr(self, key, value)
        return self

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None) -> Self:
        """Train.

        Parameters
        ----------
        X : array-like of shape (N, D)
        y : array-like of shape (N,)
        sensitive_features : array-like, Series, DataFrame or list of columns, optional
            Groups, see :func:`~fairdro.cells.encode_groups`; without them there is one group.
        sample_weight : array-like of shape (N,), optional
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        rule = self._rule()
        self._scaler = StandardScaler().fit(X)
        groups = encode_groups(np.zeros(len(codes), dtype=np.int64) if sensitive_features is None else sensitive_features)
        cells = Cells.from_labels(codes, groups, n_classes=len(self.classes_), sample_weight=sample_weight)
        features = torch.as_tensor(self._scaler.transform(X), dtype=torch.float32)
        with warnings.catch_warnings():
            if self.method == "scratch":  # plain training asks for no groups
                warnings.filterwarnings("ignore", "There is one group only")
            self._trained = self._train(features, cells, rule)
        self.weights_ = self._trained.weights[0, 0].numpy()
        return self

    def _train(self, X: torch.Tensor, cells: Cells, rule: Method) -> TrainedBank:
        if self._solver(type(rule)) == "fullbatch":
            return train_fullbatch(X, cells, rule)
        return train_minibatch(X, cells, rule, model=self.model, seeds=(self.random_state,))

    def _solver(self, kind: type[Method]) -> str:
        return "fullbatch" if self.model == "linear" and "fullbatch" in kind.solvers() else "minibatch"

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of every row."""
        return self.classes_[self.predict_proba(X).argmax(1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes ``(N, Y)``."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        features = torch.as_tensor(self._scaler.transform(X), dtype=torch.float32)
        return self._trained.logits(features)[0, 0].double().softmax(-1).numpy()

    def _rule(self) -> Method:
        kind = get_method(self.method)
        hyperparameters = {key: getattr(self, key) for key in self._hyperparameters}
        if unknown := set(hyperparameters) - {f.name for f in fields(kind)}:
            raise InputError(f"{self.method} does not have these hyperparameters: {', '.join(sorted(unknown))}.")
        rule = kind(**kind.for_solver(self._solver(kind), **hyperparameters))
        if rule.points > 1:
            raise InputError("A classifier is one model: give every hyperparameter one value.")
        return rule
