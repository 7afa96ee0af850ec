"""From rows to the comparison a person reads: the selected point of every method, ours beside the paper's."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pandas as pd

from fairdro.frontier import best_dca

__all__ = ["HEADER", "display_rows", "over_seeds", "paper_results", "select", "to_markdown"]

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
    stands in for it. The column ``reference`` says which.
    """
    points = over_seeds(results)
    prefix = "validation_" if "validation_accuracy" in points else ""
    chosen = []
    for _, bench in points[~points["diverged"]].groupby(["dataset", "model", "solver", "split"], sort=False):
        plain = bench[bench["method"] == "scratch"]
        reference = (plain if len(plain) else bench)[prefix + "accuracy"].max()
        for _, curve in bench.groupby("method", sort=False):
            index = best_dca(curve[prefix + "accuracy"], curve[prefix + "dca"], min_accuracy=keep * reference)
            chosen.append({**curve.iloc[index], "reference": "scratch" if len(plain) else "most accurate point"})
    return pd.DataFrame(chosen)


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
        key = (row.dataset, row.method)
        theirs = paper.loc[key] if key in paper.index else None
        rows.append(
            [
                row.dataset,
                row.method,
                row.solver,
                _searched(json.loads(row.hyperparameters)),
                _percent(row.accuracy, row.accuracy_std),
                _percent(row.dca, row.dca_std),
                f"{100 * row.worst_accuracy:.2f}",
                "" if theirs is None else f"{theirs['accuracy']:.2f} ± {theirs['accuracy_std']:.2f}",
                "" if theirs is None else f"{theirs['dca']:.2f} ± {theirs['dca_std']:.2f}",
            ]
        )
    return rows


def _searched(hyperparameters: dict[str, object]) -> str:
    return ", ".join(f"{k} = {v:.3g}" for k, v in hyperparameters.items() if isinstance(v, float) and k != "softness")


def _percent(mean: float, std: float) -> str:
    return f"{100 * mean:.2f}" if pd.isna(std) else f"{100 * mean:.2f} ± {100 * std:.2f}"
