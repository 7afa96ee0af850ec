"""What the README shows, runs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from command import run_here

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
COMMANDS = [
    shlex.split(line.removeprefix("$ "), comments=True)
    for block in re.findall(r"^```console\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
SET_UP = {"make", "source", "pip"}  # which change the environment, and are not run


def run_blocks(number, folder):
    """Run the first so many Python blocks one after the other; return what they print, and plain training's DCA of it."""
    code = "\n".join(PYTHON[:number])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (plain,) = re.findall(r"^0 +0\.0+ +\S+ +(\S+) +False", done.stdout, flags=re.MULTILINE)
    return done.stdout, 100 * float(plain)


def test_the_python_example_runs_and_the_gap_narrows(tmp_path):
    shown, plain = run_blocks(1, tmp_path)
    (gap,) = re.findall(r"DCA = (\S+) points", shown)
    assert float(gap) < 0.6 * plain
    assert (tmp_path / "model" / "model_card.md").exists()


@pytest.mark.slow
def test_the_example_of_heads_runs_after_it(tmp_path):
    shown, plain = run_blocks(2, tmp_path)
    (gap,) = re.findall(r"With a head: DCA = (\S+)", shown)
    assert float(gap) < 0.6 * plain


def test_the_loop_of_pytorch_runs_by_itself():
    *_, block = PYTHON
    assert len(PYTHON) == 3, "run a further block, too"
    names = {}
    exec(block, names)  # noqa: S102 - our own page
    assert names["network"].weight.isfinite().all()
    assert names["criterion"].state_dict()


def test_the_commands_run(tmp_path):
    rng = np.random.default_rng(0)
    sex, income = rng.choice(["f", "m"], 600), rng.choice(["high", "low"], 600)
    hours = 40 + 5 * rng.normal(size=600) + 6 * (income == "high") - 4 * (sex == "f")
    people = pd.DataFrame({"job": rng.choice(["office", "shop", None], 600), "hours": hours, "sex": sex, "income": income})
    people[:400].to_csv(tmp_path / "people.csv", index=False)
    people[400:].to_csv(tmp_path / "new.csv", index=False)
    ours = [arguments for program, *arguments in COMMANDS if program == "fairdro"]
    assert {program for program, *_ in COMMANDS} - SET_UP == {"fairdro"}
    assert [command for command, *_ in ours] == ["fit", "predict", "audit"]
    for arguments in ours:
        done = run_here(*arguments, cwd=tmp_path)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    assert (tmp_path / "audit.html").exists()


def test_links_and_pictures_exist():
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), (document.name, target)


def test_every_page_says_something():
    for document in (ROOT / "docs").glob("*.md"):
        text = document.read_text(encoding="utf-8")
        assert text.startswith("# "), document.name
        assert "Not measured yet" not in text
        assert not re.search(r"\{\{\w+\}\}", text)
