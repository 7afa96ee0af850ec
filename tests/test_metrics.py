"""Metrics against the vectors, against fairlearn, and bootstrap intervals against resampled rows."""

import fairlearn.metrics
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairdro import metrics
from fairdro.errors import InputError
from fairdro.metrics import METRICS, Confusion, confusion, group_report


def sample(seed, n=300, n_classes=2, n_groups=2):
    rng = np.random.default_rng(seed)
    y, a = rng.integers(n_classes, size=n), rng.integers(n_groups, size=n)
    predicted = np.where(rng.random(n) < 0.6 + 0.3 * a / n_groups, y, rng.integers(n_classes, size=n))
    return y, predicted, a


def test_vectors(vectors):
    for case in vectors["D_metrics"]:
        counts = np.array(case["conf_g_true_pred"], dtype=float).swapaxes(0, 1)
        expected = {"std_acc": "standard_accuracy", "bal_acc": "accuracy", "dca_mean": "dca", "deo": "deo"}
        expected["worst_acc"] = "worst_accuracy"
        for key, name in expected.items():
            assert METRICS[name](counts) == pytest.approx(case[key], abs=1e-6), (name, case)


@given(st.integers(0, 10_000), st.integers(2, 4))
def test_against_fairlearn(seed, n_groups):
    y, predicted, a = sample(seed, n_groups=n_groups)
    for name in ("equalized_odds_difference", "demographic_parity_difference"):
        theirs = getattr(fairlearn.metrics, name)(y, predicted, sensitive_features=a)
        assert getattr(metrics, name)(y, predicted, sensitive_features=a) == pytest.approx(theirs)


@given(st.integers(0, 10_000))
def test_dca_equals_deo_for_two_classes_and_bounds_it_never_more_than_the_worst_case(seed):
    y, predicted, a = sample(seed, n_groups=3)
    dca = metrics.dca(y, predicted, sensitive_features=a)
    assert dca == pytest.approx(metrics.deo(y, predicted, sensitive_features=a))
    assert dca <= metrics.equalized_odds_difference(y, predicted, sensitive_features=a) + 1e-12


@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 4))
def test_cell_accuracies_against_pandas(seed, n_classes, n_groups):
    y, predicted, a = sample(seed, n_classes=n_classes, n_groups=n_groups)
    accuracy = pd.Series(predicted == y).groupby([y, a]).mean().unstack()
    gaps = accuracy.max(axis=1) - accuracy.min(axis=1)
    assert metrics.balanced_accuracy(y, predicted, sensitive_features=a) == pytest.approx(np.nanmean(accuracy))
    assert metrics.dca(y, predicted, sensitive_features=a) == pytest.approx(gaps.mean())
    assert metrics.worst_accuracy(y, predicted, sensitive_features=a) == pytest.approx(np.nanmin(accuracy))
    assert metrics.standard_accuracy(y, predicted, sensitive_features=a) == pytest.approx(np.mean(y == predicted))


def test_labels_may_be_strings_and_groups_several_columns():
    y, predicted, a = sample(0)
    names = np.array(["no", "yes"])
    table = pd.DataFrame({"sex": names[a], "age": names[a]})
    assert metrics.dca(names[y], names[predicted], sensitive_features=table) == metrics.dca(
        y, predicted, sensitive_features=a
    )


def test_tensors_and_one_row_are_fine():
    y, predicted, a = (torch.tensor(v) for v in sample(0))
    assert metrics.dca(y, predicted, sensitive_features=a) == metrics.dca(*sample(0)[:2], sensitive_features=sample(0)[2])
    one = pd.DataFrame({"y": [1]})
    assert metrics.balanced_accuracy(one, one, sensitive_features=["f"]) == 1


def test_soft_groups_with_certain_membership_equal_hard_groups():
    y, predicted, a = sample(0, n_groups=3)
    soft = pd.DataFrame(np.eye(3)[a], columns=list("abc"))
    for name in METRICS:
        hard = confusion(y, predicted, sensitive_features=a).metric(name)
        assert confusion(y, predicted, sensitive_features=soft).metric(name) == pytest.approx(hard)


def test_sample_weight_repeats_rows():
    y, predicted, a = sample(0)
    weight = np.arange(len(y)) % 4
    rows = np.repeat(np.arange(len(y)), weight)
    weighted = metrics.dca(y, predicted, sensitive_features=a, sample_weight=weight)
    assert weighted == pytest.approx(metrics.dca(y[rows], predicted[rows], sensitive_features=a[rows]))


def test_a_predicted_class_without_samples_and_an_empty_cell_are_left_out():
    y, predicted, a = ["x", "x", "y", "y"], ["x", "z", "y", "y"], ["f", "m", "f", "f"]
    known = {"sensitive_features": a, "labels": ["x", "y", "z"]}
    assert metrics.balanced_accuracy(y, predicted, **known) == pytest.approx(2 / 3)
    assert metrics.dca(y, predicted, **known) == pytest.approx(0.5)
    report = confusion(y, predicted, **known).cells()
    assert report.loc[("y", "m"), "count"] == 0
    assert np.isnan(report.loc[("y", "m"), "accuracy"])


def test_one_group_has_no_gap():
    assert metrics.dca([0, 1, 1], [0, 1, 0], sensitive_features=["all"] * 3) == 0


def test_bootstrap_agrees_with_resampling_rows_within_cells():
    y, predicted, a = sample(0, n=400)
    table = confusion(y, predicted, sensitive_features=a).metrics(n_boot=4000)
    rng = np.random.default_rng(1)
    strata = [np.flatnonzero((y == k) & (a == g)) for k in range(2) for g in range(2)]
    draws = []
    for _ in range(1500):
        rows = np.concatenate([rng.choice(s, len(s)) for s in strata])
        draws.append(metrics.dca(y[rows], predicted[rows], sensitive_features=a[rows]))
    assert table.loc["dca", ["low", "high"]].tolist() == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.01)


def test_an_interval_holds_the_value_also_where_groups_are_alike():
    """Ten groups with the same accuracy: every draw has a gap."""
    counts = np.tile([[30.0, 20.0], [20.0, 30.0]], (10, 1, 1)).transpose(1, 0, 2)
    row = Confusion(counts, ["0", "1"], [str(a) for a in range(10)]).metrics().loc["dca"]
    assert row["value"] == row["low"] == 0
    assert row["high"] > 0.1


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(0)
    truth, covered = 0.8, 0
    for seed in range(400):
        counts = np.zeros((2, 2, 2))
        correct = rng.binomial(200, truth, size=(2, 2))
        for y in range(2):
            counts[y, :, y], counts[y, :, 1 - y] = correct[y], 200 - correct[y]
        row = Confusion(counts, ["n", "y"], ["f", "m"]).metrics(seed=seed).loc["accuracy"]
        covered += row["low"] <= truth <= row["high"]
    assert 0.91 <= covered / 400 <= 0.98


def test_same_seed_same_intervals():
    y, predicted, a = sample(0)
    first, second = (group_report(y, predicted, sensitive_features=a, seed=3) for _ in range(2))
    pd.testing.assert_frame_equal(first, second)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: metrics.dca([0, 1], [0], sensitive_features=[0, 1]), "2 rows but y_pred has 1"),
        (lambda: metrics.dca([0, 1], [0, 1], sensitive_features=[0]), "2 rows but sensitive_features has 1"),
        (lambda: metrics.dca([0, 1], [0, np.nan], sensitive_features=[0, 1]), "missing value"),
        (lambda: metrics.dca([], [], sensitive_features=[]), "empty"),
        (lambda: metrics.dca([0, 1], [0, 1], sensitive_features=[0, 1], sample_weight=[1]), "sample_weight has shape"),
        (lambda: group_report([0, 1], [0, 1], sensitive_features=[0, 1], level=2), "between 0 and 1"),
        (lambda: confusion([0, 1], [0, 1], sensitive_features=[0, 1]).metric("dcaa"), "no metric named 'dcaa'"),
        (lambda: group_report([0, 1], [0, 1], sensitive_features=[0, 1], n_boot=0), "n_boot must be at least 1"),
        (lambda: metrics.dca([0, 1], ["0", "1"], sensitive_features=[0, 1]), "bring them to one type"),
        (lambda: metrics.dca([0, 1], [0, 1], sensitive_features=[0, 1], sample_weight=[1, np.nan]), "finite numbers"),
    ],
)
def test_bad_input_is_one_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


def test_a_cell_of_few_rows_is_said_in_words():
    y, predicted, a = np.zeros(100, int), np.zeros(100, int), np.repeat(["few", "many"], [29, 71])
    with pytest.warns(UserWarning, match="Fewer than 30 rows, too few to conclude anything: 0 / few."):
        report = group_report(y, predicted, sensitive_features=a)
    assert report["note"].to_dict() == {("0", "few"): "too few rows to conclude anything", ("0", "many"): ""}


def test_soft_groups_have_a_report_without_intervals():
    shares = np.tile([0.75, 0.25], (400, 1))
    report = group_report(np.arange(400) % 2, np.zeros(400, int), sensitive_features=shares)
    assert report["count"].tolist() == [150, 50, 150, 50]
    assert report["accuracy"].tolist() == [1, 1, 0, 0]
    assert report[["low", "high"]].isna().all(axis=None)


def test_groups_never_seen_before_are_named():
    report = group_report([0, 1] * 60, [0, 1] * 60, sensitive_features=["new"] * 60 + ["newer"] * 60)
    assert report.index.get_level_values("group").unique().tolist() == ["new", "newer"]


METRIC_FUNCTIONS = [
    metrics.balanced_accuracy, metrics.dca, metrics.deo, metrics.worst_accuracy, metrics.standard_accuracy,
    metrics.equalized_odds_difference, metrics.demographic_parity_difference, metrics.group_report,
]  # fmt: skip


@pytest.mark.parametrize("metric", METRIC_FUNCTIONS, ids=lambda metric: metric.__name__)
@pytest.mark.parametrize("predicted", [[0.2, 0.9, 0.4, 0.7], [0, 1, 0, 2], [0, 1, 0, -1]])
def test_predictions_that_are_no_class_are_refused_by_every_metric(metric, predicted):
    with pytest.raises(InputError, match="no class of y_true"):
        metric([0, 1, 0, 1], predicted, sensitive_features=["u", "v", "u", "v"])
