import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from command import run_here
from fairdro import FairDROBoostingClassifier, FairDROClassifierCV, FairDROHeadClassifier, fit_head, load
from fairdro.errors import InputError
from fairdro.selection import CertifiedDCA, LimitDCA, certify

pytestmark = pytest.mark.usefixtures("quick_heads")
RHOS = [0, 1, 10]
MODELS = {
    "cv": lambda **options: FairDROClassifierCV(rhos=RHOS, cv=2, **options),
    "head": lambda **options: FairDROHeadClassifier(rhos=RHOS, cv=2, **options),
    "boosting": lambda **options: FairDROBoostingClassifier(rhos=RHOS, cv=2, n_estimators=20, n_jobs=1, **options),
    "weights": lambda **options: FairDROBoostingClassifier(
        rhos=RHOS, strategy="weights", n_estimators=20, n_jobs=1, **options
    ),
}
models = pytest.mark.parametrize("made", MODELS.values(), ids=MODELS)


def people(n=3000, seed=0):
    """Women of class 1 look a little more like class 0."""
    rng = np.random.default_rng(seed)
    sex, y = rng.choice(["f", "m"], n), rng.integers(0, 2, n)
    score = 2 * y + 0.5 * (sex == "m") + rng.normal(size=n)
    return np.column_stack([score, rng.normal(size=n) + (sex == "m"), rng.normal(size=n)]), y, sex


@models
def test_rows_that_are_set_aside_neither_train_nor_choose(made):
    X, y, sex = people(1500)
    aside = np.arange(1500) % 4 == 0
    other = X.copy()
    other[aside] = 100 * np.random.default_rng(1).normal(size=other[aside].shape)
    first, second = (made(certify=aside).fit(table, y, sensitive_features=sex) for table in (X, other))
    np.testing.assert_array_equal(first.decision_function(X), second.decision_function(X))
    pd.testing.assert_frame_equal(first.frontier_, second.frontier_)
    assert first.cell_counts_.sum() == first.confusion_[0].sum() == (~aside).sum() or made is MODELS["weights"]
    own = certify(y[aside], first.predict(X[aside]), sensitive_features=sex[aside])
    assert first.certificate_.bounds == own.bounds
    assert first.certificate_.rows == aside.sum()
    assert first.certificate_.dca < second.certificate_.worst_error


@models
def test_the_most_accurate_radius_that_is_certified_is_chosen(made, tmp_path):
    X, y, sex = people()
    model = made(rule=CertifiedDCA(0.2, 0.1), certify=0.3, keep_class_accuracy=0.0).fit(X, y, sensitive_features=sex)
    certificate = model.certificate_
    assert (certificate.dca, certificate.delta, certificate.rows) == (0.2, 0.1, 900)
    assert certificate.observed["dca"] < 0.2
    assert model.frontier_["selected"].to_numpy().argmax() == model.best_index_
    assert model.rho_ == model.frontier_["rho"][model.best_index_]
    fairest, accurate = model.frontier_["dca"].argmin(), model.frontier_["accuracy"].argmax()
    assert model.best_index_ == accurate  # all are certified
    assert fairest != accurate
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.certificate_.bounds == certificate.bounds
    assert again.rule == model.rule
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    card = (tmp_path / "model" / "model_card.md").read_text()
    assert "Certified with 90 % confidence by 900 rows" in card
    assert "fixed-sequence" in card
    alone = made(certify=0.3).set_params(rhos=None, rho=model.rho_).fit(X, y, sensitive_features=sex)
    np.testing.assert_allclose(alone.decision_function(X), model.decision_function(X), rtol=1e-6, atol=1e-6)


@models
def test_where_none_is_certified_it_says_how_many_rows_would_do(made):
    X, y, sex = people(1200)
    with pytest.raises(InputError, match=r"No radius is certified.*by 240 rows.*(About|No number)"):
        made(rule="certified-dca=0.02").fit(X, y, sensitive_features=sex)


def test_any_rule_is_certified_on_the_rows_set_aside():
    X, y, sex = people(800)
    model = FairDROHeadClassifier(rhos=RHOS, rule=LimitDCA(0.3), certify=0.25, delta=0.2).fit(X, y, sensitive_features=sex)
    assert (model.certificate_.rows, model.certificate_.delta) == (200, 0.2)
    assert "did not train the model, and did not choose it" in model.model_card().replace("\\", "")
    plain = clone(model).set_params(certify=None).fit(X, y, sensitive_features=sex)
    assert not hasattr(plain, "certificate_")
    model.set_params(certify=None).fit(X, y, sensitive_features=sex)
    assert not hasattr(model, "certificate_")


def test_a_head_by_itself_is_certified(tmp_path):
    X, y, sex = people()
    p_class, p_group = (LogisticRegression().fit(X, of).predict_proba(X) for of in (y, sex))
    head = fit_head(p_class, p_group, y, sex, rhos=RHOS, certify=0.5)
    head.save(tmp_path / "head.json")
    again = load(tmp_path / "head.json")
    assert again.certificate_.bounds == head.certificate_.bounds
    assert head.certificate_.rows == 1500
    assert not hasattr(head.at(10), "certificate_")
    chosen = fit_head(p_class, p_group, y, sex, rhos=RHOS, rule=CertifiedDCA(0.25))
    assert chosen.certificate_.dca == 0.25


@pytest.mark.parametrize("missing", ["infer", "ignore"])
def test_rows_of_unknown_group_certify_nothing_and_leak_nothing(missing):
    X, y, sex = people(1500)
    sex = np.where(np.arange(1500) % 5 == 0, None, sex)
    aside = np.arange(1500) % 4 == 0
    other = np.where(aside[:, None], -X, X)
    first, second = (
        FairDROClassifierCV(rhos=RHOS, cv=2, certify=aside, missing_groups=missing).fit(table, y, sensitive_features=sex)
        for table in (X, other)
    )
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert first.certificate_.rows == 300


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"certify": 20}, "write 0.2"),
        ({"certify": 1.0}, "must leave rows"),
        ({"certify": 0, "rule": CertifiedDCA()}, "must leave rows"),
        ({"certify": [0, 1]}, "True and False"),
        ({"certify": [True] + 9 * [False]}, "of 10 rows"),
        ({"certify": "some"}, "share between 0 and 1"),
        ({"certify": 0.2, "delta": 0}, "delta"),
        ({"certify": 0.2, "cv": [(np.arange(200), np.arange(200, 400))]}, "no list of rows"),
        ({"certify": 0.0001}, "too few rows"),
        ({"rule": CertifiedDCA(), "rho": 1.0}, "nothing to choose"),
    ],
)
def test_wrong_parameters_are_refused_in_a_sentence(options, said):
    X, y, sex = people(400)
    with pytest.raises(InputError, match=said):
        FairDROClassifierCV(**options).fit(X, y, sensitive_features=sex)


def test_weights_and_shares_are_refused_and_a_splitter_is_not():
    X, y, sex = people(400)
    model = FairDROClassifierCV(rhos=RHOS, cv=StratifiedKFold(3), certify=0.5)
    with pytest.raises(InputError, match="Rows with weights"):
        model.fit(X, y, sensitive_features=sex, sample_weight=np.full(400, 2.0))
    with pytest.raises(InputError, match="groups in shares"):
        model.fit(X, y, sensitive_features=np.full((400, 2), 0.5))
    assert model.fit(X, y, sensitive_features=sex).certificate_.rows == 200


def table(n, seed=0):
    X, y, sex = people(n, seed)
    columns = {"x": X[:, 0], "z": X[:, 1], "sex": sex, "income": np.where(y == 1, "<b>high", "low")}
    return pd.DataFrame(columns)


def test_on_the_command_line(tmp_path):
    table(1500).to_csv(tmp_path / "people.csv", index=False)
    new = table(1000, 1)
    new.loc[:9, "sex"] = None
    new.to_csv(tmp_path / "new.csv", index=False)
    asked = ("--target", "income", "--group", "sex")
    done = run_here("fit", "people.csv", *asked, "--out", "model", "--certified-dca", "0.4", "--delta", "0.1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Certified with 90 % confidence by 300 rows" in done.stdout
    done = run_here("certify", "model", "new.csv", *asked, "--missing-groups", "ignore", "--out", "c.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "10 of 1,000 rows have no group" in done.stdout
    assert "neither trained the model nor chose it" in done.stdout
    predicted = load(tmp_path / "model").predict(new.drop(columns="income"))
    known = new["sex"].notna()
    own = certify(new["income"][known], predicted[known], sensitive_features=new["sex"][known])
    assert json.loads((tmp_path / "c.json").read_text())["bounds"] == pytest.approx(own.bounds)
    done = run_here("certify", "model", "new.csv", *asked, "--max-dca", "0.2", cwd=tmp_path)
    assert "such rows would certify 20 %" in done.stdout or "No number of rows" in done.stdout or "at most 1" in done.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--delta", "0.1"], "--delta is for a certificate"),
        (["--certified-dca", "0.05", "--rho", "3"], "not two of them"),
        (["--certified-dca", "0.05", "--keep-accuracy", "0.9"], "not two of them"),
        (["--certify", "20"], "write 0.2"),
        (["--certified-dca", "0.01"], "No radius is certified"),
    ],
)
def test_wrong_options_of_fit_are_refused_in_a_sentence(options, said, tmp_path):
    table(300).to_csv(tmp_path / "people.csv", index=False)
    asked = ("--target", "income", "--group", "sex", "--out", "model")
    done = run_here("fit", "people.csv", *asked, *options, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "model").exists()


def test_fit_learns_its_features_without_the_rows_set_aside(tmp_path, monkeypatch):
    from fairdro.estimators import encoder

    seen = []
    fit = encoder.TableEncoder.fit
    monkeypatch.setattr(encoder.TableEncoder, "fit", lambda self, X, y=None: (seen.append(len(X)), fit(self, X, y))[1])
    table(1000).to_csv(tmp_path / "people.csv", index=False)
    asked = ("--target", "income", "--group", "sex", "--out", "model")
    assert run_here("fit", "people.csv", *asked, "--certify", "0.3", cwd=tmp_path).returncode == 0
    assert seen == [700]
