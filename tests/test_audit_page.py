"""The page of an audit in a real browser: wide and narrow, light and dark, whatever the names are."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from fairdro.audit import audit_table
from fairdro.audit.page import build_page

HOSTILE = [
    "<script>window.hacked=1</script>",
    "</script>'\"><img src=x onerror='window.hacked=1'>",
    "\u202e\u05d0\u05d1\u05d2 right",
    "W" * 200,
    "{{body}}",
    "a, b",
    "\u2028&amp;",
]


def table_of(names, n=1400):
    rng = np.random.default_rng(0)
    group, truth = np.resize(names, n).astype(object), rng.choice(["no", "yes"], n)
    score = np.clip(0.3 + 0.4 * (truth == "yes") + rng.normal(0, 0.15, n) - 0.1 * (group == names[0]), 0, 1)
    table = pd.DataFrame({"group": group, "sex": rng.choice(["f", "m"], n), "truth": truth, "p": score})
    return table.assign(old=np.where(score > 0.5, "yes", "no"), new=np.where(score > 0.45, "yes", "no"))


def page_of(names, **options):
    wanted = {"groups": ["group", "sex"], "predictions": ["old", "new"], "target": "truth", "score": "p"} | options
    return build_page(audit_table(table_of(names), **wanted), title=options.get("title", names[0]))


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_and_can_be_read(visit, width, scheme):
    tab = visit(page_of(["north", "south", HOSTILE[3]]), viewport={"width": width, "height": 800}, color_scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    ink, paper = (tab.evaluate(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor"))
    lightness = [np.mean([int(v) for v in colour[4:-1].split(",")]) for colour in (ink, paper)]
    dark, light = lightness if scheme == "light" else lightness[::-1]
    assert dark < 80
    assert light > 200
    assert all(box["width"] > 60 for box in (bar.bounding_box() for bar in tab.locator(".bar svg").all()[:20]))


def test_hostile_names_are_shown_and_not_run(visit):
    tab = visit(page_of(HOSTILE, groups=["group"]))
    shown = tab.locator("table").first.locator("tbody th").all_text_contents()
    assert sorted(shown) == sorted(HOSTILE)
    assert tab.locator("h1").text_content() == HOSTILE[0]
    assert HOSTILE[3] not in tab.locator("section").first.inner_text()  # cut in sentences, whole in tables
    assert tab.evaluate("window.hacked") is None
    assert tab.locator("img, script").count() == 0


def test_pictures_have_the_lengths_of_the_rates(visit):
    names = ["north", "south"]
    audit = audit_table(table_of(names), groups=["group"], predictions=["old"], favourable="yes")
    tab = visit(build_page(audit))
    for bar, (_, row) in zip(
        tab.locator("figure").first.locator("svg").all(), audit.parts[0].rates[0].table.iterrows(), strict=True
    ):
        part, whisker = (bar.locator(f".{name}").bounding_box() for name in ("part", "whisker"))
        full = bar.bounding_box()
        assert part["width"] / full["width"] == pytest.approx(row["rate"], abs=0.005)
        assert (whisker["x"] - full["x"]) / full["width"] == pytest.approx(row["low"], abs=0.005)
        assert whisker["width"] / full["width"] == pytest.approx(row["high"] - row["low"], abs=0.005)
        assert bar.get_attribute("aria-label").startswith(f"{100 * row['rate']:.1f} (")


def test_two_predictions_stand_side_by_side_and_differ_in_more_than_colour(visit):
    tab = visit(page_of(["north", "south"], groups=["group"]))
    chapter = tab.locator("section", has=tab.get_by_role("heading", name="What changes from one prediction to the other"))
    row = chapter.locator(".row").first
    assert row.locator("svg").count() == 2
    dashes = [bar.locator(".part").evaluate("e => getComputedStyle(e).strokeDasharray") for bar in row.locator("svg").all()]
    assert dashes[0] != dashes[1]
    assert chapter.locator(".legend").first.inner_text().split() == ["old", "new"]


def test_the_page_runs_no_script_at_all(chromium, tmp_path):
    page = page_of(["north", "south"]).replace("</main>", "<script>window.hacked = 1</script></main>")
    (tmp_path / "changed.html").write_text(page, encoding="utf-8")
    tab = chromium.new_page()
    tab.goto((tmp_path / "changed.html").as_uri())
    assert tab.evaluate("window.hacked") is None
    tab.close()


def test_headings_are_in_order_and_all_links_lead_somewhere(visit):
    tab = visit(page_of(["north", "south"]))
    assert tab.get_by_role("heading", level=1).count() == 1
    levels = tab.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(e => Number(e.tagName[1]))")
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert tab.evaluate("[...document.querySelectorAll('nav a')].every(a => document.querySelector(a.getAttribute('href')))")
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
