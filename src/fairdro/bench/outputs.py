"""What a bench leaves behind for people: the table and the pictures."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fairdro.bench.figures import frontier_chart, save_chart
from fairdro.bench.run import write_whole
from fairdro.bench.tables import how_chosen, select, to_markdown

__all__ = ["write_outputs"]


def write_outputs(results: pd.DataFrame, out: Path) -> tuple[pd.DataFrame, list[Path]]:
    """Write ``table.md`` and ``frontier.png`` / ``.svg`` from the results; return the selected points and all files."""
    selected = select(results)
    write_whole(out / "table.md", f"{how_chosen(results)}.\n\n{to_markdown(selected)}")
    pictures = save_chart(frontier_chart(results, selected), out / "frontier")
    return selected, [out / "results.csv", out / "table.md", *pictures]
