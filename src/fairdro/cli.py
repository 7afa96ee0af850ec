"""The command line: parses, calls, prints."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated

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

from fairdro.bench import Bank, BenchPlan, OnStep, Store, run_bench, write_outputs
from fairdro.bench.tables import how_chosen
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
    objective: Annotated[
        str, typer.Option(help="What baselines minimise: 'balanced' (every cell counts the same) or 'standard'.")
    ] = "balanced",
    workers: Annotated[
        int | None, typer.Option(help="Processes to train in; by default as many as suit.", show_default=False)
    ] = None,
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
        objective=objective,
    )
    with _progress(plan.banks()) as on_step:
        results = run_bench(plan, out, workers=workers, on_step=on_step)
    shown, files = write_outputs(Store(out), out)
    table = Table(*shown.columns, title=how_chosen(results))
    for row in shown.itertuples(index=False):
        table.add_row(*(Text(cell) for cell in row))
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
def _progress(banks: list[Bank]) -> Iterator[OnStep]:
    """Show a bar for the whole and one per bank in training on a terminal, a plain line per finished bank elsewhere."""
    finished: set[Bank] = set()
    if not console.is_terminal:

        def announce(bank: Bank, done: int, total: int) -> None:
            if done == total == 1 and bank not in finished:
                finished.add(bank)
                line = f"[{len(finished)}/{len(banks)}] {bank}"
                console.print(line, markup=False, highlight=False, soft_wrap=True)

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
        share = dict.fromkeys(banks, 0.0)
        bars: dict[Bank, TaskID] = {}

        def follow(bank: Bank, done: int, total: int) -> None:
            share[bank] = bank.cost * done / total
            progress.update(overall, completed=sum(share.values()))
            if done == total == 1:
                finished.add(bank)
                if bank in bars:
                    progress.remove_task(bars.pop(bank))
                progress.update(overall, description=f"{len(finished)} of {len(banks)} banks")
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
        Console(stderr=True).print(f"fairdro: {error}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
