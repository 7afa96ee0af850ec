"""The mini-batch engine: against the paper's algorithm written plainly, banks against single runs, and its batches."""

import numpy as np
import pytest
import torch

from fairdro.cells import Cells
from fairdro.methods import FairDRO, Scratch
from fairdro.models import LinearBank, MLPBank
from fairdro.training import train_minibatch
from fairdro.training.minibatch import cross_entropy, see, weighted_loss
from fairdro.training.sampling import draw_epoch
from problems import biased_problem, shapes, short_runs, softness

# ---------------------------------------------------------------- the mini-batch engine


@short_runs
@pytest.mark.parametrize("model", ["linear", "mlp"])
@shapes
@softness
def test_a_bank_gives_the_same_models_as_single_runs(model, n_classes, n_groups, soft):
    X, cells = biased_problem(n_classes, n_groups, n=300, soft=soft)
    radii, seeds = (0.0, 0.7, 5.0), (0, 3)
    options = {"model": model, "epochs": 4, "batch_size": 48, "lr": 1e-2}
    bank = train_minibatch(X, cells, FairDRO(rho=radii), seeds=seeds, **options)
    for s, seed in enumerate(seeds):
        for p, rho in enumerate(radii):
            single = train_minibatch(X, cells, FairDRO(rho=rho), seeds=(seed,), **options)
            torch.testing.assert_close(bank.logits(X)[s, p], single.logits(X)[0, 0], atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(bank.weights[s, p], single.weights[0, 0], atol=1e-5, rtol=1e-5)


@short_runs
def test_same_seed_same_numbers_bit_for_bit():
    X, cells = biased_problem()
    first, second, other = (train_minibatch(X, cells, FairDRO(rho=(1.0, 9.0)), seeds=(s,), epochs=3) for s in (1, 1, 2))
    assert first.logits(X).equal(second.logits(X))
    assert not first.logits(X).equal(other.logits(X))


def reference_algorithm_1(X, y, a, rho, epochs, batch_size, seed):
    """The paper's Algorithm 1 for one model with plain PyTorch modules, written without the engine's parts."""
    start = LinearBank(X.shape[1], 2, seeds=(seed,))
    net = torch.nn.Linear(X.shape[1], 2)
    net.weight.data, net.bias.data = start.weight.data[0, 0].T.clone(), start.bias.data[0, 0].clone()
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    from fairdro._utils.seeding import generator

    stream = generator(seed, "batches")
    cells = Cells(y, a, n_classes=2, n_groups=2)
    q = {(k, g): 0.5 for k in range(2) for g in range(2)}
    for epoch in range(epochs):
        for rows in draw_epoch(cells, batch_size, "equal", stream):
            loss = torch.zeros(())
            for k in range(2):
                for g in range(2):
                    inside = rows[(y[rows] == k) & (a[rows] == g)]
                    loss = loss + q[k, g] * torch.nn.functional.cross_entropy(net(X[inside]), y[inside]) / 2
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
        with torch.no_grad():
            wrong = (net(X).argmax(1) != y).double()
        for k in range(2):
            error = [float(wrong[(y == k) & (a == g)].mean()) for g in range(2)]
            gap = np.sign(error[0] - error[1])
            best = (0.5 + 0.5 * np.sqrt(rho) * gap, 0.5 - 0.5 * np.sqrt(rho) * gap)
            for g in range(2):
                q[k, g] += (1 - epoch / epochs) * (best[g] - q[k, g])
    return net, q


@short_runs
def test_algorithm_1_step_by_step():
    X, cells = biased_problem(n=400)
    net, q = reference_algorithm_1(X, cells.y, cells.groups, rho=4.0, epochs=6, batch_size=64, seed=5)
    trained = train_minibatch(X, cells, FairDRO(rho=4.0), seeds=(5,), epochs=6, batch_size=64)
    torch.testing.assert_close(trained.logits(X)[0, 0], net(X).detach(), atol=1e-5, rtol=1e-5)
    for (k, g), weight in q.items():
        assert trained.weights[0, 0, k, g] == pytest.approx(weight, abs=1e-6)


def test_loss_with_a_cell_missing_from_the_batch(vectors):
    case = vectors["P_balanced_ce_empty"]
    cell = torch.tensor(case["cell"])
    batch = Cells((cell % 2)[None], (cell // 2)[None], n_classes=2, n_groups=2)
    wanted = torch.tensor(case["ce"])
    margin = torch.expm1(wanted).log()  # softplus of it is the wanted cross-entropy
    sign = torch.where(batch.y[0] == 1, -1.0, 1.0)
    logits = torch.stack([torch.zeros(5), sign * margin], dim=-1)[None, None]
    uniform = torch.full((1, 1, 2, 2), 0.5)
    seen = see(logits, batch.y, batch.membership, batch.averaging)
    assert float(weighted_loss(seen, uniform)) == pytest.approx(case["code_mean_over_4"])
    q = torch.tensor(vectors["P_fairdro_step"]["q_g_y"]).T[None, None]
    assert float(weighted_loss(seen, q)) == pytest.approx(vectors["P_fairdro_step"]["loss"])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_cross_entropy_against_torch(n_classes):
    logits, y = torch.randn(2, 3, 7, n_classes) * 5, torch.randint(n_classes, (2, 7))
    expected = torch.nn.functional.cross_entropy(logits.movedim(-1, 1), y[:, None].expand(2, 3, 7), reduction="none")
    torch.testing.assert_close(cross_entropy(logits, y), expected)


def test_initial_weights_are_pytorchs_default_range_and_shared_by_the_points():
    bank = LinearBank(25, 3, seeds=(0, 1), points=4)
    assert bank.weight.abs().max() <= 0.2
    assert bank.weight.abs().max() > 0.19
    assert bank.weight[0, 0].equal(bank.weight[0, 3])
    assert not bank.weight[0, 0].equal(bank.weight[1, 0])


def test_mlp_bank_against_torch_modules():
    bank = MLPBank(5, 3, seeds=(0, 1), points=2)
    x = torch.randn(2, 9, 5)
    layers = torch.nn.Sequential(
        torch.nn.Linear(5, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3)
    )
    for n, layer in enumerate(layers[::2]):
        layer.weight.data, layer.bias.data = bank.weights[n][1, 0].T, bank.biases[n][1, 0]
    torch.testing.assert_close(bank(x)[1, 0], layers(x[1]))
    torch.testing.assert_close(bank(x[1])[1, 0], layers(x[1]))


# ---------------------------------------------------------------- batches


def test_equal_batches_hold_the_same_number_of_every_cell_and_use_all_samples_evenly():
    _, cells = biased_problem(3, 4, n=500)
    batches = draw_epoch(cells, 64, "equal", torch.Generator().manual_seed(0))
    assert batches.shape == (500 // 64, 60)
    counts = cells.take(batches).counts
    assert counts.eq(5).all()
    largest = int(cells.counts.argmax())
    drawn = batches.flatten()[cells.codes[batches.flatten()] == largest]
    assert len(drawn.unique()) == min(len(drawn), int(cells.counts.max()))


@pytest.mark.parametrize("sampling", ["equal", "uniform"])
@pytest.mark.parametrize("weighted", [False, True])
@softness
def test_batches_estimate_the_cell_means_without_bias(sampling, weighted, soft):
    _, cells = biased_problem(2, 3, n=3000, soft=soft)
    rng = torch.Generator().manual_seed(1)
    if weighted:
        weight = torch.rand(3000, generator=rng) ** 2
        cells = Cells(cells.y, cells.groups, n_classes=2, n_groups=3, sample_weight=weight)
    membership = cells.membership
    values = (membership.argmax(-1) == 1).float() * 2 + cells.y + torch.rand(3000, generator=rng)
    if weighted:
        values = values + 3 * cells.sample_weight  # so that counting the weight twice shows
    drawn = torch.cat([draw_epoch(cells, 300, sampling, rng).flatten() for _ in range(20)])
    torch.testing.assert_close(cells.take(drawn).means(values[drawn]), cells.means(values), atol=0.04, rtol=0)


def test_uniform_batches_are_a_shuffle():
    _, cells = biased_problem(n=130)
    batches = draw_epoch(cells, 32, "uniform", torch.Generator().manual_seed(0))
    assert batches.shape == (4, 32)
    assert len(batches.unique()) == 128


@short_runs
def test_fewer_rows_than_a_batch():
    X, cells = biased_problem(n=20)
    for sampling in ("equal", "uniform"):
        assert train_minibatch(X, cells, Scratch(), epochs=2, sampling=sampling).logits(X).isfinite().all()
