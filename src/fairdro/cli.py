"""The command line: parses, calls, prints."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated

import joblib
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from fairdro.bench import Bank, BenchPlan, OnStep, Store, Study, read_study, run_bench, write_outputs
from fairdro.bench.tables import findings, how_chosen
from fairdro.data import DATASETS
from fairdro.errors import InputError
from fairdro.frontier import Rule, rule_from
from fairdro.methods import METHODS
from fairdro.models import MODELS

app = typer.Typer(
    help="Group-fair training by classwise robust optimisation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
console = Console() if sys.stdout.isatty() else Console(width=140)


SELECT_HELP = "How to choose a point of each method: 'keep=0.95' (the paper's rule), 'max-dca=0.05' or 'knee'."


class Kind(StrEnum):
    """What ``fairdro list`` can list."""

    methods = "methods"
    datasets = "datasets"
    models = "models"


@app.callback(invoke_without_command=True)
def _root(
    *, version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False
) -> None:
    """Group-fair training by classwise robust optimisation."""
    if version:
        console.print(f"fairdro {metadata.version('fairdro')}", highlight=False)
        raise typer.Exit


@app.command()
def bench(
    context: typer.Context,
    datasets: Annotated[list[str] | None, typer.Argument(help="Datasets to compare on.", show_default=False)] = None,
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas, or 'all'; `fairdro list methods`.")
    ] = "scratch,fairdro",
    solvers: Annotated[
        str, typer.Option(help="'fullbatch' (deterministic), 'minibatch' (the paper's), or both, separated by commas.")
    ] = "fullbatch",
    model: Annotated[str, typer.Option(help="Model to train.")] = "linear",
    points: Annotated[int, typer.Option(help="Hyperparameter points per method.")] = 20,
    seeds: Annotated[int, typer.Option(help="Seeds per point with the mini-batch solver.")] = 4,
    protocol: Annotated[
        str, typer.Option(help="'paper': choose on the test part, as the paper did; 'validated': on a validation part.")
    ] = "paper",
    split: Annotated[int, typer.Option(help="Seed of the train/test split; 0 is the paper's.")] = 0,
    objective: Annotated[
        str, typer.Option(help="What baselines minimise: 'balanced' (every cell counts the same) or 'standard'.")
    ] = "balanced",
    adaptive: Annotated[
        bool | None,
        typer.Option(
            "--adaptive/--plain-grid",
            help="Put half the points where the frontier has holes; by default with the full-batch solver.",
            show_default=False,
        ),
    ] = None,
    select: Annotated[str, typer.Option(help=SELECT_HELP)] = "keep=0.95",
    workers: Annotated[
        int | None, typer.Option(help="Processes to train in; by default as many as suit.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for results, tables, pictures and the report.")] = Path("results"),
    file: Annotated[
        Path | None, typer.Option(help="A study in TOML, instead of all other options.", show_default=False)
    ] = None,
) -> None:
    """Train methods over their hyperparameters and compare accuracy with fairness. A bench that was stopped goes on."""
    if (file is None) == (not datasets):
        raise InputError(f"Name the datasets to compare on ({', '.join(DATASETS)}), or a study with --file; one of the two.")
    if file is not None:
        given = [f"--{name}" for name in context.params if name != "file" and _was_given(context, name)]
        if given:
            raise InputError(f"A study says all there is to say; leave out {', '.join(given)}, or write it into {file}.")
        study = read_study(file)
    else:
        plan = BenchPlan(
            datasets=datasets or [],
            methods=_names(methods),
            solvers=_names(solvers),
            model=model,
            points=points,
            seeds=seeds,
            protocol=protocol,
            split=split,
            objective=objective,
            adaptive=adaptive,
        )
        study = Study([plan], out, workers, rule_from(select))
    try:
        with _progress([bank for plan in study.plans for bank in plan.banks()]) as on_step:
            for plan in study.plans:
                processes = _workers_for(plan) if study.workers is None else study.workers
                run_bench(plan, study.out, workers=processes, on_step=on_step)
    except KeyboardInterrupt:
        _say("stopped. What is finished is stored; run the same command again to go on.")
        raise typer.Exit(130) from None
    _show(study.out, study.rule)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Output folder of a bench.", show_default=False)],
    select: Annotated[str, typer.Option(help=SELECT_HELP)] = "keep=0.95",
) -> None:
    """Make tables, pictures and the report of a bench again, from what is stored."""
    _show(folder, rule_from(select))


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _workers_for(plan: BenchPlan) -> int:
    """Return one process for the full-batch solver, which has threads of its own; for mini-batches one per core."""
    return joblib.cpu_count() if "minibatch" in plan.solvers else 1


def _show(out: Path, rule: Rule) -> None:
    """Write what people look at, print the table, and say what was found and where to look."""
    store = Store(out)
    results = store.results()
    if store.outdated:
        _say(f"{store.outdated} stored banks are of another version or of other data, and are left out.")
    with console.status("Drawing ...") if console.is_terminal else nullcontext():
        selected, shown = write_outputs(store, out, rule)
    table = Table(*shown.columns, title=how_chosen(results, rule))
    for row in shown.itertuples(index=False):
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    for line in findings(selected):
        _print(line)
    _print(f"Open {out / 'report.html'} to explore; tables, pictures and results.csv lie beside it.")


@app.command(name="list")
def list_(kind: Annotated[Kind, typer.Argument(help="What to list.", show_default=False)]) -> None:
    """List methods, datasets or models with a line on each."""
    registries: dict[Kind, Mapping[str, object]] = {
        Kind.methods: METHODS,
        Kind.datasets: DATASETS,
        Kind.models: MODELS,
    }
    for name, item in registries[kind].items():
        summary = (item.__doc__ or "").strip().splitlines()[0]
        _print(f"{name:22} {summary}")


def _print(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _say(sentence: str) -> None:
    Console(stderr=True).print(f"fairdro: {sentence}", markup=False, highlight=False, soft_wrap=True)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@contextmanager
def _progress(banks: list[Bank]) -> Iterator[OnStep]:
    """Show a bar for the whole and one per bank in training on a terminal, a plain line per finished bank elsewhere."""
    finished: set[Bank] = set()
    if not console.is_terminal:

        def announce(bank: Bank, done: int, total: int) -> None:
            if done == total == 1 and bank not in finished:
                finished.add(bank)
                line = f"[{len(finished)}/{max(len(finished), len(banks))}] {bank}"
                _print(line)

        yield announce
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console) as progress:
        overall = progress.add_task(f"{len(banks)} banks", total=sum(bank.cost for bank in banks))
        share: dict[Bank, float] = {}
        bars: dict[Bank, TaskID] = {}

        def follow(bank: Bank, done: int, total: int) -> None:
            if bank in finished:  # what a worker reported of it may come late
                return
            share[bank] = bank.cost * done / total
            known = {*banks, *share}
            progress.update(overall, completed=sum(share.values()), total=sum(b.cost for b in known))
            if done == total == 1:
                finished.add(bank)
                if bank in bars:
                    progress.remove_task(bars.pop(bank))
                progress.update(overall, description=f"{len(finished)} of {len(known)} banks")
                return
            if bank not in bars:
                bars[bank] = progress.add_task(str(bank), total=total)
            progress.update(bars[bank], completed=done, total=total)

        yield follow


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2."""
    try:
        app()
    except InputError as error:
        _say(str(error))
        sys.exit(2)
