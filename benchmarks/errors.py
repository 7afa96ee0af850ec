"""Measure whether linear models do better if they respond to errors on rows they are not trained on, and with a penalty.

python benchmarks/errors.py adult compas --splits 1 2 3 4 5          # a table each, printed
python benchmarks/errors.py adult:0.1 features.safetensors:0.5       # with a share of the training rows only
python benchmarks/errors.py compas --out points.csv                  # every trained point, too

The point is chosen on the validation part by the paper's rule and judged on the test part: means over splits, and their
standard errors. Splits are random; split 0 of a file of features is that of its own parts.
"""

import argparse
import dataclasses
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from fairdro import load_dataset
from fairdro._utils.markdown import markdown_table
from fairdro.data.base import Part
from fairdro.methods import FairDRO
from fairdro.metrics import confusion_counts, metric_table
from fairdro.selection import KeepAccuracy, choose
from fairdro.training import Trained, train_fullbatch

ERRORS = ["training", "out_of_fold"]
PENALTIES = [0.0, 1e-4, 1e-3, 1e-2]
KEEP = KeepAccuracy(0.95)


def main() -> None:
    """Train, print, and keep what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+", help="dataset or file of features, and :share of its training rows")
    parser.add_argument("--splits", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--radii", type=int, default=12)
    parser.add_argument("--l2", nargs="+", type=float, default=PENALTIES)
    parser.add_argument("--out", type=Path, help="CSV file of all points")
    arguments = parser.parse_args()
    method = FairDRO.sweep(arguments.radii, **FairDRO.stepwise)
    points = []
    for problem in arguments.problems:
        for split in arguments.splits:
            points += list(trained_points(problem, split, method, arguments.l2))
            if arguments.out:
                pd.concat(points).to_csv(arguments.out, index=False)
        print(markdown_table(*summary(pd.concat(points), problem)), flush=True)


def trained_points(problem: str, split: int, method: FairDRO, penalties: list[float]) -> Iterator[pd.DataFrame]:
    """Train a frontier per kind of errors and penalty, and judge it on all parts."""
    name, _, share = problem.partition(":")
    dataset = load_dataset(name)
    parts = (dataset if split == 0 else dataclasses.replace(dataset, parts=None)).split("validated", seed=split)
    rows = torch.arange(round(float(share or 1) * len(parts.train.cells)))  # their order is random
    train = Part(parts.train.X[rows], parts.train.cells.take(rows))
    about: dict[str, Any] = {"problem": problem, "split": split, "rows_per_feature": rows_per_feature(train)}
    for errors in ERRORS:
        for l2 in penalties:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trained = train_fullbatch(train.X, train.cells, method, errors=errors, l2=l2)
            judged = {"train": train, "validation": parts.validation, "test": parts.test}
            tables = [metrics(trained, part).add_prefix(f"{key}_") for key, part in judged.items()]
            run = about | {"errors": errors, "l2": l2, "rho": method.rho, "diverged": trained.diverged[0]}
            yield pd.concat(tables, axis=1).assign(**run, seconds=trained.seconds)


def metrics(trained: Trained, part: Part) -> pd.DataFrame:
    """Return accuracy and DCA of every point on a part."""
    return metric_table(confusion_counts(trained.predict(part.X)[0], part.cells))[["accuracy", "dca"]]


def rows_per_feature(train: Part) -> float:
    """Return the rows of the smallest cell for every feature that is not constant."""
    return float(train.cells.counts.min()) / int((train.X.std(0) > 0).sum())


def summary(points: pd.DataFrame, problem: str) -> tuple[list[str], list[list[str]]]:
    """Return a table of means over splits and their standard errors, in percent."""
    points = points[points["problem"] == problem]
    rows, columns = [], ["test_accuracy", "test_dca", "train_dca"]
    for kind in ["plain", *ERRORS]:
        of_kind = points[(points["rho"] == 0 if kind == "plain" else points["errors"] == kind) & ~points["diverged"]]
        for title, candidates in {"0": of_kind[of_kind["l2"] == 0], "chosen": of_kind}.items():
            found = pd.DataFrame([chosen(own, points) for _, own in candidates.groupby("split")])
            texts = [f"{100 * found[column].mean():.2f} ({100 * found[column].sem():.2f})" for column in columns]
            rows.append([kind, title, *texts, ", ".join(f"{l2:g}" for l2 in found["l2"])])
    title = f"{problem}, {points['rows_per_feature'].mean():.2f} rows per feature"
    return [title, "l2", "accuracy", "DCA", "DCA on training rows", "l2 of the splits"], rows


def chosen(candidates: pd.DataFrame, points: pd.DataFrame) -> pd.Series:
    """Return the point that is chosen on the validation part, of plain training the most accurate."""
    validation = candidates[["validation_accuracy", "validation_dca"]].set_axis(["accuracy", "dca"], axis=1)
    if (candidates["rho"] == 0).all():
        return candidates.iloc[int(np.argmax(validation["accuracy"]))]
    same_split = points["split"] == candidates["split"].iloc[0]
    plain = points[same_split & (points["rho"] == 0) & (points["l2"] == 0)].iloc[0]
    return candidates.iloc[choose(KEEP, validation, pd.Series({"accuracy": plain["validation_accuracy"]})).index]


if __name__ == "__main__":
    main()
