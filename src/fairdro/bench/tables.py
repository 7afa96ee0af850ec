"""From rows to the comparison a person reads: the selected point of every method, ours beside the paper's."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pandas as pd

from fairdro.frontier import best_dca
from fairdro.methods import get_method

__all__ = ["HEADER", "display_rows", "how_chosen", "over_seeds", "paper_results", "select", "to_markdown"]

KEPT_ACCURACY = 0.95
HEADER = ["dataset", "method", "solver", "chosen", "accuracy", "DCA", "worst acc.", "paper: accuracy", "paper: DCA"]
POINT = ["dataset", "model", "method", "solver", "protocol", "split", "hyperparameters"]


def paper_results() -> pd.DataFrame:
    """Return the paper's table of selected points: percent, mean and standard deviation over 4 seeds."""
    text = resources.files("fairdro.bench").joinpath("paper.json").read_text(encoding="utf-8")
    return pd.DataFrame(json.loads(text))


def over_seeds(results: pd.DataFrame) -> pd.DataFrame:
    """Return mean and sample standard deviation over the seeds of every point, a row per point."""
    measures = [c for c in results.columns if c not in [*POINT, "seed", "diverged"]]
    grouped = results.groupby(POINT, sort=False)
    table = grouped[measures].mean()
    spread = grouped[["accuracy", "dca"]].std().rename(columns=lambda c: c + "_std")
    table = table.join(spread).join(grouped.size().rename("seeds")).join(grouped["diverged"].any())
    return table.reset_index()


def select(results: pd.DataFrame, *, keep: float = KEPT_ACCURACY) -> pd.DataFrame:
    """Choose one point of every method by the paper's rule, a row per dataset, solver and method.

    The smallest mean DCA among points that keep the share ``keep`` of Scratch's mean accuracy: on the validation part where
    there is one, else on the test part as in the paper. Where Scratch is not among the methods, the most accurate point
    stands in for it. Diverged models are not chosen; a method none of whose points is eligible has an empty row.
    """
    points = over_seeds(results)
    prefix = "validation_" if "validation_accuracy" in points else ""
    chosen = []
    for _, bench in points.groupby(["dataset", "model", "solver", "split"], sort=False):
        sound = bench[~bench["diverged"]]
        plain = sound[sound["method"] == "scratch"]
        limit = keep * (plain if len(plain) else sound)[prefix + "accuracy"].max()
        for _, curve in bench.groupby("method", sort=False):
            eligible = curve[~curve["diverged"] & (curve[prefix + "accuracy"] >= limit)]
            if len(eligible):
                index = best_dca(eligible[prefix + "accuracy"], eligible[prefix + "dca"], min_accuracy=limit)
                chosen.append(eligible.iloc[index])
            else:
                empty = curve.iloc[0].copy()
                empty[["hyperparameters", *(c for c in curve.columns if c not in POINT)]] = None
                chosen.append(empty)
    return pd.DataFrame(chosen).reset_index(drop=True)


def how_chosen(results: pd.DataFrame) -> str:
    """Say in a line how :func:`select` chose."""
    part = "validation part" if "validation_accuracy" in results else "test part, as the paper does"
    reference = "Scratch's accuracy" if "scratch" in set(results["method"]) else "the best accuracy"
    return f"Smallest DCA that keeps {100 * KEPT_ACCURACY:.0f} % of {reference}, chosen on the {part} (percent)"


def to_markdown(selected: pd.DataFrame) -> str:
    """Write the selected points as a Markdown table, in percent, with the paper's figures beside ours."""
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    lines += ["| " + " | ".join(cells) + " |" for cells in display_rows(selected)]
    return "\n".join(lines) + "\n"


def display_rows(selected: pd.DataFrame) -> list[list[str]]:
    """Return the cells of the table as text."""
    paper = paper_results().set_index(["dataset", "method"])
    rows = []
    row: Any
    for row in selected.itertuples():
        names = [row.dataset, row.method, row.solver]
        if pd.isna(row.accuracy):
            rows.append([*names, "no point keeps enough accuracy", "", "", "", "", ""])
            continue
        key = (row.dataset, row.method)
        comparable = row.model == "linear" and row.protocol == "paper" and row.split == 0 and key in paper.index
        theirs = paper.loc[key] if comparable else None
        rows.append(
            [
                *names,
                _searched(row.method, json.loads(row.hyperparameters)),
                _percent(row.accuracy, row.accuracy_std),
                _percent(row.dca, row.dca_std),
                f"{100 * row.worst_accuracy:.2f}",
                "" if theirs is None else f"{theirs['accuracy']:.2f} ± {theirs['accuracy_std']:.2f}",
                "" if theirs is None else f"{theirs['dca']:.2f} ± {theirs['dca_std']:.2f}",
            ]
        )
    return rows


def _searched(method: str, hyperparameters: dict[str, float]) -> str:
    return ", ".join(f"{key} = {hyperparameters[key]:.3g}" for key in get_method(method).search)


def _percent(mean: float, std: float) -> str:
    return f"{100 * mean:.2f}" if pd.isna(std) else f"{100 * mean:.2f} ± {100 * std:.2f}"
