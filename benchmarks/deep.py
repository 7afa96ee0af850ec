"""Networks and features of networks on real images and texts, scaled down to two cores.

python benchmarks/deep.py overhead                 # what FairDROLoss adds to a training step, printed
python benchmarks/deep.py collect FOLDER NAME      # keep what a bench in FOLDER found, in benchmarks/results/NAME.csv.gz
python benchmarks/deep.py page                     # write docs/deep.md and its pictures from what is kept; no training

The benches are the studies in benchmarks/deep: `fairdro bench --file benchmarks/deep/utkface.toml`, for example. They take
hours on two cores, and go on where they were stopped.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pages
import pandas as pd
import torch
from pages import MEASURES, RESULTS
from scipy.stats import spearmanr

from fairdro import FairDROLoss
from fairdro._utils.markdown import markdown_table
from fairdro.bench import Store
from fairdro.bench.bank import BENCH
from fairdro.bench.figures import frontier_chart
from fairdro.bench.tables import over_seeds, paper_results, searched, select
from fairdro.methods import METHODS
from fairdro.metrics import METRICS
from fairdro.models.resnet import ResNet18

STUDIES = ["features", "hatexplain", "mlp", "tables", "utkface"]
SHOWN = {"accuracy": "accuracy", "DCA": "dca", "DEO": "deo", "worst acc.": "worst_accuracy"}
PROBLEMS = {
    "adult": "Adult", "compas": "COMPAS", "utkface-64": "UTKFace, features", "celeba-64": "CelebA, features",
    "hatexplain-64": "HateXplain, features", "utkface": "UTKFace", "hatexplain": "HateXplain",
}  # fmt: skip
HEAD, SOFT = " + head", "soft groups"
DRAWS = 300  # of test rows, for intervals
ABLATIONS = ("fairdro_", "rvp", "classwise_simplex", "group_dro")


def main() -> None:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("overhead")
    commands.add_parser("page")
    collecting = commands.add_parser("collect")
    collecting.add_argument("folder", type=Path)
    collecting.add_argument("name")
    given = parser.parse_args()
    if given.command == "overhead":
        print(overhead())
    elif given.command == "collect":
        collect(given.folder, RESULTS / f"{given.name}.csv.gz")
    else:
        pages.write("deep", page(kept()))


def overhead(steps: int = 30, calls: int = 300) -> str:
    """Time steps of ResNet-18 with cross-entropy and with FairDROLoss in turn, and both losses by themselves in turn."""
    torch.manual_seed(0)
    model, criterion = ResNet18(3), FairDROLoss(3, 4, rho=1.0, total_steps=steps)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y, a = torch.randn(64, 3, 64, 64), torch.randint(3, (64,)), torch.randint(4, (64,))
    losses = {"plain": lambda out: torch.nn.functional.cross_entropy(out, y), "fair": lambda out: criterion(out, y, a)}
    whole: dict[str, list[float]] = {name: [] for name in losses}
    alone: dict[str, list[float]] = {name: [] for name in losses}
    out = torch.randn(64, 3, requires_grad=True)
    for i in range(max(steps, calls)):
        for name, loss in losses.items():
            start = time.perf_counter()
            loss(out).backward()
            alone[name].append(time.perf_counter() - start)
            if i < steps:
                start = time.perf_counter()
                optimiser.zero_grad()
                loss(model(x)).backward()
                optimiser.step()
                whole[name].append(time.perf_counter() - start)
    step, plain, fair = (1000 * statistics.median(times) for times in (whole["plain"], alone["plain"], alone["fair"]))
    ratio = statistics.median(b / a for a, b in zip(whole["plain"], whole["fair"], strict=True))
    return (
        f"A step of ResNet-18 (64 images of 64 pixels) with cross-entropy takes {step:.0f} ms. Cross-entropy alone takes "
        f"{plain:.2f} ms, FairDROLoss {fair:.2f} ms: {100 * (fair - plain) / step:.2f} % of a step more. Whole steps of "
        f"both in turn, {steps} each, differ by {100 * (ratio - 1):+.1f} % (median), which is the noise of this machine."
    )


def collect(folder: Path, path: Path) -> None:
    """Keep the rows of a bench, with the counts of its test part, and why methods were refused."""
    tables = []
    for outcome in Store(folder).outcomes():
        if outcome.refused is None:
            counts = outcome.confusion["test"]
            flat = counts.reshape(-1, *counts.shape[2:])
            shown = flat.astype(int) if (flat % 1 == 0).all() else flat.round(2)  # soft groups count in shares
            tables.append(outcome.rows.assign(confusion=[json.dumps(c.tolist()) for c in shown]))
    rows = pd.concat(tables, ignore_index=True)
    measures = [f"{part}{name}" for part in ("", "train_", "validation_") for name in MEASURES]
    by_class = [name for name in rows.columns if name.startswith("validation_class_accuracy")]
    rows = rows[[*BENCH, "method", "hyperparameters", "seed", "diverged", "seconds", *measures, *by_class, "confusion"]]
    path.parent.mkdir(exist_ok=True)
    stem = rows["dataset"].map(lambda name: Path(name).stem)
    rows.assign(dataset=stem).round(5).to_csv(path, index=False, compression={"method": "gzip", "mtime": 0})
    print(f"{path}: {len(rows)} models of {rows['method'].nunique()} methods")


def kept() -> pd.DataFrame:
    """Return all that is kept, a row per model."""
    return pd.concat([pages.models(name) for name in STUDIES], ignore_index=True)


def page(results: pd.DataFrame) -> dict[str, str]:
    """Return the parts of the page, and draw its pictures."""
    chosen = with_errors(select(points_of(results)), results)
    parts = {"faces": faces(results, chosen), "posts": posts(results, chosen), "models": f"{len(results):,}"}
    parts["summary"] = summary(chosen[chosen["dataset"] != "hatexplain"])
    for name, title in PROBLEMS.items():
        own = chosen[(chosen["dataset"] == name) & ~chosen["solver"].str.startswith("network")]
        if len(own):
            tables = (table(part, title, model) for model, part in own.groupby("model", sort=False))
            parts[name.replace("-", "_")] = "".join(tables)
    draw_features(results, chosen)
    return parts


def draw_features(results: pd.DataFrame, chosen: pd.DataFrame) -> None:
    """Draw the frontiers of linear models on the features of every problem, split 0, without ablations."""

    def shown(frame: pd.DataFrame) -> pd.DataFrame:
        features = frame["dataset"].str.endswith("-64") & (frame["model"] == "linear") & (frame["split"] == 0)
        kept = frame[features & (frame["solver"] == "minibatch") & ~frame["method"].str.startswith(ABLATIONS)]
        return kept.assign(dataset=kept["dataset"].map(PROBLEMS))

    frontier_chart(shown(points_of(results)), shown(chosen)).save(pages.DOCS / "deep-features.png", scale_factor=2)


def points_of(results: pd.DataFrame) -> pd.DataFrame:
    """Return the means over seeds, a row per point."""
    return over_seeds(results.drop(columns="confusion"))


def with_errors(chosen: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    """Add half the width of the 95 % interval of every measure, ``dca_error``: chance of seeds and of test rows."""
    key = [*BENCH, "method", "hyperparameters"]
    groups = dict(iter(results.groupby(key, sort=False)))
    errors: list[dict[str, float]] = []
    for row in chosen[key].itertuples(index=False):
        seeds = groups.get(tuple(row))
        if seeds is None:
            errors.append({})
            continue
        drawn = pd.DataFrame([row_errors(json.loads(text)) for text in seeds["confusion"]]).mean()
        of_seeds = seeds[MEASURES].std(ddof=1).fillna(0) / np.sqrt(len(seeds))
        errors.append({f"{name}_error": 1.96 * float(np.hypot(of_seeds[name], drawn[name])) for name in MEASURES})
    return chosen.join(pd.DataFrame(errors, index=chosen.index))


def row_errors(counts: list[Any]) -> dict[str, float]:
    """Return the standard deviation of every metric over test parts that were drawn anew, cell by cell."""
    table, rng = np.array(counts, dtype=float), np.random.default_rng(0)
    sizes = table.sum(-1)
    rates = np.where(sizes[..., None] > 0, table / np.maximum(sizes, 1)[..., None], 1 / table.shape[-1])
    draws = rng.multinomial(sizes.astype(int), rates, size=(DRAWS, *sizes.shape)).astype(float)
    return {name: float(np.nanstd(METRICS[name](draws, None))) for name in MEASURES}


def means(chosen: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over splits of every method, with the error of one: splits share rows."""
    found = chosen[chosen["accuracy"].notna()]
    rows = []
    for (method, solver), splits in found.groupby(["method", "solver"], sort=False):
        if (method, solver) == ("scratch", "head"):
            continue
        name = f"scratch{HEAD}" if solver == "head" else method + HEAD * (solver == "network+head")
        row = {"method": name, "splits": len(splits), "chosen": searched(splits.iloc[0])}
        for name in MEASURES:
            row |= {key: splits[key].astype(float).mean() for key in (name, f"{name}_error")}
        row |= {f"{part}_dca": splits[f"{part}_dca"].astype(float).mean() for part in ("train", "validation")}
        rows.append(row)
    return pd.DataFrame(rows)


def table(chosen: pd.DataFrame, title: str, model: str) -> str:
    """Return the comparison on one problem, and a sentence on who is fairest."""
    rows = means(chosen)
    best = rows["dca"].idxmin()
    shown = [
        [row["method"] if i != best else f"**{row['method']}**", *(figure(row, name) for name in SHOWN.values())]
        for i, row in rows.iterrows()
    ]
    splits = f"mean over {rows['splits'].max()} splits" if rows["splits"].max() > 1 else "one split"
    fairest = f"Fairest of {len(rows)}: {rows['method'][best]}."
    return f"### {title}, {model}\n\n{splits.capitalize()}. {fairest}\n\n{markdown_table(['method', *SHOWN], shown)}\n"


def figure(row: pd.Series, name: str) -> str:
    """Return percent, and half the width of the interval."""
    return f"{100 * row[name]:.1f} ± {100 * row[f'{name}_error']:.1f}"


def faces(results: pd.DataFrame, chosen: pd.DataFrame) -> str:
    """Return what networks on faces gave from end to end, beside the paper's figures, and draw their frontiers."""
    own = chosen[(chosen["dataset"] == "utkface") & chosen["solver"].str.startswith("network")]
    points = points_of(results[results["dataset"] == "utkface"])
    for solver, name in {"network": "deep-utkface", "network+head": "deep-utkface-head"}.items():
        drawn, ringed = (frame[frame["solver"] == solver] for frame in (points, own))
        if len(drawn):
            frontier_chart(drawn, ringed).save(pages.DOCS / f"{name}.png", scale_factor=2)
    rows, paper = means(own), paper_results().query("dataset == 'utkface'").set_index("method")
    rows["paper"] = rows["method"].map(paper["dca"])
    shown = []
    for _, row in rows.iterrows():
        theirs = "" if pd.isna(row["paper"]) else f"{paper.loc[row['method'], 'accuracy']:.1f} / {row['paper']:.1f}"
        gaps = [f"{100 * row[name]:.1f}" for name in ("train_dca", "validation_dca")]
        shown.append([row["method"], row["chosen"], *(figure(row, name) for name in SHOWN.values()), *gaps, theirs])
    columns = ["method", "chosen", *SHOWN, "training DCA", "validation DCA", "paper: accuracy / DCA"]
    both = rows.dropna(subset="paper")
    order = spearmanr(both["dca"], both["paper"]).statistic
    ours, theirs = both["method"][both["dca"].idxmin()], both["method"][both["paper"].idxmin()]
    said = (
        f"Without a head the smallest test DCA is that of {ours}, in the paper that of {theirs}; the orders of these "
        f"{len(both)} methods by DCA have a rank correlation of {order:+.2f}. With or without a head it is that of "
        f"{rows['method'][rows['dca'].idxmin()]}."
    )
    plain = rows[~rows["method"].str.endswith(HEAD)]
    gaps = 100 * (plain["dca"] - plain["train_dca"])
    least, own = plain.loc[plain["train_dca"].idxmin()], plain.set_index("method").loc["fairdro"]
    gap = (
        f"Without a head the DCA is {gaps.min():.1f} to {gaps.max():.1f} points larger on test rows than on training rows; "
        f"the smallest on training rows is that of {least['method']}, {100 * least['train_dca']:.1f}. That of fairdro is "
        f"{100 * own['train_dca']:.1f} on training rows, {100 * own['validation_dca']:.1f} on validation rows and "
        f"{100 * own['dca']:.1f} on test rows. The intervals reach {100 * plain['dca_error'].mean():.1f} points to either "
        f"side on average, and the methods lie within {100 * (plain['dca'].max() - plain['dca'].min()):.1f} points."
    )
    return f"{markdown_table(columns, shown)}\n{said}\n\n{gap}"


def posts(results: pd.DataFrame, chosen: pd.DataFrame) -> str:
    """Return what encoders of posts gave from end to end, with hard and with soft groups, and draw it."""
    own = chosen[(chosen["dataset"] == "hatexplain") & chosen["solver"].str.startswith("network")]
    drawn = points_of(results[results["dataset"] == "hatexplain"])
    titles = {network: f"{'soft' if SOFT in network else 'hard'} groups" for network in drawn["network"]}
    points, ringed = (frame.assign(dataset=frame["network"].map(titles), network="-") for frame in (drawn, own))
    frontier_chart(points, ringed).save(pages.DOCS / "deep-hatexplain.png", scale_factor=2)
    shown = []
    for network, part in own.groupby("network", sort=False):
        groups = titles[network].split()[0]
        for _, row in means(part).iterrows():
            gaps = [f"{100 * row[name]:.1f}" for name in ("train_dca", "validation_dca")]
            shown.append([groups, row["method"], *(figure(row, name) for name in SHOWN.values()), *gaps])
        for _, row in part[part["accuracy"].isna()].iterrows():
            name = row["method"] + HEAD * (row["solver"] == "network+head")
            shown.append([groups, name, "does not keep the accuracy", *[""] * (len(SHOWN) + 1)])
    return markdown_table(["groups", "method", *SHOWN, "training DCA", "validation DCA"], shown)


def summary(chosen: pd.DataFrame) -> str:
    """Return the mean rank by DCA and the wins of every method over all problems, ablations left out."""
    ranks = []
    main = chosen[~chosen["method"].str.startswith(ABLATIONS)]
    for (name, model), own in main.groupby(["dataset", "model"], sort=False):
        rows = means(own)
        rank = rows["dca"].rank()
        place = {"problem": f"{PROBLEMS[name]}, {model}", "of": len(rows)}
        ranks += [place | {"method": row["method"], "rank": rank[i]} for i, row in rows.iterrows()]
    table = pd.DataFrame(ranks)
    order = [f"{name}{head}" for name in METHODS for head in ("", HEAD)]
    grouped = table.groupby("method")
    shown = pd.DataFrame(
        {
            "problems": grouped.size(),
            "mean rank": grouped["rank"].mean(),
            "wins": grouped["rank"].apply(lambda r: (r == 1).sum()),
        }
    )
    shown = shown.loc[[name for name in order if name in shown.index]].sort_values("mean rank", kind="stable")
    cells = [
        [name, str(row["problems"]), f"{row['mean rank']:.1f}", str(row["wins"])]
        for name, row in shown.astype(object).iterrows()
    ]
    problems = dict.fromkeys(table["problem"])
    first, second = shown[shown["problems"] > len(problems) / 2].index[:2]
    said = f"Of the methods on more than half of the problems, {first} has the smallest mean rank, and {second} comes next."
    return (
        f"Problems: {'; '.join(problems)}.\n\n{markdown_table(['method', 'problems', 'mean rank', 'wins'], cells)}\n{said}"
    )


if __name__ == "__main__":
    main()
