"""What the commands say, and how: sentences, bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

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
from rich.text import Text

from fairdro._utils.progress import OnStep
from fairdro.errors import InputError

if TYPE_CHECKING:
    from fairdro.bench import Bank
    from fairdro.bench.run import OnBankStep

SECONDS_BETWEEN_LINES = 30
console = Console() if sys.stdout.isatty() else Console(width=140)


def one_line(name: str) -> Text:
    """Return text that may hold names from data as one line, in which control characters are seen and not obeyed."""
    return Text("".join(c if c.isprintable() else repr(c)[1:-1] for c in name))


def tell(text: str) -> None:
    """Print a line to standard output."""
    console.print(one_line(text), highlight=False, soft_wrap=True)


def say(sentence: str) -> None:
    """Print a sentence to standard error."""
    Console(stderr=True).print(one_line(f"fairdro: {sentence}"), highlight=False, soft_wrap=True)


def status(what: str) -> AbstractContextManager[object]:
    """Show on a terminal what is being done."""
    return console.status(Text(what)) if console.is_terminal else nullcontext()


@contextmanager
def sentences(*, late: bool = False) -> Iterator[None]:
    """Print warnings as sentences, each once: when they come, or ``late``, when the work is done.

    Where work is refused, late ones are left out, so that the refusal is the one sentence.
    """
    told: dict[str, None] = {}

    def pass_on(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if str(message) not in told and category is not ResourceWarning:
            told[str(message)] = None
            if not late and _is_first():
                say(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = pass_on
        yield
    for sentence in told if late and _is_first() else ():
        say(sentence)


@contextmanager
def together() -> Iterator[None]:
    """Work with other processes if ``torchrun`` started this one; the first alone says what is refused."""
    from fairdro.training.processes import LostProcessError, first_says, processes, world

    with processes():
        try:
            yield
        except InputError as error:
            if world() == 1 or isinstance(error, LostProcessError):
                raise
            sentence = str(error)
            first_says(lambda: say(sentence))
            raise typer.Exit(2) from error


def _is_first() -> bool:
    from fairdro.training.processes import rank

    return rank() == 0


@contextmanager
def steps(what: str) -> Iterator[OnStep]:
    """Show a bar for a number of steps on a terminal, a line now and then elsewhere."""
    if not _is_first():
        yield lambda done, total: None
    elif console.is_terminal:
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(what, total=None)
            yield lambda done, total: progress.update(task, completed=done, total=total)
    else:
        told = time.monotonic()

        def report(done: int, total: int) -> None:
            nonlocal told
            if time.monotonic() - told > SECONDS_BETWEEN_LINES:
                told = time.monotonic()
                say(f"{what}: {100 * done // total} %")

        yield report


@contextmanager
def bank_bars(banks: list[Bank]) -> Iterator[OnBankStep]:
    """Show a bar for the whole and one per bank in training on a terminal, a plain line per finished bank elsewhere."""
    finished: set[Bank] = set()
    if not console.is_terminal:

        def announce(bank: Bank, done: int, total: int) -> None:
            if done == total == 1 and bank not in finished:
                finished.add(bank)
                line = f"[{len(finished)}/{max(len(finished), len(banks))}] {bank}"
                tell(line)

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
