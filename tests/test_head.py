"""The head: against exact solutions, for probabilities from anywhere, and on the command line."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import fairdro
from command import run_here
from fairdro import fit_head
from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.methods import METHODS, FairDRO
from fairdro.metrics import METRICS, confusion_counts, dca
from fairdro.training.head import _Blocks, _relative, class_scores, fit_heads, predict_heads
from fairdro.training.head import fit_head as fit_weights
from fairdro.training.linear_head import train_linear_head
from fairdro.training.thresholds import fit_thresholds
from fairdro.training.trained import most_likely
from fairdro.uncertainty import ChiSquareBall
from problems import biased_problem


def binned(n=6000, n_classes=2, n_groups=2, seed=0, bins=24):
    """Rows in bins, whose true probabilities of class and group are known."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.full(n_classes * n_groups, 0.7), bins)
    bin_ = rng.integers(0, bins, n)
    cell = np.array([rng.choice(n_classes * n_groups, p=truth[b]) for b in bin_])
    frequency = np.zeros((bins, n_classes * n_groups))
    np.add.at(frequency, (bin_, cell), 1)
    probabilities = (frequency / frequency.sum(1, keepdims=True))[bin_].reshape(n, n_classes, n_groups)
    y, a = cell // n_groups, cell % n_groups
    return probabilities, y, a, Cells(torch.from_numpy(y), torch.from_numpy(a), n_classes=n_classes, n_groups=n_groups)


def robust_error(head, probabilities, cells, rho, point):
    error = cells.means((head.predict(probabilities)[0, point] != cells.y).double())
    return float((ChiSquareBall(rho).best_response(error) * error).sum() / cells.n_classes), error


@pytest.mark.parametrize("seed", range(2))
def test_two_groups_against_a_search_over_both_weights(seed):
    """No pair of weights, one per class, has a clearly smaller robust error than the head."""
    probabilities, _, _, cells = binned(seed=seed, bins=200, n=20000)
    radii = (0.0, 0.5, 2.0, 10.0)
    head = fit_weights(probabilities, cells, FairDRO(rho=radii, softness=0.002))
    assert head.converged.all()
    share = torch.from_numpy(probabilities.mean(0))
    relative = torch.from_numpy(probabilities) / share
    for p, rho in enumerate(radii):
        found, _ = robust_error(head, probabilities, cells, rho, p)
        shifts = torch.linspace(-1, 1, 41, dtype=torch.float64) * max(np.sqrt(rho) / 2, 1e-9)
        best = np.inf
        for s in shifts:
            w0 = (relative[:, 0] * torch.stack([0.5 + s, 0.5 - s])).sum(1)
            w1 = (relative[:, 1, :, None] * torch.stack([0.5 + shifts, 0.5 - shifts])).sum(1)
            wrong = ((w1 > w0[:, None]) != (cells.y[:, None] == 1)).double().T
            error = cells.means(wrong)
            robust = (ChiSquareBall(rho).best_response(error) * error).sum((-1, -2)) / 2
            best = min(best, float(robust.min()))
        assert found < best + 0.01


@pytest.mark.parametrize(
    ("n_classes", "n_groups", "soft", "weighted"),
    [(2, 2, False, False), (3, 4, False, False), (3, 4, False, True), (3, 2, True, False)],
)
@pytest.mark.parametrize("small_cell", [0, 2048])
def test_errors_in_blocks_are_those_of_the_predictions(n_classes, n_groups, soft, weighted, small_cell, monkeypatch):
    monkeypatch.setattr("fairdro.training.head.ROWS_PER_BLOCK", 100)
    monkeypatch.setattr("fairdro.training.head.SMALL_CELL", small_cell)
    probabilities, _, _, cells = binned(n_classes=n_classes, n_groups=n_groups, n=900)
    shares = torch.nn.functional.one_hot(cells.groups, n_groups) * 0.8 + 0.2 / n_groups if soft else cells.groups
    weight = torch.rand(900) + 0.5 if weighted else None
    cells = Cells(cells.y, shares, n_classes=n_classes, n_groups=n_groups, sample_weight=weight)
    share, weights = torch.from_numpy(probabilities.mean(0)), torch.randn(5, n_classes, n_groups, dtype=torch.float64)
    found = _Blocks(_relative(probabilities, share), cells).errors(weights)
    wrong = (most_likely(class_scores(probabilities, share, weights)) != cells.y).float()
    torch.testing.assert_close(found.float(), cells.means(wrong), atol=2e-3, rtol=0)


def test_of_classes_that_tie_the_first_is_predicted():
    cells = Cells(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 0, 0, 1]), n_classes=3, n_groups=2)
    errors = _Blocks(torch.ones(4, 3, 2), cells).errors(torch.ones(1, 3, 2, dtype=torch.float64))
    expected = torch.tensor([[[0, torch.nan], [1, torch.nan], [1, 1]]], dtype=torch.float64)
    torch.testing.assert_close(errors, expected, equal_nan=True)


HEADED = [name for name, kind in METHODS.items() if kind.weighs_cells() and name != "fairbatch"]


@pytest.mark.parametrize("name", HEADED)
def test_any_method_that_weighs_cells_has_a_head(name):
    probabilities, _, _, cells = binned(n=2000)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*have not converged")  # without smoothing, responses never settle
        head = fit_weights(probabilities, cells, METHODS[name]())
    assert head.weights.isfinite().all()
    assert head.predict(probabilities).shape == (1, 1, 2000)


@pytest.mark.filterwarnings("ignore:.*have not converged")
@pytest.mark.parametrize("name", [*HEADED, "standard"])
def test_heads_side_by_side_are_those_fitted_one_by_one(name, monkeypatch):
    monkeypatch.setattr("fairdro.training.head.MOST_STEPS", 600)
    if name == "standard":  # begins with the shares of the rows
        method = FairDRO(rho=(0.0, 0.5, 2.0, 20.0, 100.0), softness=0.02, objective="standard", class_weight=(1, 2, 1))
    else:
        method = METHODS[name].sweep(5, **METHODS[name].stepwise)
    probabilities, _, _, cells = binned(n=900, n_classes=3, n_groups=3, bins=60)
    probabilities = 0.7 * probabilities + 0.3 / 9
    rows = [torch.arange(900), torch.arange(0, 900, 3), torch.arange(500)]
    parts = [(probabilities[some.numpy()], cells.take(some)) for some in rows]
    for together, (p, own) in zip(fit_heads(parts, method), parts, strict=True):
        alone = fit_weights(p, own, method)
        torch.testing.assert_close(together.weights, alone.weights)
        torch.testing.assert_close(together.share, alone.share)
        np.testing.assert_allclose(together.temperatures, alone.temperatures)
        assert together.converged.equal(alone.converged)


def test_heads_of_folds_are_the_same_where_rows_are_many(monkeypatch):
    probabilities, _, _, cells = binned(n=600, bins=100)
    fold, method = np.arange(600) % 3, FairDRO(rho=(0.0, 2.0), softness=0.02)
    together = predict_heads(probabilities, cells, method, fold)
    monkeypatch.setattr("fairdro.training.head.ROWS_TOGETHER", 0)
    assert predict_heads(probabilities, cells, method, fold).equal(together)
    for i in range(3):
        others, own = np.flatnonzero(fold != i), np.flatnonzero(fold == i)
        head = fit_weights(probabilities[others], cells.take(torch.from_numpy(others)), method)
        assert head.predict(probabilities[own])[0].equal(together[:, own].long())


def test_a_head_that_has_not_converged_says_so(monkeypatch):
    monkeypatch.setattr("fairdro.training.head.TOLERANCE", -1.0)
    monkeypatch.setattr("fairdro.training.head.MOST_STEPS", 100)
    probabilities, _, _, cells = binned(n=500)
    with pytest.warns(RuntimeWarning, match="1 of 1 heads have not converged"):
        head = fit_weights(probabilities, cells, FairDRO(rho=1.0))
    assert not head.converged.any()


def test_without_groups_no_threshold_does_better():
    """Two classes: a plain search over all thresholds on the probability."""
    probabilities, _, _, cells = binned(bins=300, n=5000)
    p_class = probabilities.sum(-1)
    for rho in (0.0, 1.0, 20.0):
        head = fit_thresholds(p_class[:, :, None], cells, FairDRO(rho=rho))
        found, _ = robust_error(head, p_class[:, :, None], cells, rho, 0)
        best = np.inf
        for threshold in np.unique(p_class[:, 1]):
            error = cells.means(torch.from_numpy((p_class[:, 1] > threshold) != (cells.y.numpy() == 1)).double())
            best = min(best, float((ChiSquareBall(rho).best_response(error) * error).sum() / 2))
        assert found < best + 2e-3


@pytest.fixture(scope="module")
def people():
    """A table whose groups differ in how they look, in three classes and three groups."""
    X, cells = biased_problem(3, 3, n=3000)
    a = np.array(["u", "v", "w"])[cells.groups.numpy()]
    return X.double().numpy(), np.array(["no", "perhaps", "yes"])[cells.y.numpy()], a


@pytest.fixture(scope="module")
def scored(people):
    X, y, a = people
    train, rest = np.arange(1200), np.arange(1200, 3000)
    classes, groups = (LogisticRegression(max_iter=500).fit(X[train], label[train]) for label in (y, a))
    return classes.predict_proba(X[rest]), groups.predict_proba(X[rest]), y[rest], a[rest]


def test_probabilities_from_anywhere(scored, tmp_path):
    p_class, p_group, y, a = scored
    head = fit_head(p_class[:900], p_group[:900], y[:900], a[:900], keep_accuracy=0.8, rhos=[0, 1, 5])
    new = p_class[900:], p_group[900:]
    gaps = [dca(y[900:], one.predict(*new), sensitive_features=a[900:]) for one in (head.at(0.0), head)]
    assert gaps[1] < 0.7 * gaps[0]
    assert list(head.frontier_["selected"]).index(True) == head.best_index_
    assert (head.classes_[head.decision_function(*new).argmax(1)] == head.predict(*new)).all()
    np.testing.assert_allclose(head.predict_proba(*new).sum(1), 1)
    assert "infers the group" in head.model_card()
    with pytest.raises(InputError, match="save it by its own save"):
        fairdro.save(head, tmp_path / "folder")
    head.save(tmp_path / "head.json")
    again = fairdro.load(tmp_path / "head.json")
    np.testing.assert_array_equal(again.predict(*new), head.predict(*new))
    pd.testing.assert_frame_equal(again.frontier_, head.frontier_)
    np.testing.assert_array_equal(again.at(0.0).predict(*new), head.at(0.0).predict(*new))


@pytest.mark.usefixtures("quick_heads")
def test_three_ways_to_the_cells(scored):
    p_class, p_group, y, a = scored
    independent = p_class[:, :, None] * p_group[:, None, :]
    conditional = np.repeat(p_group[:, None, :], 3, axis=1)
    heads = [
        fit_head(p_class, p_group, y, a, rho=5.0).predict(p_class, p_group),
        fit_head(p_class, conditional, y, a, rho=5.0).predict(p_class, conditional),
        fit_head(None, independent, y, a, rho=5.0).predict(None, independent),
    ]
    np.testing.assert_array_equal(heads[0], heads[1])
    np.testing.assert_array_equal(heads[0], heads[2])


@pytest.mark.usefixtures("quick_heads")
def test_classes_in_the_order_of_the_columns_and_soft_groups(scored):
    p_class, p_group, y, a = scored
    turned = fit_head(p_class[:, ::-1], p_group, y, a, rho=5.0, classes=["yes", "perhaps", "no"])
    straight = fit_head(p_class, p_group, y, a, rho=5.0)
    np.testing.assert_array_equal(turned.predict(p_class[:, ::-1], p_group), straight.predict(p_class, p_group))
    shares = pd.DataFrame(pd.get_dummies(a).to_numpy(float) * 0.7 + 0.1, columns=["u", "v", "w"])
    soft = fit_head(p_class, p_group, y, shares, rho=5.0, sample_weight=np.linspace(0.5, 2, len(y)))
    assert soft.weights_.shape == (3, 3)


def test_without_inferring_groups(scored):
    p_class, _, y, a = scored
    head = fit_head(p_class, None, y, a, infer_groups=False, keep_accuracy=0.8)
    assert head.weights_.shape == (3, 1)
    assert len(head.predict(p_class)) == len(y)
    assert head.frontier_["dca"].iloc[head.best_index_] <= head.frontier_["dca"].iloc[0]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda c, g, y, a: (2 * c, g, y, a), "rows sum to between 2 and 2"),
        (lambda c, g, y, a: (np.where(c > 0.99, np.nan, c) * np.nan, g, y, a), "none missing"),
        (lambda c, g, y, a: (c[:, :2], g, y, a), "3 columns, got shape"),
        (lambda c, g, y, a: (c, g[:-1], y, a), "p_class has 1800 rows but p_group has 1799"),
        (lambda c, g, y, a: (c, None, y, a), "p_group is needed"),
        (lambda c, g, y, a: (c, g, y[:-1], a[:-1]), "probabilities of 1800 rows, but 1799 labels"),
        (lambda c, g, y, a: ([["x"] * 3] * 1800, g, y, a), "p_class must hold numbers"),
        (lambda c, g, y, a: (c, g, np.where(y == "no", "never", y), a), "is not among the classes"),
    ],
)
def test_bad_probabilities_are_one_sentence(scored, change, sentence):
    with pytest.raises(InputError, match=sentence):
        fit_head(*change(*scored), classes=["no", "perhaps", "yes"])


def test_a_damaged_file_is_refused(scored, tmp_path):
    p_class, p_group, y, a = scored
    fit_head(p_class, p_group, y, a, rho=1.0).save(tmp_path / "head.json")
    about = json.loads((tmp_path / "head.json").read_text())
    about["fitted"]["weights_"][0][0] = 7.0
    (tmp_path / "other.json").write_text(json.dumps(about))
    (tmp_path / "cut.json").write_text((tmp_path / "head.json").read_text()[:100])
    for name in ("other.json", "cut.json"):
        with pytest.raises(InputError, match="no head that can be used"):
            fairdro.load(tmp_path / name)


@pytest.mark.usefixtures("quick_heads")
def test_on_the_command_line(scored, tmp_path):
    p_class, p_group, y, a = scored
    table = pd.DataFrame({"answer": y, "kind": a})
    for j, name in enumerate(["no", "perhaps", "yes"]):
        table[f"p_{name}"] = p_class[:, j]
    for j, name in enumerate(["u", "v", "w"]):
        table[f"g_{name}"] = p_group[:, j]
    table.to_parquet(tmp_path / "scored.parquet")
    columns = ("--class-columns", "p_*", "--group-columns", "g_*")
    options = ("--target", "answer", "--group", "kind", *columns, "--rho", "5", "--out", "head.json")
    done = run_here("head", "scored.parquet", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "The head is in head.json" in done.stdout
    done = run_here("predict", "head.json", "scored.parquet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    predicted = pd.read_parquet(tmp_path / "scored-predicted.parquet")["predicted"]
    head = fit_head(p_class, p_group, y, a, rho=5.0)
    np.testing.assert_array_equal(predicted, head.predict(p_class, p_group))
    done = run_here("head", "scored.parquet", *options[:6], "--out", "plain.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for wrong, sentence in (
        (("--class-columns", "p_no"), "must have one *"),
        (("--class-columns", "z_*"), "Fewer than two columns fit"),
        (("--group-columns", "p_*"), "for the group 'u'"),
    ):
        done = run_here("head", "scored.parquet", *_replaced(options, wrong), "--force", cwd=tmp_path)
        assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr


def _replaced(options, wrong):
    return [wrong[1] if i and options[i - 1] == wrong[0] else option for i, option in enumerate(options)]


@pytest.mark.parametrize(
    ("n_classes", "n_groups", "soft"),
    [(3, 2, False), *(pytest.param(2, 2, soft, marks=pytest.mark.slow) for soft in (False, True))],
)
def test_a_head_on_linear_models_narrows_the_gap_on_new_rows(n_classes, n_groups, soft):
    X, cells = biased_problem(n_classes, n_groups, n=6000, soft=soft)
    train, test = torch.arange(4000), torch.arange(4000, 6000)
    trained = train_linear_head(X[train], cells.take(train), FairDRO(rho=(0.0, 10.0), softness=0.02))
    plain, fair = METRICS["dca"](confusion_counts(trained.predict(X[test])[0], cells.take(test)))
    assert fair < 0.7 * plain
    assert len(trained.models) == 2
