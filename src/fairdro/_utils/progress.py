"""Who is told how far long work has come, and a bar for those who look."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

OnStep = Callable[[int, int], object]
"""Called with the number of finished steps and of all."""


@contextmanager
def bar(what: str, parts: int, *, show: bool) -> Iterator[Callable[[int], OnStep | None]]:
    """Give a function that makes the ``on_step`` of each of several parts; with ``show``, a bar on a terminal."""
    if not show:
        yield lambda _: None
        return
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=parts)
        yield lambda part: lambda done, total: progress.update(task, completed=part + done / total)
