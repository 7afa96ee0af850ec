"""``fairdro fit``, ``head`` and ``predict``: tables of one's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from fairdro._utils.markdown import percent
from fairdro.cli import options
from fairdro.cli.certificates import certifying
from fairdro.cli.terminal import console, one_line, sentences, status, steps, tell, together
from fairdro.errors import InputError

if TYPE_CHECKING:
    from fairdro.estimators.tables import FittedTable


def fit(
    file: options.Files,
    target: Annotated[str, typer.Option(help="Column to predict.")],
    group: Annotated[list[str], typer.Option(help="Sensitive column to be fair to; give several for their combinations.")],
    out: Annotated[Path, typer.Option(help="Folder for the model and its card.")],
    keep_accuracy: options.KeepAccuracy = None,
    keep_class_accuracy: options.KeepClassAccuracy = None,
    floor: options.Floor = None,
    objective: options.Objective = None,
    class_weight: options.ClassWeight = None,
    fair_class: options.FairClass = None,
    rho: Annotated[float | None, typer.Option(help="Radius, instead of one that is chosen.")] = None,
    certify: options.Certify = None,
    certified_dca: options.CertifiedDca = None,
    delta: options.Delta = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="'linear', the default, 'mlp', 'boosting' for boosted trees, or 'head': a classifier with a fair head.",
            autocompletion=options.complete("model", also=["head"]),
        ),
    ] = None,
    missing_groups: options.MissingGroups = None,
    small_cells: Annotated[
        str | None,
        typer.Option(help="Where a class and group have too few rows: 'warn', the default, 'merge' groups or 'refuse'."),
    ] = None,
    min_cell_size: Annotated[int | None, typer.Option(help="How many held-out rows are enough; by default 30.")] = None,
    max_iter: Annotated[
        int | None,
        typer.Option(
            help="Most steps of linear models, by default 200, or epochs of mlp: more where a radius has not converged."
        ),
    ] = None,
    estimator: Annotated[
        str | None,
        typer.Option(
            help="With --model head: a classifier by its dotted name, e.g. sklearn.ensemble.RandomForestClassifier.",
            autocompletion=options.complete("estimator"),
        ),
    ] = None,
    memory: options.Memory = None,
    *,
    force: options.Force = False,
) -> None:
    """Train a fair model on your own table and save it with its card; also under torchrun, for tables in many files."""
    from fairdro._utils.files import check_writable
    from fairdro.estimators import save
    from fairdro.estimators.large_tables import fit_files
    from fairdro.estimators.saving import check_free
    from fairdro.training.processes import agreed, rank

    given = _choice(
        rho=rho,
        **certifying(certify, certified_dca, delta),
        keep_accuracy=keep_accuracy,
        keep_class_accuracy=keep_class_accuracy,
        floor=floor,
        objective=objective,
        class_weight=_costs(class_weight),
        fair_classes=fair_class,
        drop=drop,
        model=model,
        missing_groups=missing_groups,
        small_cells=small_cells,
        min_cell_size=min_cell_size,
        max_iter=max_iter,
        estimator=estimator,
    )

    def check_out() -> None:
        if check_free(out) is not None and not force:
            raise InputError(f"There is a model in {out} already; name another folder, or add --force to replace it.")
        check_writable(out / "model.json")

    with together():
        agreed(check_out)
        with sentences(late=True):
            fitted = fit_files(
                file, target=target, groups=group, memory=options.memory_of(memory), folder=_scratch(out), stage=steps,
                verbose=rank() == 0, **given,
            )  # fmt: skip
        if rank() > 0:
            return
    files = [path.name for path in file]
    read = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    save(fitted.model, out, about={"predicts": target, "groups": ", ".join(group), "trained on": read})
    _print_fitted(fitted, f"The model and its card are in {out}.")


def _scratch(out: Path) -> Path:
    """Return the folder for temporary rows: TMPDIR where it is set, else the one the model goes into, as it is large."""
    if "TMPDIR" in os.environ:
        return Path(os.environ["TMPDIR"])
    return next(parent for parent in (out.absolute(), *out.absolute().parents) if parent.is_dir())


def _choice(**given: Any) -> dict[str, Any]:
    """Return the options that were given, unless two of them say how to choose rho."""
    if given["keep_accuracy"] is not None and given["rho"] is not None:
        raise InputError("Give --keep-accuracy or --rho, not both: the first chooses rho.")
    if "rule" in given and (given["keep_accuracy"] is not None or given["rho"] is not None):
        raise InputError("Give --certified-dca, --keep-accuracy or --rho, not two of them: each says how to choose rho.")
    if given["keep_accuracy"] is not None and not 0 <= given["keep_accuracy"] <= 1:
        raise InputError(f"--keep-accuracy is a share between 0 and 1, got {given['keep_accuracy']:g}.")
    return options.given_of(**given)


def _costs(given: list[str] | None) -> dict[str, float] | str | None:
    """Read costs of classes: name=cost, or the word balanced."""
    if not given or given == ["balanced"]:
        return given[0] if given else None
    costs = {}
    for text in given:
        name, _, cost = text.rpartition("=")
        try:
            costs[name] = float(cost)
        except ValueError as error:
            raise InputError(
                f"--class-weight takes a class and its cost, e.g. 'denied=5', or 'balanced'; got {text!r}."
            ) from error
    return costs


def _print_fitted(fitted: FittedTable, where: str) -> None:
    """Print what was done, accuracies before and after, and who pays."""
    for note in fitted.notes:
        tell(note)
    _print_before_and_after(fitted)
    final = fitted.final
    for sentence in final.who_pays():
        tell(sentence)
    chosen = "as asked for" if final._asked_ else f"the {final._how_chosen_}"
    if hasattr(final, "certificate_"):
        certificate = final.certificate_
        tell(f"{certificate.sentence()} These rows were set aside before anything else.")
        tell(certificate.further())
    tell(f"rho = {final.rho_:.4g}, {chosen}. {where}")


def _print_before_and_after(fitted: FittedTable) -> None:
    """Print the accuracy of every class and group, and the metrics, of training as usual, plain training and the model."""
    from fairdro.estimators.card import by_cell

    shown = fitted.columns
    table = Table("class", "group", "rows", *shown, "note", title="Accuracy on held-out rows, in percent")
    accuracies = [judged.cells()["accuracy"] for judged in shown.values()]
    for (label, of), row in by_cell(shown["fair"].cells()):
        figures = (percent(accuracy[label, of]) for accuracy in accuracies)
        table.add_row(one_line(label), one_line(of), f"{row['count']:,}", *figures, row["note"])
    table.add_section()
    metrics = [judged.metrics() for judged in shown.values()]
    titles = {"accuracy": "balanced accuracy", "standard_accuracy": "ordinary accuracy", "dca": "DCA (gap)"}
    for name, title in titles.items():
        values = [[percent(found[c][name]) for c in ("value", "low", "high")] for found in metrics]
        table.add_row(title, "", "", *(f"{value} ({low} to {high})" for value, low, high in values))
    console.print(table)
    if shown["fair"].about:
        tell(shown["fair"].about)
    counted = {"balanced": "every class and group counts the same", "standard": "every row counts the same"}
    costs = ", times the costs of the classes" if fitted.final.class_weight_ is not None else ""
    plain = f"; plain: {counted[fitted.final.objective]}{costs}, rho 0" if "plain" in shown else ""
    tell(f"as usual: every row counts the same, no fairness{plain}; fair: the model that was chosen.")


def head(
    file: Annotated[Path, typer.Argument(help="Table in CSV or Parquet, of rows that no model was trained on.")],
    target: Annotated[str, typer.Option(help="Column with the class.")],
    group: Annotated[list[str], typer.Option(help="Sensitive column to be fair to; give several for their combinations.")],
    class_columns: Annotated[str, typer.Option(help="Columns with the classes' probabilities; * is the class: 'p_*'.")],
    out: Annotated[Path, typer.Option(help="File for the head, in JSON.")],
    group_columns: Annotated[
        str | None, typer.Option(help="The same of the groups: 'g_*'. Without, the head infers no groups.")
    ] = None,
    keep_accuracy: options.KeepAccuracy = None,
    keep_class_accuracy: options.KeepClassAccuracy = None,
    floor: options.Floor = None,
    objective: options.Objective = None,
    class_weight: options.ClassWeight = None,
    fair_class: options.FairClass = None,
    missing_groups: options.MissingGroups = None,
    rho: Annotated[float | None, typer.Option(help="Radius, instead of one that is chosen.")] = None,
    certify: options.Certify = None,
    certified_dca: options.CertifiedDca = None,
    delta: options.Delta = None,
    *,
    force: options.Force = False,
) -> None:
    """Fit a fair head to the probabilities of any model, and save it."""
    from fairdro._utils.files import check_new, read_table
    from fairdro.estimators.tables import fit_head_table

    check_new(out, force=force, inputs=[file])

    given = _choice(
        rho=rho,
        **certifying(certify, certified_dca, delta),
        keep_accuracy=keep_accuracy,
        keep_class_accuracy=keep_class_accuracy,
        floor=floor,
        objective=objective,
        class_weight=_costs(class_weight),
        fair_classes=fair_class,
        missing_groups=missing_groups,
    )
    with status(f"Reading {file} ..."):
        table = read_table(file)
    with sentences(late=True):
        fitted = fit_head_table(
            table, target=target, groups=group, class_columns=class_columns, group_columns=group_columns, **given
        )
    fitted.model.save(out)
    _print_fitted(fitted, f"The head is in {out}.")


def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a model made by `fairdro fit`, or file of a head.")],
    file: options.Files,
    out: Annotated[
        Path | None, typer.Option(help="Table to write, in CSV or Parquet; by default FILE with -predicted in its name.")
    ] = None,
    *,
    force: options.Force = False,
) -> None:
    """Write a table again with the predicted class and the probability of every class; no group is needed."""
    from fairdro._utils.files import check_new, check_table_name
    from fairdro._utils.parts import Parts, files_of
    from fairdro.estimators import load
    from fairdro.estimators.large_tables import predict_parts

    files = files_of(file)
    if out is None and len(files) > 1:
        raise InputError("Name the table to write (--out), as several are read.")
    out = files[0].with_name(f"{files[0].stem}-predicted{files[0].suffix}") if out is None else out
    check_table_name(out, writing=True)
    check_new(out, force=force, inputs=files)
    with status(f"Reading {files[0]} ..."):
        fitted = load(model)
        parts = Parts.of(files)
    with steps("predicting") as on_step:
        notes = predict_parts(fitted, parts, out, on_step)
    for note in notes:
        tell(note)
    tell(f"{parts.rows:,} rows predicted; they are in {out}.")
