"""Measure the classifiers for tables: against fairlearn in one run, the cross-validated frontier, many classes, many rows.

python benchmarks/estimators.py                  # all but the large table, some minutes; writes docs/estimators.md
python benchmarks/estimators.py --rows 5000000   # the large table only, printed: memory and time of `fairdro fit`
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.stats
import torch
from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from fairdro import FairDROClassifier, FairDROClassifierCV, load_dataset
from fairdro._utils.files import write_table
from fairdro._utils.markdown import markdown_table
from fairdro.data.base import embedded_table
from fairdro.errors import InputError
from fairdro.frontier import best_dca
from fairdro.metrics import balanced_accuracy, dca, standard_accuracy, worst_accuracy

PAGE = Path(__file__).parents[1] / "docs" / "estimators.md"
RADII = [0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1, 1.1, 1.2, 1.4, 1.7, 2.5, 5, 10, 20, 50, 100]


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5, help="random splits of Adult")
    parser.add_argument("--rows", type=int, help="train on a table of that many rows instead")
    arguments = parser.parse_args()
    if arguments.rows:
        print(large_table(arguments.rows))
        return
    head = f"# The classifiers, measured\n\nWritten by `make bench-estimators` on {torch.get_num_threads()} cores.\n"
    parts = [head]
    for part in (against_fairlearn(arguments.splits), cross_validation(), many_classes(arguments.splits)):
        print(part)
        parts.append(part)
    PAGE.write_text("\n".join(parts), encoding="utf-8")


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


def mean_and_interval(values: pd.Series) -> str:
    """Write a mean over splits with its 95 % interval."""
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * values.std() / len(values) ** 0.5
    return f"{values.mean():.2f} ± {half:.2f}"


def summary(rows: list[dict[str, object]]) -> str:
    """Write means over splits as a table, a row per model."""
    table = pd.DataFrame(rows)
    names = [name for name in table.columns if name not in ("model", "split")]
    cells = [
        [str(model), *(mean_and_interval(part[n]) for n in names)] for model, part in table.groupby("model", sort=False)
    ]
    return markdown_table(["", *names], cells)


def parts_of(split: int, n: int) -> list[np.ndarray]:
    """Divide rows into train (60 %), validation (20 %) and test."""
    return np.split(np.random.default_rng(split).permutation(n), [int(0.6 * n), int(0.8 * n)])


def against_fairlearn(splits: int) -> str:
    """Compare one fit with ExponentiatedGradient's on Adult: time, and DCA at its accuracy or more."""
    data, rows, ratios = load_dataset("adult"), [], []
    FairDROClassifier(1.0).fit(data.X, data.y, sensitive_features=data.a)  # warm up
    for split in range(splits):
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
    return (
        "## One fit against fairlearn's ExponentiatedGradient, Adult\n\n"
        f"Means over {splits} random splits with 95 % intervals, on test rows. FairDRO's rho is chosen on validation rows:\n"
        "the smallest DCA at fairlearn's accuracy there, or more. Accuracy is the mean over classes and groups. On all\n"
        "rows ExponentiatedGradient maximises the share of correct predictions, and has more of it; on rows drawn\n"
        "equally from the cells it maximises the same accuracy as FairDRO.\n\n"
        + summary(rows)
        + f"\nOne fit of fairlearn takes {np.median(ratios):.0f} times as long as one of FairDRO (median; smallest "
        f"{min(ratios):.0f}, in the same run).\n"
    )


def cross_validation() -> str:
    """Time the 20-point frontier with 5 folds on all of Adult."""
    data = load_dataset("adult")
    model = FairDROClassifierCV()
    seconds = timed(model, data.X, data.y, sensitive_features=data.a)
    return (
        "## A frontier of 20 radii by 5-fold cross-validation, Adult\n\n"
        f"`FairDROClassifierCV().fit` on {len(data):,} rows and {data.X.shape[1]} columns: {seconds:.0f} s, the final\n"
        f"training included. It chose rho = {model.rho_:.3g}.\n"
    )


def many_classes(splits: int) -> str:
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
    for split in range(splits):
        train, validation, test = parts_of(split, len(y))
        train = np.concatenate([train, validation])
        plain = FairDROClassifier(0.0).fit(X[train], y[train], sensitive_features=a[train])
        fair = FairDROClassifierCV().fit(X[train], y[train], sensitive_features=a[train])
        for name, model in {"plain training": plain, "FairDRO, chosen by cross-validation": fair}.items():
            rows.append({"model": name, **judged(y[test], model.predict(X[test]), a[test])})
    return (
        "## Three classes, five groups\n\n"
        "Does a person of Adult work less than 40 hours a week, 40, or more? Groups by sex and race. fairlearn's\n"
        f"reductions refuse: “{refusal}”. Means over {splits} random splits with 95 % intervals, on test rows; rho by the\n"
        "paper's rule on held-out rows of the training part.\n\n" + summary(rows)
    )


def large_table(rows: int) -> str:
    """Fit a table of many rows, drawn from Adult with some noise, in a process of its own."""
    rng = np.random.default_rng(0)
    adult = embedded_table("adult")
    table = adult.iloc[rng.integers(0, len(adult), rows)].reset_index(drop=True)
    table["age"] += rng.normal(0, 0.5, rows).round(2)
    with tempfile.TemporaryDirectory() as folder:
        write_table(pa.Table.from_pandas(table, preserve_index=False), Path(folder) / "people.csv")
        megabytes = (Path(folder) / "people.csv").stat().st_size / 1e6
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "fairdro", "fit", "people.csv", "--target", "income", "--group", "sex", "--out", "model"],
            cwd=folder,
            check=True,
        )
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    return json.dumps(
        {"rows": rows, "megabytes of CSV": round(megabytes), "seconds": round(seconds), "peak GB": round(peak, 1)}
    )


if __name__ == "__main__":
    main()
