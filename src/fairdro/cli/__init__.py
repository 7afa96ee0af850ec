"""The command line: parses, calls, prints. It loads torch and other large packages only when a command runs."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from io import TextIOWrapper
from typing import Annotated

import typer

import fairdro
from fairdro.cli import audit, bench, certificates, networks, tables
from fairdro.cli.terminal import console, say, tell
from fairdro.errors import InputError

__all__ = ["app", "main"]

app = typer.Typer(
    help="Group-fair training by classwise robust optimisation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="Look after datasets of images and texts.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(data_app, name="data")
for command in (bench.bench, bench.report, networks.train, tables.fit, tables.head, tables.predict, audit.audit):
    app.command()(command)
app.command()(certificates.certify)
data_app.command()(networks.check)


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
        console.print(f"fairdro {fairdro.__version__}", highlight=False)
        raise typer.Exit


@app.command(name="list")
def list_(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """List methods, datasets or models with a line on each."""
    from fairdro.data import DATASETS
    from fairdro.methods import METHODS
    from fairdro.models import MODELS

    if kind is Kind.datasets:
        summaries = {name: entry.summary for name, entry in DATASETS.items()}
    else:
        listed = METHODS if kind is Kind.methods else MODELS
        summaries = {name: (item.__doc__ or "").strip().splitlines()[0] for name, item in listed.items()}
    for name, summary in summaries.items():
        tell(f"{name:22} {summary}")


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows few letters
    with _ended_as_if_interrupted():
        try:
            app()
        except InputError as error:
            say(str(error))
            sys.exit(2)
        except KeyboardInterrupt:
            say("stopped.")
            sys.exit(130)
        except _EndedError:
            say("stopped.")
            sys.exit(143)


class _EndedError(BaseException):
    """The process was told to end."""


@contextmanager
def _ended_as_if_interrupted() -> Iterator[None]:
    """Let SIGTERM interrupt work as Ctrl-C does, so that nothing half-written is left."""

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # while things are put in order
        raise _EndedError

    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
