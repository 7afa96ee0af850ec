"""What options have in common: only those that were given count, and a shell completes names.

An option that is not given is None, and what it stands for is decided where it is used, by the default in Python.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from fairdro.errors import InputError

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}

Files = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help="Table in CSV or Parquet: a file, several, or a folder of them.")
]
Memory = Annotated[
    str | None,
    typer.Option(help="Memory that may be used, e.g. 4GB; by default half of the machine's. Larger tables stay on disk."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
KeepAccuracy = Annotated[
    float | None, typer.Option(help="Share of plain training's accuracy to keep on held-out rows; by default 0.95.")
]
KeepClassAccuracy = Annotated[
    float | None,
    typer.Option(help="Share of plain training's accuracy that every class keeps, where that can be; by default 0.8."),
]
Floor = Annotated[float | None, typer.Option(help="Likewise, accuracy of the worst class and group.")]
Objective = Annotated[
    str | None,
    typer.Option(help="What to keep: 'balanced' accuracy over classes and groups, the default, or 'standard', of all rows."),
]
ClassWeight = Annotated[
    list[str] | None,
    typer.Option(help="What errors on a class cost: 'denied=5'; give several. Or 'balanced': classes count the same."),
]
FairClass = Annotated[
    list[str] | None,
    typer.Option(help="Class whose accuracy is to be equal over groups, e.g. approvals only; by default all classes."),
]
Certify = Annotated[
    float | None,
    typer.Option(
        help="Share of rows to set aside, e.g. 0.2: they neither train nor choose the model, and certify its gaps."
    ),
]
CertifiedDca = Annotated[
    float | None,
    typer.Option(help="Choose the most accurate radius whose DCA is certified to be at most so much, e.g. 0.05."),
]
Delta = Annotated[
    float | None, typer.Option(help="Probability with which a certificate may be wrong; by default 0.05: 95 % confidence.")
]
MissingGroups = Annotated[
    str | None,
    typer.Option(help="Where a group is missing: 'group' of its own (the default), 'infer', 'ignore' or 'refuse'."),
]
BatchSize = Annotated[int | None, typer.Option(help="Likewise: 128, for texts 24.")]
LearningRate = Annotated[float | None, typer.Option(help="Likewise: 0.001, for texts 0.00002.")]
Precision = Annotated[
    str | None,
    typer.Option(help="Of networks: 'float32' or 'bfloat16'; by default bfloat16 on a GPU, float32 elsewhere."),
]
Size = Annotated[int | None, typer.Option(help="Side of images in pixels; by default 224.")]
Width = Annotated[int | None, typer.Option(help="Channels of resnet18's first layer; by default 64.")]
Soft = Annotated[bool | None, typer.Option("--soft", help="Texts belong to groups in shares.")]

NAMES: dict[str, tuple[str, Callable[[Any], Iterable[str]]]] = {
    "method": ("methods", lambda methods: methods.METHODS),
    "model": ("training.engines", lambda engines: engines.models_for_tables()),
    "network": ("training.engines", lambda engines: engines.models_for_networks()),
    "solver": ("training.engines", lambda engines: {e.solver: None for e in (*engines.ENGINES, *engines.NETWORKS)}),
    "estimator": ("estimators.tables", lambda tables: tables.ESTIMATORS),
    "table": ("data", lambda data: data.names("table")),
    "images or texts": ("data", lambda data: data.names("images", "texts")),
    "published": ("data", lambda data: [name for name, entry in data.DATASETS.items() if entry.check is not None]),
}


def memory_of(text: str | None) -> int:
    """Return bytes, of a number with a unit; by default half of what the machine has."""
    if text is None:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 if hasattr(os, "sysconf") else 4 * UNITS["GB"]
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?B)", text.strip().upper())
    if found is None or float(found[1]) == 0:
        raise InputError(f"--memory takes a number with its unit, such as 500MB or 4GB; got {text!r}.")
    return int(float(found[1]) * UNITS[found[2]])


def given_of(**options: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value not in (None, [])}


def known(*kinds: str) -> list[str]:
    """Return the names of some kinds; what registers them is loaded now, which takes a while."""
    found: list[str] = []
    for module, names in (NAMES[kind] for kind in kinds):
        found += names(import_module(f"fairdro.{module}"))
    return found


def complete(*kinds: str, several: bool = False, also: Iterable[str] = ()) -> Callable[[str], list[str]]:
    """Return what completes a name, or the last of several that are separated by commas."""

    def completed(incomplete: str) -> list[str]:
        before, comma, start = incomplete.rpartition(",") if several else ("", "", incomplete)
        given = before.split(",")
        return [before + comma + name for name in [*known(*kinds), *also] if name.startswith(start) and name not in given]

    return completed
