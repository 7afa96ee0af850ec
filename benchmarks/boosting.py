"""Measure boosted trees against the strongest rivals, in one run: frontiers over random splits of Adult, and COMPAS.

python benchmarks/boosting.py                 # writes docs/boosting.md
python benchmarks/boosting.py --splits 1 --rivals none    # a quick look

The rivals are not dependencies: pip install --no-deps oxonfair fairgbm ucimlrepo. Those that are not there are left out.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import scipy.stats
import torch
from sklearn import model_selection as scikit_learn

from fairdro import FairDROBoostingClassifier, FairDROClassifier, FairDROClassifierCV, load_dataset
from fairdro.cells import Cells
from fairdro.markdown import markdown_table
from fairdro.methods import FairDRO
from fairdro.metrics import confusion
from fairdro.models.trees import TreeSettings
from fairdro.training.boosting import boost_weights

PAGE = Path(__file__).parents[1] / "docs" / "boosting.md"
LEVELS = {"adult": [81, 82, 83, 84], "compas": [62, 63, 64, 65]}
TREES = {"n_estimators": 200, "num_leaves": 15, "learning_rate": 0.05, "min_child_samples": 20, "verbosity": -1}


def main() -> None:
    """Compare, print and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--rivals", default="oxonfair,fairgbm,reductions", help="or none")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # rivals with the newest pandas
    parts = [INTRODUCTION.format(splits=arguments.splits)]
    for dataset in LEVELS:
        print(dataset, flush=True)
        parts.append(compare(dataset, arguments.splits, arguments.rivals.split(",")))
        print(parts[-1], flush=True)
    PAGE.write_text("\n\n".join(part.strip() for part in parts) + "\n", encoding="utf-8")


class Split:
    """One random split as arrays; rivals train on three quarters of the training rows and tune on the rest."""

    def __init__(self, dataset: str, seed: int) -> None:
        split = load_dataset(dataset).split("paper", seed=seed)
        self.X, self.y, self.a = split.train.X.numpy(), split.train.cells.y.numpy(), split.train.cells.groups.numpy()
        self.X_test = split.test.X.numpy()
        self.y_test, self.a_test = split.test.cells.y.numpy(), split.test.cells.groups.numpy()
        self.held = np.arange(len(self.y)) % 4 == 0


def judged(y: np.ndarray, predicted: np.ndarray, a: np.ndarray) -> tuple[float, float]:
    """Return accuracy and DCA in percent."""
    found = confusion(y, predicted, sensitive_features=a)
    return 100 * found.metric("accuracy"), 100 * found.metric("dca")


def head(split: Split) -> list[tuple[float, ...]]:
    """Boosted FairDRO as it comes: every radius judged on rows that neither its trees nor its head have seen."""
    model = FairDROBoostingClassifier().fit(split.X, split.y, sensitive_features=split.a)
    rows = model.frontier_[["rho", "accuracy", "dca"]].to_numpy()
    return [
        (100 * accuracy, 100 * gap, *judged(split.y_test, model.at(rho).predict(split.X_test), split.a_test))
        for rho, accuracy, gap in rows
    ]


def weights(split: Split) -> list[tuple[float, ...]]:
    """FairDRO's weights inside boosting, answering to a quarter of the rows, judged on another quarter."""
    rule = FairDRO(rho=(0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0), softness=0.02)
    rest, held = np.flatnonzero(~split.held), np.flatnonzero(split.held)
    cells = Cells(torch.from_numpy(split.y), torch.from_numpy(split.a), n_classes=2, n_groups=2)
    own = cells.take(torch.from_numpy(rest))
    trained = boost_weights(split.X[rest].astype(float), own, rule, TreeSettings(), held=np.arange(0, len(rest), 4))
    inside, outside = (trained.predict(X.astype(float))[0].numpy() for X in (split.X[held], split.X_test))
    return [
        (*judged(split.y[held], a, split.a[held]), *judged(split.y_test, b, split.a_test))
        for a, b in zip(inside, outside, strict=True)
    ]


def linear(split: Split) -> list[tuple[float, ...]]:
    """Linear FairDRO, its radii judged by cross-validation."""
    model = FairDROClassifierCV().fit(split.X, split.y, sensitive_features=split.a)
    rows = []
    for rho, accuracy, gap in model.frontier_[["rho", "accuracy", "dca"]].to_numpy():
        one = FairDROClassifier(rho).fit(split.X, split.y, sensitive_features=split.a)
        rows.append((100 * accuracy, 100 * gap, *judged(split.y_test, one.predict(split.X_test), split.a_test)))
    return rows


def oxonfair(split: Split) -> list[tuple[float, ...]]:
    """Thresholds per inferred group on LightGBM."""
    from oxonfair import DataDict, FairPredictor, group_metrics

    rest, held = ~split.held, split.held
    classes = lightgbm.LGBMClassifier(**TREES).fit(split.X[rest], split.y[rest])
    groups = lightgbm.LGBMClassifier(**TREES).fit(split.X[rest], split.a[rest])
    fair = FairPredictor(classes, DataDict(split.y[held], split.X[held], split.a[held]), inferred_groups=groups)
    fair.fit(group_metrics.balanced_accuracy.average, group_metrics.equalized_odds, 0.02)
    inside = fair.frontier_scores()
    outside = fair.frontier_scores(DataDict(split.y_test, split.X_test, split.a_test))
    return [
        tuple(100 * float(v) for v in (*i, *o)) for i, o in zip(np.transpose(inside), np.transpose(outside), strict=True)
    ]


def fairgbm(split: Split) -> list[tuple[float, ...]]:
    """FairGBM over the step of its multipliers."""
    from fairgbm import FairGBMClassifier

    rest, held = ~split.held, split.held
    rows = []
    for step in (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0):
        model = FairGBMClassifier(constraint_type="FNR,FPR", multiplier_learning_rate=step, random_state=0, **TREES)
        model.fit(split.X[rest], split.y[rest], constraint_group=split.a[rest])
        for cut in np.linspace(0.1, 0.6, 11):
            inside, outside = ((model.predict_proba(X)[:, 1] > cut).astype(int) for X in (split.X[held], split.X_test))
            rows.append((*judged(split.y[held], inside, split.a[held]), *judged(split.y_test, outside, split.a_test)))
    return rows


def reductions(split: Split) -> list[tuple[float, ...]]:
    """Fairlearn's ExponentiatedGradient for equalised odds on LightGBM, rows weighted so that cells count the same."""
    from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient

    rest, held = np.flatnonzero(~split.held), split.held
    cell = 2 * split.y[rest] + split.a[rest]
    fewest = np.bincount(cell).min()
    rng = np.random.default_rng(0)
    equal = rest[np.concatenate([rng.permutation(np.flatnonzero(cell == c))[:fewest] for c in range(4)])]
    rows = []
    for bound in (0.1, 0.05, 0.02, 0.01):
        model = ExponentiatedGradient(lightgbm.LGBMClassifier(**TREES), EqualizedOdds(difference_bound=bound), max_iter=20)
        model.fit(split.X[equal], split.y[equal], sensitive_features=split.a[equal])
        inside, outside = (model.predict(X, random_state=0) for X in (split.X[held], split.X_test))
        rows.append((*judged(split.y[held], inside, split.a[held]), *judged(split.y_test, outside, split.a_test)))
    return rows


def plain_cv(split: Split) -> None:
    """Plain LightGBM with five folds and the final fit, to compare times with."""
    scikit_learn.cross_val_score(lightgbm.LGBMClassifier(**TREES), split.X, split.y, cv=5)
    lightgbm.LGBMClassifier(**TREES).fit(split.X, split.y)


OURS = {"FairDRO, head": head, "FairDRO, weights": weights, "FairDRO, linear": linear}
RIVALS = {"oxonfair": oxonfair, "fairgbm": fairgbm, "reductions": reductions}


def compare(dataset: str, splits: int, rivals: list[str]) -> str:
    """Choose on held-out rows at a ladder of accuracies, and write means over splits of what the test part says."""
    methods = {**OURS, **{name: RIVALS[name] for name in rivals if name in RIVALS}}
    found: dict[str, list[pd.DataFrame]] = {}
    seconds: dict[str, list[float]] = {}
    for seed in range(1, splits + 1):
        split = Split(dataset, seed)
        start = time.perf_counter()
        plain_cv(split)
        plain = time.perf_counter() - start
        for name, method in methods.items():
            start = time.perf_counter()
            try:
                curve = pd.DataFrame(method(split), columns=["held", "held_dca", "accuracy", "dca"])
            except ImportError as error:
                print(f"{name} is left out: {error}")
                continue
            seconds.setdefault(name, []).append((time.perf_counter() - start) / plain)
            found.setdefault(name, []).append(chosen(curve, LEVELS[dataset]))
            print(f"  split {seed}, {name}: {seconds[name][-1]:.1f} times plain LightGBM's cross-validation", flush=True)
    rows = []
    for name, ladders in found.items():
        at = [at_levels(ladder, LEVELS[dataset]) for ladder in ladders]
        cells = [interval(np.array(values)) for values in zip(*at, strict=True)]
        rows.append([name, *cells, f"{np.median(seconds[name]):.1f}"])
    columns = ["", *(f"DCA at {level} %" for level in LEVELS[dataset]), "time"]
    return f"## {dataset}\n\n{markdown_table(columns, rows)}"


def chosen(curve: pd.DataFrame, levels: list[int]) -> pd.DataFrame:
    """Return what the test part says of points chosen on held-out rows: the fairest with at least some accuracy."""
    rungs = []
    for least in np.arange(min(levels) - 3, max(levels) + 2.01, 0.25):
        eligible = curve[curve["held"] >= least]
        if len(eligible):
            rungs.append(eligible.loc[eligible["held_dca"].idxmin()])
    return pd.DataFrame(rungs)


def at_levels(ladder: pd.DataFrame, levels: list[int]) -> list[float]:
    """Return the DCA of a chosen ladder at some accuracies of the test part; NaN where it does not reach."""
    points = ladder.groupby("accuracy")["dca"].min().sort_index()
    reached = np.interp(levels, points.index, points.to_numpy(), right=np.nan)
    return [float(value) for value in reached]


def interval(values: np.ndarray) -> str:
    """Write a mean with its 95 % interval over splits that reach the accuracy."""
    known = values[~np.isnan(values)]
    if len(known) < len(values):
        return f"reached in {len(known)} of {len(values)}" if len(known) < 2 else f"{known.mean():.2f} ({len(known)} splits)"
    if len(known) == 1:
        return f"{known[0]:.2f}"
    half = scipy.stats.t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / len(known) ** 0.5
    return f"{known.mean():.2f} ± {half:.2f}"


INTRODUCTION = """
# Boosted trees, measured

Written by `python benchmarks/boosting.py`: {splits} random splits, all in one run. Every method trains on the same rows and
chooses its points on rows held out of them: the smallest DCA among those with at least some accuracy, over a ladder of
accuracies. The tables show the DCA of these choices on the test part, read off at some accuracies of the test part (mean
and 95 % interval over splits), and the time of the whole frontier over that of plain LightGBM with five folds and a final
fit.
"""

if __name__ == "__main__":
    main()
