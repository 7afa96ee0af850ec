"""Classes that cost more, and classes whose groups alone are to be served alike."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from command import run_here
from fairdro import (
    FairClassifier,
    FairDROBoostingClassifier,
    FairDROClassifier,
    FairDROClassifierCV,
    FairDROHeadClassifier,
    FairDROLoss,
    fit_head,
    load,
)
from fairdro.bench import BenchPlan, Store, Summary, run_bench
from fairdro.errors import InputError
from fairdro.methods import METHODS, CellMeans, FairDRO, Scratch, Task
from fairdro.metrics import confusion, dca, equalized_odds_difference, kept_accuracy
from fairdro.training.fullbatch import train_fullbatch
from problems import biased_problem, short_runs


def people(n=3000, seed=0):
    """Group b looks more like class 1, in both classes."""
    X, cells = biased_problem(2, 2, n=n, seed=seed)
    return X.double().numpy(), np.array(["no", "yes"])[cells.y.numpy()], np.array(["a", "b"])[cells.groups.numpy()]


CLASSIFIERS = [
    FairDROClassifier(5.0),
    FairDROClassifierCV(5.0, cv=2),
    FairDROHeadClassifier(LogisticRegression(), rho=5.0, cv=2),
    FairDROHeadClassifier(LogisticRegression(), rho=0.2, cv=2, infer_groups=False),
    FairDROBoostingClassifier(5.0, cv=2, n_estimators=20, n_jobs=1),
    FairDROBoostingClassifier(5.0, strategy="weights", n_estimators=20, n_jobs=1),
]
names = pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda model: f"{type(model).__name__}")


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 300), st.integers(2, 4), st.integers(2, 4), st.data())
def test_q_moves_in_fair_classes_as_ever_and_stays_uniform_in_others(seed, n_classes, n_groups, data):
    fair = data.draw(st.sets(st.integers(0, n_classes - 1), min_size=1))
    rng = torch.Generator().manual_seed(seed)
    counts = torch.randint(1, 500, (n_classes, n_groups), generator=rng).double()
    error = CellMeans(torch.rand(n_classes, n_groups, generator=rng, dtype=torch.float64))
    all_of_them, some = FairDRO(rho=3.0), FairDRO(rho=3.0, fair_classes=fair)
    expected, found = (m.weights(m.update(m.begin(Task(counts)), error, 0.2)) for m in (all_of_them, some))
    for k in range(n_classes):
        row = expected[k] if k in fair else torch.full((n_groups,), 1 / n_groups, dtype=torch.float64)
        torch.testing.assert_close(found[k], row)


@names
def test_only_the_classes_asked_for_are_made_equal(model):
    X, y, a = people()
    model = model.set_params(fair_classes=["yes"])
    predicted = model.fit(X, y, sensitive_features=a).predict(X)
    plain = LogisticRegression().fit(X, y).predict(X)
    gaps = [dca(y, p, sensitive_features=a, fair_classes=["yes"]) for p in (plain, predicted)]
    if getattr(model, "infer_groups", True):  # thresholds alone can do little
        assert gaps[1] < 0.6 * gaps[0]
    if hasattr(model, "frontier_"):
        judged = model.held_out()
        assert judged.metric("dca") == pytest.approx(model.frontier_["dca"][model.best_index_])
        right = judged.counts[1, :, 1] / judged.counts[1].sum(-1)
        assert judged.metric("dca") == pytest.approx(np.ptp(right))
        assert "these classes: yes" in model.model_card()
    model.set_params(fair_classes=None)


def test_gaps_of_some_classes():
    y = ["n"] * 8 + ["y"] * 8
    a = ["u", "v"] * 8
    p = ["n", "y", "n", "n", "n", "n", "n", "n", "y", "n", "y", "n", "y", "y", "y", "y"]
    assert dca(y, p, sensitive_features=a) == pytest.approx((0.25 + 0.5) / 2)
    assert dca(y, p, sensitive_features=a, fair_classes=["y"]) == 0.5
    assert equalized_odds_difference(y, p, sensitive_features=a, fair_classes=["n"]) == 0.25
    judged = confusion(y, p, sensitive_features=a, fair_classes=["y"])
    assert judged.metrics().loc["dca", "value"] == 0.5
    for strange in (["z"], [], "y", 3):
        with pytest.raises(InputError, match="fair_classes"):
            dca(y, p, sensitive_features=a, fair_classes=strange)


@pytest.mark.parametrize("codes", [(), (-1,), ("yes",), 3, (0.5,)])
def test_codes_of_fair_classes_are_checked(codes):
    with pytest.raises(InputError, match="fair_classes"):
        FairDRO(fair_classes=codes)
    with pytest.raises(InputError, match="codes below 2"):
        FairDRO(fair_classes=(2,)).check(Task(torch.ones(2, 2)))


def test_costs_are_sample_weights_where_every_row_counts_the_same():
    """An independent solver: scikit-learn's class_weight does the same to plain training."""
    X, y, a = people()
    costs = {"no": 1.0, "yes": 4.0}
    ours = FairDROClassifier(0.0, objective="standard", class_weight=costs).fit(X, y, sensitive_features=a)
    theirs = LogisticRegression(C=np.inf, class_weight=costs, max_iter=500).fit(X, y)
    cosine = (ours.coef_ * theirs.coef_).sum() / np.linalg.norm(ours.coef_) / np.linalg.norm(theirs.coef_)
    assert cosine > 0.999
    assert (ours.predict(X) == theirs.predict(X)).mean() > 0.99
    plain = LogisticRegression(C=np.inf, max_iter=500).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X)[:, 1], plain.predict_proba(X)[:, 1], atol=0.1)  # costs decide only


@short_runs
@pytest.mark.parametrize("name", ["scratch", "fairdro", "lbc", "rw"])
def test_every_class_counts_by_its_cost_in_any_method(name):
    X, cells = biased_problem(3, 2)
    method = METHODS[name](class_weight=(1.0, 2.0, 0.5))
    trained = train_fullbatch(X, cells, method, steps=5)
    np.testing.assert_allclose(trained.history.weights[0, 0, 0].sum(-1) / METHODS[name]().costed_weights(
        METHODS[name]().begin(Task(cells.counts))).sum(-1), np.array([1, 2, 0.5]) * 3 / 3.5)  # fmt: skip


@names
def test_costs_move_decisions_towards_the_class_that_costs_more(model):
    X, y, a = people()
    free, dear = (
        model.set_params(class_weight=costs).fit(X, y, sensitive_features=a).predict(X)
        for costs in (None, {"no": 1, "yes": 5})
    )
    model.set_params(class_weight=None)
    assert (dear == "yes").mean() > (free == "yes").mean() + 0.05


def test_rules_speak_of_weighted_accuracy():
    X, y, a = people()
    model = FairDROClassifierCV(class_weight={"no": 1, "yes": 3}, rhos=[0, 1, 5, 20], cv=2, keep_class_accuracy=0)
    model.fit(X, y, sensitive_features=a)
    kept = kept_accuracy(model.confusion_, "balanced", (1, 3))
    np.testing.assert_allclose(model.frontier_["weighted_accuracy"], kept)
    eligible = kept >= 0.95 * kept[0]
    assert model.best_index_ == model.frontier_["dca"].where(eligible).idxmin()
    cells = model.confusion_[1, :, :, :] / model.confusion_[1].sum(-1, keepdims=True)
    assert kept[1] == pytest.approx((cells[0, :, 0].mean() + 3 * cells[1, :, 1].mean()) / 4)


def test_balanced_costs():
    X, y, a = people()
    keep = np.flatnonzero((y == "no") | (np.arange(len(y)) % 4 == 0))
    X, y, a = X[keep], y[keep], a[keep]
    model = FairDROClassifier(0.0, objective="standard", class_weight="balanced").fit(X, y, sensitive_features=a)
    np.testing.assert_allclose(model.class_weight_, len(y) / (2 * np.unique(y, return_counts=True)[1]))
    assert FairDROClassifier(class_weight="balanced").fit(X, y, sensitive_features=a).class_weight_.tolist() == [1, 1]


def test_costs_are_relative_and_found_by_the_names_of_classes():
    X, y, a = people(800)
    for scale in (1e-6, 1, 1e6):
        model = FairDROClassifier(2.0, class_weight={"yes": 3 * scale, "no": scale}).fit(X, y, sensitive_features=a)
        np.testing.assert_allclose(model.weights_.sum(1), [0.5, 1.5])
    digits = np.where(y == "yes", "1", "0")
    assert FairDROClassifier(class_weight={"1": 3}).fit(X, digits, sensitive_features=a).class_weight_.tolist() == [1, 3]


def test_a_joint_q_keeps_the_share_of_classes_that_are_not_to_be_fair():
    method = METHODS["fairdro_wo_classwise"](rho=0.0, fair_classes=(1,))
    state = method.begin(Task(torch.ones(2, 2)))
    moved = method.update(state, CellMeans(torch.tensor([[0.1, 0.4], [0.3, 0.2]], dtype=torch.float64)), 0.0)
    torch.testing.assert_close(method.weights(moved), torch.full((2, 2), 0.5, dtype=torch.float64))


def test_options_are_kept_in_files(tmp_path):
    X, y, a = people(800)
    for model in (FairDROClassifier(), FairDROClassifierCV(rhos=[0, 1], cv=2)):
        model.set_params(class_weight={"yes": 2, "no": 1}, fair_classes=["yes"]).fit(X, y, sensitive_features=a)
        model.save(tmp_path / type(model).__name__)
        again = load(tmp_path / type(model).__name__)
        assert (again.class_weight, again.fair_classes) == ({"yes": 2, "no": 1}, ["yes"])
        assert again.model_card() == model.model_card()
        assert "class\\_weight: no: 1, yes: 2" in model.model_card()
        judged = model.model_card(X, y, sensitive_features=a)
        assert "about these classes: yes" in judged


@pytest.mark.parametrize("costs", ["even", {"maybe": 2}, {"yes": -1}, {"yes": np.nan}, 3, {"yes": "x"}])
def test_costs_are_checked(costs):
    X, y, a = people(400)
    with pytest.raises(InputError, match="class_weight"):
        FairDROClassifier(class_weight=costs).fit(X, y, sensitive_features=a)


def test_any_method_by_name_takes_costs_and_fairdro_fair_classes():
    X, y, a = people(800)
    model = FairClassifier(method="fairdro", rho=5.0, fair_classes=["yes"], class_weight={"yes": 2.0, "no": 1.0})
    model.fit(X, y, sensitive_features=a)
    np.testing.assert_allclose(model.weights_, [[1 / 3, 1 / 3], model.weights_[1]])
    assert model.weights_[1].sum() == pytest.approx(4 / 3)
    with pytest.raises(InputError, match="lbc does not have"):
        FairClassifier(method="lbc", fair_classes=["yes"]).fit(X, y, sensitive_features=a)


def test_a_loss_takes_both():
    crit = FairDROLoss(2, 2, rho=1.0, total_steps=1, class_weight=torch.tensor([1.0, 3.0]), fair_classes=[1])
    logits, y, a = (
        torch.tensor([[2.0, -1.0], [0.5, 1.0], [1.0, 0.0], [0.0, 0.3]]),
        torch.tensor([0, 1, 1, 0]),
        torch.tensor([0, 0, 1, 1]),
    )
    losses = torch.nn.functional.cross_entropy(logits, y, reduction="none")
    expected = (losses[[0, 3]].mean() + 3 * losses[[1, 2]].mean()) / 4  # as PyTorch's weighted mean
    torch.testing.assert_close(crit(logits.requires_grad_(), y, a).float(), expected)
    crit.step()
    torch.testing.assert_close(crit.q[0].float(), torch.tensor([0.25, 0.25]))
    assert float(crit.q[1, 1]) > float(crit.q[1, 0])


def test_a_head_keeps_both_in_its_file(tmp_path):
    X, y, a = people(1500)
    p, g = (LogisticRegression().fit(X, label).predict_proba(X) for label in (y, a))
    head = fit_head(p, g, y, a, rhos=[0, 2], fair_classes=["yes"], class_weight={"yes": 2, "no": 1})
    head.save(tmp_path / "head.json")
    again = load(tmp_path / "head.json")
    assert again.held_out().metric("dca") == head.held_out().metric("dca")
    assert again.class_weight_.tolist() == [1, 2]
    assert again.who_pays() == head.who_pays()
    assert "these classes: yes" in again.model_card()


def test_the_command_line_takes_both(tmp_path):
    X, y, a = people(1500)
    pd.DataFrame(X, columns=list("pqrstu")).assign(answer=y, kind=a).to_csv(tmp_path / "t.csv", index=False)
    options = ("t.csv", "--target", "answer", "--group", "kind")
    costs = ("--class-weight", "yes=2", "--class-weight", "no=1")
    done = run_here("fit", *options, "--fair-class", "yes", *costs, "--rho", "3", "--out", "model", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "about these classes: yes." in done.stdout
    model = load(tmp_path / "model")[-1]
    assert (model._fair_codes_, model.class_weight_.tolist()) == ([1], [1, 2])
    assert "gaps between groups are about these classes only" in (tmp_path / "model" / "model_card.md").read_text()
    assert run_here("predict", "model", "t.csv", "--out", "p.csv", cwd=tmp_path).returncode == 0
    done = run_here("audit", "p.csv", "--target", "answer", "--prediction", "predicted", "--group", "kind",
                    "--fair-class", "yes", "--out", "a.md", cwd=tmp_path)  # fmt: skip
    assert "about these classes: yes." in done.stdout
    assert "about these classes: yes." in (tmp_path / "a.md").read_text()
    for wrong, sentence in (
        (("--fair-class", "maybe"), "fair_classes names 'maybe'"),
        (("--class-weight", "maybe=2"), "class_weight names 'maybe'"),
        (("--class-weight", "yes"), "--class-weight takes a class and its cost"),
    ):
        done = run_here("fit", *options, *wrong, "--out", "other", cwd=tmp_path)
        assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr


def test_a_bench_of_one_class(tmp_path):
    (name,) = {"compas"}
    plan = BenchPlan([name], ["scratch", "fairdro"], points=3, fair_classes=["recid"])
    with pytest.raises(InputError, match="fair_classes names 'recid'"):
        plan.check()
    known = BenchPlan([name]).banks[0]
    assert known.bench["fair_classes"] == "all"
    from fairdro.bench.bank import known_dataset

    label = known_dataset(name).class_names[1]
    run_bench(BenchPlan([name], ["scratch", "fairdro"], points=3, fair_classes=[label]), tmp_path)
    store = Store(tmp_path)
    for outcome in store.outcomes():
        assert outcome.bank.fair_classes == (label,)
        right = outcome.confusion["test"][0, 0, 1]
        gap = np.ptp(right[:, 1] / right.sum(-1))
        assert outcome.rows["dca"][0] == pytest.approx(gap) == outcome.judged[0].metric("dca")
    assert store.outcomes()[1].bank.method.fair_classes == (1,)
    assert set(Summary(store).selected["fair_classes"]) == {label}


def test_a_bench_of_the_standard_objective_is_one_for_all_methods(tmp_path):
    validated = BenchPlan(["compas"], ["scratch", "fairdro"], points=3, objective="standard")
    assert [bank.method.objective for bank in validated.banks] == ["standard", "standard"]
    paper = BenchPlan(["compas"], ["scratch", "fairdro"], points=3, objective="standard", protocol="paper")
    assert [bank.method.objective for bank in paper.banks] == ["standard", "balanced"]
    run_bench(validated, tmp_path)
    summary = Summary(Store(tmp_path))
    assert "correct" in summary.table.columns
    points, chosen = summary.points, summary.selected.set_index("method")
    limit = 0.95 * points.loc[points["method"] == "scratch", "validation_standard_accuracy"].max()
    own = points[points["method"] == "fairdro"]
    best = own[own["validation_standard_accuracy"] >= limit]["validation_dca"].min()
    assert chosen.loc["fairdro", "validation_dca"] == best
    assert isinstance(validated.banks[0].method, Scratch)
