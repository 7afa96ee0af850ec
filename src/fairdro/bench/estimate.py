"""What a bench would cost: its banks, the time by a measured step of each, and the disk."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

from fairdro.bench.bank import Bank, known_dataset
from fairdro.bench.network import Network
from fairdro.bench.plan import BenchPlan
from fairdro.bench.store import MOMENTS, Store
from fairdro.data.examples import Subset
from fairdro.methods import Scratch
from fairdro.training.engines import EPOCHS, MINIBATCH
from fairdro.training.inputs import logits_of
from fairdro.training.network import train_network
from fairdro.training.threads import torch_threads
from fairdro.training.trained import STEPS as MOST_STEPS

STEPS = 3  # of the measurement, where an engine counts them
BYTES = 4  # of a number
COPIES = 3  # of a network's weights in a checkpoint: with AdamW's two moments
SAMPLE = 2000  # rows of a table by which models without steps are timed
HOUR, MINUTE = 3600, 60


def estimate(plan: BenchPlan, out: Path, workers: int) -> list[str]:
    """Return sentences on what a bench would train, how long that takes on this machine, and what it leaves on disk.

    A step of a network, and a few steps of every method on a table, are trained and timed; models without steps, as
    trees, on a sample of the rows. Solvers that end when they have converged may take less. Nothing is written.
    """
    plan.check()
    store = Store(out)
    missing = [bank for bank in plan.banks if bank not in store and bank.refusal() is None]
    refused = sum(bank.refusal() is not None for bank in plan.banks)
    told = f"{len(plan.banks)} banks on {', '.join(plan.datasets)}: {len(plan.banks) - len(missing) - refused} are stored"
    filled = [bank for bank in missing if plan.is_filled(bank)]
    told += f", {refused} are not defined there" if refused else ""
    if not missing:
        return [f"{told}, and none is left to train."]
    kinds = {_kind(bank): bank for bank in missing}
    with warnings.catch_warnings(), torch_threads(1 if workers > 1 else torch.get_num_threads()):
        warnings.simplefilter("ignore")  # of trainings that end after a few steps
        seconds = {kind: _seconds(bank) for kind, bank in kinds.items()}
    total = sum(seconds[_kind(bank)] for bank in [*missing, *filled])
    longest = max(seconds.values())
    wall = max(total / workers, longest)
    processes = f"{workers} worker processes of this machine" if workers > 1 else "this process alone"
    left = sum(map(_stored_bytes, [*missing, *filled]))
    disk = f"They leave about {_size(left)} in {out}"
    if (network := plan.network) is not None:
        disk += f", and {_size(workers * _checkpoint_bytes(network))} of checkpoints while they are trained"
    more = f", and {len(filled)} more that fill the holes of their frontiers" if filled else ""
    return [
        f"{told}, {len(missing)} are to be trained{more}.",
        f"They take about {_duration(wall)} with {processes}; the longest takes {_duration(longest)}.",
        f"{disk}.",
    ]


def _kind(bank: Bank) -> tuple[object, ...]:
    """Return what banks that take the same time share."""
    return bank.dataset, bank.method.name, bank.method.points, bank.method.rounds, bank.model, bank.solver, bank.seeds


def _seconds(bank: Bank) -> float:
    """Return about how long a bank takes, by timing a few of its steps."""
    return _network_seconds(bank, bank.network) if bank.network is not None else _table_seconds(bank)


def _network_seconds(bank: Bank, network: Network) -> float:
    step, look = _step_and_look(network)
    recipe, n = network.recipe(bank.method), len(network.examples.parts["train"])
    batches, epochs = max(n // recipe.batch_size, 1), recipe.epochs * bank.method.rounds
    taught = 0 if bank.method.teacher() is None else recipe.batch_size * look
    updates = epochs * batches / min(recipe.update_every or batches, batches) if bank.method.adaptive else 0
    return epochs * batches * (step + taught) + updates * n * look + len(network.examples) * look


@cache
def _step_and_look(network: Network) -> tuple[float, float]:
    """Time a step of plain training, and how long the network looks at one row."""
    examples, recipe = network.examples, replace(network.recipe(Scratch()), epochs=1)
    inputs, cells = examples.part("train")
    few = torch.arange(min(recipe.batch_size, len(cells)))
    some = Subset(inputs.inputs, inputs.rows[few])
    model = network.known_job.network(len(examples.class_names))
    for _ in range(2):  # the first one warms up
        start = time.perf_counter()
        train_network(model, some, cells.take(few), Scratch(), recipe)
        step = time.perf_counter() - start
    start = time.perf_counter()
    logits_of(model, some)
    return step * recipe.batch_size / len(few), (time.perf_counter() - start) / len(few)


def _table_seconds(bank: Bank) -> float:
    """Time a few steps of an engine that counts them, or a whole training on a sample."""
    seen = known_dataset(bank.dataset).split(bank.protocol, seed=bank.split).train
    n, engine = len(seen.cells), bank.engine
    steps, all_steps = (
        (STEPS, MOST_STEPS) if engine.converges else (1, bank.epochs or EPOCHS) if bank.solver == MINIBATCH else (None, 1)
    )
    rows = torch.randperm(n, generator=torch.Generator().manual_seed(0))[: SAMPLE if steps is None else n]
    start = time.perf_counter()
    engine.train(seen.X[rows], seen.cells.take(rows), bank.method, seeds=bank.seeds, steps=steps)
    taken = time.perf_counter() - start
    return taken * all_steps / (steps or 1) * n / len(rows)


def _stored_bytes(bank: Bank) -> int:
    """Return about how large the file of a bank is, and what its network says of every row."""
    classes, groups = len(bank.data.class_names), len(bank.data.groups.names)
    models = len(bank.seeds) * bank.method.points
    history = 2 * MOMENTS if bank.network is None else 2 * bank.network.epochs
    file = models * classes * groups * BYTES * (history + 3 * 2 * classes)
    return file + (0 if bank.network is None else len(bank.network.examples) * (classes + groups) * BYTES)


def _checkpoint_bytes(network: Network) -> int:
    model = network.known_job.network(len(network.examples.class_names))
    return COPIES * BYTES * sum(parameter.numel() for parameter in model.parameters())


def _duration(seconds: float) -> str:
    if seconds < 2 * MINUTE:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / MINUTE:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"


def _size(number: int) -> str:
    return f"{max(number, 1000) / 1e3:.0f} kB" if number < 1e6 else f"{number / 1e6:.0f} MB"
