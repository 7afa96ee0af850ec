"""What to compare: a plan is a list of banks, and a bank is what is trained together."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib import metadata
from itertools import product
from typing import Any

import pandas as pd

from fairdro.data import DATASETS, PROTOCOLS, Dataset, is_features, load_dataset
from fairdro.errors import InputError, unknown_name
from fairdro.frontier import fill_holes
from fairdro.methods import METHODS, OBJECTIVES, Baseline, Method, Task, get_method
from fairdro.models import MODELS, get_model
from fairdro.training.boosting import STRATEGIES
from fairdro.training.heads import check_weighs_cells

__all__ = ["SOLVERS", "Bank", "BenchPlan"]

SOLVERS = ["fullbatch", "minibatch"]
BOOSTING = "boosting"  # a model whose solvers are its strategies
OWN_SOLVER = {"linear": "fullbatch", BOOSTING: STRATEGIES[0]}  # others are trained in mini-batches
FEWEST_TO_DIVIDE = 6  # points below which a grid is not divided into two


@cache
def known_dataset(name: str) -> Dataset:
    """Return a dataset that many banks ask for; not to be changed."""
    return load_dataset(name)


@cache
def _fingerprint(name: str) -> str:
    return known_dataset(name).fingerprint


def _trains(solver: str, method: type[Method]) -> bool:
    """Whether a solver, or a strategy of boosting, can train a method."""
    return ("fullbatch" if solver in STRATEGIES else solver) in method.solvers()


@dataclass(frozen=True)
class Bank:
    """One method over its grid and its seeds, on one split of one dataset: what is trained together.

    ``objective`` is that of the bench it belongs to; a method that knows no other is balanced in any.
    """

    dataset: str
    method: Method
    model: str = "linear"
    solver: str = "fullbatch"
    seeds: tuple[int, ...] = (0,)
    protocol: str = "paper"
    split: int = 0
    objective: str = "balanced"

    def __str__(self) -> str:
        return f"{self.dataset} / {self.method.name} / {self.model} / {self.solver}"

    def spec(self) -> dict[str, Any]:
        """Return the bank as plain data, from which :meth:`from_spec` makes it again."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        hyperparameters = {f.name: getattr(self.method, f.name) for f in fields(self.method)}
        return {**values, "method": self.method.name, "hyperparameters": hyperparameters}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Bank:
        """Make a bank from plain data."""
        rest = {key: value for key, value in spec.items() if key not in {"method", "hyperparameters"}}
        method = get_method(spec["method"])(**spec["hyperparameters"])
        return cls(**{**rest, "method": method, "seeds": tuple(spec["seeds"])})

    @property
    def id(self) -> str:
        """Name made from the bank's content, the data and the version of the package."""
        content = [self.spec(), _fingerprint(self.dataset), metadata.version("fairdro")]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]

    @property
    def cost(self) -> float:
        """Rough relative cost of training."""
        rounds = self.method.rounds + (self.method.teacher() is not None)
        slower = {"fullbatch": 1, "head": 10}.get(self.solver, 30)
        return len(known_dataset(self.dataset)) * rounds * slower * (1 + len(self.seeds) * self.method.points / 40)

    def refusal(self) -> str | None:
        """Say why the method cannot be trained on this data and model, if so."""
        dataset = known_dataset(self.dataset)
        try:
            if self.model == BOOSTING:
                check_weighs_cells(self.method, dataset.cells)
            else:
                self.method.check(Task(dataset.cells.counts, hidden=get_model(self.model).hidden))
        except InputError as error:
            return str(error)
        return None


@dataclass(frozen=True)
class BenchPlan:
    """What to compare.

    Attributes
    ----------
    datasets, methods, solvers : list of str
        ``["all"]`` are all methods that one of the solvers can train; those that the model or the data do not allow are
        reported with the reason. Without a solver, that of the model: ``fullbatch`` for linear, ``head`` for boosting,
        otherwise ``minibatch``.
    model : str
    points : int
        Hyperparameter points per method. A solver skips methods it cannot train.
    seeds : int
        Seeds per point with the mini-batch solver; the full-batch solver has no randomness and trains once.
    protocol : {"paper", "validated"}
    split : int
        Seed of the train/test split; 0 is the paper's.
    objective : {"balanced", "standard"}
        What the baselines minimise: every cell, or every sample, counts the same.
    adaptive : bool, optional
        Whether half the points of a method with one strength go where the first half leaves holes in the frontier, judged on
        the training part. By default with the full-batch solver, and not with the paper's mini-batches.
    """

    datasets: list[str] = field(default_factory=lambda: list(DATASETS))
    methods: list[str] = field(default_factory=lambda: ["scratch", "fairdro"])
    solvers: list[str] = field(default_factory=list)
    model: str = "linear"
    points: int = 20
    seeds: int = 4
    protocol: str = "paper"
    split: int = 0
    objective: str = "balanced"
    adaptive: bool | None = None

    def __post_init__(self) -> None:
        everything = self.methods == ["all"]
        if not self.solvers:
            object.__setattr__(self, "solvers", [OWN_SOLVER.get(self.model, "minibatch")])
        if everything:
            trainable = [name for name, method in METHODS.items() if any(_trains(s, method) for s in self.solvers)]
            object.__setattr__(self, "methods", trainable or list(METHODS))
        self._check_names()
        self._check_numbers()
        for name in self.methods:
            if not any(_trains(solver, get_method(name)) for solver in self.solvers):
                if self.model == BOOSTING:
                    raise InputError(
                        f"Boosted trees know methods that only weigh cells, and {name} does more; leave it out."
                    )
                raise InputError(f"{name} needs mini-batches; add minibatch to the solvers or leave it out.")
        if self.model != "linear" and "fullbatch" in self.solvers:
            raise InputError(f"The full-batch solver trains linear models only; use solver minibatch for {self.model}.")
        if not everything:
            self._refuse_the_impossible()

    def _check_names(self) -> None:
        for kind, names, known in (
            ("dataset", self.datasets, [*DATASETS, *filter(is_features, self.datasets)]),
            ("method", self.methods, list(METHODS)),
            ("solver", self.solvers, STRATEGIES if self.model == BOOSTING else SOLVERS),
            ("model", [self.model], [*MODELS, BOOSTING]),
            ("protocol", [self.protocol], PROTOCOLS),
            ("objective", [self.objective], OBJECTIVES),
        ):
            if len(names) != len(set(names)):
                raise InputError(f"A {kind} is named twice: {', '.join(names)}.")
            if not names:
                raise InputError(f"Name at least one {kind}: {', '.join(known)}.")
            if "all" in names and kind == "method":
                raise InputError("'all' stands for every method: name it alone.")
            for name in names:
                if name not in known:
                    raise unknown_name(kind, name, known)

    def _check_numbers(self) -> None:
        for kind, number, least, most in (
            ("points", self.points, 1, 1000),
            ("seeds", self.seeds, 1, 1000),
            ("split", self.split, 0, 2**32 - 1),
        ):
            if not least <= number <= most:
                raise InputError(f"{kind} must lie between {least} and {most}, got {number}.")

    def banks(self) -> list[Bank]:
        """Return the banks to begin with, in the order of the tables."""
        return [
            Bank(
                dataset, self._method(method, solver), self.model, solver,
                seeds=tuple(range(self.seeds)) if solver == "minibatch" else (0,),
                protocol=self.protocol, split=self.split, objective=self.objective,
            )
            for dataset, solver, method in product(self.datasets, self.solvers, self.methods)
            if _trains(solver, get_method(method))
        ]  # fmt: skip

    def second_banks(self, first: dict[Bank, pd.DataFrame]) -> list[Bank]:
        """Return banks that fill the holes of the first ones, given the rows of their models."""
        return [self._fill(bank, rows) for bank, rows in first.items() if self._is_adaptive(bank.method, bank.solver)]

    def _is_adaptive(self, method: Method | type[Method], solver: str) -> bool:
        wanted = solver in ("fullbatch", "head") if self.adaptive is None else self.adaptive
        return wanted and len(method.search) == 1 and self.points >= FEWEST_TO_DIVIDE

    def _fill(self, bank: Bank, rows: pd.DataFrame) -> Bank:
        (strength,) = bank.method.search
        points = rows.groupby("hyperparameters", sort=False)[["train_accuracy", "train_dca"]].mean()
        tried = getattr(bank.method, strength)
        new = fill_holes(tried, points["train_accuracy"], points["train_dca"], self.points - len(tried))
        return replace(bank, method=replace(bank.method, **{strength: tuple(new)}))

    def _refuse_the_impossible(self) -> None:
        for bank in self.banks():
            if (reason := bank.refusal()) is not None:
                raise InputError(reason)

    def _method(self, name: str, solver: str) -> Method:
        """Return the method over its grid, as it does best with the solver."""
        kind = get_method(name)
        fixed = kind.for_solver(
            "fullbatch" if solver in STRATEGIES else solver,
            **({"objective": self.objective} if issubclass(kind, Baseline) else {}),
        )
        points = -(-self.points // 2) if self._is_adaptive(kind, solver) else self.points
        return kind.sweep(points, **fixed)
