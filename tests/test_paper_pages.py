"""docs/reproduction.md and docs/paper.md say what the results in the repository say."""

import importlib
import re
from pathlib import Path

import pytest

from pictures import TOLERANCE, difference

ROOT = Path(__file__).parents[1]


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")

    def load(name):
        module = importlib.import_module(name)
        monkeypatch.setattr(module, "DOCS", tmp_path)  # for pictures
        return module

    return load


def same_pictures(folder):
    changed = [path.name for path in folder.glob("*.png") if not difference(path, ROOT / "docs" / path.name) < TOLERANCE]
    assert changed == [], "not what is committed; run `make figures`"


def test_the_tables_are_made_from_the_results_without_training(script, tmp_path):
    assert script("reproduction").page() == (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert (tmp_path / "reproduction.png").exists()
    same_pictures(tmp_path)


def test_the_page_of_the_paper_is_made_from_the_results_without_training(script, tmp_path):
    assert script("paper").page() == (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {path.name for path in (ROOT / "docs").glob("paper-*.png")}
    shown = set(re.findall(r"\]\(([\w-]+\.png)\)", (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")))
    assert drawn <= shown
    assert all((ROOT / "docs" / name).exists() for name in shown)
    same_pictures(tmp_path)


def test_a_name_without_a_part_and_a_part_that_is_not_used_are_errors(script):
    paper = script("paper")
    assert paper.filled("$\\frac{1}{A}$ is {{value}}", {"value": " 1\n"}) == "$\\frac{1}{A}$ is 1"
    for text, parts in (("{{unknown}}", {}), ("nothing", {"unused": "1"})):
        with pytest.raises(SystemExit, match=r"unknown|unused"):
            paper.filled(text, parts)
