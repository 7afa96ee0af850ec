"""What is measured is kept in benchmarks/results; pages are written from there, and nothing is measured for them.

A benchmark keeps what it finds in benchmarks/results/NAME.json, part by part, and `page` writes docs/NAME.md: the text of
benchmarks/NAME.md with tables in the place of {{names}}. `make figures` does that for all pages.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats

from fairdro._utils.markdown import markdown_table
from fairdro.bench.bank import BENCH

HERE = Path(__file__).parent
DOCS, RESULTS = HERE.parent / "docs", HERE / "results"
PRINTED = "as printed"
"""In a file of results: the parts that were copied from an earlier page, and so have its digits only."""
MEASURES = ["accuracy", "dca", "deo", "worst_accuracy", "standard_accuracy"]
Parts = Mapping[str, Callable[[argparse.Namespace], object]]
Figure = list[float | None] | None
"""A mean and half the width of its interval, which may be missing; None for what was not reached."""


def command(doc: str | None) -> argparse.ArgumentParser:
    """Return a command that takes parts to measure, or `page`; a benchmark adds its options."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def run(parser: argparse.ArgumentParser, name: str, parts: Parts, page: Callable[[dict[str, Any]], dict[str, str]]) -> None:
    """Measure and keep the parts that are asked for, one after the other, or write the page from what is kept."""
    parser.add_argument("parts", nargs="+", choices=["page", "all", *parts], help="what to measure; or write the page")
    given = parser.parse_args()
    if "page" in given.parts:
        kept = results(name)
        write(name, page(kept) | {"source": source(kept)})
        return
    for part in parts if "all" in given.parts else given.parts:
        keep(name, part, parts[part](given))


def results(name: str) -> dict[str, Any]:
    """Return what is kept, by part."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        raise SystemExit(f"There are no figures in {path}; measure them first.")
    return json.loads(path.read_text(encoding="utf-8"))


def keep(name: str, part: str, value: object) -> None:
    """Keep what a part found in the place of what it found before."""
    path = RESULTS / f"{name}.json"
    kept = results(name) if path.exists() else {}
    printed = [one for one in kept.pop(PRINTED, []) if one != part]
    kept |= {part: value} | ({PRINTED: printed} if printed else {})
    path.write_text(json.dumps(kept, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{name}, {part}: {value}", flush=True)


def keep_models(name: str, rows: pd.DataFrame) -> None:
    """Keep the metrics of trained models in benchmarks/results/NAME.csv.gz, a row per model."""
    kept = rows[[*BENCH, "method", "hyperparameters", "seed", "diverged", *MEASURES]].round(6)
    kept.to_csv(RESULTS / f"{name}.csv.gz", index=False, compression={"method": "gzip", "mtime": 0})


def models(name: str) -> pd.DataFrame:
    """Return the models that are kept."""
    return pd.read_csv(RESULTS / f"{name}.csv.gz")


def write(name: str, parts: Mapping[str, str]) -> None:
    """Write docs/NAME.md: the text of benchmarks/NAME.md, the parts in the place of {{names}}."""
    text = (HERE / f"{name}.md").read_text(encoding="utf-8")
    if set(re.findall(r"\{\{(\w+)\}\}", text)) != set(parts):
        raise SystemExit(f"benchmarks/{name}.md does not have the parts {', '.join(sorted(parts))}.")
    page = re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]].strip(), text)
    (DOCS / f"{name}.md").write_text(page, encoding="utf-8")


def source(kept: Mapping[str, Any]) -> str:
    """Say where the figures of a page are, and which of them are rounded."""
    printed = kept.get(PRINTED, [])
    which = "All figures" if len(printed) == len(kept) - 1 else f"The figures of {', '.join(printed)}"
    rounded = f" {which} are kept as they were printed when measured, rounded." if printed else ""
    return f"`make figures` writes this page from `benchmarks/results`.{rounded}"


# ---------------------------------------------------------------- means over splits


def figure(values: Iterable[float]) -> Figure:
    """Return the mean over splits and half the width of its 95 % interval."""
    found = np.array(list(values), dtype=float)
    half = scipy.stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / len(found) ** 0.5
    return [float(found.mean()), float(half)]


def with_interval(name: str, value: Figure) -> dict[str, float]:
    """Return a mean and the ends of its interval, to be drawn."""
    mean, half = value
    return {name: mean, f"{name} low": mean - half, f"{name} high": mean + half}


def shown(value: Figure, digits: int = 2, sign: str = "") -> str:
    """Write a figure with its interval."""
    if value is None:
        return "not reached"
    mean, half = value
    return f"{mean:{sign}.{digits}f}" + ("" if half is None else f" ± {half:.{digits}f}")


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, Figure]]:
    """Return the figures of every model, given a row per model and split."""
    table = pd.DataFrame(rows)
    names = [name for name in table.columns if name != "model"]
    return {str(model): {n: figure(part[n]) for n in names} for model, part in table.groupby("model", sort=False)}


def summary_table(found: dict[str, dict[str, Figure]]) -> str:
    """Write figures as a table, a row per model."""
    columns = list(next(iter(found.values())))
    return markdown_table(["", *columns], [[name, *map(shown, figures.values())] for name, figures in found.items()])
