"""Other libraries on the same rows as ours: what is measured, and the rivals that `boosting.py` compares with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import lightgbm
import numpy as np
from sklearn import model_selection as scikit_learn

from fairdro import load_dataset
from fairdro.metrics import confusion

TREES = {"n_estimators": 200, "num_leaves": 15, "learning_rate": 0.05, "min_child_samples": 20, "verbosity": -1}


class Split:
    """One random split as arrays; rivals train on three quarters of the training rows and tune on the rest."""

    def __init__(self, dataset: str, seed: int) -> None:
        split = load_dataset(dataset).split("paper", seed=seed)
        self.X, self.y, self.a = split.train.X.numpy(), split.train.cells.y.numpy(), split.train.cells.groups.numpy()
        self.X_test = split.test.X.numpy()
        self.y_test, self.a_test = split.test.cells.y.numpy(), split.test.cells.groups.numpy()
        self.held = np.arange(len(self.y)) % 4 == 0


class Point(NamedTuple):
    """A point of a frontier: what held-out rows say of it in percent, and how it predicts."""

    accuracy: float
    dca: float
    predict: Callable[[np.ndarray], np.ndarray]


def judged(y: np.ndarray, predicted: np.ndarray, a: np.ndarray) -> tuple[float, float]:
    """Return accuracy and DCA in percent."""
    found = confusion(y, predicted, sensitive_features=a)
    return 100 * found.metric("accuracy"), 100 * found.metric("dca")


def oxonfair(split: Split) -> list[Point]:
    """Thresholds per inferred group on LightGBM, as its documentation has it: trees on some rows, thresholds on others."""
    rest, held = ~split.held, split.held
    classes, groups = _two_models(split.X[rest], split.y[rest], split.a[rest])
    return _thresholds(classes, groups, split.X[held], split.y[held], split.a[held])


def oxonfair_out_of_fold(split: Split) -> list[Point]:
    """The same on all rows, predicted by trees of the other folds as ours are; then trees of all rows."""
    folds = scikit_learn.KFold(5, shuffle=True, random_state=0)
    out_of_fold = [
        scikit_learn.cross_val_predict(lightgbm.LGBMClassifier(**TREES), split.X, target, cv=folds, method="predict_proba")
        for target in (split.y, split.a)
    ]
    models = [Known(model, known) for model, known in zip(_two_models(split.X, split.y, split.a), out_of_fold, strict=True)]
    numbered = np.column_stack([np.arange(len(split.X)), split.X])
    points = _thresholds(*models, numbered, split.y, split.a)
    return [
        Point(*point[:2], lambda X, predict=point.predict: predict(np.column_stack([-np.ones(len(X)), X])))
        for point in points
    ]


class Known:
    """A classifier that answers from a table for rows that are numbered, and from a model for others."""

    def __init__(self, model: lightgbm.LGBMClassifier, known: np.ndarray) -> None:
        self.model, self.known, self.classes_ = model, known, model.classes_

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return probabilities; the first column is the number of a row, or -1."""
        return self.known[X[:, 0].astype(int)] if X[0, 0] >= 0 else self.model.predict_proba(X[:, 1:])

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return classes."""
        return self.predict_proba(X).argmax(1)


def _two_models(X: np.ndarray, y: np.ndarray, a: np.ndarray) -> tuple[lightgbm.LGBMClassifier, lightgbm.LGBMClassifier]:
    return lightgbm.LGBMClassifier(**TREES).fit(X, y), lightgbm.LGBMClassifier(**TREES).fit(X, a)


def _thresholds(classes: object, groups: object, X: np.ndarray, y: np.ndarray, a: np.ndarray) -> list[Point]:
    from oxonfair import DataDict, FairPredictor, group_metrics

    fair = FairPredictor(classes, DataDict(y, X, a), inferred_groups=groups)
    fair.fit(group_metrics.balanced_accuracy.average, group_metrics.equalized_odds, 0.02)
    inside = 100 * np.transpose(fair.frontier_scores())
    offsets = fair.frontier[1]

    def at(p: int) -> Callable[[np.ndarray], np.ndarray]:
        def predict(X: np.ndarray) -> np.ndarray:
            fair.offset = offsets.T[p].T
            return np.asarray(fair.predict(DataDict(np.zeros(len(X)), X, np.zeros(len(X)))))

        return predict

    return [Point(*scores, at(p)) for p, scores in enumerate(inside)]


def fairgbm(split: Split) -> list[Point]:
    """FairGBM over the step of its multipliers and the threshold."""
    import fairgbm as library

    rest, held = ~split.held, split.held
    return [
        point
        for step in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
        for point in _cuts(
            library.train(
                {
                    "objective": "constrained_cross_entropy",
                    "constraint_type": "FNR,FPR",
                    "multiplier_learning_rate": step,
                    "num_leaves": TREES["num_leaves"],
                    "learning_rate": TREES["learning_rate"],
                    "min_data_in_leaf": TREES["min_child_samples"],
                    "verbosity": -1,
                    "seed": 0,
                },
                library.Dataset(split.X[rest], split.y[rest], constraint_group=split.a[rest]),
                TREES["n_estimators"],
                verbose_eval=False,
            ),
            split.X[held],
            split.y[held],
            split.a[held],
        )
    ]


def _cuts(model: object, X: np.ndarray, y: np.ndarray, a: np.ndarray) -> Iterator[Point]:
    likely = model.predict(X)
    for cut in np.linspace(0.1, 0.6, 11):
        yield Point(*judged(y, (likely > cut).astype(int), a), lambda X, cut=cut: (model.predict(X) > cut).astype(int))


def reductions(split: Split) -> list[Point]:
    """Fairlearn's ExponentiatedGradient for equalised odds on LightGBM, on as many rows, drawn equally from the cells."""
    from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient

    rest, held = np.flatnonzero(~split.held), split.held
    cell = 2 * split.y[rest] + split.a[rest]
    rng = np.random.default_rng(0)
    equal = rest[np.concatenate([rng.choice(np.flatnonzero(cell == c), len(rest) // 4) for c in range(4)])]
    points = []
    for bound in (0.05, 0.02, 0.01):
        model = ExponentiatedGradient(lightgbm.LGBMClassifier(**TREES), EqualizedOdds(difference_bound=bound))
        model.fit(split.X[equal], split.y[equal], sensitive_features=split.a[equal])
        predict = _seeded(model)
        points.append(Point(*judged(split.y[held], predict(split.X[held]), split.a[held]), predict))
    return points


def _seeded(model: object) -> Callable[[np.ndarray], np.ndarray]:
    return lambda X: model.predict(X, random_state=0)


RIVALS = {
    "oxonfair": oxonfair,
    "oxonfair (out of fold)": oxonfair_out_of_fold,
    "fairgbm": fairgbm,
    "reductions": reductions,
}
