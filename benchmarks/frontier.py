"""The picture of README.md and of the front page: plain training, FairDRO and a head on random splits of Adult and COMPAS.

python benchmarks/frontier.py splits    # train, and keep points in benchmarks/results/frontier.csv.gz; about three minutes
python benchmarks/frontier.py page      # draw docs/frontier.png from what is kept; no training

In every split a radius is chosen on validation rows, the fairest that keeps 95 % of the accuracy of plain training; points
are those of its test rows.
"""

from __future__ import annotations

import argparse
import json

import altair as alt
import pages
import pandas as pd

from fairdro.bench import BenchPlan, run_bank
from fairdro.bench.figures import looks_of
from fairdro.bench.tables import over_seeds, select

SPLITS = range(1, 11)
TITLES = {"adult": "Adult: income above 50K, by sex", "compas": "COMPAS: re-offends, by race"}
PLAIN, FAIR, HEAD = "plain training", "FairDRO", "head on logistic regression"
SERIES = {("scratch", "fullbatch"): PLAIN, ("fairdro", "fullbatch"): FAIR, ("fairdro", "head"): HEAD}


def main() -> None:
    """Train, or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["splits", "page"])
    {"splits": train, "page": draw}[parser.parse_args().what]()


def train() -> None:
    """Train on every split, and keep what its points have on test rows."""
    found = []
    for split in SPLITS:
        plan = BenchPlan(list(TITLES), solvers=["fullbatch", "head"], split=split, adaptive=False)
        points = over_seeds(pd.concat([run_bank(bank).rows for bank in plan.banks], ignore_index=True))
        chosen = select(points).dropna(subset="accuracy")[["dataset", "solver", "method", "hyperparameters"]]
        found.append(points.merge(chosen.assign(chosen=True), how="left"))
        print(f"split {split} of {len(SPLITS)}", flush=True)
    table = pd.concat(found, ignore_index=True)
    table["rho"] = [json.loads(text).get("rho", 0.0) for text in table["hyperparameters"]]
    table["series"] = [SERIES.get(key) for key in zip(table["method"], table["solver"], strict=True)]
    table["chosen"] = table["chosen"].notna()
    kept = table.dropna(subset="series")[["dataset", "series", "split", "rho", "accuracy", "dca", "chosen"]].round(6)
    kept.to_csv(pages.RESULTS / "frontier.csv.gz", index=False, compression={"method": "gzip", "mtime": 0})


def draw() -> None:
    """Draw means over splits, and intervals of what was chosen."""
    table = pages.models("frontier")
    table[["accuracy", "dca"]] *= 100
    legend = alt.Legend(title=None, orient="bottom", labelFontSize=15, symbolSize=110, labelLimit=300)
    looks = looks_of("series", [FAIR, PLAIN, HEAD], legend)
    panels = []
    for dataset, title in TITLES.items():
        own = table[table["dataset"] == dataset]
        lines = own[own["series"] != PLAIN].groupby(["series", "rho"], as_index=False)[["accuracy", "dca"]].mean()
        ends = [
            {"series": series}
            | pages.with_interval("accuracy", pages.figure(part["accuracy"]))
            | pages.with_interval("dca", pages.figure(part["dca"]))
            for series, part in own[own["chosen"]].groupby("series")
        ]
        x = alt.X("accuracy:Q", title="balanced accuracy (%)", scale=alt.Scale(zero=False))
        y = alt.Y("dca:Q", title="DCA, gap between groups (%)", scale=alt.Scale(domainMin=0))
        chosen = alt.Chart(pd.DataFrame(ends)).encode(x=x, y=y, color=looks["color"])
        layers = alt.layer(
            alt.Chart(lines)
            .mark_line(strokeWidth=2)
            .encode(x=x, y=y, color=looks["color"], strokeDash=looks["strokeDash"], order="rho:Q"),
            chosen.mark_rule(opacity=0.6, strokeWidth=2).encode(x="accuracy low:Q", x2="accuracy high:Q"),
            chosen.mark_rule(opacity=0.6, strokeWidth=2).encode(y="dca low:Q", y2="dca high:Q"),
            chosen.mark_point(filled=True, size=150, opacity=1).encode(shape=looks["shape"]),
        )
        panels.append(layers.properties(width=400, height=300, title=title))
    chart = (
        alt.hconcat(*panels).configure_axis(labelFontSize=14, titleFontSize=15, gridOpacity=0.4).configure_view(stroke=None)
    )
    chart.configure_title(fontSize=16).save(pages.DOCS / "frontier.png", scale_factor=2)


if __name__ == "__main__":
    main()
