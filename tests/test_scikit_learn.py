"""The classifiers among the tools of others: pipelines, searches, routing, tables, workers, and fairlearn."""

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import sklearn
import torch
from fairlearn.metrics import MetricFrame
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.reductions import DemographicParity, EqualizedOdds, ExponentiatedGradient, GridSearch
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler

from fairdro import FairClassifier, FairDROClassifier, FairDROClassifierCV, TableEncoder
from fairdro.errors import InputError
from fairdro.estimators.scoring import SCORERS, choose_by, dca_scorer, deo_scorer, worst_accuracy_scorer
from fairdro.frontier import best_dca
from fairdro.metrics import balanced_accuracy, dca, deo, standard_accuracy, worst_accuracy
from fairdro.selection import LimitDCA
from problems import biased_problem


@pytest.fixture(scope="module")
def problem():
    X, cells = biased_problem(2, 2, n=1200)
    return 50 + 20 * X.numpy().astype(np.float64), cells.y.numpy(), cells.groups.numpy()


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize("kind", [FairDROClassifier, FairClassifier, lambda: FairDROClassifierCV(rhos=[0, 2], cv=2)])
@pytest.mark.usefixtures("routing")
def test_groups_and_weights_are_routed_through_a_pipeline(problem, kind):
    X, y, a = problem
    weight = np.random.default_rng(0).uniform(0.5, 2, len(y))
    asking = kind().set_fit_request(sensitive_features=True, sample_weight=True)
    scaler = StandardScaler().set_fit_request(sample_weight=False)
    through = make_pipeline(scaler, asking).fit(X, y, sensitive_features=a, sample_weight=weight)
    direct = kind().fit(StandardScaler().fit_transform(X), y, sensitive_features=a, sample_weight=weight)
    np.testing.assert_array_equal(through[-1].coef_, direct.coef_)
    unweighted = kind().fit(StandardScaler().fit_transform(X), y, sensitive_features=a)
    assert np.abs(direct.coef_ - unweighted.coef_).max() > 1e-3


def test_a_pipeline_without_routing_takes_them_by_the_steps_name(problem):
    X, y, a = problem
    model = make_pipeline(StandardScaler(), FairDROClassifier(3.0)).fit(X, y, fairdroclassifier__sensitive_features=a)
    assert model[-1].weights_.shape == (2, 2)


@pytest.mark.usefixtures("routing")
def test_a_search_over_radii_chooses_by_the_papers_rule(problem):
    X, y, a = problem
    grid = {"fairdroclassifier__rho": [0.0, 1.0, 5.0]}
    pipeline = make_pipeline(PolynomialFeatures(1, include_bias=False), FairDROClassifier())
    search = GridSearchCV(pipeline, grid, scoring=SCORERS, refit=choose_by(), cv=3).fit(X, y, sensitive_features=a)
    results = search.cv_results_
    accuracy, gap = results["mean_test_accuracy"], -results["mean_test_dca"]
    assert search.best_index_ == best_dca(accuracy, gap, min_accuracy=0.95 * accuracy.max())
    assert gap[2] < gap[0]
    other = clone(search).set_params(refit=choose_by(LimitDCA(1.0))).fit(X, y, sensitive_features=a)
    assert other.best_index_ == np.argmax(accuracy)
    with pytest.raises(InputError, match="SCORERS"):
        choose_by()({"mean_test_score": [1.0]})


@pytest.mark.usefixtures("routing")
def test_scorers_are_the_metrics_on_held_out_rows(problem):
    X, y, a = problem
    folds = [(np.arange(600), np.arange(600, 1200))]
    scoring = {"dca": dca_scorer, "deo": deo_scorer, "worst": worst_accuracy_scorer}
    scores = cross_validate(FairDROClassifier(2.0), X, y, params={"sensitive_features": a}, scoring=scoring, cv=folds)
    held_out = FairDROClassifier(2.0).fit(X[:600], y[:600], sensitive_features=a[:600]).predict(X[600:])
    assert scores["test_dca"] == -dca(y[600:], held_out, sensitive_features=a[600:])
    assert scores["test_deo"] == -deo(y[600:], held_out, sensitive_features=a[600:])
    assert scores["test_worst"] == worst_accuracy(y[600:], held_out, sensitive_features=a[600:])
    small = GridSearchCV(FairDROClassifier(), {"rho": [0.0, 5.0]}, scoring=dca_scorer, cv=2).fit(X, y, sensitive_features=a)
    assert small.best_params_ == {"rho": 5.0}


@pytest.mark.usefixtures("routing")
def test_scorers_judge_models_that_know_nothing_of_groups(problem):
    X, y, a = problem
    scores = cross_validate(LogisticRegression(), X, y, params={"sensitive_features": a}, scoring=SCORERS, cv=3)
    assert (scores["test_dca"] < 0).all()


@pytest.mark.parametrize("library", [pd, pl])
def test_tables_of_pandas_and_polars(problem, library):
    X, y, a = problem
    names = [f"column {j}" for j in range(X.shape[1])]
    table = library.DataFrame({name: X[:, j] for j, name in enumerate(names)})
    labels, groups = library.Series(y.astype(str)), library.DataFrame({"sex": a, "region": (np.arange(len(a)) // 7) % 2})
    model = FairDROClassifier(2.0).fit(table, labels, sensitive_features=groups)
    assert model.feature_names_in_.tolist() == names
    assert model.group_names_ == ["0, 0", "0, 1", "1, 0", "1, 1"]
    same = FairDROClassifier(2.0).fit(X, y.astype(str), sensitive_features=groups.to_numpy())
    np.testing.assert_array_equal(model.predict(table), same.predict(X))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(table.rename({"column 0": "other"}) if library is pl else table.rename(columns={"column 0": "other"}))


def test_sparse_features_give_the_same_model(problem):
    X, y, a = problem
    X = np.where(np.abs(X - 50) < 20, 0, X)
    for kind in (FairDROClassifier(0.5), FairDROClassifierCV(rhos=[0, 0.5], cv=2)):
        dense = clone(kind).fit(X, y, sensitive_features=a)
        sparse = clone(kind).fit(scipy.sparse.csr_matrix(X), y, sensitive_features=a)
        np.testing.assert_allclose(dense.coef_, sparse.coef_, rtol=1e-12)
        np.testing.assert_allclose(dense.predict_proba(X), sparse.predict_proba(scipy.sparse.csc_matrix(X)), rtol=1e-12)


def test_a_multilayer_perceptron_takes_sparse_features_too(problem):
    X, y, a = (part[:300] for part in problem)
    model = FairDROClassifier(0.5, model="mlp").fit(scipy.sparse.csr_matrix(X), y, sensitive_features=a)
    np.testing.assert_allclose(model.predict_proba(scipy.sparse.csr_matrix(X)), model.predict_proba(X))


@pytest.mark.slow
def test_the_perceptrons_radius_can_be_chosen_too(problem):
    X, y, a = (part[:400] for part in problem)
    model = FairDROClassifierCV(model="mlp", rhos=[0, 0.5], cv=2).fit(X, y, sensitive_features=a)
    assert len(model.coefs_) == 3
    assert model.frontier_["accuracy"].min() > 0.6


@pytest.mark.parametrize("backend", [pytest.param("loky", marks=pytest.mark.slow), "threading"])
def test_many_fits_in_workers_are_the_fits_alone(problem, backend):
    X, y, a = problem
    radii, threads = [0.0, 1.0, 5.0, 20.0], torch.get_num_threads()
    fits = joblib.Parallel(n_jobs=2, backend=backend)(
        joblib.delayed(FairDROClassifier(rho).fit)(X, y, sensitive_features=a) for rho in radii
    )
    for rho, fitted in zip(radii, fits, strict=True):
        np.testing.assert_array_equal(fitted.coef_, FairDROClassifier(rho).fit(X, y, sensitive_features=a).coef_)
    assert torch.get_num_threads() == threads


def test_features_of_single_precision_are_not_copied_to_double(problem):
    X, y, a = problem
    double = FairDROClassifier(2.0).fit(X, y, sensitive_features=a)
    single = FairDROClassifier(2.0).fit(X.astype(np.float32), y, sensitive_features=a)
    np.testing.assert_allclose(double.coef_, single.coef_, atol=1e-5)


def test_the_encoder_in_a_pipeline_and_its_output(problem):
    X, y, a = problem
    table = pd.DataFrame({"x": X[:, 0], "z": X[:, 1], "job": np.where(X[:, 2] > 50, "a", "b")})
    ours = make_pipeline(TableEncoder(), FairDROClassifier(1.0)).fit(table, y, fairdroclassifier__sensitive_features=a)
    theirs = make_pipeline(
        make_column_transformer((StandardScaler(), ["x", "z"]), (OneHotEncoder(), ["job"])), FairDROClassifier(1.0)
    ).fit(table, y, fairdroclassifier__sensitive_features=a)
    np.testing.assert_allclose(ours.predict_proba(table), theirs.predict_proba(table), atol=1e-4)
    assert ours[-1].n_features_in_ == 4
    out = TableEncoder().set_output(transform="pandas").fit_transform(table)
    assert out.columns.tolist() == ["x", "z", "job = a", "job = b"]
    assert clone(TableEncoder(7)).max_categories == 7


# fairlearn


def test_metric_frames_take_our_metrics(problem):
    X, y, a = problem
    predicted = FairDROClassifier(1.0).fit(X, y, sensitive_features=a).predict(X)
    region = (np.arange(len(a)) // 7) % 2
    frame = MetricFrame(
        metrics={"dca": dca, "accuracy": balanced_accuracy},
        y_true=y,
        y_pred=predicted,
        sensitive_features=region,
        sample_params={"dca": {"sensitive_features": a}, "accuracy": {"sensitive_features": a}},
    )
    assert frame.overall["dca"] == dca(y, predicted, sensitive_features=a)
    here = region == 1
    assert frame.by_group.loc[1, "dca"] == dca(y[here], predicted[here], sensitive_features=a[here])


def test_a_threshold_optimizer_on_top_of_our_classifier(problem):
    X, y, a = problem
    fair = FairDROClassifier(0.5).fit(X, y, sensitive_features=a)
    for prefit in (True, False):
        post = ThresholdOptimizer(
            estimator=fair if prefit else FairClassifier(method="scratch", objective="standard"),
            constraints="equalized_odds", prefit=prefit, predict_method="predict_proba",
        )  # fmt: skip
        post.fit(X, y, sensitive_features=a)
        predicted = post.predict(X, sensitive_features=a, random_state=0)
        assert dca(y, predicted, sensitive_features=a) < 0.06
        assert standard_accuracy(y, predicted, sensitive_features=a) > 0.6


@pytest.mark.filterwarnings("ignore:Setting a")  # fairlearn with the newest pandas
@pytest.mark.parametrize(
    "reduction",
    [
        lambda base: ExponentiatedGradient(base, DemographicParity(), max_iter=5),
        lambda base: GridSearch(base, EqualizedOdds(), grid_size=5),
    ],
)
def test_our_classifier_as_a_base_of_reductions(problem, reduction):
    X, y, a = problem
    base = FairClassifier(method="scratch", objective="standard")
    predicted = reduction(base).fit(X, y, sensitive_features=a).predict(X)
    assert standard_accuracy(y, predicted, sensitive_features=a) > 0.6


def test_reductions_refuse_three_classes_where_ours_narrows_the_gap():
    X, cells = biased_problem(3, 4, n=6000)
    X, y, a = X.numpy(), cells.y.numpy(), cells.groups.numpy()
    with pytest.raises(ValueError, match="Supplied y labels are not 0 or 1"):
        ExponentiatedGradient(LogisticRegression(), EqualizedOdds()).fit(X, y, sensitive_features=a)
    plain, fair = (FairDROClassifier(rho).fit(X, y, sensitive_features=a).predict(X) for rho in (0.0, 3.0))
    assert dca(y, fair, sensitive_features=a) < 0.8 * dca(y, plain, sensitive_features=a)
