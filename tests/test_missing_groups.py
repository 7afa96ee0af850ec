"""Rows whose group is not known: inferred, ignored, a group of their own, or refused."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from command import run_here
from fairdro import (
    FairClassifier,
    FairDROBoostingClassifier,
    FairDROClassifier,
    FairDROClassifierCV,
    FairDROHeadClassifier,
    fit_head,
    load,
)
from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.estimators.parts import group_probabilities, infer_groups
from fairdro.groups import Groups, encode_groups
from fairdro.methods import CellMeans, FairDRO, Task
from fairdro.metrics import balanced_accuracy, confusion, dca, group_report
from problems import biased_problem


def people(n=4000, known=0.3, seed=0):
    """A table, and its groups of which a share is known."""
    X, cells = biased_problem(2, 2, n=n, seed=seed)
    a = np.array(["u", "v"])[cells.groups.numpy()]
    some = np.where(np.random.default_rng(seed).random(n) < known, a, None)
    return X.double().numpy(), cells.y.numpy(), a, some


TABLE = pd.DataFrame({"sex": ["m", "f", None, "m"], "race": ["x", None, "y", "y"]})


def test_missing_values_are_refused_in_a_sentence_that_names_the_others():
    with pytest.raises(InputError, match=r"'infer'.*'ignore'.*'group'") as told:
        encode_groups(TABLE)
    assert "'sex' has missing values (1 of 4)" in str(told.value)
    with pytest.raises(InputError, match="no way with missing groups named 'drop'"):
        encode_groups(TABLE, "drop")
    with pytest.raises(InputError, match="No row has a group"):
        encode_groups([None, np.nan], "ignore")


def test_a_missing_value_as_a_value_merges_with_no_other():
    groups = encode_groups(["(missing)", None, "a", None], "group")
    assert groups.names == ["(missing)", "a", "((missing))"]
    assert groups.values.tolist() == [0, 2, 1, 2]
    assert encode_groups(TABLE, "group").names == ["f, (missing)", "m, x", "m, y", "(missing), y"]


def test_ignored_rows_are_behind_the_last_group():
    groups = encode_groups(TABLE, "ignore")
    assert (groups.names, groups.values.tolist(), groups.n_unknown) == (["m, x", "m, y"], [0, 2, 2, 1], 2)
    cells = Cells.from_labels(np.array([0, 1, 1, 1]), groups, n_classes=2)
    assert (cells.n_groups, cells.n_known_groups) == (3, 2)
    assert cells.known_part.counts.tolist() == [[1, 0], [0, 1]]


def test_what_is_known_of_a_row_narrows_down_its_group():
    table = pd.DataFrame({"sex": ["m", "m", "f", "f", "m", None], "race": ["x", "y", "x", "y", None, "y"]})
    groups = encode_groups(table, "infer")
    assert groups.names == ["f, x", "f, y", "m, x", "m, y"]
    assert groups.values[4].tolist() == [0, 0, 0.5, 0.5]
    assert groups.values[5].tolist() == [0, 0.5, 0, 0.5]
    cells = Cells.from_labels(np.zeros(6, dtype=np.int64), groups, n_classes=2)
    inferred = infer_groups(cells, np.full((6, 4), 0.25))
    np.testing.assert_array_equal(inferred.groups[4] > 0, [False, False, True, True])
    np.testing.assert_allclose(inferred.groups.sum(1), 1)


def test_whole_numbers_stay_exact_beside_a_missing_one():
    large = 2**53
    groups = encode_groups([large, large + 1, None, large], "ignore")
    assert groups.names == [str(large), str(large + 1)]


def test_shares_with_missing_rows():
    shares = pd.DataFrame({"u": [0.2, np.nan, 1.0], "v": [0.8, np.nan, 0.0]})
    assert encode_groups(shares, "infer").values.tolist() == [[0.2, 0.8], [0.5, 0.5], [1, 0]]
    assert encode_groups(shares, "ignore").values.tolist() == [[0.2, 0.8, 0], [0, 0, 1], [1, 0, 0]]
    assert encode_groups(shares, "group").names == ["u", "v", "(missing)"]


def test_inferred_shares_are_calibrated_in_every_class():
    X, y, a, some = people(n=6000)
    cells = Cells.from_labels(y, encode_groups(some, "infer"), n_classes=2)
    p_group = group_probabilities(LogisticRegression(), X, cells, seed=0)
    shares = infer_groups(cells, p_group).groups[:, 1].numpy()
    unknown = ~cells.known.numpy()
    assert np.isin(shares[~unknown], (0, 1)).all()
    for k in range(2):
        rows = unknown & (y == k)
        assert shares[rows].mean() == pytest.approx((a[rows] == "v").mean(), abs=0.03)
        middle = rows & (shares > 0.3) & (shares < 0.7)
        assert shares[middle].mean() == pytest.approx((a[middle] == "v").mean(), abs=0.1)


def test_errors_by_inferred_shares_are_those_of_the_groups():
    """Predictions depend on x alone, so cell means by p(a | x, y) estimate those of the true groups."""
    X, y, a, some = people(n=20_000, known=0.1)
    model = LogisticRegression().fit(X, y)
    cells = Cells.from_labels(y, encode_groups(some, "infer"), n_classes=2)
    inferred = infer_groups(cells, group_probabilities(LogisticRegression(), X, cells, seed=0))
    wrong = torch.from_numpy(model.predict(X) != y).double()
    truth = Cells.from_labels(y, encode_groups(a), n_classes=2).means(wrong)
    torch.testing.assert_close(inferred.means(wrong), truth, atol=0.025, rtol=0)


def test_weights_where_groups_are_unknown():
    counts = torch.tensor([[10.0, 30.0, 60.0], [20.0, 20.0, 0.0]], dtype=torch.float64)
    method, task = FairDRO(rho=2.0), Task(counts, unknown_group=True)
    state = method.begin(task)
    torch.testing.assert_close(method.weights(state), torch.tensor([[0.2, 0.2, 0.6], [0.5, 0.5, 0]], dtype=torch.float64))
    error = torch.tensor([[0.3, 0.1, 0.9], [0.2, 0.4, torch.nan]], dtype=torch.float64)
    known = FairDRO(rho=2.0)
    expected = known.update(known.begin(Task(counts[:, :2])), CellMeans(error[:, :2]), 0.0)["q"]
    moved = method.update(state, CellMeans(error), 0.0)
    torch.testing.assert_close(moved["q"][:, :2], expected)
    change = method.weights(moved) - method.weights(state)
    torch.testing.assert_close(change[:, :2], expected - 0.5)
    assert (change[:, 2] == 0).all()
    standard = FairDRO(objective="standard")
    torch.testing.assert_close(standard.weights(standard.begin(task)), 2 * counts / counts.sum())


CLASSIFIERS = [
    FairDROClassifier(5.0),
    pytest.param(FairDROClassifier(1.0, model="mlp"), marks=pytest.mark.slow),
    pytest.param(FairDROClassifierCV(5.0, cv=2), marks=pytest.mark.slow),
    FairDROHeadClassifier(LogisticRegression(), rho=5.0, cv=2),
    pytest.param(FairDROHeadClassifier(LogisticRegression(), rho=5.0, cv=2, joint="cells"), marks=pytest.mark.slow),
    pytest.param(FairDROBoostingClassifier(5.0, cv=2, n_estimators=20, n_jobs=1), marks=pytest.mark.slow),
    FairDROBoostingClassifier(5.0, strategy="weights", n_estimators=20, n_jobs=1),
]


@pytest.mark.parametrize("how", ["infer", "ignore"])
@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda model: f"{type(model).__name__}")
def test_gaps_are_closed_on_new_rows_by_groups_of_some(model, how, monkeypatch, tmp_path):
    monkeypatch.setattr("fairdro.training.engines.FEWEST_BATCHES", 300)
    monkeypatch.setattr("fairdro.training.engines.EPOCHS", 20)
    X, y, a, some = people(n=6000)
    train, test = np.arange(3000), np.arange(3000, 6000)
    model.set_params(missing_groups=how).fit(X[train], y[train], sensitive_features=some[train])
    plain = LogisticRegression().fit(X[train], y[train])
    gaps = [dca(y[test], one.predict(X[test]), sensitive_features=a[test]) for one in (plain, model)]
    assert gaps[1] < 0.75 * gaps[0]
    assert model.weights_.shape == (2, 2)
    known = sum(value is not None for value in some[train])
    assert model.cell_counts_.sum() == known
    if hasattr(model, "frontier_"):
        judged = model.held_out()
        assert judged.countable
        assert judged.counts.sum() <= known
        card = model.model_card()
        assert f"The group of {3000 - known:,} of 3,000 rows is not known" in card
        assert "Figures count rows of known group only" in card
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").predict(X), model.predict(X))
    model.set_params(missing_groups="refuse")


@pytest.mark.slow
def test_inferring_helps_where_few_groups_are_known():
    """One in fifty is known: by the known rows alone nothing is learned, by inferred shares nearly as much as by all."""
    gaps = []
    for seed in range(3):
        X, y, a, some = people(n=12_000, known=0.02, seed=seed)
        train, test, known = np.arange(8000), np.arange(8000, 12_000), np.flatnonzero(some[:8000] != None)  # noqa: E711
        by = {
            "all": FairDROClassifier(5.0).fit(X[train], y[train], sensitive_features=a[train]),
            "infer": FairDROClassifier(5.0, missing_groups="infer", small_cells="warn", min_cell_size=0).fit(
                X[train], y[train], sensitive_features=some[train]
            ),
            "known": FairDROClassifier(5.0, min_cell_size=0).fit(X[known], y[known], sensitive_features=a[known]),
        }
        gaps.append([dca(y[test], model.predict(X[test]), sensitive_features=a[test]) for model in by.values()])
    of_all, inferred, of_known = np.mean(gaps, axis=0)
    assert inferred < of_known
    assert inferred < of_all + 0.05


def test_other_methods_do_not_ignore_groups():
    X, y, _, some = people(800)
    with pytest.raises(InputError, match="lbc needs the group of every row"):
        FairClassifier(method="lbc", missing_groups="ignore").fit(X, y, sensitive_features=some)
    FairClassifier(method="lbc", missing_groups="infer").fit(X, y, sensitive_features=some)


def test_metrics_count_rows_of_known_group_and_say_how_many():
    y, p, a = [0, 1, 0, 1, 1], [0, 1, 1, 1, 0], ["u", "u", "v", "v", None]
    for metric in (balanced_accuracy, dca):
        with pytest.warns(UserWarning, match="1 of 5 rows have no group and are not counted") as told:
            value = metric(y, p, sensitive_features=a)
        assert value == metric(y[:4], p[:4], sensitive_features=a[:4])
        assert told[0].filename == __file__
    with pytest.warns(UserWarning, match="1 of 5"), pytest.warns(UserWarning, match="too few"):
        assert group_report(y, p, sensitive_features=a)["count"].sum() == 4
    with pytest.warns(UserWarning, match="1 of 5"):
        assert confusion(y, p, sensitive_features=a, sample_weight=[1, 2, 1, 1, 9]).counts.sum() == 5


def test_heads_take_rows_without_groups_too():
    X, y, a, some = people(3000)
    p, g = (LogisticRegression().fit(X[:1000], label[:1000]).predict_proba(X[1000:]) for label in (y, a))
    y, some = y[1000:], some[1000:]
    for how in ("infer", "ignore"):
        head = fit_head(p, g, y, some, rhos=[0, 5], missing_groups=how)
        assert head.held_out().counts.sum() == (some != None).sum()  # noqa: E711 - of an array
    with pytest.raises(InputError, match="missing_groups"):
        fit_head(p, g, y, some)
    with pytest.raises(InputError, match="nothing to infer missing groups by"):
        fit_head(p, None, y, some, infer_groups=False, missing_groups="infer")


def test_groups_that_merge_while_some_are_unknown():
    groups = Groups(np.array([0, 1, 2, 3, 3]), ["a", "b", "c"], np.array([True, True, True, False, False]), True)
    from fairdro.groups import settle_small_cells

    merged = settle_small_cells(groups, np.array([[50, 1, 40], [50, 60, 1]]), class_names=["n", "y"], how="merge")
    assert merged.names == ["a", "b or c"]
    assert merged.values.tolist() == [0, 1, 1, 2, 2]


def test_the_command_line_says_what_it_does_with_missing_groups(tmp_path):
    X, y, _, some = people(2000)
    table = pd.DataFrame(X, columns=list("pqrstu")).assign(answer=y, kind=some)
    table.to_csv(tmp_path / "t.csv", index=False)
    options = ("t.csv", "--target", "answer", "--group", "kind", "--rho", "3")
    missing = int(table["kind"].isna().sum())
    for how, sentence in {
        None: f"{missing:,} rows without a value of 'kind' are a group of their own, which counts in "
        "every gap; --missing-groups has other ways.",
        "infer": f"The group of {missing:,} of 2,000 rows is not known: in training they count by inferred shares.",
        "ignore": "they are trained on, but do not count for fairness",
    }.items():
        given = () if how is None else ("--missing-groups", how)
        done = run_here("fit", *options, *given, "--out", f"model-{how}", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert sentence in done.stdout
    done = run_here("fit", *options, "--missing-groups", "refuse", "--out", "other", cwd=tmp_path)
    assert (done.returncode, "'infer'" in done.stderr) == (2, True)
    assert run_here("predict", "model-infer", "t.csv", "--out", "p.csv", cwd=tmp_path).returncode == 0
    audit = ("audit", "p.csv", "--target", "answer", "--prediction", "predicted", "--group", "kind")
    assert f"{missing:,} of 2,000 rows have no group: their rate is shown" in run_here(
        *audit, "--missing-groups", "ignore", cwd=tmp_path
    ).stdout  # fmt: skip
    assert "are a group of their own" in run_here(*audit, cwd=tmp_path).stdout
    done = run_here(*audit, "--missing-groups", "infer", cwd=tmp_path)
    assert (done.returncode, "cannot infer groups" in done.stderr) == (2, True)
