"""Numbers in README.md and in the guides stand on the pages of results that they are said to be from."""

from pathlib import Path

import pytest

from prose import unsourced

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
DOCUMENTS = [
    ROOT / "README.md",
    *(DOCS / f"{name}.md" for name in ("index", "own-data", "networks", "audit", "spark", "architecture")),
    *sorted((DOCS / "guide").glob("*.md")),
]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_number_is_on_the_page_it_is_from(path):
    assert unsourced(path.read_text(encoding="utf-8"), path.parent) == []


PAGE = """# Results

| | accuracy | DCA |
| --- | --- | --- |
| plain | 82.31 ± 0.50 | 7.10 ± 1.50 |
| fair | 78.82 ± 0.61 | 1.35 ± 1.12 |

It took 1.47 s; intervals are 1.74 to 2.78.
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "results.md").write_text(PAGE, encoding="utf-8")
    return tmp_path


RIGHT = [
    "Fair training has 78.82 / 1.35 instead of 82.31 / 7.10 ([results](results.md)), 1.74 to 2.78 by splits.",
    "All of it is in [results](results.md#results).\n\n- DCA 1.35 ± 1.12\n- plain 82.31\n  / 7.10",
    "As in [results](results.md):\n\n| | ours |\n|---|---|\n| fair | 78.82 / 1.35 |\n| plain | 82.31 / 7.10 |\n",
    "`rho=0.25` and 20 radii, 5 % of 45,222 rows.\n\n```python\nrho = 0.25\n```\n\n~~~\n0.5\n~~~",
    "Python 3.11, fairlearn 0.15, and release 0.6.1 are no results.",
    "A limit of 0.02 and 0.97 <!-- given: 0.02 0.97 --> was asked for.",
]


@pytest.mark.parametrize("text", RIGHT)
def test_right_numbers_pass(text, folder):
    assert unsourced(text, folder) == []


@pytest.mark.parametrize(
    ("old", "new"), [("78.82", "78.83"), ("1.35", "1.25"), ("82.31", "82.3"), ("2.78", "2.79"), ("7.10", "1.35")]
)
def test_a_changed_digit_is_found(old, new, folder):
    assert unsourced(RIGHT[0], folder) == []
    assert unsourced(RIGHT[0].replace(old, new), folder)


def test_a_changed_digit_is_found_in_lists_and_tables(folder):
    for text in RIGHT[1:3]:
        assert len(unsourced(text.replace("82.31", "82.41"), folder)) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("The DCA is 1.35.", "1.35 has no page"),
        ("See [results](results.md).\n\nThe DCA is 1.35.", "1.35 has no page"),
        ("The DCA is 1.35 ([results](missing.md)).", "1.35 is not on missing.md"),
        ("Plain training has 82.31 / 1.35 ([results](results.md)).", "82.31 / 1.35 does not stand together on results.md"),
        ("A limit of 0.02, and of 0.03 <!-- given: 0.02 -->.", "0.03 has no page"),
        (":::{note}\nThe DCA is 1.35.\n:::", "1.35 has no page"),
        ("Code does not end here: `a` 1.35 `b`.", "1.35 has no page"),
    ],
)
def test_what_is_wrong_is_said(text, problem, folder):
    (said,) = unsourced(text, folder)
    assert said.startswith(problem)


@pytest.mark.parametrize(("old", "new"), [("45,222", "45,223"), ("20 times", "21 times"), ("70 %", "71 %"), ("7 s", "8 s")])
def test_a_changed_digit_of_a_whole_number_is_found(old, new, folder):
    """Where the block links a page that benchmarks/ writes."""
    (folder / "head.md").write_text("Of 45,222 rows, 70 % were read in 7 s, 20 times as fast.", encoding="utf-8")
    text = "45,222 rows in 7 s, 70 % of all, 20 times as fast, see 3 more in [heads](head.md)."
    assert unsourced(text, folder) == []
    assert len(unsourced(text.replace(old, new), folder)) == 1
    assert unsourced(text.replace(old, f"{new} <!-- given: {new.split()[0]} -->"), folder) == []
    assert unsourced(text.replace(old, new).replace("](head.md)", "]"), folder) == []


def test_every_digit_of_a_page_of_results_counts():
    """The check finds a changed digit in prose about a page with hundreds of numbers, too, where numbers stand in pairs."""
    text = "CelebA: 82.5 / 3.0 with a head, 83.1 / 10.3 inside the last layer ([heads](head.md))."
    assert unsourced(text, DOCS) == []
    for wrong in ("82.5 / 3.1", "82.4 / 3.0", "82.6 / 3.0", "92.5 / 3.0", "82.5 / 0.9", "3.0 / 82.5"):
        assert unsourced(text.replace("82.5 / 3.0", wrong), DOCS)
