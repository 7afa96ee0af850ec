"""The code on the pages of the site runs: Python and `$ fairdro ...`, from top to bottom, as one script in an empty folder.

What is not run has a comment `<!-- not run: why -->` above it, what needs a package of `make docs-check` one such as
`<!-- needs: lightning -->`.
"""

import glob
import json
import re
import shlex
import subprocess
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import pytest

from command import run_here
from fairdro.data import DATASETS
from fairdro.methods import METHODS
from fairdro.metrics import dca, demographic_parity_difference
from fairdro.models import BANKS
from fairdro.selection import RULES
from fairdro.training.engines import ENGINES

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted({*DOCS.glob("*.md"), *DOCS.glob("guide/*.md"), DOCS / "reference" / "index.md"})
BLOCK = re.compile(r"^(?:<!-- (not run|needs): ([^\n]+) -->\n)?```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = {"from-fairlearn": "fairlearn", "from-oxonfair": "oxonfair", "guide/networks": "accelerate"}
FIGURES = {"scale"}  # written with its commands by benchmarks/scale.py; guide/large-data.md runs them on small files
NOT_RUN = {
    "guide/from-aif360": {"python"},  # with fairdro; test_what_the_page_on_aif360_says runs it
    "guide/large-data": {"console"},
    "index": {"console"},
    "networks": {"console"},
    "scale": {"console"},
    "spark": {"python"},  # tests/test_spark_page.py
}
AIF360 = Path(__file__).parents[1] / "build" / "aif360"  # an environment made by `make docs-check`
MADE = """
import numpy as np, pandas as pd
rng = np.random.default_rng(0)
sex, income = rng.integers(2, size=(2, 2_000))
hours = 40 + 3 * rng.normal(size=2_000) + 4 * income + 3 * sex
made = pd.DataFrame({"hours": hours, "years": rng.normal(size=2_000) + income, "sex": sex, "income": income})
"""
PRINTED = """
import json
names = ["average_abs_odds_difference", "equal_opportunity_difference", "statistical_parity_difference"]
columns = {"truth": test.labels, "predicted": fair.labels, "sex": test.protected_attributes}
told = {name: column.ravel().astype(int).tolist() for name, column in columns.items()}
print(json.dumps(told | {name: getattr(metric, name)() for name in names}))
"""


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


def needed():
    """Give the pages with blocks that need a package, and that package."""
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
            if block[1] == "needs":
                yield name_of(page), block[2]


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
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=() if name_of(page) == "index" else pytest.mark.slow) for page in WITH_CODE],
    ids=map(name_of, WITH_CODE),
)
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


def test_what_is_not_run_is_known():
    found = defaultdict(set)
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
            if block[1] == "not run" or name_of(page) in FIGURES:
                found[name_of(page)].add(block[3])
    assert found == NOT_RUN


@pytest.mark.parametrize(("page", "package"), sorted({*NEEDS.items(), *needed()}))
def test_the_packages_that_pages_need_are_there(page, package):
    if find_spec(package) is None:
        pytest.skip(f"code of {page} is not run: it needs {package}")


@pytest.mark.slow
def test_what_the_page_on_aif360_says():
    """Its code runs where AIF360 is, and the figures that it calls the same are the same."""
    if not (AIF360 / "installed").exists():
        pytest.skip("AIF360 needs an environment of its own: make docs-check makes it")
    text = (DOCS / "guide" / "from-aif360.md").read_text(encoding="utf-8")
    blocks = "\n".join(found[4] for found in BLOCK.finditer(text) if found[1] == "not run")
    code, number = re.subn(r"^table = \.\.\.", "table = made", blocks, flags=re.MULTILINE)
    assert number == 1
    python = [AIF360 / "bin" / "python", "-c", f"{MADE}\n{code}\n{PRINTED}"]
    done = subprocess.run(python, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    ours = {"y_true": told["truth"], "y_pred": told["predicted"], "sensitive_features": told["sex"]}
    assert told["average_abs_odds_difference"] > 0
    assert dca(**ours) == pytest.approx(told["average_abs_odds_difference"])
    assert dca(**ours, fair_classes=[1]) == pytest.approx(abs(told["equal_opportunity_difference"]))
    assert demographic_parity_difference(**ours) == pytest.approx(abs(told["statistical_parity_difference"]))


def test_guides_have_code():
    guides = set((DOCS / "guide").glob("*.md")) - {DOCS / "guide" / "index.md"}
    assert guides <= set(WITH_CODE)
