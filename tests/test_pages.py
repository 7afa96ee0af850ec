"""Pages of results, and pictures, are what `make figures` makes of the results in the repository, without measuring."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from pictures import TOLERANCE, difference

ROOT = Path(__file__).parents[1]
DOCS, BENCHMARKS = ROOT / "docs", ROOT / "benchmarks"
PAGES = {
    "boosting": {"boosting.md"},
    "certificates": {"certificates.md"},
    "choices": {"choices.md", "choices.png"},
    "deep": {"deep.md", "deep-features.png", "deep-hatexplain.png", "deep-utkface.png", "deep-utkface-head.png"},
    "estimators": {"estimators.md"},
    "foundation": {"benchmarks.md", "scaling.png"},
    "frontier": {"frontier.png"},
    "head": {"head.md", "head.png", "head-cost.png"},
}
"""By script: what it writes."""


@pytest.fixture
def pages(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("pages")
    monkeypatch.setattr(module, "DOCS", tmp_path)
    return module


def write(script, monkeypatch):
    monkeypatch.setattr(sys, "argv", [script, "page"])
    importlib.import_module(script).main()


@pytest.mark.parametrize("script", PAGES)
def test_the_page_is_made_from_the_results(script, pages, tmp_path, monkeypatch):
    write(script, monkeypatch)
    assert {path.name for path in tmp_path.iterdir()} == PAGES[script]
    for path in tmp_path.glob("*.md"):
        assert path.read_text(encoding="utf-8") == (DOCS / path.name).read_text(encoding="utf-8"), "run `make figures`"
    for path in tmp_path.glob("*.png"):
        assert difference(path, DOCS / path.name) < TOLERANCE, f"{path.name} is not what is committed; run `make figures`"


def test_a_changed_result_changes_its_page(pages, tmp_path, monkeypatch):
    kept = pages.results("estimators")
    kept["classes"]["models"]["plain training"]["DCA"][0] += 0.01
    (tmp_path / "estimators.json").write_text(json.dumps(kept), encoding="utf-8")
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    write("estimators", monkeypatch)
    assert (tmp_path / "estimators.md").read_text(encoding="utf-8") != (DOCS / "estimators.md").read_text(encoding="utf-8")


def test_a_changed_result_changes_its_picture(pages, tmp_path, monkeypatch):
    kept = pages.results("choices")
    kept["reliability"][9]["share"] += 1.0  # of 100
    (tmp_path / "choices.json").write_text(json.dumps(kept), encoding="utf-8")
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    write("choices", monkeypatch)
    assert difference(tmp_path / "choices.png", DOCS / "choices.png") > 2 * TOLERANCE


def test_make_figures_writes_every_page():
    recipe = re.search(r"^figures:.*?\n\n", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[0]
    assert {*PAGES, "scale", "reproduction"} <= set(re.findall(r"benchmarks/(\w+)\.py", recipe))


def test_what_is_measured_again_is_no_longer_as_printed(pages, tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    (tmp_path / "some.json").write_text(json.dumps({"a": 1.2, "b": 3.4, pages.PRINTED: ["a", "b"]}), encoding="utf-8")
    assert "All figures are kept as they were printed" in pages.source(pages.results("some"))
    pages.keep("some", "a", 1.234)
    assert pages.results("some") == {"a": 1.234, "b": 3.4, pages.PRINTED: ["b"]}
    assert "The figures of b are kept as they were printed" in pages.source(pages.results("some"))
    pages.keep("some", "b", 3.456)
    assert "printed" not in pages.source(pages.results("some"))


def test_a_page_without_the_place_of_a_part_is_refused(pages):
    with pytest.raises(SystemExit, match="does not have the parts"):
        pages.write("estimators", {"another": ""})
