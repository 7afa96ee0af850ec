"""Boosted trees: against stock LightGBM, against the best rule by brute force, and as an estimator of scikit-learn."""

import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from scipy.stats import spearmanr
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from command import run_here
from fairdro import FairDROBoostingClassifier, load, load_dataset
from fairdro._utils.seeding import number
from fairdro.cells import Cells
from fairdro.data.examples import Examples
from fairdro.data.features import save_features
from fairdro.errors import InputError
from fairdro.groups import Groups
from fairdro.methods import LBC, METHODS, FairDRO, Scratch
from fairdro.metrics import METRICS, balanced_accuracy, confusion_counts, dca
from fairdro.models.trees import TreeSettings, read_trees, tabulate
from fairdro.training.engines import get_engine
from fairdro.training.head import fit_head
from fairdro.training.trees import grow_cell_trees
from fairdro.training.weighted_trees import train_weighted_trees
from fairdro.uncertainty import ChiSquareBall
from problems import biased_problem

lightgbm = pytest.importorskip("lightgbm", reason="needs lightgbm: pip install 'fairdro[lightgbm]'")
BACKENDS = ["lightgbm", "xgboost"]
SMALL = {"n_estimators": 30, "num_leaves": 7, "threads": 1}


def table(n_classes=2, n_groups=2, n=800, *, soft=False):
    X, cells = biased_problem(n_classes, n_groups, n=n)
    if soft:
        shares = torch.nn.functional.one_hot(cells.groups, n_groups).float() * 0.8 + 0.2 / n_groups
        cells = Cells(cells.y, shares, n_classes=n_classes, n_groups=n_groups)
    return X.double().numpy(), cells


@pytest.mark.parametrize("n_classes", [2, 3])
def test_plain_trees_are_those_of_lightgbm_itself(n_classes):
    X, cells = table(n_classes)
    settings = TreeSettings(**SMALL)
    ours = grow_cell_trees(X, cells, settings).classes.scores(X)
    parameters = {
        "objective": "binary" if n_classes == 2 else "multiclass", "boost_from_average": False, "num_leaves": 7,
        "learning_rate": settings.learning_rate, "min_data_in_leaf": settings.min_child_samples, "num_threads": 1,
        "verbosity": -1, "deterministic": True, "force_col_wise": True,
        **({"num_class": n_classes} if n_classes > 2 else {}),
    }  # fmt: skip
    stock = lightgbm.train(parameters, lightgbm.Dataset(X, cells.y.numpy()), settings.n_estimators)
    theirs = stock.predict(X, raw_score=True).reshape(len(X), -1)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("n_classes", "n_groups", "soft"), [(2, 2, False), (3, 4, False), (2, 3, True)])
def test_both_ways_narrow_the_gap_for_any_number_of_classes_and_groups(backend, n_classes, n_groups, soft):
    X, cells = table(n_classes, n_groups, n=2000, soft=soft)
    settings = TreeSettings(backend=backend, **SMALL)
    rule = FairDRO(rho=(0.0, 5.0), softness=0.02)
    heads = fit_head(grow_cell_trees(X, cells, settings).probabilities(X), cells, rule)
    trees = train_weighted_trees(X, cells, rule, replace(settings, early_stopping=None), errors="training")
    predicted = grow_cell_trees(X, cells, settings).probabilities(X)
    for found in (heads.predict(predicted), trees.predict(X)):
        assert found.shape == (1, 2, 2000)
        plain, fair = METRICS["dca"](confusion_counts(found[0], cells))
        assert fair < 0.7 * plain
    torch.testing.assert_close(heads.weights.sum(-1), torch.ones(1, 2, n_classes, dtype=torch.float64))


def test_the_head_is_the_best_rule_under_its_weights():
    """Where the probabilities are those of the data, to predict otherwise in any bin raises the weighted error."""
    rng = np.random.default_rng(0)
    bins = rng.integers(0, 16, 4000)
    y = (rng.random(4000) < (bins % 4 + 1) / 5).astype(int)
    a = (rng.random(4000) < (bins // 4 + 1) / 5).astype(int)
    cells = Cells(torch.from_numpy(y), torch.from_numpy(a), n_classes=2, n_groups=2)
    frequency = np.zeros((16, 2, 2))
    np.add.at(frequency, (bins, y, a), 1)
    probabilities = (frequency / frequency.sum((1, 2), keepdims=True))[bins]
    head = fit_head(probabilities, cells, FairDRO(rho=(3.0,), softness=0.02))
    q, predicted = head.weights[0, 0], head.predict(probabilities)[0, 0]

    def weighted_error(codes):
        return float((q * cells.means((codes != cells.y).float())).sum())

    least = weighted_error(predicted)
    for label in range(16):
        inside = torch.from_numpy(bins == label)
        assert weighted_error(torch.where(inside, 1 - predicted, predicted)) > least


def test_a_head_reads_trees_that_have_hardly_grown():
    """They do not know yet how frequent the classes are, and still tell them apart."""
    X, cells = table(3, 2, n=3000)
    few = (torch.arange(3000) % 10 == 0) | (cells.y > 0)
    X, cells = X[few.numpy()], cells.take(torch.nonzero(few)[:, 0])
    probabilities = grow_cell_trees(X, cells, TreeSettings(n_estimators=3, num_leaves=7, threads=1)).probabilities(X)
    head = fit_head(probabilities, cells, FairDRO(rho=0.0))
    assert METRICS["accuracy"](confusion_counts(head.predict(probabilities)[0], cells))[0] > 0.5


def test_a_head_equalises_where_trees_cannot_tell():
    """With a large radius the gap on the fitted rows is far below that of plain reading."""
    X, cells = table(2, 2, n=3000)
    settings = TreeSettings(**SMALL)
    outside = grow_cell_trees(X, cells, settings).probabilities(X)
    head = fit_head(outside, cells, FairDRO(rho=(0.0, 30.0), softness=0.02))
    gaps = METRICS["dca"](confusion_counts(head.predict(outside)[0], cells))
    assert gaps[1] < 0.15 * gaps[0]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_that_weighs_cells_works_and_others_say_so(name):
    X, cells = table(2, 2, n=400)
    rule, settings = METHODS[name](), TreeSettings(n_estimators=3, num_leaves=4, threads=1)
    probabilities = np.full((400, 2, 2), 0.25)
    if not rule.weighs_cells() or rule.needs_loss:
        for train in (lambda: fit_head(probabilities, cells, rule), lambda: train_weighted_trees(X, cells, rule, settings)):
            with pytest.raises(InputError, match="weighs cells"):
                train()
        return
    assert fit_head(probabilities, cells, rule).weights.shape == (1, 1, 2, 2)
    assert train_weighted_trees(X, cells, rule, settings, errors="training").weights.shape == (1, 1, 2, 2)


def test_held_out_rows_are_not_trained_on():
    X, cells = table(2, 2, n=600)
    held = np.arange(0, 600, 3)
    settings = TreeSettings(early_stopping=None, **SMALL)
    first = train_weighted_trees(X, cells, Scratch(), settings, errors="held_out", held=held)
    changed = Cells(cells.y.clone(), cells.groups, n_classes=2, n_groups=2)
    changed.y[held] = 1 - changed.y[held]
    second = train_weighted_trees(X, changed, Scratch(), settings, errors="held_out", held=held)
    np.testing.assert_array_equal(first.trees[0].scores(X), second.trees[0].scores(X))
    assert not torch.equal(first.history.accuracy, second.history.accuracy)


def test_rows_out_of_bag_are_judged_by_the_rounds_that_left_them_out():
    """Taken apart again: what a round's tree adds to the rows that were outside, twice."""
    X, cells = table(2, 2, n=600)
    settings = TreeSettings(n_estimators=5, num_leaves=5, threads=1, early_stopping=None)
    trained = train_weighted_trees(X, cells, Scratch(), settings)
    draw = np.random.default_rng(number(settings.seed, "bags"))
    booster = trained.trees[0].booster
    outside = np.zeros(600)
    for step in range(5):
        inside = np.unpackbits(np.frombuffer(draw.bytes(75), dtype=np.uint8)).astype(bool)
        before, after = (
            booster.predict(X, raw_score=True, num_iteration=k) if k else np.zeros(600) for k in (step, step + 1)
        )
        outside += 2 * (after - before) * ~inside
        wrong = torch.from_numpy((outside > 0) != (cells.y.numpy() == 1)).float()
        torch.testing.assert_close(1 - trained.history.accuracy[step, 0, 0], cells.means(wrong).double())


def test_the_round_with_the_smallest_robust_error_is_kept():
    X, cells = table(2, 2, n=900)
    held, rule = np.arange(0, 900, 3), FairDRO(rho=(0.0, 4.0), softness=0.02)
    settings = TreeSettings(n_estimators=40, num_leaves=15, learning_rate=0.3, threads=1)
    trained = train_weighted_trees(X, cells, rule, settings, errors="held_out", held=held)
    errors = 1 - trained.history.accuracy[:, 0]
    robust = (ChiSquareBall(torch.tensor([[0.0], [4.0]]), softness=0.02).best_response(errors) * errors).sum((-1, -2))
    assert trained.rounds == (robust.argmin(0) + 1).tolist()
    assert min(trained.rounds) < 40
    kept = [trained.history.weights[rounds - 1, :, p] for p, rounds in enumerate(trained.rounds)]
    torch.testing.assert_close(trained.weights, torch.stack(kept, dim=1))
    for p, rounds in enumerate(trained.rounds):
        found = confusion_counts(trained.predict(X[held])[0, p][None], cells.take(torch.from_numpy(held)))
        torch.testing.assert_close(torch.from_numpy(METRICS["accuracy"](found)), 1 - errors[rounds - 1, p].mean()[None])


def test_training_errors_deceive_and_others_do_not():
    """On COMPAS, trees that equalise training rows leave new ones unequal; held-out rows and bags fix it."""
    rule, settings = FairDRO(rho=(4.0, 8.0, 16.0), softness=0.02), TreeSettings(n_estimators=100, threads=1)
    gaps = {"training": [], "held_out": [], "out_of_bag": []}
    for seed in range(1, 6):
        split = load_dataset("compas").split("paper", seed=seed)
        X, cells = split.train.X.double().numpy(), split.train.cells
        for errors, found in gaps.items():
            whole = replace(settings, early_stopping=None if errors == "training" else 20)
            held = np.arange(0, len(X), 4)
            trained = train_weighted_trees(X, cells, rule, whole, errors=errors, held=held)
            found.append(
                [
                    METRICS["dca"](confusion_counts(trained.predict(part.X.double().numpy())[0], part.cells)).mean()
                    for part in (split.train, split.test)
                ]
            )
    (inside, outside), held, bags = (np.mean(gaps[name], axis=0) for name in gaps)
    assert inside < 0.02
    assert outside > 0.08
    assert held[1] < 0.9 * outside
    assert bags[1] < 0.75 * outside


def test_a_cell_without_held_out_rows_keeps_its_weight():
    X, cells = table(3, 2, n=900)
    rare = torch.nonzero((cells.y == 2) & (cells.groups == 1))[:, 0]
    held = np.setdiff1d(np.arange(0, 900, 3), rare.numpy())
    trained = train_weighted_trees(
        X, cells, FairDRO(rho=0.5, softness=0.02), TreeSettings(early_stopping=None, **SMALL), errors="held_out", held=held
    )
    assert trained.weights[0, 0, 2, 1] > 0.1
    gone = np.setdiff1d(np.arange(0, 900, 3), torch.nonzero(cells.y == 2)[:, 0].numpy())
    trained = train_weighted_trees(
        X, cells, FairDRO(rho=0.5, softness=0.02), TreeSettings(early_stopping=None, **SMALL), errors="held_out", held=gone
    )
    torch.testing.assert_close(trained.weights[0, 0, 2], torch.full((2,), 0.5, dtype=torch.float64))


def test_rounds_without_a_split_are_not_counted_as_trees():
    """Weights of zero leave nothing to split by; the trees of later rounds must not slip into what is kept."""
    X, _ = table(2, 2, n=400)
    growing = tabulate(X, TreeSettings(**SMALL)).grow(1)
    kept = []
    for step in range(4):
        gradient = (torch.rand(400, 1) - 0.5).numpy() * (step != 1)
        growing.step(gradient, np.full((400, 1), 0.25, dtype=np.float32) * (step != 1))
        kept.append(growing.scores().copy())
    np.testing.assert_allclose(growing.finish(3).scores(X), kept[2], atol=1e-6)


def test_rounds_of_a_method_grow_anew():
    X, cells = table(2, 2, n=400)
    trained = train_weighted_trees(
        X, cells, LBC(eta=1.0, rounds=2), TreeSettings(n_estimators=4, threads=1, early_stopping=None), errors="training"
    )
    assert len(trained.history.weights) == 8
    assert trained.trees[0].booster.num_trees() == 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_text_gives_the_same_trees(backend):
    X, cells = table(3, 2)
    X[::7, 0] = np.nan
    trees = grow_cell_trees(X, cells, TreeSettings(backend=backend, **SMALL)).classes
    again = read_trees(backend, trees.text())
    np.testing.assert_allclose(again.scores(X), trees.scores(X), atol=1e-6)
    np.testing.assert_allclose(again.importances(), trees.importances(), rtol=1e-4)
    with pytest.raises(InputError, match="no trees of"):
        read_trees(backend, "junk")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"backend": "catboost"}, "no backend named 'catboost'"),
        ({"n_estimators": 0}, "n_estimators must be at least 1"),
        ({"learning_rate": 0}, "learning_rate must be positive"),
    ],
)
def test_mistakes_in_settings_are_one_sentence(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        TreeSettings(**settings)


def test_a_missing_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(InputError, match=r"pip install 'fairdro\[lightgbm\]'"):
        grow_cell_trees(*table(), TreeSettings())


def test_a_bench_of_boosted_trees(tmp_path):
    X, cells = biased_problem(3, 2, n=500)
    parts = {"train": np.arange(400), "test": np.arange(400, 500)}
    groups = Groups(cells.groups.numpy(), ["u", "v"])
    examples = Examples("f", None, cells.y.numpy(), groups, ["a", "b", "c"], parts, "")
    save_features(tmp_path / "f.safetensors", X.numpy(), examples)
    options = ("--model", "boosting", "--solvers", "head,weights", "--methods", "scratch,fairdro", "--points", "2")
    done = run_here("bench", "f.safetensors", *options, "--protocol", "validated", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = pd.read_csv(tmp_path / "out" / "results.csv")
    assert set(zip(results["model"], results["solver"], strict=True)) == {("boosting", "head"), ("boosting", "weights")}
    assert results["accuracy"].gt(0.4).all()
    for options, sentence in (
        (("--methods", "cov"), "weighs cells by their errors only, and cov does not"),
        (("--methods", "fairbatch"), "weighs cells by their errors only, and fairbatch does not"),
        (("--solvers", "minibatch"), "no solver for boosting models named 'minibatch'"),
    ):
        done = run_here("bench", "compas", "--model", "boosting", *options, cwd=tmp_path)
        assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("strategy", ["head", "weights"])
def test_the_bench_and_the_estimator_are_one_pipeline(strategy):
    """The same radius, rows and seed give the same predictions, whoever asks."""
    X, cells = table(3, 2, n=900)
    engine = get_engine("boosting", strategy)
    method = FairDRO(**engine.hyperparameters(FairDRO, {"rho": (0.0, 0.7, 6.0)}))
    bank = engine.train(torch.from_numpy(X), cells, method, seeds=(3,))
    model = FairDROBoostingClassifier(6.0, strategy=strategy, random_state=3, n_jobs=torch.get_num_threads())
    model.fit(X, cells.y.numpy(), sensitive_features=cells.groups.numpy())
    np.testing.assert_array_equal(model.predict(X), bank.predict(X)[0, 2].numpy())
    np.testing.assert_allclose(model.weights_, bank.weights[0, 2].numpy(), atol=1e-12)


FEW = {"n_estimators": 20, "num_leaves": 7, "cv": 3, "n_jobs": 1}


@pytest.fixture(scope="module")
def people():
    """A table with a category, missing values and a number; the group shows in the category only."""
    rng = np.random.default_rng(0)
    n = 1500
    group = rng.choice(["u", "v", "w"], n, p=[0.5, 0.3, 0.2])
    kind = np.where(rng.random(n) < 0.8, group, rng.choice(["u", "v", "w"], n))
    number = rng.normal(size=n) + 2 * (group == "u")
    y = np.where(number + 0.7 * rng.normal(size=n) > 0.8, "yes", "no")
    number[rng.random(n) < 0.1] = np.nan
    return pd.DataFrame({"kind": pd.Categorical(kind), "number": number}), y, group


def test_probabilities_differ_also_where_weights_are_negative(people):
    """Plain shares of the scores would be 0 or 1 wherever one of them is negative."""
    X, y, group = people
    model = FairDROBoostingClassifier(30.0, **FEW).fit(X, y, sensitive_features=group)
    assert model.weights_.min() < 0
    margin, probability = model.decision_function(X), model.predict_proba(X)[:, 1]
    assert 0 < probability.min() < probability.max() < 1
    assert ((probability > 0.5) == (margin > 0)).all()
    assert len(np.unique(probability)) == len(np.unique(margin))
    assert spearmanr(probability, margin).statistic > 0.9


@pytest.mark.parametrize(
    ("strategy", "backend"),
    [("head", "lightgbm"), ("head", "xgboost"), ("weights", "lightgbm"), ("weights", "xgboost")],
)
def test_an_estimator_from_table_to_file(people, tmp_path, strategy, backend):
    X, y, group = people
    model = FairDROBoostingClassifier(strategy=strategy, backend=backend, rhos=[0, 1, 10], keep_accuracy=0.8, **FEW)
    model.fit(X, y, sensitive_features=group)
    predicted, probability = model.predict(X), model.predict_proba(X)
    assert (model.classes_[probability.argmax(1)] == predicted).all()
    np.testing.assert_allclose(probability.sum(1), 1)
    assert probability.min() >= 0
    assert model.feature_importances_.sum() == pytest.approx(1)
    assert list(model.frontier_["rho"]) == [0, 1, 10]
    plain = FairDROBoostingClassifier(0.0, strategy=strategy, backend=backend, **FEW).fit(X, y, sensitive_features=group)
    gaps = [dca(y, m.predict(X), sensitive_features=group) for m in (plain, model)]
    if strategy == "head":  # with 20 rounds the gradients' way is too rough to tell
        assert gaps[1] < 0.5 * gaps[0]
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    np.testing.assert_allclose(again.predict_proba(X), probability, atol=1e-6)
    assert "FairDROBoostingClassifier" in (tmp_path / "m" / "model_card.md").read_text()
    unknown = X.assign(kind=pd.Categorical(["other"] * len(X)))
    assert len(again.predict(unknown)) == len(X)
    with pytest.raises(ValueError, match="feature names should match"):
        again.predict(X[["number"]])
    turned = FairDROBoostingClassifier(1.0, backend=backend, **FEW).fit(X[["number", "kind"]], y, sensitive_features=group)
    with pytest.raises(ValueError, match="feature names should match"):
        turned.predict(X[["number"]])


def test_categories_that_cannot_be_saved_are_refused(people):
    X, y, group = people
    with pytest.raises(InputError, match=r"column 'number' are of type Interval; make them strings"):
        FairDROBoostingClassifier(**FEW).fit(X.assign(number=pd.cut(X["number"], 3)), y, sensitive_features=group)


def test_none_is_kept_in_a_file(people, tmp_path):
    X, y, group = people
    model = FairDROBoostingClassifier(1.0, early_stopping=None, **FEW).fit(X, y, sensitive_features=group)
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").get_params() == model.get_params()


def test_another_radius_takes_no_training(people):
    X, y, group = people
    model = FairDROBoostingClassifier(rhos=[0, 1, 10], **FEW).fit(X, y, sensitive_features=group)
    before = model.predict(X)
    for rho in (0.0, 10.0):
        fixed = FairDROBoostingClassifier(rho, **FEW).fit(X, y, sensitive_features=group)
        np.testing.assert_array_equal(model.at(rho).predict(X), fixed.predict(X))
        assert model.at(rho).rho_ == rho
    np.testing.assert_array_equal(model.predict(X), before)
    with pytest.raises(InputError, match="not among the radii"):
        model.at(3.0)
    with pytest.raises(InputError, match="fit another model"):
        FairDROBoostingClassifier(1.0, strategy="weights", **FEW).fit(X, y, sensitive_features=group).at(1.0)


def test_fit_and_predict_on_the_command_line(people, tmp_path):
    X, y, group = people
    X.assign(answer=y, group=group).to_csv(tmp_path / "people.csv", index=False)
    options = ("--target", "answer", "--group", "group", "--model", "boosting", "--rho", "5", "--out", "model")
    done = run_here("fit", "people.csv", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "rho = 5, as asked for" in done.stdout
    done = run_here("predict", "model", "people.csv", "--out", "scored.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    scored = pd.read_csv(tmp_path / "scored.csv")
    assert (scored["predicted"] == y).mean() > 0.6
    done = run_here("fit", "people.csv", *options[:4], "--model", "forest", "--out", "other", cwd=tmp_path)
    assert (done.returncode, "no model named 'forest'" in done.stderr) == (2, True)


def test_soft_groups_and_sample_weights(people):
    X, y, group = people
    shares = pd.get_dummies(pd.Series(group)).to_numpy(np.float64) * 0.7 + 0.1
    model = FairDROBoostingClassifier(rhos=[0, 10], **FEW)
    model.fit(
        X, y, sensitive_features=pd.DataFrame(shares, columns=["u", "v", "w"]), sample_weight=np.linspace(0.5, 2, len(y))
    )
    assert model.weights_.shape == (2, 3)
    assert balanced_accuracy(y, model.predict(X), sensitive_features=group) > 0.6


def test_the_same_again_and_pickled(people):
    X, y, group = people
    model = FairDROBoostingClassifier(5.0, **FEW).fit(X, y, sensitive_features=group)
    again = clone(model).fit(X, y, sensitive_features=group)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    read = pickle.loads(pickle.dumps(model))  # noqa: S301 - as joblib does between processes
    np.testing.assert_allclose(read.predict_proba(X), model.predict_proba(X), atol=1e-9)


def test_wrong_strategies_are_one_sentence(people):
    X, y, group = people
    with pytest.raises(InputError, match="no strategy named 'tail'"):
        FairDROBoostingClassifier(strategy="tail").fit(X, y, sensitive_features=group)


def test_importing_the_package_does_not_import_the_libraries():
    found = "any(name in sys.modules for name in ('lightgbm', 'xgboost', 'altair'))"
    code = f"import sys, fairdro, fairdro.cli; fairdro.FairDROBoostingClassifier; sys.exit({found})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


BINS = "the bins of trees, and the folds, depend on which rows there are"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("strategy", ["head", "weights"])
def test_scikit_learn_accepts_it(strategy):
    model = FairDROBoostingClassifier(strategy=strategy, n_estimators=50, rhos=[0, 1], cv=3, n_jobs=1)
    expected = {"check_sample_weight_equivalence_on_dense_data": BINS}
    check_estimator(model, on_skip=None, expected_failed_checks=expected)


def test_groups_are_routed_through_pipelines_and_searches(people):
    X, y, group = people
    with sklearn.config_context(enable_metadata_routing=True):
        steps = make_pipeline(FunctionTransformer(), FairDROBoostingClassifier(rhos=[0, 5], **FEW))
        search = GridSearchCV(steps, {"fairdroboostingclassifier__num_leaves": [3, 7]}, cv=2)
        search.fit(X, y, sensitive_features=group)
    model = search.best_estimator_[-1]
    assert model.group_names_ == ["u", "v", "w"]
    assert model.num_leaves == search.best_params_["fairdroboostingclassifier__num_leaves"]


@pytest.mark.parametrize("errors", ["held_out", "training"])
def test_weights_may_respond_to_other_errors(people, errors):
    X, y, group = people
    model = FairDROBoostingClassifier(5.0, strategy="weights", errors=errors, **FEW).fit(X, y, sensitive_features=group)
    usual = FairDROBoostingClassifier(5.0, strategy="weights", **FEW).fit(X, y, sensitive_features=group)
    assert balanced_accuracy(y, model.predict(X), sensitive_features=group) > 0.6
    assert not np.array_equal(model.weights_, usual.weights_)
    with pytest.raises(InputError, match="There is no kind of errors named 'test'"):
        FairDROBoostingClassifier(5.0, errors="test").fit(X, y, sensitive_features=group)
