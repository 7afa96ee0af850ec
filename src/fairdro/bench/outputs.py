"""What a bench leaves behind for people, made from the store alone."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fairdro.bench.report import build_report
from fairdro.bench.store import Store
from fairdro.bench.tables import PAPER_RULE, comparison, how_chosen, select, to_latex, to_markdown, with_intervals
from fairdro.files import write_whole
from fairdro.frontier import Rule

__all__ = ["write_outputs"]


def write_outputs(store: Store, out: Path, rule: Rule = PAPER_RULE) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Write ``results.csv``, ``report.html``, the table and the pictures; return the selected points and the table."""
    from fairdro.bench.figures import pictures, save_chart  # noqa: PLC0415 - a second to load, which workers can do without

    results = store.results()
    selected = select(results, rule)
    table = comparison(with_intervals(selected, store.outcomes()), store.refused())
    texts = {
        "results.csv": results.to_csv(index=False),
        "table.md": f"{how_chosen(results, rule)}.\n\n{to_markdown(table)}",
        "table.csv": table.to_csv(index=False),
        "table.tex": to_latex(table),
        "report.html": build_report(store, rule),
    }
    for name, text in texts.items():
        write_whole(out / name, text)
    for name, chart in pictures(results, selected, store.outcomes()):
        save_chart(chart, out / "figures" / name)
    return selected, table
