"""What to compare: a plan is a list of banks, and a bank is what is trained together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from importlib import metadata
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fairdro._utils.hashing import digest
from fairdro.data import PROTOCOLS, Dataset, is_features, load_dataset, names
from fairdro.errors import InputError, unknown_name
from fairdro.frontier import fill_holes
from fairdro.methods import METHODS, OBJECTIVES, Baseline, FairDRO, Method, get_method
from fairdro.metrics import class_codes
from fairdro.training.engines import ENGINES, Engine, engines_for, get_engine, solvers_of

BENCH = ["dataset", "model", "solver", "protocol", "split", "objective", "fair_classes"]
ALL = "all"
FEWEST_TO_DIVIDE = 6  # points below which a grid is not divided into two


@cache
def known_dataset(name: str) -> Dataset:
    """Return a dataset that many banks ask for; not to be changed."""
    return load_dataset(name)


@dataclass(frozen=True)
class Bank:
    """One method over its grid and its seeds, on one split of one dataset: what is trained together.

    ``objective`` is that of the bench it belongs to. ``fair_classes`` are the names of the classes that gaps are about,
    where these are not all.
    """

    dataset: str
    method: Method
    model: str = ENGINES[0].model
    solver: str = ENGINES[0].solver
    seeds: tuple[int, ...] = (0,)
    protocol: str = "validated"
    split: int = 0
    objective: str = "balanced"
    fair_classes: tuple[str, ...] = ()

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
        tuples = {name: tuple(spec[name]) for name in ("seeds", "fair_classes")}
        return cls(**{**rest, "method": method, **tuples})

    @property
    def bench(self) -> dict[str, Any]:
        """What it shares with the banks that it is compared with."""
        return {name: getattr(self, name) for name in BENCH} | {"fair_classes": ", ".join(self.fair_classes) or ALL}

    def fair_codes(self, class_names: list[str]) -> tuple[int, ...] | None:
        """Return the codes of the classes that gaps are about; None for all."""
        return class_codes(self.fair_classes or None, np.array(class_names))

    @property
    def id(self) -> str:
        """Name made from the bank's content, the data and the version of the package."""
        return digest(self.spec(), known_dataset(self.dataset).fingerprint, metadata.version("fairdro"))[:20]

    @property
    def engine(self) -> Engine:
        """What trains it."""
        return get_engine(self.model, self.solver)

    @property
    def cost(self) -> float:
        """Rough relative cost of training."""
        rounds = self.method.rounds + (self.method.teacher() is not None)
        models = 1 + len(self.seeds) * self.method.points / 40
        return len(known_dataset(self.dataset)) * rounds * self.engine.cost * models

    def refusal(self) -> str | None:
        """Say why the method cannot be trained on this data with this model, if so."""
        dataset = known_dataset(self.dataset)
        held_out = self.protocol == "validated" and "validation" in (dataset.parts or {})
        if self.engine.fitted_held_out and dataset.trained and not held_out:
            return (
                "A head on a trained network needs rows it has not seen: train it, and bench it, with --protocol validated."
            )
        return self.engine.refusal(self.method, dataset.cells.counts)


@dataclass(frozen=True)
class BenchPlan:
    """What to compare. Making a plan loads no data; :meth:`check` does.

    Attributes
    ----------
    datasets, methods, solvers : list of str
        ``["all"]`` are all methods that one of the solvers can train; those that the model or the data do not allow are
        reported with the reason. Without a solver, the model's default.
    model : str
        One that can be trained on a table.
    points : int
        Hyperparameter points per method. A solver skips methods it cannot train.
    seeds : int
        Seeds per point for a solver whose results differ much between seeds (mini-batch); others train one.
    protocol : {"validated", "paper"}
    split : int
        Seed of the train/test split; 0 is the paper's.
    objective : {"balanced", "standard"}
        What is minimised beside fairness: every cell, or every sample, counts the same. With the paper's protocol that is
        for baselines, as in the paper's appendix, and FairDRO stays balanced; with the validated one it is for all methods,
        and points are chosen by that accuracy.
    fair_classes : list of str
        Names of the classes that gaps are about, and that FairDRO makes equal over groups; by default all.
    adaptive : bool, optional
        Whether half the points of a method with one strength go where the first half leaves holes in the frontier, judged on
        the training part. By default for solvers that train one seed.
    """

    datasets: list[str] = field(default_factory=lambda: names("table"))
    methods: list[str] = field(default_factory=lambda: ["scratch", "fairdro"])
    solvers: list[str] = field(default_factory=list)
    model: str = ENGINES[0].model
    points: int = 20
    seeds: int = 4
    protocol: str = "validated"
    split: int = 0
    objective: str = "balanced"
    fair_classes: list[str] = field(default_factory=list)
    adaptive: bool | None = None

    def __post_init__(self) -> None:
        self._check_names()
        limits = {"points": (1, 1000), "seeds": (1, 1000), "split": (0, 2**32 - 1)}
        for name, (least, most) in limits.items():
            if not least <= getattr(self, name) <= most:
                raise InputError(f"{name} must lie between {least} and {most}, got {getattr(self, name)}.")
        for kind in self._kinds:
            refusals = [engine.refuses(kind()) for engine in self.engines]
            if None not in refusals:
                raise InputError(str(refusals[0]))

    def _check_names(self) -> None:
        if "all" in self.methods and not self._everything:
            raise InputError("'all' stands for every method: name it alone.")
        for kind, given, known in (
            ("dataset", self.datasets, [*names("table"), *filter(is_features, self.datasets)]),
            ("method", self.methods, ["all"] if self._everything else list(METHODS)),
            ("solver", [engine.solver for engine in self.engines], solvers_of(self.model)),
            ("protocol", [self.protocol], PROTOCOLS),
            ("objective", [self.objective], OBJECTIVES),
        ):
            if len(given) != len(set(given)):
                raise InputError(f"A {kind} is named twice: {', '.join(given)}.")
            if not given:
                raise InputError(f"Name at least one {kind}: {', '.join(known)}.")
            for name in given:
                if name not in known:
                    raise unknown_name(kind, name, known)

    @property
    def _everything(self) -> bool:
        return self.methods == ["all"]

    @cached_property
    def engines(self) -> list[Engine]:
        """What trains, an engine per solver."""
        return [get_engine(self.model, solver) for solver in self.solvers or solvers_of(self.model)[:1]]

    @cached_property
    def _kinds(self) -> list[type[Method]]:
        if not self._everything:
            return [get_method(name) for name in self.methods]
        return [kind for kind in METHODS.values() if any(engine.refuses(kind()) is None for engine in self.engines)]

    @property
    def left_out(self) -> list[str]:
        """Methods that ``["all"]`` does not stand for here, as none of the solvers can train them."""
        return [name for name, kind in METHODS.items() if self._everything and kind not in self._kinds]

    @property
    def left_out_sentence(self) -> str | None:
        """Name the methods that are left out, and the options with which they are not."""
        options: dict[str, list[str]] = {}
        for name in self.left_out:
            engine = min(engines_for(get_method(name)), key=lambda engine: engine.model != self.model)
            options.setdefault(self._option(engine), []).append(name)
        if not options:
            return None
        solvers = " and ".join(engine.solver for engine in self.engines)
        told = "; ".join(f"{', '.join(named)} (use {option})" for option, named in options.items())
        return f"Left out, as {solvers} cannot train them: {told}."

    def _option(self, engine: Engine) -> str:
        """Return the options of the command line that ask for an engine too."""
        if engine.model == self.model:
            return "--solvers " + ",".join(e.solver for e in (*self.engines, engine))
        default = solvers_of(engine.model)[0]
        return f"--model {engine.model}" + (f" --solvers {engine.solver}" if engine.solver != default else "")

    @cached_property
    def banks(self) -> tuple[Bank, ...]:
        """The banks to begin with, in the order of the tables."""
        return tuple(
            self._bank(dataset, engine, kind)
            for dataset, engine, kind in product(self.datasets, self.engines, self._kinds)
            if engine.refuses(kind()) is None
        )

    def check(self) -> None:
        """Load the data, and refuse a class or a method that was named but does not fit them or the model."""
        for dataset in self.datasets if self.fair_classes else ():
            class_codes(self.fair_classes, np.array(known_dataset(dataset).class_names))
        if self._everything:
            return  # what does not fit is reported in the results
        for bank in self.banks:
            if (reason := bank.refusal()) is not None:
                raise InputError(reason)

    def second_banks(self, first: Mapping[Bank, pd.DataFrame]) -> list[Bank]:
        """Return banks that fill the holes of the first ones, given the rows of their models."""
        return [self._fill(bank, rows) for bank, rows in first.items() if self._is_adaptive(bank.method, bank.engine)]

    def _is_adaptive(self, method: Method | type[Method], engine: Engine) -> bool:
        wanted = not engine.seeded if self.adaptive is None else self.adaptive
        return wanted and len(method.search) == 1 and self.points >= FEWEST_TO_DIVIDE

    def _fill(self, bank: Bank, rows: pd.DataFrame) -> Bank:
        (strength,) = bank.method.search
        known_by_heart = bank.engine.fitted_held_out and known_dataset(bank.dataset).trained
        part = "validation" if known_by_heart else "train"
        accuracy, dca = f"{part}_accuracy", f"{part}_dca"
        points = rows.groupby("hyperparameters", sort=False)[[accuracy, dca]].mean()
        tried = getattr(bank.method, strength)
        new = fill_holes(tried, points[accuracy], points[dca], self.points - len(tried))
        return replace(bank, method=replace(bank.method, **{strength: tuple(new)}))

    def _bank(self, dataset: str, engine: Engine, kind: type[Method]) -> Bank:
        """Return the bank of a method over its grid, with the hyperparameters that suit the engine."""
        given: dict[str, Any] = {}
        if issubclass(kind, Baseline) or (self.protocol == "validated" and issubclass(kind, FairDRO)):
            given["objective"] = self.objective
        if self.fair_classes and issubclass(kind, FairDRO):
            given["fair_classes"] = class_codes(self.fair_classes, np.array(known_dataset(dataset).class_names))
        fixed = engine.hyperparameters(kind, given)
        points = -(-self.points // 2) if self._is_adaptive(kind, engine) else self.points
        seeds = tuple(range(self.seeds)) if engine.seeded else (0,)
        method, solver = kind.sweep(points, **fixed), engine.solver
        fair = tuple(self.fair_classes)
        return Bank(dataset, method, self.model, solver, seeds, self.protocol, self.split, self.objective, fair)
