"""What to compare: a plan is a list of banks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairdro.bench.bank import Bank, known_dataset
from fairdro.bench.network import Network
from fairdro.data import DATASETS, PROTOCOLS, names
from fairdro.data.features import is_features
from fairdro.errors import InputError, unknown_name
from fairdro.frontier import fill_holes
from fairdro.methods import METHODS, OBJECTIVES, Baseline, FairDRO, Method, get_method
from fairdro.metrics import class_codes
from fairdro.models.backbones import get_backbone
from fairdro.networks.runs import Job
from fairdro.training.engines import (
    ENCODER,
    ENGINES,
    MINIBATCH,
    Engine,
    engines_for,
    get_engine,
    models_for_networks,
    models_for_tables,
    solvers_of,
)
from fairdro.training.network import Recipe

OF_NETWORKS = ("data", "encoder", "size", "width", "soft", "epochs", "batch_size", "lr", "precision")
FEWEST_TO_DIVIDE = 6  # points below which a grid is not divided into two


@dataclass(frozen=True)
class BenchPlan:
    """What to compare. Making a plan loads no data; :meth:`check` does.

    Attributes
    ----------
    datasets, methods, solvers : list of str
        ``["all"]`` are all methods that one of the solvers can train; those that the model or the data do not allow are
        reported with the reason. Without a solver, the model's default.
    model : str
        One that can be trained on a table; or ``resnet18`` or ``encoder``, a network that is trained from end to end, on one
        dataset of images or texts.
    points : int
        Hyperparameter points per method. A solver skips methods it cannot train.
    seeds : int
        Seeds per point for a solver whose results differ much between seeds (mini-batch, networks); others train one.
    protocol : {"validated", "paper"}
        What is held out, and what points are chosen by; see :meth:`fairdro.data.Dataset.split`.
    split : int
        Seed of the train/test split; 0 is the paper's.
    objective : {"balanced", "standard"}
        What is minimised beside fairness: every cell, or every sample, counts the same. With the paper's protocol that is
        for baselines, as in the paper's appendix, and FairDRO stays balanced; with the validated one it is for all methods,
        and points are chosen by that accuracy.
    fair_classes : list of str
        Names of the classes that gaps are about, and that FairDRO makes equal over groups; by default all.
    grid : dict
        Values to try instead of a method's search range, by its name: ``{"fairdro": {"rho": [0.1, 0.3, 1.0]}}``; of several
        hyperparameters, all combinations.
    adaptive : bool, optional
        Whether half the points of a method with one strength go where the first half leaves holes in the frontier, judged on
        the training part. By default for solvers that train one seed; networks have plain grids.
    data, encoder, size, width, soft : optional
        Of networks, as :class:`~fairdro.networks.runs.Job` has them; ``encoder`` names a pretrained network.
    epochs, batch_size, lr, precision : optional
        Of networks; by default the paper's. Mini-batches have epochs too.

    See Also
    --------
    run_bench : Trains what it names.

    Examples
    --------
    >>> from fairdro.bench import BenchPlan
    >>> plan = BenchPlan(datasets=["compas"], methods=["scratch", "fairdro"], points=6)
    >>> [(bank.method.name, bank.method.points) for bank in plan.banks]
    [('scratch', 1), ('fairdro', 3)]
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
    grid: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    adaptive: bool | None = None
    data: str = ""
    encoder: str = ""
    size: int | None = None
    width: int | None = None
    soft: bool = False
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    precision: str | None = None

    def __post_init__(self) -> None:
        self._check_names()
        self._check_network()
        limits = {"points": (1, 1000), "seeds": (1, 1000), "split": (0, 2**32 - 1)}
        for name, (least, most) in limits.items():
            if not least <= getattr(self, name) <= most:
                raise InputError(f"{name} must lie between {least} and {most}, got {getattr(self, name)}.")
        self._check_grid()
        for kind in self._kinds:
            refusals = [engine.refuses(kind()) for engine in self.engines]
            if None not in refusals:
                raise InputError(str(refusals[0]))

    def _check_names(self) -> None:
        if "all" in self.methods and not self._everything:
            raise InputError("'all' stands for every method: name it alone.")
        for kind, given, known in (
            ("dataset", self.datasets, self._known_datasets()),
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

    def _check_grid(self) -> None:
        for name, values in self.grid.items():
            if name not in (known := [kind.name for kind in self._kinds]):
                raise unknown_name("method with a grid", name, known)
            get_method(name).grid(values)

    def _known_datasets(self) -> list[str]:
        """Name the datasets of the model, and those that :meth:`_check_network` has more to say about."""
        suitable = names("images", "texts") if self.model in models_for_networks() else names("table")
        return list(dict.fromkeys([*suitable, *(name for name in self.datasets if name in DATASETS or is_features(name))]))

    def _check_network(self) -> None:
        """Refuse a model that is not for the data, and settings that are not for the model."""
        networks = set(names("images", "texts")) & set(self.datasets)
        if self.model not in models_for_networks():
            if networks:
                told, model = ", ".join(sorted(networks)), " or ".join(models_for_networks())
                raise InputError(f"{told}: images and texts need a network, --model {model} and --data, or --last-layer.")
            self._check_table()
            return
        (dataset, *others) = self.datasets
        if not networks:
            tables = ", ".join(models_for_tables())
            raise InputError(f"{dataset} is a table, and {self.model} is for images and texts; use one of: {tables}.")
        if others:
            raise InputError(
                f"A network has one dataset, as it has one --data; bench {', '.join(others)} by another command."
            )
        if not self.data:
            raise InputError(f"Say with --data where the {DATASETS[dataset].kind} of {dataset} are.")
        if (self.model == ENCODER) != (self.encoder != "" and get_backbone(self.encoder).pretrained):
            raise InputError("--encoder, the name or folder of a pretrained network, goes with --model encoder.")
        if self.model == ENCODER and self.width is not None:
            raise InputError("An encoder has no width to choose; leave it out.")
        if DATASETS[dataset].kind == "texts" and (self.model != ENCODER or self.size is not None):
            told = (
                "has no size to choose; leave it out" if self.model == ENCODER else "needs --model encoder --encoder FOLDER"
            )
            raise InputError(f"{dataset} holds texts, and {told}.")
        if self.split != 0 or self.adaptive:
            raise InputError(
                f"{dataset} comes with its own parts, and networks with plain grids: leave out split and adaptive."
            )
        if self.protocol == "paper" and any(engine.fitted_held_out for engine in self.engines):
            raise InputError(
                "A head is fitted to a validation part, which the paper's protocol does not have; leave it out."
            )
        self._recipe  # noqa: B018 - refused where it cannot be

    def _check_table(self) -> None:
        """Refuse settings of networks where there are none; the mini-batch solver has epochs as well."""
        given = [name for name in OF_NETWORKS if getattr(self, name) not in (None, "", False)]
        if any(engine.solver == MINIBATCH for engine in self.engines):
            given = [name for name in given if name != "epochs"]
        if given:
            raise InputError(f"{', '.join(given)}: only for networks, on images and texts (epochs for mini-batches too).")
        if self.epochs is not None and self.epochs < 1:
            raise InputError(f"epochs must be a positive whole number, got {self.epochs}.")

    @property
    def _job(self) -> Job:
        given = {"size": self.size, "width": self.width, "model": self.encoder or None}
        chosen: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        return Job(self.datasets[0], Path(self.data), soft=self.soft, protocol=self.protocol, **chosen)

    @property
    def _recipe(self) -> Recipe:
        return self._job.recipe(epochs=self.epochs, batch_size=self.batch_size, lr=self.lr, precision=self.precision)

    @cached_property
    def network(self) -> Network | None:
        """The network to train, if it is one; its data are loaded."""
        if self.model not in models_for_networks():
            return None
        return Network.of(self._job, self._recipe)

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
        """The banks to begin with, in the order of the tables; a network with a head is stored as it is, too."""
        if self.network is not None:
            engine = max(self.engines, key=lambda engine: engine.fitted_held_out)
            whole = [self._bank(self.datasets[0], engine, kind) for kind in self._kinds]
            return tuple(
                replace(bank, method=bank.method.some([point]), seeds=(seed,), network=self.network)
                for seed in range(self.seeds)
                for bank in whole
                for point in range(bank.method.points)
            )
        return tuple(
            self._bank(dataset, engine, kind)
            for dataset, engine, kind in product(self.datasets, self.engines, self._kinds)
            if engine.refuses(kind()) is None
        )

    def check(self) -> None:
        """Load the data, and refuse a class or a method that was named but does not fit them or the model."""
        for dataset in self.datasets if self.fair_classes else ():
            class_codes(self.fair_classes, np.array(self._class_names(dataset)))
        if self._everything:
            return  # what does not fit is reported in the results
        for bank in self.banks:
            if (reason := bank.refusal()) is not None:
                raise InputError(reason)

    def _class_names(self, dataset: str) -> list[str]:
        return (known_dataset(dataset) if self.network is None else self.network.examples).class_names

    def second_banks(self, first: Mapping[Bank, pd.DataFrame]) -> list[Bank]:
        """Return banks that fill the holes of the first ones, given the rows of their models."""
        return [self._fill(bank, rows) for bank, rows in first.items() if self.is_filled(bank)]

    def is_filled(self, bank: Bank) -> bool:
        """Whether a second bank fills the holes of this one's frontier."""
        return self._is_adaptive(bank.method, bank.engine)

    def _is_adaptive(self, method: Method | type[Method], engine: Engine) -> bool:
        wanted = not engine.seeded if self.adaptive is None else self.adaptive
        return wanted and method.name not in self.grid and len(method.search) == 1 and self.points >= FEWEST_TO_DIVIDE

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
            given["fair_classes"] = class_codes(self.fair_classes, np.array(self._class_names(dataset)))
        if self.network is not None:
            given |= self.network.hyperparameters(kind)
        fixed = engine.hyperparameters(kind, given)
        points = -(-self.points // 2) if self._is_adaptive(kind, engine) else self.points
        seeds = tuple(range(self.seeds)) if engine.seeded else (0,)
        method = kind.grid(self.grid[kind.name], **fixed) if kind.name in self.grid else kind.sweep(points, **fixed)
        fair, solver = tuple(self.fair_classes), engine.solver
        epochs = self.epochs if solver == MINIBATCH else None
        return Bank(dataset, method, self.model, solver, seeds, self.protocol, self.split, self.objective, fair, epochs)
