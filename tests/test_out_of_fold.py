"""The full-batch solver with errors on rows that were not trained on, and with a penalty: against loops by hand."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from fairdro import FairDROClassifier, FairDROClassifierCV
from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.methods import METHODS, FairDRO, Scratch
from fairdro.training import train_fullbatch
from fairdro.uncertainty import ChiSquareBall
from problems import biased_problem

pytestmark = pytest.mark.filterwarnings("ignore:The accuracy of a cell still moved")

shapes = pytest.mark.parametrize(("n_classes", "n_groups"), [(2, 2), (3, 4)])
softness = pytest.mark.parametrize("soft", [False, True])


def weigh(cells, seed=1):
    weight = torch.rand(len(cells), generator=torch.Generator().manual_seed(seed)) * 2
    return Cells(cells.y, cells.groups, n_classes=cells.n_classes, n_groups=cells.n_groups, sample_weight=weight)


class ByHand:
    """K + 1 single models with autograd and torch's Adam, a loop over cells, and one q; the last model is the final one."""

    def __init__(self, X, cells, *, folds, rho, signal, l2):
        self.X, self.y, self.n_classes, self.n_groups = X.double(), cells.y, cells.n_classes, cells.n_groups
        self.rho, self.signal, self.l2 = rho, signal, l2
        weight = torch.ones(len(X)) if cells.sample_weight is None else cells.sample_weight
        self.counted = (weight[:, None] * cells.membership).double()  # (N, A)
        strata = cells.y if cells.soft else cells.y * cells.n_groups + cells.groups
        tests = [test for _, test in StratifiedKFold(folds, shuffle=True, random_state=0).split(X, strata)]
        self.held = [torch.isin(torch.arange(len(X)), torch.from_numpy(test)) for test in tests]
        outputs = 1 if cells.n_classes == 2 else cells.n_classes
        self.models = [
            torch.zeros(X.shape[1] + 1, outputs, dtype=torch.double, requires_grad=True) for _ in range(folds + 1)
        ]
        self.q = torch.full((cells.n_classes, cells.n_groups), 1 / cells.n_groups, dtype=torch.double)

    def losses(self, model):
        logits = self.X @ model[:-1] + model[-1]
        logits = torch.cat([torch.zeros_like(logits), logits], dim=1) if self.n_classes == 2 else logits
        return logits, torch.nn.functional.cross_entropy(logits, self.y, reduction="none")

    def cell_mean(self, values, k, g, rows):
        inside = (self.y == k) & rows
        return (values * self.counted[:, g])[inside].sum() / self.counted[inside, g].sum()

    def out_of_fold(self):
        signal = torch.zeros(len(self.y), dtype=torch.double)
        for held, model in zip(self.held, self.models, strict=False):
            logits, losses = self.losses(model)
            signal[held] = (losses if self.signal == "loss" else (logits.argmax(1) != self.y).double()).detach()[held]
        every = torch.ones_like(self.y, dtype=torch.bool)
        means = [[self.cell_mean(signal, k, g, every) for g in range(self.n_groups)] for k in range(self.n_classes)]
        return torch.tensor(means, dtype=torch.double)

    def objective(self, copy):
        seen = ~self.held[copy] if copy < len(self.held) else torch.ones_like(self.y, dtype=torch.bool)
        _, losses = self.losses(self.models[copy])
        cells = [(k, g) for k in range(self.n_classes) for g in range(self.n_groups)]
        weighted = sum(self.q[k, g] * self.cell_mean(losses, k, g, seen) for k, g in cells) / self.n_classes
        return weighted + self.l2 / 2 * self.models[copy][:-1].square().sum()

    def run(self, steps, lr):
        optimisers = [torch.optim.Adam([model], betas=(0.7, 0.99), eps=1e-5) for model in self.models]
        accuracies, final = [], []
        for step in range(steps):
            means = self.out_of_fold()
            accuracies.append(1 - means)
            best = ChiSquareBall(self.rho, softness=0.02).best_response(means)
            self.q = self.q.lerp(best, 1 - step / steps)
            for copy, optimiser in enumerate(optimisers):
                optimiser.param_groups[0]["lr"] = lr * (1 + math.cos(math.pi * step / steps)) / 2
                optimiser.zero_grad()
                self.objective(copy).backward()
                optimiser.step()
            final.append(self.models[-1].detach().clone())
        return torch.stack(final[-max(round(0.2 * steps), 1) :]).mean(0), torch.stack(accuracies)


@shapes
@softness
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("signal", "l2"), [("error", 0.0), ("loss", 0.1)])
def test_against_single_models_driven_by_hand(n_classes, n_groups, soft, weighted, signal, l2):
    X, cells = biased_problem(n_classes, n_groups, n=240, soft=soft)
    cells = weigh(cells) if weighted else cells
    model, accuracies = ByHand(X, cells, folds=3, rho=3.0, signal=signal, l2=l2).run(10, 0.1)
    method = FairDRO(rho=(0.5, 3.0), signal=signal, softness=0.02)
    trained = train_fullbatch(X, cells, method, steps=10, lr=0.1, errors="out_of_fold", folds=3, l2=l2, double=True)
    weight, bias = trained.model.weight[0, 1].detach(), trained.model.bias[0, 1].detach()
    ours = torch.cat([weight, bias[None]])
    ours = ours[:, 1:] - ours[:, :1] if n_classes == 2 else ours
    torch.testing.assert_close(ours, model, atol=1e-6, rtol=1e-6)
    if signal == "error":
        torch.testing.assert_close(trained.history.accuracy[:, 0, 1], accuracies, atol=1e-6, rtol=0)


@shapes
@softness
@pytest.mark.parametrize("signal", ["error", "loss"])
def test_a_model_does_not_depend_on_its_neighbours_bit_for_bit(n_classes, n_groups, soft, signal):
    X, cells = biased_problem(n_classes, n_groups, soft=soft)
    radii = tuple(FairDRO.search["rho"].grid(20))
    options = {"steps": 40, "errors": "out_of_fold", "l2": 1e-3}
    bank = train_fullbatch(X, cells, FairDRO(rho=radii, signal=signal), **options)
    for p in (0, 7, 19):
        single = train_fullbatch(X, cells, FairDRO(rho=radii[p], signal=signal), **options)
        assert bank.model.weight[:, p].equal(single.model.weight[:, 0])
        torch.testing.assert_close(bank.weights[:, p], single.weights[:, 0], atol=1e-12, rtol=0)


def test_the_number_of_threads_changes_no_bit():
    X, cells = biased_problem(3, 4, n=9000)
    before, models = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        models.append(train_fullbatch(X, cells, FairDRO(rho=(1.0, 5.0)), steps=20, errors="out_of_fold").model.weight)
    torch.set_num_threads(before)
    assert models[0].equal(models[1])


@shapes
def test_a_model_alone_is_that_of_the_bank_up_to_rounding(n_classes, n_groups):
    X, cells = biased_problem(n_classes, n_groups)
    options = {"errors": "out_of_fold", "double": True, "steps": 60}
    banked, alone = (train_fullbatch(X, cells, FairDRO(rho=2.0, softness=0.02), alone=a, **options) for a in (False, True))
    torch.testing.assert_close(alone.model.weight, banked.model.weight, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name]().weighs_cells()])
def test_every_method_that_weighs_cells_takes_it(name):
    X, cells = biased_problem(2, 2, n=240)
    trained = train_fullbatch(X, cells, METHODS[name].sweep(6, **METHODS[name].stepwise), steps=10, errors="out_of_fold")
    assert trained.logits(X).isfinite().all()
    assert trained.weights.isfinite().all()
    assert not trained.diverged.any()


def test_a_method_that_does_not_respond_trains_as_ever():
    X, cells = biased_problem(3, 4)
    plain, folds = (train_fullbatch(X, cells, Scratch(), errors=e, double=True) for e in ("training", "out_of_fold"))
    torch.testing.assert_close(folds.model.weight, plain.model.weight, atol=1e-9, rtol=0)


def test_a_gap_that_is_closed_by_heart_stays_visible():
    X, cells = biased_problem(n=160, features=200)
    by_heart, held = (train_fullbatch(X, cells, FairDRO(rho=1.0), errors=e).history for e in ("training", "out_of_fold"))
    assert by_heart.accuracy[-1].eq(1).all()
    assert held.accuracy[-1].max() < 0.6


def test_an_empty_cell_and_a_cell_of_one_row():
    X, cells = biased_problem(2, 3)
    gone = (cells.y == 1) & (cells.groups == 1)
    rare = (cells.y == 0) & (cells.groups == 2)
    rows = (~gone & (~rare | (rare.cumsum(0) == 1))).nonzero()[:, 0]
    with pytest.warns(RuntimeWarning, match=r"no training rows and get no weight: \(class 1, group 1\)"):
        trained = train_fullbatch(X[rows], cells.take(rows), FairDRO(rho=5.0), errors="out_of_fold")
    assert trained.weights[0, 0, 1, 1] == 0
    assert trained.weights.isfinite().all()
    assert trained.logits(X).isfinite().all()
    assert trained.history.accuracy[:, 0, 0, 0, 2].unique().tolist() in ([0, 1], [0], [1])


def test_a_diverged_final_model_is_flagged():
    X, cells = biased_problem()
    with pytest.warns(RuntimeWarning, match="diverged for 1 of 1 models"):
        trained = train_fullbatch(X, cells, FairDRO(rho=100.0), lr=1e3, steps=30, errors="out_of_fold")
    assert trained.diverged.all()
    assert trained.model.weight.isfinite().all()


@shapes
@pytest.mark.parametrize("l2", [pytest.param(1e-3, marks=pytest.mark.slow), 1e-2, pytest.param(1.0, marks=pytest.mark.slow)])
def test_the_penalty_is_that_of_scikit_learn(n_classes, n_groups, l2):
    X, cells = biased_problem(n_classes, n_groups)
    per_sample = (len(cells) * cells.spread(1 / cells.counts) / cells.counts.numel()).numpy()
    assert per_sample.sum() == pytest.approx(len(cells))
    theirs = LogisticRegression(C=1 / (len(cells) * l2), tol=1e-10, max_iter=5000).fit(X, cells.y, sample_weight=per_sample)
    trained = train_fullbatch(X, cells, Scratch(), steps=1500, l2=l2, double=True)
    weight, bias = (p.detach().numpy() for p in trained.model.parameters())
    if n_classes == 2:
        weight, bias = np.diff(weight), np.diff(bias)
    np.testing.assert_allclose(weight[0, 0].T, theirs.coef_, atol=1e-3)
    centred = bias[0, 0] - bias[0, 0].mean() if n_classes > 2 else bias[0, 0]
    np.testing.assert_allclose(centred, theirs.intercept_ - (theirs.intercept_.mean() if n_classes > 2 else 0), atol=1e-3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"errors": "outside"}, "no kind of errors named 'outside'"),
        ({"errors": "out_of_fold", "sharded": True}, "several processes can be trained with errors='training' only"),
        ({"folds": 1}, "folds must be a whole number from 2 on"),
        ({"folds": 2.5}, "folds must be a whole number from 2 on"),
        ({"l2": -1.0}, "l2 not negative"),
        ({"l2": math.nan}, "l2 not negative"),
        ({"l2": math.inf}, "l2 not negative"),
    ],
)
def test_bad_options_are_one_sentence(options, sentence):
    with pytest.raises(InputError, match=sentence):
        train_fullbatch(*biased_problem(), Scratch(), **options)


def test_too_few_rows_are_one_sentence():
    X, cells = biased_problem()
    first = [((cells.y == k) & (cells.groups == g)).nonzero()[:, 0] for k in range(2) for g in range(2)]
    one_per_cell = torch.cat([rows[:1] for rows in first])
    with pytest.raises(InputError, match="cross-validation needs two rows of a cell"):
        train_fullbatch(X[one_per_cell], cells.take(one_per_cell), Scratch(), errors="out_of_fold")
    one_group = Cells(cells.y, torch.zeros_like(cells.y), n_classes=2, n_groups=1)
    lonely = torch.cat([first[0], first[2][:1]])
    with (
        pytest.warns(RuntimeWarning, match="one group only"),
        pytest.raises(InputError, match="cross-validation needs two rows of two"),
    ):
        train_fullbatch(X[lonely], one_group.take(lonely), Scratch(), errors="out_of_fold")


def test_the_classifiers_ask_for_out_of_fold_errors():
    X, cells = biased_problem(3, 2, n=600)
    rows = (X.numpy().astype(np.float64), cells.y.numpy())
    model = FairDROClassifier(5.0, errors="out_of_fold").fit(*rows, sensitive_features=cells.groups.numpy())
    scaled = torch.from_numpy((rows[0] - rows[0].mean(0)) / rows[0].std(0))
    expected = train_fullbatch(scaled, cells, FairDRO(rho=5.0, **FairDRO.stepwise), errors="out_of_fold", double=True)
    np.testing.assert_allclose(model.weights_, expected.weights[0, 0].numpy(), atol=1e-6)
    plain = FairDROClassifier(5.0).fit(*rows, sensitive_features=cells.groups.numpy())
    assert np.abs(model.weights_ - plain.weights_).max() > 0.01
    chosen = FairDROClassifierCV(errors="out_of_fold", rhos=[0, 5], cv=2).fit(*rows, sensitive_features=cells.groups.numpy())
    assert len(chosen.frontier_) == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"errors": "outside"}, "no kind of errors named 'outside'"),
        ({"errors": "out_of_fold", "model": "mlp"}, "linear models"),
    ],
)
def test_classifiers_refuse_other_errors_in_a_sentence(options, sentence):
    X, cells = biased_problem()
    with pytest.raises(InputError, match=sentence):
        FairDROClassifier(**options).fit(X.numpy(), cells.y.numpy(), sensitive_features=cells.groups.numpy())
