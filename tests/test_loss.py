"""The loss in a loop of one's own: against the engine for tables, the test vectors, and itself resumed and distributed."""

import copy
import socket
from contextlib import nullcontext

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import nn

from fairdro import FairDROLoss
from fairdro.errors import InputError
from fairdro.loss import FairLoss
from fairdro.methods import METHODS, FairDRO, get_method
from fairdro.metrics import dca
from fairdro.seeding import generator
from fairdro.training import train_minibatch
from fairdro.training.sampling import draw_epoch
from problems import biased_problem


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
    rule, epochs, batch = get_method(name)(), 4, 64
    engine = train_minibatch(X, cells, rule, epochs=epochs, batch_size=batch)
    bank = type(engine.model)(X.shape[1], 2)
    model = nn.Linear(X.shape[1], 2)
    with torch.no_grad():
        model.weight.copy_(bank.weight[0, 0].T)
        model.bias.copy_(bank.bias[0, 0])
    criterion = FairLoss(rule, n_classes=2, n_groups=2, total_steps=epochs, counts=cells.counts)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=epochs)
    stream = generator(0, "batches")
    for _ in range(epochs):
        for rows in draw_epoch(cells, batch, rule.sampling, stream):
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
    rule = get_method(name)()
    X, cells = biased_problem(2, 2, n=300, soft=soft)
    torch.manual_seed(0)
    body, head = nn.Sequential(nn.Linear(X.shape[1], 8), nn.ReLU()), nn.Linear(8, 2)
    teacher = copy.deepcopy(body) if rule.teacher() is not None else None
    criterion = FairLoss(rule, n_classes=2, n_groups=2, total_steps=3, counts=cells.counts)
    optimiser = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    before = head.weight.detach().clone()
    for _ in range(3):
        for rows in torch.arange(300).split(100):
            hidden = body(X[rows])
            extra = {"features": hidden} if rule.needs_features else {}
            if teacher is not None:
                extra["teacher"] = teacher(X[rows]).detach()
            loss = criterion(head(hidden), cells.y[rows], cells.groups[rows], **extra)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        criterion.step()
    if rule.rounds > 1:
        criterion.next_round()
        assert int(criterion.steps) == 0
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
        {"q": torch.full((n_classes, n_groups), 1 / n_groups, dtype=torch.float64)}, training_error(wrong, cells), 0.0
    )
    torch.testing.assert_close(exact.q, by_hand["q"], atol=1e-9, rtol=0)


def training_error(wrong, cells):
    from fairdro.methods import CellMeans

    return CellMeans(cells.means(wrong))


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


def test_a_cell_not_seen_keeps_its_last_error_and_never_gets_lost():
    criterion = FairDROLoss(2, 3, rho=1.0, total_steps=4)
    logits = torch.tensor([[1.0, 0.0]] * 4)
    criterion(logits, torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]))  # group 2 is never seen
    criterion.step()
    assert (criterion.q[:, 2] > 0).all()
    assert torch.isfinite(criterion.q).all()
    criterion(logits[:1], torch.tensor([1]), torch.tensor([2]))
    criterion.step()
    assert criterion.mean_error.tolist()[1] == [1.0, 1.0, 1.0]
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


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: FairDROLoss(2, 2, rho=(1.0, 2.0), total_steps=3), "one value"),
        (lambda: FairDROLoss(2, 2, rho=1.0, total_steps=0), "at least 1"),
        (lambda: FairDROLoss(2, 2, rho=-1.0, total_steps=3), "must not be negative"),
        (lambda: FairDROLoss(2, 2, total_steps=3, counts=torch.ones(3, 2)), "a row per class"),
        (lambda: FairLoss(get_method("cov")(), n_classes=3, n_groups=2, total_steps=1), "use fairdro instead"),
        (
            lambda: FairDROLoss(3, 2, total_steps=1)(torch.zeros(4, 2), torch.zeros(4).long(), torch.zeros(4).long()),
            "column per class",
        ),
    ],
)
def test_mistakes_are_one_sentence(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def train_rank(rank, world, port, folder, name):
    """Train on this rank's unequal share of every batch; what comes out must not depend on the number of ranks."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    X, y, a = cells_of(biased_problem(3, 2, n=300))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(X.shape[1], 8), nn.ReLU(), nn.Linear(8, 3))
    parallel = nn.parallel.DistributedDataParallel(model) if world > 1 else model
    criterion = FairLoss(get_method(name)(), n_classes=3, n_groups=2, total_steps=5)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(5):
        for batch in torch.arange(300).split(60):
            rows = batch[rank::world] if world == 1 else (batch[:17] if rank == 0 else batch[17:])
            optimiser.zero_grad()
            criterion(parallel(X[rows]), y[rows], a[rows]).backward()
            optimiser.step()
        criterion.step()
    torch.save({"weight": model[0].weight.detach(), "q": criterion.weights}, f"{folder}/{world}-{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", ["fairdro", pytest.param("fairbatch", marks=pytest.mark.slow)])
def test_two_processes_are_one(tmp_path, name):
    for world in (1, 2):
        torch.multiprocessing.spawn(train_rank, args=(world, free_port(), str(tmp_path), name), nprocs=world)
    one, *two = (torch.load(tmp_path / f"{name}.pt") for name in ("1-0", "2-0", "2-1"))
    torch.testing.assert_close(two[0]["q"], two[1]["q"], rtol=0, atol=0)
    for other in two:
        torch.testing.assert_close(other["weight"], one["weight"], atol=1e-5, rtol=0)
        torch.testing.assert_close(other["q"], one["q"], atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_works_where_the_model_is(name, monkeypatch):
    """The meta device stands for a GPU: it refuses to mix with tensors of the CPU as well."""
    rule = get_method(name)()
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # knows no meta device
    monkeypatch.setattr(type(rule), "every_batch", False)  # the state of such a method moves on the CPU
    criterion = FairLoss(rule, n_classes=2, n_groups=2, total_steps=3).to("meta")
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
