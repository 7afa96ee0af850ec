"""Train the network of a bank as `fairdro train` does, and judge it, with and without a head."""

import shutil
import time
import warnings
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from fairdro._utils.progress import OnStep
from fairdro.bench.network import Network
from fairdro.bench.plan import Bank
from fairdro.bench.store import Outcome
from fairdro.data import Examples
from fairdro.errors import InputError
from fairdro.metrics import Confusion
from fairdro.networks.head import fit_network_head
from fairdro.networks.runs import judge, judge_head, train_job
from fairdro.training.network import TrainedNetwork

CHECKPOINTS = "checkpoints"


def run_network(bank: Bank, network: Network, out: Path, on_step: OnStep | None = None) -> list[Outcome]:
    """Train the network of a bank and judge it on all parts: what came of it as it is and, if asked for, with a head.

    Training resumes from checkpoints in ``out``, which :func:`remove_checkpoints` removes when all this is stored.
    """
    plain = bank.without_head
    banks = list(dict.fromkeys([plain, bank]))
    if (reason := bank.refusal()) is not None:
        return [Outcome(one, refused=reason) for one in banks]
    examples, recipe = network.examples, network.recipe(bank.method)
    job = replace(network.known_job, seed=bank.seeds[0])

    def stage(what: str) -> AbstractContextManager[OnStep | None]:
        return nullcontext(on_step)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # diverged networks are marked in the results
        trained = train_job(job, examples, bank.method, _folder(bank, out), recipe=recipe, stage=stage)
    parts = [part for part in examples.parts if part != "validation" or bank.protocol != "paper"]
    judged = {part: judge(trained.model, examples, part) for part in parts}
    outcome = Outcome.of(plain, trained, _counts(judged))
    return [outcome if one == plain else _with_head(one, outcome, trained, examples) for one in banks]


def _with_head(bank: Bank, plain: Outcome, trained: TrainedNetwork, examples: Examples) -> Outcome:
    """Fit a head to the validation part; a network that diverged has none and stays as it is."""
    if plain.diverged.any():
        return replace(plain, bank=bank)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # of radii that did not converge and cells with few rows, which are not chosen by
            head = fit_network_head(
                trained.model, examples, objective=bank.objective, fair_classes=list(bank.fair_classes) or None
            )
    except InputError as error:
        return Outcome(bank, refused=f"No head can be fitted to the validation part: {error}")
    judged = {part: judge_head(head, trained.model, examples, part) for part in plain.confusion}
    seconds = plain.seconds + time.perf_counter() - start
    return replace(plain, bank=bank, seconds=seconds, confusion=_counts(judged))


def _counts(judged: dict[str, Confusion]) -> dict[str, np.ndarray]:
    return {part: confusion.counts[None, None] for part, confusion in judged.items()}


def remove_checkpoints(bank: Bank, out: Path) -> None:
    """Remove the checkpoints of a network that is stored."""
    if bank.network is not None:
        shutil.rmtree(_folder(bank, out), ignore_errors=True)
        with suppress(OSError):  # others are in training
            (out / CHECKPOINTS).rmdir()


def _folder(bank: Bank, out: Path) -> Path:
    return out / CHECKPOINTS / bank.without_head.id
