"""The engine for one network: against the engine for tables, resumed after being killed, and on two processes."""

import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from fairdro.errors import InputError
from fairdro.methods import LBC, METHODS, FairDRO, Scratch, get_method
from fairdro.metrics import dca
from fairdro.models.resnet import ResNet18
from fairdro.training import train_fullbatch, train_minibatch
from fairdro.training.inputs import features_of, logits_of
from fairdro.training.network import Recipe, train_network
from problems import biased_problem
from ranks import on_two_processes


class Table:
    """Rows of a table as inputs; augmentation adds noise."""

    def __init__(self, X, noise=0.0):
        self.X, self.noise = X, noise

    def __len__(self):
        return len(self.X)

    def batch(self, rows, rng=None):
        x = self.X[rows]
        return x if rng is None else x + self.noise * torch.randn(x.shape, generator=rng)


class Net(nn.Module):
    def __init__(self, inputs, classes, dropout=0.0):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Dropout(dropout))
        self.top = nn.Linear(8, classes)

    def features(self, x):
        return self.body(x)

    def head(self, features):
        return self.top(features)

    def forward(self, x):
        return self.head(self.features(x))


def net(X, classes=2, dropout=0.0):
    torch.manual_seed(1)
    return Net(X.shape[1], classes, dropout)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_trains_a_network(name):
    X, cells = biased_problem(2, 2, n=300)
    method = get_method(name)()
    teacher = net(X) if method.teacher() is not None else None
    recipe = Recipe(epochs=2, batch_size=64, lr=0.01)
    trained = train_network(net(X), Table(X), cells, method, recipe, teacher=teacher)
    assert len(trained.losses) == 2 * method.rounds
    assert all(math.isfinite(loss) for loss in trained.losses)
    assert trained.weights.shape == (1, 1, 2, 2)
    assert trained.history.weights.shape == trained.history.accuracy.shape == (2 * method.rounds, 1, 1, 2, 2)
    assert trained.predict(Table(X)).shape == (1, 1, 300)
    assert trained.diverged.tolist() == [[False]]


@pytest.mark.parametrize("exact", [True, False])
def test_it_narrows_the_gap(exact):
    X, cells = biased_problem(2, 2, n=1500)
    recipe = Recipe(epochs=60, batch_size=128, lr=0.01, exact=exact)
    gaps = []
    for rho in (0.0, 3.0):
        trained = train_network(net(X), Table(X), cells, FairDRO(rho=rho), recipe)
        gaps.append(dca(cells.y, trained.predict(Table(X))[0, 0], sensitive_features=cells.groups))
    assert gaps[1] < 0.5 * gaps[0]


def test_the_same_seed_gives_the_same_network():
    X, cells = biased_problem(3, 2, n=300)
    recipe = Recipe(epochs=3, batch_size=64)
    first, second, other = (
        train_network(net(X, 3, 0.5), Table(X, 0.1), cells, FairDRO(rho=1.0), recipe, seed=seed) for seed in (0, 0, 1)
    )
    assert torch.equal(first.model.top.weight, second.model.top.weight)
    assert not torch.equal(first.model.top.weight, other.model.top.weight)


@pytest.mark.parametrize("method", [FairDRO(rho=2.0), LBC(eta=1.0), get_method("egr")()])
def test_stopped_after_any_epoch_it_ends_the_same(tmp_path, method):
    X, cells = biased_problem(2, 2, n=300)
    recipe = Recipe(epochs=3, batch_size=64, update_every=2, schedule="linear", warm_up=0.2, clip=1.0)

    def train(checkpoint=None, on_step=None):
        model = net(X, dropout=0.3)
        arguments = {"seed": 5, "checkpoint": checkpoint, "on_step": on_step}
        return train_network(model, Table(X, 0.1), cells, method, recipe, **arguments)

    whole = train()
    for stop in (1, 6, 10):

        def interrupt(done, total, stop=stop):
            if done == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / f"{stop}.safetensors", interrupt)
        resumed = train(tmp_path / f"{stop}.safetensors")
        assert torch.equal(resumed.model.top.weight, whole.model.top.weight)
        assert torch.equal(resumed.weights, whole.weights)
        assert resumed.losses == whole.losses
        for name, values in vars(whole.history).items():
            assert torch.equal(getattr(resumed.history, name), values)


KILLED = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from test_network import *
X, cells = biased_problem(2, 2, n=300)
model = net(X, dropout=0.3)
slow = lambda done, total: time.sleep(float(sys.argv[3]))
recipe = Recipe(epochs=6, batch_size=64)
train_network(model, Table(X, 0.1), cells, FairDRO(rho=2.0), recipe, checkpoint=Path(sys.argv[2]), on_step=slow)
print(model.top.weight.flatten().tolist())
"""


@pytest.mark.slow
def test_killed_for_real_it_ends_the_same(tmp_path):
    def start(path, pause):
        command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(path), str(pause)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    checkpoint = tmp_path / "killed" / "run.safetensors"
    checkpoint.parent.mkdir()
    whole = start(tmp_path / "whole.safetensors", 0)
    process = start(checkpoint, 0.1)
    while not checkpoint.exists():
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.6)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    left = {path.suffix for path in checkpoint.parent.iterdir()}
    assert left <= {".safetensors", ".part"}
    again = start(checkpoint, 0)
    assert again.communicate()[0] == whole.communicate()[0] != ""


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    X, cells = biased_problem(2, 2, n=300)
    recipe, path = Recipe(epochs=1, batch_size=64), tmp_path / "c.safetensors"
    train_network(net(X), Table(X), cells, FairDRO(rho=2.0), recipe, checkpoint=path)
    with pytest.raises(InputError, match="of another training"):
        train_network(net(X), Table(X), cells, FairDRO(rho=3.0), recipe, checkpoint=path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match="cannot be used"):
        train_network(net(X), Table(X), cells, FairDRO(rho=2.0), recipe, checkpoint=path)


def test_a_loss_that_diverges_is_said_early():
    X, cells = biased_problem(2, 2, n=300)
    with pytest.warns(RuntimeWarning, match="The loss of epoch 1 is nan"):
        trained = train_network(net(X * torch.nan), Table(X * torch.nan), cells, Scratch(), Recipe(epochs=5))
    assert trained.diverged
    assert len(trained.losses) == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"recipe": {"schedule": "stairs"}}, "no schedule named 'stairs'"),
        ({"recipe": {"epochs": 0}}, "positive whole numbers"),
        ({"recipe": {"warm_up": 1.0}}, "a share below 1"),
        ({"method": "mfd"}, "mfd learns from a teacher; pass one"),
        ({"method": "fairhsic"}, r"features\(x\) and head"),
        ({"rows": 10}, "There are 10 inputs but 300 labels"),
    ],
)
def test_mistakes_are_one_sentence(change, sentence):
    X, cells = biased_problem(2, 2, n=300)
    method, rows = get_method(change.get("method", "scratch"))(), Table(X[: change.get("rows", 300)])
    with pytest.raises(InputError, match=sentence):
        train_network(nn.Linear(X.shape[1], 2), rows, cells, method, Recipe(**change.get("recipe", {})))


def test_features_and_logits_belong_together():
    X, _ = biased_problem(2, 2, n=300)
    model = net(X, dropout=0.5).train()
    features = features_of(model, Table(X))
    torch.testing.assert_close(model.head(features), logits_of(model, Table(X)))
    assert model.training
    with pytest.raises(InputError, match=r"features\(x\)"):
        features_of(nn.Linear(6, 2), Table(X))


def test_resnet_has_the_published_size():
    model = ResNet18(1000)
    assert sum(p.numel() for p in model.parameters()) == 11_689_512
    assert len(model.state_dict()) == 122
    assert model.features(torch.zeros(1, 3, 64, 64)).shape == (1, 512)
    small = ResNet18(3, width=16, small=True)
    assert small.features(torch.zeros(1, 3, 32, 32)).shape == (1, small.n_features) == (1, 128)
    with pytest.raises(InputError, match="width"):
        ResNet18(3, width=0)


@pytest.mark.parametrize("width", [2, 4, 7, 8])
def test_gradients_of_narrow_resnets_are_right(width):
    """Kernels of oneDNN for few channels wrote past their memory, and came to wrong gradients."""
    torch.manual_seed(0)
    model, x = ResNet18(2, width=width, small=True), torch.randn(40, 3, 16, 16)
    found = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    right = torch.autograd.grad(model.double()(x.double()).square().sum(), list(model.parameters()))
    for gradient, expected in zip(found, right, strict=True):
        assert (gradient - expected).norm() < 1e-3 * expected.norm() + 1e-4


def train_rank(rank, world, folder, name):
    X, cells = biased_problem(3, 2, n=400)
    recipe = Recipe(epochs=4, batch_size=66, lr=0.02, exact=name != "lbc")
    trained = train_network(
        net(X, 3), Table(X), cells, get_method(name)(), recipe, checkpoint=Path(folder) / f"{world}.ckpt"
    )
    q = torch.cat([trained.history.weights, trained.weights[None]])
    torch.save({"weight": trained.model.top.weight.detach(), "q": q}, f"{folder}/{world}-{rank}.pt")


@pytest.mark.parametrize("name", ["fairdro", pytest.param("lbc", marks=pytest.mark.slow)])
def test_two_processes_are_one(tmp_path, name):
    train_rank(0, 1, tmp_path, name)
    on_two_processes(train_rank, tmp_path, name)
    one, *two = (torch.load(tmp_path / f"{part}.pt") for part in ("1-0", "2-0", "2-1"))
    for other in two:
        torch.testing.assert_close(other["weight"], one["weight"], atol=1e-5, rtol=0)
        torch.testing.assert_close(other["q"], one["q"], atol=1e-6, rtol=0)


def solve_rank(rank, world, folder):
    X, cells = biased_problem(3, 2, n=2000)
    rows = torch.arange(2000)[: 700 if rank == 0 else None][0 if rank == 0 else 700 :]
    trained = train_fullbatch(X[rows], cells.take(rows), FRONTIER, double=True, sharded=True)
    torch.save(trained.model.weight.detach(), f"{folder}/{rank}.pt")


FRONTIER = FairDRO(rho=(0.0, 0.5, 2.0, 10.0), softness=0.02)


def test_the_frontier_solver_with_rows_on_two_processes(tmp_path):
    on_two_processes(solve_rank, tmp_path)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert torch.equal(first, second)
    X, cells = biased_problem(3, 2, n=2000)
    whole = train_fullbatch(X, cells, FRONTIER, double=True).model.weight
    torch.testing.assert_close(first, whole, atol=1e-9, rtol=0)


def test_updates_are_counted_over_epochs():
    """Of 4 x 6 batches."""
    X, cells = biased_problem(2, 2, n=400)
    steps = {}
    for every in (None, 4, 6, 100):
        recipe = Recipe(epochs=4, batch_size=66, update_every=every, exact=False)
        trained = train_network(net(X, 2), Table(X), cells, FairDRO(rho=1.0), recipe)
        controller = trained.criterion.controller
        assert controller.steps_per_round == int(controller.updates) == len(trained.history.weights)
        steps[every] = int(controller.updates)
    assert steps == {None: 4, 4: 6, 6: 4, 100: 4}


def test_a_checkpoint_is_of_one_training(tmp_path):
    X, cells = biased_problem(2, 2, n=200)
    recipe, path = Recipe(epochs=2, batch_size=50), tmp_path / "c"

    def train(X, moved=0.0):
        teacher = net(X, 2)
        teacher.body[0].bias.data += moved
        return train_network(net(X, 2), Table(X), cells, get_method("mfd")(), recipe, teacher=teacher, checkpoint=path)

    first = train(X)
    assert train(X).seconds == first.seconds
    for other in (lambda: train(2 * X), lambda: train(X, moved=1.0)):
        with pytest.raises(InputError, match="of another training"):
            other()


def test_a_loss_that_left_the_numbers_stays_so(tmp_path):
    X, cells = biased_problem(2, 2, n=200)

    def train():
        return train_network(
            net(X, 2), Table(X), cells, Scratch(), Recipe(epochs=3, batch_size=50, lr=1e30), checkpoint=tmp_path / "c"
        )

    with pytest.warns(RuntimeWarning, match="smaller lr"):
        first = train()
    again = train()
    assert (first.diverged.tolist(), again.diverged.tolist()) == ([[True]], [[True]])
    assert len(first.losses) == len(again.losses) < 3


def test_the_engine_for_tables_agrees_in_kind():
    X, cells = biased_problem(2, 2, n=1500)
    bank = train_minibatch(X, cells, FairDRO(rho=1.0), epochs=40, lr=0.01)
    torch.manual_seed(0)
    alone = train_network(nn.Linear(X.shape[1], 2), Table(X), cells, FairDRO(rho=1.0), Recipe(epochs=40, lr=0.01))
    agree = (bank.predict(X) == alone.predict(Table(X))).float().mean()
    assert agree > 0.97
