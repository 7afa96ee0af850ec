"""The loss in a loop of one's own: against the engine for tables, the test vectors, and itself resumed and distributed."""

import copy
from contextlib import nullcontext

import hypothesis.strategies as st
import pytest
import safetensors.torch
import torch
from hypothesis import given
from torch import nn

from fairdro import FairDROLoss
from fairdro._utils.seeding import generator
from fairdro.errors import InputError
from fairdro.methods import METHODS, CellMeans, FairDRO, Method, get_method
from fairdro.metrics import dca
from fairdro.networks.loss import FairLoss
from fairdro.training import train_minibatch
from fairdro.training.processes import added_up
from fairdro.training.sampling import draw_epoch
from problems import biased_problem
from ranks import on_two_processes


def cells_of(problem):
    X, cells = problem
    return X, cells.y, cells.groups


def test_three_lines_in_anyones_loop_narrow_the_gap():
    X, y, a = cells_of(biased_problem(2, 2, n=1500))
    gaps = {}
    for rho in (0.0, 3.0):
        torch.manual_seed(0)
        model = nn.Linear(X.shape[1], 2)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
        criterion = FairDROLoss(n_classes=2, n_groups=2, rho=rho, total_steps=150)
        for _ in range(150):
            for rows in torch.randperm(len(X)).split(300):
                optimiser.zero_grad()
                criterion(model(X[rows]), y[rows], a[rows]).backward()
                optimiser.step()
            criterion.step()
        gaps[rho] = dca(y, model(X).argmax(-1), sensitive_features=a)
        assert criterion.q.sum(1).tolist() == pytest.approx([1, 1])
    assert gaps[3.0] < 0.5 * gaps[0.0]


@pytest.mark.parametrize("name", ["scratch", "rw", "fairdro", "fairbatch", "cov", "group_dro_eg", "pl", "rvp", "renyi"])
def test_a_loop_with_the_exact_step_is_the_engine(name):
    """The same batches, the same optimiser: the loss trains the same linear model as the engine for tables does."""
    X, cells = biased_problem(2, 2, n=400)
    method, epochs, batch = get_method(name)(), 4, 64
    engine = train_minibatch(X, cells, method, epochs=epochs, batch_size=batch)
    bank = type(engine.model)(X.shape[1], 2)
    model = nn.Linear(X.shape[1], 2)
    with torch.no_grad():
        model.weight.copy_(bank.weight[0, 0].T)
        model.bias.copy_(bank.bias[0, 0])
    criterion = FairLoss(method, n_classes=2, n_groups=2, total_steps=epochs, counts=cells.counts)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=epochs)
    stream = generator(0, "batches")
    for _ in range(epochs):
        for rows in draw_epoch(cells, batch, method.sampling, stream):
            optimiser.zero_grad()
            criterion(model(X[rows]), cells.y[rows], cells.groups[rows]).backward()
            optimiser.step()
        schedule.step()
        criterion.step(model, [(X, cells.y, cells.groups)])
    torch.testing.assert_close(model.weight.T, engine.model.weight[0, 0], atol=1e-5, rtol=0)
    torch.testing.assert_close(criterion.weights, engine.weights[0, 0], atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", list(METHODS))
@pytest.mark.parametrize("soft", [False, True])
def test_every_method_trains_a_network_of_ones_own(name, soft):
    method = get_method(name)()
    X, cells = biased_problem(2, 2, n=300, soft=soft)
    torch.manual_seed(0)
    body, head = nn.Sequential(nn.Linear(X.shape[1], 8), nn.ReLU()), nn.Linear(8, 2)
    teacher = copy.deepcopy(body) if method.teacher() is not None else None
    criterion = FairLoss(method, n_classes=2, n_groups=2, total_steps=3, counts=cells.counts)
    optimiser = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    before = head.weight.detach().clone()
    for _ in range(3):
        for rows in torch.arange(300).split(100):
            hidden = body(X[rows])
            extra = {"features": hidden} if method.needs_features else {}
            if teacher is not None:
                extra["teacher"] = teacher(X[rows]).detach()
            loss = criterion(head(hidden), cells.y[rows], cells.groups[rows], **extra)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        criterion.step()
    if method.rounds > 1:
        criterion.next_round()
        assert int(criterion.controller.updates) == 0
    assert torch.isfinite(loss)
    assert torch.isfinite(criterion.weights).all()
    assert not torch.equal(before, head.weight)


@given(st.integers(2, 4), st.integers(2, 4), st.floats(0, 20), st.integers(0, 99), st.booleans())
def test_collected_statistics_are_those_of_the_cells(n_classes, n_groups, rho, seed, soft):
    X, cells = biased_problem(n_classes, n_groups, n=200, soft=soft, seed=seed)
    model = nn.Linear(X.shape[1], n_classes)
    collected = FairDROLoss(n_classes, n_groups, rho=rho, total_steps=5, counts=cells.counts)
    exact = copy.deepcopy(collected)
    for rows in torch.arange(200).split(37):
        collected(model(X[rows]), cells.y[rows], cells.groups[rows])
    collected.step()
    exact.step(model, [(X, cells.y, cells.groups)])
    torch.testing.assert_close(collected.q, exact.q)
    wrong = (model(X).argmax(-1) != cells.y).double()
    by_hand = FairDRO(rho=rho).update(
        {"q": torch.full((n_classes, n_groups), 1 / n_groups, dtype=torch.float64)}, CellMeans(cells.means(wrong)), 0.0
    )
    torch.testing.assert_close(exact.q, by_hand["q"], atol=1e-9, rtol=0)


def test_a_checkpoint_resumes_exactly():
    X, y, a = cells_of(biased_problem(2, 2, n=400))

    def train(criterion, model, optimiser, epochs):
        for _ in epochs:
            optimiser.zero_grad()
            criterion(model(X), y, a).backward()
            optimiser.step()
            criterion.step()

    def new():
        torch.manual_seed(0)
        model = nn.Linear(X.shape[1], 2)
        return FairDROLoss(2, 2, rho=2.0, total_steps=10), model, torch.optim.Adam(model.parameters(), lr=0.1)

    whole = new()
    train(*whole, range(10))
    first, second = new(), new()
    train(*first, range(4))
    for part, state in zip(second, [part.state_dict() for part in first], strict=True):
        part.load_state_dict(copy.deepcopy(state))
    train(*second, range(6))
    torch.testing.assert_close(second[1].weight, whole[1].weight, rtol=0, atol=0)
    torch.testing.assert_close(second[0].q, whole[0].q, rtol=0, atol=0)


@pytest.mark.parametrize("name", METHODS)
def test_a_checkpoint_in_safetensors_holds_all_that_the_method_remembers(name, tmp_path):
    method = get_method(name)()
    X, cells = biased_problem(2, 2, n=200)
    logits, features = X[:, :2].requires_grad_(), X[:, 2:]

    def train(criterion, steps):
        for _ in range(steps):
            loss = criterion(logits, cells.y, cells.groups, features=features, teacher=2 * features)
            criterion.step()
        return loss

    first, second, whole = (FairLoss(method, n_classes=2, n_groups=2, total_steps=5) for _ in range(3))
    train(first, 2)
    first(logits, cells.y, cells.groups, features=features, teacher=2 * features)  # in the middle of an epoch
    safetensors.torch.save_file(first.state_dict(), tmp_path / "loss.safetensors")
    second.load_state_dict(safetensors.torch.load_file(tmp_path / "loss.safetensors"))
    second.step()
    torch.testing.assert_close(train(second, 2), train(whole, 5), rtol=0, atol=0)
    assert second.state_dict().keys() == whole.state_dict().keys()
    for key, value in whole.state_dict().items():
        torch.testing.assert_close(second.state_dict()[key], value, rtol=0, atol=0, equal_nan=True)


def test_a_cell_not_seen_keeps_its_last_error_and_never_gets_lost():
    criterion = FairDROLoss(2, 3, rho=1.0, total_steps=4)
    logits = torch.tensor([[1.0, 0.0]] * 4, requires_grad=True)
    criterion(logits, torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]))  # group 2 is never seen
    criterion.step()
    assert (criterion.q[:, 2] > 0).all()
    assert torch.isfinite(criterion.q).all()
    criterion(logits[:1], torch.tensor([1]), torch.tensor([2]))
    criterion.step()
    assert criterion.means[..., 0].tolist()[1] == [1.0, 1.0, 1.0]
    empty = FairDROLoss(2, 2, rho=1.0, total_steps=4, counts=torch.tensor([[5, 5], [5, 0]]))
    empty(logits[:3], torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0]))
    empty.step()
    assert empty.q[1].tolist() == [1.0, 0.0]


def test_evaluation_mode_collects_nothing():
    criterion = FairDROLoss(2, 2, rho=1.0, total_steps=4).eval()
    criterion(torch.zeros(4, 2), torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]))
    assert criterion.seen.sum() == 0


def test_mixed_precision_computes_the_loss_in_single_precision():
    X, y, a = cells_of(biased_problem(2, 2, n=200))
    model, criterion = nn.Linear(X.shape[1], 2), FairDROLoss(2, 2, rho=1.0, total_steps=2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(X)
        loss = criterion(logits, y, a)
    assert (logits.dtype, loss.dtype) == (torch.bfloat16, torch.float32)
    loss.backward()
    assert torch.isfinite(model.weight.grad).all()


def batch_of(y=None, a=None):
    y, a = (torch.tensor(codes) if given is None else given for codes, given in (([0, 1, 0, 1], y), ([0, 0, 1, 1], a)))
    return FairDROLoss(2, 2, total_steps=1)(torch.zeros(4, 2), y, a)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: FairDROLoss(2, 2, rho=(1.0, 2.0), total_steps=3), "one value"),
        (lambda: FairDROLoss(2, 2, rho=1.0, total_steps=0), "total_steps must be a positive whole number"),
        (lambda: FairDROLoss(2, 2, rho=-1.0, total_steps=3), "must not be negative"),
        (lambda: FairDROLoss(2, 2, total_steps=3, counts=torch.ones(3, 2)), "a row per class"),
        (lambda: FairLoss(get_method("cov")(), n_classes=3, n_groups=2, total_steps=1), "use fairdro instead"),
        (
            lambda: FairDROLoss(3, 2, total_steps=1)(torch.zeros(4, 2), torch.zeros(4).long(), torch.zeros(4).long()),
            "column per class",
        ),
        (lambda: batch_of(a=torch.tensor([0, 1])), "hold 4 group codes"),
        (lambda: batch_of(a=torch.tensor([0, 1, 0, 2])), "codes below 2 and 2"),
        (lambda: batch_of(a=torch.zeros(4)), "hold 4 group codes"),
        (lambda: batch_of(a=torch.ones(4, 3)), "shares in floating point of shape"),
        (lambda: batch_of(a=torch.ones(4, 2)), "sum to one"),
        (lambda: batch_of(y=torch.zeros(4)), "class codes of type int64"),
        (lambda: batch_of(y=torch.tensor([0, 1, 2, 0])), "codes below 2 and 2"),
    ],
)
def test_mistakes_are_one_sentence(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()


def train_all(rank, world, folder):
    """Train by every method on this rank's share of every batch; what comes out must not depend on the number of ranks."""
    X, y, a = cells_of(biased_problem(2, 2, n=240))
    trained = {}
    for name, kind in METHODS.items():
        method = kind()
        torch.manual_seed(0)
        layer = nn.Linear(X.shape[1], 8)
        of_teacher = nn.Linear(X.shape[1], 8)(X).detach()
        model = nn.ModuleDict({"layer": layer, "head": nn.Linear(8, 2)})
        criterion = FairLoss(method, n_classes=2, n_groups=2, total_steps=3)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
        first = 30 if method.has_penalty() or method.observes_batches() else 17  # shares may differ where rows only add up
        for _ in range(3):
            for batch in torch.arange(240).split(60):
                rows = batch if world == 1 else (batch[:first] if rank == 0 else batch[first:])
                optimiser.zero_grad()
                features = model["layer"](X[rows]).relu()
                loss = criterion(model["head"](features), y[rows], a[rows], features=features, teacher=of_teacher[rows])
                loss.backward()
                for parameter in model.parameters():  # as DistributedDataParallel does
                    parameter.grad = added_up(parameter.grad) / world
                optimiser.step()
            criterion.step()
        trained[name] = {"weight": layer.weight.detach(), "q": criterion.weights}
    torch.save(trained, f"{folder}/{world}-{rank}.pt")


@pytest.fixture(scope="module")
def on_ranks(tmp_path_factory):
    """What every method trained on one process, and on each of two."""
    folder = tmp_path_factory.mktemp("ranks")
    train_all(0, 1, folder)
    on_two_processes(train_all, folder)
    return [torch.load(folder / f"{name}.pt") for name in ("1-0", "2-0", "2-1")]


@pytest.mark.parametrize("name", METHODS)
def test_two_processes_are_one(on_ranks, name):
    one, *two = (trained[name] for trained in on_ranks)
    torch.testing.assert_close(two[0]["q"], two[1]["q"], rtol=0, atol=0)
    for other in two:
        torch.testing.assert_close(other["weight"], one["weight"], atol=1e-5, rtol=0)
        torch.testing.assert_close(other["q"], one["q"], atol=1e-6, rtol=0)


def unequal_shares(rank, world):
    criterion = FairLoss(get_method("rvp")(), n_classes=2, n_groups=2, total_steps=1)
    labels = torch.zeros(3 + rank, dtype=torch.int64)
    with pytest.raises(InputError, match="same size on all processes"):
        criterion(torch.zeros(3 + rank, 2), labels, labels)


@pytest.mark.slow
def test_a_penalty_needs_equal_shares():
    on_two_processes(unequal_shares)


def test_a_class_that_was_not_seen_keeps_equal_weights():
    criterion = FairDROLoss(2, 2, rho=1.0, total_steps=2, counts=torch.tensor([[50.0, 50.0], [2.0, 2.0]]))
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    criterion(logits, torch.tensor([0, 0]), torch.tensor([0, 1]))
    criterion.step()
    assert criterion.q.tolist() == [pytest.approx([0, 1]), pytest.approx([0.5, 0.5])]
    criterion = FairDROLoss(2, 2, rho=1.0, total_steps=2)
    with pytest.warns(UserWarning, match="no batch was seen"):
        criterion.step()
    assert criterion.q.tolist() == [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_works_where_the_model_is(name, monkeypatch):
    """The meta device stands for a GPU: it refuses to mix with tensors of the CPU as well."""
    method = get_method(name)()
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # knows no meta device
    monkeypatch.setattr(type(method), "observe", Method.observe)  # the state of a method with its own moves on the CPU
    criterion = FairLoss(method, n_classes=2, n_groups=2, total_steps=3).to("meta")
    logits, features = (torch.randn(16, width, device="meta", requires_grad=True) for width in (2, 4))
    y, a = (torch.zeros(16, dtype=torch.int64, device="meta") for _ in range(2))
    loss = criterion(logits, y, a, features=features, teacher=features.detach())
    loss.backward()
    assert loss.device.type == "meta"


def test_features_by_a_hook():
    """A model that does not return its hidden layer, as the documentation has it."""
    X, y, a = cells_of(biased_problem(2, 2, n=64))
    layer, kept = nn.Linear(X.shape[1], 8), {}
    model = nn.Sequential(layer, nn.ReLU(), nn.Linear(8, 2))
    layer.register_forward_hook(lambda layer, inputs, output: kept.update(features=output))
    criterion = FairLoss(get_method("fairhsic")(lam=10.0), n_classes=2, n_groups=2, total_steps=1)
    loss = criterion(model(X), y, a, features=kept["features"])
    torch.testing.assert_close(loss, criterion(model(X), y, a, features=layer(X)))
    (penalty,) = torch.autograd.grad(loss - nn.functional.cross_entropy(model(X), y), layer.weight)
    assert penalty.abs().sum() > 0
