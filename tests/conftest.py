import json
import shutil
from pathlib import Path

import hypothesis
import pytest

from files import save_encoder

hypothesis.settings.register_profile("fairdro", deadline=None, max_examples=60, derandomize=True)
hypothesis.settings.register_profile("fuzz", deadline=None, database=None, print_blob=True)
hypothesis.settings.load_profile("fairdro")


@pytest.fixture(scope="session")
def vectors():
    """Numeric test vectors computed independently of this code, in float64 with six decimals."""
    return json.loads((Path(__file__).parent / "data" / "vectors.json").read_text())


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """A folder with a tokenizer of a few words and a BERT of two layers."""
    folder = tmp_path_factory.mktemp("encoder")
    save_encoder(folder)
    return folder


@pytest.fixture
def quick_heads(monkeypatch):
    """Heads of a hundred steps, for tests of what is around them; tests/test_head.py has those of their convergence."""
    monkeypatch.setattr("fairdro.training.head.TOLERANCE", 1.0)


@pytest.fixture(scope="module")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="the browser tests need the package playwright")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("the browser tests need chromium on the path")
    with playwright.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium, tmp_path):
    """Open a page as a file and watch it: complaints and requests must stay away."""
    complaints, contexts = [], []

    def open_page(page, **options):
        file = tmp_path / "page.html"
        file.write_text(page, encoding="utf-8")
        contexts.append(chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options}))
        tab = contexts[-1].new_page()
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda request: request.url == file.as_uri() or complaints.append(request.url))
        tab.goto(file.as_uri())
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
