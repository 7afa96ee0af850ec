"""The reduction in our engine beside fairlearn's, with our classifier as its base."""

import pytest
import torch
from fairlearn.metrics import equalized_odds_difference
from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient

from fairdro.errors import InputError
from fairdro.estimators import FairClassifier
from fairdro.methods import EGR, Scratch
from fairdro.training import train_minibatch
from problems import biased_problem


@pytest.fixture(scope="module")
def problem():
    return biased_problem(2, 2, n=1500)


@pytest.fixture(scope="module")
def ours(problem):
    X, cells = problem
    method = EGR(eta=5.0, bound=1.0, objective="standard")
    return train_minibatch(X, cells, method, epochs=15, lr=1e-2)


def judge(problem, predictions):
    _, cells = problem
    accuracy = (predictions == cells.y.numpy()).mean()
    return accuracy, equalized_odds_difference(cells.y.numpy(), predictions, sensitive_features=cells.groups.numpy())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Setting a")  # fairlearn with the newest pandas
def test_agrees_in_kind_with_fairlearn(problem, ours):
    X, cells = problem
    X, y, a = X.numpy(), cells.y.numpy(), cells.groups.numpy()
    base = FairClassifier(method="scratch", objective="standard")
    plain_accuracy, plain_gap = judge(problem, base.fit(X, y).predict(X))
    reduction = ExponentiatedGradient(base, EqualizedOdds(difference_bound=0.05), max_iter=15)
    reduction.fit(X, y, sensitive_features=a)
    their_accuracy, their_gap = judge(problem, reduction.predict(X, random_state=0))
    our_accuracy, our_gap = judge(problem, ours.predict(X)[0, 0].numpy())
    assert plain_gap > 0.25
    assert max(their_gap, our_gap) < 0.5 * plain_gap
    assert abs(their_accuracy - our_accuracy) < 0.05
    assert min(their_accuracy, our_accuracy) > plain_accuracy - 0.1


def test_randomised_prediction_draws_from_the_rounds(problem, ours):
    X, _ = problem
    drawn = ours.predict_randomised(X, seed=0)
    assert len(ours.earlier) == EGR().rounds - 1
    assert drawn.equal(ours.predict_randomised(X, seed=0))
    assert not drawn.equal(ours.predict_randomised(X, seed=1))
    by_round = []
    for models in ours.earlier:
        logits = X @ models["weight"][0, 0] + models["bias"][0, 0]
        by_round.append(logits.argmax(-1))
    agreed = torch.stack(by_round).float().mean(0)
    assert drawn[0, 0][agreed == 1].eq(1).all()
    assert drawn[0, 0][agreed == 0].eq(0).all()
    shares = torch.stack([ours.predict_randomised(X, seed=s)[0, 0].float() for s in range(200)]).mean(0)
    torch.testing.assert_close(shares, agreed, atol=0.2, rtol=0)
    _, plain_gap = judge(problem, train_minibatch(X, problem[1], Scratch(), epochs=15, lr=1e-2).predict(X)[0, 0].numpy())
    assert judge(problem, drawn[0, 0].numpy())[1] < 0.7 * plain_gap


def test_a_method_with_one_model_has_none_to_draw_from(problem):
    X, cells = problem
    trained = train_minibatch(X, cells, Scratch(), epochs=1)
    with pytest.raises(InputError, match="use predict"):
        trained.predict_randomised(X)


def test_a_classifier_by_the_name_of_a_method(problem):
    X, cells = problem
    X, y, a = X.numpy(), cells.y.numpy(), cells.groups.numpy()
    labels = y.astype(str)
    for name, hyperparameters in (("fairdro", {"rho": 5.0}), ("lbc", {"eta": 3.0})):
        fair = FairClassifier(method=name, **hyperparameters).fit(X, labels, sensitive_features=a)
        assert set(fair.predict(X)) == {"0", "1"}
        assert fair.weights_.shape == (2, 2)
        assert fair.predict_proba(X).sum(1) == pytest.approx(1)
        plain = FairClassifier(method="scratch").fit(X, labels, sensitive_features=a)
        gaps = [judge(problem, model.predict(X).astype(int))[1] for model in (fair, plain)]
        assert gaps[0] < 0.6 * gaps[1]
    assert FairClassifier(method="fairdro", rho=5.0).get_params()["rho"] == 5.0
    with pytest.raises(InputError, match=r"lbc does not have these hyperparameters: rho\."):
        FairClassifier(method="lbc", eta=1.0, rho=1.0).fit(X, y, sensitive_features=a)
    with pytest.raises(InputError, match="no parameter 'modle'"):
        FairClassifier(method="lbc").set_params(modle="mlp")
    with pytest.raises(InputError, match="one model"):
        FairClassifier(method="fairdro", rho=(1.0, 2.0)).fit(X, y, sensitive_features=a)
    with pytest.warns(UserWarning, match="without sensitive_features"):
        FairClassifier(method="fairdro").fit(X, y)
