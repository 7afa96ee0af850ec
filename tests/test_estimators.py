"""The classifiers as a user of scikit-learn meets them."""

import inspect
import re

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator

from fairdro import FairClassifier, FairDROBoostingClassifier, FairDROClassifier, FairDROClassifierCV, load_dataset
from fairdro.errors import InputError
from fairdro.metrics import balanced_accuracy, dca
from fairdro.selection import Knee, LimitDCA
from problems import biased_problem


@pytest.fixture(scope="module")
def problem():
    X, cells = biased_problem(2, 2, n=1500)
    return 50 + 20 * X.numpy(), cells.y.numpy().astype(str), cells.groups.numpy()  # unscaled on purpose


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", [FairDROClassifier(), FairClassifier(), FairDROClassifierCV(rhos=[0, 2], cv=2)])
def test_scikit_learn_accepts_it(estimator):
    check_estimator(estimator, on_skip=None)


def test_plain_training_is_logistic_regression_on_features_as_they_were_passed(problem):
    X, y, _ = problem
    ours = FairClassifier(method="scratch", objective="standard").fit(X, y)
    theirs = LogisticRegression(C=np.inf, max_iter=10_000).fit(X, y)
    assert (ours.predict(X) == theirs.predict(X)).mean() > 0.99
    assert ours.decision_function(X) == pytest.approx(X @ ours.coef_[0] + ours.intercept_[0])
    np.testing.assert_allclose(expit(ours.decision_function(X)), theirs.predict_proba(X)[:, 1], atol=0.03)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=0.1)  # from four fifths of the rows


def test_a_radius_narrows_the_gap_and_needs_no_group_to_predict(problem):
    X, y, a = problem
    plain, fair = (FairDROClassifier(rho=rho).fit(X, y, sensitive_features=a) for rho in (0.0, 5.0))
    gaps = [dca(y, model.predict(X), sensitive_features=a) for model in (plain, fair)]
    assert gaps[1] < 0.4 * gaps[0]
    assert fair.weights_.shape == (2, 2)
    assert fair.weights_.sum(1) == pytest.approx(1)


@pytest.mark.slow
def test_the_multilayer_perceptron_too(problem):
    X, y, a = problem
    model = FairDROClassifier(rho=0.5, model="mlp").fit(X, y, sensitive_features=a)
    assert balanced_accuracy(y, model.predict(X), sensitive_features=a) > 0.7
    assert model.predict_proba(X).sum(1) == pytest.approx(1)


def test_the_radius_is_chosen_on_held_out_rows(problem):
    X, y, a = problem
    model = FairDROClassifierCV(keep_accuracy=0.9, rhos=[0, 0.3, 1, 3, 10], cv=3).fit(X, y, sensitive_features=a)
    table = model.frontier_
    assert table["selected"].sum() == 1
    assert table["rho"][model.best_index_] == model.rho_
    eligible = table[table["accuracy"] >= 0.9 * table["accuracy"][0]]
    assert table["dca"][model.best_index_] == eligible["dca"].min()
    assert balanced_accuracy(y, model.predict(X), sensitive_features=a) == pytest.approx(
        table["accuracy"][model.best_index_], abs=0.03
    )
    assert model.held_out().metric("dca") == table["dca"][model.best_index_]
    assert model.confusion_.sum((1, 2, 3)) == pytest.approx(len(y))
    same = FairDROClassifier(model.rho_).fit(X, y, sensitive_features=a)
    np.testing.assert_array_equal(model.coef_, same.coef_)
    assert model.plot_frontier().to_dict()["layer"]
    with pytest.raises(InputError, match="A class has one sample"):
        clone(model).set_params(min_cell_size=0).fit(X[:3], np.array(["0", "1", "1"]), sensitive_features=a[:3])
    for rule in (LimitDCA(0.2), Knee()):
        other = clone(model).set_params(rule=rule).fit(X, y, sensitive_features=a)
        choice = rule(table, table.iloc[0])
        assert other.best_index_ == choice.index


def test_three_classes_and_four_groups():
    X, cells = biased_problem(3, 4, n=6000)
    X, y, a = X.numpy(), cells.y.numpy(), cells.groups.numpy()
    plain, fair = (FairDROClassifier(rho=rho).fit(X, y, sensitive_features=a) for rho in (0.0, 3.0))
    assert fair.coef_.shape == (3, X.shape[1])
    gaps = [dca(y, model.predict(X), sensitive_features=a) for model in (plain, fair)]
    assert gaps[1] < 0.8 * gaps[0]


def test_weights_repeat_rows(problem):
    X, y, a = (part[:300] for part in problem)
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    weighted = FairDROClassifier(2.0).fit(X, y, sensitive_features=a, sample_weight=weight)
    repeated = FairDROClassifier(2.0).fit(*(np.repeat(part, weight, axis=0) for part in (X, y)),
                                          sensitive_features=np.repeat(a, weight))  # fmt: skip
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-6)


def test_on_adult_the_estimator_is_the_bench():
    split = load_dataset("adult").split("validated")
    X, y, a = split.train.X.numpy(), split.train.cells.y.numpy(), split.train.cells.groups.numpy()
    model = FairDROClassifier(rho=10.0).fit(X, y, sensitive_features=a)
    truth, groups = split.test.cells.y.numpy(), split.test.cells.groups.numpy()
    predicted = model.predict(split.test.X.numpy())
    assert dca(truth, predicted, sensitive_features=groups) < 0.04
    assert balanced_accuracy(truth, predicted, sensitive_features=groups) > 0.78


def test_a_model_that_diverged_is_never_chosen(problem, monkeypatch):
    X, y, a = problem

    honest = FairDROClassifierCV._cross_validate

    def spoiled(self, *arguments):
        *judged, diverged = honest(self, *arguments)
        return *judged, diverged | (np.arange(len(diverged)) == 2)

    monkeypatch.setattr(FairDROClassifierCV, "_cross_validate", spoiled)
    model = FairDROClassifierCV(keep_accuracy=0.5, rhos=[0, 1, 5], cv=2).fit(X, y, sensitive_features=a)
    assert model.frontier_["diverged"].tolist() == [False, False, True]
    assert model.best_index_ == 1


@pytest.mark.parametrize("name", ["cov", "group_dro_eg"])
def test_a_small_table_is_gone_through_often_enough_in_mini_batches(problem, name):
    X, y, a = (part[:300] for part in problem)
    model = FairClassifier(method=name, min_cell_size=0, **({"lam": 0.0} if name == "cov" else {}))
    assert balanced_accuracy(y, model.fit(X, y, sensitive_features=a).predict(X), sensitive_features=a) > 0.7


def test_rows_without_weight_do_not_count_and_the_scale_of_weights_neither(problem):
    X, y, a = problem
    weight = np.where(np.arange(len(y)) < 700, 0.0, 1.0)
    dropped = FairDROClassifier(2.0).fit(X[700:], y[700:], sensitive_features=a[700:])
    for scale in (1.0, 1e39):
        weighted = FairDROClassifier(2.0).fit(X, y, sensitive_features=a, sample_weight=scale * weight)
        np.testing.assert_allclose(weighted.coef_, dropped.coef_, rtol=1e-6)
    with pytest.warns(UserWarning, match="penalty of cov counts all rows the same"):
        FairClassifier(method="cov").fit(X[:300], y[:300], sensitive_features=a[:300], sample_weight=np.ones(300))


def test_manners_of_scikit_learn(problem):
    X, y, a = problem
    assert (
        FairDROClassifier(model="mlp", random_state=None, min_cell_size=0)
        .fit(X[:99], y[:99], sensitive_features=a[:99])
        .coefs_
    )
    half = np.arange(len(y)) % 2 == 0
    by_mask = FairDROClassifierCV(rhos=[0, 1], cv=[(half, ~half)]).fit(X, y, sensitive_features=a)
    assert by_mask.confusion_.sum() == 2 * (~half).sum()
    few = FairDROClassifierCV(rhos=[0, 1], cv=np.int64(5), min_cell_size=0)
    assert few.fit(X[:32], y[:32], sensitive_features=np.arange(32) % 4).rho_ in (0, 1)
    assert FairClassifier(method="fairdro", rho=2.0).set_params(method="lbc").get_params().get("rho") is None
    with pytest.raises(InputError, match="same name"):
        FairDROClassifier().fit(X, y, sensitive_features=[pd.Series(a, name="g"), pd.Series(a, name="g")])


def test_small_cells_are_said_merged_or_refused(problem):
    X, y, a = problem
    tiny = np.where(np.arange(len(a)) < 20, "tiny", a.astype(str))
    with pytest.warns(UserWarning, match=r"fewer than 30 rows, too few to mean anything: 0 / tiny"):
        model = FairDROClassifier().fit(X, y, sensitive_features=tiny)
    assert model.weights_.shape == (2, 3)
    merged = FairDROClassifier(small_cells="merge").fit(X, y, sensitive_features=tiny)
    assert merged.weights_.shape == (2, 2)
    assert merged.group_names_ == ["0", "1 or tiny"]
    assert merged.cell_counts_.sum() == len(y)
    with pytest.raises(InputError, match=r"0 / tiny \(\d+\).*Merge groups"):
        FairDROClassifier(small_cells="refuse").fit(X, y, sensitive_features=tiny)
    assert FairDROClassifier(small_cells="refuse", min_cell_size=5).fit(X, y, sensitive_features=tiny)
    with pytest.raises(InputError, match="no way with small cells named 'hide'"):
        FairDROClassifier(small_cells="hide").fit(X, y, sensitive_features=tiny)


def test_soft_groups_are_merged_by_their_shares(problem):
    X, y, a = problem
    shares = pd.DataFrame({"u": 0.9 - 0.6 * a, "v": 0.09 + 0.6 * a, "w": 0.01}, index=range(len(a)))
    merged = FairDROClassifier(small_cells="merge").fit(X, y, sensitive_features=shares)
    assert len(merged.group_names_) == 2
    assert merged.cell_counts_.sum() == pytest.approx(len(y))


def test_without_groups_it_warns(problem):
    X, y, _ = problem
    with pytest.warns(UserWarning, match="without sensitive_features"):
        FairDROClassifier().fit(X, y)


def test_parameters_are_those_of_the_method():
    model = FairClassifier(method="lbc", eta=2.0)
    assert clone(model).get_params() == model.get_params() == {
        "method": "lbc", "model": "linear", "class_weight": None, "small_cells": "warn", "min_cell_size": 30,
        "missing_groups": "refuse", "max_iter": None, "tol": 0.05, "random_state": 0, "verbose": False, "eta": 2.0,
    }  # fmt: skip
    assert model.set_params(method="fairdro", rho=3.0).get_params()["rho"] == 3.0
    with pytest.raises(InputError, match="There is no parameter 'modle'"):
        model.set_params(modle="mlp")


@pytest.mark.parametrize(
    "model",
    [
        FairDROClassifier(),
        FairDROClassifier(model="mlp"),
        FairClassifier(method="scratch"),
        FairDROClassifierCV(rhos=[0, 1], cv=2),
        FairDROBoostingClassifier(rhos=[0, 1], cv=2, n_estimators=3),
        FairDROBoostingClassifier(1.0, strategy="weights", n_estimators=3),
    ],
)
def test_what_is_fitted_is_documented_and_rho_comes_first(model, problem):
    X, y, a = problem
    names = [f"x{j}" for j in range(X.shape[1])]
    model.fit(pd.DataFrame(X, columns=names), y, sensitive_features=a)
    fitted = {name for name in vars(model) if name.endswith("_") and not name.startswith("_")}
    documented = set(re.findall(r"\b\w+_\b", type(model).__doc__.partition("Attributes\n")[2]))
    assert fitted <= documented
    first = next(iter(inspect.signature(type(model)).parameters.values()))
    assert first.name == "rho" or first.kind is first.KEYWORD_ONLY
