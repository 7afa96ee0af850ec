"""A head on a trained network: fitted to rows the network has not seen, kept beside it, and a solver on its last layer."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from command import run_here
from fairdro.bench import Bank, BenchPlan
from fairdro.bench.run import run_bank
from fairdro.data import Examples
from fairdro.data.features import load_features, save_features
from fairdro.errors import InputError
from fairdro.groups import Groups
from fairdro.methods import FairDRO
from fairdro.metrics import Confusion, confusion_counts
from fairdro.models.trees import TreeSettings
from fairdro.networks.head import NetworkHead, fit_network_head
from fairdro.training.engines import get_engine
from fairdro.training.head import Part, fit_head
from fairdro.training.linear_head import train_part
from fairdro.training.trees import grow_cell_trees

PARTS = {"train": np.arange(600), "validation": np.arange(600, 2600), "test": np.arange(2600, 6600)}


class Rows:
    """Rows of a table as inputs of a network."""

    def __init__(self, X):
        self.X = X

    def __len__(self):
        return len(self.X)

    def batch(self, rows, rng=None):
        return self.X[rows]


class Net(nn.Module):
    """A network that knows its training rows by heart: one feature gives their class away."""

    def __init__(self):
        super().__init__()
        self.top = nn.Linear(8, 2)
        self.top.load_state_dict(
            {"weight": torch.tensor([[0.0] * 8, [0, 0, 0, 0, 0, 0, 2.0, 40.0]]), "bias": torch.zeros(2)}
        )

    def features(self, x):
        return x

    def head(self, features):
        return self.top(features)

    def forward(self, x):
        return self.head(self.features(x))


@pytest.fixture(scope="module")
def examples():
    """Classes are shifted by the group, which shows in other columns; the last column gives training rows away."""
    rng = np.random.default_rng(0)
    y, a = rng.integers(0, 2, 6600), rng.integers(0, 2, 6600)
    X = rng.normal(size=(6600, 8))
    X[:, :3] += 1.5 * a[:, None]
    X[:, 6] = 2 * y - 1 + 1.2 * a + rng.normal(size=6600)
    X[:, 7] = 0
    X[:600, 7] = 2 * y[:600] - 1
    inputs = Rows(torch.tensor(X, dtype=torch.float32))
    return Examples("made", inputs, y, Groups(a, ["z", "b"]), ["yes", "no"], PARTS, "")


@pytest.fixture(scope="module")
def network():
    return Net()


def gap(network, examples, part):
    inputs, cells = examples.part(part)
    counts = confusion_counts(network(inputs.inputs.X[inputs.rows]).argmax(-1), cells)
    return Confusion(counts, examples.class_names, examples.groups.names).metric("dca")


def test_a_network_that_is_fair_on_training_rows_is_made_fair_on_new_ones(examples, network):
    assert gap(network, examples, "train") == 0
    assert gap(network, examples, "test") > 0.25
    head = fit_network_head(network, examples)
    assert head.head.group_names_ == ["z", "b"]  # in the order of the examples
    judged = head.judge(network, examples, "test")
    assert judged.metric("dca") < 0.1
    assert head.head.held_out().metric("dca") < 0.1
    inputs, cells = examples.part("test")
    predicted = head.predict(network, inputs)
    assert set(predicted) == {"yes", "no"}
    right = np.array(examples.class_names)[cells.y.numpy()] == predicted
    assert right.mean() == pytest.approx(judged.metric("standard_accuracy"))


def test_the_probe_is_the_linear_model_of_the_group_on_scaled_features(examples, network):
    head = fit_network_head(network, examples)
    inputs, cells = examples.part("train")
    X = inputs.inputs.X[inputs.rows]
    scaled = (X - X.mean(0)) / X.std(0).where(X.std(0) > 0, 1)
    expected = train_part(scaled, cells, Part("group"), np.arange(len(X))).logits(scaled)[0, 0].softmax(-1)
    np.testing.assert_allclose(head.probabilities(network, inputs)[1], expected.numpy(), atol=1e-5)


def test_it_is_kept_beside_the_network(examples, network, tmp_path):
    head = fit_network_head(network, examples, rho=5.0)
    head.save(tmp_path)
    inputs, _ = examples.part("test")
    np.testing.assert_array_equal(NetworkHead.read(tmp_path).predict(network, inputs), head.predict(network, inputs))
    (tmp_path / "probe.safetensors").write_bytes(b"no tensors")
    with pytest.raises(InputError, match="train the network anew"):
        NetworkHead.read(tmp_path)


def test_without_rows_to_fit_it_to_there_is_none(examples, network):
    parts = {name: rows for name, rows in PARTS.items() if name != "validation"}
    with pytest.raises(InputError, match="keep a validation part"):
        fit_network_head(network, dataclasses.replace(examples, parts=parts))


@pytest.fixture
def features(examples, tmp_path):
    """The last layer of the network, in a file that says whether it was trained on the training part."""

    def make(*, trained):
        path = tmp_path / f"{trained}.safetensors"
        save_features(path, examples.inputs.X.numpy(), examples, trained=trained)
        return str(path)

    return make


def test_the_solver_head_uses_rows_that_the_network_has_not_seen(features):
    """Out of fold on rows that the network knows by heart a head sees no error, and leaves the gap to new rows."""
    method = FairDRO(rho=(0.0, 5.0), softness=0.02)
    gaps = {}
    for trained in (True, False):
        outcome = run_bank(Bank(features(trained=trained), method, "linear", "head"))
        tested = [Confusion(c, ["yes", "no"], ["z", "b"]).metric("dca") for c in outcome.confusion["test"][0]]
        gaps[trained] = tested[1]
        assert outcome.confusion["validation"].shape == (1, 2, 2, 2, 2)
        assert outcome.confusion["validation"][0, 0].sum() == 2000
    assert gaps[True] < 0.03
    assert gaps[False] > 0.08


def test_trees_are_not_grown_on_rows_that_are_held_out_for_their_head(features):
    split = load_features(features(trained=True)).split()
    held = (split.validation.X, split.validation.cells)
    method = FairDRO(rho=(0.0, 5.0), softness=0.02)
    trained = get_engine("boosting", "head").train(split.train.X, split.train.cells, method, held_out=held)
    rows = split.validation.X.double().numpy()
    settings = TreeSettings(threads=torch.get_num_threads()).for_rows(len(split.train.X))
    grown = grow_cell_trees(split.train.X.double().numpy(), split.train.cells, settings, held=(rows, split.validation.cells))
    expected = fit_head(grown.probabilities(rows), split.validation.cells, method)
    torch.testing.assert_close(trained.weights, expected.weights)
    assert trained.held_out.shape == (1, 2, 2, 2, 2)


def test_validation_rows_are_judged_by_heads_that_were_not_fitted_to_them(features):
    data = load_features(features(trained=True))
    split = data.split()
    method = FairDRO(rho=(5.0,), softness=0.02)
    held = (split.validation.X, split.validation.cells)
    trained = get_engine("linear", "head").train(split.train.X, split.train.cells, method, held_out=held)
    fitted = confusion_counts(trained.predict(split.validation.X)[0], split.validation.cells)
    assert trained.held_out.shape == (1, *fitted.shape)
    assert (trained.held_out[0] != fitted).any()
    assert np.abs(trained.held_out[0] - fitted).sum() < 0.1 * fitted.sum()


def test_the_papers_protocol_keeps_no_rows_for_a_head(features):
    plan = BenchPlan([features(trained=True)], methods=["fairdro"], solvers=["head"], protocol="paper")
    with pytest.raises(InputError, match="rows it has not seen"):
        plan.check()
    BenchPlan([features(trained=False)], methods=["fairdro"], solvers=["head"], protocol="paper").check()


def test_rows_that_trained_the_network_are_never_called_held_out(examples, tmp_path):
    """Features of a network without a validation part: a fifth of its training rows would be cut off for one."""
    parts = {name: rows for name, rows in PARTS.items() if name != "validation"}
    path = tmp_path / "f.safetensors"
    save_features(path, examples.inputs.X.numpy(), dataclasses.replace(examples, parts=parts), trained=True)
    with pytest.raises(InputError, match="rows it has not seen"):
        BenchPlan([str(path)], methods=["fairdro"], solvers=["head"]).check()


def test_features_of_a_trained_network_are_another_dataset(features):
    assert load_features(features(trained=True)).fingerprint != load_features(features(trained=False)).fingerprint


def test_holes_are_filled_where_validation_rows_show_them(features):
    """Training rows that the network knows by heart show none."""
    plan = BenchPlan([features(trained=True)], methods=["fairdro"], solvers=["head"], points=12)
    (bank,) = plan.banks
    rows = pd.DataFrame({"hyperparameters": [str(rho) for rho in bank.method.rho], "train_accuracy": 1.0, "train_dca": 0.0})
    gaps = np.where(np.arange(len(rows)) < 4, 0.3, 0.01)
    (second,) = plan.second_banks({bank: rows.assign(validation_accuracy=0.8, validation_dca=gaps)})
    assert all(bank.method.rho[3] < rho < bank.method.rho[4] for rho in second.method.rho)


def test_a_bench_of_fullbatch_and_head_on_the_command_line(features, tmp_path):
    path = features(trained=True)
    done = run_here("bench", path, "--solvers", "fullbatch,head", "--points", "6", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = pd.read_csv(tmp_path / "out" / "results.csv").query("method == 'fairdro'").groupby("solver")["dca"].min()
    assert results["head"] < 0.03
    assert results["fullbatch"] > 0.06


def test_a_head_is_fitted_to_calibrated_probabilities(examples):
    """However sure a model is of itself, the head is the same: two temperatures are fitted first."""
    _, cells = examples.part("validation")
    X = examples.inputs.X[600:2600].double()
    logits = torch.stack([-X[:, 6], X[:, 6]], dim=-1) - 0.5
    of_group = 0.4 * torch.stack([-X[:, :3].sum(1), X[:, :3].sum(1)], dim=-1)
    joint = {
        (t, u): ((logits / t).softmax(-1)[:, :, None] * (of_group / u).softmax(-1)[:, None]).numpy()
        for t, u in ((1, 1), (0.7, 1.8))
    }
    method = FairDRO(rho=(0.0, 1.0, 8.0), softness=0.02)
    heads = {key: fit_head(p, cells, method) for key, p in joint.items()}
    ratio = heads[1, 1].temperatures / heads[0.7, 1.8].temperatures
    np.testing.assert_allclose(ratio, [0.7, 1.8], rtol=2e-3)
    same = [heads[key].predict(p) for key, p in joint.items()]
    assert (same[0] != same[1]).float().mean() < 0.002
