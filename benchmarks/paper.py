"""Write docs/paper.md and its pictures from the results in benchmarks/results; no training.

python benchmarks/paper.py

The text is benchmarks/paper.md, where {{names}} stand for what is computed here. The results are those of
benchmarks/reproduction.py and benchmarks/deep.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import deep
import numpy as np
import pandas as pd
from reproduction import COMPONENTS, DATASETS, JUMPING, MAIN, MODELS, SETS, TRAINING, of

from fairdro._utils.markdown import markdown_table
from fairdro.bench.bank import NO_NETWORK, known_dataset
from fairdro.bench.figures import frontier_chart, history_chart
from fairdro.bench.tables import over_seeds, paper_results, select
from fairdro.frontier import convex_envelope
from fairdro.metrics import METRICS

HERE = Path(__file__).parent
DOCS, TEXT = HERE.parent / "docs", HERE / "paper.md"
NAME = re.compile(r"\{\{(\w+)\}\}")
CLASSES = ["did not re-offend", "re-offended"]  # 0 and 1 of COMPAS
MEASURES = {"weight": "weight q", "train_accuracy": "training accuracy (%)", "test_accuracy": "test accuracy (%)"}


def main() -> None:
    """Write the page."""
    (DOCS / "paper.md").write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the whole page, and draw its pictures."""
    models, kept = pd.read_csv(MODELS), deep.kept()
    points, standard = (titled(over_seeds(of(models, objective))) for objective in ("balanced", "standard"))
    chosen, chosen_standard = select(points), select(standard)
    networks = select(deep.points_of(kept[kept["solver"] == "network"]))
    features = kept[kept["dataset"].str.endswith("-64") & (kept["solver"] == "minibatch") & (kept["split"] == 0)]
    images = titled(deep.points_of(features)).assign(network=NO_NETWORK)
    on_images = select(images)
    parts = {
        "fairest": "; ".join(fairest(chosen, MAIN, where) for where in map(deep.PROBLEMS.get, DATASETS)),
        "below": below(points, MAIN),
        "faces": fairest(networks, MAIN, "utkface"),
        "paper_compas": paper_pair("compas", "fairdro"),
        "paper_faces": paper_fairest("utkface"),
        "paper_comments": paper_fairest("civilcomments"),
        "paper_celeba": paper_fairest("celeba"),
        "below_images": below(images[images["model"] == "linear"], MAIN),
        "below_ablations": below(points, COMPONENTS),
        "balanced_better": balanced_better(chosen, chosen_standard),
        "below_standard": below(standard, MAIN),
        "ordinary": ordinary(chosen, chosen_standard),
        "majority": f"{100 * majority_share():.1f}",
    }
    for name, where in (("wo_classwise", "adult"), ("wo_classwise", "compas"), ("wo_smoothing", "compas")):
        parts[f"paper_{name}_{where}"] = paper_pair(where, f"fairdro_{name}")
    parts |= {f"paper_{name}_utkface": paper_pair("utkface", name) for name in ("rvp", "fairdro")}
    draw_frontiers(points, chosen, COMPONENTS, "ablations")
    draw_frontiers(standard, chosen_standard, MAIN, "standard")
    linear, celeba = [], []
    for frame in (images, on_images):
        ablated = frame[frame["dataset"].isin(["UTKFace, features", "HateXplain, features"]) & (frame["model"] == "linear")]
        linear.append(ablated.sort_values("dataset", ascending=False, kind="stable"))
        faces = frame[frame["dataset"] == "CelebA, features"]
        celeba.append(faces.assign(dataset=faces["dataset"] + ", " + faces["model"], model=NO_NETWORK))
    draw_frontiers(*linear, COMPONENTS, "ablations-features")
    draw_frontiers(*celeba, MAIN, "celeba")
    parts["below_features"], parts["below_celeba"] = below(linear[0], COMPONENTS), below(celeba[0], MAIN)
    trained = {
        ("adult", "Adult"): chosen[chosen["dataset"] == "Adult"],
        ("compas", "COMPAS"): chosen[chosen["dataset"] == "COMPAS"],
        ("utkface", "UTKFace, network"): networks[networks["dataset"] == "utkface"],
        ("utkface", "UTKFace, linear"): linear[1][linear[1]["dataset"] == "UTKFace, features"],
        ("celeba", "CelebA, linear"): celeba[1][celeba[1]["dataset"] == "CelebA, features, linear"],
        ("celeba", "CelebA, mlp"): celeba[1][celeba[1]["dataset"] == "CelebA, features, mlp"],
    }
    parts["tables"] = tables(trained)
    parts |= unseen_charges()
    gap = celeba[1].query("method == 'fairdro'").set_index("dataset").loc["CelebA, features, mlp"]
    parts |= {"celeba_train": f"{100 * gap['train_dca']:.1f}", "celeba_test": f"{100 * gap['dca']:.1f}"}
    parts["celeba"] = "; ".join(fairest(celeba[1], MAIN, where) for where in dict.fromkeys(celeba[1]["dataset"]))
    on_adult = chosen[chosen["dataset"] == deep.PROBLEMS["adult"]].set_index("method")
    parts |= {f"{name}_adult": pair(on_adult.loc[name]) for name in ("fairdro", "fairdro_nonnegative")}
    parts |= training_parts(pd.read_csv(TRAINING), points, chosen)
    return filled(TEXT.read_text(encoding="utf-8"), parts)


def filled(text: str, parts: dict[str, str]) -> str:
    """Put all parts in the place of their {{names}}; a name without a part, or a part that is not used, is an error."""
    named = set(NAME.findall(text))
    if named != parts.keys():
        raise SystemExit(f"{TEXT} and what is computed differ in {', '.join(sorted(named ^ parts.keys()))}.")
    return NAME.sub(lambda found: parts[found[1]].strip(), text)


def titled(points: pd.DataFrame) -> pd.DataFrame:
    """Call data sets by the names of pictures."""
    return points.assign(dataset=points["dataset"].map(deep.PROBLEMS))


def draw_frontiers(points: pd.DataFrame, chosen: pd.DataFrame, methods: list[str], name: str) -> None:
    """Draw the frontiers of some methods."""
    shown = [frame[frame["method"].isin(methods)] for frame in (points, chosen)]
    chart = frontier_chart(*shown).configure_axisX(labelSeparation=8)  # labels of wide ranges ran into each other
    chart.save(DOCS / f"paper-{name}.png", scale_factor=2)


def pair(row: pd.Series, scale: float = 100) -> str:
    """Return accuracy / DCA in percent."""
    return f"{scale * row['accuracy']:.2f} / {scale * row['dca']:.2f}"


def paper_pair(dataset: str, method: str) -> str:
    """Return the paper's accuracy / DCA."""
    return pair(paper_results().set_index(["dataset", "method"]).loc[(dataset, method)], scale=1)


def tables(trained: dict[tuple[str, str], pd.DataFrame]) -> str:
    """Return every method that both have, by data set: our selected points, each kind with its title, then the paper's."""
    paper = paper_results().set_index(["dataset", "method"])
    columns: dict[str, dict[str, str]] = {}
    for dataset in dict.fromkeys(name for name, _ in trained):
        own = {title: chosen for (name, title), chosen in trained.items() if name == dataset}
        theirs = paper.loc[dataset]
        for title, chosen in own.items():
            rows = chosen[chosen["method"].isin(theirs.index)].set_index("method")
            columns[title] = {name: "none" if pd.isna(row["accuracy"]) else pair(row) for name, row in rows.iterrows()}
        both = [name for name in theirs.index if any(name in columns[title] for title in own)]
        columns[f"{title.split(',')[0]}, paper"] = {name: paper_pair(dataset, name) for name in both}
    methods = dict.fromkeys([*MAIN, *COMPONENTS, *SETS, JUMPING])
    return markdown_table(["method", *columns], [[name, *(c.get(name, "") for c in columns.values())] for name in methods])


def unseen_charges() -> dict[str, str]:
    """Count the charges of COMPAS that no training row of the paper's split has, and the test rows that have one."""
    large = known_dataset("compas").split("paper").test.X.abs() > 1e6
    return {"charges": str(int(large.any(0).sum())), "charged": str(int(large.any(1).sum()))}


def fairest(chosen: pd.DataFrame, methods: list[str], dataset: str) -> str:
    """Say which selected point has the smallest DCA, beside plain training and FairDRO."""
    rows = chosen[(chosen["dataset"] == dataset) & chosen["method"].isin(methods) & chosen["accuracy"].notna()]
    rows = rows.set_index("method")
    best = rows["dca"].astype(float).idxmin()
    shown = [name for name in dict.fromkeys(["scratch", "fairdro", best]) if name in rows.index]
    told = ", ".join(f"{name} {pair(rows.loc[name])}" for name in shown)
    return f"{deep.PROBLEMS.get(dataset, dataset)}: {told}, fairest of {len(rows)}: {best}"


def paper_fairest(dataset: str) -> str:
    """Say which row of the paper's tables, ablations included, has the smallest DCA."""
    rows = paper_results().query("dataset == @dataset").set_index("method")
    best = rows["dca"].idxmin()
    return f"FairDRO {pair(rows.loc['fairdro'], 1)}, the smallest DCA {pair(rows.loc[best], 1)} of {best}"


def below(points: pd.DataFrame, methods: list[str]) -> str:
    """Say which methods have points below FairDRO's envelope, and how far; of those that keep 95 % of Scratch's accuracy."""
    told = []
    for dataset, part in points[~points["diverged"] & points["method"].isin(methods)].groupby("dataset", sort=False):
        own = part[part["method"] == "fairdro"]
        corners = own.iloc[convex_envelope(own["accuracy"], own["dca"])[::-1]]
        least = 0.95 * part["accuracy"][part["method"] == "scratch"].max()
        others = part[(part["method"] != "fairdro") & (part["accuracy"] >= least)]
        reached = np.interp(others["accuracy"], corners["accuracy"], corners["dca"])
        depth = (100 * (reached - others["dca"])).groupby(others["method"], sort=False).max()
        found = [f"{name} (by up to {gap:.1f} points of DCA)" for name, gap in depth.items() if gap >= 0.05]
        told.append(f"- {dataset}: {', '.join(found) if found else 'none'}.")
    return "\n".join(told)


def balanced_better(chosen: pd.DataFrame, standard: pd.DataFrame) -> str:
    """Count the baselines that the balanced objective makes more accurate, and fairer."""
    told = []
    for dataset in map(deep.PROBLEMS.get, DATASETS):
        with_both, without = (frame[frame["dataset"] == dataset].set_index("method") for frame in (chosen, standard))
        names = without.index.drop("fairdro")
        change = (with_both.loc[names, ["accuracy", "dca"]] - without.loc[names, ["accuracy", "dca"]]).astype(float)
        more, fairer = int((change["accuracy"] > 0).sum()), int((change["dca"] < 0).sum())
        told.append(f"on {dataset}, {more} of {len(names)} have more balanced accuracy and {fairer} a smaller DCA")
    return "; ".join(told)


def training_parts(training: pd.DataFrame, points: pd.DataFrame, chosen: pd.DataFrame) -> dict[str, str]:
    """Draw weights and accuracies on COMPAS over training, and say what is seen there in numbers."""
    radius = training["rho"].map("rho = {:.3g}".format, na_action="ignore")
    training = training.assign(
        panel=training["method"].where(radius.isna(), training["method"] + ", " + radius),
        share=training["epoch"] / training["epoch"].max(),
    )
    compared = training["rho"] == training["rho"][training["method"] == JUMPING].iloc[0]
    parts = {}
    for code, name in enumerate(CLASSES):
        own = training[training["class"] == name]
        smooth = own[own["method"] != JUMPING]
        history_chart(long(smooth, list(MEASURES))).save(DOCS / f"paper-training-{code}.png", scale_factor=2)
        parts[f"gaps_{code}"] = gaps(own)
    positive = training[compared & (training["class"] == CLASSES[1])].sort_values(
        ["method", "epoch"], ascending=[False, True]
    )
    history_chart(long(positive, ["weight"])).save(DOCS / "paper-smoothing.png", scale_factor=2)
    parts["swings"] = swings(training[training["class"] == CLASSES[1]].query("method != 'scratch'"))
    curve = points[(points["dataset"] == deep.PROBLEMS["compas"]) & (points["method"] == "fairdro")]
    curve = curve.set_index(curve["hyperparameters"].map(lambda text: json.loads(text)["rho"]))
    shown = training["rho"][training["method"] == "fairdro"].unique()
    parts["radii"] = " and ".join(pair(curve.loc[rho]) for rho in shown)
    rows = chosen[chosen["dataset"] == deep.PROBLEMS["compas"]].set_index("method")
    parts["smoothing"] = f"with smoothing {pair(rows.loc['fairdro'])}, without {pair(rows.loc[JUMPING])}"
    return parts


def long(training: pd.DataFrame, measures: list[str]) -> pd.DataFrame:
    """Return some measures below each other, accuracies in percent, as the picture wants them."""
    table = training.melt(["panel", "group", "share"], measures, "measure")
    percent = table["measure"] != "weight"
    values = table["value"].where(~percent, 100 * table["value"])
    return table.assign(bench="", value=values, measure=table["measure"].map(MEASURES))


def gaps(own: pd.DataFrame) -> str:
    """Return the gap between the groups after training, and the range of q, as a table."""
    rows = []
    for panel, part in own.groupby("panel", sort=False):
        last = part[part["epoch"] == part["epoch"].max()].set_index("group")
        apart = [f"{100 * (last[name].max() - last[name].min()):.1f}" for name in ("train_accuracy", "test_accuracy")]
        ends = ", ".join(f"{group} {weight:.2f}" for group, weight in last["weight"].items())
        rows.append([panel, *apart, f"{part['weight'].min():.2f} to {part['weight'].max():.2f}", ends])
    return markdown_table(["method", "gap on training rows", "gap on test rows", "range of q", "q in the last epoch"], rows)


def swings(positive: pd.DataFrame) -> str:
    """Return how often the group with the larger weight changes, and how far q moves in the end, as a table."""
    told = []
    for panel, part in positive.groupby("panel", sort=False):
        q = part[part["group"] == part["group"].iloc[0]]["weight"].to_numpy()
        larger = np.sign(q[q != 0.5] - 0.5)
        late = q[int(0.9 * len(q)) :]
        changes = int((np.diff(larger) != 0).sum())
        told.append([panel, str(changes), f"{np.abs(np.diff(late)).max():.2f}"])
    return markdown_table(
        ["method", "changes of the larger weight", "largest step of q in the last tenth of training"], told
    )


def majority_share() -> float:
    """Return the share of the larger class of Adult."""
    counts = known_dataset("adult").cells.counts
    return float(counts.sum(1).max() / counts.sum())


def ordinary(chosen: pd.DataFrame, standard: pd.DataFrame) -> str:
    """Return ordinary beside balanced accuracy, of a model that always says the larger class and of trained ones."""
    rows = []
    for dataset in DATASETS:
        counts = known_dataset(dataset).split("paper").test.cells.counts.numpy()
        confusion = np.zeros((*counts.shape, len(counts)))
        confusion[..., counts.sum(1).argmax()] = counts
        shown = {"always the larger class": pd.Series({name: float(metric(confusion)) for name, metric in METRICS.items()})}
        for how, frame, name in (
            ("scratch, standard objective", standard, "scratch"), ("scratch, balanced objective", chosen, "scratch"),
            ("fairdro", chosen, "fairdro"),
        ):  # fmt: skip
            shown[how] = frame[(frame["dataset"] == deep.PROBLEMS[dataset]) & (frame["method"] == name)].iloc[0]
        for how, row in shown.items():
            figures = [f"{100 * row[m]:.2f}" for m in ("standard_accuracy", "accuracy", "dca", "worst_accuracy")]
            rows.append([deep.PROBLEMS[dataset], how, *figures])
    return markdown_table(["data", "model", "ordinary accuracy", "balanced accuracy", "DCA", "worst cell"], rows)


if __name__ == "__main__":
    main()
