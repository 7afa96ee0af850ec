"""The full-batch solver against independent optimisers, and what both engines do with trouble."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.methods import FairDRO, Scratch, Task
from fairdro.metrics import METRICS, confusion_counts
from fairdro.training import train_fullbatch, train_minibatch
from fairdro.training.losses import BinaryLoss, MulticlassLoss
from fairdro.training.minibatch import cross_entropy
from problems import biased_problem, shapes, short_runs, softness


def cell_metrics(trained, X, cells):
    counts = confusion_counts(trained.predict(X), cells)
    return METRICS["accuracy"](counts), METRICS["dca"](counts)


# ---------------------------------------------------------------- the full-batch solver


@short_runs
@shapes
@softness
def test_a_model_does_not_depend_on_its_neighbours_bit_for_bit(n_classes, n_groups, soft):
    X, cells = biased_problem(n_classes, n_groups, soft=soft)
    radii = tuple(FairDRO.search["rho"].grid(20))
    bank = train_fullbatch(X, cells, FairDRO(rho=radii), steps=60)
    for p in (0, 7, 19):
        single = train_fullbatch(X, cells, FairDRO(rho=radii[p]), steps=60)
        assert bank.model.weight[:, p].equal(single.model.weight[:, 0])
        torch.testing.assert_close(bank.weights[:, p], single.weights[:, 0], atol=1e-12, rtol=0)


@shapes
def test_scratch_reaches_the_optimum_scikit_learn_finds(n_classes, n_groups):
    X, cells = biased_problem(n_classes, n_groups)
    per_sample = cells.spread(1 / cells.counts).numpy()
    theirs = LogisticRegression(C=np.inf, tol=1e-8, max_iter=5000).fit(X, cells.y, sample_weight=per_sample)
    trained = train_fullbatch(X, cells, Scratch(), steps=800)

    def objective(logits):
        return float(cells.means(cross_entropy(logits[None, None], cells.y)[0, 0].double()).mean())

    if n_classes == 2:
        decision = torch.as_tensor(theirs.decision_function(X))
        best = objective(torch.stack([-decision / 2, decision / 2], dim=-1))
    else:
        best = objective(torch.as_tensor(theirs.decision_function(X)))
    assert objective(trained.logits(X)[0, 0]) == pytest.approx(best, abs=1e-4)


@short_runs
def test_radius_zero_is_scratch_in_both_engines():
    X, cells = biased_problem(3, 4)
    for train in (train_fullbatch, train_minibatch):
        options = {"steps": 40} if train is train_fullbatch else {"epochs": 3}
        fair, plain = (train(X, cells, m, **options) for m in (FairDRO(rho=0.0), Scratch()))
        torch.testing.assert_close(fair.logits(X), plain.logits(X))


@pytest.mark.parametrize(("n_classes", "n_groups"), [(2, 2), (3, 2), (2, 4)])
def test_a_large_radius_narrows_the_gap(n_classes, n_groups):
    X, cells = biased_problem(n_classes, n_groups, n=2000)
    trained = train_fullbatch(X, cells, FairDRO(rho=(0.0, 10.0), softness=0.02))
    _, dca = cell_metrics(trained, X, cells)
    assert dca[0, 0] > 0.1
    assert dca[0, 1] < 0.6 * dca[0, 0]


@short_runs
def test_one_hot_membership_equals_hard_groups():
    X, cells = biased_problem(3, 4)
    soft = Cells(cells.y, torch.nn.functional.one_hot(cells.groups, 4).float(), n_classes=3, n_groups=4)
    hard_run, soft_run = (train_fullbatch(X, c, FairDRO(rho=2.0, softness=0.05), steps=4) for c in (cells, soft))
    # a step is 0.05; the intercept's first gradient is zero but for rounding, and Adam makes that a visible step
    torch.testing.assert_close(hard_run.logits(X), soft_run.logits(X), atol=1e-3, rtol=1e-3)


@short_runs
def test_sample_weight_repeats_rows():
    X, cells = biased_problem(n=200)
    weight = torch.arange(200) % 3
    weighted = Cells(cells.y, cells.groups, n_classes=2, n_groups=2, sample_weight=weight.float())
    rows = torch.arange(200).repeat_interleave(weight)
    method = FairDRO(rho=2.0, softness=0.05)
    first = train_fullbatch(X, weighted, method, steps=4)
    second = train_fullbatch(X[rows], cells.take(rows), method, steps=4)
    torch.testing.assert_close(first.logits(X), second.logits(X), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_gradients_against_autograd(n_classes):
    loss = BinaryLoss() if n_classes == 2 else MulticlassLoss(3)
    logits = torch.randn(8, 4 * loss.outputs, dtype=torch.float64, requires_grad=True)
    for y in range(n_classes):
        (expected,) = torch.autograd.grad(loss.value(logits, y).sum(), logits)
        torch.testing.assert_close(loss.gradient(logits, y), expected)


@short_runs
def test_many_blocks_give_the_same_models_as_one():
    import fairdro.training.fullbatch as module

    X, cells = biased_problem(n=900)
    whole = train_fullbatch(X, cells, FairDRO(rho=1.0), steps=5)
    before = module.ROWS_PER_BLOCK
    try:
        module.ROWS_PER_BLOCK = 100
        chunked = train_fullbatch(X, cells, FairDRO(rho=1.0), steps=5)
    finally:
        module.ROWS_PER_BLOCK = before
    torch.testing.assert_close(whole.logits(X), chunked.logits(X), atol=1e-4, rtol=1e-4)


@short_runs
def test_history_records_weights_and_accuracy_of_every_step():
    X, cells = biased_problem(3, 4)
    trained = train_fullbatch(X, cells, FairDRO(rho=(0.0, 3.0)), steps=12)
    assert trained.history.weights.shape == trained.history.accuracy.shape == (12, 1, 2, 3, 4)
    epochs = train_minibatch(X, cells, FairDRO(rho=(0.0, 3.0)), seeds=(0, 1), epochs=3)
    assert epochs.history.weights.shape == epochs.history.accuracy.shape == (3, 2, 2, 3, 4)
    last = 1 - cells.means((epochs.predict(X) != cells.y).float())
    torch.testing.assert_close(epochs.history.accuracy[-1].float(), last)
    torch.testing.assert_close(epochs.history.weights[0], FairDRO().begin(Task(cells.counts, (2, 2)))["q"])


# ---------------------------------------------------------------- trouble


def test_a_runaway_loss_is_flagged_and_never_nan():
    X, cells = biased_problem()
    with pytest.warns(RuntimeWarning, match="diverged for 1 of 1 models"):
        trained = train_fullbatch(X, cells, FairDRO(rho=100.0), lr=1e3, steps=30)
    assert trained.diverged.all()
    assert trained.model.weight.isfinite().all()
    assert trained.weights.isfinite().all()


@pytest.mark.filterwarnings("ignore:The accuracy of a cell still moved")
@pytest.mark.parametrize("train", [train_fullbatch, train_minibatch])
@pytest.mark.parametrize("signal", ["error", "loss"])
def test_an_overflow_is_flagged_and_never_nan(train, signal):
    X, cells = biased_problem()
    with pytest.warns(RuntimeWarning, match="diverged"):
        trained = train(X * 1e20, cells, FairDRO(rho=9.0, signal=signal), lr=1e30)
    assert trained.diverged.all()
    assert all(p.isfinite().all() for p in trained.model.parameters())
    assert trained.weights.isfinite().all()


def test_a_runaway_loss_is_flagged_in_mini_batches_too():
    X, cells = biased_problem()
    with pytest.warns(RuntimeWarning, match="diverged"):
        assert train_minibatch(X, cells, FairDRO(rho=100.0), lr=100.0, epochs=30).diverged.all()


@pytest.mark.parametrize("train", [train_fullbatch, train_minibatch])
@pytest.mark.parametrize(
    "switches",
    [
        {"uncertainty": "simplex"},
        {"uncertainty": "simplex", "classwise": False},
        {"uncertainty": "chi_square_nonnegative"},
        {"classwise": False},
        {"signal": "loss"},
        {"smoothing": "none"},
    ],
)
@pytest.mark.filterwarnings("ignore:The accuracy of a cell still moved")
def test_every_switch_trains(train, switches):
    X, cells = biased_problem(3, 4)
    trained = train(X, cells, FairDRO(rho=2.0, **switches))
    assert trained.logits(X).isfinite().all()
    assert not trained.diverged.any()
    accuracy, _ = cell_metrics(trained, X, cells)
    assert accuracy[0, 0] > 0.4  # a blind guess has a third
    assert trained.weights.sum() == pytest.approx(3)


def test_arrays_and_tables_are_features_too():
    X, cells = biased_problem()
    expected = train_fullbatch(X, cells, Scratch()).logits(X)
    for other in (X.numpy(), X.double(), pd.DataFrame(X.numpy()), X.T.contiguous().T, X.clone().requires_grad_()):
        trained = train_fullbatch(other, cells, Scratch())
        torch.testing.assert_close(trained.logits(other), expected)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (np.zeros((2, 3)), "X has 3 columns, but the models were trained on 6"),
        (np.full((2, 6), np.nan), "missing or infinite"),
        (np.zeros(6), "must be a table"),
        ([["a"] * 6], "numbers only"),
    ],
)
def test_bad_rows_to_predict_are_one_sentence(rows, sentence):
    X, cells = biased_problem()
    with pytest.raises(InputError, match=sentence):
        train_fullbatch(X, cells, Scratch()).predict(rows)


def test_a_model_that_still_moves_is_reported():
    X, cells = biased_problem()
    with pytest.warns(RuntimeWarning, match="still moved"):
        train_fullbatch(X, cells, Scratch(), steps=2)


@pytest.mark.parametrize("train", [train_fullbatch, train_minibatch])
def test_an_empty_cell_and_a_single_group_are_trained_with_a_warning(train):
    X, cells = biased_problem(2, 2)
    filled = ~((cells.y == 1) & (cells.groups == 1))
    empty = cells.take(filled.nonzero()[:, 0])
    with pytest.warns(RuntimeWarning, match=r"no training rows and get no weight: \(class 1, group 1\)"):
        trained = train(X[filled], empty, FairDRO(rho=5.0))
    assert trained.weights[0, 0, 1].tolist() == [1, 0]
    assert trained.logits(X).isfinite().all()
    alone = Cells(cells.y, torch.zeros_like(cells.y), n_classes=2, n_groups=1)
    with pytest.warns(RuntimeWarning, match="one group only"):
        assert train(X, alone, FairDRO(rho=5.0)).weights.eq(1).all()


@pytest.mark.parametrize("train", [train_fullbatch, train_minibatch])
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda X, c: (X.index_fill(0, torch.tensor([3]), torch.nan), c), "missing or infinite values"),
        (lambda X, c: (X[:-1], c), "X has 599 rows but y has 600"),
        (lambda X, c: (X[:, :0], c), "must be a table"),
        (lambda X, c: (X[c.y == 0], c.take((c.y == 0).nonzero()[:, 0])), "one class only"),
    ],
)
def test_bad_data_is_one_sentence(train, change, sentence):
    X, cells = change(*biased_problem())
    with pytest.raises(InputError, match=sentence):
        train(X, cells, Scratch())


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda X, c: train_fullbatch(X, c, Scratch(), steps=0), "steps must be a positive whole number"),
        (lambda X, c: train_fullbatch(X, c, Scratch(), steps=2.5), "steps must be a positive whole number"),
        (lambda X, c: train_minibatch(X, c, Scratch(), seeds=()), "seeds must be a sequence"),
        (lambda X, c: train_minibatch(X, c, Scratch(), seeds=3), "seeds must be a sequence"),
        (lambda X, c: train_minibatch(X, c, Scratch(), weight_decay=-1), "weight_decay not negative"),
        (lambda X, c: train_minibatch(X, c, Scratch(), model="tree"), "no model named 'tree'"),
        (lambda X, c: train_minibatch(X, c, Scratch(), sampling="fair"), "no sampling named 'fair'"),
        (lambda X, c: train_minibatch(X, c, Scratch(), batch_size=3), "cannot hold a sample of each of 4 cells"),
        (lambda X, c: train_minibatch(X, c, Scratch(), epochs=0), "must be positive whole numbers"),
    ],
)
def test_bad_options_are_one_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call(*biased_problem())


@short_runs
def test_the_number_of_threads_changes_no_bit():
    X, cells = biased_problem(3, 4, n=9000)
    before = torch.get_num_threads()
    models = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        models.append(train_fullbatch(X, cells, FairDRO(rho=(1.0, 5.0)), steps=40).model.weight)
    torch.set_num_threads(before)
    assert models[0].equal(models[1])


def test_the_number_of_threads_is_put_back():
    before = torch.get_num_threads()
    X, cells = biased_problem(n=100)
    train_fullbatch(X, cells, Scratch())
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("n_classes", "n_groups"), [(2, 2), (3, 4)])
def test_a_model_alone_is_that_of_the_bank_up_to_rounding(n_classes, n_groups):
    X, cells = biased_problem(n_classes, n_groups, n=5000)
    rule = FairDRO(rho=2.0, softness=0.02)
    for double, tolerance in ((True, 1e-9), (False, 1e-2)):
        banked, alone = (train_fullbatch(X, cells, rule, double=double, alone=alone) for alone in (False, True))
        torch.testing.assert_close(alone.model.weight, banked.model.weight, rtol=0, atol=tolerance)
