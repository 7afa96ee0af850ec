"""Small networks on UTKFace from end to end, on random splits: what a head is put on in `head.py`.

A ResNet-18 of width 16 sees faces of 32 pixels for 12 epochs. Three fifths of the images train, a fifth is
held out, a fifth tests; identical files are left out. What a network says of all rows is kept in a file, so that none is
trained twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from features import without_copies
from sklearn.model_selection import train_test_split

from fairdro import load_dataset
from fairdro.cells import Cells
from fairdro.data import Examples
from fairdro.data.examples import Subset
from fairdro.data.utkface import MEAN, STD
from fairdro.methods import FairDRO, Method, Scratch
from fairdro.models.resnet import ResNet18
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
