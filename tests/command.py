"""The command line as a function: the same code in this process, a hundred times faster than in one of its own."""

import contextlib
import io
import sys
import warnings
from dataclasses import dataclass
from unittest import mock

from fairdro.cli import main


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def run_here(*arguments, cwd="."):
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with (
        mock.patch.object(sys, "argv", ["fairdro", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("default")
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    return Done(code, out.getvalue(), err.getvalue())
