"""Train the network of a bank as `fairdro train` does, and judge it, with and without a head."""

import shutil
import time
import warnings
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from fairdro._utils.progress import OnStep
from fairdro.bench.bank import Bank
from fairdro.bench.network import Network
from fairdro.bench.store import Outcome, Store
from fairdro.data import Examples
from fairdro.errors import InputError
from fairdro.methods import Method
from fairdro.metrics import confusion_counts
from fairdro.networks.head import fit_validation_head
from fairdro.networks.outputs import Outputs
from fairdro.networks.runs import train_job
from fairdro.training.network import TrainedNetwork

CHECKPOINTS, TEACHER, OUTPUTS = "checkpoints", "teacher", "outputs"


def run_network(bank: Bank, network: Network, out: Path, on_step: OnStep | None = None) -> list[Outcome]:
    """Train the network of a bank and judge it on all parts: what came of it as it is and, if asked for, with a head.

    Training resumes from checkpoints in ``out``, which :func:`remove_checkpoints` removes when all this is stored. What the
    network says of every row is kept there, so that a head that is asked for later needs no training.
    """
    plain = bank.without_head
    banks = list(dict.fromkeys([plain, bank]))
    if (reason := bank.refusal()) is not None:
        return [Outcome(one, refused=reason) for one in banks]
    examples, file = network.examples, out / OUTPUTS / f"{plain.id}.safetensors"
    outcome, outputs = Store(out).read(plain), Outputs.read(file, examples)
    if outcome is None or outputs is None:
        trained = _train(bank, network, examples, out, on_step)
        outputs = Outputs.of(trained.model, examples)
        outputs.save(file)
        counts = {part: _counts(outputs.p_class[part].argmax(1), examples, part) for part in examples.parts}
        if bank.protocol == "paper":
            counts.pop("validation", None)
        outcome = Outcome.of(plain, trained, counts)
    return [outcome if one == plain else _with_head(one, outcome, outputs, examples) for one in banks]


def _train(bank: Bank, network: Network, examples: Examples, out: Path, on_step: OnStep | None) -> TrainedNetwork:
    """Train the network of a bank; a teacher first where there is one, which all banks of a seed share."""
    job, recipe = replace(network.known_job, seed=bank.seeds[0]), network.recipe(bank.method)

    def stage(what: str) -> AbstractContextManager[OnStep | None]:
        return nullcontext(on_step)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # diverged networks are marked in the results
        if (plain := bank.method.teacher()) is None:
            return train_job(job, examples, bank.method, _folder(bank, out), recipe=recipe, stage=stage)
        teacher = train_job(job, examples, plain, _teacher_folder(bank, plain, out), recipe=recipe, stage=stage)
        own, taught = _folder(bank, out), partial(train_job, recipe=recipe, teacher=teacher.model, stage=stage)
        try:
            trained = taught(job, examples, bank.method, own)
        except InputError:  # a checkpoint of another teacher, which differs by rounding where it was trained anew
            shutil.rmtree(own, ignore_errors=True)
            trained = taught(job, examples, bank.method, own)
    return replace(trained, seconds=trained.seconds + teacher.seconds)


def _with_head(bank: Bank, plain: Outcome, outputs: Outputs, examples: Examples) -> Outcome:
    """Fit a head to the validation part; a network that diverged has none and stays as it is."""
    if plain.diverged.any():
        return replace(plain, bank=bank)
    start = time.perf_counter()
    p_class, p_group = outputs.p_class, outputs.p_group
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # radii that did not converge and cells with few rows are not chosen by
            choice = {"objective": bank.objective, "fair_classes": list(bank.fair_classes) or None}
            head = fit_validation_head(p_class["validation"], p_group["validation"], examples, **choice)
    except InputError as error:
        return Outcome(bank, refused=f"No head can be fitted to the validation part: {error}")
    counts = {"validation": head.held_out().counts[None, None]}
    for part in plain.confusion.keys() - counts:
        predicted = pd.Index(examples.class_names).get_indexer(pd.Index(head.predict(p_class[part], p_group[part])))
        counts[part] = _counts(predicted, examples, part)
    return replace(plain, bank=bank, seconds=plain.seconds + time.perf_counter() - start, confusion=counts)


def _counts(codes: np.ndarray, examples: Examples, part: str) -> np.ndarray:
    _, cells = examples.part(part)
    return np.asarray(confusion_counts(torch.from_numpy(codes), cells))[None, None]


def remove_checkpoints(bank: Bank, out: Path) -> None:
    """Remove the checkpoints of a network that is stored."""
    if bank.network is not None:
        shutil.rmtree(_folder(bank, out), ignore_errors=True)
        _remove_if_empty(out)


def remove_teachers(banks: Iterable[Bank], out: Path) -> None:
    """Remove the checkpoints of teachers, when all their banks are stored."""
    for bank in banks:
        if bank.network is not None and (plain := bank.method.teacher()) is not None:
            shutil.rmtree(_teacher_folder(bank, plain, out), ignore_errors=True)
    _remove_if_empty(out)


def _remove_if_empty(out: Path) -> None:
    with suppress(OSError):  # others are in training, or there are none
        (out / CHECKPOINTS).rmdir()


def _teacher_folder(bank: Bank, plain: Method, out: Path) -> Path:
    return out / CHECKPOINTS / f"{TEACHER}-{replace(bank.without_head, method=plain).id}"


def _folder(bank: Bank, out: Path) -> Path:
    return out / CHECKPOINTS / bank.without_head.id
