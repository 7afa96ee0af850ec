"""Classifiers of layers, linear models and multi-layer perceptrons: FairDRO, and any method by name."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, Self, cast

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from fairdro._utils.progress import OnStep, bar
from fairdro.cells import Cells
from fairdro.errors import InputError, unknown_name
from fairdro.estimators.base import BaseClassifier
from fairdro.estimators.layers import Layers, fit_scaler, scaled, until_converged
from fairdro.groups import TOO_FEW
from fairdro.methods import METHODS, FairDRO, Method, Scratch, check_hyperparameters, get_method
from fairdro.models import BANKS
from fairdro.training.calibration import FEWEST_ROWS, fit_class_scaling
from fairdro.training.engines import Engine, engine_for, get_engine, solvers_of
from fairdro.training.folds import hold_out
from fairdro.training.rows import ScaledRows, total
from fairdro.training.trained import STEPS, UNSETTLED, TrainedBank

SMALL = 1_000_000  # numbers in a table that is solved in double precision, which costs nothing there
CALIBRATED = 0.2  # share of rows that plain training does not see, so that its probabilities can be calibrated on them
ERRORS = ["training", "out_of_fold"]
LAYERS = ["coef_", "intercept_", "coefs_", "intercepts_"]


class LayerClassifier(BaseClassifier):
    """A classifier whose model is layers; scaling is folded into the first."""

    model: str = "linear"
    errors: str = ERRORS[0]
    max_iter: int | None = None
    tol: float = UNSETTLED
    verbose: bool = False
    _moving: dict[str, None]  # what has not converged

    def _method(self) -> Method:
        """Return the method that trains the model."""
        raise NotImplementedError

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._engine(type(self._method()))

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

    @contextmanager
    def _converging(self) -> Iterator[None]:
        """Warn once of all that had not converged."""
        self._moving = {}
        yield
        if self._moving:
            first, *others = self._moving
            more = f" and {len(others)} more" if others else ""
            warnings.warn(
                f"The accuracy of a cell still moved by more than {100 * self.tol:g} points at the end of training with "
                f"{first}{more}. Raise max_iter, which is {self.max_iter or STEPS}, or use smaller radii.",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _fit(self, X: Any, cells: Cells) -> None:
        with self._converging(), bar("training", 2, show=self.verbose) as part:
            self._fit_layers(self._for_classes(self._method()), X, cells, part(0))
            kept, held = hold_out(cells.ungrouped, CALIBRATED, self._seed())
            rare = len(np.unique(cells.y.numpy()[kept])) < cells.n_classes
            if rare or len(held) < FEWEST_ROWS:  # too few to calibrate by
                kept, held = np.arange(len(cells)), held[:0]
            plain = self._train_plain(X, cells, kept, part(1))
            self._keep_plain(plain, plain.logits(X, held), cells.take(torch.from_numpy(held)))

    def _for_classes(self, method: Method) -> Method:
        """Return a method with what errors on the classes cost and, for FairDRO, with the classes that are to be fair."""
        by_class = self._by_class()
        if not isinstance(method, FairDRO):
            by_class.pop("fair_classes")
        return replace(method, **by_class)

    def _fit_layers(self, method: Method, X: Any, cells: Cells, on_step: OnStep | None) -> None:
        """Train on all rows and keep what prediction needs."""
        trained, scaler = self._train(method, X, cells, np.arange(len(cells)), on_step)
        self.weights_ = trained.weights[0, 0, :, : cells.n_known_groups].numpy()
        for name in LAYERS:  # of another model, fitted before
            self.__dict__.pop(name, None)
        layers = Layers.of(trained, scaler).layers
        if len(layers) > 1:
            self.coefs_, self.intercepts_ = [W for W, _ in layers], [b for _, b in layers]
            return
        W, b = layers[0]
        if len(self.classes_) == 2:
            W, b = W[:, 1:] - W[:, :1], b[1:] - b[:1]
        self.coef_, self.intercept_ = W.T, b

    def _train_plain(self, X: Any, cells: Cells, rows: np.ndarray, on_step: OnStep | None) -> Layers:
        """Train the same model as people know it: every row counts the same, and there are no groups."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # whatever there is to say is said of the classifier itself
            moving = dict(self._moving)
            plain = Layers.of(*self._train(Scratch(objective="standard"), X, cells.ungrouped, rows, on_step))
        self._moving = moving
        return plain

    def _keep_plain(self, plain: Layers, logits: np.ndarray, cells: Cells) -> None:
        """Keep plain training's model for probabilities, calibrated on rows it was not trained on, given its logits."""
        inverse, *offsets = fit_class_scaling(logits, cells)
        (W, b), earlier = plain.layers[-1], plain.layers[:-1]
        layers = [*earlier, (inverse * W, inverse * b + np.array(offsets))]
        self.plain_coefs_, self.plain_intercepts_ = [W for W, _ in layers], [b for _, b in layers]

    def _train(
        self, method: Method, X: Any, cells: Cells, rows: np.ndarray, on_step: OnStep | None
    ) -> tuple[TrainedBank, StandardScaler]:
        """Scale and train on some rows; every point of the method at once."""
        if cells.sample_weight is not None:
            rows = rows[cells.sample_weight.numpy()[rows] > 0]
        taken = cells.take(torch.from_numpy(rows))
        scaler = fit_scaler(X, rows, taken.sample_weight)
        numbers = int(total(X, torch.tensor(X.shape[0]))) * X.shape[1]
        features = scaled(X, rows, scaler, double=numbers <= SMALL)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is one group only")  # said in other words in fit
            warnings.filterwarnings("ignore", "The accuracy of a cell still moved")  # said once for all folds
            return self._train_until_converged(features, taken, method, on_step), scaler

    def _train_until_converged(
        self, features: torch.Tensor | ScaledRows, cells: Cells, method: Method, on_step: OnStep | None
    ) -> TrainedBank:
        """Train, and note what has not converged."""
        engine = self._engine(type(method))

        def train(method: Method, steps: int | None) -> TrainedBank:
            options = {"seeds": (self._seed(),), "alone": method.points == 1, "on_step": on_step}
            return cast("TrainedBank", engine.train(features, cells, method, steps=steps, **options))

        if not engine.converges:
            return train(method, self.max_iter)
        trained, moving = until_converged(train, method, self.max_iter or STEPS, self.tol)
        for point in moving:
            shown = method.hyperparameters(point)
            self._moving[", ".join(f"{name} = {shown[name]:g}" for name in method.search) or method.name] = None
        return trained

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
        """Return the logits of the classes ``(N, Y)``; of two classes, the logit of the second ``(N,)``.

        Parameters
        ----------
        X : array-like or DataFrame of shape (N, D)
            Rows to predict; no group is needed.
        """
        check_is_fitted(self)
        X = validate_data(self, X, **self._TABLE, reset=False)
        if not hasattr(self, "coefs_"):
            logits = X @ self.coef_.T + self.intercept_
            return logits[:, 0] if len(self.classes_) == 2 else logits
        logits = Layers(list(zip(self.coefs_, self.intercepts_, strict=True))).forward(X)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes ``(N, Y)`` among people like those trained on.

        They are those of plain training, in which every row counts the same, calibrated on rows it was not trained on (a
        fifth of the rows, or out of fold; not where these are fewer than 100). So they say how likely a class is; what
        :meth:`predict` decides by is :meth:`decision_function`.

        Parameters
        ----------
        X : array-like or DataFrame of shape (N, D)
            Rows to predict; no group is needed.
        """
        check_is_fitted(self)
        X = validate_data(self, X, **self._TABLE, reset=False)
        logits = Layers(list(zip(self.plain_coefs_, self.plain_intercepts_, strict=True))).forward(X)
        return torch.from_numpy(logits).softmax(-1).numpy()

    def _fits_together(self) -> bool:
        number, width = len(self.classes_), self.n_features_in_
        plain = Layers.fit_together(self.plain_coefs_, self.plain_intercepts_, width, number)
        if hasattr(self, "coefs_"):
            return plain and Layers.fit_together(self.coefs_, self.intercepts_, width, number)
        return plain and self.coef_.shape[0] == len(self.intercept_) == (1 if number == 2 else number)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


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
    """FairDRO with one radius: the larger it is, the smaller the gaps in accuracy between groups.

    Parameters
    ----------
    rho : float, default 1
        Radius of the chi-square ball; 0 is plain training.
    objective : {"balanced", "standard"}, default "balanced"
        What plain training counts the same, and FairDRO keeps: every class and group (the paper's), or every row.
    class_weight : dict or "balanced", optional
        What errors on a class cost, by its label, on top of the objective; ``balanced`` makes classes count the same.
    fair_classes : list of labels, optional
        Classes whose accuracy is to be equal over groups, e.g. ``["approved"]`` for equal opportunity; by default all.
    model : {"linear", "mlp"}, default "linear"
    errors : {"training", "out_of_fold"}, default "training"
        What q responds to, for linear models: errors on the rows a model is trained on, or on rows that it is not, by five
        folds beside the final model; see docs/head.md on when that helps.
    small_cells : {"warn", "merge", "refuse"}, default "warn"
        What to do where a class and group have fewer than ``min_cell_size`` rows: say so, merge groups, or raise an error.
    min_cell_size : int, default 30
    missing_groups : {"refuse", "infer", "ignore", "group"}, default "refuse"
        Where a sensitive feature is missing: raise an error; infer shares of the groups from X and the class; train on the
        row without counting it for fairness; or take missing as a group of its own.
    max_iter : int, optional
        Most steps over all rows, by default 200: with more, a linear model that has not converged is trained again with
        twice as many. Of the multi-layer perceptron the epochs, by default 70, and more on small tables.
    tol : float, default 0.05
        A linear model has converged when no accuracy of a class and group moves by more over the last steps.
    random_state : int, default 0
        Seed of initial weights and batches of the multi-layer perceptron, and of the rows that probabilities are calibrated
        by; the decisions of the linear model have no randomness.
    verbose : bool, default False
        Show a progress bar on a terminal.

    Attributes
    ----------
    classes_ : ndarray of shape (Y,)
    class_weight_ : ndarray of shape (Y,), or None
        What errors on every class cost.
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
    plain_coefs_, plain_intercepts_ : list of ndarray
        Layers of plain training, in which every row counts the same, calibrated: what ``predict_proba`` uses.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where X has names.

    See Also
    --------
    FairDROClassifierCV : Chooses the radius on held-out rows.
    FairClassifier : Any other method by its name.

    Examples
    --------
    >>> from fairdro import FairDROClassifier, load_dataset
    >>> from fairdro.metrics import dca
    >>> data = load_dataset("compas")
    >>> X, y, race = data.X.iloc[:, :8], data.y, data.a
    >>> train, test = slice(0, 4000), slice(4000, None)
    >>> plain = FairDROClassifier(rho=0.0).fit(X[train], y[train], sensitive_features=race[train])
    >>> fair = FairDROClassifier(rho=10.0).fit(X[train], y[train], sensitive_features=race[train])
    >>> round(dca(y[test], plain.predict(X[test]), sensitive_features=race[test]), 2)
    0.18
    >>> round(dca(y[test], fair.predict(X[test]), sensitive_features=race[test]), 2)
    0.04
    >>> fair.weights_.shape  # q, of every class and group
    (2, 2)
    """

    def __init__(
        self,
        rho: float = 1.0,
        *,
        objective: str = "balanced",
        class_weight: Any = None,
        fair_classes: Any = None,
        model: str = "linear",
        errors: str = "training",
        small_cells: str = "warn",
        min_cell_size: int = TOO_FEW,
        missing_groups: str = "refuse",
        max_iter: int | None = None,
        tol: float = UNSETTLED,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.rho = rho
        self.objective = objective
        self.class_weight = class_weight
        self.fair_classes = fair_classes
        self.model = model
        self.errors = errors
        self.small_cells = small_cells
        self.min_cell_size = min_cell_size
        self.missing_groups = missing_groups
        self.max_iter = max_iter
        self.tol = tol
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
    class_weight : dict or "balanced", optional
        As of :class:`FairDROClassifier`.
    small_cells : {"warn", "merge", "refuse"}, default "warn"
        What to do where a class and group have fewer than ``min_cell_size`` rows: say so, merge groups, or raise an error.
    min_cell_size : int, default 30
    missing_groups : {"refuse", "infer", "ignore", "group"}, default "refuse"
        Where a sensitive feature is missing: raise an error; infer shares of the groups from X and the class; train on the
        row without counting it for fairness; or take missing as a group of its own.
    max_iter, tol
        As of :class:`FairDROClassifier`.
    random_state : int, default 0
        Seed of initial weights and batches, where there are any.
    verbose : bool, default False
        Show a progress bar on a terminal.
    **hyperparameters
        Those of the method, e.g. ``rho=10.0``.

    Attributes
    ----------
    classes_, class_weight_, group_names_, merged_groups_, cell_counts_, weights_, n_features_in_, feature_names_in_
        As of :class:`FairDROClassifier`.
    coef_, intercept_, coefs_, intercepts_, plain_coefs_, plain_intercepts_
        Likewise.

    See Also
    --------
    FairDROClassifier : FairDRO with parameters of its own.
    fairdro.methods : All methods and their hyperparameters.

    Examples
    --------
    >>> from fairdro import FairClassifier, load_dataset
    >>> from fairdro.metrics import dca
    >>> data = load_dataset("compas")
    >>> X, y, race = data.X.iloc[:, :8], data.y, data.a
    >>> train, test = slice(0, 4000), slice(4000, None)
    >>> model = FairClassifier(method="rw").fit(X[train], y[train], sensitive_features=race[train])
    >>> round(dca(y[test], model.predict(X[test]), sensitive_features=race[test]), 1)
    0.2
    >>> FairClassifier(method="lbc", eta=1.0).get_params()["eta"]
    1.0
    """

    def __init__(
        self,
        *,
        method: str = "fairdro",
        model: str = "linear",
        class_weight: Any = None,
        small_cells: str = "warn",
        min_cell_size: int = TOO_FEW,
        missing_groups: str = "refuse",
        max_iter: int | None = None,
        tol: float = UNSETTLED,
        random_state: int = 0,
        verbose: bool = False,
        **hyperparameters: Any,
    ) -> None:
        self.method = method
        self.model = model
        self.class_weight = class_weight
        self.small_cells = small_cells
        self.min_cell_size = min_cell_size
        self.missing_groups = missing_groups
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose
        for key, value in hyperparameters.items():
            setattr(self, key, value)

    def _hyperparameters(self) -> dict[str, Any]:
        """Whatever was set beside the estimator's own parameters and what fitting leaves, which ends in an underscore."""
        own = {*self._get_param_names()}
        return {k: v for k, v in vars(self).items() if k not in own and not k.startswith("_") and not k.endswith("_")}

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002 - scikit-learn's signature
        """Return the parameters by name, those of the method included.

        Parameters
        ----------
        deep : bool, default True
            As of scikit-learn.

        Returns
        -------
        dict
        """
        return super().get_params(deep) | self._hyperparameters()

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of the method included.

        Parameters
        ----------
        **params
            Values by name.

        Returns
        -------
        self
        """
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
        given = self._hyperparameters()
        if issubclass(kind := get_method(self.method), FairDRO):
            given.pop("fair_classes", None)  # labels, of which there are codes once the classes are known
        return _one_point(method_for(self.model, kind, given))
