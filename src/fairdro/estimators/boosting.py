"""FairDRO with boosted trees as a classifier."""

import copy
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from joblib import effective_n_jobs
from sklearn.utils.validation import check_is_fitted, validate_data

from fairdro._utils.progress import bar
from fairdro.cells import Cells
from fairdro.errors import InputError, unknown_name
from fairdro.estimators.choice import ChoosingClassifier
from fairdro.estimators.cv import folds_of
from fairdro.groups import TOO_FEW
from fairdro.methods import FairDRO, Method
from fairdro.metrics import confusion_counts
from fairdro.models.trees import Trees, TreeSettings, read_trees
from fairdro.selection import AsAsked, Rule
from fairdro.training.engines import get_engine, solvers_of
from fairdro.training.folds import check_two_rows_per_class, hold_out
from fairdro.training.head import class_scores
from fairdro.training.trees import CellTrees, judge_heads, predict_out_of_fold, train_head_trees
from fairdro.training.weighted_trees import ERRORS, WeightedTrees, train_weighted_trees

MODEL = "boosting"
JUDGED = 0.2  # share of rows held out to judge radii where trees are grown for every one


class FairDROBoostingClassifier(ChoosingClassifier):
    """FairDRO with boosted trees, by stock LightGBM or XGBoost; for any number of classes and groups.

    Columns of a DataFrame that are categories are used as such, and values may be missing. No group is needed to predict.

    Parameters
    ----------
    rho : float, optional
        Radius; by default one is chosen on held-out rows over a whole frontier.
    keep_accuracy : float, default 0.95
        Share of plain training's accuracy to keep: the paper's rule, on held-out rows.
    rule : callable, optional
        Another selection rule instead: ``LimitDCA(0.05)`` or ``Knee()``, or one of your own; see :mod:`fairdro.selection`.
    rhos : sequence of float, optional
        Radii to try; by default 0, which is plain training, and 19 over the paper's range.
    strategy : {"head", "weights"}, default "head"
        ``head``: trees predict class and group once, and FairDRO fits a head to them (:mod:`fairdro.training.trees`).
        ``weights``: FairDRO's weights scale the gradients of boosting, for every radius anew
        (:mod:`fairdro.training.weighted_trees`).
    backend : {"lightgbm", "xgboost"}, default "lightgbm"
    n_estimators : int, default 200
        Boosting rounds, at most.
    early_stopping : int, optional, default 20
        With ``head``, growing ends when held-out rows are not predicted better for so many rounds. With ``weights``, all
        rounds are grown and those up to the best are kept, by FairDRO's own objective on the rows of ``errors``. None for
        neither.
    errors : {"out_of_bag", "held_out", "training"}, default "out_of_bag"
        With ``weights``, what FairDRO responds to after every round: the errors of all rows by the rounds that left them
        out, when every round is grown on half of the rows; those of a quarter of the rows, which is not trained on; or
        training errors, which trees make equal without serving new rows alike.
    learning_rate : float, default 0.05
    num_leaves : int, default 15
        Leaves of a tree at most.
    min_child_samples : int, default 20
        Rows of a leaf at least; fewer in a table with few rows.
    cv : int, splitter or list of (train, test), default 5
        Folds of ``head``, by which every row is predicted by trees that have not seen it.
    small_cells : {"warn", "merge", "refuse"}, default "warn"
        What to do where a class and group have fewer than ``min_cell_size`` rows: say so, merge groups, or raise an error.
    min_cell_size : int, default 30
    n_jobs : int, default -1
        Threads, in scikit-learn's sense: -1 for all cores, None for one.
    random_state : int, default 0
        Seed of the folds.
    verbose : bool, default False
        Show a progress bar on a terminal.

    Attributes
    ----------
    frontier_, rho_, best_index_, confusion_
        As of :class:`~fairdro.FairDROClassifierCV`.
    classes_, group_names_, merged_groups_, cell_counts_, weights_, n_features_in_, feature_names_in_
        As of :class:`~fairdro.FairDROClassifier`.
    frontier_weights_ : ndarray of shape (P, Y, A)
        With ``head``: q of every radius of ``frontier_``; see :meth:`at`.
    share_ : ndarray of shape (Y, A)
        With ``head``: the mean probabilities of classes and groups.
    feature_importances_ : ndarray of shape (D,)
        Share of the gain in predicting the class that is due to every column.
    n_estimators_ : int
        Rounds that were kept, of the trees of the class.
    categories_ : dict of str to ndarray
        Categories of the columns that have some, by their position.
    trees_ : list of str
        The trees of class and group, or of the classifier, as text of their library.
    """

    _TABLE: ClassVar[dict[str, Any]] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}

    def __init__(
        self,
        rho: float | None = None,
        *,
        keep_accuracy: float = 0.95,
        rule: Rule | None = None,
        rhos: Sequence[float] | None = None,
        strategy: str = "head",
        backend: str = "lightgbm",
        n_estimators: int = 200,
        early_stopping: int | None = 20,
        errors: str = "out_of_bag",
        learning_rate: float = 0.05,
        num_leaves: int = 15,
        min_child_samples: int = 20,
        cv: Any = 5,
        small_cells: str = "warn",
        min_cell_size: int = TOO_FEW,
        n_jobs: int | None = -1,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.rho = rho
        self.keep_accuracy = keep_accuracy
        self.rule = rule
        self.rhos = rhos
        self.strategy = strategy
        self.backend = backend
        self.n_estimators = n_estimators
        self.early_stopping = early_stopping
        self.errors = errors
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.min_child_samples = min_child_samples
        self.cv = cv
        self.small_cells = small_cells
        self.min_cell_size = min_cell_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _validated(self, X: Any, y: Any, sensitive: Any, weight: Any) -> tuple[Any, Cells]:
        if self.strategy not in solvers_of(MODEL):
            raise unknown_name("strategy", self.strategy, solvers_of(MODEL))
        if self.errors not in ERRORS:
            raise unknown_name("kind of errors", self.errors, ERRORS)
        if self.n_jobs == 0:
            raise InputError("n_jobs must not be 0; use -1 for all cores, None or 1 for one.")
        self.categories_ = _categories(X)
        return super()._validated(_coded(X, self.categories_), y, sensitive, weight)

    def _settings(self) -> TreeSettings:
        return TreeSettings(
            backend=self.backend,
            n_estimators=self.n_estimators,
            early_stopping=self.early_stopping,
            learning_rate=self.learning_rate,
            num_leaves=self.num_leaves,
            min_child_samples=self.min_child_samples,
            categorical=tuple(int(j) for j in self.categories_),
            threads=effective_n_jobs(self.n_jobs),
            seed=self._seed(),
        )

    def _fit(self, X: np.ndarray, cells: Cells) -> None:
        trees = (self._fit_head if self.strategy == "head" else self._fit_weights)(X, cells, self._radii())
        gain = trees[0].importances()
        self.feature_importances_ = gain / max(gain.sum(), np.finfo(float).tiny)
        self.trees_ = [grown.text() for grown in trees]
        self._trees = trees

    def _fit_head(self, X: np.ndarray, cells: Cells, radii: np.ndarray) -> list[Trees]:
        """Predict every row by trees that have not seen it, judge heads on rows they were not fitted to, and fit one."""
        settings, sweep = self._settings(), self._fairdro(tuple(radii.tolist()))
        folds = folds_of(self.cv, X, cells, self._seed())
        with bar("growing trees", 1, show=self.verbose) as part:
            held_out = predict_out_of_fold(X, cells, settings, folds=folds, on_step=part(0))
        self._choose(judge_heads(held_out, cells, sweep), radii)
        trained = train_head_trees(X, cells, sweep, settings, out_of_fold=held_out)
        self.frontier_weights_, self.share_ = trained.weights[0].numpy(), trained.head.share.numpy()
        self.weights_ = self.frontier_weights_[self.best_index_]
        self.n_estimators_ = trained.trees.rounds[0]
        return [trees for trees in (trained.trees.classes, trained.trees.groups) if trees is not None]

    def _fit_weights(self, X: np.ndarray, cells: Cells, radii: np.ndarray) -> list[Trees]:
        """Grow trees for every radius on some rows, judge them on others, and grow those of the chosen one on all."""
        check_two_rows_per_class(cells)
        train, test = hold_out(cells, JUDGED, self._seed())
        judged = self._grow(self._fairdro(tuple(radii.tolist())), X[train], cells.take(torch.from_numpy(train)))
        self._choose(confusion_counts(judged.predict(X[test])[0], cells.take(torch.from_numpy(test))), radii)
        trained = self._grow(self._method(), X, cells)
        self.weights_, self.n_estimators_ = trained.weights[0, 0].numpy(), trained.rounds[0]
        return trained.trees

    def _grow(self, method: Method, X: np.ndarray, cells: Cells) -> WeightedTrees:
        with bar("growing trees", 1, show=self.verbose) as part:
            return train_weighted_trees(X, cells, method, self._settings(), errors=self.errors, on_step=part(0))

    def _fairdro(self, rho: float | tuple[float, ...]) -> Method:
        return FairDRO(**get_engine(MODEL, self.strategy).hyperparameters(FairDRO, {"rho": rho}))

    def _method(self) -> Method:
        return self._fairdro(getattr(self, "rho_", 1.0))

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
        other._how_chosen_, other._asked_ = str(AsAsked()), True
        return other

    def _grown(self) -> list[Trees]:
        if not hasattr(self, "_trees"):
            self._trees = [read_trees(self.backend, text) for text in self.trees_]
        return self._trees

    def __getstate__(self) -> Any:
        return {key: value for key, value in super().__getstate__().items() if key != "_trees"}

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of the classes ``(N, Y)``; of two classes, that of the second minus the first ``(N,)``."""
        check_is_fitted(self)
        scores = self._head_scores(X)[0] if self.strategy == "head" else self._tree_scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes ``(N, Y)``, by which the largest is predicted.

        With ``head`` they are those of a population in which classes and groups occur as they are weighted. Where a weight
        is negative there is none, and all classes are given twice the most that speaks against one of them.
        """
        check_is_fitted(self)
        if self.strategy == "weights":
            return torch.from_numpy(self._tree_scores(X)).softmax(-1).numpy()
        scores, bulk = self._head_scores(X)
        scores = scores + (bulk - scores).max(axis=1, keepdims=True)
        total = scores.sum(axis=1, keepdims=True)
        return np.where(total > 0, scores / np.where(total > 0, total, 1), 1 / scores.shape[1])

    def _tree_scores(self, X: Any) -> np.ndarray:
        """Return the scores of trees grown with weights ``(N, Y)``."""
        scores = self._grown()[0].scores(self._coded_rows(X))
        return np.column_stack([np.zeros(len(scores)), scores]) if scores.shape[1] == 1 else scores

    def _head_scores(self, X: Any) -> np.ndarray:
        """Return the scores of the head by its weights, and by their absolute values ``(2, N, Y)``."""
        classes, *groups = self._grown()
        trees = CellTrees(classes, groups[0] if groups else None, (self.n_estimators_, self.n_estimators_))
        share, weights = torch.from_numpy(self.share_), torch.from_numpy(self.weights_)
        both = torch.stack([weights, weights.abs()])
        return class_scores(trees.probabilities(self._coded_rows(X)), share, both).double().numpy()

    def _coded_rows(self, X: Any) -> np.ndarray:
        return validate_data(self, _coded(X, self.categories_), **self._TABLE, reset=False)

    def _fits_together(self) -> bool:
        return len(self.feature_importances_) == self.n_features_in_ and len(self._grown()) == len(self.trees_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
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
                f"The categories of column {column!r} are of type {', '.join(sorted(strange))}; make them strings: "
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
