"""Boosted trees as a classifier with scikit-learn's face."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.utils.validation import check_is_fitted, validate_data

from fairdro.cells import TOO_FEW, Cells, Groups
from fairdro.errors import InputError, unknown_name
from fairdro.estimators import FairDROClassifierCV, _bar
from fairdro.frontier import Asked, Choice
from fairdro.methods import Method
from fairdro.metrics import confusion_counts
from fairdro.models.trees import Trees, TreeSettings, read_trees
from fairdro.training.boosting import (
    STRATEGIES,
    BoostedWeights,
    JointTrees,
    boost_joint,
    boost_weights,
    out_of_fold,
)
from fairdro.training.heads import fit_head, read_joint

__all__ = ["FairDROBoostingClassifier"]

ERRORS = ["out_of_bag", "held_out", "training"]
JUDGED, WATCHED = 0.2, 0.25  # shares of rows held out to judge radii, and of the rest to answer to
ROWS_PER_LEAF = 20


class FairDROBoostingClassifier(FairDROClassifierCV):
    """FairDRO with boosted trees, by stock LightGBM or XGBoost; for any number of classes and groups.

    Columns of a DataFrame that are categories are used as such, and values may be missing. No group is needed to predict.

    Parameters
    ----------
    rho : float, optional
        Radius; by default one is chosen on held-out rows over a whole frontier.
    min_accuracy : float, default 0.95
        Share of plain training's accuracy to keep: the paper's rule, on held-out rows.
    rule : callable, optional
        Another rule instead: ``LimitDCA(0.05)`` or ``Knee()`` of :mod:`fairdro.frontier`, or one of your own like them.
    rhos : sequence of float, optional
        Radii to try; by default 0, which is plain training, and 19 over the paper's range.
    strategy : {"head", "weights"}, default "head"
        ``head``: trees predict class and group once, and FairDRO says how to read them. ``weights``: FairDRO's weights scale
        the gradients of boosting, for every radius anew. See :mod:`fairdro.training.boosting`.
    backend : {"lightgbm", "xgboost"}, default "lightgbm"
    rounds : int, default 200
        Trees per score, at most.
    early_stopping : int, optional, default 20
        With ``head``, growing ends when held-out rows have not become likelier for so many rounds. With ``weights``, all
        rounds are grown and those up to the best are kept, by FairDRO's own objective on the rows of ``errors``. None for
        neither.
    errors : {"out_of_bag", "held_out", "training"}, default "out_of_bag"
        With ``weights``, what FairDRO answers to after every round: the errors of all rows by the rounds that left them
        out, when every round is grown on half of the rows; those of a quarter of the rows, which is not trained on; or
        training errors, which trees make equal without serving new rows alike.
    learning_rate : float, default 0.05
    leaves : int, default 15
        Leaves of a tree at most.
    min_leaf : int, default 20
        Rows of a leaf at least; fewer in a table with few rows.
    cv : int, splitter or list of (train, test), default 5
        Folds of ``head``, by which every row is predicted by trees that have not seen it.
    small_cells : {"warn", "merge", "refuse"}, default "warn"
        What to do where a class and group have fewer than ``min_cell_size`` rows: say so, merge groups, or raise an error.
    min_cell_size : int, default 30
    n_jobs : int, default 0
        Threads; 0 for all cores.
    random_state : int, default 0
        Seed of the folds.
    verbose : bool, default False

    Attributes
    ----------
    frontier_, rho_, best_index_, confusion_, classes_, group_names_, cell_counts_, weights_
        As of :class:`~fairdro.FairDROClassifierCV`.
    frontier_weights_ : ndarray of shape (P, Y, A)
        With ``head``: q of every radius of ``frontier_``; see :meth:`at`.
    feature_importances_ : ndarray of shape (D,)
        Share of the gain in predicting the class that is due to every column.
    n_rounds_ : int
        Rounds that were kept, of the trees of the class.
    """

    _TABLE: ClassVar[dict[str, Any]] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}

    def __init__(
        self,
        rho: float | None = None,
        *,
        min_accuracy: float = 0.95,
        rule: Callable[..., Choice] | None = None,
        rhos: Sequence[float] | None = None,
        strategy: str = "head",
        backend: str = "lightgbm",
        rounds: int = 200,
        early_stopping: int | None = 20,
        errors: str = "out_of_bag",
        learning_rate: float = 0.05,
        leaves: int = 15,
        min_leaf: int = 20,
        cv: Any = 5,
        small_cells: str = "warn",
        min_cell_size: int = TOO_FEW,
        n_jobs: int = 0,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.rho = rho
        self.min_accuracy = min_accuracy
        self.rule = rule
        self.rhos = rhos
        self.strategy = strategy
        self.backend = backend
        self.rounds = rounds
        self.early_stopping = early_stopping
        self.errors = errors
        self.learning_rate = learning_rate
        self.leaves = leaves
        self.min_leaf = min_leaf
        self.cv = cv
        self.small_cells = small_cells
        self.min_cell_size = min_cell_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _validated(self, X: Any, y: Any, sensitive: Any, weight: Any) -> tuple[Any, np.ndarray, Groups, Any]:
        if self.strategy not in STRATEGIES:
            raise unknown_name("strategy", self.strategy, STRATEGIES)
        if self.errors not in ERRORS:
            raise unknown_name("kind of errors", self.errors, ERRORS)
        self.categories_ = _categories(X)
        return super()._validated(_coded(X, self.categories_), y, sensitive, weight)

    def _radii(self) -> np.ndarray:
        if self.rho is None:
            return super()._radii()
        return np.unique([0.0, float(self.rho)])

    def _rule(self) -> Callable[..., Choice]:
        return super()._rule() if self.rho is None else Asked()

    def _settings(self, rows: int) -> TreeSettings:
        return TreeSettings(
            backend=self.backend,
            rounds=self.rounds,
            learning_rate=self.learning_rate,
            leaves=self.leaves,
            min_leaf=min(self.min_leaf, max(rows // ROWS_PER_LEAF, 1)),
            categorical=tuple(int(j) for j in self.categories_),
            threads=self.n_jobs,
            seed=self._seed(),
        )

    def _held_out(
        self, sweep: Method, X: Any, codes: np.ndarray, groups: Groups, weight: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        cells = Cells.from_labels(codes, groups, n_classes=len(self.classes_), sample_weight=weight)
        judge = self._judge_heads if self.strategy == "head" else self._judge_trees
        return judge(sweep, X, codes, cells, groups), np.zeros(sweep.points, dtype=bool)

    def _judge_heads(self, sweep: Method, X: np.ndarray, codes: np.ndarray, cells: Cells, groups: Groups) -> np.ndarray:
        """Predict every row by trees that have not seen it, and judge heads on rows they were not fitted to."""
        folds = self._folds(X, codes, groups)
        settings = self._settings(min(len(train) for train, _ in folds))
        with _bar("growing trees", 1, show=self.verbose) as solve:
            self._outside, self._grown_rounds = out_of_fold(
                X, cells, folds, settings, patience=self.early_stopping, on_step=solve(0)
            )
        part = np.full(len(codes), -1)
        for i, (_, test) in enumerate(folds):
            part[test] = i if len(folds) > 1 else np.arange(len(test)) % 2
        total = np.zeros((sweep.points, cells.n_classes, cells.n_groups, cells.n_classes))
        for i in np.unique(part[part >= 0]):
            fitted, judged = np.flatnonzero((part >= 0) & (part != i)), np.flatnonzero(part == i)
            head = fit_head(self._outside[fitted], cells.take(torch.from_numpy(fitted)), sweep)
            total += confusion_counts(head.predict(self._outside[judged])[0], cells.take(torch.from_numpy(judged)))
        return total

    def _judge_trees(self, sweep: Method, X: np.ndarray, codes: np.ndarray, cells: Cells, groups: Groups) -> np.ndarray:
        """Grow trees for every radius on some rows, and judge them on others."""
        self._smallest_class(codes)
        train, test = _share(codes, groups, JUDGED, self._seed())
        trained = self._grow_weights(sweep, X[train], cells.take(torch.from_numpy(train)), codes[train], _of(groups, train))
        return confusion_counts(trained.predict(X[test])[0], cells.take(torch.from_numpy(test)))

    def _grow_weights(self, rule: Method, X: np.ndarray, cells: Cells, codes: np.ndarray, groups: Groups) -> BoostedWeights:
        held = _share(codes, groups, WATCHED, self._seed() + 1)[1] if self.errors == "held_out" else ()
        with _bar("growing trees", 1, show=self.verbose) as solve:
            return boost_weights(
                X,
                cells,
                rule,
                self._settings(len(X)),
                held=held,
                bagged=self.errors == "out_of_bag",
                keep_best=self.early_stopping is not None,
                on_step=solve(0),
            )

    def _train(self, X: Any, codes: np.ndarray, groups: Groups, weight: Any) -> None:
        self._choose(X, codes, groups, weight)
        cells = Cells.from_labels(codes, groups, n_classes=len(self.classes_), sample_weight=weight)
        if self.strategy == "head":
            known = torch.from_numpy(np.flatnonzero(~np.isnan(self._outside[:, 0, 0])))
            head = fit_head(self._outside[known.numpy()], cells.take(known), self._sweep(self.frontier_["rho"].to_numpy()))
            grown = boost_joint(X, cells, self._settings(len(X)), rounds=self._grown_rounds)
            trees = [one for one in (grown.classes, grown.groups) if one is not None]
            self.frontier_weights_, self.share_ = head.weights[0].numpy(), head.share.numpy()
            self.weights_ = self.frontier_weights_[self.best_index_]
            self.n_rounds_ = self._grown_rounds[0]
            del self._outside, self._grown_rounds
        else:
            trained = self._grow_weights(self._method(), X, cells, codes, groups)
            trees, self.weights_ = trained.trees, trained.weights[0, 0].numpy()
            self.n_rounds_ = trained.rounds[0]
        gain = trees[0].importances()
        self.feature_importances_ = gain / max(gain.sum(), np.finfo(float).tiny)
        self.trees_ = [grown.text() for grown in trees]
        self._trees = trees

    def at(self, rho: float) -> Self:
        """Return the same model at another radius of its frontier, which takes no training; only with ``head``."""
        check_is_fitted(self)
        if self.strategy != "head":
            raise InputError("Only strategy 'head' has all radii at hand; with 'weights', fit another model.")
        places = np.flatnonzero(np.isclose(self.frontier_["rho"], rho))
        if len(places) == 0:
            known = ", ".join(f"{radius:g}" for radius in self.frontier_["rho"])
            raise InputError(f"{rho:g} is not among the radii of the frontier: {known}.")
        other = copy.copy(self)
        other.best_index_, other.rho_ = int(places[0]), float(self.frontier_["rho"].iloc[places[0]])
        other.weights_ = self.frontier_weights_[other.best_index_]
        other.frontier_ = self.frontier_.assign(selected=np.arange(len(self.frontier_)) == other.best_index_)
        other.how_chosen_, other.blind_ = str(Asked()), True
        return other

    def _grown(self) -> list[Trees]:
        if not hasattr(self, "_trees"):
            self._trees = [read_trees(self.backend, text) for text in self.trees_]
        return self._trees

    def __getstate__(self) -> Any:
        return {key: value for key, value in super().__getstate__().items() if key != "_trees"}

    def decision_function(self, X: Any) -> np.ndarray:
        """Return what speaks for the classes ``(N, Y)``; of two classes, for the second over the first ``(N,)``."""
        check_is_fitted(self)
        scores = self._read(X)[0] if self.strategy == "head" else self._raw(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes ``(N, Y)``, by which the largest is predicted.

        With ``head`` they are those of a population in which classes and groups occur as they are weighted. Where a weight
        is negative there is none, and all classes are given twice the most that speaks against one of them.
        """
        check_is_fitted(self)
        if self.strategy == "weights":
            return torch.from_numpy(self._raw(X)).softmax(-1).numpy()
        scores, bulk = self._read(X)
        scores = scores + (bulk - scores).max(axis=1, keepdims=True)
        total = scores.sum(axis=1, keepdims=True)
        return np.where(total > 0, scores / np.where(total > 0, total, 1), 1 / scores.shape[1])

    def _raw(self, X: Any) -> np.ndarray:
        """Return the scores of boosted weights ``(N, Y)``."""
        scores = self._grown()[0].scores(self._coded_rows(X))
        return np.column_stack([np.zeros(len(scores)), scores]) if scores.shape[1] == 1 else scores

    def _read(self, X: Any) -> np.ndarray:
        """Return the probabilities of cells, read by the weights and by their absolute values ``(2, N, Y)``."""
        classes, *groups = self._grown()
        pair = JointTrees(classes, groups[0] if groups else None, (self.n_rounds_, self.n_rounds_))
        share, weights = torch.from_numpy(self.share_), torch.from_numpy(self.weights_)
        both = torch.stack([weights, weights.abs()])
        return read_joint(pair.probabilities(self._coded_rows(X)), share, both).double().numpy()

    def _coded_rows(self, X: Any) -> np.ndarray:
        return validate_data(self, _coded(X, self.categories_), **self._TABLE, reset=False)

    def _fits_together(self) -> bool:
        return len(self.feature_importances_) == self.n_features_in_ and len(self._grown()) == len(self.trees_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.allow_nan = True
        return tags


def _categories(X: Any) -> dict[str, np.ndarray]:
    """Return the categories of every column of a DataFrame that has some, by its place."""
    table = X.to_pandas() if hasattr(X, "to_pandas") else X
    if not isinstance(table, pd.DataFrame):
        return {}
    found = {
        str(j): np.asarray(table.iloc[:, j].cat.categories, dtype=object)
        for j, dtype in enumerate(table.dtypes)
        if isinstance(dtype, pd.CategoricalDtype)
    }
    for place, known in found.items():
        strange = {
            type(value).__name__ for value in known if not isinstance(value, str | int | float | np.number | np.bool_)
        }
        if strange:
            column = table.columns[int(place)]
            raise InputError(
                f"The categories of column {column!r} are of type {', '.join(sorted(strange))}; make them texts: "
                f".astype(str).astype('category')."
            )
    return found


def _coded(X: Any, categories: dict[str, np.ndarray]) -> Any:
    """Return a table in which categories are codes; those that are not known are missing."""
    if not categories:
        return X
    table = (X.to_pandas() if hasattr(X, "to_pandas") else pd.DataFrame(X)).copy()
    for place, known in categories.items():
        if int(place) < table.shape[1]:  # if not, validation says so
            codes = pd.Index(known).get_indexer(table.iloc[:, int(place)].astype(object)).astype(np.float64)
            table.isetitem(int(place), np.where(codes < 0, np.nan, codes))
    return table


def _of(groups: Groups, rows: np.ndarray) -> Groups:
    return Groups(groups.values[rows], groups.names)


def _share(codes: np.ndarray, groups: Groups, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and a share of them that is left out, with every class and group in both as far as there are enough."""
    strata = codes if groups.soft else codes * len(groups.names) + groups.values
    if np.bincount(strata)[np.unique(strata)].min() < 2 or int(share * len(codes)) < len(np.unique(strata)):
        order = np.random.default_rng(seed).permutation(len(codes))
        return np.sort(order[: -max(int(share * len(codes)), 1)]), np.sort(order[-max(int(share * len(codes)), 1) :])
    ((kept, left),) = StratifiedShuffleSplit(1, test_size=share, random_state=seed).split(strata, strata)
    return np.sort(kept), np.sort(left)
