"""Measure what the README says: quality against the paper, and speed in one run as ratios.

python benchmarks/foundation.py                # everything, about ten minutes on 2 cores
python benchmarks/foundation.py quality        # the paper's protocol, and means over random splits
python benchmarks/foundation.py speed          # against fairlearn, banks against single models, memory, scaling

Prints Markdown and writes it to docs/benchmarks.md (a part only to the screen), the scaling picture beside it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path

import altair as alt
import numpy as np
import pandas as pd
import scipy.stats
import torch

from fairdro import load_dataset
from fairdro.bench import Bank, run_bank
from fairdro.bench.tables import comparison, over_seeds, select, to_markdown
from fairdro.cells import Cells
from fairdro.methods import FairDRO, Scratch
from fairdro.training import train_fullbatch, train_minibatch
from fairdro.training.threads import one_thread_each

DOCS = Path(__file__).parents[1] / "docs"
FRONTIER = FairDRO.sweep(20, **FairDRO.stepwise)


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=["all", "quality", "speed", "memory"], default="all")
    parser.add_argument("--splits", type=int, default=20, help="random splits of Adult for the full-batch means")
    arguments = parser.parse_args()
    if arguments.part == "memory":
        print(peak_memory_of_the_adult_frontier())
        return
    parts = []
    if arguments.part in ("all", "quality"):
        parts += [paper_protocol(), paper_split(), random_splits(arguments.splits)]
    if arguments.part in ("all", "speed"):
        parts += [against_fairlearn(), banks(), memory(), scaling()]
    text = f"# Benchmarks\n\nWritten by `make bench`, on {torch.get_num_threads()} cores.\n\n" + "\n\n".join(parts) + "\n"
    if arguments.part == "all":
        (DOCS / "benchmarks.md").write_text(text, encoding="utf-8")


def section(title: str, *lines: str) -> str:
    """Print a section and return it."""
    text = f"## {title}\n\n" + "\n".join(lines)
    print(text, "\n", flush=True)
    return text


# ---------------------------------------------------------------- quality


def paper_protocol() -> str:
    """The paper's Algorithm 1, its split, its rule on test metrics, 4 seeds, 20 radii."""
    banks = [
        Bank(dataset, method, solver="minibatch", seeds=(0, 1, 2, 3), protocol="paper")
        for dataset in ("adult", "compas")
        for method in (Scratch(), FairDRO.sweep(20))
    ]
    results = pd.concat([run_bank(bank).rows for bank in banks], ignore_index=True)
    points = over_seeds(results)
    lines = []
    for dataset, kept in (("adult", 0.788), ("compas", 0.614)):
        fair = points[(points["dataset"] == dataset) & (points["accuracy"] >= kept)].sort_values("dca").iloc[0]
        rho = json.loads(fair["hyperparameters"])["rho"]
        lines.append(
            f"- {dataset}: the smallest DCA at accuracy >= {100 * kept:.1f} is {100 * fair['dca']:.2f} at "
            f"{100 * fair['accuracy']:.2f} (rho = {rho:.3g})"
        )
    return section("Paper protocol, mini-batch, 4 seeds", to_markdown(comparison(select(points))), *lines)


def frontier_of(split: int) -> pd.DataFrame:
    """The 20-point full-batch frontier on one split of Adult, in percent."""
    rows = run_bank(Bank("adult", FRONTIER, protocol="paper", split=split)).rows
    return pd.DataFrame({"rho": FRONTIER.rho, "accuracy": 100 * rows["accuracy"], "dca": 100 * rows["dca"]})


def fairest(points: pd.DataFrame, accuracy: float) -> pd.Series:
    """The smallest DCA at no less than this accuracy."""
    return points[points["accuracy"] >= accuracy].sort_values("dca").iloc[0]


def paper_split() -> str:
    """Full-batch on the paper's split."""
    best = fairest(frontier_of(0), 79.1)
    line = f"Smallest DCA at accuracy >= 79.1: {best['accuracy']:.2f} / {best['dca']:.2f} at rho = {best['rho']:.3g}."
    return section("Full-batch frontier on the paper's split of Adult", line)


def random_splits(number: int) -> str:
    """Full-batch over random splits: at each radius the mean over splits, then the best radius.

    Every five splits by themselves, to show how much five decide, then all of them.
    """
    curves = pd.concat([frontier_of(seed).assign(split=seed) for seed in range(1, number + 1)])
    lines = [
        "| splits | accuracy kept | rho | accuracy | DCA | 95 % interval of the mean DCA |",
        "|---|---|---|---|---|---|",
    ]
    fives = [(first, min(first + 4, number), 79.0) for first in range(1, number + 1, 5)]
    for first, last, kept in fives + [(1, number, kept) for kept in (79.0, 79.5, 80.0, 81.0)]:
        part = curves[curves["split"].between(first, last)]
        best = fairest(part.groupby("rho", as_index=False)[["accuracy", "dca"]].mean(), kept)
        at_best = part.loc[part["rho"] == best["rho"], "dca"]
        margin = scipy.stats.t.ppf(0.975, len(at_best) - 1) * at_best.std() / np.sqrt(len(at_best))
        cells = [
            f"{first} to {last}",
            f">= {kept}",
            f"{best['rho']:.3g}",
            f"{best['accuracy']:.2f}",
            f"{best['dca']:.2f}",
            f"{best['dca'] - margin:.2f} to {best['dca'] + margin:.2f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return section("Full-batch frontier of Adult, mean over random splits", *lines)


# ---------------------------------------------------------------- speed


def best_time(function, repeats: int = 3) -> float:
    """The shortest of a few runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def against_fairlearn() -> str:
    """The whole frontier against one fit of fairlearn's ExponentiatedGradient, and against bare matrix products."""
    from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient
    from sklearn.linear_model import LogisticRegression

    train = load_dataset("adult").split("paper").train
    X, y, a = train.X.numpy(), train.cells.y.numpy(), train.cells.groups.numpy()
    ours = best_time(lambda: train_fullbatch(train.X, train.cells, FRONTIER))

    def theirs() -> None:
        estimator = ExponentiatedGradient(LogisticRegression(max_iter=100), EqualizedOdds(difference_bound=0.02))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator.fit(X, y, sensitive_features=a)

    rival = best_time(theirs, repeats=1)
    ours = min(ours, best_time(lambda: train_fullbatch(train.X, train.cells, FRONTIER)))

    steps, columns, threads = 200, FRONTIER.points, torch.get_num_threads()
    W, R = torch.randn(97, columns), torch.randn(len(train.X), columns)
    parts = list(zip(train.X.chunk(threads), R.chunk(threads), strict=True))
    with one_thread_each(threads) as pool:
        limit = (
            best_time(lambda: [list(pool.map(lambda p: (p[0] @ W, p[0].T @ p[1]), parts)) for _ in range(20)]) * steps / 20
        )
    gigaflops = steps * 4 * len(train.X) * 97 * columns / limit / 1e9
    return section(
        "Speed: 20 fair models against one",
        f"- our 20-point frontier of Adult: {ours:.2f} s",
        f"- one `ExponentiatedGradient(LogisticRegression(max_iter=100), EqualizedOdds(0.02))` fit: {rival:.2f} s, "
        f"**{rival / ours:.1f} times** as long",
        f"- the frontier's matrix products alone, on as many threads ({threads}): {limit:.2f} s ({gigaflops:.0f} GFLOP/s); "
        f"the solver takes {ours / limit:.1f} times that",
    )


def banks() -> str:
    """Mini-batch training of 80 models together against one alone, per model."""
    train = load_dataset("adult").split("paper").train
    options = {"epochs": 3}
    alone = best_time(lambda: train_minibatch(train.X, train.cells, FairDRO(rho=1.0), seeds=(0,), **options))
    together = best_time(lambda: train_minibatch(train.X, train.cells, FairDRO.sweep(20), seeds=(0, 1, 2, 3), **options))
    return section(
        "Speed: a bank of 80 mini-batch models",
        f"- one epoch of one model: {1e3 * alone / 3:.0f} ms; of 80 models together: {1e3 * together / 3:.0f} ms",
        f"- per model a bank of 80 costs **1/{80 * alone / together:.0f}** of a bank of 1",
    )


def peak_memory_of_the_adult_frontier() -> str:
    """Load Adult, solve the frontier and return the process's peak memory in MB, and how much of it imports took."""

    def peak() -> int:
        return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) // 1024

    imported = peak()
    train = load_dataset("adult").split("paper").train
    train_fullbatch(train.X, train.cells, FRONTIER)
    return f"{peak()} {imported}"


def memory() -> str:
    """Peak memory in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "memory"], capture_output=True, text=True, check=True)  # noqa: S603
    peak, imported = done.stdout.split()
    return section(
        "Memory", f"Peak of a process that loads Adult and solves the frontier: {peak} MB, {imported} MB of it imports."
    )


def scaling() -> str:
    """Time against rows, features and radii, and a picture of it."""
    rows = []
    base = {"rows": 40_000, "features": 100, "radii": 24}
    for what, values in {
        "rows": (20_000, 40_000, 80_000, 160_000, 320_000),
        "features": (50, 100, 200, 400, 800),
        "radii": (24, 48, 96, 192, 384),
    }.items():
        for value in values:
            size = base | {what: value}
            rng = torch.Generator().manual_seed(0)
            X = torch.randn(size["rows"], size["features"], generator=rng)
            y = (X[:, 0] + torch.randn(len(X), generator=rng) > 0).long()
            cells = Cells(y, torch.randint(2, (len(X),), generator=rng), n_classes=2, n_groups=2)
            method = FairDRO(rho=np.geomspace(0.01, 10, size["radii"]).tolist(), softness=0.02)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                seconds = best_time(lambda: train_fullbatch(X, cells, method, steps=20), repeats=2)  # noqa: B023
            rows.append({"what": what, "value": value, "seconds": seconds / 20})
    table = pd.DataFrame(rows)
    slopes = {
        what: np.polyfit(np.log(part["value"]), np.log(part["seconds"]), 1)[0]
        for what, part in table.groupby("what", sort=False)
    }
    lines = alt.Chart(table).mark_line(point=True).encode(
        x=alt.X("value:Q", scale=alt.Scale(type="log"), title=None),
        y=alt.Y("seconds:Q", scale=alt.Scale(type="log"), title="seconds a step"),
    )  # fmt: skip
    lines.properties(width=220, height=200).facet(alt.Facet("what:N", title=None)).resolve_scale(x="independent").save(
        DOCS / "scaling.png", scale_factor=2
    )
    return section(
        "Scaling of the full-batch solver",
        "Time a step grows as (size) to the power of: "
        + ", ".join(f"{slope:.2f} in {what}" for what, slope in slopes.items())
        + ". 1 is linear; below 1, costs that do not grow still show.",
        "",
        "![seconds a step against rows, features and radii](scaling.png)",
    )


if __name__ == "__main__":
    main()
