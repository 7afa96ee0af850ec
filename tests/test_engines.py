"""Who trains what, the loop logic that all engines share, and the one kind of result."""

import pytest
import safetensors.torch
import torch

from fairdro.errors import InputError
from fairdro.methods import METHODS, CellMeans, FairDRO, Task
from fairdro.models import BANKS
from fairdro.training import Controller, Trained
from fairdro.training.engines import ENGINES, engine_for, get_engine, models_for_tables, solvers_of
from problems import biased_problem

every_engine = pytest.mark.parametrize("engine", ENGINES, ids=[f"{engine.model}-{engine.solver}" for engine in ENGINES])
every_method = pytest.mark.parametrize("name", list(METHODS))


@every_engine
def test_every_engine_returns_the_same_kind_of_result(engine, monkeypatch):
    monkeypatch.setattr("fairdro.training.engines.EPOCHS", 4)
    monkeypatch.setattr("fairdro.training.engines.FEWEST_BATCHES", 4)
    X, cells = biased_problem(3, 4, n=500)
    method = FairDRO(**engine.hyperparameters(FairDRO, {"rho": (0.0, 1.0)}))
    seeds = (0, 1, 2) if engine.seeded else (0,)
    told = []
    trained = engine.train(X, cells, method, seeds=seeds, on_step=lambda done, total: told.append((done, total)))
    bank = (len(seeds), 2)
    assert isinstance(trained, Trained)
    assert trained.predict(X).shape == (*bank, 500)
    assert trained.weights.shape == (*bank, 3, 4)
    assert trained.history.weights.shape == trained.history.accuracy.shape == (len(trained.history.weights), *bank, 3, 4)
    assert trained.diverged.shape == bank
    assert trained.seconds > 0
    assert [done for done, _ in told] == list(range(1, told[-1][1] + 1))


@every_engine
def test_a_seed_changes_all_but_the_full_batch_solver(engine, monkeypatch):
    monkeypatch.setattr("fairdro.training.engines.EPOCHS", 3)
    monkeypatch.setattr("fairdro.training.engines.FEWEST_BATCHES", 3)
    monkeypatch.setattr("fairdro.training.engines.FEWEST_STEPS", 3)
    X, cells = biased_problem(2, 2, n=400)
    first, second = (engine.train(X, cells, FairDRO(), seeds=(seed,)).history.accuracy for seed in (0, 1))
    assert first.equal(second) == (engine.solver in {"fullbatch", "out_of_fold"})


@every_engine
@every_method
def test_an_engine_trains_a_method_or_says_why_not(engine, name, monkeypatch):
    monkeypatch.setattr("fairdro.training.engines.EPOCHS", 1)
    monkeypatch.setattr("fairdro.training.engines.FEWEST_BATCHES", 1)
    monkeypatch.setattr("fairdro.training.engines.FEWEST_STEPS", 1)
    X, cells = biased_problem(2, 2, n=200)
    method = METHODS[name]()
    refusal = engine.refusal(method, cells.counts)
    if refusal is None:
        assert engine.train(X, cells, method).weights.isfinite().all()
        return
    assert method.name in refusal
    with pytest.raises(InputError, match=r"use|leave it out"):
        engine.train(X, cells, method)


def test_the_first_engine_that_can_is_taken():
    assert engine_for("linear", METHODS["fairdro"]).solver == "fullbatch"
    assert engine_for("linear", METHODS["egr"]).solver == "minibatch"
    assert {engine.model for engine in ENGINES} >= set(BANKS)
    assert solvers_of("boosting")[0] == "head"
    for call in (
        lambda: engine_for("forest", FairDRO),
        lambda: get_engine("mlp", "head"),
        lambda: engine_for("boosting", METHODS["cov"]),
    ):
        with pytest.raises(InputError, match=r"choose one of|cov does not"):
            call()
    assert models_for_tables() == ["linear", "mlp", "boosting"]


def random_means(rng, points):
    error, loss = torch.rand(2, 1, points, 2, 2, dtype=torch.float64, generator=rng)
    return CellMeans(error, loss, torch.stack([1 - error, error], dim=-1))


@every_method
def test_a_controller_that_was_saved_and_loaded_goes_on_as_if_nothing_had_been(name):
    method = METHODS[name].sweep(3)
    task = Task(torch.tensor([[5.0, 9.0], [4.0, 4.0]], dtype=torch.float64), (1, method.points))
    rng = torch.Generator().manual_seed(0)
    means = [random_means(rng, method.points) for _ in range(6)]
    whole, first, second = (Controller(method, task, 4) for _ in range(3))
    for one in means:
        whole.update(one)
    for one in means[:3]:
        first.update(one)
    content = safetensors.torch.save({key: value.contiguous() for key, value in first.state_dict().items()})
    second.load_state_dict(safetensors.torch.load(content))
    for one in means[3:]:
        second.update(one)
    assert second.progress == whole.progress
    assert second.weights.equal(whole.weights)
    assert second.history.weights.equal(whole.history.weights[3:])


def test_models_that_do_not_move_stay_as_they_are():
    method, moving = METHODS["fairdro"](rho=(1.0, 2.0, 3.0)), torch.tensor([[True, False, True]])
    free, held = (Controller(method, Task(torch.ones(2, 2, dtype=torch.float64), (1, 3)), 4) for _ in range(2))
    before, means = held.weights, random_means(torch.Generator(), 3)
    assert free.update(means, damping=0.5)
    assert held.update(means, damping=0.5, moving=moving)
    assert not free.weights[0, 1].equal(before[0, 1])
    assert held.weights[0, 1].equal(before[0, 1])
    assert held.weights[moving].equal(free.weights[moving])


def test_rounds_and_steps_are_counted_and_told():
    method, told = METHODS["lbc"](eta=1.0, rounds=3), []
    task = Task(torch.ones(2, 2, dtype=torch.float64), (1, 1))
    controller = Controller(method, task, 2, on_step=lambda done, total: told.append((done, total)))
    seen = [
        (number, step, controller.update(random_means(torch.Generator(), 1)))
        for number in controller.rounds()
        for step in controller.steps()
    ]
    assert seen == [(number, step, False) for number in range(3) for step in range(2)]  # it moves between rounds
    assert told == [(i, 6) for i in range(1, 7)]
    weights = controller.history.weights
    assert weights[0].equal(weights[1])
    assert not weights[1].equal(weights[2])
