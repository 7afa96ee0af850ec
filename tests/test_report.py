"""The report page: what it says, and what it does in a real browser."""

import json
import re
import time

import numpy as np
import pytest
from scipy.stats import binomtest

from fairdro.bench import BenchPlan, Outcome, Store, Summary, run_bench
from fairdro.bench.report import build_report
from fairdro.bench.tables import comparison, over_seeds, select
from fairdro.errors import InputError
from fairdro.frontier import convex_envelope
from fairdro.methods import METHODS
from fairdro.metrics import cell_accuracy, wilson_interval
from fairdro.selection import Guard, KeepAccuracy

HOSTILE = ["</script><script>window.hacked=1</script>", '<img src="x" onerror="window.hacked=1">']
PLAIN, GAP = 0.8, 0.16


def plan_of(*arguments, **options):
    """Made-up banks have a test part only, as in the paper."""
    return BenchPlan(*arguments, protocol="paper", **options)


def synthetic(store, plan, *, classes=("no", "yes"), groups=("A", "B"), effect=None, diverged=()):
    """Store made-up banks quickly: along its points a method narrows the gap between groups and loses accuracy."""
    effect = effect or {}
    for bank in plan.banks:
        if (reason := bank.refusal()) is not None:
            store.write(Outcome(bank, refused=reason))
            continue
        seeds, points = len(bank.seeds), bank.method.points
        strength = np.linspace(0, effect.get(bank.method.name, 0.9), points) if points > 1 else np.zeros(1)
        gap = GAP * (1 - strength)
        accuracy = PLAIN - 0.06 * strength**2
        right = accuracy[:, None] + gap[:, None] * np.array([-0.5, 0.5])
        right = np.round(np.broadcast_to(right[None, :, None, :], (seeds, points, 2, 2)) * 1000)
        counts = np.zeros((seeds, points, 2, 2, 2))
        for y in range(2):
            counts[:, :, y, :, y], counts[:, :, y, :, 1 - y] = right[:, :, y], 1000 - right[:, :, y]
        history = np.tile(np.linspace(0.2, 0.8, 50, dtype=np.float32)[:, None, None, None, None], (1, seeds, points, 2, 2))
        store.write(
            Outcome(
                bank,
                seconds=1.0,
                diverged=np.tile(np.isin(np.arange(points), diverged if points > 1 else ()), (seeds, 1)),
                confusion={"test": counts},
                weights=history,
                accuracy=history,
                progress=np.linspace(0.02, 1, 50, dtype=np.float32),
                class_names=list(classes),
                group_names=list(groups),
            )
        )
    return store


def report_of(store):
    return build_report(Summary(store))


def payload(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def text(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.split("<main>")[1].split("</main>")[0])).replace("\xa0", " ")


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """Real results, in both protocols."""
    out = tmp_path_factory.mktemp("report")
    for protocol in ("paper", "validated"):
        run_bench(BenchPlan(datasets=["compas"], methods=["scratch", "fairdro"], points=5, protocol=protocol), out)
    return Store(out)


def test_wilson_interval_is_scipys():
    for right, n in ((0, 7), (3, 10), (160, 160), (4100, 5000)):
        expected = binomtest(right, n).proportion_ci(0.95, method="wilson")
        assert np.allclose(wilson_interval(np.array(right / n), np.array(n)), (expected.low, expected.high))
    assert np.isnan(wilson_interval(np.array([np.nan]), np.array([0]))).all()


def test_cell_accuracy_is_the_share_of_right_predictions_and_nan_where_there_are_none():
    counts = np.array([[[3.0, 1.0], [0.0, 0.0]], [[2.0, 2.0], [0.0, 5.0]]])
    assert np.array_equal(cell_accuracy(counts), [[0.75, np.nan], [0.5, 1.0]], equal_nan=True)


def test_the_page_holds_the_numbers_of_the_tables(bench):
    page = report_of(bench)
    chosen = Summary(bench).selected
    for shown, (_, selected) in zip(payload(page)["benches"], chosen.groupby("protocol", sort=False), strict=True):
        assert shown["protocol"] == selected["protocol"].iloc[0]
        for method in shown["methods"]:
            row = selected.set_index("method").loc[method["name"]]
            point = next(p for p in method["points"] if json.dumps(p["hyperparameters"]) == row["hyperparameters"])
            assert point["mean"] == [row["accuracy"], row["dca"], row["worst_accuracy"]]
            assert min(point["accuracy"]) == pytest.approx(row["worst_accuracy"], abs=1e-5)
            accuracy, dca, _ = zip(*(p["mean"] for p in method["points"]), strict=True)
            assert method["envelope"] == convex_envelope(accuracy, dca).tolist()


def test_the_summary_says_what_fairness_costs(bench):
    told = text(report_of(bench))
    row = Summary(bench).selected.set_index(["protocol", "method"])
    for protocol in ("paper", "validated"):
        plain, fair = row.loc[protocol, "scratch"], row.loc[protocol, "fairdro"]
        at = comparison(row.loc[[(protocol, "fairdro")]].reset_index())["chosen"].iloc[0]
        assert (
            f"On compas, plain training (scratch) gets {100 * plain['accuracy']:.1f} % and treats groups differently by "
            f"{100 * plain['dca']:.1f} points (DCA): of 100 people"
        ) in told
        assert (
            f"FairDRO at {at} brings that down to {100 * fair['dca']:.1f} points for "
            f"{100 * (plain['accuracy'] - fair['accuracy']):.1f} points of accuracy. Who pays"
        ) in told
    assert "Fairest" not in told  # there is one fair method only
    assert "judges on it too, which is optimistic" in told
    assert "chooses on a validation part" in told
    assert "one training per point" in told


def test_the_summary_says_when_another_method_is_fairer(tmp_path):
    plan = plan_of(["compas"], ["scratch", "lbc", "fairdro"], points=5)
    store = synthetic(Store(tmp_path), plan, effect={"fairdro": 0.5, "lbc": 0.75})
    told = text(report_of(store))
    assert "FairDRO at rho = 100 brings that down to 8.0 points for 1.5 points of accuracy" in told
    assert "Fairest method: lbc at eta = 100, with 4.0 points for 3.4 points of accuracy; 1 method is fairer" in told


@pytest.mark.parametrize(
    ("methods", "effect", "expected"),
    [
        (["fairdro"], {}, "There is no plain training (scratch) to compare with"),
        (["scratch"], {}, "plain training (scratch) gets 80.0 %"),
        (["scratch", "fairdro"], {"fairdro": -0.5}, "does not lower that"),
    ],
)
def test_the_summary_of_a_bench_without_a_usual_story(tmp_path, methods, effect, expected):
    plan = plan_of(["compas"], methods, points=4)
    assert expected in text(report_of(synthetic(Store(tmp_path), plan, effect=effect)))


def test_a_store_without_results_says_what_to_do(tmp_path):
    with pytest.raises(InputError, match="run `fairdro bench`"):
        report_of(Store(tmp_path))


def test_a_large_store_makes_a_small_page_quickly(tmp_path):
    store = synthetic(Store(tmp_path), plan_of(["compas"], ["all"], ["minibatch"], points=20, seeds=4))
    store.outcomes()
    start = time.perf_counter()
    page = report_of(store)
    assert time.perf_counter() - start < 5  # half a second where nothing else runs
    assert len(page.encode()) < 1e6
    assert len(payload(page)["benches"][0]["methods"]) == len(METHODS)


def test_names_cannot_leave_the_data(tmp_path):
    plan = plan_of(["compas"], points=3)
    page = report_of(synthetic(Store(tmp_path), plan, groups=HOSTILE, classes=["\u2028&\u2029", "{{data}}"]))
    assert not any(name in page for name in HOSTILE)
    assert "\u2028" not in payload_text(page)
    assert "&" not in payload_text(page)
    assert payload(page)["benches"][0]["groups"] == HOSTILE
    assert payload(page)["benches"][0]["classes"] == ["\u2028&\u2029", "{{data}}"]


def payload_text(page):
    return page.split('id="data">')[1].split("</script>")[0]


def table_of(tab):
    """Read the table as text: cells by method."""
    rows = tab.locator("#choices tbody tr")
    return {row.get_attribute("data-method"): row.locator("th, td").all_inner_texts() for row in rows.all()}


def click_point(tab, method):
    """Click a model of a method where it is drawn, as a person does, and return what it is called."""
    point = tab.locator(f".series[data-method={method}] .point").first
    point.evaluate("e => e.scrollIntoView({block: 'center', behavior: 'instant'})")
    box = point.bounding_box()
    tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    return point.get_attribute("aria-label").split(":")[0]


def move_slider(tab, percent):
    tab.locator("#keep").evaluate("(e, value) => { e.value = value; e.dispatchEvent(new Event('input')); }", percent)


def test_the_slider_chooses_as_the_tables_do(bench, visit):
    tab = visit(report_of(bench))
    assert tab.locator("#kept").inner_text() == "95 %"
    results = bench.results()
    sentences = set()
    for number, protocol in enumerate(["paper", "validated"]):
        tab.get_by_label("Benchmark").select_option(str(number))
        for percent in (80, 95, 98.5, 100):
            move_slider(tab, percent)
            sentences.add(tab.locator("#chosen").inner_text())
            chosen = select(over_seeds(results[results["protocol"] == protocol]), KeepAccuracy(percent / 100)).set_index(
                "method"
            )
            shown = table_of(tab)
            for method, row in chosen.iterrows():
                expected = [100 * row[c] for c in ("accuracy", "dca", "worst_accuracy")]
                assert [float(value) for value in shown[method][2:5]] == pytest.approx(expected, abs=0.0051)
        assert tab.locator(".series[data-method=fairdro] .chosen .ring").count() == 1
    assert len(sentences) > 4


def test_models_trained_on_the_same_data_are_drawn_together(tmp_path, visit):
    store = Store(tmp_path)
    for model, effect in (("linear", 0.3), ("mlp", 0.6), ("boosting", 0.9)):
        methods = ["scratch", "fairdro"] if model == "boosting" else ["scratch", "fairdro", "lbc"]
        synthetic(store, plan_of(datasets=["compas"], methods=methods, model=model, points=5), effect={"fairdro": effect})
    tab = visit(report_of(store))
    results = store.results()
    for share in (95, 99):
        move_slider(tab, share)
        rows = [row.locator("th, td").all_inner_texts() for row in tab.locator("#kin-table tbody tr").all()]
        chosen = select(over_seeds(results), KeepAccuracy(share / 100)).set_index(["method", "model"]).loc["fairdro"]
        assert {row[0].split(",")[0]: (float(row[1]), float(row[2])) for row in rows} == {
            model: pytest.approx((100 * row["accuracy"], 100 * row["dca"]), abs=0.0051) for model, row in chosen.iterrows()
        }
    assert tab.locator("#kin-chart .series").count() == 3
    assert tab.locator("#kin-chart .hero").get_attribute("data-model") == tab.locator("#kin-table .hero-row th").inner_text()
    tab.locator("#kin-table").get_by_role("button", name="mlp, mini-batch training").click()
    assert "mlp" in tab.locator("#bench option:checked").inner_text()
    click_point(tab, "lbc")
    assert "not trained with this model" in tab.locator("#kin-table tr", has_text="boosting").inner_text()
    assert "lbc on compas" in tab.locator("#kin-told").inner_text()


def test_a_bench_of_one_model_has_no_others_to_draw(bench, visit):
    """The paper's and the validated protocol are not the same data."""
    assert visit(report_of(bench)).locator("#kin").is_hidden()


def test_a_click_on_a_point_shows_its_cells(bench, visit):
    tab = visit(report_of(bench))
    before = tab.locator("#model").inner_text()
    clicked = click_point(tab, "fairdro")
    assert tab.locator("#model").inner_text() == clicked != before
    points = payload(report_of(bench))["benches"][0]["methods"][1]["points"]
    point = next(p for p in points if clicked == f"FairDRO at rho = {p['hyperparameters']['rho']:.3g}")
    rows = tab.locator(".cells tbody tr:has(td)")
    expected = [
        f"{100 * a:.1f} ({100 * b:.1f}\u2013{100 * c:.1f})"
        for a, b, c in zip(*(point[k] for k in ("accuracy", "low", "high")), strict=True)
    ]
    assert [row.locator("td").first.inner_text().strip() for row in rows.all()] == expected
    assert tab.locator(".panel .bar").count() == 4
    assert tab.locator(".panel .trace").count() == 2


def test_points_can_be_walked_with_the_keyboard(bench, visit):
    tab = visit(report_of(bench))
    assert tab.locator(".point[tabindex='0']").count() == 1
    tab.locator(".point[tabindex='0']").focus()
    assert tab.locator("#tip").is_visible()
    label = "document.activeElement.getAttribute('aria-label')"
    first = tab.evaluate(label)
    tab.keyboard.press("End")
    last = tab.evaluate(label)
    assert first != last
    tab.keyboard.press("ArrowLeft")
    assert tab.evaluate(label) != last
    tab.keyboard.press("Enter")
    assert tab.evaluate(label).startswith(tab.locator("#model").inner_text())
    tab.keyboard.press("ArrowUp")
    assert tab.evaluate(label).startswith("plain training: accuracy")


def test_a_method_can_be_hidden(bench, visit):
    tab = visit(report_of(bench))
    assert tab.locator(".series[data-method=fairdro] .point").count() > 0
    tab.get_by_role("checkbox", name="FairDRO", exact=True).uncheck()
    assert tab.locator(".series[data-method=fairdro]").count() == 0
    assert tab.locator(".series[data-method=scratch]").count() == 1
    tab.get_by_role("button", name="Show all").click()
    assert tab.locator(".series[data-method=fairdro]").count() == 1
    assert tab.get_by_role("checkbox", name="FairDRO", exact=True).is_checked()


def test_refused_hopeless_and_diverged_models_are_told(tmp_path, visit):
    store = Store(tmp_path / "bench")
    plan = plan_of(["compas"], ["all"], ["minibatch"], points=9, seeds=2)
    store = synthetic(store, plan, effect={"cov": 2}, diverged=[8])
    tab = visit(report_of(store))
    move_slider(tab, 100)
    table = table_of(tab)
    assert table["fairhsic"][1].startswith("N/A: fairhsic needs the features of a hidden layer")
    assert "diverged are left out" in tab.locator("#note").inner_text()
    outside = tab.locator(".series[data-method=cov] .point").count()
    tab.get_by_role("button", name="Show every model").click()
    assert tab.locator(".series[data-method=cov] .point").count() == 8 > outside
    plan = plan_of(["compas"], points=3)
    table = table_of(visit(report_of(synthetic(Store(tmp_path / "diverged"), plan, diverged=range(3)))))
    assert table["fairdro"][1] == "N/A: every model diverged"


def test_a_phone_shows_the_page_without_scrolling_sideways(tmp_path, visit):
    plan = plan_of(["compas"], ["all"], ["minibatch"], points=6, seeds=2)
    page = report_of(
        synthetic(Store(tmp_path), plan, groups=["a name that is as long as names in the wild can be", "W" * 70])
    )
    tab = visit(page, viewport={"width": 360, "height": 740}, color_scheme="dark")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    click_point(tab, "lbc")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360


def test_hostile_names_are_shown_and_not_run(tmp_path, visit):
    plan = plan_of(["compas"], points=4)
    tab = visit(report_of(synthetic(Store(tmp_path), plan, groups=HOSTILE, classes=HOSTILE)))
    click_point(tab, "fairdro")
    groups = tab.locator(".cells tbody th[scope=row]").all_inner_texts()
    assert [name.strip() for name in groups] == HOSTILE * 2
    assert HOSTILE[0] in tab.locator(".cells tbody th[scope=rowgroup]").first.inner_text()
    assert tab.evaluate("window.hacked") is None
    assert tab.locator("img").count() == 0


def test_the_page_runs_no_script_but_its_own(bench, chromium, tmp_path):
    page = report_of(bench).replace("</main>", "<script>window.hacked = 1</script></main>")
    (tmp_path / "changed.html").write_text(page, encoding="utf-8")
    tab = chromium.new_page()
    tab.goto((tmp_path / "changed.html").as_uri())
    assert tab.evaluate("window.hacked") is None
    assert tab.locator(".point").count() > 0
    tab.close()


def test_the_page_can_be_used_by_name_and_role(bench, visit):
    tab = visit(report_of(bench))
    assert [h.inner_text() for h in tab.get_by_role("heading", level=1).all()] == ["What fairness costs"]
    unnamed = """[...document.querySelectorAll('input,select,button:not([hidden]),[role=img],[role=option],[role=listbox]')]
        .filter(e => !e.labels?.length && !e.ariaLabel && !(e.tagName === 'BUTTON' && e.textContent)).length"""
    assert tab.evaluate(unnamed) == 0
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    assert tab.locator("[aria-live=polite]").count() == 2


def levelling(store):
    """Store banks whose fairest point gives the second class up, in validation and test part."""
    plan = BenchPlan(["compas"], ["scratch", "fairdro"], points=3)
    of_class = {
        "scratch": [[(80, 60), (70, 50)]],
        "fairdro": [[(79, 61), (68, 52)], [(75, 65), (66, 54)], [(99, 99), (22, 22)]],
    }
    for bank in plan.banks:
        right = np.array(of_class[bank.method.name], dtype=float)[: bank.method.points] * 10
        counts = np.zeros((1, len(right), 2, 2, 2))
        for y in range(2):
            counts[0, :, y, :, y], counts[0, :, y, :, 1 - y] = right[:, y], 1000 - right[:, y]
        history = np.full((2, 1, len(right), 2, 2), 0.5, dtype=np.float32)
        store.write(Outcome(
            bank, seconds=1.0, diverged=np.zeros((1, len(right)), dtype=bool),
            confusion={"test": counts, "validation": counts, "train": counts}, weights=history, accuracy=history,
            progress=np.array([0.5, 1], dtype=np.float32), class_names=["no", "yes"], group_names=["A", "B"],
        ))  # fmt: skip
    return store


def test_a_bench_is_guarded_against_levelling_down_and_so_is_its_page(tmp_path, visit):
    store = levelling(Store(tmp_path))
    chosen = [Summary(store, KeepAccuracy(0.9), guard).selected.set_index("method") for guard in (Guard(), Guard(0.0))]
    assert chosen[0].loc["fairdro", "dca"] == pytest.approx(0.11)
    assert chosen[1].loc["fairdro", "dca"] == 0
    assert "while every class keeps 80 % of its accuracy where that can be" in Summary(store).how_chosen
    for guard, expected in ((Guard(), "11.00"), (Guard(0.0), "0.00"), (Guard(0.0, floor=0.5), "11.00")):
        tab = visit(build_report(Summary(store, KeepAccuracy(0.9), guard)))
        move_slider(tab, 90)
        assert table_of(tab)["fairdro"][3] == expected


def test_the_report_says_who_pays(tmp_path, visit):
    store = levelling(Store(tmp_path))
    page = build_report(Summary(store))
    assert "Who pays, on the test part: A / no loses 5.0 points" in text(page)
    tab = visit(page)
    move_slider(tab, 95)
    assert "A / no loses 5.0 points" in tab.locator("#choices tr[data-method=fairdro]").inner_text()
    assert tab.locator("#choices tr[data-method=scratch] .pays").inner_text() == ""
