"""Images and texts from end to end, and the cheap way: a frontier on the last layer of a network."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import nn

from fairdro.data.celeba import check_celeba, load_celeba
from fairdro.data.civilcomments import check_civilcomments, load_civilcomments
from fairdro.data.examples import Examples
from fairdro.data.features import save_features
from fairdro.data.hatexplain import check_hatexplain, load_hatexplain
from fairdro.data.utkface import check_utkface, load_utkface
from fairdro.errors import InputError, unknown_name
from fairdro.files import write_whole
from fairdro.methods import Method, Scratch
from fairdro.metrics import REPORTED, Confusion, confusion_counts
from fairdro.models.resnet import ResNet18
from fairdro.models.text import TextClassifier
from fairdro.seeding import number
from fairdro.training.network import Recipe, TrainedNetwork, features_of, logits_of, train_network
from fairdro.training.processes import rank

__all__ = ["DEEP", "Job", "check_data", "last_layer", "load_examples", "train_end_to_end"]

IMAGES: dict[str, Callable[..., Examples]] = {"utkface": load_utkface, "celeba": load_celeba}
TEXTS: dict[str, Callable[..., Examples]] = {"civilcomments": load_civilcomments, "hatexplain": load_hatexplain}
CHECKS = {
    "utkface": check_utkface,
    "celeba": check_celeba,
    "civilcomments": check_civilcomments,
    "hatexplain": check_hatexplain,
}
DEEP = [*IMAGES, *TEXTS]

OnStep = Callable[[int, int], object]


@dataclass(frozen=True)
class Job:
    """A network on a dataset of images or texts.

    Attributes
    ----------
    dataset : str
        One of :data:`DEEP`.
    data : Path
        Folder, or file, with its data.
    model : str
        ``resnet18`` for images; for texts the name or folder of an encoder of Hugging Face.
    size : int
        Side of the images in pixels; the paper's is 224.
    soft : bool
        Whether texts belong to groups in shares.
    protocol : {"paper", "validated"}
        For images, see their loaders.
    seed : int
        Of initial weights and batches.
    """

    dataset: str
    data: Path
    model: str = "resnet18"
    size: int = 224
    soft: bool = False
    protocol: str = "validated"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dataset not in DEEP:
            raise unknown_name("dataset of images or texts", self.dataset, DEEP)
        if self.dataset in IMAGES and self.model != "resnet18":
            raise unknown_name("model for images", self.model, ["resnet18"])
        if self.dataset in TEXTS and self.model == "resnet18":
            raise InputError(f"{self.dataset} holds texts: name an encoder of Hugging Face, or its folder, as the model.")
        if self.soft and self.dataset in IMAGES:
            raise InputError(f"{self.dataset} has no soft groups.")

    @property
    def name(self) -> str:
        """A name for files."""
        parts = [self.dataset, Path(self.model).name, f"{self.size}px" if self.dataset in IMAGES else ""]
        return "-".join(part for part in [*parts, "soft" if self.soft else "", f"seed{self.seed}"] if part)

    def network(self, n_classes: int) -> nn.Module:
        """Return an untrained network, or a pretrained encoder with a fresh head."""
        torch.manual_seed(number(self.seed, "network"))
        return ResNet18(n_classes) if self.dataset in IMAGES else TextClassifier.from_pretrained(self.model, n_classes)

    def recipe(self, epochs: int | None) -> Recipe:
        """Return the paper's settings, with another number of epochs if given."""
        if self.dataset in IMAGES:
            return Recipe(epochs=70 if epochs is None else epochs)
        return Recipe(
            epochs=3 if epochs is None else epochs,
            batch_size=24,
            lr=2e-5,
            schedule="linear",
            warm_up=0.1,
            clip=1.0,
            update_every=100,
        )


def load_examples(job: Job, on_step: OnStep | None = None) -> Examples:
    """Load the data of a job."""
    if job.dataset in IMAGES:
        return IMAGES[job.dataset](job.data, size=job.size, protocol=job.protocol, on_step=on_step)
    hard = "argmax" if job.dataset == "civilcomments" else "majority"
    return TEXTS[job.dataset](job.data, encoder=job.model, groups="soft" if job.soft else hard)


def check_data(dataset: str, folder: Path) -> list[str]:
    """Return sentences on whether the data of a folder are those that were published."""
    if dataset not in CHECKS:
        raise unknown_name("dataset of images or texts", dataset, list(CHECKS))
    return CHECKS[dataset](folder)


def judge(network: nn.Module, examples: Examples, part: str) -> Confusion:
    """Return how a part is predicted."""
    inputs, cells = examples.part(part)
    counts = confusion_counts(logits_of(network, inputs).argmax(-1), cells)
    return Confusion(counts, examples.class_names, examples.groups.names, not examples.groups.soft)


def train_end_to_end(
    job: Job, examples: Examples, method: Method, out: Path, *, epochs: int | None = None, rows: int | None = None,
    on_step: OnStep | None = None,
) -> dict[str, dict[str, float]]:  # fmt: skip
    """Train a network by a method, write its weights, how it was made and its metrics into a folder; return the metrics.

    It goes on where it was stopped. A method that learns from a teacher has one trained plainly first.

    Parameters
    ----------
    rows : int, optional
        Train on the first so many rows of the training part only.
    """
    inputs, cells = examples.part("train")
    if rows is not None:
        kept = torch.randperm(len(cells), generator=torch.Generator().manual_seed(0))[:rows]
        inputs, cells = type(inputs)(inputs.inputs, inputs.rows[kept]), cells.take(kept)
    recipe = job.recipe(epochs)

    def train(rule: Method, name: str, teacher: nn.Module | None = None) -> TrainedNetwork:
        network, checkpoint = job.network(len(examples.class_names)), out / f"{name}.checkpoint.safetensors"
        return train_network(
            network, inputs, cells, rule, recipe, seed=job.seed, teacher=teacher, checkpoint=checkpoint, on_step=on_step
        )

    lesson = method.teacher()
    trained = train(method, "network", None if lesson is None else train(lesson, "teacher").model)
    judged = {part: judge(trained.model, examples, part) for part in examples.parts if part != "train"}
    metrics = {part: {name: c.metric(name) for name in REPORTED} for part, c in judged.items()}
    result = {
        "job": {key: str(value) if isinstance(value, Path) else value for key, value in asdict(job).items()},
        "method": method.name,
        "hyperparameters": {f.name: getattr(method, f.name) for f in fields(method)},
        "recipe": asdict(recipe),
        "rows": len(cells),
        "seconds": trained.seconds,
        "weights": trained.criterion.weights.tolist(),
        "losses": trained.losses,
        "metrics": metrics,
        "confusion": {part: c.counts.tolist() for part, c in judged.items()},
    }
    if rank() == 0:
        state = {key: value.cpu().contiguous() for key, value in trained.model.state_dict().items()}
        write_whole(out / "network.safetensors", safetensors.torch.save(state))
        write_whole(out / "result.json", json.dumps(result, indent=1) + "\n")
    return metrics


def last_layer(job: Job, out: Path, *, epochs: int | None = None, on_step: OnStep | None = None) -> Path:
    """Write the features of a network's last hidden layer into a file, a dataset for benches; return its path.

    A network for images is trained plainly first, for so many epochs; an encoder of texts is taken as it is. What is there
    already is not made again.
    """
    trains = job.dataset in IMAGES
    stem = f"{job.name}-{epochs}epochs" if trains and epochs is not None else job.name
    path = out / f"{stem}.safetensors"
    if path.exists():
        return path
    examples = load_examples(job)
    network = job.network(len(examples.class_names))
    if trains:
        inputs, cells = examples.part("train")
        checkpoint = out / f"{stem}.checkpoint"
        train_network(
            network, inputs, cells, Scratch(), job.recipe(epochs), seed=job.seed, checkpoint=checkpoint, on_step=on_step
        )
    features = features_of(network, examples.inputs).numpy()
    save_features(
        path,
        name=stem,
        features=features,
        y=examples.y,
        groups=examples.groups,
        class_names=examples.class_names,
        parts={key: np.asarray(rows) for key, rows in examples.parts.items()},
        card=examples.card,
    )
    return path
