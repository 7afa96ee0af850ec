"""A head around any classifier of scikit-learn."""

import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

import fairdro
from command import run_here
from fairdro import FairDROHeadClassifier, fit_head
from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.metrics import balanced_accuracy, dca
from problems import biased_problem

pytestmark = pytest.mark.usefixtures("quick_heads")


@pytest.fixture(scope="module")
def people():
    """A table whose groups differ in how they look, in three classes and three groups."""
    X, cells = biased_problem(3, 3, n=3000)
    a = np.array(["u", "v", "w"])[cells.groups.numpy()]
    return X.double().numpy(), np.array(["no", "perhaps", "yes"])[cells.y.numpy()], a


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(max_iter=500),
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
        RandomForestClassifier(30, min_samples_leaf=5, random_state=0),
        HistGradientBoostingClassifier(max_iter=15, random_state=0),
    ],
)
def test_any_classifier_is_made_fair_on_new_rows(estimator, tmp_path):
    X, cells = biased_problem(2, 2, n=4000)
    X, y, a = X.double().numpy(), cells.y.numpy(), cells.groups.numpy()
    model = FairDROHeadClassifier(estimator, rhos=[0, 1, 5, 20], keep_accuracy=0.8, cv=3)
    model.fit(X[:2000], y[:2000], sensitive_features=a[:2000])
    gaps = [dca(y[2000:], one.predict(X[2000:]), sensitive_features=a[2000:]) for one in (model.at(0), model)]
    assert gaps[1] < 0.5 * gaps[0]
    model.save(tmp_path / "m")
    again = fairdro.load(tmp_path / "m")
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=1e-9)
    assert "infers the group" in (tmp_path / "m" / "model_card.md").read_text()
    cells = model._cell_probabilities(X[:50])
    np.testing.assert_array_equal(model.head.predict(None, cells), model.predict(X[:50]))


def test_the_head_is_the_one_of_its_out_of_fold_probabilities(people):
    """By hand: scikit-learn's own cross_val_predict and fit_head give the same weights."""
    from sklearn.model_selection import cross_val_predict

    from fairdro.training.folds import stratified_folds

    X, y, a = people
    model = FairDROHeadClassifier(LogisticRegression(max_iter=500), rho=5.0, cv=3).fit(X, y, sensitive_features=a)
    codes, groups = np.unique(y, return_inverse=True)[1], np.unique(a, return_inverse=True)[1]
    cells = Cells(torch.from_numpy(codes), torch.from_numpy(groups), n_classes=3, n_groups=3)
    folds = stratified_folds(cells, 3, 0)
    of_class, of_group = (
        cross_val_predict(LogisticRegression(max_iter=500), X, label, cv=folds, method="predict_proba")
        for label in (codes, groups)
    )
    head = fit_head(of_class, of_group, y, a, rho=5.0)
    np.testing.assert_allclose(model.frontier_weights_, head.frontier_weights_, atol=1e-6)


@pytest.mark.parametrize("joint", ["conditional", "cells", "auto"])
def test_joints(people, joint):
    X, y, a = people
    model = FairDROHeadClassifier(LogisticRegression(max_iter=500), joint=joint, rhos=[0, 5], keep_accuracy=0.7, cv=3)
    model.fit(X, y, sensitive_features=a)
    assert joint in {model.joint_, "auto"}
    assert len(model.estimators_) == {"independent": 2, "conditional": 4, "cells": 1}[model.joint_]
    assert balanced_accuracy(y, model.predict(X), sensitive_features=a) > 0.5


def test_a_model_that_one_already_has(people):
    X, y, a = people
    trained = LogisticRegression(max_iter=500).fit(X[:1000], y[:1000])
    before = trained.coef_.copy()
    model = FairDROHeadClassifier(FrozenEstimator(trained), rhos=[0, 5, 20], keep_accuracy=0.8)
    model.fit(X[1000:2000], y[1000:2000], sensitive_features=a[1000:2000])
    np.testing.assert_array_equal(trained.coef_, before)
    assert model.estimators_[0].estimator is trained
    gaps = [dca(y[2000:], one.predict(X[2000:]), sensitive_features=a[2000:]) for one in (model.at(0), model)]
    assert gaps[1] < gaps[0]
    forest = RandomForestClassifier(50, random_state=0).fit(X[:1000], y[:1000])
    with pytest.warns(UserWarning, match="were they among those it was trained on"):
        FairDROHeadClassifier(FrozenEstimator(forest), rho=1.0).fit(X[:1000], y[:1000], sensitive_features=a[:1000])
    with pytest.raises(InputError, match="use another joint"):
        clone(model).set_params(joint="cells").fit(X, y, sensitive_features=a)
    with pytest.raises(InputError, match="the classes that the frozen model knows"):
        clone(model).fit(X[y != "no"], y[y != "no"], sensitive_features=a[y != "no"])


def test_categories_reach_the_wrapped_classifier_as_they_are(people):
    _, y, a = people
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"kind": pd.Categorical(np.where(rng.random(len(y)) < 0.7, y, "other")), "x": rng.normal(size=len(y))}
    )
    table.loc[::7, "x"] = np.nan
    wrapped = HistGradientBoostingClassifier(max_iter=10, categorical_features="from_dtype")
    model = FairDROHeadClassifier(wrapped, rho=1.0, cv=2).fit(table, y, sensitive_features=a)
    assert (model.predict(table) == y).mean() > 0.6
    assert list(model.feature_names_in_) == ["kind", "x"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table[["x"]])


def test_a_pipeline_of_texts(tmp_path):
    rng = np.random.default_rng(0)
    y, a = rng.integers(0, 2, 600), rng.choice(["u", "v"], 600)
    tones, colours = np.array(["bad", "good"])[y], np.where(a == "u", "blue", "red")
    words = [f"{tone} {colour}" for tone, colour in zip(tones, colours, strict=True)]
    wrapped = make_pipeline(TfidfVectorizer(), LogisticRegression())
    model = FairDROHeadClassifier(wrapped, rho=1.0, cv=2).fit(words, y, sensitive_features=a)
    assert (model.predict(words) == y).mean() > 0.9
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(fairdro.load(tmp_path / "m").predict(words), model.predict(words))


def test_soft_groups_weights_and_one_group(people):
    X, y, a = people
    shares = pd.DataFrame(pd.get_dummies(a).to_numpy(float) * 0.7 + 0.1, columns=["u", "v", "w"])
    model = FairDROHeadClassifier(LogisticRegression(max_iter=500), rho=2.0, cv=2)
    model.fit(X, y, sensitive_features=shares, sample_weight=np.linspace(0.5, 2, len(y)))
    assert model.weights_.shape == (3, 3)
    with pytest.warns(UserWarning, match="one group"):
        alone = clone(model).fit(X, y)
    assert alone.joint_ == "classes"

    class NoWeights(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            self.classes_ = np.unique(y)
            return self

        def predict_proba(self, X):
            return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))

    with pytest.raises(InputError, match="takes no sample_weight"):
        FairDROHeadClassifier(NoWeights(), cv=2).fit(X, y, sensitive_features=shares)


def test_mistakes_are_one_sentence(people):
    X, y, a = people
    for model, sentence in [
        (FairDROHeadClassifier(LinearSVC()), "LinearSVC has no predict_proba"),
        (FairDROHeadClassifier(joint="both"), "no joint named 'both'"),
        (FairDROHeadClassifier(rho=1.0, rhos=[1, 2]), "nothing to choose"),
        (FairDROHeadClassifier(keep_accuracy=95), "between 0 and 1"),
        (FairDROHeadClassifier(rule=3), "A selection rule is called"),
        (FairDROHeadClassifier(rhos=[-1.0]), "zero or positive numbers"),
    ]:
        with pytest.raises(InputError, match=sentence):
            model.fit(X, y, sensitive_features=a)
    fitted = FairDROHeadClassifier(rho=1.0, cv=2).fit(X, y, sensitive_features=a)
    for call in (lambda: fitted.at("x"), lambda: fitted.at(3.0), lambda: fitted.held_out(99)):
        with pytest.raises(InputError, match="frontier"):
            call()


def test_without_skops_a_sentence_says_how_to_get_it(people, tmp_path, monkeypatch):
    X, y, a = people
    model = FairDROHeadClassifier(rho=1.0, cv=2).fit(X, y, sensitive_features=a)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    for kind in (InputError, ImportError):
        with pytest.raises(kind, match=r"fairdro\[skops\]"):
            model.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_groups_are_routed_through_searches(people):
    X, y, a = people
    with sklearn.config_context(enable_metadata_routing=True):
        head = FairDROHeadClassifier(LogisticRegression(max_iter=300), rho=1.0, cv=2)
        search = GridSearchCV(head, {"estimator__C": [0.1, 1.0]}, cv=2).fit(X, y, sensitive_features=a)
    assert search.best_estimator_.group_names_ == ["u", "v", "w"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_accepts_it():
    model = FairDROHeadClassifier(LogisticRegression(), rhos=[0, 1], cv=3)
    expected = {
        "check_sample_weight_equivalence_on_dense_data": "the folds depend on which rows there are",
        "check_sample_weight_equivalence_on_sparse_data": "the folds depend on which rows there are",
    }
    check_estimator(model, on_skip=None, expected_failed_checks=expected)


def test_a_head_on_a_table_of_ones_own(people, tmp_path):
    X, y, a = people
    pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).assign(answer=y, kind=a).to_csv(
        tmp_path / "t.csv", index=False
    )
    options = ("--target", "answer", "--group", "kind", "--model", "head", "--rho", "2")
    estimator = ("--estimator", "sklearn.naive_bayes.GaussianNB")
    done = run_here("fit", "t.csv", *options, *estimator, "--out", "model", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = run_here("predict", "model", "t.csv", "--out", "p.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (pd.read_csv(tmp_path / "p.csv")["predicted"] == y).mean() > 0.5
    for wrong in (("--estimator", "os.system"), ("--estimator", "sklearn.svm.SVC")):
        done = run_here("fit", "t.csv", *options, *wrong, "--out", "other", cwd=tmp_path)
        assert (done.returncode, "no estimator named" in done.stderr) == (2, True), done.stderr
