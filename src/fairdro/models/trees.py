"""Boosted trees of LightGBM and XGBoost behind one interface: the same settings, custom objectives, text for files."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from fairdro._utils.extras import require
from fairdro.errors import InputError, unknown_name
from fairdro.models.tree_text import checked_lightgbm, checked_xgboost

ROWS_PER_LEAF = 20
MOST_BYTES, COPIES = 4 * 10**9, 3  # of tables in memory, where boosters are grown side by side with so many each
THREADED = 100_000_000  # numbers of a table: below, a booster has one thread. See TreeSettings.divided


@dataclass(frozen=True)
class TreeSettings:
    """How trees are grown, in LightGBM's words.

    Parameters
    ----------
    n_estimators : int
        Boosting rounds at most, with a tree per score each.
    early_stopping : int, optional
        Rounds without progress on held-out rows after which growing ends; None to grow all.
    min_child_samples : int
        Rows of a leaf at least. XGBoost takes the sum of hessians instead, a quarter of it for a balanced leaf.
    categorical : tuple of int
        Columns that hold codes of categories.
    threads : int
        Of all boosters together, see :meth:`divided`.
    """

    backend: str = "lightgbm"
    n_estimators: int = 200
    early_stopping: int | None = 20
    learning_rate: float = 0.05
    num_leaves: int = 15
    min_child_samples: int = 20
    categorical: tuple[int, ...] = ()
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise unknown_name("backend", self.backend, list(BACKENDS))
        for name, least in (("n_estimators", 1), ("num_leaves", 2), ("min_child_samples", 1), ("early_stopping", 1)):
            if getattr(self, name) is not None and getattr(self, name) < least:
                raise InputError(f"{name} must be at least {least}, got {getattr(self, name)}.")
        if not self.learning_rate > 0:
            raise InputError(f"learning_rate must be positive, got {self.learning_rate}.")

    def for_rows(self, n: int) -> Self:
        """Return the settings for a table of n rows: leaves are smaller where there are few."""
        return replace(self, min_child_samples=min(self.min_child_samples, max(n // ROWS_PER_LEAF, 1)))

    def divided(self, X: np.ndarray) -> tuple[int, Self]:
        """Return how many boosters to grow on a table at the same time, and the settings of each.

        Threads inside a booster meet several hundred times in a round. Beside busy processes that costs half a second a
        round on two cores, of 0.1 s in all for a million rows of 20 columns on one thread; so only where a round takes as
        long is there more than one. Every booster has its own copies of the table, which bounds how many there are at once.
        """
        at_once = 1 if X.size >= THREADED else min(self.threads, max(MOST_BYTES // (COPIES * X.nbytes), 1))
        return at_once, replace(self, threads=max(self.threads // at_once, 1))


def _threads_for(X: np.ndarray) -> int:
    """Return the number of threads that predict rows; 0 is all."""
    return 1 if X.size < THREADED else 0


class Trees(Protocol):
    """Boosted trees of either library."""

    def scores(self, X: np.ndarray) -> np.ndarray:
        """Return raw scores ``(N, K)``."""

    def importances(self) -> np.ndarray:
        """Return the total gain of the splits by every column ``(D,)``."""

    def text(self) -> str:
        """Return the trees as text, for :func:`read_trees`."""


class Growing(Protocol):
    """Trees that are being grown, round by round."""

    def scores(self) -> np.ndarray:
        """Return the raw scores of the training rows ``(N, K)``."""

    def held_scores(self) -> np.ndarray:
        """Return the raw scores of the held-out rows ``(M, K)``."""

    def step(self, gradient: np.ndarray, hessian: np.ndarray) -> None:
        """Grow the trees of one more round, given gradient and hessian of the loss ``(N, K)``."""

    def finish(self, rounds: int | None = None) -> Trees:
        """Return what was grown, in the first so many rounds."""


class Table(Protocol):
    """Rows as a library wants them, made once for any number of trees."""

    def grow(self, n_scores: int) -> Growing:
        """Begin to grow trees for so many scores per row."""


def tabulate(X: np.ndarray, settings: TreeSettings, held: np.ndarray | None = None) -> Table:
    """Prepare rows to grow trees on ``(N, D)``, with rows that are held out beside them ``(M, D)``."""
    if not any(len(np.unique(column[~np.isnan(column)])) + bool(np.isnan(column).any()) > 1 for column in X.T):
        raise InputError("All columns are constant, so that there is nothing to split by; add a column that is not.")
    return BACKENDS[settings.backend][0](X, settings, held)


def read_trees(backend: str, text: str, *, n_features: int, n_scores: int) -> Trees:
    """Return the trees of so many columns and scores that :meth:`Trees.text` wrote; nothing is executed."""
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, list(BACKENDS))
    try:
        return BACKENDS[backend][1].read(text, n_features, n_scores)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"These are no trees of {backend} ({str(error).splitlines()[0]}); save the model again.") from error


def _library(name: str) -> Any:
    return require(name, extra=name, what="Boosted trees")


class _LightGBM:
    def __init__(self, booster: Any, n_scores: int) -> None:
        self.booster, self.n_scores = booster, n_scores

    def scores(self, X: np.ndarray) -> np.ndarray:
        # the library's number of threads is the whole process's, and would be set to all for boosters that are growing
        raw = self.booster.predict(X, raw_score=True, num_threads=_threads_for(X))
        return raw.reshape(len(X), self.n_scores)

    def importances(self) -> np.ndarray:
        return self.booster.feature_importance("gain")

    def text(self) -> str:
        return self.booster.model_to_string()

    @classmethod
    def read(cls, text: str, n_features: int, n_scores: int) -> Self:
        return cls(_library("lightgbm").Booster(model_str=checked_lightgbm(text, n_features, n_scores)), n_scores)


class _LightGBMTable:
    def __init__(self, X: np.ndarray, settings: TreeSettings, held: np.ndarray | None) -> None:
        self.library = _library("lightgbm")
        self.parameters = {
            "objective": "none",
            "num_leaves": settings.num_leaves,
            "learning_rate": settings.learning_rate,
            "min_data_in_leaf": settings.min_child_samples,
            "num_threads": settings.threads,
            "seed": settings.seed,
            "deterministic": True,
            "force_col_wise": True,
            "verbosity": -1,
        }
        options = {"categorical_feature": list(settings.categorical) or "auto", "params": self.parameters}
        self.data = self.library.Dataset(X, np.zeros(len(X)), **options).construct()
        self.held = None
        if held is not None:
            self.held = self.data.create_valid(held, np.zeros(len(held)), params=self.parameters).construct()

    def grow(self, n_scores: int) -> Growing:
        booster = self.library.Booster(self.parameters | {"num_class": n_scores}, self.data)
        if self.held is not None:
            booster.add_valid(self.held, "held")
        return _GrowingLightGBM(booster, n_scores)


class _GrowingLightGBM:
    def __init__(self, booster: Any, n_scores: int) -> None:
        self.booster, self.n_scores = booster, n_scores
        self.grown: list[int] = []  # after every round; one without a split leaves nothing

    def scores(self) -> np.ndarray:
        return self._kept(self.booster.eval_train)

    def held_scores(self) -> np.ndarray:
        return self._kept(self.booster.eval_valid)

    def _kept(self, evaluate: Callable[[Any], object]) -> np.ndarray:
        """Take the scores the library has at hand, which it shows to metrics only."""
        seen: list[np.ndarray] = []

        def metric(scores: np.ndarray, _: Any) -> tuple[str, float, bool]:
            seen.append(scores)
            return "kept", 0.0, True

        evaluate(metric)
        return seen[0].reshape(-1, self.n_scores)

    def step(self, gradient: np.ndarray, hessian: np.ndarray) -> None:
        shape = (len(gradient),) if self.n_scores == 1 else gradient.shape
        self.booster.update(fobj=lambda *_: (gradient.reshape(shape), hessian.reshape(shape)))
        self.grown.append(self.booster.current_iteration())

    def finish(self, rounds: int | None = None) -> _LightGBM:
        self.booster.free_dataset()
        self.booster.best_iteration = -1 if rounds is None else self.grown[rounds - 1]
        return _LightGBM(self.booster, self.n_scores)


BASE_SCORE = 0.5  # of XGBoost


def _kind_of(n_scores: int) -> dict[str, Any]:
    return {"objective": "binary:logistic"} if n_scores == 1 else {"objective": "multi:softprob", "num_class": n_scores}


class _XGBoost:
    def __init__(self, booster: Any, n_scores: int) -> None:
        self.booster, self.n_scores = booster, n_scores

    def scores(self, X: np.ndarray) -> np.ndarray:
        types, threads = self.booster.feature_types, _threads_for(X)
        self.booster.set_param({"nthread": threads})
        data = _library("xgboost").DMatrix(X, feature_types=types, enable_categorical=True, nthread=threads or -1)
        return self.booster.predict(data, output_margin=True).reshape(len(X), self.n_scores).astype(np.float64)

    def importances(self) -> np.ndarray:
        gains = self.booster.get_score(importance_type="total_gain")
        return np.array([gains.get(f"f{j}", 0.0) for j in range(self.booster.num_features())])

    def text(self) -> str:
        return self.booster.save_raw("json").decode()

    @classmethod
    def read(cls, text: str, n_features: int, n_scores: int) -> Self:
        library, settings = _library("xgboost"), {"base_score": BASE_SCORE, **_kind_of(n_scores)}
        row = library.DMatrix(np.zeros((1, n_features)), np.zeros(1))
        empty = library.Booster(settings, [row]).save_raw("json").decode()
        booster = library.Booster()
        booster.load_model(bytearray(checked_xgboost(text, empty, n_features, n_scores).encode()))
        return cls(booster, n_scores)


class _XGBoostTable:
    def __init__(self, X: np.ndarray, settings: TreeSettings, held: np.ndarray | None) -> None:
        self.library = _library("xgboost")
        types = ["c" if j in settings.categorical else "q" for j in range(X.shape[1])]

        def matrix(rows: np.ndarray) -> Any:
            return self.library.DMatrix(
                rows, np.zeros(len(rows)), feature_types=types, enable_categorical=True, nthread=settings.threads
            )

        self.data, self.held = matrix(X), None if held is None else matrix(held)
        self.parameters = {
            "base_score": BASE_SCORE,
            "max_leaves": settings.num_leaves,
            "max_depth": 0,
            "grow_policy": "lossguide",
            "tree_method": "hist",
            "eta": settings.learning_rate,
            "min_child_weight": settings.min_child_samples / 4,
            "lambda": 0.0,
            "nthread": settings.threads,
            "seed": settings.seed,
            "verbosity": 0,
        }

    def grow(self, n_scores: int) -> Growing:
        cached = [self.data] if self.held is None else [self.data, self.held]
        booster = self.library.Booster(self.parameters | _kind_of(n_scores), cached)
        booster.set_attr(n_scores=str(n_scores))
        return _GrowingXGBoost(booster, n_scores, self.data, self.held)


class _GrowingXGBoost:
    def __init__(self, booster: Any, n_scores: int, data: Any, held: Any) -> None:
        self.booster, self.n_scores, self.data, self.held = booster, n_scores, data, held

    def scores(self) -> np.ndarray:
        return self._predict(self.data)

    def held_scores(self) -> np.ndarray:
        return self._predict(self.held)

    def _predict(self, data: Any) -> np.ndarray:
        return self.booster.predict(data, output_margin=True).reshape(-1, self.n_scores).astype(np.float64)

    def step(self, gradient: np.ndarray, hessian: np.ndarray) -> None:
        self.booster.update(self.data, self.booster.num_boosted_rounds(), fobj=lambda *_: (gradient, hessian))

    def finish(self, rounds: int | None = None) -> _XGBoost:
        return _XGBoost(self.booster if rounds is None else self.booster[:rounds], self.n_scores)


BACKENDS: dict[str, tuple[Any, Any]] = {"lightgbm": (_LightGBMTable, _LightGBM), "xgboost": (_XGBoostTable, _XGBoost)}
