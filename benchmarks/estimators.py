"""Measure the classifiers for tables: against fairlearn in one run, the cross-validated frontier, many classes.

python benchmarks/estimators.py all              # about ten minutes on 2 idle cores
python benchmarks/estimators.py page             # write docs/estimators.md from what is kept; no training
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pages
import pandas as pd
import torch
from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from fairdro import FairDROClassifier, FairDROClassifierCV, load_dataset
from fairdro.errors import InputError
from fairdro.frontier import best_dca
from fairdro.metrics import balanced_accuracy, dca, standard_accuracy, worst_accuracy

NAME = "estimators"
RADII = [0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1, 1.1, 1.2, 1.4, 1.7, 2.5, 5, 10, 20, 50, 100]


def main() -> None:
    """Measure what is asked for, or write the page."""
    parser = pages.command(__doc__)
    parser.add_argument("--splits", type=int, default=5, help="random splits of Adult")
    pages.run(parser, NAME, PARTS, page)


def timed(model, *data, **groups) -> float:
    """Fit and return the seconds it took."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fairlearn with the newest pandas
        model.fit(*data, **groups)
    return time.perf_counter() - start


def judged(y, predicted, a) -> dict[str, float]:
    """Return the metrics of the tables below, in percent."""
    metrics = {"accuracy": balanced_accuracy, "DCA": dca, "share correct": standard_accuracy, "worst cell": worst_accuracy}
    return {name: 100 * metric(y, predicted, sensitive_features=a) for name, metric in metrics.items()}


def parts_of(split: int, n: int) -> list[np.ndarray]:
    """Divide rows into train (60 %), validation (20 %) and test."""
    return np.split(np.random.default_rng(split).permutation(n), [int(0.6 * n), int(0.8 * n)])


def against_fairlearn(given: argparse.Namespace) -> dict[str, Any]:
    """Compare one fit with ExponentiatedGradient's on Adult: time, and DCA at its accuracy or more."""
    data, rows, ratios = load_dataset("adult"), [], []
    FairDROClassifier(1.0).fit(data.X, data.y, sensitive_features=data.a)  # warm up
    for split in range(given.splits):
        train, validation, test = parts_of(split, len(data))
        X = StandardScaler().fit(data.X.iloc[train]).transform(data.X)
        y, a = data.y, data.a
        cell, size = 2 * y[train] + a[train], len(train) // 4
        drawn = np.random.default_rng(split)
        equal = np.concatenate([drawn.choice(train[cell == c], size) for c in range(4)])
        frontier = [FairDROClassifier(float(rho)).fit(X[train], y[train], sensitive_features=a[train]) for rho in RADII]
        held_out = pd.DataFrame([judged(y[validation], m.predict(X[validation]), a[validation]) for m in frontier])
        for name, seen in {"all rows": train, "rows drawn equally from the cells": equal}.items():
            theirs = ExponentiatedGradient(LogisticRegression(max_iter=1000), EqualizedOdds())
            their_seconds = timed(theirs, X[seen], y[seen], sensitive_features=a[seen])
            predicted = theirs.predict(X, random_state=0)
            goal = judged(y[validation], predicted[validation], a[validation])["accuracy"]
            chosen = best_dca(held_out["accuracy"], held_out["DCA"], min_accuracy=min(goal, held_out["accuracy"].max()))
            ours = FairDROClassifier(float(RADII[chosen]))
            our_seconds = timed(ours, X[train], y[train], sensitive_features=a[train])
            ratios.append(their_seconds / our_seconds)
            for model, output, seconds in [
                (f"fairlearn, {name}", predicted[test], their_seconds),
                ("FairDRO at its accuracy", ours.predict(X[test]), our_seconds),
            ]:
                label = model if model.startswith("fairlearn") else f"{model} ({name})"
                rows.append({"model": label, **judged(y[test], output, a[test]), "seconds of one fit": seconds})
    ratio = {"median": float(np.median(ratios)), "smallest": min(ratios)}
    return {"threads": torch.get_num_threads(), "splits": given.splits, "models": pages.summary(rows), "ratio": ratio}


def cross_validation(given: argparse.Namespace) -> dict[str, Any]:
    """Time the 20-point frontier with 5 folds on all of Adult."""
    data = load_dataset("adult")
    model = FairDROClassifierCV()
    seconds = timed(model, data.X, data.y, sensitive_features=data.a)
    return {"rows": len(data), "columns": data.X.shape[1], "seconds": seconds, "rho": float(model.rho_)}


def many_classes(given: argparse.Namespace) -> dict[str, Any]:
    """Compare plain training with FairDRO on three classes and five groups of Adult."""
    data, rows = load_dataset("adult", sensitive=["sex", "race"]), []
    hours = data.X["hours-per-week"]
    y = np.select([hours < 40, hours == 40], ["less", "40 hours"], "more")
    X = data.X.drop(columns="hours-per-week").assign(income=data.y).to_numpy(np.float64)
    race = data.sensitive["race"].where(data.sensitive["race"].isin(["White", "Black"]), "other")
    a = (data.sensitive["sex"] + ", " + race).replace({"Female, other": "other", "Male, other": "other"}).to_numpy()
    try:
        ExponentiatedGradient(LogisticRegression(), EqualizedOdds()).fit(X, y, sensitive_features=a)
    except ValueError as error:
        refusal = str(error)
    else:
        raise InputError("fairlearn took three classes; the page must be written anew.")
    for split in range(given.splits):
        train, validation, test = parts_of(split, len(y))
        train = np.concatenate([train, validation])
        plain = FairDROClassifier(0.0).fit(X[train], y[train], sensitive_features=a[train])
        fair = FairDROClassifierCV().fit(X[train], y[train], sensitive_features=a[train])
        for name, model in {"plain training": plain, "FairDRO, chosen by cross-validation": fair}.items():
            rows.append({"model": name, **judged(y[test], model.predict(X[test]), a[test])})
    return {"splits": given.splits, "refusal": refusal, "models": pages.summary(rows)}


PARTS = {"fairlearn": against_fairlearn, "cross_validation": cross_validation, "classes": many_classes}


def page(kept: dict[str, Any]) -> dict[str, str]:
    """Return the parts of the page."""
    against, folds, many = (kept[name] for name in PARTS)
    return {
        "cores": str(against["threads"]),
        "splits": str(against["splits"]),
        "fairlearn": pages.summary_table(against["models"]),
        "ratio": f"{against['ratio']['median']:.0f}",
        "smallest": f"{against['ratio']['smallest']:.0f}",
        "rows": f"{folds['rows']:,}",
        "columns": str(folds["columns"]),
        "seconds": f"{folds['seconds']:.0f}",
        "rho": f"{folds['rho']:.3g}",
        "refusal": many["refusal"],
        "class_splits": str(many["splits"]),
        "classes": pages.summary_table(many["models"]),
    }


if __name__ == "__main__":
    main()
