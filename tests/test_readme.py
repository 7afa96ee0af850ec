"""What the README shows, runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def run_blocks(number, folder):
    """Run the first so many Python blocks one after the other; return what they print, and plain training's DCA of it."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)[:number])
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
