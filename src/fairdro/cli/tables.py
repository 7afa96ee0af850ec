"""``fairdro fit``, ``predict`` and ``audit``: tables of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from fairdro._utils.markdown import percent
from fairdro.cli import options
from fairdro.cli.terminal import console, sentences, status, tell
from fairdro.errors import InputError

if TYPE_CHECKING:
    from fairdro.estimators.tables import FittedTable
    from fairdro.metrics import Confusion


KEEP_CLASS_HELP = "Share of plain training's accuracy that every class keeps, where that can be; by default 0.8."
FLOOR_HELP = "Likewise, accuracy of the worst class and group."
OBJECTIVE_HELP = "What to keep: 'balanced' accuracy over classes and groups, the default, or 'standard', that of all rows."


def fit(
    file: Annotated[Path, typer.Argument(help="Table in CSV or Parquet.")],
    target: Annotated[str, typer.Option(help="Column to predict.")],
    group: Annotated[list[str], typer.Option(help="Sensitive column to be fair to; give several for their combinations.")],
    out: Annotated[Path, typer.Option(help="Folder for the model and its card.")],
    keep_accuracy: Annotated[
        float | None, typer.Option(help="Share of plain training's accuracy to keep on held-out rows; by default 0.95.")
    ] = None,
    keep_class_accuracy: Annotated[float | None, typer.Option(help=KEEP_CLASS_HELP)] = None,
    floor: Annotated[float | None, typer.Option(help=FLOOR_HELP)] = None,
    objective: Annotated[str | None, typer.Option(help=OBJECTIVE_HELP)] = None,
    rho: Annotated[float | None, typer.Option(help="Radius, instead of one that is chosen.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="'linear', the default, 'mlp', 'boosting' for boosted trees, or 'head': a classifier with a fair head.",
            autocompletion=options.complete("model", also=["head"]),
        ),
    ] = None,
    small_cells: Annotated[
        str | None,
        typer.Option(help="Where a class and group have too few rows: 'warn', the default, 'merge' groups or 'refuse'."),
    ] = None,
    min_cell_size: Annotated[int | None, typer.Option(help="How many rows are enough; by default 30.")] = None,
    estimator: Annotated[
        str | None,
        typer.Option(
            help="With --model head: a classifier by its dotted name, e.g. sklearn.ensemble.RandomForestClassifier.",
            autocompletion=options.complete("estimator"),
        ),
    ] = None,
) -> None:
    """Train a fair model on your own table and save it with its card."""
    from fairdro._utils.files import read_table
    from fairdro.estimators import save
    from fairdro.estimators.saving import check_free
    from fairdro.estimators.tables import fit_table
    from fairdro.selection import KeepAccuracy

    if keep_accuracy is not None and rho is not None:
        raise InputError("Give --keep-accuracy or --rho, not both: the first chooses rho.")
    rule = KeepAccuracy() if keep_accuracy is None else KeepAccuracy(keep_accuracy)
    given = options.given_of(
        rho=rho,
        keep_class_accuracy=keep_class_accuracy,
        floor=floor,
        objective=objective,
        drop=drop,
        model=model,
        small_cells=small_cells,
        min_cell_size=min_cell_size,
        estimator=estimator,
    )
    check_free(out)
    with status(f"Reading {file} ..."):
        table = read_table(file)
    with sentences():
        fitted = fit_table(table, target=target, groups=group, keep_accuracy=rule.keep_accuracy, verbose=True, **given)
    save(fitted.model, out)
    for note in fitted.notes:
        tell(note)
    _print_before_and_after(fitted)
    for sentence in fitted.model[-1].who_pays():
        tell(sentence)
    chosen = "as asked for" if rho is not None else f"the {rule}"
    tell(f"rho = {fitted.rho:.4g}, {chosen}. The model and its card are in {out}.")


def _print_before_and_after(fitted: FittedTable) -> None:
    """Print the accuracy of every cell, and the metrics, of plain training and of the model."""
    from fairdro.estimators.card import by_cell

    table = Table("class", "group", "rows", "plain", "fair", "note", title="Accuracy on held-out rows, in percent")
    before = fitted.before.cells()["accuracy"]
    for (label, of), row in by_cell(fitted.after.cells()):
        accuracies = (percent(before[label, of]), percent(row["accuracy"]))
        table.add_row(Text(label), Text(of), f"{row['count']:,}", *accuracies, row["note"])
    table.add_section()
    judged = [fitted.before.metrics(), fitted.after.metrics()]
    titles = {"accuracy": "balanced accuracy", "standard_accuracy": "ordinary accuracy", "dca": "DCA (gap)"}
    for name, title in titles.items():
        values = [[percent(metrics[c][name]) for c in ("value", "low", "high")] for metrics in judged]
        table.add_row(title, "", "", *(f"{value} ({low} to {high})" for value, low, high in values))
    console.print(table)


def head(
    file: Annotated[Path, typer.Argument(help="Table in CSV or Parquet, of rows that no model was trained on.")],
    target: Annotated[str, typer.Option(help="Column with the class.")],
    group: Annotated[list[str], typer.Option(help="Sensitive column to be fair to; give several for their combinations.")],
    class_columns: Annotated[str, typer.Option(help="Columns with the classes' probabilities; * is the class: 'p_*'.")],
    out: Annotated[Path, typer.Option(help="File for the head, in JSON.")],
    group_columns: Annotated[
        str | None, typer.Option(help="The same of the groups: 'g_*'. Without, the head infers no groups.")
    ] = None,
    keep_accuracy: Annotated[float | None, typer.Option(help="Share of plain accuracy to keep; by default 0.95.")] = None,
    keep_class_accuracy: Annotated[float | None, typer.Option(help=KEEP_CLASS_HELP)] = None,
    floor: Annotated[float | None, typer.Option(help=FLOOR_HELP)] = None,
    objective: Annotated[str | None, typer.Option(help=OBJECTIVE_HELP)] = None,
    rho: Annotated[float | None, typer.Option(help="Radius, instead of one that is chosen.")] = None,
) -> None:
    """Fit a fair head to the probabilities of any model, and save it."""
    from fairdro._utils.files import read_table
    from fairdro.estimators.tables import FittedTable, fit_head_table

    if keep_accuracy is not None and rho is not None:
        raise InputError("Give --keep-accuracy or --rho, not both: the first chooses rho.")
    given = options.given_of(
        keep_accuracy=keep_accuracy, keep_class_accuracy=keep_class_accuracy, floor=floor, objective=objective, rho=rho
    )
    with status(f"Reading {file} ..."):
        table = read_table(file)
    with sentences():
        fitted, notes = fit_head_table(
            table, target=target, groups=group, class_columns=class_columns, group_columns=group_columns, **given
        )
    fitted.save(out)
    for note in notes:
        tell(note)
    _print_before_and_after(FittedTable(fitted, fitted.held_out(0), fitted.held_out(), fitted.rho_, []))
    for sentence in fitted.who_pays():
        tell(sentence)
    tell(f"rho = {fitted.rho_:.4g}, the {fitted._how_chosen_}. The head is in {out}.")


def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a model made by `fairdro fit`, or file of a head.")],
    file: Annotated[Path, typer.Argument(help="Table in CSV or Parquet; needs no group.")],
    out: Annotated[
        Path | None, typer.Option(help="Table to write, in CSV or Parquet; by default FILE with -predicted in its name.")
    ] = None,
) -> None:
    """Write a table again with the predicted class and the probability of every class."""
    from fairdro._utils.files import check_table_name, read_table, write_table
    from fairdro.estimators import FairDROHead, load
    from fairdro.estimators.tables import predict_head_table, predict_table, string_columns

    out = file.with_name(f"{file.stem}-predicted{file.suffix}") if out is None else out
    check_table_name(out, writing=True)
    with status(f"Predicting {file} ..."):
        fitted = load(model)
        notes: list[str] = []
        if isinstance(fitted, FairDROHead):
            predicted = predict_head_table(fitted, read_table(file))
        else:
            predicted, notes = predict_table(fitted, read_table(file, strings=string_columns(fitted)))
        table = read_table(file, raw=True)  # every field as it was
        for name in predicted.column_names:
            table = table.append_column(name, predicted[name])
        write_table(table, out)
    for note in notes:
        tell(note)
    tell(f"{table.num_rows:,} rows predicted; they are in {out}.")


def audit(
    file: Annotated[Path, typer.Argument(help="Table in CSV or Parquet with truth and predictions.")],
    target: Annotated[str, typer.Option(help="Column with the truth.")],
    prediction: Annotated[str, typer.Option(help="Column with what any model predicted.")],
    group: Annotated[list[str], typer.Option(help="Sensitive column; give several for their combinations.")],
    out: Annotated[Path | None, typer.Option(help="File for the same in Markdown.")] = None,
) -> None:
    """Judge the predictions of any model: metrics with intervals, and every class and group."""
    from fairdro._utils.files import read_table, write_whole
    from fairdro.estimators.card import build_audit
    from fairdro.estimators.tables import audit_table

    with status(f"Reading {file} ..."):
        table = read_table(file)
    judged, notes = audit_table(table, target=target, prediction=prediction, groups=group)
    if out is not None:
        write_whole(out, build_audit(f"{prediction!r} against {target!r} in {file.name}", judged, notes))
    for note in notes:
        tell(note)
    _print_audit(judged)
    if out is not None:
        tell(f"The same is in {out}.")


def _print_audit(judged: Confusion) -> None:
    """Print the metrics with intervals, and every class and group."""
    from fairdro.estimators.card import METRIC_NAMES, by_cell

    metrics = Table("in percent", "value", "from", "to", title="95 % bootstrap intervals, drawn within each class and group")
    for name, *row in judged.metrics().itertuples():
        metrics.add_row(METRIC_NAMES[str(name)], *map(percent, row))
    console.print(metrics)
    cells = Table("class", "group", "rows", "accuracy", "from", "to", "note")
    for (label, of), cell in by_cell(judged.cells()):
        figures = (percent(cell[name]) for name in ("accuracy", "low", "high"))
        cells.add_row(Text(label), Text(of), f"{cell['count']:,}", *figures, cell["note"])
    console.print(cells)
