"""The Python blocks of the front page and of every guide run, from top to bottom, as one script in an empty folder."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
GUIDES = [DOCS / "index.md", *sorted(set((DOCS / "guide").glob("*.md")) - {DOCS / "guide" / "index.md"})]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = {"from-fairlearn": "fairlearn", "from-oxonfair": "oxonfair"}


@pytest.mark.filterwarnings("ignore:Setting a")  # fairlearn with the newest pandas
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_guide_runs(page, tmp_path, monkeypatch):
    if page.stem in NEEDS:
        pytest.importorskip(NEEDS[page.stem], reason=f"{page.name} compares with {NEEDS[page.stem]}")
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert blocks, f"{page.name} has no Python to run"
    names = {"__name__": page.stem}
    for block in blocks:
        line = text.count("\n", 0, block.start(1))  # so that an error names the line of the page
        exec(compile("\n" * line + block[1], str(page), "exec"), names)  # noqa: S102 - our own pages


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_links_lead_to_pages(page):
    for target in re.findall(r"\]\(([^)#]+\.(?:md|png))", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"
