"""FairDRO with boosted trees as a classifier."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.utils.validation import check_is_fitted, validate_data

from fairdro._utils.progress import bar
from fairdro.cells import Cells
from fairdro.errors import InputError, unknown_name
from fairdro.estimators.base import BaseClassifier
from fairdro.estimators.choice import FrontierMixin, HeldOut
from fairdro.estimators.head_classifier import FairDROHeadClassifier
from fairdro.estimators.saving import SavingMixin
from fairdro.groups import TOO_FEW
from fairdro.methods import Method
from fairdro.models.trees import Trees, TreeSettings, read_trees
from fairdro.selection import Rule, plain_radius
from fairdro.training.calibration import fit_class_scaling, logarithms, scale
from fairdro.training.engines import solvers_of
from fairdro.training.folds import check_two_rows_per_class, hold_out
from fairdro.training.gradients import softmax
from fairdro.training.head import OutOfFold
from fairdro.training.trees import CellTrees, grow_cell_trees, grow_class_trees, predict_out_of_fold
from fairdro.training.weighted_trees import ERRORS, WeightedTrees, train_weighted_trees

MODEL = "boosting"
JUDGED = 0.2  # share of rows held out to judge radii where trees are grown for every one


class FairDROBoostingClassifier(FairDROHeadClassifier):
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
    keep_class_accuracy : float, default 0.8
        A guard against levelling down: a radius at which a class keeps less than this share of plain training's accuracy,
        averaged over groups, is chosen only where no other satisfies the rule. 0 for none.
    floor : float, optional
        Likewise, the least accuracy of the worst class and group.
    objective : {"balanced", "standard"}, default "balanced"
        As of :class:`FairDROHeadClassifier`.
    class_weight, fair_classes
        As of :class:`~fairdro.FairDROClassifierCV`.
    strategy : {"head", "weights"}, default "head"
        ``head``: trees predict class and group once, and FairDRO fits a head to them.
        ``weights``: FairDRO's weights scale the gradients of boosting, for every radius anew.
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
        Of held-out rows.
    missing_groups : {"refuse", "infer", "ignore", "group"}, default "refuse"
        As of :class:`~fairdro.FairDROClassifier`.
    certify, delta
        As of :class:`~fairdro.FairDROClassifierCV`.
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
    classes_, class_weight_, group_names_, merged_groups_, cell_counts_, weights_, n_features_in_, feature_names_in_
        As of :class:`~fairdro.FairDROClassifier`.
    frontier_weights_ : ndarray of shape (P, Y, A)
        With ``head``: q of every radius of ``frontier_``; see :meth:`at`.
    share_ : ndarray of shape (Y, A)
        With ``head``: the mean probabilities of classes and groups.
    temperatures_ : ndarray of shape (2,)
        With ``head``: the temperatures of class and group by which probabilities are calibrated before a decision.
    calibration_ : ndarray of shape (1 + Y,)
        Inverse temperature and offsets of the classes' log-probabilities, for :meth:`predict_proba`.
    certificate_ : Certificate
        With ``certify``: upper bounds of the gaps, see :func:`fairdro.selection.certify`.
    feature_importances_ : ndarray of shape (D,)
        Share of the gain in predicting the class that is due to every column.
    n_estimators_ : int
        Rounds that were kept, of the trees of the class.
    categories_ : dict of str to ndarray
        Categories of the columns that have some, by their position.
    joint_ : str
        With ``head``: ``independent``.
    trees_ : list of str
        The trees of class and group, or those of the classifier and of plain training, as text of their library.

    See Also
    --------
    FairDROHeadClassifier : The same for any classifier of yours.

    Examples
    --------
    >>> from fairdro import FairDROBoostingClassifier, load_dataset
    >>> from fairdro.metrics import dca
    >>> data = load_dataset("compas")
    >>> X, y, race = data.X.iloc[:, :8], data.y, data.a
    >>> train, test = slice(0, 4000), slice(4000, None)
    >>> model = FairDROBoostingClassifier(n_estimators=20, cv=2, n_jobs=1)
    >>> model = model.fit(X[train], y[train], sensitive_features=race[train])
    >>> plain = model.at(0.0)
    >>> gaps = [dca(y[test], m.predict(X[test]), sensitive_features=race[test]) for m in (plain, model)]
    >>> gaps[1] < gaps[0]
    True
    >>> model.feature_importances_.shape
    (8,)
    """

    _TABLE: ClassVar[dict[str, Any]] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}

    def __init__(
        self,
        rho: float | None = None,
        *,
        keep_accuracy: float = 0.95,
        rule: Rule | str | None = None,
        rhos: Sequence[float] | None = None,
        keep_class_accuracy: float = 0.8,
        floor: float | None = None,
        objective: str = "balanced",
        class_weight: Any = None,
        fair_classes: Any = None,
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
        missing_groups: str = "refuse",
        certify: Any = None,
        delta: float = 0.05,
        n_jobs: int | None = -1,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.rho = rho
        self.keep_accuracy = keep_accuracy
        self.rule = rule
        self.rhos = rhos
        self.keep_class_accuracy = keep_class_accuracy
        self.floor = floor
        self.objective = objective
        self.class_weight = class_weight
        self.fair_classes = fair_classes
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
        self.missing_groups = missing_groups
        self.certify = certify
        self.delta = delta
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.strategy not in solvers_of(MODEL):
            raise unknown_name("strategy", self.strategy, solvers_of(MODEL))
        if self.errors not in ERRORS:
            raise unknown_name("kind of errors", self.errors, ERRORS)

    def _validated(self, X: Any, y: Any, sensitive: Any, weight: Any) -> tuple[Any, Cells]:
        self.categories_ = _categories(X)
        _refuse_strings(X)
        return BaseClassifier._validated(self, _coded(X, self.categories_), y, sensitive, weight)

    def _settings(self) -> TreeSettings:
        return TreeSettings(
            backend=self.backend,
            n_estimators=self.n_estimators,
            early_stopping=self.early_stopping,
            learning_rate=self.learning_rate,
            num_leaves=self.num_leaves,
            min_child_samples=self.min_child_samples,
            categorical=tuple(int(j) for j in self.categories_),
            threads=self._threads(),
            seed=self._seed(),
        )

    def _fit(self, X: np.ndarray, cells: Cells) -> None:
        for name in ("frontier_weights_", "share_", "joint_"):  # of another strategy, fitted before
            self.__dict__.pop(name, None)
        self._backend_ = self.backend
        if self.strategy == "head":
            super()._fit(X, cells)
        else:
            self._fit_weights(X, cells, self._radii())
        self._describe_trees()

    def _describe_trees(self) -> None:
        gain = self._trees[0].importances()
        self.feature_importances_ = gain / max(gain.sum(), np.finfo(float).tiny)
        self.trees_ = [grown.text() for grown in self._trees]

    def _held_out_counts(self, X: Any, cells: Cells) -> np.ndarray:
        if self.strategy == "head":
            return super()._held_out_counts(X, cells)
        return JUDGED * BaseClassifier._held_out_counts(self, X, cells)

    def _group_model(self, X: Any) -> tuple[Any, Any]:
        categorical = [int(j) for j in self.categories_]
        return HistGradientBoostingClassifier(categorical_features=categorical or None, random_state=self._seed()), X

    def _held_out(self, X: Any, cells: Cells, folds: list[tuple[np.ndarray, np.ndarray]]) -> OutOfFold:
        self.joint_ = "independent"
        with bar("growing trees", 1, show=self.verbose) as part:
            return predict_out_of_fold(X, cells, self._settings(), folds=folds, on_step=part(0))

    def _fit_models(self, X: Any, cells: Cells, held_out: OutOfFold) -> None:
        trees = grow_cell_trees(X, cells, self._settings().for_rows(len(X)), rounds=held_out.rounds)
        self.n_estimators_ = trees.rounds[0]
        self._trees = [grown for grown in (trees.classes, trees.groups) if grown is not None]

    def _fit_weights(self, X: np.ndarray, cells: Cells, radii: np.ndarray) -> None:
        """Grow trees for every radius on some rows, judge them on others, and grow those of the chosen one on all."""
        check_two_rows_per_class(cells)
        train, test = hold_out(cells, JUDGED, self._seed())
        own, held = (cells.take(torch.from_numpy(rows)) for rows in (train, test))
        judged = self._grow(self._sweep(radii), X[train], own)
        plain = grow_class_trees(X[train], own, self._settings().for_rows(len(train)), (X[test], held))
        p_class = softmax(plain.scores(X[test]))
        ordinary = torch.from_numpy(p_class.argmax(1))
        self._choose(HeldOut.of(judged.predict(X[test])[0], ordinary, held, plain_radius(radii)), radii)
        self.calibration_ = fit_class_scaling(logarithms(p_class), held)
        self._grow_chosen(X, cells, plain)

    def _grow_chosen(self, X: np.ndarray, cells: Cells, plain: Trees) -> None:
        """Grow the trees of the chosen radius on all rows, and keep those of plain training beside them."""
        trained = self._grow(replace(self._sweep(np.zeros(1)), rho=self.rho_), X, cells)
        self.weights_ = trained.weights[0, 0, :, : cells.n_known_groups].numpy()
        self.n_estimators_ = trained.rounds[0]
        self._trees = [*trained.trees, plain]

    def _moved(self, place: int) -> Self:
        return super()._moved(place) if self.strategy == "head" else FrontierMixin._moved(self, place)

    def _refitted(self, place: int, X: Any, cells: Cells) -> Self:
        other = self._moved(place)
        if self.strategy != "head":
            other._grow_chosen(X, cells, self._grown()[1])
            other._describe_trees()
        return other

    def _grow(self, method: Method, X: np.ndarray, cells: Cells) -> WeightedTrees:
        with bar("growing trees", 1, show=self.verbose) as part:
            return train_weighted_trees(X, cells, method, self._settings(), errors=self.errors, on_step=part(0))

    def at(self, rho: float) -> Self:
        """Return the same model at another radius of its frontier, which takes no training; only with ``head``."""
        check_is_fitted(self)
        if not hasattr(self, "share_"):
            raise InputError("Only strategy 'head' has all radii at hand; with 'weights', fit another model.")
        return super().at(rho)

    def _grown(self) -> list[Trees]:
        if not hasattr(self, "_trees"):
            sizes = self._scores_of_trees()
            self._trees = [
                read_trees(self._backend_, text, n_features=self.n_features_in_, n_scores=size)
                for text, size in zip(self.trees_, sizes, strict=True)
            ]
        return self._trees

    def _scores_of_trees(self) -> list[int]:
        """Return how many scores every booster gives a row: one for two classes or groups."""
        of_class = len(self.classes_)
        told_apart = [of_class, of_class]  # with weights, and plain
        if hasattr(self, "share_"):
            told_apart = [of_class, len(self.group_names_)] if len(self.group_names_) > 1 else [of_class]
        return [1 if number == 2 else number for number in told_apart]

    def __getstate__(self) -> Any:
        return {key: value for key, value in super().__getstate__().items() if key != "_trees"}

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of the classes ``(N, Y)``; of two classes, that of the second minus the first ``(N,)``."""
        check_is_fitted(self)
        if hasattr(self, "share_"):
            return super().decision_function(X)
        scores = self._tree_scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes ``(N, Y)``: those of plain trees, calibrated on rows they have not seen.

        They say how likely a class is, not what is decided: see :meth:`predict` and :meth:`decision_function`.
        """
        check_is_fitted(self)
        if hasattr(self, "share_"):
            return super().predict_proba(X)
        return scale(logarithms(softmax(self._grown()[1].scores(self._coded_rows(X)))), self.calibration_)

    def _tree_scores(self, X: Any) -> np.ndarray:
        """Return the scores of trees grown with weights ``(N, Y)``."""
        scores = self._grown()[0].scores(self._coded_rows(X))
        return np.column_stack([np.zeros(len(scores)), scores]) if scores.shape[1] == 1 else scores

    def _cell_probabilities(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        classes, *groups = self._grown()
        trees = CellTrees(classes, groups[0] if groups else None, (self.n_estimators_, self.n_estimators_))
        return trees.probabilities(self._coded_rows(X))

    def _to_state(self) -> dict[str, Any]:
        return SavingMixin._to_state(self)

    def _from_state(self, fitted: dict[str, Any]) -> None:
        SavingMixin._from_state(self, fitted)

    def _coded_rows(self, X: Any) -> np.ndarray:
        return validate_data(self, _coded(X, self.categories_), **self._TABLE, reset=False)

    def _fits_together(self) -> bool:
        return len(self._grown()) == len(self.trees_)  # they were read

    def __sklearn_tags__(self) -> Any:
        tags = BaseClassifier.__sklearn_tags__(self)
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


def _refuse_strings(X: Any) -> None:
    """Refuse columns of strings, which could be categories or mistakes."""
    table = X.to_pandas() if hasattr(X, "to_pandas") else X
    if isinstance(table, pd.DataFrame):
        for name, dtype in table.dtypes.items():
            if pd.api.types.is_string_dtype(dtype) and not isinstance(dtype, pd.CategoricalDtype):
                raise InputError(f"Column {name!r} holds strings; where they are categories, say so: .astype('category').")


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
