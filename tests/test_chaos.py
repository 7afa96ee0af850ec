"""A few of the kills of ``make chaos``."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_bench_that_is_killed_again_and_again_ends_as_one_that_is_not():
    command = [sys.executable, Path(__file__).with_name("chaos.py"), "--kills", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| kills | 4 |" in done.stdout
