"""The engines of boosted trees: against stock LightGBM, and against the best rule by brute force."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from fairdro import load_dataset
from fairdro._utils.seeding import number
from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.methods import LBC, METHODS, FairDRO, Scratch
from fairdro.metrics import METRICS, confusion_counts
from fairdro.models.trees import TreeSettings, read_trees, tabulate
from fairdro.training.head import fit_head
from fairdro.training.trees import grow_cell_trees
from fairdro.training.weighted_trees import train_weighted_trees
from fairdro.uncertainty import ChiSquareBall
from problems import biased_table

lightgbm = pytest.importorskip("lightgbm", reason="needs lightgbm: pip install 'fairdro[lightgbm]'")
BACKENDS = ["lightgbm", "xgboost"]
SMALL = {"n_estimators": 30, "num_leaves": 7, "threads": 1}


@pytest.mark.parametrize("n_classes", [2, 3])
def test_plain_trees_are_those_of_lightgbm_itself(n_classes):
    X, cells = biased_table(n_classes)
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
    X, cells = biased_table(n_classes, n_groups, n=2000, soft=soft)
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
    X, cells = biased_table(3, 2, n=3000)
    few = (torch.arange(3000) % 10 == 0) | (cells.y > 0)
    X, cells = X[few.numpy()], cells.take(torch.nonzero(few)[:, 0])
    probabilities = grow_cell_trees(X, cells, TreeSettings(n_estimators=3, num_leaves=7, threads=1)).probabilities(X)
    head = fit_head(probabilities, cells, FairDRO(rho=0.0))
    assert METRICS["accuracy"](confusion_counts(head.predict(probabilities)[0], cells))[0] > 0.5


def test_a_head_equalises_where_trees_cannot_tell():
    """With a large radius the gap on the fitted rows is far below that of plain reading."""
    X, cells = biased_table(2, 2, n=3000)
    settings = TreeSettings(**SMALL)
    probabilities = grow_cell_trees(X, cells, settings).probabilities(X)
    head = fit_head(probabilities, cells, FairDRO(rho=(0.0, 30.0), softness=0.02))
    gaps = METRICS["dca"](confusion_counts(head.predict(probabilities)[0], cells))
    assert gaps[1] < 0.15 * gaps[0]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_that_weighs_cells_works_and_others_say_so(name):
    X, cells = biased_table(2, 2, n=400)
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
    X, cells = biased_table(2, 2, n=600)
    held = np.arange(0, 600, 3)
    settings = TreeSettings(early_stopping=None, **SMALL)
    first = train_weighted_trees(X, cells, Scratch(), settings, errors="held_out", held=held)
    changed = Cells(cells.y.clone(), cells.groups, n_classes=2, n_groups=2)
    changed.y[held] = 1 - changed.y[held]
    second = train_weighted_trees(X, changed, Scratch(), settings, errors="held_out", held=held)
    np.testing.assert_array_equal(first.trees[0].scores(X), second.trees[0].scores(X))
    assert not torch.equal(first.history.accuracy, second.history.accuracy)


def test_rows_out_of_bag_are_judged_by_the_rounds_that_left_them_out():
    """Taken apart again: what a round's tree adds to the rows out of its bag, twice."""
    X, cells = biased_table(2, 2, n=600)
    settings = TreeSettings(n_estimators=5, num_leaves=5, threads=1, early_stopping=None)
    trained = train_weighted_trees(X, cells, Scratch(), settings)
    draw = np.random.default_rng(number(settings.seed, "bags"))
    booster = trained.trees[0].booster
    out_of_bag = np.zeros(600)
    for step in range(5):
        in_bag = np.unpackbits(np.frombuffer(draw.bytes(75), dtype=np.uint8)).astype(bool)
        before, after = (
            booster.predict(X, raw_score=True, num_iteration=k) if k else np.zeros(600) for k in (step, step + 1)
        )
        out_of_bag += 2 * (after - before) * ~in_bag
        wrong = torch.from_numpy((out_of_bag > 0) != (cells.y.numpy() == 1)).float()
        torch.testing.assert_close(1 - trained.history.accuracy[step, 0, 0], cells.means(wrong).double())


def test_the_round_with_the_smallest_robust_error_is_kept():
    X, cells = biased_table(2, 2, n=900)
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


@pytest.mark.slow
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
    (on_training, on_test), held_out, out_of_bag = (np.mean(gaps[name], axis=0) for name in gaps)
    assert on_training < 0.02
    assert on_test > 0.08
    assert held_out[1] < 0.9 * on_test
    assert out_of_bag[1] < 0.75 * on_test


def test_a_cell_without_held_out_rows_keeps_its_weight():
    X, cells = biased_table(3, 2, n=900)
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
    X, _ = biased_table(2, 2, n=400)
    growing = tabulate(X, TreeSettings(**SMALL)).grow(1)
    kept = []
    for step in range(4):
        gradient = (torch.rand(400, 1) - 0.5).numpy() * (step != 1)
        growing.step(gradient, np.full((400, 1), 0.25, dtype=np.float32) * (step != 1))
        kept.append(growing.scores().copy())
    np.testing.assert_allclose(growing.finish(3).scores(X), kept[2], atol=1e-6)


def test_rounds_of_a_method_grow_anew():
    X, cells = biased_table(2, 2, n=400)
    trained = train_weighted_trees(
        X, cells, LBC(eta=1.0, rounds=2), TreeSettings(n_estimators=4, threads=1, early_stopping=None), errors="training"
    )
    assert len(trained.history.weights) == 8
    assert trained.trees[0].booster.num_trees() == 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_text_gives_the_same_trees(backend):
    X, cells = biased_table(3, 2)
    X[::7, 0] = np.nan
    trees = grow_cell_trees(X, cells, TreeSettings(backend=backend, **SMALL)).classes
    again = read_trees(backend, trees.text(), n_features=X.shape[1], n_scores=3)
    np.testing.assert_allclose(again.scores(X), trees.scores(X), atol=1e-6)
    np.testing.assert_allclose(again.importances(), trees.importances(), rtol=1e-4)
    with pytest.raises(InputError, match="no trees of"):
        read_trees(backend, "junk", n_features=1, n_scores=1)


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
        grow_cell_trees(*biased_table(), TreeSettings())
