"""``fairdro audit``: how predictions or scores, whoever made them, fall on groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Column, Table
from rich.text import Text

from fairdro._utils.markdown import percent
from fairdro.cli import options
from fairdro.cli.terminal import console, one_line, steps, tell

if TYPE_CHECKING:
    from fairdro.audit import Audit
    from fairdro.audit.compute import Part

MOST_TABLES = 6  # on a terminal; a file has all


def audit(
    file: options.Files,
    group: Annotated[list[str], typer.Option(help="Sensitive column; give several for each and their combinations.")],
    prediction: Annotated[
        list[str] | None, typer.Option(help="Column with what any model predicted; give two to compare them.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Column with the truth; adds accuracies and their gaps.")] = None,
    score: Annotated[str | None, typer.Option(help="Column with a score, more is better.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Scores above it are favourable; by default their median.")] = None,
    favourable: Annotated[str | None, typer.Option(help="The prediction that is good for people, e.g. approved.")] = None,
    fair_class: Annotated[list[str] | None, typer.Option(help="Class that gaps are about; by default all classes.")] = None,
    missing_groups: Annotated[
        str | None,
        typer.Option(
            help="Where a group is missing: 'group' of its own (the default), or 'ignore', shown but not compared."
        ),
    ] = None,
    earlier: Annotated[
        Path | None, typer.Option(help="The same columns of other rows, e.g. of last year: adds what has changed since.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File for the whole audit: .html (a page), .md or .json.")] = None,
    *,
    force: options.Force = False,
) -> None:
    """Show how often each group gets the favourable outcome and, with a target, how often it is judged rightly."""
    from fairdro._utils.files import check_new
    from fairdro._utils.parts import Parts, files_of
    from fairdro.audit import audit_table, write_audit
    from fairdro.audit.outputs import check_format

    files, before = files_of(file), None if earlier is None else files_of([earlier])
    if out is not None:
        check_format(out)
        check_new(out, force=force, inputs=[*files, *(before or [])])
    with steps("looking at files") as on_step:
        table = Parts.of(files, on_step)
        rows_before = None if before is None else Parts.of(before, on_step)
    given = options.given_of(
        predictions=prediction, target=target, score=score, threshold=threshold, favourable=favourable,
        fair_classes=fair_class, missing_groups=missing_groups, earlier=rows_before,
    )  # fmt: skip
    found = audit_table(table, groups=group, stage=steps, **given)
    if out is not None:
        audited = ", ".join([*found.predictions, *([score] if score else [])])
        write_audit(found, out, title=f"Audit of {audited} in {files[0].name if len(files) == 1 else f'{len(files)} files'}")
    _print(found)
    tell(f"The whole audit is in {out}." if out is not None else "Add --out audit.html for the whole audit as a page.")


def _print(found: Audit) -> None:
    """Print what was assumed, the findings, rates by group and, where there is a target, accuracies by class and group."""
    from fairdro.audit.words import in_short

    for note in found.notes:
        tell(note)
    tables = [table for part in found.parts for table in _rate_tables(found, part)]
    for table in tables[:MOST_TABLES]:
        console.print(table)
    if len(tables) > MOST_TABLES:
        tell(f"{len(tables) - MOST_TABLES} more tables of rates are in the whole audit.")
    if found.parts[-1].judged:
        _print_accuracies(found, found.parts[-1])
    for sentence in in_short(found):
        tell(f"- {sentence}")


def _table(title: str, names: list[str], figures: list[str]) -> Table:
    """Return an empty table: names may wrap, figures may not."""
    columns = [Column(one_line(name)) for name in names] + [Column(one_line(name), no_wrap=True) for name in figures]
    named = Text("\n").append(one_line(title))
    table = Table(*columns, title=named, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.pad_edge = False
    return table


def _rate_tables(found: Audit, part: Part) -> list[Table]:
    from fairdro.audit.document import rows_of
    from fairdro.audit.words import between, p_value, remark

    tables = []
    by = part.grouping.title
    for rates in part.rates:
        if part.rate_changes and rates.outcome.value is not None:
            continue  # both predictions stand in one table of changes
        table = _table(f"{rates.outcome.words}, by {by}", ["group"], ["rows", "rate, %", "impact ratio", "p", "note"])
        for name, row in rows_of(rates.table):
            ratio = between(row["ratio"], row["ratio_low"], row["ratio_high"], unit=1, digits=2, to="-")
            rate = between(row["rate"], row["low"], row["high"], to="-")
            table.add_row(one_line(name), f"{row['rows']:,}", rate, ratio, p_value(row["p_value"]), remark(row))
        tables.append(table)
    for outcome, changed in part.rate_changes:
        table = _table(f"rates of {outcome.value}, by {by}, in percent", ["group"], ["rows", *found.predictions, "change"])
        for name, row in rows_of(changed):
            table.add_row(one_line(name), *_change(row))
        tables.append(table)
    return tables


def _change(row: dict[str, Any]) -> list[str]:
    from fairdro.audit.words import between

    figures = [percent(row["before"]), percent(row["after"]), between(row["change"], row["low"], row["high"])]
    return [f"{row['rows']:,}", *figures]


def _print_accuracies(found: Audit, part: Part) -> None:
    """Print the metrics of every prediction with intervals, and every class and group."""
    from fairdro.audit.words import HOLDS, between
    from fairdro.estimators.card import METRIC_NAMES, by_cell

    title = "accuracy, with 95 % bootstrap intervals, drawn within each class and group"
    metrics = _table(title, ["in percent"], found.predictions)
    columns = [judged.confusion.metrics() for judged in part.judged]
    for name, title in METRIC_NAMES.items():
        metrics.add_row(title, *(between(*column.loc[name]) for column in columns))
    console.print(metrics)
    for judged in part.judged:
        tell(f"{judged.certificate.sentence()} {HOLDS}")
    if part.judged[0].confusion.about:
        tell(part.judged[0].confusion.about)
    title = "accuracy of each class and group, in percent"
    if part.accuracy_changes is not None:
        cells = _table(title, ["class", "group"], ["rows", *found.predictions, "change"])
        for (label, of), row in by_cell(part.accuracy_changes):
            cells.add_row(one_line(label), one_line(of), *_change(row))
    else:
        cells = _table(title, ["class", "group"], ["rows", "accuracy", "note"])
        cells.columns[-1].no_wrap = False
        for (label, of), cell in by_cell(part.judged[0].cells):
            figure = between(cell["accuracy"], cell["low"], cell["high"])
            cells.add_row(one_line(label), one_line(of), f"{cell['rows']:,}", figure, cell["note"])
    console.print(cells)
