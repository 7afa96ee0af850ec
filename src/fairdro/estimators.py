"""The scikit-learn face: FairDRO, FairDRO with its radius chosen, and any method by name, as classifiers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Self

import altair as alt
import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import StratifiedKFold, check_cv
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fairdro.cells import Cells, Groups, encode_groups
from fairdro.errors import InputError
from fairdro.frontier import KeepAccuracy, Rule
from fairdro.methods import METHODS, FairDRO, Method, Scratch, get_method
from fairdro.metrics import METRICS, REPORTED, confusion_counts
from fairdro.training import TrainedBank, train_fullbatch, train_minibatch

__all__ = ["FairClassifier", "FairDROClassifier", "FairDROClassifierCV"]

SMALL = 1_000_000  # numbers in a table that is solved in double precision, which costs nothing there


class _Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """What all share: validation, groups, scaling folded into the coefficients, prediction."""

    model: str = "linear"
    random_state: int = 0

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None) -> Self:
        """Train.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (N, D)
        y : array-like of shape (N,)
        sensitive_features : array-like, Series, DataFrame or list of columns, optional
            Groups, see :func:`~fairdro.cells.encode_groups`; without them there is one group.
        sample_weight : array-like of shape (N,), optional
        """
        X, codes, groups, weight = self._validated(X, y, sensitive_features, sample_weight)
        self._train(X, codes, groups, weight)
        return self

    def _validated(self, X: Any, y: Any, sensitive: Any, weight: Any) -> tuple[np.ndarray, np.ndarray, Groups, Any]:
        X, y = validate_data(self, X, y, dtype=np.float64, accept_sparse="csr")
        check_classification_targets(y)
        if weight is not None:
            weight = _check_sample_weight(weight, X, dtype=np.float64)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if sensitive is None and type(self._rule()) is not Scratch:
            warnings.warn(
                "fit was called without sensitive_features: all rows are one group, so there is nothing to be fair between.",
                UserWarning,
                stacklevel=4,
            )
        groups = encode_groups(np.zeros(len(codes), dtype=np.int64) if sensitive is None else sensitive)
        self.group_names_ = groups.names
        return _dense(X), codes, groups, weight

    def _train(self, X: np.ndarray, codes: np.ndarray, groups: Groups, weight: Any) -> None:
        """Train on all rows and keep what prediction needs."""
        trained, scaler = self._solve(self._rule(), X, codes, groups, weight)
        self.weights_ = trained.weights[0, 0].numpy()
        if self.model == "linear":
            W, b = (trained.model.state_dict()[name][0, 0].double().numpy() for name in ("weight", "bias"))
            if len(self.classes_) == 2:
                W, b = W[:, 1:] - W[:, :1], b[1:] - b[:1]
            self.coef_ = (W / scaler.scale_[:, None]).T
            self.intercept_ = b - self.coef_ @ scaler.mean_
        else:
            self._network, self._scaler = trained, scaler

    def _solve(
        self, rule: Method, X: np.ndarray, codes: np.ndarray, groups: Groups, weight: Any
    ) -> tuple[TrainedBank, StandardScaler]:
        """Scale and train; every point of the rule at once."""
        scaler = StandardScaler().fit(X, sample_weight=weight)
        cells = Cells.from_labels(codes, groups, n_classes=len(self.classes_), sample_weight=weight)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is one group only")  # said in other words above
            if solver_for(type(rule), self.model) == "fullbatch":
                return train_fullbatch(scaler.transform(X), cells, rule, double=X.size <= SMALL), scaler
            seeds = (int(self.random_state),)
            return train_minibatch(scaler.transform(X), cells, rule, model=self.model, seeds=seeds), scaler

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the logits of the classes ``(N, Y)``; of two classes, the logit of the second ``(N,)``."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, accept_sparse="csr", reset=False)
        if self.model == "linear":
            logits = X @ self.coef_.T + self.intercept_
        else:
            logits = self._network.logits(self._scaler.transform(_dense(X)))[0, 0].double().numpy()
            logits = logits[:, 1:] - logits[:, :1] if len(self.classes_) == 2 else logits
        return logits[:, 0] if len(self.classes_) == 2 else logits

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of every row."""
        logits = self.decision_function(X)
        return self.classes_[(logits > 0).astype(int) if logits.ndim == 1 else logits.argmax(1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes ``(N, Y)``."""
        logits = self.decision_function(X)
        if logits.ndim == 1:
            logits = np.column_stack([np.zeros_like(logits), logits])
        return torch.from_numpy(logits).softmax(-1).numpy()

    def _rule(self) -> Method:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _dense(X: Any) -> np.ndarray:
    return X.toarray() if hasattr(X, "toarray") else X


def solver_for(kind: type[Method], model: str) -> str:
    """Name the full-batch solver where it can train the method and the model, else mini-batches."""
    return "fullbatch" if model == "linear" and "fullbatch" in kind.solvers() else "minibatch"


def _rule_of(kind: type[Method], model: str, hyperparameters: dict[str, Any]) -> Method:
    """Make the rule of one model, as it does best with its solver."""
    if unknown := set(hyperparameters) - {f.name for f in fields(kind)}:
        raise InputError(f"{kind.name} does not have these hyperparameters: {', '.join(sorted(unknown))}.")
    rule = kind(**kind.for_solver(solver_for(kind, model), **hyperparameters))
    if rule.points > 1:
        raise InputError("A classifier is one model: give every hyperparameter one value.")
    return rule


class FairDROClassifier(_Classifier):
    """FairDRO: groups of each class are served alike, the more so the larger the radius.

    Parameters
    ----------
    rho : float, default 1
        Radius of the chi-square ball; 0 is plain training in which every class and group counts the same.
    model : {"linear", "mlp"}, default "linear"
    random_state : int, default 0
        Seed of initial weights and batches of the multi-layer perceptron; the linear model has no randomness.

    Attributes
    ----------
    classes_ : ndarray of shape (Y,)
    group_names_ : list of str
    weights_ : ndarray of shape (Y, A)
        q, the final weights of classes and groups.
    coef_, intercept_ : ndarray of shape (1, D) or (Y, D), and (1,) or (Y,)
        Of the linear model, for features as they were passed.
    """

    def __init__(self, rho: float = 1.0, *, model: str = "linear", random_state: int = 0) -> None:
        self.rho = rho
        self.model = model
        self.random_state = random_state

    def _rule(self) -> Method:
        return _rule_of(FairDRO, self.model, {"rho": self.rho})


class FairClassifier(_Classifier):
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
    classes_, group_names_, weights_, coef_, intercept_
        As of :class:`FairDROClassifier`.
    """

    def __init__(
        self, method: str = "fairdro", *, model: str = "linear", random_state: int = 0, **hyperparameters: Any
    ) -> None:
        self.method = method
        self.model = model
        self.random_state = random_state
        for key, value in hyperparameters.items():
            setattr(self, key, value)

    def _hyperparameters(self) -> dict[str, Any]:
        """Whatever was set beside the estimator's own parameters and what fitting leaves, which ends in an underscore."""
        own = {"method", "model", "random_state"}
        return {k: v for k, v in vars(self).items() if k not in own and not k.startswith("_") and not k.endswith("_")}

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002 - scikit-learn's signature
        """Return the parameters by name, those of the method included."""
        return super().get_params(deep) | self._hyperparameters()

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of the method included."""
        known = {*self.get_params(), *(f.name for kind in METHODS.values() for f in fields(kind))}
        if unknown := set(params) - known:
            raise InputError(f"There is no parameter {sorted(unknown)[0]!r}; the methods have: {', '.join(sorted(known))}.")
        for key, value in params.items():
            setattr(self, key, value)
        return self

    def _rule(self) -> Method:
        return _rule_of(get_method(self.method), self.model, self._hyperparameters())


class FairDROClassifierCV(_Classifier):
    """FairDRO whose radius is chosen by cross-validation over a whole frontier.

    Every fold trains all radii in one solve; held-out predictions of all folds are judged together, and the chosen radius is
    trained again on all rows.

    Parameters
    ----------
    min_accuracy : float, default 0.95
        Share of plain training's accuracy to keep: the paper's rule, on held-out rows.
    rule : Rule, optional
        Another rule of :mod:`fairdro.frontier` instead, e.g. ``LimitDCA(0.05)`` or ``Knee()``.
    rhos : sequence of float, optional
        Radii to try; by default 20 over the paper's range.
    cv : int, splitter or list of (train, test), default 5
        Number of folds, or scikit-learn's ways to say more.
    random_state : int, default 0
        Seed of the folds.

    Attributes
    ----------
    frontier_ : DataFrame
        A row per radius: rho, metrics on held-out rows, and which is selected.
    rho_ : float
    best_index_ : int
    classes_, group_names_, weights_, coef_, intercept_
        As of :class:`FairDROClassifier`.
    """

    def __init__(
        self,
        min_accuracy: float = 0.95,
        *,
        rule: Rule | None = None,
        rhos: Sequence[float] | None = None,
        cv: Any = 5,
        random_state: int = 0,
    ) -> None:
        self.min_accuracy = min_accuracy
        self.rule = rule
        self.rhos = rhos
        self.cv = cv
        self.random_state = random_state

    def _train(self, X: np.ndarray, codes: np.ndarray, groups: Groups, weight: Any) -> None:
        kind = FairDRO.for_solver("fullbatch")
        radii = np.array(FairDRO.search["rho"].grid(20) if self.rhos is None else self.rhos, dtype=np.float64)
        sweep = FairDRO(rho=tuple(radii), **kind)
        counts = self._held_out(sweep, X, codes, groups, weight)
        self.frontier_ = pd.DataFrame({"rho": radii, **{name: METRICS[name](counts) for name in REPORTED}})
        plain = float(self.frontier_["accuracy"].iloc[int(np.argmin(radii))])
        rule = self.rule or KeepAccuracy(self.min_accuracy)
        choice = rule(self.frontier_["accuracy"], self.frontier_["dca"], plain_accuracy=plain)
        self.best_index_, self.rho_ = choice.index, float(radii[choice.index])
        self.frontier_["selected"] = np.arange(len(radii)) == choice.index
        super()._train(X, codes, groups, weight)

    def _held_out(self, sweep: Method, X: np.ndarray, codes: np.ndarray, groups: Groups, weight: Any) -> np.ndarray:
        """Return the confusion of held-out rows, of all folds together ``(P, Y, A, Y)``."""
        total: np.ndarray | float = 0.0
        for train, test in self._folds(X, codes, groups):
            taken = [None if weight is None else weight[rows] for rows in (train, test)]
            inside, outside = (Groups(groups.values[rows], groups.names) for rows in (train, test))
            trained, scaler = self._solve(sweep, X[train], codes[train], inside, taken[0])
            cells = Cells.from_labels(codes[test], outside, n_classes=len(self.classes_), sample_weight=taken[1])
            total = total + confusion_counts(trained.predict(scaler.transform(X[test]))[0], cells)
        return np.asarray(total)

    def _folds(self, X: np.ndarray, codes: np.ndarray, groups: Groups) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return train and test rows of every fold, with every class and group in each as far as there are enough rows."""
        smallest = int(np.bincount(codes).min())
        if len(self.classes_) < 2 or smallest < 2:
            raise InputError("A class has one sample, or there is one class only; cross-validation needs two rows of two.")
        if not isinstance(self.cv, int):
            return list(check_cv(self.cv, codes, classifier=True).split(X, codes))
        strata = codes if groups.soft else codes * len(groups.names) + groups.values
        folds = StratifiedKFold(min(self.cv, smallest), shuffle=True, random_state=self.random_state)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The least populated class in y", UserWarning)  # a rare cell
            return list(folds.split(X, strata))

    def _rule(self) -> Method:
        return _rule_of(FairDRO, "linear", {"rho": getattr(self, "rho_", 1.0)})

    def plot_frontier(self) -> alt.LayerChart | alt.FacetChart:
        """Draw accuracy against DCA on held-out rows, the chosen radius ringed."""
        check_is_fitted(self)
        table = self.frontier_.assign(accuracy=100 * self.frontier_["accuracy"], dca=100 * self.frontier_["dca"])
        base = alt.Chart(table).encode(
            x=alt.X("accuracy:Q", title="balanced accuracy (%), held out", scale=alt.Scale(zero=False)),
            y=alt.Y("dca:Q", title="DCA (%), lower is fairer"),
            tooltip=["rho:Q", alt.Tooltip("accuracy:Q", format=".2f"), alt.Tooltip("dca:Q", format=".2f")],
        )
        ring = base.transform_filter("datum.selected").mark_point(size=220, strokeWidth=2, color="#d1495b")
        return alt.layer(base.mark_line(opacity=0.4).encode(order="rho:Q"), base.mark_circle(size=50), ring)
