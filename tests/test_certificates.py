import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fairdro.bounds import gap_bound
from fairdro.certificates import CERTIFIED, certify, rows_needed
from fairdro.errors import InputError
from fairdro.metrics import METRICS, Confusion, confusion
from fairdro.selection import CertifiedDCA, Choice, choose, points_rule_from, rule_from, rule_text

DELTA, DRAWS = 0.05, 2000
MARGIN = 3 * np.sqrt(DELTA * (1 - DELTA) / DRAWS)


def sum_of_gaps(rates):
    return (rates.max(-1) - rates.min(-1)).sum(-1)


@pytest.mark.parametrize(
    ("rates", "sizes", "at_least"),
    [
        ([[0.85, 0.75]] * 2, [[1000, 1000]] * 2, 0.005),
        ([[0.8, 0.9]], [[300, 1000]], 0.01),
        ([[0.99, 0.97]] * 2, [[30, 30]] * 2, 0),
        ([[0.9, 0.6, 0.8], [0.5, 0.55, 0.9], [0.7, 0.95, 0.8]], [[400, 90, 2000]] * 3, 0),
        ([[0.7, 0.6, 0.8, 0.75, 0.72, 0.7]] * 4, [[300] * 6] * 4, 0),
    ],
)
def test_the_bound_is_too_small_in_at_most_a_share_delta_of_draws(rates, sizes, at_least):
    rates, sizes = np.array(rates), np.array(sizes)
    right = np.random.default_rng(0).binomial(sizes, rates, size=(DRAWS, *sizes.shape)).astype(float)
    violated = (gap_bound(right, sizes.astype(float), DELTA) < sum_of_gaps(rates)).mean()
    assert at_least <= violated <= DELTA + MARGIN  # not far too wide either, where cells are large


@pytest.mark.parametrize("shape", [(2, 3), (3, 2)])
def test_every_figure_of_a_certificate_holds(shape):
    n_classes, rng = shape[0], np.random.default_rng(1)
    rates = rng.dirichlet(np.full(n_classes, 2.0), size=shape)
    rates = 0.5 * rates + 0.5 * np.eye(n_classes)[:, None, :]
    sizes = rng.integers(30, 400, size=shape)
    truth = {name: float(METRICS[name](rates)) for name in ("dca", "deo", "equalized_odds_difference")}
    truth["worst_error"] = 1 - float(METRICS["worst_accuracy"](rates))
    draws, wrong = 80, dict.fromkeys(CERTIFIED, 0)
    for _ in range(draws):
        found = certify(rng.multinomial(sizes, rates).astype(float), delta=0.1)
        for name in CERTIFIED:
            wrong[name] += found.bounds[name] < truth[name]
    assert max(wrong.values()) / draws <= 0.1 + 3 * np.sqrt(0.09 / draws)


@pytest.mark.parametrize(("right", "sizes"), [((43, 30), (50, 50)), ((20, 19), (20, 25)), ((80, 4), (100, 10))])
def test_the_bound_of_two_cells_is_that_of_a_search_over_their_rates(right, sizes):
    """All pairs of rates that the combined test, by scipy's distributions, does not reject."""
    n, k = np.array(sizes), np.array(right)
    shapes = 4.0 * (1 / n) / (1 / n).sum()
    grid = np.linspace(0, 1, 1501)

    def cost(cell, tail):
        return stats.gamma.isf(np.clip(tail, 0, 1), shapes[cell])

    largest = 0.0
    for better, worse in ((0, 1), (1, 0)):
        up = cost(better, stats.binom.cdf(k[better], n[better], grid))
        down = cost(worse, stats.binom.sf(k[worse] - 1, n[worse], grid))
        left = up[:, None] + down[None, :] <= stats.gamma.isf(DELTA, 4.0)
        largest = max(largest, (grid[:, None] - grid[None, :])[left].max())
    (bound,) = gap_bound(k[None, None].astype(float), n[None].astype(float), DELTA)
    assert largest - 2e-3 <= bound <= largest + 0.01


def test_it_is_tighter_than_intervals_of_every_cell():
    counts = np.array([[[3400, 760], [2200, 400]], [[370, 1470], [60, 273]]], dtype=float)
    right, sizes = np.einsum("yay->ya", counts), counts.sum(-1)
    ends = [stats.beta.ppf(DELTA / 8, right, sizes - right + 1), stats.beta.isf(DELTA / 8, right + 1, sizes - right)]
    baseline = (ends[1].max(1) - ends[0].min(1)).mean()
    observed = float(METRICS["dca"](counts))
    assert certify(counts).dca - observed < 0.6 * (baseline - observed)


def test_the_worst_error_is_scipys_exact_bound():
    counts = np.array([[[40, 10], [45, 5]], [[8, 42], [20, 30]]])
    exact = stats.binomtest(20, 50, alternative="less").proportion_ci(0.95, method="exact").high
    assert certify(counts).worst_error == pytest.approx(exact)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=4, max_size=4), st.permutations([0, 1]))
def test_bounds_are_shares_above_what_is_observed_whatever_the_order(cells, order):
    counts = np.array([[cells[0], cells[1]], [cells[2][::-1], cells[3][::-1]]], dtype=float)
    found, turned = certify(counts), certify(counts[:, order])
    for name in CERTIFIED:
        assert np.isnan(found.observed[name]) or found.observed[name] <= found.bounds[name] <= 1
        assert found.bounds[name] == pytest.approx(turned.bounds[name])
    assert certify(counts, delta=0.2).dca <= found.dca + 1e-12
    json.dumps(found.to_dict(), allow_nan=False)


def test_rows_counts_and_a_confusion_are_the_same():
    rng = np.random.default_rng(0)
    y, predicted, sex = (rng.choice(["no", "yes"], 300) for _ in range(3))
    judged = confusion(y, predicted, sensitive_features=sex)
    by_rows = certify(y, predicted, sensitive_features=sex)
    assert by_rows.bounds == certify(judged).bounds == certify(judged.counts).bounds
    one = certify(y, predicted, sensitive_features=sex, fair_classes=["yes"])
    assert one.dca == certify(judged.counts, fair_classes=[1]).dca != by_rows.dca
    assert one.dca == pytest.approx(gap_bound(judged.counts[1:, :, 1][None], judged.counts.sum(-1)[1:], 0.05)[0])
    assert "these classes: yes" in one.sentence()
    assert (by_rows.rows, by_rows.cell_counts.tolist()) == (300, judged.counts.sum(-1).tolist())
    assert by_rows.to_dict()["cells"][0]["class"] == "no"
    assert "95 % confidence by 300 rows" in str(by_rows)


def test_of_a_class_without_rows_of_a_group_nothing_is_certified():
    counts = np.zeros((2, 2, 2))
    counts[0, :, 0], counts[1, 0] = 1000, (10, 90)
    found = certify(Confusion(counts, ["no", "yes"], ["f", "m"]))
    assert 0.5 < found.dca < 0.51
    assert found.equalized_odds_difference == found.worst_error == 1
    assert "Nothing can be certified of class yes: there are no rows of it in group m" in str(found)
    assert certify(np.zeros((2, 2, 2))).bounds == dict.fromkeys(CERTIFIED, 1)
    alone = certify(counts[:, :1])
    assert alone.dca == 0
    assert "one group only" in str(alone)


def test_what_cannot_be_certified_is_refused_in_a_sentence():
    y = ["a", "b"] * 10
    shares = np.full((20, 2), 0.5)
    for wrong, said in [
        (lambda: certify(y, y, sensitive_features=shares), "groups in shares"),
        (lambda: certify(np.full((2, 2, 2), 0.5)), "count every row once"),
        (lambda: certify(np.ones((2, 2))), "shape"),
        (lambda: certify("adult"), "no table of numbers"),
        (lambda: certify(-np.ones((2, 2, 2))), "not negative"),
        (lambda: certify(y, y), "sensitive_features"),
        (lambda: certify(np.ones((2, 2, 2)), delta=5), "write 0.05"),
        (lambda: certify(np.ones((2, 2, 2)), delta=0), "between 1e-09 and 1"),
        (lambda: rows_needed([[0.9, 0.7]], 0.1), "No number of rows would certify 10 % if the gap is 20.0 %"),
        (lambda: rows_needed(np.zeros((2, 2, 2)), 0.1), "have no rows"),
        (lambda: rows_needed([[0.9, 2]], 0.1), "accuracies"),
        (lambda: rows_needed([[0.9, 0.9]], 0.1, shares=[1, 2]), "shape"),
        (lambda: CertifiedDCA(5), "write 0.05"),
        (lambda: CertifiedDCA(0.05, 1), "delta"),
    ]:
        with pytest.raises(InputError, match=said):
            wrong()


def test_a_plan_is_enough_with_about_the_chance_asked_for():
    rates, shares = np.array([[0.85, 0.83], [0.80, 0.82]]), np.array([[0.4, 0.3], [0.25, 0.05]])
    for chance in (0.5, 0.8):
        plan = rows_needed(rates, 0.05, shares=shares, chance=chance)
        assert plan.rows == plan.cells.sum()
        right = np.random.default_rng(0).binomial(plan.cells, rates, size=(DRAWS, 2, 2)).astype(float)
        reached = (gap_bound(right, plan.cells.astype(float), DELTA) / 2 <= 0.05).mean()
        assert chance - 0.1 < reached < chance + 0.15
    few = Confusion(
        np.round(1000 * shares[..., None] * np.array([[[0.85, 0.15]] * 2, [[0.2, 0.8]] * 2])), ["0", "1"], ["f", "m"]
    )
    assert " such rows would certify 5 %." in certify(few).sentence(0.05)
    assert "would certify" not in certify(few).sentence(0.9)


def frontier(gaps, n):
    """Counts of radii with these gaps ``(P, 2, 2, 2)``, as expected."""
    rates = np.stack([[[0.8, 0.8 - gap]] * 2 for gap in gaps])
    hit = np.round(n * np.stack([rates, 1 - rates], -1))
    hit[:, 1] = hit[:, 1, :, ::-1]
    return hit


def test_the_walk_takes_the_last_radius_before_the_first_that_fails():
    counts, asked = frontier([0.0, 0.01, 0.2, 0.0], 5000), []

    def judge(place):
        asked.append(place)
        return Confusion(counts[place], ["0", "1"], ["f", "m"])

    assert CertifiedDCA(0.05).walk([0, 1, 2, 3], judge) == 1
    assert asked == [0, 1, 2]
    with pytest.raises(InputError, match=r"No radius is certified.*at most 2[0-9.]+ %.*No number of rows"):
        CertifiedDCA(0.05).walk([2, 0], judge)
    with pytest.raises(InputError, match=r"About [0-9,]+ such rows would certify 2 %"):
        CertifiedDCA(0.02).walk([1], judge)
    points = pd.DataFrame({"accuracy": [0.7, 0.9, 0.8, 0.6], "dca": [0.02, 0.2, 0.05, 0.03]})
    assert CertifiedDCA().sequence(points) == [0, 2, 1]


def test_what_is_stated_of_a_chosen_radius_allows_for_the_choice():
    judged = Confusion(frontier([0.0], 5000)[0], ["0", "1"], ["f", "m"])
    stated, alone = CertifiedDCA(0.05).certificate(judged, 20), certify(judged)
    assert stated.dca == stated.deo == 0.05 > alone.dca
    assert stated.worst_error == certify(judged, delta=0.05 / 20).worst_error > alone.worst_error
    assert stated.delta == 0.05


def test_choosing_among_20_radii_exceeds_the_limit_in_at_most_a_share_delta():
    """Rows that choose by what they show exceed it far more often, so the test can fail."""
    rng, gaps = np.random.default_rng(0), np.linspace(0.02, 0.20, 20)
    limit, sizes = gaps[9] - 1e-9, np.full((2, 2), 400)
    draws, above, naive = 500, 0, 0
    rates = np.stack([[[0.8, 0.8 - gap]] * 2 for gap in gaps])
    right = np.stack([rng.binomial(sizes, rate, size=(draws, 2, 2)) for rate in rates], 1).astype(float)
    bound = gap_bound(right.reshape(-1, 2, 2), sizes.astype(float), DELTA).reshape(draws, 20) / 2
    shown = sum_of_gaps(right / sizes) / 2
    for draw in range(draws):
        order = np.argsort(gaps + rng.normal(0, 0.01, 20))  # of other rows
        passed = bound[draw, order] <= limit
        reached = 20 if passed.all() else int(passed.argmin())
        above += reached > 0 and gaps[order[reached - 1]] > limit
        naive += gaps[np.flatnonzero(shown[draw] <= limit).max(initial=0)] > limit
    assert above / draws <= DELTA + 3 * np.sqrt(0.0475 / draws)
    assert naive / draws > 0.3


def test_the_rule_is_written_and_read_and_refused_where_no_rows_certify():
    for rule in (CertifiedDCA(0.07), CertifiedDCA(0.05, 0.1)):
        assert rule_from(rule_text(rule)) == rule
    assert rule_from("certified-dca") == CertifiedDCA()
    with pytest.raises(InputError, match="use max-dca"):
        points_rule_from("certified-dca=0.05")
    points = pd.DataFrame({"accuracy": [0.7, 0.9], "dca": [0.02, 0.2]})
    with pytest.raises(InputError, match="rows that are set aside"):
        choose(CertifiedDCA(), points, SimpleNamespace())
    assert isinstance(choose(lambda points, plain: Choice(1, "so"), points, SimpleNamespace()), Choice)
