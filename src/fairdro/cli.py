"""The command line: parses, calls, prints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from fairdro.bench import Bank, BenchPlan, OnStep, run_bench, write_outputs
from fairdro.bench.tables import HEADER, display_rows, how_chosen
from fairdro.data import DATASETS
from fairdro.errors import InputError
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
    datasets: Annotated[list[str], typer.Argument(help="Datasets to compare on.", show_default=False)],
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
    out: Annotated[Path, typer.Option(help="Folder for results.csv, the table and the pictures.")] = Path("results"),
) -> None:
    """Train methods over their hyperparameters and compare accuracy with fairness."""
    plan = BenchPlan(
        datasets=datasets,
        methods=_names(methods),
        solvers=_names(solvers),
        model=model,
        points=points,
        seeds=seeds,
        protocol=protocol,
        split=split,
    )
    with _progress(len(plan.banks())) as on_bank:
        results = run_bench(plan, out, on_bank=on_bank)
    selected, files = write_outputs(results, out)
    table = Table(*HEADER, title=how_chosen(results))
    for row in display_rows(selected):
        table.add_row(*row)
    console.print(table)
    for path in files:
        console.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)


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
        console.print(f"{name:22} {summary}", markup=False, highlight=False, soft_wrap=True)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@contextmanager
def _progress(banks: int) -> Iterator[Callable[[Bank], OnStep]]:
    """Show a bar per bank on a terminal, a plain line per bank elsewhere."""
    if not console.is_terminal:
        number = iter(range(1, banks + 1))

        def announce(bank: Bank) -> OnStep:
            console.print(f"[{next(number)}/{banks}] {bank}", markup=False, highlight=False, soft_wrap=True)
            return lambda done, total: None

        yield announce
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        overall = progress.add_task("banks", total=banks)
        finished = -1

        def follow(bank: Bank) -> OnStep:
            nonlocal finished
            finished += 1
            progress.update(overall, completed=finished)
            task = progress.add_task(str(bank), total=None)
            return lambda done, total: progress.update(task, completed=done, total=total)

        yield follow
        progress.update(overall, completed=banks)


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2."""
    try:
        app()
    except InputError as error:
        Console(stderr=True).print(f"fairdro: {error}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
