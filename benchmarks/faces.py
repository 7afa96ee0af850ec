"""Small networks on UTKFace from end to end, on random splits: what a head is put on in `head.py`.

A ResNet-18 of width 16 sees faces of 32 pixels for 12 epochs. Three fifths of the images train, a fifth is
held out, a fifth tests; identical files are left out. What a network says of all rows is kept in a file, so that none is
trained twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from features import without_copies
from head_methods import last_layer, linear_post
from held_out import Said
from rivals import judged
from sklearn.model_selection import train_test_split
from torch import nn

from fairdro import load_dataset
from fairdro.cells import Cells
from fairdro.data import Examples
from fairdro.data.examples import Subset
from fairdro.data.utkface import MEAN, STD
from fairdro.groups import Groups
from fairdro.methods import FairDRO, Method, Scratch
from fairdro.models.resnet import ResNet18
from fairdro.networks.head import fit_network_head
from fairdro.training.inputs import features_of, logits_of
from fairdro.training.network import Recipe, train_network

SIZE, WIDTH = 32, 16
RECIPE = Recipe(epochs=12, lr=3e-3)
METHODS: dict[str, Method] = {
    "plain": Scratch(),
    "FairDRO, rho 0.3": FairDRO(rho=0.3),
    "FairDRO, rho 1": FairDRO(rho=1.0),
}


class Seen(NamedTuple):
    """What a network says of all rows, and which rows are what."""

    logits: np.ndarray
    features: np.ndarray
    y: np.ndarray
    a: np.ndarray
    train: np.ndarray
    held: np.ndarray
    test: np.ndarray


def load_faces(data: Path) -> Examples:
    """Load the images, each once."""
    return without_copies(load_dataset("utkface", data=data, size=SIZE), SIZE, MEAN, STD)


def network(examples: Examples, split: int, name: str, out: Path) -> Seen:
    """Return what a network says of all faces; it is trained if that is not in a file yet."""
    path = out / f"faces-{name.replace(' ', '-').replace(',', '')}-{split}.npz"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        y, a = examples.y, examples.groups.values
        train, held, test = parts(y, a, split)
        cells = Cells.from_labels(y[train], examples.groups.take(train), n_classes=len(examples.class_names))
        torch.manual_seed(split)
        model = ResNet18(len(examples.class_names), width=WIDTH, small=True)
        inputs = Subset(examples.inputs, torch.from_numpy(train))
        train_network(model, inputs, cells, METHODS[name], RECIPE, seed=split, checkpoint=path.with_suffix(".checkpoint"))
        logits, features = logits_of(model, examples.inputs).numpy(), features_of(model, examples.inputs).numpy()
        with path.with_suffix(".partial").open("wb") as file:
            np.savez(file, logits=logits, features=features, y=y, a=a, train=train, held=held, test=test)
        path.with_suffix(".partial").rename(path)
    with np.load(path, allow_pickle=False) as file:
        return Seen(**file)


def parts(y: np.ndarray, a: np.ndarray, split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows to train on, to hold out and to test on: three fifths, one and one of every class and group."""
    cell = y * (a.max() + 1) + a
    rest, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=split, stratify=cell)
    train, held = train_test_split(rest, test_size=0.25, random_state=split, stratify=cell[rest])
    return np.sort(train), np.sort(held), np.sort(test)


class Remembered(nn.Module):
    """A network whose logits and last hidden layer were kept; its inputs are their rows."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.n_classes, self.device = n_classes, nn.Parameter(torch.zeros(1))

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Return the last hidden layer."""
        return x[:, self.n_classes :]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        return x[:, : self.n_classes]


class Rows:
    """Rows of a tensor as inputs of a network."""

    def __init__(self, X: torch.Tensor) -> None:
        self.X = X

    def __len__(self) -> int:
        return len(self.X)

    def batch(self, rows: torch.Tensor, rng: torch.Generator | None = None) -> torch.Tensor:
        """Return some rows."""
        return self.X[rows]


def measure_faces(examples: Examples, split: int, out: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Judge networks, and heads on them, on test rows."""
    for name in METHODS:
        seen = network(examples, split, name, out)
        parts = {"train": seen.train, "validation": seen.held, "test": seen.test}
        inputs = Rows(torch.from_numpy(np.hstack([seen.logits, seen.features])))
        groups = Groups(seen.a, examples.groups.names)
        own = Examples(name, inputs, seen.y, groups, examples.class_names, parts, "")
        model = Remembered(len(examples.class_names))
        y, a = seen.y[seen.test], seen.a[seen.test]
        accuracy, dca = judged(y, seen.logits[seen.test].argmax(1), a)
        yield name, {"accuracy": accuracy, "dca": dca, "seconds": 0.0}
        start = time.perf_counter()
        head = fit_network_head(model, own, keep_class_accuracy=0)
        seconds = time.perf_counter() - start
        tested = head.judge(model, own, "test")
        values = {"accuracy": 100 * tested.metric("accuracy"), "dca": 100 * tested.metric("dca"), "seconds": seconds}
        yield f"{name} + head", values
        p_y, p_a = head.probabilities(model, inputs)
        wanted = Said(
            seen.y[seen.held], seen.a[seen.held], y, a, p_y[seen.held], p_y[seen.test], p_a[seen.held], p_a[seen.test],
            *[np.empty(0)] * 4, seconds=np.zeros(1),
        )  # fmt: skip
        for calibrate in (False, True):
            title = f"{name} + LinearPost" + (", calibration rounds" if calibrate else "")
            yield title, linear_post(wanted, head.head, calibrate=calibrate)
        if name == "plain":
            for errors, solver in {"training": "fullbatch", "out-of-fold": "out_of_fold"}.items():
                mean, scale = seen.features[seen.train].mean(0), seen.features[seen.train].std(0)
                scaled = (seen.features - mean) / np.where(scale > 0, scale, 1)
                own_parts = (seen.train, seen.held, seen.test)
                found = last_layer(scaled, seen.y, seen.a, own_parts, solver)
                yield f"last layer of plain, {errors} errors", found
    print(f"  faces, split {split}: done", flush=True)
