"""Heads and their rivals on one split: fitted, chosen on held-out rows, judged on test rows; what `head.py` compares."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from held_out import LINEAR, Problem, Said, said
from linear_post import CALIBRATED_TOLERANCES, TOLERANCES, LinearPost
from rivals import judged
from sklearn.linear_model import LogisticRegression

from fairdro import FairDROHead, fit_head
from fairdro.cells import Cells
from fairdro.groups import Groups
from fairdro.methods import FairDRO
from fairdro.metrics import confusion_counts, metric_table
from fairdro.selection import KeepAccuracy, choose
from fairdro.training import train_fullbatch
from fairdro.training.engines import get_engine

KEEP = KeepAccuracy(0.95)
MANY_COLUMNS, PENALTY = 200, 0.01  # above, linear models are penalised: C of logistic regression
PENALISED = "linear FairDRO, training errors, L2"


def measure(name: str, problem: Problem, model: str, seed: int, out: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Fit everything on one split, and judge the points chosen on held-out rows on test rows."""
    own = said(name, problem, model, seed, out)
    joints = {"independent": (own.p_y_held, own.p_a_held, own.p_y_test, own.p_a_test)}
    if model == LINEAR:
        joints["conditional"] = (own.p_y_held, own.p_ay_held, own.p_y_test, own.p_ay_test)
        joints["cells"] = (None, own.p_c_held, None, own.p_c_test)
    heads = {}
    for joint, (p_class, p_group, *new) in joints.items():
        start = time.perf_counter()
        head = fit_head(p_class, p_group, own.y_held, own.a_held, keep_class_accuracy=0)
        heads[joint] = (head, new, time.perf_counter() - start)
    plain, new, _ = heads["independent"]
    yield "plain", result(own, plain.at(0.0).predict(*new), 0.0)
    for joint, (head, new, seconds) in heads.items():
        yield f"head, {joint}", result(own, head.predict(*new), seconds)
    if len(heads) > 1:
        gaps = {joint: float(head.held_out().metric("dca")) for joint, (head, *_) in heads.items()}
        head, new, _ = heads[min(gaps, key=gaps.get)]
        yield "head, auto", result(own, head.predict(*new), sum(seconds for *_, seconds in heads.values()))
    start = time.perf_counter()
    head = fit_head(own.p_y_held, None, own.y_held, own.a_held, infer_groups=False, keep_class_accuracy=0)
    seconds = time.perf_counter() - start
    yield "head, no groups inferred", result(own, head.predict(own.p_y_test), seconds)
    yield "plain, no groups inferred", result(own, head.at(0.0).predict(own.p_y_test), 0.0)
    for calibrate in (False, True):
        title = "LinearPost" + (", calibration rounds" if calibrate else "")
        yield title, linear_post(own, plain, calibrate=calibrate)
    if problem.y.max() == problem.a.max() == 1:
        if find_spec("oxonfair") is not None:
            yield "oxonfair, inferred groups", oxonfair(own, plain)
        if model == LINEAR:
            yield "fairlearn, exponentiated gradient", reductions(problem, seed, own)
    if model == LINEAR:
        for errors, solver in {"training": "fullbatch", "out-of-fold": "out_of_fold"}.items():
            yield f"linear FairDRO, {errors} errors", inside(problem, seed, solver)
        if problem.X.shape[1] > MANY_COLUMNS:
            yield PENALISED, inside(problem, seed, "fullbatch", penalty=PENALTY)
    print(f"  {name}, {model}, split {seed}: done", flush=True)


def result(own: Said, predicted: np.ndarray, seconds: float) -> dict[str, Any]:
    """Judge predictions of the test rows."""
    accuracy, dca = judged(own.y_test, predicted, own.a_test)
    return {"accuracy": accuracy, "dca": dca, "seconds": seconds}


def chosen(points: pd.DataFrame, plain: FairDROHead) -> int:
    """Return the point with the smallest DCA on held-out rows that keeps 95 % of plain accuracy there."""
    return choose(KEEP, points, plain.frontier_.iloc[0]).index


def linear_post(own: Said, plain: FairDROHead, *, calibrate: bool) -> dict[str, Any]:
    """LinearPost over its tolerances, on the probabilities that the independent head has."""
    start, tolerances = time.perf_counter(), CALIBRATED_TOLERANCES if calibrate else TOLERANCES
    held, test = own.p_y_held[:, :, None] * own.p_a_held[:, None], own.p_y_test[:, :, None] * own.p_a_test[:, None]
    cell = own.y_held * held.shape[2] + own.a_held
    fitted = [LinearPost(tolerance, calibrate=calibrate).fit(held, cell) for tolerance in tolerances]
    points = [judged(own.y_held, post.predict(held), own.a_held) for post in fitted]
    seconds = time.perf_counter() - start
    best = chosen(pd.DataFrame(points, columns=["accuracy", "dca"]) / 100, plain)
    return result(own, fitted[best].predict(test), seconds)


class Stored:
    """A classifier that answers from a table; rows are their numbers."""

    classes_ = np.arange(2)

    def __init__(self, *tables: np.ndarray) -> None:
        self.table = np.concatenate(tables)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return probabilities."""
        return self.table[np.asarray(X)[:, 0].astype(int)]

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return classes."""
        return self.predict_proba(X).argmax(1)


def oxonfair(own: Said, plain: FairDROHead) -> dict[str, Any]:
    """Return oxonfair's thresholds for groups that are inferred, on the same out-of-fold probabilities."""
    from oxonfair import DataDict, FairPredictor, group_metrics

    start = time.perf_counter()
    numbers = np.arange(len(own.y_held) + len(own.y_test), dtype=float)[:, None]
    held, test = numbers[: len(own.y_held)], numbers[len(own.y_held) :]
    groups = Stored(own.p_a_held, own.p_a_test)
    fair = FairPredictor(Stored(own.p_y_held, own.p_y_test), DataDict(own.y_held, held, own.a_held), inferred_groups=groups)
    fair.fit(group_metrics.balanced_accuracy.average, group_metrics.equalized_odds, 0.02)
    points, offsets = np.transpose(fair.frontier_scores()), fair.frontier[1]
    seconds = time.perf_counter() - start
    fair.offset = offsets.T[chosen(pd.DataFrame(points, columns=["accuracy", "dca"]), plain)].T
    nothing = np.zeros(len(test))
    return result(own, np.asarray(fair.predict(DataDict(nothing, test, nothing))), seconds)


def reductions(problem: Problem, seed: int, own: Said) -> dict[str, Any]:
    """Return fairlearn's ExponentiatedGradient for equalised odds, on rows drawn equally from the cells."""
    from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient

    start = time.perf_counter()
    train, held, test, scaled = scaled_parts(problem, seed)
    rng, cell = np.random.default_rng(0), problem.cell
    equal = np.concatenate([rng.choice(train[cell[train] == c], len(train) // 4) for c in range(4)])
    penalty = PENALTY if problem.X.shape[1] > MANY_COLUMNS else 1.0
    models = []
    for bound in (0.05, 0.02):
        model = ExponentiatedGradient(LogisticRegression(C=penalty), EqualizedOdds(difference_bound=bound))
        models.append(model.fit(scaled[equal], problem.y[equal], sensitive_features=problem.a[equal]))
    points = [judged(problem.y[held], m.predict(scaled[held], random_state=0), problem.a[held]) for m in models]
    fit = LogisticRegression(C=penalty).fit(scaled[equal], problem.y[equal])
    limit = 0.95 * judged(problem.y[held], fit.predict(scaled[held]), problem.a[held])[0]
    best = min(range(2), key=lambda i: (points[i][0] < limit, points[i][1]))
    return result(own, models[best].predict(scaled[test], random_state=0), time.perf_counter() - start)


def scaled_parts(problem: Problem, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows to train on, a fifth of them to choose by, test rows, and all rows scaled by the first."""
    rows, test = problem.split(seed)
    held, train = rows[: len(rows) // 5], rows[len(rows) // 5 :]
    mean, scale = problem.X[train].mean(0), problem.X[train].std(0)
    return train, held, test, (problem.X - mean) / np.where(scale > 0, scale, 1)


def inside(problem: Problem, seed: int, solver: str, penalty: float | None = None) -> dict[str, Any]:
    """Return linear FairDRO whose q responds to training or out-of-fold errors, chosen on a fifth of the training rows."""
    train, held, test, scaled = scaled_parts(problem, seed)
    return last_layer(scaled, problem.y, problem.a, (train, held, test), solver, penalty)


def last_layer(
    scaled: np.ndarray,
    y: np.ndarray,
    a: np.ndarray,
    parts: tuple[np.ndarray, np.ndarray, np.ndarray],
    solver: str,
    penalty: float | None = None,
) -> dict[str, Any]:
    """Train linear FairDRO on the first rows, choose a radius on the second, and judge it on the third.

    ``penalty`` is C of logistic regression, for training errors only.
    """
    start = time.perf_counter()
    cells = Cells.from_labels(y, Groups(a, [str(k) for k in range(a.max() + 1)]), n_classes=int(y.max()) + 1)
    (train, held, test), X = map(torch.from_numpy, parts), torch.from_numpy(scaled.astype(np.float32))
    method = FairDRO.sweep(20, **FairDRO.stepwise)
    if penalty is None:
        trained = get_engine("linear", solver).train(X[train], cells.take(train), method)
    else:
        trained = train_fullbatch(X[train], cells.take(train), method, l2=1 / (penalty * len(train)))
    points = metric_table(confusion_counts(trained.predict(X[held])[0], cells.take(held)))
    best = choose(KEEP, points, points.iloc[0]).index
    seconds, rows = time.perf_counter() - start, parts[2]
    accuracy, dca = judged(y[rows], trained.predict(X[test])[0][best].numpy(), a[rows])
    return {"accuracy": accuracy, "dca": dca, "seconds": seconds}
