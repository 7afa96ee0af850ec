"""docs/scale.md says what benchmarks/results/scale.json says."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_is_made_from_what_was_measured(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("scale", ROOT / "benchmarks" / "scale.py")
    scale = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scale)
    monkeypatch.setattr(scale, "DOCS", tmp_path)
    scale.write_page()
    written = (tmp_path / "scale.md").read_text(encoding="utf-8")
    assert written == (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert "{" not in written
    assert "Not measured yet" not in written
    assert (tmp_path / "scale.png").exists()
