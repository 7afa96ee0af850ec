"""The report speaks of people: its words, its folds, and alternatives that treat groups more alike."""

import pytest

from fairdro.bench import BenchPlan, Store, Summary, run_bench
from fairdro.bench.tables import over_seeds
from test_report import click_point, plan_of, report_of, synthetic, text


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    out = tmp_path_factory.mktemp("words")
    run_bench(BenchPlan(datasets=["compas"], methods=["scratch", "fairdro"], points=3), out)
    return Store(out)


def test_fairest_is_said_among_two_or_more_fair_methods_only(tmp_path, visit):
    for number, methods in enumerate((["scratch", "fairdro"], ["scratch", "lbc", "fairdro"])):
        store = synthetic(Store(tmp_path / str(number)), plan_of(["compas"], methods, points=4))
        page = report_of(store)
        tab = visit(page)
        several = len(methods) > 2
        assert ("Fairest method" in text(page)) == several
        assert ("the fairest is" in tab.locator("#chosen").inner_text()) == several
        assert ("fairest of 2 fair methods" in Summary(store).findings[0]) == several


def test_the_words_are_for_people(bench, visit):
    page = report_of(bench)
    told = text(page)
    assert "Of 100 people, how many are judged rightly" in told
    assert "trained without any thought of fairness between groups" in told
    assert "Data: compas, split 0. How it was trained: linear, full-batch training" in told
    assert "fullbatch" not in told
    tab = visit(page)
    assert "plain training" in tab.locator(".methods").inner_text()
    assert "scratch" not in tab.locator("#choices").inner_text()


def test_weights_are_behind_a_fold_that_stays_as_it_is_left(bench, visit):
    tab = visit(report_of(bench))
    assert not tab.locator(".trace").first.is_visible()
    tab.get_by_text("How training went").click()
    assert tab.locator(".trace").first.is_visible()
    assert "how much its errors count" in tab.locator(".fold").inner_text()
    click_point(tab, "fairdro")
    assert tab.locator(".trace").first.is_visible()


def test_alternatives_about_as_accurate_as_plain_training_are_listed(tmp_path, visit):
    effect = {"lbc": 0.38, "fairdro": 0.35}
    store = synthetic(Store(tmp_path), plan_of(["compas"], ["scratch", "lbc", "fairdro"], points=20), effect=effect)
    tab = visit(report_of(store))
    assert "less discriminatory alternatives" in tab.locator("#alternatives").inner_text().lower()
    points = over_seeds(store.results())
    plain = points[points["method"] == "scratch"].iloc[0]
    close = points[(points["accuracy"] >= plain["accuracy"] - 0.01) & (points["dca"] < plain["dca"])].sort_values("dca")
    assert len(close) > 8
    assert f"{len(close)} models lose at most 1 point" in tab.locator("#alternatives-told").inner_text()
    rows = tab.locator("#alternatives-table tbody tr")
    shown = [float(row.locator("td").nth(1).inner_text()) for row in rows.all()]
    assert shown == pytest.approx(100 * close["dca"].to_numpy()[:8], abs=0.0051)
    rows.first.get_by_role("button").click()
    assert tab.locator("#model").inner_text() == rows.first.locator("th").inner_text().strip()
    alone = visit(report_of(synthetic(Store(tmp_path / "other"), plan_of(["compas"], ["fairdro"], points=3))))
    assert "no plain training here" in alone.locator("#alternatives-told").inner_text()
    assert alone.locator("#alternatives-table").is_hidden()
