"""The site as it is built: no warning, no broken link, found by its search, and readable for everybody.

The examples are not executed here; `make docs` does that.
"""

import io
import os
import subprocess
import sys
import tarfile
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("sphinx_gallery", reason="the site needs the packages of the extra docs")
pytest.importorskip("pydata_sphinx_theme", reason="the site needs the packages of the extra docs")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
AXE = ROOT / "build" / "axe-core.tgz"  # fetched by `make docs-check`
LOOKED_AT = [
    "index.html",
    "guide/choose.html",
    "auto_examples/credit.html",
    "reference/index.html",
    "reference/generated/fairdro.FairDROClassifierCV.html",
]


FOCUS = """() => {
    const focused = document.activeElement, looks = [null, "::after"].map((part) => getComputedStyle(focused, part));
    const name = focused.matches(".search-button") ? "search" : focused.getAttribute("href") ?? focused.outerHTML;
    return [name, looks.some((look) => look.outlineStyle !== "none" || look.boxShadow !== "none")];
}"""  # what has it, and whether that is seen; a card has its outline behind its link
SHOWN = """(place) => {
    const {top} = document.querySelector(`section${place} h2`).getBoundingClientRect();
    return location.hash === place && top >= 0 && top < innerHeight;
}"""


class Page(HTMLParser):
    """Anchors, and what is linked to or loaded."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given[key] for key in ("id", "name") if given.get(key)}
        wanted = "href" if tag in ("a", "link") else "src" if tag in ("img", "script") else None
        if wanted and given.get(wanted):
            self.links.append((tag, given[wanted]))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    options = ["-q", "-W", "--keep-going", "-D", "sphinx_gallery_conf.plot_gallery=0", "-d", out / "doctrees"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, ROOT / "docs", out / "html"],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_links_and_anchors_lead_somewhere(site):
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}
    broken = defaultdict(set)
    for path, page in pages.items():
        for tag, link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if tag != "a" and parts.scheme != "data":
                    broken[path.relative_to(site)].add(f"loads {link}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                broken[path.relative_to(site)].add(link)
    assert len(pages) > 40
    assert not broken, dict(broken)


@pytest.fixture(scope="module")
def axe():
    if not AXE.exists():
        pytest.skip("accessibility is checked by axe-core: make docs-check fetches it")
    with tarfile.open(fileobj=io.BytesIO(AXE.read_bytes())) as package:
        return package.extractfile("package/axe.min.js").read().decode()


def open_page(chromium, path, width, scheme):
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab = context.new_page()
    tab.route("http*://**", lambda route: route.abort())
    tab.goto(path.as_uri())
    tab.wait_for_load_state("load")
    return context, tab


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("page", LOOKED_AT)
def test_a_page_fits_its_window(site, chromium, page, width, scheme):
    context, tab = open_page(chromium, site / page, width, scheme)
    try:
        assert tab.evaluate("document.documentElement.dataset.theme") == scheme
        if pictures := os.environ.get("FAIRDRO_SCREENSHOTS"):
            Path(pictures).mkdir(parents=True, exist_ok=True)
            tab.screenshot(path=str(Path(pictures) / f"{Path(page).stem}-{width}-{scheme}.png"))
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    finally:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("page", LOOKED_AT)
def test_a_page_is_readable(site, axe, chromium, page, width, scheme):
    context, tab = open_page(chromium, site / page, width, scheme)
    try:
        tab.evaluate(axe)
        found = tab.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        worst = [(one["id"], one["help"], [node["html"][:200] for node in one["nodes"]][:5]) for one in found
                 if one["impact"] in ("serious", "critical")]  # fmt: skip
        assert worst == []
    finally:
        context.close()


def tab_to(tab, wanted):
    for _ in range(60):
        tab.keyboard.press("Tab")
        reached, seen = tab.evaluate(FOCUS)
        assert seen, f"the focus on {reached} cannot be seen"
        if reached == wanted:
            return
    pytest.fail(f"Tab does not reach {wanted}")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_front_page_works_by_keyboard(site, chromium, width):
    front = site / "index.html"
    context, tab = open_page(chromium, front, width, "light")
    try:
        doors = tab.locator(".sd-card a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
        assert len(doors) == 3
        for wanted in ("#main-content", "search", *doors):  # in this order
            tab_to(tab, wanted)
        for door in doors:
            tab.goto(front.as_uri())
            tab_to(tab, door)
            tab.keyboard.press("Enter")
            tab.wait_for_function(SHOWN, arg=door, timeout=5_000)
    finally:
        context.close()


def test_search_works_offline(site, chromium):
    context, tab = open_page(chromium, site / "search.html", 1280, "light")
    try:
        tab.goto((site / "search.html").as_uri() + "?q=certificate")
        tab.wait_for_selector("#search-results li a", timeout=20_000)
        assert any("ertif" in text for text in tab.locator("#search-results li a").all_inner_texts())
    finally:
        context.close()
