"""``fairdro fit``, ``predict`` and ``audit``: tables of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from fairdro.card import METRIC_NAMES, build_audit, by_cell
from fairdro.cells import TOO_FEW
from fairdro.cli.terminal import console, percent, sentences, status, tell
from fairdro.errors import InputError
from fairdro.files import check_table_name, read_table, write_table, write_whole
from fairdro.frontier import KeepAccuracy

if TYPE_CHECKING:
    from fairdro.tabular import FittedTable

__all__ = ["audit", "fit", "predict"]


def fit(
    file: Annotated[Path, typer.Argument(help="Table in CSV or Parquet.", show_default=False)],
    target: Annotated[str, typer.Option(help="Column to predict.", show_default=False)],
    group: Annotated[
        list[str],
        typer.Option(help="Sensitive column to be fair to; give several for their combinations.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model and its card.", show_default=False)],
    keep_accuracy: Annotated[
        float | None,
        typer.Option(
            help="Share of plain training's accuracy to keep on held-out rows; 0.95 by default.", show_default=False
        ),
    ] = None,
    rho: Annotated[float | None, typer.Option(help="Radius, instead of one that is chosen.", show_default=False)] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out.", show_default=False)] = None,
    model: Annotated[str, typer.Option(help="'linear', or 'boosting' for boosted trees.")] = "linear",
    small_cells: Annotated[
        str, typer.Option(help="Where a class and group have too few rows: 'merge' groups, 'warn' or 'refuse'.")
    ] = "merge",
    min_cell_size: Annotated[int, typer.Option(help="How many rows are enough.")] = TOO_FEW,
) -> None:
    """Train a fair model on your own table and save it with its card."""
    from fairdro.estimators import save  # noqa: PLC0415 - a while to load
    from fairdro.saving import check_free  # noqa: PLC0415
    from fairdro.tabular import fit_table  # noqa: PLC0415

    if keep_accuracy is not None and rho is not None:
        raise InputError("Give --keep-accuracy or --rho, not both: the first chooses rho.")
    rule = KeepAccuracy(0.95 if keep_accuracy is None else keep_accuracy)
    check_free(out)
    with status(f"Reading {file} ..."):
        table = read_table(file)
    with sentences():
        fitted = fit_table(
            table,
            target=target,
            groups=group,
            drop=drop or [],
            rho=rho,
            keep_accuracy=rule.share,
            model=model,
            small_cells=small_cells,
            min_cell_size=min_cell_size,
            verbose=True,
        )
    save(fitted.model, out)
    for note in fitted.notes:
        tell(note)
    _print_before_and_after(fitted)
    chosen = "as asked for" if rho is not None else f"the {rule}"
    tell(f"rho = {fitted.rho:.4g}, {chosen}. The model and its card are in {out}.")


def _print_before_and_after(fitted: FittedTable) -> None:
    """Print the accuracy of every cell, and the metrics, of plain training and of the model."""
    table = Table("class", "group", "rows", "plain", "fair", "note", title="Accuracy on held-out rows, in percent")
    before, after = fitted.before.cells(), fitted.after.cells()
    for (label, of), row in by_cell(after):
        plain = percent(before["accuracy"][label, of])
        table.add_row(Text(label), Text(of), f"{row['count']:,}", plain, percent(row["accuracy"]), row["note"])
    table.add_section()
    before, after = fitted.before.metrics(), fitted.after.metrics()
    for name in ("accuracy", "dca"):
        values = [
            f"{percent(m['value'][name])} ({percent(m['low'][name])} to {percent(m['high'][name])})" for m in (before, after)
        ]
        table.add_row({"accuracy": "balanced accuracy", "dca": "DCA (gap)"}[name], "", "", *values)
    console.print(table)


def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a model made by `fairdro fit`.", show_default=False)],
    file: Annotated[Path, typer.Argument(help="Table in CSV or Parquet; needs no group.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Table to write, in CSV or Parquet.", show_default=False)],
) -> None:
    """Write a table again with the predicted class and the probability of every class."""
    from fairdro.estimators import load  # noqa: PLC0415 - a while to load
    from fairdro.tabular import predict_table, texts_of  # noqa: PLC0415

    check_table_name(out, writing=True)
    with status(f"Predicting {file} ..."):
        fitted = load(model)
        predicted, notes = predict_table(fitted, read_table(file, texts=texts_of(fitted)))
        table = read_table(file, raw=True)  # every field as it was
        for name in predicted.column_names:
            table = table.append_column(name, predicted[name])
        write_table(table, out)
    for note in notes:
        tell(note)
    tell(f"{table.num_rows:,} rows predicted; they are in {out}.")


def audit(
    file: Annotated[Path, typer.Argument(help="Table in CSV or Parquet with truth and predictions.", show_default=False)],
    target: Annotated[str, typer.Option(help="Column with the truth.", show_default=False)],
    prediction: Annotated[str, typer.Option(help="Column with what any model predicted.", show_default=False)],
    group: Annotated[
        list[str], typer.Option(help="Sensitive column; give several for their combinations.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option(help="File for the same in Markdown.", show_default=False)] = None,
) -> None:
    """Judge the predictions of any model: metrics with intervals, and every class and group."""
    from fairdro.tabular import audit_table  # noqa: PLC0415 - a while to load

    with status(f"Reading {file} ..."):
        table = read_table(file)
    judged, notes = audit_table(table, target=target, prediction=prediction, groups=group)
    if out is not None:
        write_whole(out, build_audit(f"{prediction!r} against {target!r} in {file.name}", judged, notes))
    for note in notes:
        tell(note)
    metrics = Table("in percent", "value", "from", "to", title="95 % bootstrap intervals, drawn within each class and group")
    for name, *row in judged.metrics().itertuples():
        metrics.add_row(METRIC_NAMES[str(name)], *map(percent, row))
    console.print(metrics)
    cells = Table("class", "group", "rows", "accuracy", "from", "to", "note")
    for (label, of), cell in by_cell(judged.cells()):
        figures = (percent(cell[name]) for name in ("accuracy", "low", "high"))
        cells.add_row(Text(label), Text(of), f"{cell['count']:,}", *figures, cell["note"])
    console.print(cells)
    if out is not None:
        tell(f"The same is in {out}.")
