"""What a bench leaves behind for people: tables and pictures, made from the store alone."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fairdro.bench.figures import frontier_chart, save_chart
from fairdro.bench.store import Store, write_whole
from fairdro.bench.tables import comparison, how_chosen, select, to_latex, to_markdown

__all__ = ["write_outputs"]


def write_outputs(store: Store, out: Path) -> tuple[pd.DataFrame, list[Path]]:
    """Write ``results.csv``, the table and the pictures from what is stored; return the table and all files."""
    results = store.results()
    selected = select(results)
    table = comparison(selected, store.refused())
    texts = {
        "results.csv": results.to_csv(index=False),
        "table.md": f"{how_chosen(results)}.\n\n{to_markdown(table)}",
        "table.csv": table.to_csv(index=False),
        "table.tex": to_latex(table),
    }
    for name, text in texts.items():
        write_whole(out / name, text)
    pictures = save_chart(frontier_chart(results, selected), out / "frontier")
    return table, [*(out / name for name in texts), *pictures]
