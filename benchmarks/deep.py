"""Deep models on real images and texts, scaled down to two cores.

python benchmarks/deep.py overhead                               # what FairDROLoss adds to a training step, printed
python benchmarks/deep.py run --data DATA --encoder ENCODER      # some hours; resumes where it was stopped
python benchmarks/deep.py page --data DATA --encoder ENCODER     # writes docs/deep.md from what was run

DATA holds the folders UTKFace, celeba and hatexplain; ENCODER is the folder of a small BERT.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import torch

from fairdro import FairDROLoss, load_dataset
from fairdro._utils.markdown import markdown_table
from fairdro.bench import Store
from fairdro.bench.figures import frontier_chart
from fairdro.bench.summary import Summary
from fairdro.bench.tables import comparison, findings, to_markdown
from fairdro.methods import FairDRO, get_method
from fairdro.metrics import Confusion, confusion_counts
from fairdro.models.resnet import ResNet18
from fairdro.networks.runs import judge, load_examples, load_run
from fairdro.selection import KeepAccuracy, choose_radius
from fairdro.training import train_fullbatch

DOCS = Path(__file__).parents[1] / "docs"

FACES = "train utkface --data DATA/UTKFace --size 48 --epochs 4 --method"
POSTS = "train hatexplain --data DATA/hatexplain --model ENCODER --rows 2000 --epochs 2 --update-every 20 --method"
EVERY = "--methods all --solvers fullbatch,minibatch --points 20 --seeds 1 --protocol validated"
COMMANDS = [
    f"{FACES} scratch --out utkface-scratch",
    f"{FACES} fairdro --set rho=0.6 --out utkface-fairdro-0.6",
    f"{FACES} fairdro --set rho=1.2 --out utkface-fairdro-1.2",
    f"{FACES} fairdro --set rho=3 --out utkface-fairdro-3",
    f"{FACES.replace('--epochs 4', '--epochs 1')} lbc --set eta=1 --out utkface-lbc",
    f"{FACES} mfd --set lam=1 --teacher utkface-scratch --out utkface-mfd",
    f"bench utkface --last-layer --data DATA/UTKFace --network utkface-scratch {EVERY} --out utkface-last-layer",
    "train celeba --data DATA/celeba --size 48 --epochs 4 --method scratch --out celeba-scratch",
    f"bench celeba --last-layer --data DATA/celeba --network celeba-scratch {EVERY} --out celeba-last-layer",
    f"bench hatexplain --last-layer --data DATA/hatexplain --model ENCODER {EVERY} --out hatexplain-last-layer",
    f"{POSTS} scratch --out hatexplain-scratch",
    f"{POSTS} fairdro --set rho=1 --out hatexplain-fairdro",
    f"{POSTS} scratch --soft --out hatexplain-scratch-soft",
    f"{POSTS} fairdro --set rho=1 --soft --out hatexplain-fairdro-soft",
    "bench hatexplain --last-layer --data DATA/hatexplain --model ENCODER --soft --points 20 --protocol validated"
    " --out hatexplain-last-layer-soft",
]
ABLATIONS = ["fairdro_wo_", "rvp", "fairdro_nonnegative", "classwise_simplex", "group_dro"]


def main() -> None:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["overhead", "run", "page"])
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--encoder", type=Path, default=Path("encoder"))
    parser.add_argument("--out", type=Path, default=Path("deep"), help="folder for the results")
    parser.add_argument("--only", default="", help="run commands that hold this text only")
    arguments = parser.parse_args()
    if arguments.what == "overhead":
        print(overhead())
    elif arguments.what == "run":
        run(arguments.data.resolve(), arguments.encoder.resolve(), arguments.out, arguments.only)
    else:
        data = arguments.data.resolve()
        with contextlib.chdir(arguments.out):  # where the benches were run
            page = write_page(data, Path())
        (DOCS / "deep.md").write_text(page, encoding="utf-8")
        print(page)


def overhead(steps: int = 30, calls: int = 300) -> str:
    """Time steps of ResNet-18 with cross-entropy and with FairDROLoss in turn, and both losses by themselves in turn."""
    torch.manual_seed(0)
    model, criterion = ResNet18(3), FairDROLoss(3, 4, rho=1.0, total_steps=steps)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y, a = torch.randn(64, 3, 64, 64), torch.randint(3, (64,)), torch.randint(4, (64,))
    losses = {"plain": lambda out: torch.nn.functional.cross_entropy(out, y), "fair": lambda out: criterion(out, y, a)}
    whole: dict[str, list[float]] = {name: [] for name in losses}
    alone: dict[str, list[float]] = {name: [] for name in losses}
    out = torch.randn(64, 3, requires_grad=True)
    for i in range(max(steps, calls)):
        for name, loss in losses.items():
            start = time.perf_counter()
            loss(out).backward()
            alone[name].append(time.perf_counter() - start)
            if i < steps:
                start = time.perf_counter()
                optimiser.zero_grad()
                loss(model(x)).backward()
                optimiser.step()
                whole[name].append(time.perf_counter() - start)
    step, plain, fair = (1000 * statistics.median(times) for times in (whole["plain"], alone["plain"], alone["fair"]))
    ratio = statistics.median(b / a for a, b in zip(whole["plain"], whole["fair"], strict=True))
    return (
        f"A step of ResNet-18 (64 images of 64 pixels) with cross-entropy takes {step:.0f} ms. Cross-entropy alone takes "
        f"{plain:.2f} ms, FairDROLoss {fair:.2f} ms: {100 * (fair - plain) / step:.2f} % of a step more. Whole steps of "
        f"both in turn, {steps} each, differ by {100 * (ratio - 1):+.1f} % (median), which is the noise of this machine."
    )


def run(data: Path, encoder: Path, out: Path, only: str) -> None:
    """Run the commands that are not done."""
    out.mkdir(parents=True, exist_ok=True)
    for command in COMMANDS:
        folder = out / command.split()[-1]
        if only not in command or (folder / "result.json").exists() or (folder / "table.md").exists():
            continue
        print(f"{time.strftime('%H:%M:%S')} fairdro {command}", flush=True)
        words = [word.replace("DATA", str(data)).replace("ENCODER", str(encoder)) for word in command.split()]
        subprocess.run([sys.executable, "-m", "fairdro", *words], cwd=out, check=True)  # noqa: S603 - our own commands


def write_page(data: Path, out: Path) -> str:
    """Return the whole page, from what was run."""
    benches = {name: Bench(out / f"{name}-last-layer", name) for name in ("utkface", "celeba", "hatexplain")}
    chosen, points = (pd.concat([b.named[name] for b in benches.values()]) for name in ("selected", "points"))
    main = [name for name in dict.fromkeys(points["method"]) if not name.startswith(tuple(ABLATIONS))]
    chart = frontier_chart(points[points["method"].isin(main)], chosen[chosen["method"].isin(main)])
    chart.save(DOCS / "deep.png", scale_factor=2)
    parts = [
        INTRODUCTION,
        "## What the loss costs",
        f"`python benchmarks/deep.py overhead`: {overhead()}",
        "## Faces, from end to end",
        FACES_TEXT.format(**benches["utkface"].sizes),
        commands("train utkface"),
        end_to_end(out, "utkface"),
        "## Faces, the last layer",
        LAST_LAYER_TEXT,
        "![Frontiers on the last layer](deep.png)",
        commands("bench utkface"),
        benches["utkface"].text(),
        "## Blond hair, the last layer",
        CELEBA_TEXT.format(**benches["celeba"].sizes),
        commands("celeba"),
        benches["celeba"].text(),
        "## Posts, the last layer of a frozen encoder",
        POSTS_TEXT.format(**benches["hatexplain"].sizes),
        commands("bench hatexplain"),
        benches["hatexplain"].text(),
        "## Posts, from end to end, hard against soft groups",
        SOFT_TEXT,
        commands("train hatexplain"),
        hard_against_soft(data, out),
        "The same on the frozen encoder's last layer, test part. The radius is chosen by the selection rule on the "
        "validation part, judged by the groups of training:",
        last_layer_hard_against_soft(out),
        PAPER_SETTINGS,
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def commands(part: str) -> str:
    """Return the commands that hold a text."""
    return "```console\n" + "\n".join(f"$ fairdro {c}" for c in COMMANDS if part in c) + "\n```"


def percent(confusion: Confusion, *names: str) -> list[str]:
    """Return metrics with their intervals, where there are any."""
    table = 100 * confusion.metrics()
    shown = []
    for name in names:
        row = table.loc[name]
        interval = "" if pd.isna(row["low"]) else f" ({row['low']:.1f} to {row['high']:.1f})"
        shown.append(f"{row['value']:.2f}{interval}")
    return shown


def end_to_end(out: Path, dataset: str) -> str:
    """Return a table of trained networks, from their results."""
    rows = []
    for command in COMMANDS:
        if command.startswith(f"train {dataset}"):
            result = json.loads((out / command.split()[-1] / "result.json").read_text())
            search = get_method(result["method"]).search
            setting = ", ".join(f"{key} = {result['hyperparameters'][key]:g}" for key in search)
            parts = (confusion_of(result["confusion"][part]) for part in ("validation", "test"))
            rows.append([result["method"], setting, *(cell for c in parts for cell in percent(c, "accuracy", "dca"))])
    columns = ["method", "setting", "validation accuracy", "validation DCA", "test accuracy", "test DCA"]
    gaps = {row[0] + (f" ({row[1]})" if row[1] else ""): float(row[-1].split()[0]) for row in rows}
    fairest = " and ".join(name for name, gap in gaps.items() if gap == min(gaps.values()))
    found = f"The smallest DCA on the test part, {min(gaps.values()):.2f}, is that of {fairest}."
    return f"In percent, with 95 % bootstrap intervals:\n\n{markdown_table(columns, rows)}\n{found}"


def confusion_of(counts: list) -> Confusion:
    """Name what is counted by number."""
    tensor = torch.tensor(counts, dtype=torch.float64).numpy()
    return Confusion(tensor, [str(y) for y in range(tensor.shape[0])], [str(a) for a in range(tensor.shape[1])])


class Bench:
    """What a bench on a last layer found."""

    def __init__(self, folder: Path, dataset: str) -> None:
        self.summary = Summary(Store(folder))
        self.features = load_dataset(self.summary.outcomes[0].bank.dataset)
        self.named = {name: getattr(self.summary, name).assign(dataset=dataset) for name in ("points", "selected")}

    @property
    def sizes(self) -> dict[str, str]:
        """Number of samples of every part."""
        return {name: f"{len(rows):,}" for name, rows in self.features.parts.items()}

    def text(self) -> str:
        """Return how points were chosen, the table, and in a line per solver what was found."""
        refused = self.summary.store.refused().query("solver == 'minibatch'").drop_duplicates("method")
        table = comparison(self.summary.selected, refused).drop(columns="dataset")
        found = "\n".join(f"- {line}" for line in findings(self.named["selected"]))
        return (
            f"{self.summary.how_chosen}. Once the features are there, FairDRO's frontier of 20 radii takes "
            f"{self.seconds():.0f} s with the full-batch solver.\n\n{to_markdown(table)}\n{found}"
        )

    def seconds(self) -> float:
        """Train FairDRO's frontier once more, by itself, and return the time it takes."""
        train = self.features.split("validated").train
        return train_fullbatch(train.X, train.cells, FairDRO.sweep(20, **FairDRO.stepwise)).seconds


def hard_against_soft(data: Path, out: Path) -> str:
    """Judge networks that were trained with hard and with soft groups by both."""
    rows = []
    for trained_with in ("hard", "soft"):
        for method in ("scratch", "fairdro"):
            folder = out / f"hatexplain-{method}{'-soft' if trained_with == 'soft' else ''}"
            job, network = load_run(folder, data / "hatexplain")
            row = [method, trained_with]
            for soft in (False, True):
                examples = load_examples(type(job)(**{**vars(job), "soft": soft}))
                row += percent(judge(network, examples, "test"), "accuracy", "dca")
            rows.append(row)
    columns = ["method", "groups in training", "accuracy, hard", "DCA, hard", "accuracy, soft", "DCA, soft"]
    return "Test part, in percent, judged by hard groups (95 % bootstrap intervals) and by shares:\n\n" + markdown_table(
        columns, rows
    )


def last_layer_hard_against_soft(out: Path) -> str:
    """Train the last layer with hard and with soft groups, and judge both by both."""
    folders = {"hard": out / "hatexplain-last-layer", "soft": out / "hatexplain-last-layer-soft"}
    splits = {}
    for name, folder in folders.items():
        (file,) = folder.glob("*.safetensors")
        splits[name] = load_dataset(str(file)).split("validated")
    rows = []
    for trained_with, split in splits.items():
        method = FairDRO.sweep(20, **FairDRO.stepwise)
        trained = train_fullbatch(split.train.X, split.train.cells, method)
        held_out = confusion_counts(trained.predict(split.validation.X), split.validation.cells)[0]
        choice, _ = choose_radius(held_out, method.rho, KeepAccuracy())
        for name, point in (("scratch", 0), ("fairdro", choice.index)):
            row = [name, trained_with, f"rho = {method.rho[point]:.3g}"]
            for judged_by in splits.values():
                counts = confusion_counts(trained.predict(judged_by.test.X)[0, point], judged_by.test.cells)
                confusion = confusion_of(counts.tolist())
                whole = Confusion(counts, confusion.class_names, confusion.group_names, not judged_by.test.cells.soft)
                row += percent(whole, "accuracy", "dca")
            rows.append(row)
    columns = ["method", "groups in training", "chosen", "accuracy, hard", "DCA, hard", "accuracy, soft", "DCA, soft"]
    return markdown_table(columns, rows)


INTRODUCTION = """
# Deep models on real images and texts

Written by `python benchmarks/deep.py page`, from what `python benchmarks/deep.py run` trained.

**Everything here is scaled down to two cores**: 48 pixels and 4 epochs where the paper has 224 and 70, a small
encoder (MiniLM, 6 layers) and 2,000 posts where it has BERT-base and CivilComments, subsets of the images, one seed.
The figures show that the methods run and how they compare at this size; they are not the paper's. Every interval is
the sampling error of the test part alone, not of training. Nothing was chosen on a test part.

DATA stands for the folder with the data, ENCODER for that of the encoder.
"""

FACES_TEXT = """
UTKFace: three classes of age, four groups of race; {train} images train, {validation} validate, {test} test, 100
of every class and group. ResNet-18 from nothing. LBC trains ten rounds of one epoch; MFD learns from the plain
network. The radii are the authors' for this data (0.6 in the paper's terms), twice and five times as much; no other
setting was tried. With four groups, weights become negative above 1/3.
"""

LAST_LAYER_TEXT = """
The cheap way: the plain network of above, frozen, and a linear layer on its 512 features by every method over 20
settings, with both solvers where a method allows it. Methods that read hidden features have none to read in a linear
layer, and say so. Intervals are of one test part: resampling small cells adds noise to gaps that noise has widened
already, so that they may lie above the figure.
"""

CELEBA_TEXT = """
A subset of CelebA, reduced to 64 x 78 before: blond or not, women and men; {train} images train, {validation}
validate, {test} test, few of them blond men; the intervals are wide.
"""

POSTS_TEXT = """
HateXplain: normal, offensive or hateful posts, by the group that most annotators saw as their target. The encoder is
as published; its first token's last layer has 384 features. {train} posts train, {validation} validate, {test} test.
"""

SOFT_TEXT = """
The same posts, with the share of annotators who named a group as the membership in it. The encoder is trained on
2,000 posts for two epochs. `scratch` counts all classes and groups the same, so that it differs between hard and soft
groups too.
"""

PAPER_SETTINGS = """
## The paper's settings, on a GPU

These are the defaults; they were run here only in the small. A GPU is used if there is one, with mixed precision;
`torchrun --nproc-per-node 4 -m fairdro train ...` uses several. The authors' radii are half of ours.

```console
$ fairdro data check utkface DATA/UTKFace
$ fairdro train utkface --data DATA/UTKFace --protocol paper --method scratch --out utkface-scratch
$ fairdro train utkface --data DATA/UTKFace --protocol paper --method fairdro --set rho=0.6 --out utkface-fairdro
$ fairdro train utkface --data DATA/UTKFace --protocol paper --method lbc --set rounds=14 --epochs 5 --out utkface-lbc
$ fairdro train utkface --data DATA/UTKFace --protocol paper --method mfd --set lam=10 --teacher utkface-scratch \\
    --out utkface-mfd
$ fairdro train celeba --data DATA/celeba --protocol paper --method fairdro --set rho=3 --out celeba-fairdro
$ fairdro train civilcomments --data DATA/civilcomments --model bert-base-uncased --method fairdro --set rho=0.6 \\
    --out civil-fairdro
$ fairdro train civilcomments --data DATA/civilcomments --model bert-base-uncased --method lbc --set rounds=1 \\
    --out civil-lbc
$ for seed in 0 1 2 3; do fairdro train utkface --data DATA/UTKFace --protocol paper --set rho=0.6 \\
    --seed $seed --out utkface-fairdro-$seed; done
```

Other methods, of `fairdro list methods`, are trained likewise. Where paper and code differ, these follow the paper:
weight decay 0.001, statistics in evaluation mode, warm-up over a tenth of the batches and linear decay for texts.
FairHSIC and MFD read the mean of the last feature map (the authors' code: the map itself), and the last layer of the
first token; EGR trains texts eleven times anew (theirs: once, moving every 600 batches). Images that do not train are
reduced to 256 pixels, kept, and reduced to 224 from there.
"""

if __name__ == "__main__":
    main()
