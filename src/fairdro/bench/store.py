"""Where results live: one file per bank, there whole or not at all.

A file holds the bank's description, the confusion tensors of its models and their history, so that every metric, table and
picture can be made again without training. It is written beside its place, flushed to the disk and moved there: a process
killed at any moment leaves the files of all finished banks, and two processes on one folder can only write the same file
twice.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import safetensors.numpy
from safetensors import SafetensorError

from fairdro._utils.files import write_whole
from fairdro._utils.hashing import digest
from fairdro._utils.schema import NotNegative, Positive, Scalar, Whole, array, checked
from fairdro.bench.bank import BENCH, Bank
from fairdro.errors import InputError
from fairdro.methods import METHODS
from fairdro.metrics import Confusion, cell_accuracy, metric_table, wilson_interval
from fairdro.training import Trained

RESULTS = "results.csv"
FORMAT = "3"  # of the files; raise it when they change
MODEL = ["model", "network", "solver"]  # what may differ between benches that are compared
KEY = [*BENCH, "method", "hyperparameters", "seed"]
PART = "confusion/"
MOMENTS = 200  # kept of a history: all of one training, since q may swing from one epoch to the next
SPEC: dict[str, Any] = {
    **dict.fromkeys(("dataset", "method", "model", "solver"), str),
    "protocol": Literal["validated", "paper"],
    "objective": Literal["balanced", "standard"],
    "split": Whole,
    "seeds": list[Whole],
    "fair_classes": list[str],
    "hyperparameters": dict[str, Scalar | list[Scalar]],
}
NETWORK: dict[str, Any] = {
    **dict.fromkeys(("content", "encoder"), str),
    **dict.fromkeys(("size", "width"), Whole | None),
    **dict.fromkeys(("epochs", "batch_size"), Whole),
    "soft": bool,
    "lr": Positive,
}
TOLD: dict[str, Any] = {
    "bank": dict[str, Any],
    "refused": str | None,
    "seconds": NotNegative,
    "class_names": list[str],
    "group_names": list[str],
}
TENSORS: dict[str, Any] = {
    f"{PART}test": array("S", "P", "Y", "A", "Y", least=0),
    "diverged": array("S", "P", dtype=bool),
    "weights": array("T", "S", "P", "Y", "A", finite=False),  # of a network that diverged
    "accuracy": array("T", "S", "P", "Y", "A", finite=False),
    "progress": array("T"),
}
OTHER_PARTS: dict[str, Any] = {f"{PART}{part}": TENSORS[f"{PART}test"] for part in ("train", "validation")}


@dataclass(frozen=True)
class Outcome:
    """What came of a bank; where it was ``refused``, there is nothing but the reason.

    Attributes
    ----------
    bank : Bank
        What was trained.
    refused : str, optional
        Why it could not be.
    seconds : float
        Wall time of the whole bank.
    diverged : ndarray of bool, shape (S, P)
        Models that are not to be used.
    confusion : dict of str to ndarray of shape (S, P, Y, A, Y)
        Counts on the ``test`` and ``train`` parts, and on the ``validation`` part where there is one.
    weights, accuracy : ndarray of shape (T, S, P, Y, A)
        Cell weights and training accuracy per cell at the shares ``progress`` (T,) of training.
    progress : ndarray of shape (T,)
        These shares.
    class_names, group_names : list of str
        Of the data.

    See Also
    --------
    run_bank : Makes one.

    Examples
    --------
    >>> from fairdro.bench import Bank, run_bank
    >>> from fairdro.methods import Scratch
    >>> outcome = run_bank(Bank("compas", Scratch()))
    >>> outcome.confusion["test"].shape, len(outcome.rows)
    ((1, 1, 2, 2, 2), 1)
    >>> outcome.judged[0].group_names
    ['Non-Caucasian', 'Caucasian']
    """

    bank: Bank
    refused: str | None = None
    seconds: float = 0.0
    diverged: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))
    confusion: dict[str, np.ndarray] = field(default_factory=dict)
    weights: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    accuracy: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    progress: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    class_names: list[str] = field(default_factory=list)
    group_names: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, bank: Bank, trained: Trained, confusion: dict[str, np.ndarray]) -> Self:
        """Return what came of a bank that was trained and judged.

        Parameters
        ----------
        bank : Bank
            What was trained.
        trained : Trained
            What its engine returned.
        confusion : dict of str to ndarray of shape (S, P, Y, A, Y)
            Counts by part of the data.
        """
        weights, accuracy = trained.history.weights, trained.history.accuracy
        moments = np.unique(np.linspace(0, len(weights) - 1, MOMENTS).round().astype(int))
        return cls(
            bank,
            seconds=trained.seconds,
            diverged=trained.diverged.numpy(),
            confusion=confusion,
            weights=weights[moments].float().numpy(),
            accuracy=accuracy[moments].float().numpy(),
            progress=((moments + 1) / len(weights)).astype(np.float32),
            class_names=bank.data.class_names,
            group_names=bank.data.groups.names,
        )

    @cached_property
    def rows(self) -> pd.DataFrame:
        """A row per trained model, seed by seed, with all metrics; those of other parts than ``test`` have its name."""
        bank, method = self.bank, self.bank.method
        rows = pd.DataFrame(
            [
                {
                    **bank.bench,
                    "method": method.name,
                    "hyperparameters": json.dumps(method.hyperparameters(point)),
                    "seed": seed,
                    "diverged": bool(self.diverged[s, point]),
                    "seconds": self.seconds / self.diverged.size,
                }
                for s, seed in enumerate(bank.seeds)
                for point in range(method.points)
            ]
        )
        metrics = [
            metric_table(counts.reshape(-1, *counts.shape[2:]), self.fair).add_prefix("" if part == "test" else f"{part}_")
            for part, counts in self.confusion.items()
        ]
        return pd.concat([rows, *metrics], axis=1)

    def with_seeds(self, others: Sequence["Outcome"]) -> "Outcome":
        """Return it together with what came of the same models with other seeds; the history is its own.

        Parameters
        ----------
        others : sequence of Outcome
            With those seeds.
        """
        every = [self, *others]
        seeds = tuple(seed for outcome in every for seed in outcome.bank.seeds)
        return replace(
            self,
            bank=replace(self.bank, seeds=seeds),
            seconds=sum(outcome.seconds for outcome in every),
            diverged=np.concatenate([outcome.diverged for outcome in every]),
            confusion={part: np.concatenate([o.confusion[part] for o in every]) for part in self.confusion},
        )

    @cached_property
    def judged(self) -> list[Confusion]:
        """How every point predicts the test part, with the first seed; soft groups have no intervals."""
        counts = self.confusion["test"][0]
        whole = np.array_equal(counts, counts.round())
        return [Confusion(one, self.class_names, self.group_names, whole, self.fair) for one in counts]

    @property
    def fair(self) -> tuple[int, ...] | None:
        """Codes of the classes that gaps are about; None for all."""
        return self.bank.fair_codes(self.class_names)

    @cached_property
    def cells(self) -> dict[str, np.ndarray]:
        """Test accuracy of every cell ``(P, Y, A)``, mean over seeds, and both ends of Wilson's 95 % interval."""
        counts = self.confusion["test"]
        accuracy = cell_accuracy(counts).mean(0)
        low, high = wilson_interval(accuracy, counts.sum(-1).mean(0))
        return {"accuracy": accuracy, "low": low, "high": high}

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        tensors = {f"{PART}{part}": np.ascontiguousarray(counts) for part, counts in self.confusion.items()}
        tensors |= {"diverged": self.diverged, "weights": self.weights, "accuracy": self.accuracy, "progress": self.progress}
        told = {name: getattr(self, name) for name in ("refused", "seconds", "class_names", "group_names")}
        about = {key: json.dumps(value) for key, value in {"bank": self.bank.spec(), **told}.items()}
        about["format"] = FORMAT
        about["checksum"] = _checksum(tensors, about)
        return safetensors.numpy.save(tensors, about)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read a file, None if it is of another format; say in a sentence if it is damaged.

        Parameters
        ----------
        path : Path
            Of the file.
        """
        try:
            with safetensors.safe_open(path, "numpy") as file:
                about = dict(file.metadata() or {})
                if about.get("format") != FORMAT:
                    return None
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
            if about.pop("checksum") != _checksum(tensors, about):
                raise ValueError("its checksum is wrong")  # noqa: TRY301 - one sentence for every kind of damage
            told: dict[str, Any] = checked(TOLD, {key: json.loads(value) for key, value in about.items() if key != "format"})
            spec = checked(SPEC, told["bank"], optional={"network": dict[str, Any], "epochs": Whole})
            if "network" in spec:
                checked(NETWORK, spec["network"], optional={"precision": Literal["float32", "bfloat16"]})
            told["bank"] = bank = Bank.from_spec(spec)
            bank.engine  # noqa: B018 - known, or refused
            if told["refused"] is not None:
                return cls(bank, refused=told["refused"])
            sizes = {"S": len(bank.seeds), "P": bank.method.points, "Y": len(told["class_names"])}
            parts = checked(TENSORS, tensors, optional=OTHER_PARTS, A=len(told["group_names"]), **sizes)
            confusion = {key.removeprefix(PART): parts.pop(key) for key in list(parts) if key.startswith(PART)}
            return cls(**told, **parts, confusion=confusion)
        except (SafetensorError, KeyError, ValueError, TypeError, OSError, OverflowError, RecursionError) as error:
            advice = "delete that file and run the bench again to train it anew"
            raise InputError(f"The stored bank {path} is damaged ({error}); {advice}.") from error


class Store:
    """The banks stored in the subfolder ``store`` of the output folder of a bench.

    Parameters
    ----------
    out : Path
        Folder of the bench.

    Attributes
    ----------
    out, folder : Path
        That folder, and its subfolder with the banks.

    Examples
    --------
    >>> from pathlib import Path
    >>> from fairdro.bench import BenchPlan, Store, run_bench
    >>> plan = BenchPlan(datasets=["compas"], methods=["scratch", "fairdro"], points=3)
    >>> _ = run_bench(plan, Path("results"))
    >>> store = Store(Path("results"))
    >>> len(store.outcomes()), store.outdated
    (2, 0)
    >>> len(store.results())
    4
    """

    def __init__(self, out: Path) -> None:
        self.out, self.folder = out, out / "store"
        self._read: dict[str, Outcome] = {}

    @property
    def outdated(self) -> int:
        """How many banks are of another version of the package or of other data, and left out."""
        stored = self._all()
        return sum(name not in stored or not self._current(name, stored[name]) for name in self._names())

    def __contains__(self, bank: Bank) -> bool:
        return self.read(bank) is not None

    def read(self, bank: Bank) -> Outcome | None:
        """Return what came of a bank, None if it is not stored.

        Parameters
        ----------
        bank : Bank
            Of a plan.
        """
        path = self._path(bank)
        return self._read.get(path.name) or (Outcome.read(path) if path.exists() else None)

    def write(self, outcome: Outcome) -> None:
        """Store what came of a bank.

        Parameters
        ----------
        outcome : Outcome
            What came of it.
        """
        write_whole(self._path(outcome.bank), outcome.to_bytes())

    def outcomes(self) -> list[Outcome]:
        """Return what is stored, in the order of the tables."""
        return sorted((o for name, o in self._all().items() if self._current(name, o)), key=_place)

    def _all(self) -> dict[str, Outcome]:
        """Read what was not read before; files of another format are passed over."""
        for name in self._names():
            if name not in self._read and (outcome := Outcome.read(self.folder / name)) is not None:
                self._read[name] = outcome
        return self._read

    def _names(self) -> list[str]:
        try:
            return sorted(path.name for path in self.folder.glob("*.safetensors"))
        except OSError as error:
            raise InputError(f"Cannot read {self.folder}: {error.strerror}.") from error

    def _current(self, name: str, outcome: Outcome) -> bool:
        return name == self._path(outcome.bank).name

    def rows_of(self, banks: Iterable[Bank]) -> dict[Bank, pd.DataFrame]:
        """Return the rows of the models of those banks that are stored and were not refused.

        Parameters
        ----------
        banks : iterable of Bank
            Of a plan.
        """
        trained = {outcome.bank: outcome for outcome in self.outcomes() if outcome.refused is None}
        return {bank: trained[bank].rows for bank in banks if bank in trained}

    def results(self) -> pd.DataFrame:
        """Return a row per trained model; a model that is in two banks counts once.

        Returns
        -------
        DataFrame
        """
        tables = [outcome.rows for outcome in self.outcomes() if outcome.refused is None]
        if not tables:
            raise InputError(f"There are no results in {self.out}; run `fairdro bench` with --out on it first.")
        return pd.concat(tables, ignore_index=True).drop_duplicates(KEY, ignore_index=True)

    def write_results(self, results: pd.DataFrame) -> None:
        """Write ``results.csv``, with what :meth:`results` returned.

        Parameters
        ----------
        results : DataFrame
            What :meth:`results` returned.
        """
        write_whole(self.out / RESULTS, results.to_csv(index=False))

    def refused(self) -> pd.DataFrame:
        """Return which method could not be trained in which bench, and why.

        Returns
        -------
        DataFrame
        """
        rows = [
            {**o.bank.bench, "method": o.bank.method.name, "reason": o.refused}
            for o in self.outcomes()
            if o.refused is not None
        ]
        return pd.DataFrame(rows, columns=[*BENCH, "method", "reason"]).drop_duplicates(ignore_index=True)

    def _path(self, bank: Bank) -> Path:
        return self.folder / f"{Path(bank.dataset).stem}-{bank.method.name}-{bank.solver}-{bank.id}.safetensors"


def _place(outcome: Outcome) -> tuple[object, ...]:
    bank = outcome.bank
    rank = list(METHODS).index(bank.method.name)
    return *bank.bench.values(), rank, json.dumps(bank.spec())


def _checksum(tensors: dict[str, np.ndarray], about: dict[str, str]) -> str:
    keys = sorted(tensors)
    return digest(about, keys, *(tensors[key] for key in keys))
