"""Classifiers of layers, linear models and multi-layer perceptrons: FairDRO, and any method by name."""

import warnings
from dataclasses import fields
from typing import Any, Self, cast

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from fairdro._utils.progress import OnStep, bar
from fairdro.cells import Cells
from fairdro.errors import InputError, unknown_name
from fairdro.estimators.base import BaseClassifier
from fairdro.groups import TOO_FEW
from fairdro.methods import METHODS, FairDRO, Method, Scratch, check_hyperparameters, get_method
from fairdro.models import BANKS
from fairdro.training.engines import Engine, engine_for, get_engine, solvers_of
from fairdro.training.trained import TrainedBank

SMALL = 1_000_000  # numbers in a table that is solved in double precision, which costs nothing there
ERRORS = ["training", "out_of_fold"]
LAYERS = ["coef_", "intercept_", "coefs_", "intercepts_"]
ROWS_PER_PIECE = 65_536  # rows scaled at a time, so that a large table is not held twice


class LayerClassifier(BaseClassifier):
    """A classifier whose model is layers; scaling is folded into the first."""

    model: str = "linear"
    errors: str = ERRORS[0]
    verbose: bool = False

    def _method(self) -> Method:
        """Return the method that trains the model."""
        raise NotImplementedError

    def _wants_groups(self) -> bool:
        return type(self._method()) is not Scratch

    def _validated(self, X: Any, y: Any, sensitive: Any, weight: Any) -> tuple[Any, Cells]:
        method = self._method()
        if weight is not None and method.has_penalty():
            warnings.warn(
                f"The penalty of {method.name} counts all rows the same; sample_weight acts on its loss only.",
                UserWarning,
                stacklevel=3,
            )
        return super()._validated(X, y, sensitive, weight)

    def _fit(self, X: Any, cells: Cells) -> None:
        self._fit_layers(self._method(), X, cells)

    def _fit_layers(self, method: Method, X: Any, cells: Cells) -> None:
        """Train on all rows and keep what prediction needs."""
        with bar("training", 1, show=self.verbose) as part:
            trained, scaler = self._train(method, X, cells, np.arange(len(cells)), part(0))
        self.weights_ = trained.weights[0, 0].numpy()
        for name in LAYERS:  # of another model, fitted before
            self.__dict__.pop(name, None)
        layers = [(W[0, 0].double().numpy(), b[0, 0].double().numpy()) for W, b in trained.model.layers]
        first = layers[0][0] / scaler.scale_[:, None]
        layers[0] = (first, layers[0][1] - scaler.mean_ @ first)
        if len(layers) > 1:
            self.coefs_, self.intercepts_ = [W for W, _ in layers], [b for _, b in layers]
            return
        W, b = layers[0]
        if len(self.classes_) == 2:
            W, b = W[:, 1:] - W[:, :1], b[1:] - b[:1]
        self.coef_, self.intercept_ = W.T, b

    def _train(
        self, method: Method, X: Any, cells: Cells, rows: np.ndarray, on_step: OnStep | None
    ) -> tuple[TrainedBank, StandardScaler]:
        """Scale and train on some rows; every point of the method at once."""
        if cells.sample_weight is not None:
            rows = rows[cells.sample_weight.numpy()[rows] > 0]
        taken = cells.take(torch.from_numpy(rows))
        scaler = _fit_scaler(X, rows, taken.sample_weight)
        features = scaled(X, rows, scaler, double=X.shape[0] * X.shape[1] <= SMALL)
        engine = self._engine(type(method))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is one group only")  # said in other words in fit
            alone = method.points == 1
            trained = engine.train(features, taken, method, seeds=(self._seed(),), alone=alone, on_step=on_step)
        return cast("TrainedBank", trained), scaler

    def _engine(self, kind: type[Method]) -> Engine:
        """Return what trains, by the errors that the method is to respond to."""
        if self.errors not in ERRORS:
            raise unknown_name("kind of errors", self.errors, ERRORS)
        if self.errors == ERRORS[0]:
            return engine_for(self.model, kind)
        if self.errors not in solvers_of(self.model):
            raise InputError(f"Out-of-fold errors are for linear models only; with {self.model}, use errors='training'.")
        return get_engine(self.model, self.errors)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the logits of the classes ``(N, Y)``; of two classes, the logit of the second ``(N,)``."""
        check_is_fitted(self)
        X = validate_data(self, X, **self._TABLE, reset=False)
        if not hasattr(self, "coefs_"):
            logits = X @ self.coef_.T + self.intercept_
            return logits[:, 0] if len(self.classes_) == 2 else logits
        hidden = X
        for W, b in zip(self.coefs_[:-1], self.intercepts_[:-1], strict=True):
            hidden = np.maximum(hidden @ W + b, 0)
        logits = hidden @ self.coefs_[-1] + self.intercepts_[-1]
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def _fits_together(self) -> bool:
        return (self.coefs_[0] if hasattr(self, "coefs_") else self.coef_.T).shape[0] == self.n_features_in_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _fit_scaler(X: Any, rows: np.ndarray, weight: torch.Tensor | None) -> StandardScaler:
    scaler = StandardScaler()
    first = 0
    for piece in _pieces(rows):
        part = None if weight is None else weight[first : (first := first + len(piece))].double().numpy()
        scaler.partial_fit(_dense(X[piece]), sample_weight=part)
    return scaler


def scaled(X: Any, rows: np.ndarray, scaler: StandardScaler, *, double: bool) -> torch.Tensor:
    """Return some rows scaled, as a tensor."""
    out = np.empty((len(rows), X.shape[1]), dtype=np.float64 if double else np.float32)
    first = 0
    for piece in _pieces(rows):
        out[first : (first := first + len(piece))] = scaler.transform(_dense(X[piece]))
    return torch.from_numpy(out)


def _dense(X: Any) -> np.ndarray:
    return (X.toarray() if hasattr(X, "toarray") else X).astype(np.float64, copy=False)


def _pieces(rows: np.ndarray) -> list[np.ndarray]:
    return [rows[i : i + ROWS_PER_PIECE] for i in range(0, len(rows), ROWS_PER_PIECE)]


def method_for(model: str, kind: type[Method], hyperparameters: dict[str, Any]) -> Method:
    """Return a method as it does best with the engine of a model."""
    if model not in BANKS:
        raise unknown_name("model of layers", model, list(BANKS))
    check_hyperparameters(kind, hyperparameters)
    return kind(**engine_for(model, kind).hyperparameters(kind, hyperparameters))


def _one_point(method: Method) -> Method:
    if method.points > 1:
        raise InputError("A classifier is one model: give every hyperparameter one value.")
    return method


class FairDROClassifier(LayerClassifier):
    """FairDRO: groups of each class are served alike, the more so the larger the radius.

    Parameters
    ----------
    rho : float, default 1
        Radius of the chi-square ball; 0 is plain training.
    objective : {"balanced", "standard"}, default "balanced"
        What plain training counts the same, and FairDRO keeps: every class and group (the paper's), or every row.
    model : {"linear", "mlp"}, default "linear"
    errors : {"training", "out_of_fold"}, default "training"
        What q responds to, for linear models: errors on the rows a model is trained on, or on rows that it is not, by five
        folds beside the final model; see docs/head.md on when that helps.
    small_cells : {"warn", "merge", "refuse"}, default "warn"
        What to do where a class and group have fewer than ``min_cell_size`` rows: say so, merge groups, or raise an error.
    min_cell_size : int, default 30
    random_state : int, default 0
        Seed of initial weights and batches of the multi-layer perceptron; the linear model has no randomness.
    verbose : bool, default False
        Show a progress bar on a terminal.

    Attributes
    ----------
    classes_ : ndarray of shape (Y,)
    group_names_ : list of str
    merged_groups_ : list of str
        Groups that count as one because they were too small.
    cell_counts_ : ndarray of shape (Y, A)
        Training rows per class and group.
    weights_ : ndarray of shape (Y, A)
        q, the final weights of classes and groups.
    coef_, intercept_ : ndarray of shape (1, D) or (Y, D), and (1,) or (Y,)
        Of the linear model, for features as they were passed.
    coefs_, intercepts_ : list of ndarray
        Of the multi-layer perceptron: its layers, for features as they were passed.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where X has names.
    """

    def __init__(
        self,
        rho: float = 1.0,
        *,
        objective: str = "balanced",
        model: str = "linear",
        errors: str = "training",
        small_cells: str = "warn",
        min_cell_size: int = TOO_FEW,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.rho = rho
        self.objective = objective
        self.model = model
        self.errors = errors
        self.small_cells = small_cells
        self.min_cell_size = min_cell_size
        self.random_state = random_state
        self.verbose = verbose

    def _method(self) -> Method:
        return _one_point(method_for(self.model, FairDRO, {"rho": self.rho, "objective": self.objective}))


class FairClassifier(LayerClassifier):
    """A classifier trained by any of the methods.

    Parameters
    ----------
    method : str, default "fairdro"
        One of ``fairdro list methods``.
    model : {"linear", "mlp"}, default "linear"
        The linear model has the full-batch solver, where the method allows it; anything else is trained in mini-batches.
    small_cells : {"warn", "merge", "refuse"}, default "warn"
        What to do where a class and group have fewer than ``min_cell_size`` rows: say so, merge groups, or raise an error.
    min_cell_size : int, default 30
    random_state : int, default 0
        Seed of initial weights and batches, where there are any.
    verbose : bool, default False
        Show a progress bar on a terminal.
    **hyperparameters
        Those of the method, e.g. ``rho=10.0``.

    Attributes
    ----------
    classes_, group_names_, merged_groups_, cell_counts_, weights_, n_features_in_, feature_names_in_
        As of :class:`FairDROClassifier`.
    coef_, intercept_, coefs_, intercepts_
        Likewise.
    """

    def __init__(
        self,
        *,
        method: str = "fairdro",
        model: str = "linear",
        small_cells: str = "warn",
        min_cell_size: int = TOO_FEW,
        random_state: int = 0,
        verbose: bool = False,
        **hyperparameters: Any,
    ) -> None:
        self.method = method
        self.model = model
        self.small_cells = small_cells
        self.min_cell_size = min_cell_size
        self.random_state = random_state
        self.verbose = verbose
        for key, value in hyperparameters.items():
            setattr(self, key, value)

    def _hyperparameters(self) -> dict[str, Any]:
        """Whatever was set beside the estimator's own parameters and what fitting leaves, which ends in an underscore."""
        own = {*self._get_param_names()}
        return {k: v for k, v in vars(self).items() if k not in own and not k.startswith("_") and not k.endswith("_")}

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002 - scikit-learn's signature
        """Return the parameters by name, those of the method included."""
        return super().get_params(deep) | self._hyperparameters()

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of the method included."""
        known = {*self.get_params(), *(f.name for kind in METHODS.values() for f in fields(kind))}
        if unknown := set(params) - known:
            raise InputError(f"There is no parameter {sorted(unknown)[0]!r}; the methods have: {', '.join(sorted(known))}.")
        if "method" in params:  # another method has other hyperparameters
            kind = METHODS.get(params["method"]) if isinstance(params["method"], str) else None
            for key in set(self._hyperparameters()) - {f.name for f in fields(kind)} if kind is not None else ():
                delattr(self, key)
        for key, value in params.items():
            setattr(self, key, value)
        return self

    def _method(self) -> Method:
        return _one_point(method_for(self.model, get_method(self.method), self._hyperparameters()))
