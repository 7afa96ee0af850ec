"""FairDROBoostingClassifier as an estimator of scikit-learn, and the bench that trains the same."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from command import run_here
from fairdro import FairDROBoostingClassifier, load, load_dataset
from fairdro.bench import Bank, run_bank
from fairdro.data.examples import Examples
from fairdro.data.features import save_features
from fairdro.errors import InputError
from fairdro.groups import Groups
from fairdro.methods import FairDRO
from fairdro.metrics import balanced_accuracy, confusion_counts, dca
from fairdro.training.engines import get_engine
from problems import biased_problem, biased_table

pytest.importorskip("lightgbm", reason="needs lightgbm: pip install 'fairdro[lightgbm]'")
pytestmark = pytest.mark.usefixtures("quick_heads")


def features_file(path, n):
    """Write features of three classes and two groups, the last fifth of the rows to test on."""
    X, cells = biased_problem(3, 2, n=n)
    parts = {"train": np.arange(4 * n // 5), "test": np.arange(4 * n // 5, n)}
    groups = Groups(cells.groups.numpy(), ["u", "v"])
    save_features(path, 5 * X.numpy() + 2, Examples("f", None, cells.y.numpy(), groups, ["a", "b", "c"], parts, ""))


@pytest.mark.slow
def test_a_bench_of_boosted_trees(tmp_path):
    features_file(tmp_path / "f.safetensors", n=500)
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
    X, cells = biased_table(3, 2, n=1500)
    engine = get_engine("boosting", strategy)
    method = FairDRO(**engine.hyperparameters(FairDRO, {"rho": (0.0, 0.7, 6.0)}))
    bank = engine.train(torch.from_numpy(X), cells, method, seeds=(3,))
    model = FairDROBoostingClassifier(6.0, strategy=strategy, random_state=3, n_jobs=torch.get_num_threads())
    model.fit(X, cells.y.numpy(), sensitive_features=cells.groups.numpy())
    np.testing.assert_array_equal(model.predict(X), bank.predict(X)[0, 2].numpy())
    np.testing.assert_allclose(model.weights_, bank.weights[0, 2].numpy(), atol=1e-12)


@pytest.mark.parametrize("strategy", ["head", "weights"])
def test_what_a_bank_stores_is_what_the_estimator_predicts(tmp_path, strategy):
    """From a file to the confusion tensor of the test part, with the bank's own split and scaling."""
    path = str(tmp_path / "f.safetensors")
    features_file(tmp_path / "f.safetensors", n=2500)
    method = FairDRO(**get_engine("boosting", strategy).hyperparameters(FairDRO, {"rho": (0.7, 6.0)}))
    outcome = run_bank(Bank(path, method, "boosting", strategy, seeds=(3,)))
    split = load_dataset(path).split()
    assert split.train.X.std() < 1.1
    model = FairDROBoostingClassifier(6.0, strategy=strategy, random_state=3, n_jobs=torch.get_num_threads())
    model.fit(split.train.X.numpy(), split.train.cells.y.numpy(), sensitive_features=split.train.cells.groups.numpy())
    for name in ("test", "validation"):
        part = getattr(split, name)
        predicted = torch.from_numpy(model.predict(part.X.numpy()))
        np.testing.assert_array_equal(outcome.confusion[name][0, 1], confusion_counts(predicted, part.cells))


FEW = {"n_estimators": 20, "num_leaves": 7, "cv": 3, "n_jobs": 1}


@pytest.fixture(scope="module")
def people():
    """A table with a category, missing values and a number; the group shows in the category only.

    In this draw the most likely class is unfair; in others calibrated trees are fair by themselves.
    """
    rng = np.random.default_rng(1)
    n = 3600
    group = rng.choice(["u", "v", "w"], n, p=[0.5, 0.3, 0.2])
    kind = np.where(rng.random(n) < 0.8, group, rng.choice(["u", "v", "w"], n))
    number = rng.normal(size=n) + 2 * (group == "u")
    y = np.where(number + 0.7 * rng.normal(size=n) > 0.8, "yes", "no")
    number[rng.random(n) < 0.1] = np.nan
    return pd.DataFrame({"kind": pd.Categorical(kind), "number": number}), y, group


@pytest.mark.parametrize("strategy", ["head", "weights"])
def test_probabilities_are_those_of_people_whatever_the_radius(people, strategy):
    X, y, group = people
    plain, fair = (
        FairDROBoostingClassifier(rho, strategy=strategy, **FEW).fit(X, y, sensitive_features=group) for rho in (0.0, 30.0)
    )
    assert fair.weights_.min() < 0
    probability = fair.predict_proba(X)[:, 1]
    assert 0 < probability.min() < probability.max() < 1
    np.testing.assert_allclose(probability, plain.predict_proba(X)[:, 1])
    assert probability.mean() == pytest.approx((y == "yes").mean(), abs=0.02)
    assert (fair.predict(X) == np.where(fair.decision_function(X) > 0, "yes", "no")).all()
    assert (fair.predict(X) != plain.predict(X)).any()


@pytest.mark.parametrize(
    ("strategy", "backend"),
    [
        ("head", "lightgbm"),
        ("weights", "xgboost"),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in (("head", "xgboost"), ("weights", "lightgbm"))),
    ],
)
def test_an_estimator_from_table_to_file(people, tmp_path, strategy, backend):
    X, y, group = people
    model = FairDROBoostingClassifier(strategy=strategy, backend=backend, rhos=[0, 1, 10], keep_accuracy=0.8, **FEW)
    model.fit(X, y, sensitive_features=group)
    predicted, probability = model.predict(X), model.predict_proba(X)
    margin = model.decision_function(X)
    assert (model.classes_[(margin > 0).astype(int)] == predicted).all()
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
