"""A bank: what is trained together, and stored as one file."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np

from fairdro._utils.hashing import digest
from fairdro.bench.network import Network
from fairdro.data import Dataset, Examples, load_dataset
from fairdro.methods import Method, get_method
from fairdro.metrics import class_codes
from fairdro.training.engines import ENGINES, NETWORK, Engine, get_engine

BENCH = ["dataset", "model", "network", "solver", "protocol", "split", "objective", "fair_classes"]
ALL = "all"
NO_NETWORK = "-"  # an empty string would be read from results.csv as a missing value


@cache
def known_dataset(name: str) -> Dataset:
    """Return a dataset that many banks ask for; not to be changed."""
    return load_dataset(name)


@dataclass(frozen=True)
class Bank:
    """One method over its grid and its seeds, on one split of one dataset: what is trained together.

    Attributes
    ----------
    dataset : str
        Its name.
    method : Method
        With one value or several of its hyperparameters.
    model, solver : str
        Names; by default linear models and the full-batch solver.
    seeds : tuple of int
        Of initial weights and batches.
    protocol : {"validated", "paper"}
        How the data are split.
    split : int
        Seed of the split; 0 is the paper's.
    objective : {"balanced", "standard"}
        That of the bench it belongs to.
    fair_classes : tuple of str
        Names of the classes that gaps are about, where these are not all.
    epochs : int, optional
        Of the mini-batch solver, where they are not the paper's.
    network : Network, optional
        What is trained from end to end on images or texts: one point and one seed.

    Examples
    --------
    >>> from fairdro.bench import Bank
    >>> from fairdro.methods import FairDRO
    >>> bank = Bank("compas", FairDRO(rho=(0.0, 1.0)))
    >>> str(bank), bank.method.points, bank.refusal() is None
    ('compas / fairdro / linear / fullbatch', 2, True)
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
    epochs: int | None = None
    network: Network | None = None

    def __str__(self) -> str:
        told = f"{self.dataset} / {self.method.name} / {self.model} / {self.solver}"
        if self.network is None:
            return told
        point = self.method.hyperparameters(0)
        shown = [f"{name} = {point[name]:.3g}" for name in self.method.search]
        return " / ".join([told, *shown, f"seed {self.seeds[0]}"])

    def spec(self) -> dict[str, Any]:
        """Return the bank as plain data, from which :meth:`from_spec` makes it again."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in {"network", "epochs"}}
        hyperparameters = {f.name: getattr(self.method, f.name) for f in fields(self.method)}
        network = {} if self.network is None else {"network": self.network.spec()}
        epochs = {} if self.epochs is None else {"epochs": self.epochs}
        return {**values, "method": self.method.name, "hyperparameters": hyperparameters, **network, **epochs}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Bank:
        """Make a bank from plain data.

        Parameters
        ----------
        spec : dict of str to Any
            What :meth:`spec` returned.
        """
        rest = {key: value for key, value in spec.items() if key not in {"method", "hyperparameters"}}
        method = get_method(spec["method"])(**spec["hyperparameters"])
        tuples = {name: tuple(spec[name]) for name in ("seeds", "fair_classes")}
        network = Network(**spec["network"]) if "network" in spec else None
        return cls(**{**rest, "method": method, **tuples, "network": network})

    @property
    def bench(self) -> dict[str, Any]:
        """What it shares with the banks that it is compared with."""
        epochs = NO_NETWORK if self.epochs is None else f"{self.epochs} epochs"
        told = {"fair_classes": ", ".join(self.fair_classes) or ALL, "network": str(self.network or epochs)}
        return {name: getattr(self, name) for name in BENCH} | told

    def fair_codes(self, class_names: list[str]) -> tuple[int, ...] | None:
        """Return the codes of the classes that gaps are about; None for all.

        Parameters
        ----------
        class_names : list of str
            Of all classes.
        """
        return class_codes(self.fair_classes or None, np.array(class_names))

    @property
    def id(self) -> str:
        """Name made from the bank's content, the data and the version of the package."""
        data = known_dataset(self.dataset).fingerprint if self.network is None else self.network.content
        return digest(self.spec(), data, metadata.version("fairdro"))[:20]

    @property
    def data(self) -> Dataset | Examples:
        """What it is trained and judged on."""
        return known_dataset(self.dataset) if self.network is None else self.network.examples

    @property
    def without_head(self) -> Bank:
        """The same network as it is."""
        return replace(self, solver=NETWORK)

    @property
    def engine(self) -> Engine:
        """What trains it."""
        return get_engine(self.model, self.solver)

    @property
    def cost(self) -> float:
        """Rough relative cost of training."""
        if self.network is not None:
            return self.engine.cost * self.network.cost(self.method)
        rounds = self.method.rounds + (self.method.teacher() is not None)
        models = 1 + len(self.seeds) * self.method.points / 40
        return len(known_dataset(self.dataset)) * rounds * self.engine.cost * models

    def refusal(self) -> str | None:
        """Say why the method cannot be trained on this data with this model, if so."""
        if self.network is not None:
            return self.engine.refusal(self.method, self.data.cells.counts)
        dataset = known_dataset(self.dataset)
        held_out = self.protocol == "validated" and "validation" in (dataset.parts or {})
        if self.engine.fitted_held_out and dataset.trained and not held_out:
            return (
                "A head on a trained network needs rows it has not seen: train it, and bench it, with --protocol validated."
            )
        return self.engine.refusal(self.method, dataset.cells.counts)
