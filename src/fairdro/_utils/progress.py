"""Who is told how far long work has come, and a bar for those who look."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.console import Console
from rich.progress import Progress

OnStep = Callable[[int, int], object]
"""Called with the number of finished steps and of all."""

Stage = Callable[[str], AbstractContextManager[OnStep | None]]
"""Makes a context for a named stage of the work, and says whom to tell its steps."""


def quiet(what: str) -> AbstractContextManager[None]:
    """Tell nobody."""
    return nullcontext()


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
