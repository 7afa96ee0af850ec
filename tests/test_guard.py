"""What is kept, and who pays: the standard objective, the guard against levelling down, and the words on it."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ShuffleSplit, cross_val_predict

from command import run_here
from fairdro import FairDROClassifier, FairDROClassifierCV, FairDROHeadClassifier, FairDROLoss, fit_head, load
from fairdro.errors import InputError
from fairdro.estimators.scoring import SCORERS, choose_by
from fairdro.methods import CellMeans, FairDRO, Task
from fairdro.metrics import Confusion, metric_table
from fairdro.selection import Choice, Guard, KeepAccuracy, LimitDCA, changes, choose, choose_radius, who_pays


def people(n=3000, seed=0):
    """One in eight is of class 1, fewer in group b, for which it also shows less."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    y = (rng.random(n) < np.where(a == 0, 0.17, 0.08)).astype(int)
    X = rng.normal(size=(n, 4))
    X[:, 0] += 1.6 * y + 0.8 * a
    X[:, 1] += 1.5 * a
    X[:, 2] += np.where(a == 0, 1.2, 0.2) * y
    return X, y, np.array(["a", "b"])[a]


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 300), st.integers(2, 4), st.integers(2, 4))
def test_the_standard_objective_adds_q_less_uniform_to_plain_weights(seed, n_classes, n_groups):
    rng = torch.Generator().manual_seed(seed)
    counts = torch.randint(1, 500, (n_classes, n_groups), generator=rng).double()
    error = CellMeans(torch.rand(n_classes, n_groups, generator=rng, dtype=torch.float64))
    for classwise in (True, False):
        balanced, standard = (FairDRO(rho=2.0, classwise=classwise, objective=name) for name in ("balanced", "standard"))
        states = [method.update(method.begin(Task(counts)), error, 0.3) for method in (balanced, standard)]
        q, weights = (method.weights(state) for method, state in zip((balanced, standard), states, strict=True))
        uniform = 1 / n_groups
        torch.testing.assert_close(weights, n_classes * counts / counts.sum() + q - uniform)
        assert float(weights.sum()) == pytest.approx(n_classes)


def test_plain_training_of_the_standard_objective_is_logistic_regression():
    X, y, a = people()
    ours = FairDROClassifier(0.0, objective="standard").fit(X, y, sensitive_features=a)
    theirs = LogisticRegression(C=np.inf, max_iter=500).fit(X, y)
    assert (ours.predict(X) == theirs.predict(X)).mean() > 0.99
    balanced = FairDROClassifier(0.0).fit(X, y, sensitive_features=a)
    assert (ours.predict(X) == y).mean() > (balanced.predict(X) == y).mean() + 0.05


@pytest.mark.parametrize("infer", [True, False])
def test_a_head_of_radius_zero_predicts_the_most_likely_class(infer):
    X, y, a = people()
    model = FairDROHeadClassifier(rho=0.0, objective="standard", infer_groups=infer).fit(X, y, sensitive_features=a)
    assert (model.predict(X) == model.estimators_[0].predict(X)).mean() > (0.999 if infer else 0.97)


def test_rules_speak_of_the_accuracy_that_is_kept():
    X, y, a = people()
    model = FairDROClassifierCV(objective="standard", keep_accuracy=0.99, rhos=[0, 1, 10, 50], keep_class_accuracy=0)
    model.fit(X, y, sensitive_features=a)
    kept = model.frontier_["standard_accuracy"]
    assert kept[model.best_index_] >= 0.99 * kept[0]
    best = model.frontier_["dca"].where(kept >= 0.99 * kept[0]).idxmin()
    assert best == model.best_index_
    assert "every row counts the same" in model._facts()["objective"]


def test_the_objective_is_saved_with_a_head(tmp_path):
    X, y, a = people(800)
    p = LogisticRegression().fit(X, y).predict_proba(X)
    g = LogisticRegression().fit(X, a).predict_proba(X)
    head = fit_head(p, g, y, a, objective="standard", rhos=[0, 1])
    head.save(tmp_path / "head.json")
    assert load(tmp_path / "head.json").objective == "standard"
    about = json.loads((tmp_path / "head.json").read_text())
    assert about["parameters"]["objective"] == "standard"


def test_a_loss_with_the_standard_objective_needs_counts():
    with pytest.raises(InputError, match="needs counts"):
        FairDROLoss(2, 2, total_steps=1, objective="standard")
    counts = torch.tensor([[10.0, 30.0], [40.0, 20.0]])
    torch.testing.assert_close(FairDROLoss(2, 2, total_steps=1, counts=counts, objective="standard").q.float(), counts / 50)


@pytest.mark.parametrize(
    "options", [{"objective": "ordinary"}, {"keep_class_accuracy": 80}, {"floor": -0.1}, {"floor": "x"}]
)
def test_what_is_kept_is_checked_before_training(options):
    X, y, a = people(2000)
    with pytest.raises(InputError, match=next(iter(options))):
        FairDROClassifierCV(**options).fit(X, y, sensitive_features=a)


# A class of two groups, recognised by half; the second point levels it down to a tenth, the third a little.
COUNTS = np.array([
    [[[80, 20], [60, 40]], [[40, 60], [30, 70]]],
    [[[70, 30], [70, 30]], [[90, 10], [90, 10]]],
    [[[70, 30], [64, 36]], [[42, 58], [40, 60]]],
], dtype=float)  # fmt: skip


def test_a_class_that_is_given_up_is_not_chosen_while_another_point_qualifies():
    table = metric_table(COUNTS)
    assert list(Guard(0.8).passes(table, table.iloc[0])) == [True, False, True]
    free, _ = choose_radius(COUNTS, [0, 1, 2], KeepAccuracy(0.5))
    held, frontier = choose_radius(COUNTS, [0, 1, 2], KeepAccuracy(0.5), guard=Guard(0.8))
    assert (free.index, held.index) == (1, 2)
    assert list(frontier["levels_down"]) == [False, True, False]


def test_the_floor_of_the_worst_cell_is_kept():
    table = metric_table(COUNTS)
    assert list(Guard(0.0, floor=0.6).passes(table, table.iloc[0])) == [True, False, False]


def test_where_no_point_that_passes_satisfies_the_rule_the_rule_has_its_way():
    for guard in (Guard(0.8), Guard(0.0, floor=0.99)):  # some pass, and none
        choice, frontier = choose_radius(COUNTS, [0, 1, 2], LimitDCA(0.001), guard=guard)
        assert choice.index == 1
        assert frontier["levels_down"][1]


@pytest.mark.parametrize(("guard", "why"), [
    (Guard(0.8), "yes keeps 15 % of plain training's accuracy (keep_class_accuracy asks for 80 %)"),
    (Guard(0.0, floor=0.2), "the worst class and group have 10.0 % (floor asks for 20 %)"),
    (Guard(0.1), ""),
])  # fmt: skip
def test_a_guard_says_what_it_objects_to(guard, why):
    table = metric_table(COUNTS)
    assert guard.objection(table.iloc[1], table.iloc[0], ["no", "yes"]) == why


def test_rules_of_ones_own_are_guarded_too():
    table = metric_table(COUNTS)
    smallest = lambda points, plain: Choice(int(points["dca"].argmin()), "smallest")  # noqa: E731 - as a user writes it
    assert choose(smallest, table, table.iloc[0], Guard(0.8)).index == 2
    assert choose(smallest, table, table.iloc[0], Guard(0.8, floor=0.99)).index == 1  # none passes


def named(counts, *, countable=True):
    return Confusion(counts, ["no", "yes"], ["a", "b"], countable)


def test_who_pays_in_words():
    words = who_pays(named(COUNTS[0]), named(COUNTS[1]))
    assert words[0].startswith("yes is recognised much less often: 10.0 % of it are recognised instead of 65.0 %")
    assert "b / yes loses 60.0 points (" in words[1]
    assert len([w for w in words if "loses" in w]) == 3
    assert words[-1].startswith("b / no gains most: 10.0 points")
    table = changes(named(COUNTS[0]), named(COUNTS[1]))
    assert table.loc[("yes", "b"), "low"] < -0.6 < table.loc[("yes", "b"), "high"] < 0
    assert who_pays(named(COUNTS[0]), named(COUNTS[0])) == ["No class and group loses accuracy against plain training."]
    assert "(" not in who_pays(named(COUNTS[0], countable=False), named(COUNTS[1], countable=False))[1]


def test_small_losses_are_bounded_in_words_and_small_cells_left_out():
    plain, chosen = COUNTS[0] * 10, COUNTS[0] * 10
    chosen[0, 0] += [-4, 4]
    assert who_pays(named(plain), named(chosen)) == ["No class and group loses more than 0.4 points against plain training."]
    plain[1, 1], chosen[1, 1] = [2, 8], [9, 1]
    words = who_pays(named(plain), named(chosen))
    assert words[1].startswith("No class and group with 30 held-out rows or more loses more than 0.4 points")
    assert words[-1] == "Classes and groups with fewer than 30 held-out rows, too few to say who pays: 1."


def test_intervals_of_changes_hold_the_change_of_new_rows_often_enough():
    """As predictions are in use: the chosen model is wrong where plain training is, and in other rows."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):
        plain = rng.random(200) < 0.7
        chosen = plain & (rng.random(200) < 6 / 7)
        rows = [np.array([[[right.sum(), (~right).sum()]], [[0, 0]]], dtype=float) for right in (plain, chosen)]
        row = changes(*(Confusion(r, ["n", "y"], ["a"]) for r in rows)).iloc[0]
        held += row["low"] <= -0.1 <= row["high"]
    assert held / 400 >= 0.95


RHOS = [0, 0.1, 0.5, 2, 10]


def levelled(n=3000):
    """Three classes in a row of scores that lie otherwise in each group: equal groups are had by giving the middle up."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, n)
    score = rng.normal(size=n) + 0.9 * a
    y = np.digitize(score + 0.8 * rng.normal(size=n), [0.3, 1.5])
    X = np.column_stack([score + 0.3 * rng.normal(size=n), rng.normal(size=n)])
    return X, np.array(["low", "middle", "top"])[y], np.array(["u", "v", "w"])[a]


@pytest.mark.filterwarnings("ignore:The accuracy of a cell still moved")
def test_a_classifier_passes_over_a_radius_that_levels_down_and_says_so(tmp_path):
    X, y, a = levelled()
    free = FairDROClassifierCV(keep_accuracy=0.5, keep_class_accuracy=0, rhos=RHOS, cv=3).fit(X, y, sensitive_features=a)
    held = FairDROClassifierCV(keep_accuracy=0.5, rhos=RHOS, cv=3).fit(X, y, sensitive_features=a)
    kept = [model.frontier_.filter(like="class_accuracy") for model in (free, held)]
    shares = [(table.iloc[m.best_index_] / table.iloc[0]).min() for table, m in zip(kept, (free, held), strict=True)]
    assert shares[0] < 0.8 <= shares[1]
    assert any("is recognised much less often" in sentence for sentence in free.who_pays())
    assert f"rho {free.rho_:.4g} " in held.who_pays()[-1]
    assert "was passed over, as it levels down" in held.who_pays()[-1]
    held.save(tmp_path / "model")
    assert "was passed over" in (tmp_path / "model" / "model_card.md").read_text()
    assert load(tmp_path / "model").who_pays() == held.who_pays()
    with pytest.warns(UserWarning, match="No radius that satisfies the rule passes the guard"):
        FairDROClassifierCV(floor=0.99, rhos=[0, 1], cv=2).fit(X, y, sensitive_features=a)


@pytest.mark.filterwarnings("ignore:.*heads have not converged")
def test_another_radius_of_a_head_has_no_remark_of_the_choice():
    X, y, a = levelled()
    model = FairDROHeadClassifier(keep_accuracy=0.5, rhos=RHOS, cv=3).fit(X, y, sensitive_features=a)
    assert "was passed over" in model.who_pays()[-1]
    other = model.at(model.frontier_["rho"].iloc[-1])
    assert not any("was passed over" in sentence for sentence in other.who_pays())


def test_the_command_line_says_who_pays_and_keeps_what_is_asked_for(tmp_path):
    X, y, a = people()
    table = pd.DataFrame(X, columns=list("pqrs")).assign(label=y, group=a)
    table.to_csv(tmp_path / "people.csv", index=False)
    options = ("people.csv", "--target", "label", "--group", "group", "--objective", "standard", "--out", "model")
    done = run_here("fit", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ordinary accuracy" in done.stdout
    model = load(tmp_path / "model")[-1]
    assert model.objective == "standard"
    assert all(sentence in done.stdout for sentence in model.who_pays())
    assert any("gains most" in sentence for sentence in model.who_pays())
    done = run_here("fit", *options[:-1], "guarded", "--floor", "0.3", "--keep-class-accuracy", "0.5", cwd=tmp_path)
    guarded = load(tmp_path / "guarded")[-1]
    assert (done.returncode, guarded.floor, guarded.keep_class_accuracy) == (0, 0.3, 0.5), done.stderr
    done = run_here("fit", *options[:-3], "ordinary", "--out", "other", cwd=tmp_path)
    assert (done.returncode, "no objective named 'ordinary'" in done.stderr) == (2, True)


@pytest.mark.slow
def test_intervals_of_pairs_hold_the_change_often_enough_and_are_narrower():
    rng, held, widths = np.random.default_rng(0), 0, []
    for _ in range(400):
        plain = rng.random(200) < 0.7
        chosen = plain & (rng.random(200) < 6 / 7)
        rows = [np.array([[[right.sum(), (~right).sum()]], [[0, 0]]], dtype=float) for right in (plain, chosen)]
        judged = [Confusion(r, ["n", "y"], ["a"]) for r in rows]
        lost = np.array([[(plain & ~chosen).sum()], [0]])
        pairs, apart = changes(*judged, lost).iloc[0], changes(*judged).iloc[0]
        held += pairs["low"] <= -0.1 <= pairs["high"]
        widths.append((pairs["high"] - pairs["low"]) / (apart["high"] - apart["low"]))
    assert 0.93 <= held / 400 <= 0.98
    assert np.mean(widths) < 0.6


SMALL = COUNTS.copy()
SMALL[:, 1, 1] = [[2, 8], [9, 1], [9, 1]]  # ten rows of yes / b


def test_cells_that_are_too_small_do_not_choose_alone():
    by_all, _ = choose_radius(SMALL, [0, 1, 2], LimitDCA(0.15), every_cell=True)
    without, frontier = choose_radius(SMALL, [0, 1, 2], LimitDCA(0.15))
    assert (by_all.index, without.index) == (1, 0)
    np.testing.assert_allclose(frontier["dca"], metric_table(SMALL)["dca"])  # figures are of all cells
    tiny = SMALL / 10
    assert choose_radius(tiny, [0, 1, 2], LimitDCA(0.15))[0].index == by_all.index  # nothing else to go by


def test_a_classifier_says_what_small_cells_would_have_chosen():
    X, y, a = people(2500)
    rare = np.flatnonzero((y == 1) & (a == "b"))[20:]
    keep = np.setdiff1d(np.arange(len(y)), rare)
    model = FairDROClassifierCV(rhos=[0, 1, 10], cv=2)
    with pytest.warns(UserWarning, match=r"fewer than 30 held-out rows.*1 / b \(20\)"):
        model.fit(X[keep], y[keep], sensitive_features=a[keep])
    remark = next(sentence for sentence in model.who_pays() if "too few to choose a radius by" in sentence)
    assert "1 / b" in remark
    assert "they would not change the choice" in remark or "by them too, rho would be" in remark


def test_merging_counts_held_out_rows():
    X, y, a = people(6000)
    a = np.where(np.arange(6000) % 10 == 0, "c", a)
    rows = ShuffleSplit(1, test_size=0.2, random_state=0)
    merged = FairDROClassifierCV(1.0, cv=rows, small_cells="merge").fit(X, y, sensitive_features=a)
    assert merged.group_names_ == ["a", "b or c"]
    assert merged.held_out().counts.sum(-1).min() >= 30
    whole = FairDROClassifierCV(1.0, cv=2, small_cells="merge", min_cell_size=20).fit(X, y, sensitive_features=a)
    assert whole.group_names_ == ["a", "b", "c"]


@pytest.mark.slow
def test_training_as_usual_is_shown_beside_plain_training(tmp_path):
    X, y, a = people()
    for model in (FairDROClassifierCV(rhos=[0, 5], cv=3), FairDROHeadClassifier(LogisticRegression(), rhos=[0, 5], cv=3)):
        model.fit(X, y, sensitive_features=a)
        usual = model.ordinary()
        assert usual.counts.sum() == len(y)
        assert usual.metric("standard_accuracy") > model.held_out(0).metric("standard_accuracy") + 0.05
        expected = cross_val_predict(LogisticRegression(), X, y, cv=3)
        assert usual.metric("standard_accuracy") == pytest.approx((expected == y).mean(), abs=0.01)
        assert "training as usual" in model.model_card()
        assert model.frontier_["who_pays"][0] == "no one"
        assert "loses" in model.frontier_["who_pays"][1]
    pd.DataFrame(X, columns=list("pqrs")).assign(label=y, group=a).to_csv(tmp_path / "people.csv", index=False)
    done = run_here("fit", "people.csv", "--target", "label", "--group", "group", "--out", "model", cwd=tmp_path)
    assert "as usual" in done.stdout
    assert "plain: every class and group counts the same, rho 0" in done.stdout


def test_a_search_is_guarded_too():
    results = {f"mean_test_{name}": np.full(3, 0.5) for name in SCORERS}
    results["mean_test_dca"] = -np.array([0.2, 0.1, 0.0])
    results["mean_test_worst_class_accuracy"] = np.array([0.5, 0.45, 0.1])
    assert choose_by()(results) == 1
    assert choose_by(keep_class_accuracy=0)(results) == 2
    results["mean_test_worst_accuracy"] = np.array([0.5, 0.1, 0.1])
    assert choose_by(floor=0.3)(results) == 0
