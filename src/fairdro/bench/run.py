"""Plan and run: one bank per dataset, method and solver; a row per trained model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import pandas as pd

from fairdro.data import DATASETS, PROTOCOLS, Part, load_dataset
from fairdro.errors import InputError, unknown_name
from fairdro.methods import METHODS, Method, get_method
from fairdro.metrics import METRICS, confusion_counts
from fairdro.models import MODELS
from fairdro.training import TrainedBank, train_fullbatch, train_minibatch

__all__ = ["SOLVERS", "Bank", "BenchPlan", "run_bench"]

SOLVERS = ["fullbatch", "minibatch"]
REPORTED = ["accuracy", "dca", "deo", "worst_accuracy", "standard_accuracy"]

OnStep = Callable[[int, int], object]


@dataclass(frozen=True)
class Bank:
    """One method over its grid and its seeds, on one split of one dataset: what is trained together."""

    dataset: str
    model: str
    method: str
    solver: str
    points: int
    seeds: tuple[int, ...]
    protocol: str
    split: int

    def __str__(self) -> str:
        return f"{self.dataset} / {self.method} / {self.model} / {self.solver}"


@dataclass(frozen=True)
class BenchPlan:
    """What to compare.

    Attributes
    ----------
    datasets, methods, solvers : list of str
        ``["all"]`` are the methods that one of the solvers can train.
    model : str
    points : int
        Hyperparameter points per method. A solver skips methods it cannot train.
    seeds : int
        Seeds per point with the mini-batch solver; the full-batch solver has no randomness and trains once.
    protocol : {"paper", "validated"}
    split : int
        Seed of the train/test split; 0 is the paper's.
    """

    datasets: list[str] = field(default_factory=lambda: list(DATASETS))
    methods: list[str] = field(default_factory=lambda: ["scratch", "fairdro"])
    solvers: list[str] = field(default_factory=lambda: ["fullbatch"])
    model: str = "linear"
    points: int = 20
    seeds: int = 4
    protocol: str = "paper"
    split: int = 0

    def __post_init__(self) -> None:
        if self.methods == ["all"]:
            trainable = [name for name, method in METHODS.items() if set(method.solvers()) & set(self.solvers)]
            object.__setattr__(self, "methods", trainable or list(METHODS))
        for kind, names, known in (
            ("dataset", self.datasets, list(DATASETS)),
            ("method", self.methods, list(METHODS)),
            ("solver", self.solvers, SOLVERS),
            ("model", [self.model], list(MODELS)),
            ("protocol", [self.protocol], PROTOCOLS),
        ):
            if len(names) != len(set(names)):
                raise InputError(f"A {kind} is named twice: {', '.join(names)}.")
            if not names:
                raise InputError(f"Name at least one {kind}: {', '.join(known)}.")
            for name in names:
                if name not in known:
                    raise unknown_name(kind, name, known)
        for kind, number, least, most in (
            ("points", self.points, 1, 1000),
            ("seeds", self.seeds, 1, 1000),
            ("split", self.split, 0, 2**32 - 1),
        ):
            if not least <= number <= most:
                raise InputError(f"{kind} must lie between {least} and {most}, got {number}.")
        for name in self.methods:
            if not set(get_method(name).solvers()) & set(self.solvers):
                raise InputError(f"{name} needs mini-batches; add minibatch to the solvers or leave it out.")
        if self.model != "linear" and "fullbatch" in self.solvers:
            raise InputError(f"The full-batch solver trains linear models only; use solver minibatch for {self.model}.")

    def banks(self) -> list[Bank]:
        """Return the banks in the order they are trained."""
        return [
            Bank(
                dataset, self.model, method, solver,
                points=self.points if get_method(method).search else 1,
                seeds=tuple(range(self.seeds)) if solver == "minibatch" else (0,),
                protocol=self.protocol, split=self.split,
            )
            for dataset, solver, method in product(self.datasets, self.solvers, self.methods)
            if solver in get_method(method).solvers()
        ]  # fmt: skip


def run_bench(plan: BenchPlan, out: Path, *, on_bank: Callable[[Bank], OnStep] | None = None) -> pd.DataFrame:
    """Train every bank of the plan and write ``results.csv`` into ``out``, current after each bank.

    Parameters
    ----------
    plan : BenchPlan
    out : Path
        Folder for the results; made if missing.
    on_bank : callable, optional
        Called with each bank before it is trained; returns a function that is told finished and total steps.

    Returns
    -------
    DataFrame
        A row per trained model.
    """
    make_writable(out)
    tables: list[pd.DataFrame] = []
    for bank in plan.banks():
        tables.append(run_bank(bank, on_bank(bank) if on_bank else None))
        results = pd.concat(tables, ignore_index=True)
        write_whole(out / "results.csv", results.to_csv(index=False))
    return results


def run_bank(bank: Bank, on_step: OnStep | None = None) -> pd.DataFrame:
    """Train one bank and judge its models on the test part, and on the validation part where there is one."""
    split = load_dataset(bank.dataset).split(bank.protocol, seed=bank.split)
    kind = get_method(bank.method)
    method = kind.sweep(bank.points, **(kind.stepwise if bank.solver == "fullbatch" else {}))
    trained = _train(bank, split.train, method, on_step)
    rows = pd.DataFrame(
        [
            {
                "dataset": bank.dataset,
                "model": bank.model,
                "method": bank.method,
                "solver": bank.solver,
                "hyperparameters": json.dumps(method.hyperparameters(point)),
                "seed": seed,
                "protocol": bank.protocol,
                "split": bank.split,
                "diverged": bool(trained.diverged[s, point]),
                "seconds": trained.seconds / trained.diverged.numel(),
            }
            for s, seed in enumerate(bank.seeds)
            for point in range(method.points)
        ]
    )
    for prefix, part in (("", split.test), ("validation_", split.validation)):
        if part is not None:
            counts = confusion_counts(trained.predict(part.X), part.cells)
            for name in REPORTED:
                rows[prefix + name] = METRICS[name](counts).reshape(-1)
    return rows


def _train(bank: Bank, train: Part, method: Method, on_step: OnStep | None) -> TrainedBank:
    if bank.solver == "fullbatch":
        return train_fullbatch(train.X, train.cells, method, on_step=on_step)
    return train_minibatch(train.X, train.cells, method, model=bank.model, seeds=bank.seeds, on_step=on_step)


def make_writable(out: Path) -> None:
    """Make the folder, and find out before training whether files can be written into it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / "probe", "")
        (out / "probe").unlink()
    except OSError as error:
        raise InputError(f"Cannot write results into {out}: {error.strerror}.") from error
    if (out / "results.csv").is_dir():
        raise InputError(f"Cannot write {out / 'results.csv'}: it is a folder.")


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all."""
    draft = path.with_suffix(path.suffix + ".part")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
