"""Problems, and what models say of rows they were not trained on: what heads and their rivals in `head.py` start from.

Every model predicts the training rows out of fold, and test rows by a fit to all training rows: the class and the group;
logistic regression also the group in every class, and both together. Arrays are kept in files, so that no model is trained
twice.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from boosting import mothers
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairdro import load_dataset
from fairdro.groups import encode_groups, encode_labels

FOLDS = 5


@dataclasses.dataclass(frozen=True)
class Problem:
    """Rows with codes of class and group."""

    X: np.ndarray
    y: np.ndarray
    a: np.ndarray

    @property
    def cell(self) -> np.ndarray:
        """Codes of class and group together."""
        return self.y * (self.a.max() + 1) + self.a

    def split(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return training and test rows: four fifths and one of every class and group."""
        return train_test_split(np.arange(len(self.y)), test_size=0.2, random_state=seed, stratify=self.cell)


@dataclasses.dataclass(frozen=True)
class Said:
    """What models say of rows they were not trained on, with a column for every class, group or both.

    ``held`` are training rows, predicted out of fold, ``test`` are test rows; ``a`` are groups given x, ``ay`` groups given
    x and the class, ``c`` classes and groups together; the last two are empty but for linear models.
    """

    y_held: np.ndarray
    a_held: np.ndarray
    y_test: np.ndarray
    a_test: np.ndarray
    p_y_held: np.ndarray
    p_y_test: np.ndarray
    p_a_held: np.ndarray
    p_a_test: np.ndarray
    p_ay_held: np.ndarray
    p_ay_test: np.ndarray
    p_c_held: np.ndarray
    p_c_test: np.ndarray
    seconds: np.ndarray


def table(name: str) -> Problem:
    """Return a table of the package, or a file of features."""
    data = load_dataset(name)
    return Problem(data.X.to_numpy(np.float32), data.y, data.a)


def labsup() -> Problem:
    """Return hours of work of mothers: three classes, four groups."""
    X, y, groups = mothers()
    return Problem(X.to_numpy(np.float32), encode_labels(y, "y")[0], encode_groups(groups).values)


def linear(penalty: float) -> Callable[[], Any]:
    """Return logistic regression on scaled columns."""
    return lambda: make_pipeline(StandardScaler(), LogisticRegression(C=penalty, max_iter=300))


def lightgbm_trees() -> Any:
    """Return LightGBM with the settings of docs/boosting.md."""
    settings = {"n_estimators": 200, "num_leaves": 15, "learning_rate": 0.05, "min_child_samples": 20}
    return lightgbm.LGBMClassifier(**settings, verbosity=-1, n_jobs=1)


LINEAR = "logistic regression"
TABLES = {
    LINEAR: linear(1.0),
    "histogram boosting": lambda: HistGradientBoostingClassifier(early_stopping=True, random_state=0),
    "LightGBM": lightgbm_trees,
}
FEATURES = {LINEAR: linear(0.01)}
PROBLEMS: dict[str, tuple[Callable[[Path], Problem], dict[str, Callable[[], Any]], int]] = {
    "adult": (lambda _: table("adult"), TABLES, 5),
    "compas": (lambda _: table("compas"), TABLES, 5),
    "labsup": (lambda _: labsup(), TABLES, 5),
    "hatexplain": (lambda features: table(str(features / "hatexplain.safetensors")), FEATURES, 5),
    "celeba": (lambda features: table(str(features / "celeba.safetensors")), FEATURES, 5),
    "utkface": (lambda features: table(str(features / "utkface.safetensors")), FEATURES, 3),
}
"""How a problem is loaded from the folder of features, its models, and the number of its splits."""


def said(name: str, problem: Problem, model: str, seed: int, out: Path) -> Said:
    """Return what a model says of a split, from its file or by training."""
    path = out / f"{name}-{model.replace(' ', '-')}-{seed}.npz"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        made = vars(_predict(problem, PROBLEMS[name][1][model], seed, all_joints=model == LINEAR))
        with path.with_suffix(".partial").open("wb") as file:
            np.savez(file, **made)
        path.with_suffix(".partial").rename(path)
    with np.load(path, allow_pickle=False) as file:
        return Said(**file)


def _predict(problem: Problem, model: Callable[[], Any], seed: int, *, all_joints: bool) -> Said:
    start = time.perf_counter()
    train, test = problem.split(seed)
    Y, A = problem.y.max() + 1, problem.a.max() + 1
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(train, problem.cell[train]))

    def both(target: np.ndarray, width: int, only: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return out-of-fold and test probabilities; ``only`` says which rows train."""
        held = np.zeros((len(train), width))
        for rest, out in folds:
            held[out] = proba(train[rest], train[out], target, width, only)
        return held, proba(train, test, target, width, only)

    def proba(rows: np.ndarray, asked: np.ndarray, target: np.ndarray, width: int, only: np.ndarray | None) -> np.ndarray:
        rows = rows if only is None else rows[only[rows]]
        fitted = model().fit(problem.X[rows], target[rows])
        values = np.zeros((len(asked), width))
        values[:, fitted.classes_] = fitted.predict_proba(problem.X[asked])
        return values

    p_y = both(problem.y, Y)
    p_a = both(problem.a, A)
    seconds = time.perf_counter() - start  # of what the default head needs
    p_ay = p_c = [np.empty(0), np.empty(0)]
    if all_joints:
        given = [both(problem.a, A, problem.y == y) for y in range(Y)]
        p_ay = [np.stack([pair[k] for pair in given], axis=1) for k in range(2)]
        p_c = [values.reshape(-1, Y, A) for values in both(problem.cell, Y * A)]
    of = (problem.y[train], problem.a[train], problem.y[test], problem.a[test])
    return Said(*of, *p_y, *p_a, *p_ay, *p_c, seconds=np.array(seconds))
