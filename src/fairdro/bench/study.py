"""A study in a file: benches that belong together, described in TOML.

out = "results"            # where to
workers = 2                # optional
cluster = "tcp://scheduler:8786"  # optional, of Dask, instead of workers
select = "keep-accuracy=0.95"  # optional
keep_class_accuracy = 0.8  # optional, as floor: the guard against levelling down

[[bench]]
datasets = ["adult", "compas"]
methods = ["all"]
solvers = ["minibatch"]
points = 12

[[bench]]
datasets = ["utkface"]
model = "resnet18"         # a network, from end to end
data = "UTKFace"           # where its images are
solvers = ["network", "network+head"]

A bench has the options of :class:`~fairdro.bench.BenchPlan`.
"""

import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import joblib
import torch

from fairdro.bench.plan import BenchPlan
from fairdro.bench.tables import DEFAULT_GUARD, PAPER_RULE
from fairdro.errors import InputError
from fairdro.selection import Guard, Rule, points_rule_from

KINDS: dict[str, tuple[Any, str]] = {
    "list[str]": (list, 'a list of names, for example ["adult"]'),
    "str": (str, "text in quotes"),
    "str | None": (str, "text in quotes"),
    "int": (int, "a whole number"),
    "int | None": (int, "a whole number"),
    "dict[str, dict[str, list[float]]]": (dict, "a table of tables, for example { fairdro = { rho = [0.1, 0.3] } }"),
    "bool": (bool, "true or false"),
    "bool | None": (bool, "true or false"),
    "float": (float | int, "a number, for example 0.8"),
    "float | None": (float | int, "a number, for example 0.001"),
}
PLAN_KINDS = {f.name: str(f.type) for f in fields(BenchPlan)}
STUDY_KINDS = {
    "out": "str",
    "workers": "int",
    "cluster": "str",
    "select": "str",
    "keep_class_accuracy": "float",
    "floor": "float",
}


@dataclass(frozen=True)
class Study:
    """Benches that share a folder, the number of worker processes or a cluster, the selection rule and its guard.

    Attributes
    ----------
    plans : list of BenchPlan
        The benches.
    out : Path
        Their folder.
    workers : int, optional
        Processes; by default one per core or GPU, or one where training uses all cores by itself.
    rule : Rule
        By default the paper's.
    guard : Guard
        Against levelling down.
    cluster : str, optional
        Address of a Dask scheduler, instead of workers.

    See Also
    --------
    read_study : Reads one.

    Examples
    --------
    >>> from fairdro.bench import BenchPlan, Study
    >>> study = Study([BenchPlan(datasets=["compas"])])
    >>> study.out, study.workers_for(study.plans[0])
    (PosixPath('results'), 1)
    """

    plans: list[BenchPlan]
    out: Path = Path("results")
    workers: int | None = None
    rule: Rule = PAPER_RULE
    guard: Guard = DEFAULT_GUARD
    cluster: str | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InputError(f"workers must be at least 1, got {self.workers}.")

    def workers_for(self, plan: BenchPlan) -> int:
        """Return how many processes train a plan: one where it uses all cores by itself, else one per core or GPU.

        Parameters
        ----------
        plan : BenchPlan
            One of the study's.
        """
        if self.workers is not None:
            return self.workers
        if torch.cuda.is_available() and plan.network is not None:
            return torch.cuda.device_count()
        return 1 if all(engine.parallel for engine in plan.engines) else joblib.cpu_count()


class _Lines:
    """Finds the line of an option, so that a message can name it."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.lines = path, text.splitlines()
        self.headers = [i for i, line in enumerate(self.lines) if re.match(r"\s*\[\[\s*bench\s*\]\]", line)]

    def error(self, key: str | None, number: int | None, sentence: str) -> InputError:
        """Return the error for an option of the study, or of one of its benches."""
        start = 0 if number is None or number >= len(self.headers) else self.headers[number]
        found = start
        if key is not None:
            pattern = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*=""")
            found = next((i for i in range(start, len(self.lines)) if pattern.match(self.lines[i])), start)
        return InputError(f"{self.path}, line {found + 1}: {sentence}")


def read_study(path: Path) -> Study:
    r"""Read a study, or say which line is wrong.

    Parameters
    ----------
    path : Path
        A TOML file.

    Returns
    -------
    Study

    Examples
    --------
    >>> from pathlib import Path
    >>> from fairdro.bench import read_study
    >>> lines = 'select = "max-dca=0.05"', "[[bench]]", 'datasets = ["compas"]', 'methods = ["scratch", "fairdro"]'
    >>> _ = Path("study.toml").write_text("\n".join(lines))
    >>> study = read_study(Path("study.toml"))
    >>> study.rule, study.plans[0].methods
    (LimitDCA(max_dca=0.05), ['scratch', 'fairdro'])
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file.") from error
    except (ValueError, RecursionError) as error:  # TOML's own errors, and numbers or nesting beyond what Python reads
        raise InputError(f"{path} is not valid TOML: {error}.") from error
    lines = _Lines(path, text)
    benches = content.pop("bench", [])
    if not isinstance(benches, list) or not benches or not all(isinstance(bench, dict) for bench in benches):
        raise InputError(f"{path} describes no bench; begin each with a line [[bench]].")
    _check(content, STUDY_KINDS, lines, None)
    try:
        rule = points_rule_from(content["select"]) if "select" in content else Study.rule
    except InputError as error:
        raise lines.error("select", None, str(error)) from error
    if content.get("workers", 1) < 1:
        raise lines.error("workers", None, f"workers must be at least 1, got {content['workers']}.")
    if "out" in content and not content["out"].strip():
        raise lines.error("out", None, "out must name a folder.")
    plans = [_plan(bench, lines, number) for number, bench in enumerate(benches)]
    out, guard = Path(content.get("out", Study.out)), _guard(content, lines)
    return Study(plans, out, content.get("workers"), rule, guard, content.get("cluster"))


def _guard(content: dict[str, Any], lines: _Lines) -> Guard:
    given = {key: content[key] for key in ("keep_class_accuracy", "floor") if key in content}
    try:
        return Guard(**given)
    except InputError as error:
        raise lines.error(str(error).split()[0], None, str(error)) from error


def _plan(bench: dict[str, Any], lines: _Lines, number: int) -> BenchPlan:
    _check(bench, PLAN_KINDS, lines, number)
    try:
        plan = BenchPlan(**bench)
        plan.check()
    except InputError as error:
        raise lines.error(_culprit(bench, str(error)), number, str(error)) from error
    return plan


def _culprit(bench: dict[str, Any], message: str) -> str | None:
    """Return the first option without which the bench would not be wrong in this way."""
    for key in bench:
        try:
            BenchPlan(**{k: value for k, value in bench.items() if k != key}).check()
        except InputError as error:
            if str(error) == message:
                continue
        return key
    return None


def _check(section: dict[str, Any], kinds: dict[str, str], lines: _Lines, number: int | None) -> None:
    for key, value in section.items():
        if key not in kinds:
            raise lines.error(key, number, f"there is no option {key!r}; choose one of: {', '.join(kinds)}.")
        kind, wanted = KINDS[kinds[key]]
        right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if not right or (kind is list and not all(isinstance(item, str) for item in value)):
            raise lines.error(key, number, f"{key} must be {wanted}, got {value!r}.")
        if kind is dict and not all(isinstance(item, dict) for item in value.values()):
            raise lines.error(key, number, f"{key} must be {wanted}, got {value!r}.")
