"""Audits: figures beside independent computations, what is assumed, and junk in one sentence."""

import json
import math

import fairlearn.metrics
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, fisher_exact
from scipy.stats.contingency import relative_risk
from sklearn.metrics import accuracy_score

from fairdro.audit import audit_table, in_short
from fairdro.audit.outputs import to_dict, to_json, to_markdown
from fairdro.audit.page import build_page
from fairdro.audit.rates import Grouping, calibration_table, compare, rate_changes, rate_table, ratio_interval, score_table
from fairdro.errors import InputError
from fairdro.metrics import dca, equalized_odds_difference


def people(n=3000, seed=0):
    """Two predictions and a probability of being hired, lower for women, and a few people of unknown sex."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["female", "male"], n).astype(object)
    race = rng.choice(["asian", "black", "white"], n, p=[0.2, 0.3, 0.5])
    fit = rng.random(n) < 0.5
    chance = 1 / (1 + np.exp(-(2.0 * fit - 1 - 0.7 * (sex == "female") + rng.normal(size=n))))
    sex[rng.random(n) < 0.02] = None
    return pd.DataFrame({
        "sex": sex, "race": race, "fit": np.where(fit, "yes", "no"), "p": chance,
        "old": np.where(chance > 0.5, "yes", "no"), "new": np.where(chance > 0.45 - 0.1 * (race == "black"), "yes", "no"),
    })  # fmt: skip


def grouping(codes, names=None):
    codes = np.asarray(codes)
    names = [str(c) for c in range(codes.max() + 1)] if names is None else names
    return Grouping(["g"], names, codes, np.zeros(len(names), dtype=bool))


def rates_of(audit, part=0, outcome=0):
    return audit.parts[part].rates[outcome].table


def test_rates_and_ratios_are_fairlearns():
    table = people().dropna()
    audit = audit_table(table, groups=["sex", "race"], predictions=["old"], favourable="yes")
    assert [part.grouping.title for part in audit.parts] == ["sex", "race", "sex and race"]
    chosen = (table["old"] == "yes").astype(int)
    for part, columns in zip(audit.parts, ([["sex"], ["race"], ["sex", "race"]]), strict=True):
        sensitive = table[columns].agg(", ".join, axis=1)
        frame = fairlearn.metrics.MetricFrame(
            metrics=fairlearn.metrics.selection_rate, y_true=chosen, y_pred=chosen, sensitive_features=sensitive
        )
        rates = part.rates[0].table
        assert rates["rate"].to_dict() == pytest.approx(frame.by_group.to_dict())
        ratio = fairlearn.metrics.demographic_parity_ratio(chosen, chosen, sensitive_features=sensitive)
        assert rates["ratio"].min() == pytest.approx(ratio)
        assert rates["rows"].sum() == len(table)
        for _, row in rates.iterrows():
            expected = binomtest(row["selected"], row["rows"]).proportion_ci(method="wilson")
            assert (row["low"], row["high"]) == pytest.approx((expected.low, expected.high))


@given(st.integers(1, 40), st.integers(1, 40), st.data())
def test_ratio_intervals_are_scipys_and_hold_the_ratio_at_the_edges(n, n_ref, data):
    x, x_ref = data.draw(st.integers(0, n)), data.draw(st.integers(1, n_ref))
    low, high = ratio_interval(x, n, x_ref, n_ref)
    ratio = (x / n) / (x_ref / n_ref)
    assert 0 <= low <= ratio <= high < math.inf
    assert high > low
    if 0 < x < n and x_ref < n_ref:
        expected = relative_risk(x, n, x_ref, n_ref).confidence_interval(0.95)
        assert (low, high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(
    ("counts", "name"), [((1, 8, 5, 9), "exact"), ((0, 40, 3, 40), "exact"), ((200, 900, 300, 1000), "chi-square")]
)
def test_the_test_is_fishers_for_few_rows_and_the_z_test_for_many(counts, name):
    x, n, y, m = counts
    found, p_value = compare(*counts)
    assert found == name
    if name == "exact":
        assert p_value == pytest.approx(fisher_exact([[x, n - x], [y, m - y]])[1])
    else:
        pooled = (x + y) / (n + m)
        z = (x / n - y / m) / math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
        assert p_value == pytest.approx(math.erfc(abs(z) / math.sqrt(2)))


def test_intervals_of_rates_and_ratios_cover():
    rng, covered = np.random.default_rng(0), np.zeros(3)
    true = np.array([0.3, 0.5])
    codes = np.repeat([0, 1], [150, 250])
    draws = 300
    for _ in range(draws):
        row = rate_table(rng.random(400) < true[codes], grouping(codes)).iloc[0]
        covered[0] += row["low"] <= 0.3 <= row["high"]
        covered[1] += row["ratio_low"] <= 0.6 <= row["ratio_high"]
        changed = rate_changes(rng.random(400) < 0.5, rng.random(400) < 0.6, grouping(codes)).iloc[0]
        covered[2] += changed["low"] <= 0.1 <= changed["high"]
    assert (np.abs(covered / draws - 0.95) < 0.035).all()


def test_pairs_make_narrower_intervals_than_two_samples():
    rng = np.random.default_rng(1)
    before = rng.random(1000) < 0.5
    after = before ^ (rng.random(1000) < 0.05)
    row = rate_changes(before, after, grouping(np.zeros(1000, dtype=int))).iloc[0]
    gained, lost, n = (after & ~before).sum(), (before & ~after).sum(), 1000
    assert row["change"] == pytest.approx((gained - lost) / n)
    a, b = (gained + 0.5) / (n + 2), (lost + 0.5) / (n + 2)  # Agresti and Min: half a row to each of four cells
    half = 1.959964 * math.sqrt((a + b - (a - b) ** 2) / (n + 2))
    assert (row["low"], row["high"]) == pytest.approx((a - b - half, a - b + half), abs=1e-6)
    assert row["high"] - row["low"] < 0.5 * 2 * 1.96 * math.sqrt(2 * 0.25 / n)


def test_score_differences_are_cohens():
    rng = np.random.default_rng(2)
    a, b = rng.normal(0, 1, 300), rng.normal(0.5, 2, 200)
    table = score_table(np.concatenate([a, b]), grouping(np.repeat([0, 1], [300, 200])), "1")
    pooled = math.sqrt((299 * a.var(ddof=1) + 199 * b.var(ddof=1)) / 498)
    assert table.loc["0", "difference"] == pytest.approx((a.mean() - b.mean()) / pooled)
    assert table.loc["0", "low"] < table.loc["0", "difference"] < table.loc["0", "high"]
    assert math.isnan(table.loc["1", "difference"])
    assert score_table(np.ones(500), grouping(np.repeat([0, 1], [300, 200])), "1")["difference"].isna().all()


def test_accuracies_gaps_and_changes_are_those_of_the_metrics():
    table = people()
    audit = audit_table(table, groups=["race"], predictions=["old", "new"], target="fit")
    (part,) = audit.parts
    for judged in part.judged:
        expected = dca(table["fit"], table[judged.prediction], sensitive_features=table["race"])
        assert judged.confusion.metric("dca") == pytest.approx(expected)
        theirs = equalized_odds_difference(table["fit"], table[judged.prediction], sensitive_features=table["race"])
        assert judged.confusion.metric("equalized_odds_difference") == pytest.approx(theirs)
    for (label, race), row in part.accuracy_changes.iterrows():
        chosen = table[(table["fit"] == label) & (table["race"] == race)]
        scores = [accuracy_score(chosen["fit"], chosen[name]) for name in ("old", "new")]
        assert [row["before"], row["after"]] == pytest.approx(scores)
        right = np.array([chosen[name] == chosen["fit"] for name in ("old", "new")])
        assert row["change"] == pytest.approx(((right[1] & ~right[0]).sum() - (right[0] & ~right[1]).sum()) / len(chosen))
        assert row["low"] < row["change"] < row["high"] or row["change"] == 0
    ((outcome, changed),) = part.rate_changes
    assert outcome.column == "new"
    for race, row in changed.iterrows():
        of_race = table[table["race"] == race]
        assert row["change"] == pytest.approx((of_race["new"] == "yes").mean() - (of_race["old"] == "yes").mean())


def test_calibration_is_the_share_that_came_true():
    table = people()
    audit = audit_table(table, groups=["race"], score="p", target="fit")
    calibration = audit.parts[0].calibration
    bins = pd.cut(table["p"], [0, 0.2, 0.4, 0.6, 0.8, 1.0001], right=False)
    expected = table.assign(hit=table["fit"] == "yes").groupby(["race", bins], observed=True)["hit"].agg(["mean", "size"])
    ranges = calibration[calibration["to"] - calibration["from"] < 0.5]
    assert ranges["observed"].to_numpy() == pytest.approx(expected["mean"].to_numpy())
    assert ranges["rows"].tolist() == expected["size"].tolist()
    whole = calibration[calibration["to"] - calibration["from"] > 0.5].set_index("group")
    assert whole["mean_score"].to_dict() == pytest.approx(table.groupby("race")["p"].mean().to_dict())
    edges = calibration_table(np.array([0.0, 1.0]), np.array([False, True]), grouping([0, 0]))
    assert edges["rows"].tolist() == [2, 1, 1]
    shifted = audit_table(table.assign(p=10 * table["p"]), groups=["race"], score="p", target="fit")
    assert shifted.parts[0].calibration is None
    assert "it is no probability" in " ".join(shifted.notes)


def test_a_score_is_cut_at_its_median_or_where_asked():
    table = people()
    audit = audit_table(table, groups=["race"], score="p")
    assert (audit.at_median, audit.threshold) == (True, np.median(table["p"]))
    assert rates_of(audit)["selected"].sum() == len(table) // 2
    audit = audit_table(table, groups=["race"], score="p", threshold=0.8)
    expected = (table["p"] > 0.8).groupby(table["race"]).mean()
    assert rates_of(audit)["rate"].to_dict() == pytest.approx(expected.to_dict())


def test_unknown_and_small_groups_are_shown_and_never_the_reference():
    table = people()
    unknown = table["sex"].isna()
    table.loc[unknown, "old"] = "yes"  # the highest rate of all
    table.loc[table.index[:20], ["sex", "old"]] = ["other", "yes"]
    for how in ("group", "ignore"):
        audit = audit_table(table, groups=["sex"], predictions=["old"], favourable="yes", missing_groups=how)
        rates = rates_of(audit)
        assert rates["rows"].sum() == len(table)
        assert rates.loc["(missing)", "rows"] == table["sex"].isna().sum()
        assert rates.index[rates["reference"]].tolist() == ["male"]
        assert rates.index[rates["unknown"]].tolist() == ["(missing)"]
        assert rates.index[rates["small"]].tolist() == ["other"] + (["(missing)"] if unknown.mean() < 0.02 else [])
        assert rates.loc["other", "ratio"] > 1
        assert math.isnan(rates.loc["(missing)", "ratio"]) == (how == "ignore")
    with pytest.raises(InputError, match="missing"):
        audit_table(table, groups=["sex"], predictions=["old"], missing_groups="refuse")


def test_nobody_selected_is_said_and_a_group_without_one_has_the_ratio_0():
    table = people()
    table.loc[table["race"] == "black", "old"] = "no"
    audit = audit_table(table, groups=["race"], predictions=["old"])
    assert rates_of(audit).loc["black", ["selected", "ratio", "ratio_low"]].tolist() == [0, 0, 0]
    assert "an impact ratio of 0 (at most" in to_markdown(audit)
    nobody = audit_table(table.assign(old=0), groups=["race"], predictions=["old"])
    assert nobody.favourable == "1"
    assert rates_of(nobody)["ratio"].isna().all()
    assert "Nobody is selected (old is 1 for none), so that impact ratios are undefined." in to_markdown(nobody)
    assert all(row["ratio"] is None for row in to_dict(nobody)["groupings"][0]["rates"][0]["groups"])


def test_a_small_group_is_the_reference_only_where_nobody_else_is_selected():
    table = rate_table(np.arange(1010) >= 1005, grouping(np.repeat([0, 1, 2], [500, 500, 10])))
    assert table["small"].tolist() == [False, False, True]
    assert table["reference"].tolist() == [False, False, True]
    assert table["ratio"].tolist() == [0, 0, 1]


def test_who_loses_is_said_only_beyond_chance_and_empty_cells_say_nothing():
    truth = np.array(["no"] * 600 + ["yes"] * 600)
    table = pd.DataFrame({"g": np.resize(["a", "b"], 1200), "y": truth, "old": truth, "new": truth})
    table.loc[table.index[1100:], "g"] = "c"  # a group without anyone of the class no
    same = audit_table(table, groups=["g"], predictions=["old", "new"], target="y")
    assert "no class and group loses or gains accuracy beyond chance" in " ".join(in_short(same))
    worse = table.assign(new=np.where((table["g"] == "a") & (np.arange(1200) < 200), "yes", table["new"]))
    changed = audit_table(worse, groups=["g"], predictions=["old", "new"], target="y")
    assert "from old to new: the class no in the group a loses 33.3 (" in " ".join(in_short(changed))
    better = audit_table(worse, groups=["g"], predictions=["new", "old"], target="y")
    assert "from new to old: the class no in the group a gains 33.3 (" in " ".join(in_short(better))


@pytest.mark.parametrize(
    ("values", "taken"),
    [((0, 1), "1"), ((False, True), "True"), (("denied", "approved"), "approved"), (("<=50K", ">50K"), ">50K")],
)
def test_the_favourable_of_two_classes_is_found_and_said(values, taken):
    table = people()
    audit = audit_table(
        table.assign(old=np.where(table["old"] == "yes", *values[::-1])), groups=["race"], predictions=["old"]
    )
    assert audit.favourable == taken
    assert "as none was named (--favourable)" in " ".join(audit.notes)


def test_false_and_true_are_0_and_1_beside_numbers():
    table = people().assign(fit=lambda t: (t["fit"] == "yes").astype(int), old=lambda t: t["old"] == "yes")
    audit = audit_table(table, groups=["race"], predictions=["old"], target="fit")
    expected = dca(table["fit"], table["old"].astype(int), sensitive_features=table["race"])
    assert audit.parts[0].judged[0].confusion.metric("dca") == pytest.approx(expected)
    assert audit.favourable == "1"


def test_of_several_classes_every_rate_is_shown_unless_one_is_named():
    table = people()
    table["old"] = np.random.default_rng(0).choice(["high", "low", "medium"], len(table))
    audit = audit_table(table, groups=["race"], predictions=["old"])
    assert [rates.outcome.value for rates in audit.parts[0].rates] == ["high", "low", "medium"]
    assert "No prediction was named as the favourable one" in to_markdown(audit)
    named = audit_table(table, groups=["race"], predictions=["old"], favourable="low")
    assert [rates.outcome.value for rates in named.parts[0].rates] == ["low"]


@pytest.mark.parametrize(
    ("change", "options", "sentence"),
    [
        ({}, {"favourable": "maybe"}, "The favourable value 'maybe' does not occur in 'old'; there is: 'no', 'yes'."),
        ({"p": "high"}, {"score": "p"}, "The column 'p' must hold numbers to be a score, but has 'high'."),
        ({"p": np.inf}, {"score": "p"}, "infinite"),
        ({"p": np.nan}, {"score": "p"}, "No row has a value in 'old' and 'p'."),
        ({"race": "one"}, {}, "There is one group only by 'race', 'one': nothing to compare."),
        ({}, {"groups": ["nowhere"]}, "There is no column 'nowhere'"),
        ({}, {"groups": []}, "Name at least one sensitive column"),
        ({}, {"groups": ["race", "race"]}, "named twice"),
        ({}, {"groups": ["old"]}, "'old' cannot be a group and something else"),
        ({}, {"predictions": []}, "Name the column of predictions"),
        ({}, {"predictions": [], "target": "fit"}, "Name the column of predictions"),
        ({}, {"predictions": ["old", "old"]}, "two different ones"),
        ({}, {"predictions": [], "score": "p", "favourable": "yes"}, "leave --favourable out"),
        ({}, {"predictions": ["p"]}, "'p' holds fractions, so it is a score rather than classes; name it by --score."),
        ({"fit": "good"}, {"target": "fit"}, "'old' holds 'no', which never occurs in 'fit', and neither does any other"),
        ({}, {"threshold": 0.5}, "A threshold is for a score"),
        ({}, {"score": "p", "threshold": math.nan}, "must be a number"),
        ({}, {"fair_classes": ["yes"]}, "need the truth"),
        ({}, {"target": "fit", "fair_classes": ["maybe"]}, "fair_classes names 'maybe'"),
        ({}, {"missing_groups": "infer"}, "cannot infer groups"),
        ({}, {"missing_groups": "guess"}, "no way with missing groups named 'guess'"),
        ({"race": None}, {"missing_groups": "ignore"}, "No row has a value of 'race'; leave it out"),
        ({"race": list(range(400))}, {}, "too many to mean anything"),
        ({"new": list(range(2)) * 200}, {"predictions": ["old", "new"]}, "bring them to one kind"),
        ({"new": [True, False] * 200}, {"predictions": ["old", "new"]}, "bring them to one kind"),
        ({"old": [[1]] * 400}, {}, "no classes"),
        ({"old": [1, "yes"] * 200}, {}, "cannot be read"),
    ],
)
def test_junk_is_refused_in_one_sentence(change, options, sentence):
    table = people(400).assign(**change)
    with pytest.raises(InputError) as refused:
        audit_table(table, **{"groups": ["race"], "predictions": ["old"], **options})
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_rows_that_lack_something_are_left_out_and_counted():
    table = people()
    table.loc[:9, "old"] = None
    table.loc[5:19, "p"] = np.nan
    audit = audit_table(table, groups=["race"], predictions=["old"], score="p")
    assert audit.rows == len(table) - 20
    assert "20 rows without 'old' or 'p' are left out." in audit.notes


def test_pandas_and_arrow_give_the_same():
    table = people()
    options = {"groups": ["sex", "race"], "predictions": ["old"], "target": "fit", "score": "p"}
    assert to_json(audit_table(table, **options)) == to_json(audit_table(pa.Table.from_pandas(table), **options))


NAMES = st.one_of(st.none(), st.sampled_from(["a", "b", "(missing)", "<i>", ""]), st.text(max_size=3))


@settings(max_examples=20)
@given(st.data(), st.integers(1, 20))
def test_any_table_is_audited_or_refused_in_a_sentence(data, n):
    kinds = [st.sampled_from(["a", "<i>", "", None]), st.booleans(), st.integers(0, 1), st.integers(-1, 2)]
    labels = data.draw(st.sampled_from(kinds))
    table = pd.DataFrame({
        "g": data.draw(st.lists(NAMES, min_size=n, max_size=n)), "h": data.draw(st.lists(NAMES, min_size=n, max_size=n)),
        **{name: data.draw(st.lists(labels, min_size=n, max_size=n)) for name in ("old", "new", "y")},
        "s": data.draw(st.lists(st.floats(-1, 2, width=16) | st.just(math.nan), min_size=n, max_size=n)),
    })  # fmt: skip
    options = data.draw(st.fixed_dictionaries({}, optional={
        "target": st.just("y"), "score": st.just("s"), "missing_groups": st.sampled_from(["group", "ignore", "refuse"]),
    }))  # fmt: skip
    predictions = data.draw(st.sampled_from([[], ["old"], ["old", "new"]]))
    try:
        audit = audit_table(table, groups=["g", "h"], predictions=predictions, **options)
    except InputError:  # said in a sentence, see above
        return
    assert json.loads(to_json(audit))["rows"] == audit.rows
    assert "<i>" not in to_markdown(audit)
    assert "<i>" not in build_page(audit)
    for part in audit.parts:
        for rates in part.rates:
            figures = rates.table[["low", "rate", "high"]].to_numpy()
            assert ((figures >= 0) & (figures <= 1) & (np.diff(figures, axis=1, prepend=0) >= -1e-12)).all()
            assert rates.table["rows"].sum() == audit.rows
            assert rates.table["p_value"].dropna().between(0, 1 + 1e-9).all()


def test_two_dates_are_compared_by_intervals_of_independent_shares():
    """The interval is that of Newcombe's paper for 56 of 70 and 48 of 80 (1998, table II, method 10)."""
    now = pd.DataFrame({"sex": ["f"] * 70 + ["m"] * 70, "said": [1] * 56 + [0] * 14 + [1] * 35 + [0] * 35})
    before = pd.DataFrame({"sex": ["f"] * 80 + ["m"] * 70 + ["x"] * 5, "said": [1] * 48 + [0] * 32 + [1] * 35 + [0] * 40})
    found = audit_table(now, groups=["sex"], predictions=["said"], earlier=before, favourable="1")
    ((words, changed),) = found.parts[0].since
    assert words == "said is 1"
    assert changed.loc["f", ["low", "high"]].tolist() == pytest.approx([0.0524, 0.3339], abs=5e-5)
    assert changed.loc["m", "change"] == 0
    assert np.isnan(changed.loc["x", "change"])
    assert "most for f, from 60.0 % to 80.0 %" in " ".join(in_short(found))
    assert any("earlier table has 155 rows" in note for note in found.notes)


def test_an_earlier_table_is_judged_by_the_same_threshold_and_needs_the_same_columns():
    now = pd.DataFrame({"sex": ["f", "m"] * 40, "s": np.linspace(0, 1, 80), "y": [0, 1] * 40, "p": [0, 1, 1, 1] * 20})
    found = audit_table(now, groups=["sex"], predictions=["p"], target="y", score="s", earlier=now.assign(s=now["s"] + 0.2))
    words = [words for words, _ in found.parts[0].since]
    assert words == ["p is 1", "s is above 0.5 (the median)", "p is right"]
    assert found.parts[0].since[1][1]["before"].tolist() == pytest.approx([0.7, 0.7], abs=0.01)
    assert (found.parts[0].since[2][1]["change"].dropna() == 0).all()
    with pytest.raises(InputError, match="no column 'p'"):
        audit_table(now, groups=["sex"], predictions=["p"], earlier=now.drop(columns="p"))
