"""The scikit-learn face: FairDRO, FairDRO with its radius chosen, and any method by name, as classifiers."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.progress import Progress
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import StratifiedKFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fairdro.card import build_card
from fairdro.cells import TOO_FEW, Cells, Groups, check_weights, encode_groups, settle_small_cells
from fairdro.errors import InputError
from fairdro.frontier import Choice, KeepAccuracy, Rule, rule_from, rule_text
from fairdro.methods import METHODS, FairDRO, Method, Scratch, check_hyperparameters, get_method
from fairdro.metrics import METRICS, REPORTED, Confusion, confusion, confusion_counts
from fairdro.preprocessing import TableEncoder
from fairdro.saving import read_folder, write_folder
from fairdro.training import TrainedBank, train_fullbatch, train_minibatch

if TYPE_CHECKING:
    import altair as alt

__all__ = ["FairClassifier", "FairDROClassifier", "FairDROClassifierCV", "load", "model_card", "save"]

SMALL = 1_000_000  # numbers in a table that is solved in double precision, which costs nothing there
ROWS_PER_PIECE = 65_536  # rows scaled at a time, so that a large table is not held twice

EPOCHS, BATCH = 70, 128  # the paper's
FEWEST_BATCHES = 1500  # a small table is gone through more often

OnStep = Callable[[int, int], object]


class _Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """What all share: validation, groups, scaling folded into the coefficients, prediction, saving."""

    __metadata_request__fit: ClassVar = {"sensitive_features": True}

    model: str = "linear"
    small_cells: str = "warn"
    min_cell_size: int = TOO_FEW
    random_state: Any = 0
    verbose: bool = False
    _TABLE: ClassVar[dict[str, Any]] = {"dtype": [np.float64, np.float32], "accept_sparse": "csr"}

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None) -> Self:
        """Train.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (N, D)
        y : array-like of shape (N,)
        sensitive_features : array-like, Series, DataFrame or list of columns, optional
            Groups, see :func:`~fairdro.cells.encode_groups`; without them there is one group.
        sample_weight : array-like of shape (N,), optional
            Counts a row as this many, within its cell.
        """
        X, codes, groups, weight = self._validated(X, y, sensitive_features, sample_weight)
        self._train(X, codes, groups, weight)
        return self

    def _validated(self, X: Any, y: Any, sensitive: Any, weight: Any) -> tuple[Any, np.ndarray, Groups, Any]:
        X, y = validate_data(self, X, y, **self._TABLE)
        check_classification_targets(y)
        if weight is not None:
            weight = _check_sample_weight(weight, X, dtype=np.float64)
            if self._method().regularised:
                warnings.warn(
                    f"The penalty of {self._method().name} counts all rows the same; sample_weight acts on its loss only.",
                    UserWarning,
                    stacklevel=3,
                )
        self.classes_, codes = np.unique(y, return_inverse=True)
        if sensitive is None:
            if type(self._method()) is not Scratch:
                warnings.warn(
                    "fit was called without sensitive_features: all rows are one group, with nothing to be fair between.",
                    UserWarning,
                    stacklevel=3,
                )
            groups = Groups(np.zeros(len(codes), dtype=np.int64), ["all"])
        else:
            groups = encode_groups(sensitive)
        found = groups.names
        if sensitive is not None:
            groups = settle_small_cells(
                codes, groups, class_names=self._class_names, how=self.small_cells, floor=self.min_cell_size
            )
        self.group_names_ = groups.names
        self.merged_groups_ = [name for name in found if name not in groups.names]
        scale = 1.0
        if weight is not None:
            check_weights(weight, len(codes))
            scale = float(2.0 ** np.floor(np.log2(weight.max())))  # a power of two, so that whole numbers stay exact
            weight = weight / scale
        cells = Cells.from_labels(codes, groups, n_classes=len(self.classes_), sample_weight=weight)
        self.cell_counts_ = cells.counts.numpy() * scale
        self.countable_ = weight is None and not groups.soft
        return X, codes, groups, weight

    def _train(self, X: Any, codes: np.ndarray, groups: Groups, weight: Any) -> None:
        """Train on all rows and keep what prediction needs."""
        with _bar("training", 1, show=self.verbose) as solve:
            trained, scaler = self._solve(self._method(), X, np.arange(len(codes)), codes, groups, weight, solve(0))
        self.weights_ = trained.weights[0, 0].numpy()
        layers = [(W[0, 0].double().numpy(), b[0, 0].double().numpy()) for W, b in trained.model.layers]
        first = layers[0][0] / scaler.scale_[:, None]
        layers[0] = (first, layers[0][1] - scaler.mean_ @ first)
        if self.model == "linear":
            W, b = layers[0]
            if len(self.classes_) == 2:
                W, b = W[:, 1:] - W[:, :1], b[1:] - b[:1]
            self.coef_, self.intercept_ = W.T, b
        else:
            self.coefs_, self.intercepts_ = [W for W, _ in layers], [b for _, b in layers]

    def _solve(
        self, rule: Method, X: Any, rows: np.ndarray, codes: np.ndarray, groups: Groups, weight: Any, on_step: OnStep | None
    ) -> tuple[TrainedBank, StandardScaler]:
        """Scale and train on some rows; every point of the rule at once."""
        rows = rows if weight is None else rows[weight[rows] > 0]
        taken = None if weight is None else weight[rows]
        cells = Cells.from_labels(
            codes[rows], Groups(groups.values[rows], groups.names), n_classes=len(self.classes_), sample_weight=taken
        )
        scaler = StandardScaler()
        for piece in _pieces(rows):
            scaler.partial_fit(_dense(X[piece]), sample_weight=None if weight is None else weight[piece])
        scaled = _scaled(X, rows, scaler, double=X.shape[0] * X.shape[1] <= SMALL)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is one group only")  # said in other words above
            if solver_for(type(rule), self.model) == "fullbatch":
                double, alone = scaled.dtype == torch.float64, rule.points == 1
                return train_fullbatch(scaled, cells, rule, double=double, alone=alone, on_step=on_step), scaler
            epochs = max(EPOCHS, -(-FEWEST_BATCHES // max(len(rows) // BATCH, 1)))
            seeds = (self._seed(),)
            return train_minibatch(
                scaled, cells, rule, model=self.model, seeds=seeds, epochs=epochs, batch_size=BATCH, on_step=on_step
            ), scaler  # fmt: skip

    def _seed(self) -> int:
        if isinstance(self.random_state, numbers.Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the logits of the classes ``(N, Y)``; of two classes, the logit of the second ``(N,)``."""
        check_is_fitted(self)
        X = validate_data(self, X, **self._TABLE, reset=False)
        if self.model == "linear":
            logits = X @ self.coef_.T + self.intercept_
            return logits[:, 0] if len(self.classes_) == 2 else logits
        hidden = X
        for W, b in zip(self.coefs_[:-1], self.intercepts_[:-1], strict=True):
            hidden = np.maximum(hidden @ W + b, 0)
        logits = hidden @ self.coefs_[-1] + self.intercepts_[-1]
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

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

    def save(self, folder: str | Path) -> None:
        """Save the fitted model into a folder, without pickle, with its card; :func:`fairdro.load` reads it."""
        save(self, folder)

    def model_card(self, X: Any = None, y: Any = None, *, sensitive_features: Any = None) -> str:
        """Return the model's card, see :func:`fairdro.model_card`."""
        return model_card(self, X, y, sensitive_features=sensitive_features)

    def _card(self, results: Sequence[tuple[str, Confusion]], remarks: Sequence[str], features: Sequence[str] = ()) -> str:
        names = features or getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        return build_card(
            model={"estimator": type(self).__name__, **_plain_parameters(self), **self._facts()},
            features=list(names),
            counts=self.cell_counts_,
            class_names=self._class_names,
            group_names=self.group_names_,
            results=results,
            remarks=remarks,
        )

    def _fits_together(self) -> bool:
        """Whether what was read from a file is one model."""
        return (self.coef_.T if self.model == "linear" else self.coefs_[0]).shape[0] == self.n_features_in_

    def _own_results(self) -> list[tuple[str, Confusion]]:
        return []

    def _remarks(self) -> list[str]:
        return []

    def _facts(self) -> dict[str, object]:
        return {}

    @property
    def _class_names(self) -> list[str]:
        return [str(c) for c in self.classes_]

    def _method(self) -> Method:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _dense(X: Any) -> np.ndarray:
    return (X.toarray() if hasattr(X, "toarray") else X).astype(np.float64, copy=False)


def _pieces(rows: np.ndarray) -> list[np.ndarray]:
    return [rows[i : i + ROWS_PER_PIECE] for i in range(0, len(rows), ROWS_PER_PIECE)]


def _scaled(X: Any, rows: np.ndarray, scaler: StandardScaler, *, double: bool) -> torch.Tensor:
    """Return some rows scaled, as a tensor."""
    out = np.empty((len(rows), X.shape[1]), dtype=np.float64 if double else np.float32)
    first = 0
    for piece in _pieces(rows):
        out[first : (first := first + len(piece))] = scaler.transform(_dense(X[piece]))
    return torch.from_numpy(out)


@contextmanager
def _bar(what: str, solves: int, *, show: bool) -> Iterator[Callable[[int], OnStep | None]]:
    """Give a function that makes the ``on_step`` of each of several trainings; with ``show``, a bar on a terminal."""
    if not show:
        yield lambda _: None
        return
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=solves)
        yield lambda i: lambda done, total: progress.update(task, completed=i + done / total)


def solver_for(kind: type[Method], model: str) -> str:
    """Name the full-batch solver where it can train the method and the model, else mini-batches."""
    return "fullbatch" if model == "linear" and "fullbatch" in kind.solvers() else "minibatch"


def _method_of(kind: type[Method], model: str, hyperparameters: dict[str, Any]) -> Method:
    """Make the rule of one model, as it does best with its solver."""
    check_hyperparameters(kind, hyperparameters)
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
    """

    def __init__(
        self,
        rho: float = 1.0,
        *,
        model: str = "linear",
        small_cells: str = "warn",
        min_cell_size: int = TOO_FEW,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.rho = rho
        self.model = model
        self.small_cells = small_cells
        self.min_cell_size = min_cell_size
        self.random_state = random_state
        self.verbose = verbose

    def _method(self) -> Method:
        return _method_of(FairDRO, self.model, {"rho": self.rho})


class FairClassifier(_Classifier):
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
    classes_, group_names_, cell_counts_, weights_, coef_, intercept_, coefs_, intercepts_
        As of :class:`FairDROClassifier`.
    """

    def __init__(
        self,
        method: str = "fairdro",
        *,
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
        return _method_of(get_method(self.method), self.model, self._hyperparameters())


class FairDROClassifierCV(_Classifier):
    """FairDRO whose radius is chosen by cross-validation over a whole frontier.

    Every fold trains all radii in one solve; held-out predictions of all folds are judged together, and the chosen radius is
    trained again on all rows.

    Parameters
    ----------
    min_accuracy : float, default 0.95
        Share of plain training's accuracy to keep: the paper's rule, on held-out rows.
    rule : callable, optional
        Another rule instead: ``LimitDCA(0.05)`` or ``Knee()`` of :mod:`fairdro.frontier`, or one of your own like them.
    rhos : sequence of float, optional
        Radii to try; by default 0, which is plain training, and 19 over the paper's range.
    cv : int, splitter or list of (train, test), default 5
        Number of folds, or scikit-learn's ways to say more.
    model : {"linear", "mlp"}, default "linear"
    small_cells : {"warn", "merge", "refuse"}, default "warn"
        What to do where a class and group have fewer than ``min_cell_size`` rows: say so, merge groups, or raise an error.
    min_cell_size : int, default 30
    random_state : int, default 0
        Seed of the folds, and of the multi-layer perceptron.
    verbose : bool, default False
        Show a progress bar on a terminal.

    Attributes
    ----------
    frontier_ : DataFrame
        A row per radius: rho, metrics on held-out rows, whether training diverged, and which is selected.
    rho_ : float
    best_index_ : int
    confusion_ : ndarray of shape (P, Y, A, Y)
        Held-out rows by radius, class, group and prediction.
    classes_, group_names_, cell_counts_, weights_, coef_, intercept_, coefs_, intercepts_
        As of :class:`FairDROClassifier`.
    """

    def __init__(
        self,
        min_accuracy: float = 0.95,
        *,
        rule: Callable[..., Choice] | None = None,
        rhos: Sequence[float] | None = None,
        cv: Any = 5,
        model: str = "linear",
        small_cells: str = "warn",
        min_cell_size: int = TOO_FEW,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.min_accuracy = min_accuracy
        self.rule = rule
        self.rhos = rhos
        self.cv = cv
        self.model = model
        self.small_cells = small_cells
        self.min_cell_size = min_cell_size
        self.random_state = random_state
        self.verbose = verbose

    def _train(self, X: Any, codes: np.ndarray, groups: Groups, weight: Any) -> None:
        self._choose(X, codes, groups, weight)
        super()._train(X, codes, groups, weight)

    def _choose(self, X: Any, codes: np.ndarray, groups: Groups, weight: Any) -> None:
        """Judge every radius on held-out rows, and choose one."""
        radii = self._radii()
        self.confusion_, diverged = self._held_out(self._sweep(radii), X, codes, groups, weight)
        table = pd.DataFrame(
            {"rho": radii, **{name: METRICS[name](self.confusion_) for name in REPORTED}, "diverged": diverged}
        )
        sound = np.flatnonzero(~diverged)
        if len(sound) == 0:
            raise InputError("Training diverged at every radius; try smaller ones.")
        plain = float(table["accuracy"].iloc[self._plain(radii)])
        rule = self._rule()
        self.blind_ = bool(getattr(rule, "blind", False))
        self.how_chosen_ = (
            str(rule) if isinstance(rule, Rule) or self.blind_ else getattr(rule, "__name__", type(rule).__name__)
        )
        if self.blind_ and diverged[-1]:
            raise InputError(f"Training diverged at rho = {radii[-1]:g}; try a smaller one.")
        choice = rule(table["accuracy"].iloc[sound], table["dca"].iloc[sound], plain_accuracy=plain)
        self.best_index_ = int(sound[choice.index])
        self.rho_ = float(radii[self.best_index_])
        self.frontier_ = table.assign(selected=np.arange(len(radii)) == self.best_index_)

    def _sweep(self, radii: np.ndarray) -> Method:
        return FairDRO(**FairDRO.for_solver(solver_for(FairDRO, self.model), rho=tuple(radii.tolist())))

    def _radii(self) -> np.ndarray:
        return np.array(FairDRO.search["rho"].grid(20) if self.rhos is None else self.rhos, dtype=np.float64)

    def _rule(self) -> Callable[..., Choice]:
        return KeepAccuracy(self.min_accuracy) if self.rule is None else self.rule

    @staticmethod
    def _plain(radii: np.ndarray) -> int:
        """Return which radius stands for plain training."""
        return int(np.argmin(radii))

    def _held_out(
        self, sweep: Method, X: Any, codes: np.ndarray, groups: Groups, weight: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the confusion of held-out rows of all folds together ``(P, Y, A, Y)``, and who diverged in one ``(P,)``."""
        n_classes, n_groups = len(self.classes_), len(groups.names)
        total = np.zeros((sweep.points, n_classes, n_groups, n_classes))
        diverged = np.zeros(sweep.points, dtype=bool)
        folds = self._folds(X, codes, groups)
        with _bar("cross-validation", len(folds), show=self.verbose) as solve:
            for i, (train, test) in enumerate(folds):
                trained, scaler = self._solve(sweep, X, train, codes, groups, weight, solve(i))
                outside = Groups(groups.values[test], groups.names)
                taken = None if weight is None else weight[test]
                cells = Cells.from_labels(codes[test], outside, n_classes=n_classes, sample_weight=taken)
                scaled = _scaled(X, test, scaler, double=next(trained.model.parameters()).dtype == torch.float64)
                total += confusion_counts(trained.predict(scaled)[0], cells)
                diverged |= trained.diverged[0].numpy()
        return total, diverged

    def held_out(self, index: int | None = None) -> Confusion:
        """Return how held-out rows were predicted, by the chosen radius or by that of a row of ``frontier_``."""
        check_is_fitted(self)
        counts = self.confusion_[self.best_index_ if index is None else index]
        return Confusion(counts, self._class_names, self.group_names_, self.countable_)

    def _own_results(self) -> list[tuple[str, Confusion]]:
        plain = self._plain(self.frontier_["rho"].to_numpy())
        results = [(f"Held-out rows, this model (rho {self.rho_:.4g})", self.held_out())]
        if plain != self.best_index_:
            name = (
                "plain training (rho 0)" if self.frontier_["rho"][plain] == 0 else f"rho {self.frontier_['rho'][plain]:.4g}"
            )
            results.append((f"The same rows, {name}", self.held_out(plain)))
        return results

    def _remarks(self) -> list[str]:
        honest = "Every row was predicted by a model that had not seen it."
        return [
            honest if self.blind_ else f"{honest} rho was chosen by these very figures, so they are somewhat optimistic."
        ]

    def _facts(self) -> dict[str, object]:
        return {"rho": f"{self.rho_:.6g}: the {self.how_chosen_}"}

    def _folds(self, X: Any, codes: np.ndarray, groups: Groups) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return train and test rows of every fold, with every class and group in each as far as there are enough rows."""
        smallest = self._smallest_class(codes)
        if not isinstance(self.cv, numbers.Integral):
            folds = check_cv(self.cv, codes, classifier=True).split(X, codes)
            return [(np.arange(len(codes))[train], np.arange(len(codes))[test]) for train, test in folds]
        strata = codes if groups.soft else codes * len(groups.names) + groups.values
        number = min(int(self.cv), smallest, int(np.bincount(strata).max()))
        folds = StratifiedKFold(number, shuffle=True, random_state=self._seed())
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The least populated class in y", UserWarning)  # a rare cell
            return list(folds.split(X, strata))

    def _smallest_class(self, codes: np.ndarray) -> int:
        """Return the number of rows of the smallest class, of which there must be enough to hold some out."""
        smallest = int(np.bincount(codes).min())
        if len(self.classes_) < 2 or smallest < 2:
            raise InputError("A class has one sample, or there is one class only; cross-validation needs two rows of two.")
        return smallest

    def _method(self) -> Method:
        return _method_of(FairDRO, self.model, {"rho": getattr(self, "rho_", 1.0)})

    def plot_frontier(self) -> alt.LayerChart | alt.FacetChart:
        """Draw accuracy against DCA on held-out rows, the chosen radius ringed."""
        import altair as alt  # noqa: PLC0415 - a while to load

        check_is_fitted(self)
        table = self.frontier_.assign(accuracy=100 * self.frontier_["accuracy"], dca=100 * self.frontier_["dca"])
        base = alt.Chart(table).encode(
            x=alt.X("accuracy:Q", title="balanced accuracy (%), held out", scale=alt.Scale(zero=False)),
            y=alt.Y("dca:Q", title="DCA (%), lower is fairer"),
            tooltip=["rho:Q", alt.Tooltip("accuracy:Q", format=".2f"), alt.Tooltip("dca:Q", format=".2f")],
        )
        ring = base.transform_filter("datum.selected").mark_point(size=220, strokeWidth=2, color="#d1495b")
        return alt.layer(base.mark_line(opacity=0.4).encode(order="rho:Q"), base.mark_circle(size=50), ring)


CLASSIFIERS = ["FairDROClassifier", "FairClassifier", "FairDROClassifierCV", "FairDROBoostingClassifier"]


def _steps(model: Any) -> tuple[TableEncoder | None, _Classifier]:
    """Return the encoder, if there is one, and the classifier of a model of ours."""
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    if not isinstance(steps[-1], _Classifier) or [type(step) for step in steps[:-1]] not in ([], [TableEncoder]):
        raise InputError(
            f"Only fairdro's classifiers, alone or after a TableEncoder, have cards and can be saved, not "
            f"{type(steps[-1]).__name__} in a pipeline of {len(steps)}; take the classifier by itself."
        )
    check_is_fitted(steps[-1])
    return (steps[0] if len(steps) == 2 else None), steps[-1]


def model_card(model: Any, X: Any = None, y: Any = None, *, sensitive_features: Any = None) -> str:
    """Return a model card in Markdown: what a model is, what it was trained on, whom it serves how well.

    Parameters
    ----------
    model : estimator
        A fitted classifier, or a pipeline of a :class:`~fairdro.preprocessing.TableEncoder` and a classifier.
    X, y, sensitive_features : optional
        Rows to judge it on, which it was not trained on. Without them a model chosen by cross-validation shows its held-out
        rows, others nothing.
    """
    encoder, classifier = _steps(model)
    results, remarks = classifier._own_results(), classifier._remarks()
    if X is not None:
        if y is None or sensitive_features is None:
            raise InputError(
                "A model card needs X, y and sensitive_features of the rows to judge the model on, or none of them."
            )
        judged = confusion(y, model.predict(X), sensitive_features=sensitive_features)
        results, remarks = [(f"On {len(y):,} rows", judged)], []
    features = () if encoder is None else encoder.feature_names_in_.tolist()
    return classifier._card(results, remarks, features)


def save(model: Any, folder: str | Path) -> None:
    """Save a fitted classifier, or a pipeline of a :class:`~fairdro.preprocessing.TableEncoder` and a classifier.

    The folder gets ``model.json``, the numbers as safetensors, and ``model_card.md``. There is no pickle in it, and reading
    it runs no code. A parameter that is an object of another kind, such as a splitter for ``cv``, is not kept.

    Parameters
    ----------
    model : estimator
    folder : path
        Made if it is not there; a model in it is replaced, other things are left alone.
    """
    encoder, classifier = _steps(model)
    state = {
        "encoder": None if encoder is None else encoder.to_state(),
        "kind": type(classifier).__name__,
        "parameters": _plain_parameters(classifier),
        "fitted": {key: value for key, value in vars(classifier).items() if key.endswith("_") and not key.startswith("_")},
    }
    write_folder(folder, state, model_card(model))


def load(folder: str | Path) -> Any:
    """Read what :func:`save` wrote; a file that was cut or changed is refused."""
    state = read_folder(folder)
    try:
        parameters = dict(state["parameters"])
        if "rule" in parameters:
            parameters["rule"] = rule_from(parameters["rule"])
        if state["kind"] not in CLASSIFIERS:
            raise ValueError(f"there is no classifier {state['kind']!r}")  # noqa: TRY301 - one sentence for all
        classifier = getattr(import_module("fairdro"), state["kind"])(**parameters)
        for key, value in state["fitted"].items():
            setattr(classifier, key, value)
        if not classifier._fits_together() or not all(key.endswith("_") for key in state["fitted"]):
            raise ValueError("its parts do not fit together")  # noqa: TRY301 - one sentence for every kind of damage
        if state["encoder"] is None:
            return classifier
        return Pipeline([("encode", TableEncoder.from_state(state["encoder"])), ("classify", classifier)])
    except (KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise InputError(f"The model in {folder} cannot be used ({error!r}); save it again.") from error


def _plain_parameters(model: _Classifier) -> dict[str, Any]:
    """Return the parameters that are numbers and texts, or None where they need not be; rules as text."""
    usual = type(model)().get_params(deep=False)
    plain: dict[str, Any] = {}
    for key, value in model.get_params(deep=False).items():
        if isinstance(value, Rule):
            plain[key] = rule_text(value)
        elif key == "rhos" and value is not None:
            plain[key] = np.asarray(value, dtype=np.float64).tolist()
        elif isinstance(value, bool | int | float | str | np.number) or (value is None and usual[key] is not None):
            plain[key] = value
    return plain
