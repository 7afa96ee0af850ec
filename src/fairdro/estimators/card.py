"""The model card: what a model is, what it was trained on, whom it serves how well."""

from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np
import pandas as pd

from fairdro._utils.markdown import escape, markdown_table, percent
from fairdro.metrics import Confusion

METRIC_NAMES = {
    "accuracy": "balanced accuracy (mean over classes and groups)",
    "dca": "DCA: gap in accuracy between groups, mean over classes",
    "deo": "DEO: gap in predictions between groups, mean over classes",
    "worst_accuracy": "accuracy of the worst class and group",
    "standard_accuracy": "share of correct predictions",
    "equalized_odds_difference": "equalised-odds difference",
    "demographic_parity_difference": "demographic-parity difference",
}
INTERVALS = "\nFrom and to are the ends of 95 % bootstrap intervals, drawn within each class and group.\n"
NO_INTERVALS = "\nNo intervals: rows are weighted, or belong to groups in shares.\n"
LIMITS = """\
- Fair here means: within each class, every group is recognised equally often. That says nothing on other notions of
  fairness, on who was left out of the data, or on whether the labels themselves are just.
- Groups that are not listed, and people unlike those in the data, were not looked at.
- Figures are for data like these; check again on fresh rows before use and from time to time.
"""


def build_card(
    *,
    model: Mapping[str, object],
    features: Sequence[str],
    counts: np.ndarray,
    class_names: Sequence[str],
    group_names: Sequence[str],
    results: Sequence[tuple[str, Confusion]] = (),
    remarks: Sequence[str] = (),
    on_data: str = "",
) -> str:
    """Write a card in Markdown.

    Parameters
    ----------
    model : mapping
        What it is, by name.
    features : sequence of str
    counts : ndarray of shape (Y, A)
        Training rows per cell.
    class_names, group_names : sequence of str
    results : sequence of (str, Confusion)
        On which rows, and how they were predicted.
    remarks : sequence of str
        Sentences on how the results came about.
    on_data : str
        A sentence on rows that are not in the counts.
    """
    shown = ", ".join(escape(name) for name in features[:30]) + (
        f" and {len(features) - 30} more" if len(features) > 30 else ""
    )
    parts = [
        "# Model card\n\n",
        "## Model\n\n" + "".join(f"- {escape(key)}: {escape(value)}\n" for key, value in model.items()),
        f"- made by: fairdro {escape(metadata.version('fairdro'))}\n",
        f"\n## Training data\n\n{counts.sum():,.10g} rows; columns it learns from ({len(features)}): {shown}.\n",
        "\nRows by class and group:\n\n",
        markdown_table(
            ["class", *map(escape, group_names)],
            [[escape(name), *(f"{n:,.10g}" for n in row)] for name, row in zip(class_names, counts, strict=True)],
        ),
        f"\n{escape(on_data)}\n" if on_data else "",
    ]
    if results:
        parts += ["\n## Results\n", *(f"\n{escape(remark)}\n" for remark in remarks)]
    else:
        parts.append("\n## Results\n\nNot judged on rows of its own; call `model_card` with rows it was not trained on.\n")
    for title, confusion in results:
        parts += [f"\n### {escape(title)}\n\n", _metrics(confusion), "\n", _cells(confusion)]
    return "".join([*parts, "\n## Limits\n\n", LIMITS])


def _metrics(confusion: Confusion) -> str:
    table = confusion.metrics()
    rows = [
        [METRIC_NAMES[str(name)], *(percent(value) for value in row)]
        for name, row in zip(table.index, table.to_numpy(), strict=True)
    ]
    about = f"\n{escape(confusion.about)}\n" if confusion.about else ""
    intervals = INTERVALS if confusion.countable else NO_INTERVALS
    return markdown_table(["in percent", "value", "from", "to"], rows) + about + intervals


def _cells(confusion: Confusion) -> str:
    rows = [
        [
            escape(label),
            escape(group),
            f"{row['count']:,.10g}",
            *(percent(row[c]) for c in ("accuracy", "low", "high")),
            row["note"],
        ]
        for (label, group), row in by_cell(confusion.cells())
    ]
    return markdown_table(["class", "group", "rows", "accuracy", "from", "to", "note"], rows)


def by_cell(table: pd.DataFrame) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Walk through a table of cells: the names of class and group, and what the row holds."""
    return zip(table.index.to_list(), table.to_dict("records"), strict=True)  # type: ignore[arg-type] # keys are strings
