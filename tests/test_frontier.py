"""Frontier functions against brute force, and selection rules."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairdro.errors import InputError
from fairdro.frontier import (
    best_accuracy,
    best_dca,
    convex_envelope,
    fill_holes,
    knee,
    non_dominated,
)
from fairdro.metrics import metric_table
from fairdro.selection import AsAsked, Choice, KeepAccuracy, Knee, LimitDCA, choose_radius, rule_from, rule_text

points = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=25)


@given(points)
def test_non_dominated_against_brute_force(pairs):
    accuracy, dca = np.array(pairs, dtype=float).T
    kept = non_dominated(accuracy, dca)
    expected = {(a, d) for a, d in pairs if not any((b >= a and e < d) or (b > a and e <= d) for b, e in pairs)}
    assert {(accuracy[i], dca[i]) for i in kept} == expected
    assert len(kept) == len(expected)
    assert (np.diff(accuracy[kept]) < 0).all()


@given(points)
def test_envelope_lies_below_every_point(pairs):
    accuracy, dca = np.array(pairs, dtype=float).T
    hull = convex_envelope(accuracy, dca)
    assert set(hull) <= set(non_dominated(accuracy, dca))
    inside = (accuracy >= accuracy[hull].min()) & (accuracy <= accuracy[hull].max())
    line = np.interp(accuracy[inside], accuracy[hull][::-1], dca[hull][::-1])
    assert (dca[inside] >= line - 1e-9).all()
    slopes = np.diff(dca[hull]) / np.diff(accuracy[hull])
    assert (np.diff(slopes) < 1e-9).all()


def test_best_dca_is_the_papers_rule():
    accuracy, dca = [0.82, 0.80, 0.79, 0.70], [0.07, 0.03, 0.02, 0.0]
    assert best_dca(accuracy, dca, min_accuracy=0.95 * 0.82) == 2
    assert best_dca([0.8, 0.81], [0.03, 0.03], min_accuracy=0.5) == 1


@given(points)
def test_the_knee_lies_on_the_envelope_and_best_accuracy_keeps_its_limit(pairs):
    accuracy, dca = np.array(pairs, dtype=float).T
    assert knee(accuracy, dca) in convex_envelope(accuracy, dca)
    chosen = best_accuracy(accuracy, dca, max_dca=float(dca.mean()))
    assert dca[chosen] <= dca.mean()
    assert accuracy[chosen] == accuracy[dca <= dca.mean()].max()


def test_the_knee_is_where_fairness_begins_to_cost_more():
    accuracy, dca = [0.82, 0.81, 0.80, 0.75, 0.70], [0.10, 0.06, 0.02, 0.015, 0.01]
    assert knee(accuracy, dca) == 2


def test_rules_say_what_they_chose_and_why():
    accuracy, dca = [0.82, 0.80, 0.79, 0.70], [0.07, 0.03, 0.02, 0.0]
    table = pd.DataFrame({"accuracy": accuracy, "dca": dca})
    kept = rule_from("keep-accuracy=0.95")(table, table.iloc[0])
    assert (kept.index, kept.why) == (2, "the smallest DCA at an accuracy of 77.90 % or more")
    limited = rule_from("max-dca=0.03")(table, table.iloc[0])
    assert (limited.index, limited.why) == (1, "the largest accuracy with a DCA of at most 3 %")
    assert rule_from("knee")(table, table.iloc[0]).index == knee(accuracy, dca)
    rules = [KeepAccuracy(0.95), LimitDCA(0.05), Knee()]
    assert [rule_from(text) for text in ("keep-accuracy", "max-dca", "knee")] == rules
    assert [rule_from(rule_text(rule)) for rule in rules] == rules
    assert rule_text(AsAsked()) is None


def frontier_counts(seed=0):
    """Four radii, three classes, two groups."""
    return np.random.default_rng(seed).integers(1, 50, (4, 3, 2, 3)) + 15.0


def test_a_rule_sees_all_metrics_of_every_point_and_of_plain_training():
    counts, radii, seen = frontier_counts(), [0.5, 0.0, 2.0, 8.0], []

    def best_worst(points, plain):
        seen.append((points, plain))
        return Choice(int(points["worst_accuracy"].argmax()), "the best worst cell")

    choice, frontier = choose_radius(counts, radii, best_worst)
    points, plain = seen[0]
    pd.testing.assert_frame_equal(points, metric_table(counts))
    pd.testing.assert_series_equal(plain, points.iloc[1])
    columns = ["accuracy", "dca", "deo", "worst_accuracy", "standard_accuracy"]
    columns += ["equalized_odds_difference", "demographic_parity_difference"]
    assert list(points.columns) == [*columns, *(f"class_accuracy_{k}" for k in range(3))]
    right = np.stack([counts[:, k, :, k] / counts[:, k].sum(-1) for k in range(3)], axis=1)
    np.testing.assert_allclose(points.filter(like="class_accuracy"), right.mean(-1))
    assert choice.index == right.min((1, 2)).argmax()
    assert frontier["selected"].tolist() == [i == choice.index for i in range(4)]
    assert frontier["rho"].tolist() == radii


def test_diverged_radii_are_not_chosen():
    counts, radii = frontier_counts(), [0.0, 1.0, 2.0, 4.0]
    diverged = np.array([False, True, False, False])
    chosen = [choose_radius(counts, radii, rule, diverged=diverged)[0].index for rule in (LimitDCA(1.0), AsAsked())]
    assert chosen[0] == metric_table(counts)["accuracy"].drop(1).idxmax()
    assert chosen[1] == 3
    for diverged in (np.ones(4, dtype=bool), np.array([False, False, False, True])):
        with pytest.raises(InputError, match="try smaller radii"):
            choose_radius(counts, radii, AsAsked(), diverged=diverged)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=9), st.integers(0, 12))
def test_new_strengths_lie_between_those_tried_and_the_widest_step_gets_the_most(pairs, number):
    accuracy, dca = np.array(pairs, dtype=float).T
    tried = np.geomspace(0.01, 100, len(pairs))
    new = np.array(fill_holes(tried, accuracy, dca, number))
    assert len(new) == number
    per_step = np.histogram(new, bins=tried)[0]
    width = np.hypot(np.diff(accuracy), np.diff(dca))
    left = width / (per_step + 1)
    if number:
        assert left.max() <= (width / np.maximum(per_step, 1))[per_step > 0].min() + 1e-9


def test_holes_ignore_the_strength_zero():
    new = fill_holes([0.0, 1.0, 10.0, 100.0], [0.9, 0.8, 0.8, 0.6], [0.2, 0.1, 0.1, 0.1], 3)
    assert all(10 < value < 100 for value in new)
    assert np.diff(np.log([10, *new, 100])) == pytest.approx(np.log(10) / 4, rel=1e-4)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: best_accuracy([0.5], [0.1], max_dca=0.05), "the fairest has 0.1000. Raise the limit"),
        (lambda: fill_holes([0, 1], [0.5, 0.6], [0.1, 0.2], 2), "at least two strengths"),
        (lambda: rule_from("keep-accuracy=much"), "needs a share between 0 and 1"),
        (lambda: rule_from("knee=0.5"), "needs a share between 0 and 1"),
        (lambda: best_dca([0.5], [0.1], min_accuracy=0.6), "the best has 0.5000. Lower the demand"),
        (lambda: non_dominated([], []), "at least one point"),
        (lambda: non_dominated([0.5, np.nan], [0.1, 0.1]), "NaN"),
        (lambda: convex_envelope([0.5], [0.1, 0.2]), "one accuracy and one DCA per point"),
    ],
)
def test_bad_input_is_one_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()
