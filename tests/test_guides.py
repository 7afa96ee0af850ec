"""The code on the pages of the site runs: Python and `$ fairdro ...`, from top to bottom, as one script in an empty folder.

What is not run has a comment `<!-- not run: why -->` above it, what needs a package of `make docs-check` one such as
`<!-- needs: lightning -->`.
"""

import glob
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from command import run_here
from fairdro.data import DATASETS
from fairdro.methods import METHODS
from fairdro.models import BANKS
from fairdro.selection import RULES
from fairdro.training.engines import ENGINES

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted({*DOCS.glob("*.md"), *DOCS.glob("guide/*.md"), DOCS / "reference" / "index.md"})
BLOCK = re.compile(r"^(?:<!-- (not run|needs): ([^\n]+) -->\n)?```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = {"from-fairlearn": "fairlearn", "from-oxonfair": "oxonfair", "guide/networks": "accelerate"}
FIGURES = {"scale"}  # written with its commands by benchmarks/scale.py; guide/large-data.md runs them on small files


def name_of(page):
    return page.relative_to(DOCS).with_suffix("").as_posix()


def blocks_of(page):
    """Return the blocks of a page that are to be run: their line, language and text."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, found.start(4)), found[3], found[4])
        for found in BLOCK.finditer(text)
        if found[1] is None or (found[1] == "needs" and find_spec(found[2]) is not None)
    ]


WITH_CODE = [page for page in PAGES if blocks_of(page) and name_of(page) not in FIGURES]


@pytest.fixture(autouse=True)
def registries():
    """What a page adds to a registry is gone after it."""
    kept = [(registry, dict(registry)) for registry in (DATASETS, METHODS, BANKS, RULES)]
    engines = ENGINES.copy()
    yield
    ENGINES[:] = engines
    for registry, before in kept:
        registry.clear()
        registry.update(before)


def run_console(text, where):
    for line in text.splitlines():
        command = shlex.split(line, comments=True)
        assert command[:2] == ["$", "fairdro"], f"{where}: only `$ fairdro ...` is run; say above it why this is not run"
        arguments = [path for word in command[2:] for path in sorted(glob.glob(word)) or [word]]  # noqa: PTH207 - as a shell
        done = run_here(*arguments)
        assert done.returncode == 0, f"{where}: {line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.filterwarnings("ignore:Setting a")  # fairlearn with the newest pandas
@pytest.mark.filterwarnings("ignore:::lightning")  # of its loggers, workers and devices
@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_page_runs(page, tmp_path, monkeypatch):
    for name, package in NEEDS.items():
        if name_of(page).endswith(name):
            pytest.importorskip(package, reason=f"{page.name} needs {package}")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem}
    for line, language, text in blocks_of(page):
        if language == "console":
            run_console(text, f"{page.name}:{line}")
        else:  # the empty lines let an error name the line of the page
            exec(compile("\n" * line + text, str(page), "exec"), names)  # noqa: S102 - our own pages


def test_python_that_is_not_run_is_known():
    found = {
        name_of(page)
        for page in PAGES
        for block in BLOCK.finditer(page.read_text(encoding="utf-8"))
        if block[1] == "not run" and block[3] == "python"
    }
    assert found == {"guide/from-aif360", "spark"}  # AIF360 needs an older scikit-learn; Spark: tests/test_spark_page.py


def test_guides_have_code():
    guides = set((DOCS / "guide").glob("*.md")) - {DOCS / "guide" / "index.md"}
    assert guides <= set(WITH_CODE)
