"""docs/deep.md says what the results in the repository say."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def deep(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("deep", ROOT / "benchmarks" / "deep.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "DOCS", tmp_path)  # for pictures
    return module


def test_the_page_is_made_from_the_results_without_training(deep, tmp_path):
    assert deep.page(deep.kept()) == (ROOT / "docs" / "deep.md").read_text(encoding="utf-8")
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in (ROOT / "docs").glob("deep-*.png")}
    assert not [name for name in ("{faces}", "{summary}", "{models}") if name in (ROOT / "docs" / "deep.md").read_text()]
