"""An audit as a document: headings, sentences, tables and pictures in order, which a page and Markdown write alike.

Texts are as they come, names from data included; whoever writes them escapes them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from fairdro._utils.markdown import percent
from fairdro.audit.compute import Audit, Judged, Part, Rates
from fairdro.audit.rates import SMALL_SHARE
from fairdro.audit.words import HOLDS, LIMITS, METHODS, NO_VERDICT, SOURCES, between, in_short, p_value, remark, share
from fairdro.estimators.card import METRIC_NAMES, by_cell


@dataclass(frozen=True)
class Heading:
    """A heading; level 2 begins a chapter."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Sentences:
    """A paragraph, or a list."""

    texts: list[str]
    listed: bool = False


@dataclass(frozen=True)
class Terms:
    """Words and what they mean."""

    meanings: dict[str, str]


@dataclass(frozen=True)
class Table:
    """A table of text; the first ``names`` columns hold names, the others figures."""

    columns: list[str]
    rows: list[list[str]]
    names: int = 1


@dataclass(frozen=True)
class Bar:
    """A share with its interval; bars of one name stand together."""

    name: str
    label: str
    figures: tuple[float, float, float]
    series: int = 0


@dataclass(frozen=True)
class Picture:
    """Shares as bars on one scale from 0 to 100 %, for the eye: a table beside it has the same figures."""

    title: str
    bars: list[Bar]
    legend: list[str] = field(default_factory=list)


Block = Heading | Sentences | Terms | Table | Picture


def document(audit: Audit) -> Iterator[Block]:
    """Give the blocks of an audit in order."""
    yield Heading("In short")
    yield Sentences(in_short(audit), listed=True)
    yield Sentences([NO_VERDICT])
    yield Heading("What was counted")
    yield Sentences([*_circumstances(audit), *audit.notes], listed=True)
    which = "each" if audit.predictions and audit.favourable is None else "the favourable"
    yield Heading(f"How often each group gets {which} outcome")
    yield Sentences(["Bars are rates, in percent; the dark line on a bar is its 95 % interval."])
    for part in audit.parts:
        for rates in part.rates:
            yield from _rates(part, rates)
    chapters = [
        ("What changes from one prediction to the other", _changes),
        ("What has changed since the earlier table", _since),
        ("Scores", _scores),
        ("How often each class is recognised, group by group", _accuracies),
        ("Whether scores mean the same in every group", _calibration),
    ]
    for title, chapter in chapters:
        blocks = [block for part in audit.parts for block in chapter(audit, part)]
        yield from [Heading(title), *blocks] if blocks else []
    yield from _local_law(audit)
    yield Heading("What each figure means")
    yield Terms(METHODS)
    yield Heading("What this does not say")
    yield Sentences(LIMITS, listed=True)
    yield Heading("Sources")
    yield Sentences(SOURCES, listed=True)


def _circumstances(audit: Audit) -> Iterator[str]:
    yield f"{audit.rows:,} rows, grouped by {'; by '.join(part.grouping.title for part in audit.parts)}."
    if audit.predictions:
        yield f"Predictions: {' and '.join(audit.predictions)}." + (f" Truth: {audit.target}." if audit.target else "")
    if audit.favourable is not None:
        yield f"Favourable is: {audit.favourable}."
    if audit.score is not None:
        which = "the median of all scores" if audit.at_median else "as asked for"
        yield f"Score: {audit.score}, more is better; favourable is a score above {audit.threshold:.4g}, {which}."
    for part in audit.parts:
        unknown = int(part.grouping.sizes[part.grouping.unknown].sum())
        yield f"Rows of unknown {part.grouping.title}: {unknown:,}."
    if audit.target is None:
        yield "There is no column with the truth, so that nothing is said on accuracy."


def _rates(part: Part, rates: Rates) -> Iterator[Block]:
    yield Heading(f"{rates.outcome.words}, by {part.grouping.title}", 3)
    bars = [Bar(name, "", (row["rate"], row["low"], row["high"])) for name, row in rows_of(rates.table)]
    yield Picture(f"Share of rows in which {rates.outcome.words}", bars)
    columns = ["group", "rows", "selected", "rate, % (interval)", "impact ratio (interval)", "p-value", "test", "note"]
    yield Table(columns, [[
        name, f"{row['rows']:,}", f"{row['selected']:,}", between(row["rate"], row["low"], row["high"]),
        between(row["ratio"], row["ratio_low"], row["ratio_high"], unit=1, digits=2), p_value(row["p_value"]), row["test"],
        remark(row),
    ] for name, row in rows_of(rates.table)])  # fmt: skip


def _changes(audit: Audit, part: Part) -> Iterator[Block]:
    for outcome, table in part.rate_changes:
        yield Heading(f"Rates of {outcome.value}, by {part.grouping.title}", 3)
        of = {rates.outcome.column: rates.table for rates in part.rates if rates.outcome.value == outcome.value}
        bars = [
            Bar(name, prediction, _ends(of[prediction].loc[name], "rate"), series)
            for name in table.index for series, prediction in enumerate(audit.predictions)
        ]  # fmt: skip
        yield Picture(f"Share of rows predicted as {outcome.value}", bars, audit.predictions)
        rows = [[name, f"{row['rows']:,}", *_change(row)] for name, row in rows_of(table)]
        yield Table(["group", "rows", *_change_titles(audit)], rows)
    if part.accuracy_changes is not None:
        yield Heading(f"Accuracy by class and {part.grouping.title}", 3)
        cells = [judged.cells for judged in part.judged]
        bars = [
            Bar(f"{label} / {group}", prediction, _ends(cells[series].loc[(label, group)], "accuracy"), series)
            for label, group in part.accuracy_changes.index for series, prediction in enumerate(audit.predictions)
        ]  # fmt: skip
        yield Picture("Share recognised, of each class and group", bars, audit.predictions)
        rows = [[*names, f"{row['rows']:,}", *_change(row)] for names, row in by_cell(part.accuracy_changes)]
        yield Table(["class", "group", "rows", *_change_titles(audit)], rows, names=2)


def _since(audit: Audit, part: Part) -> Iterator[Block]:
    for words, table in part.since:
        yield Heading(f"{words}, by {part.grouping.title}", 3)
        columns = [str(table.index.name), "rows before", "rows now", "before, %", "now, %", "change, points (interval)"]
        yield Table(
            columns, [[name, f"{row['rows_before']:,}", f"{row['rows']:,}", *_change(row)] for name, row in rows_of(table)]
        )


def _change_titles(audit: Audit) -> list[str]:
    return [f"{prediction}, %" for prediction in audit.predictions] + ["change, points (interval)"]


def _change(row: dict[str, Any]) -> list[str]:
    return [percent(row["before"]), percent(row["after"]), between(row["change"], row["low"], row["high"])]


def _ends(row: "pd.Series[Any]", what: str) -> tuple[float, float, float]:
    return float(row[what]), float(row["low"]), float(row["high"])


def _scores(audit: Audit, part: Part) -> Iterator[Block]:
    if part.scores is None:
        return
    yield Heading(f"{audit.score} by {part.grouping.title}", 3)
    columns = ["group", "rows", "mean score", "standardised difference (interval)"]
    yield Table(columns, [
        [name, f"{row['rows']:,}", f"{row['mean']:.4g}",
         between(row["difference"], row["low"], row["high"], unit=1, digits=2)]
        for name, row in rows_of(part.scores)
    ])  # fmt: skip


def _accuracies(audit: Audit, part: Part) -> Iterator[Block]:
    for judged in part.judged:
        of = f" of {judged.prediction}" if len(part.judged) > 1 else ""
        yield Heading(f"Accuracy{of} by class and {part.grouping.title}", 3)
        yield from _metrics(judged)
        cells = list(by_cell(judged.cells))
        if len(audit.predictions) == 1:
            bars = [Bar(f"{y} / {a}", "", (c["accuracy"], c["low"], c["high"])) for (y, a), c in cells if c["rows"] > 0]
            yield Picture("Share recognised, of each class and group", bars)
        columns = ["class", "group", "rows", "accuracy, % (interval)", "note"]
        yield Table(columns, [
            [y, a, f"{c['rows']:,}", between(c["accuracy"], c["low"], c["high"]), c["note"]] for (y, a), c in cells
        ], names=2)  # fmt: skip


def _metrics(judged: Judged) -> Iterator[Block]:
    rows = [[METRIC_NAMES[str(name)], between(*row)] for name, *row in judged.confusion.metrics().itertuples()]
    yield Table(["in percent", "value (interval)"], rows)
    if judged.confusion.about:
        yield Sentences([judged.confusion.about])
    yield Sentences([judged.certificate.sentence(), HOLDS])


def _calibration(audit: Audit, part: Part) -> Iterator[Block]:
    if part.calibration is None:
        return
    yield Heading(f"{audit.score} as the probability of {audit.favourable}, by {part.grouping.title}", 3)
    columns = ["group", "score", "rows", "mean score, %", f"{audit.favourable} observed, % (interval)"]
    rows = [
        [row["group"], "all" if (row["from"], row["to"]) == (0, 1) else f"{row['from']:.1f} to {row['to']:.1f}",
         f"{row['rows']:,}", percent(row["mean_score"]), between(row["observed"], row["low"], row["high"])]
        for _, row in part.calibration.iterrows()
    ]  # fmt: skip
    yield Table(columns, rows, names=2)


def _local_law(audit: Audit) -> Iterator[Block]:
    """Give the tables that New York City's rules ask for: every column by itself and their intersection."""
    yield Heading("In the shape of New York City's Local Law 144")
    yield Sentences([
        "Number, rate and impact ratio by category, as the rules on bias audits ask for, where the columns are sex and "
        "race or ethnicity. People of unknown category are counted below each table and are not in it. Categories under "
        f"{SMALL_SHARE * 100:g} % of all rows are flagged; the rules allow to leave them out with a reason, here they stay.",
    ])  # fmt: skip
    for part in audit.parts:
        for rates in part.rates:
            kind = "scoring rate" if rates.outcome.value is None else "selection rate"
            yield Heading(f"{part.grouping.title}: {rates.outcome.words}", 3)
            known = rates.table[~rates.table["unknown"]]
            small = known["rows"] < SMALL_SHARE * audit.rows
            columns = ["category", "number", "selected", f"{kind}, %", "impact ratio", "note"]
            yield Table(columns, [[
                name, f"{row['rows']:,}", f"{row['selected']:,}", percent(row["rate"]),
                between(row["ratio"], float("nan"), float("nan"), unit=1, digits=2) or "undefined",
                f"under {SMALL_SHARE * 100:g} % of all" if small[name] else "",
            ] for name, row in rows_of(known)])  # fmt: skip
            unknown = audit.rows - int(known["rows"].sum())
            yield Sentences([f"Of unknown category: {unknown:,} of {audit.rows:,} ({share(unknown / audit.rows)})."])


def rows_of(table: pd.DataFrame) -> Iterator[tuple[str, dict[str, Any]]]:
    """Walk through a table of groups: the name, and what the row holds."""
    return zip(table.index.to_list(), table.to_dict("records"), strict=True)  # type: ignore[arg-type] # keys are strings
