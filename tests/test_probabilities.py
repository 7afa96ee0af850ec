"""``predict_proba`` is about people as they are; ``predict`` is a decision."""

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.naive_bayes import GaussianNB

from fairdro import FairDROBoostingClassifier, FairDROClassifier, FairDROClassifierCV, FairDROHeadClassifier, load
from fairdro.training.calibration import fit_scaling, scale


def rare(n=8000, seed=0):
    """One in fifteen is of class 1."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 4))
    X[:, 1] += a
    logit = -4.2 + 1.3 * X[:, 0] + 0.8 * X[:, 1] + 0.5 * X[:, 2] * (a == 0)
    return X, (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int), a


CLASSIFIERS = [
    FairDROClassifier(10.0),
    FairDROClassifierCV(rhos=[0, 10], cv=3),
    FairDROHeadClassifier(LogisticRegression(), rhos=[0, 10], cv=3),
    FairDROBoostingClassifier(rhos=[0, 10], cv=3, n_estimators=60, n_jobs=1),
    FairDROBoostingClassifier(10.0, strategy="weights", n_estimators=200, n_jobs=1),
]


@pytest.mark.filterwarnings("ignore:Some classes and groups", "ignore:The accuracy of a cell still moved")
@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda model: f"{type(model).__name__}")
def test_they_are_as_good_as_plain_ones_where_a_class_is_rare(model, tmp_path):
    X, y, a = rare()
    train, test = np.arange(4000), np.arange(4000, 8000)
    model.fit(X[train], y[train], sensitive_features=a[train])
    kind = lightgbm.LGBMClassifier(n_estimators=60, learning_rate=0.05, num_leaves=15, verbosity=-1, n_jobs=1)
    plain = kind if isinstance(model, FairDROBoostingClassifier) else LogisticRegression()
    plain.fit(X[train], y[train])
    scores = [brier_score_loss(y[test], one.predict_proba(X[test])[:, 1]) for one in (plain, model)]
    assert scores[1] < 1.05 * scores[0]
    probability = model.predict_proba(X[test])[:, 1]
    assert probability.mean() == pytest.approx(y[test].mean(), abs=0.01)
    assert (model.predict(X[test]) == 1).mean() > 3 * y.mean()  # balanced decisions name the rare class often
    scores = model.decision_function(X[test])
    np.testing.assert_array_equal(model.predict(X[test]), (scores > 0).astype(int))
    model.save(tmp_path / "m")
    np.testing.assert_allclose(load(tmp_path / "m").predict_proba(X[test])[:, 1], probability, atol=1e-9)


@pytest.mark.parametrize(
    "base",
    [
        LogisticRegression(class_weight="balanced"),
        GaussianNB(),
        RandomForestClassifier(50, min_samples_leaf=3, random_state=0),
    ],
)
@pytest.mark.filterwarnings("ignore:Some classes and groups", "ignore:.*heads have not converged")
def test_a_head_calibrates_whatever_it_is_put_on(base):
    X, y, a = rare()
    train, test = np.arange(4000), np.arange(4000, 8000)
    model = FairDROHeadClassifier(base, rhos=[0, 1], cv=3).fit(X[train], y[train], sensitive_features=a[train])
    own = model.estimators_[0].predict_proba(X[test])
    rival = CalibratedClassifierCV(base, ensemble=False, cv=3).fit(X[train], y[train]).predict_proba(X[test])
    ours = model.predict_proba(X[test])
    assert log_loss(y[test], ours) <= log_loss(y[test], own) + 1e-3
    assert brier_score_loss(y[test], ours[:, 1]) < 1.03 * brier_score_loss(y[test], rival[:, 1])
    assert ours[:, 1].mean() == pytest.approx(y.mean(), abs=0.015)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1000), st.floats(0.3, 3), st.floats(-2, 2))
def test_the_scaling_of_two_classes_is_platts(seed, slope, offset):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=3000) * 2
    y = (rng.random(3000) < 1 / (1 + np.exp(-slope * z - offset))).astype(int)
    found = fit_scaling(np.column_stack([np.zeros(3000), z]), np.eye(2)[y])
    platt = LogisticRegression(C=np.inf).fit(z[:, None], y)
    assert found[0] == pytest.approx(platt.coef_[0, 0], rel=0.03)
    assert found[2] - found[1] == pytest.approx(platt.intercept_[0], rel=0.03, abs=0.02)


def test_the_scaling_of_several_classes_is_found_again():
    rng = np.random.default_rng(0)
    z, wanted = rng.normal(size=(60_000, 3)) * 2, np.array([0.6, 0.4, -0.9, 0.5])
    y = (scale(z, wanted).cumsum(1) < rng.random((60_000, 1))).sum(1)
    found = fit_scaling(z, np.eye(3)[y])
    assert found[0] == pytest.approx(0.6, abs=0.02)
    np.testing.assert_allclose(found[1:] - found[1:].mean(), wanted[1:] - wanted[1:].mean(), atol=0.04)


def test_few_rows_that_are_all_of_one_class_leave_probabilities_near_what_they_are():
    found = fit_scaling(np.array([[0.0, 1.0], [0.0, 2.0]]), np.eye(2)[[1, 1]])
    assert np.isfinite(found).all()
    assert abs(found - [1, 0, 0]).max() < 0.5
