"""Images and texts from end to end, and the cheap way: a frontier on the last layer of a network."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import nn

from fairdro.data.celeba import check_celeba, load_celeba
from fairdro.data.civilcomments import check_civilcomments, load_civilcomments
from fairdro.data.examples import Examples
from fairdro.data.features import save_features
from fairdro.data.hatexplain import check_hatexplain, load_hatexplain
from fairdro.data.images import ImageInputs, load_image_folder
from fairdro.data.texts import load_text_table
from fairdro.data.utkface import check_utkface, load_utkface
from fairdro.errors import InputError, unknown_name
from fairdro.files import make_folder, write_whole
from fairdro.methods import Method, Scratch
from fairdro.metrics import REPORTED, Confusion, confusion_counts
from fairdro.models.pretrained import PretrainedClassifier, channel_scale
from fairdro.models.resnet import ResNet18
from fairdro.seeding import generator, number
from fairdro.training.network import (
    Recipe,
    TrainedNetwork,
    digest,
    features_of,
    logits_of,
    some_of,
    train_network,
)
from fairdro.training.processes import rank

__all__ = ["DEEP", "Job", "check_data", "judge", "last_layer", "load_examples", "load_run", "train_end_to_end"]

OnStep = Callable[[int, int], object]
Stage = Callable[[str], AbstractContextManager[OnStep | None]]
"""Makes a context for a named stage of the work, and says whom to tell its steps."""

PROTOCOLS = ["validated", "paper"]
RESNET = "resnet18"
WEIGHTS, RESULT = "network.safetensors", "result.json"
LABELS = ["labels.csv", "labels.parquet"]


def quiet(what: str) -> AbstractContextManager[None]:
    """Tell nobody."""
    return nullcontext()


def _load_own_images(folder: Path, *, size: int, protocol: str, on_step: OnStep | None) -> Examples:
    """Load a folder of images with its table; the table says which part an image is in."""
    tables = [folder / name for name in LABELS if (folder / name).exists()]
    if not tables:
        raise InputError(
            f"There is no {' or '.join(LABELS)} in {folder}: a table with the columns image (path of the file in the "
            "folder), label, group and, if you like, split (train, validation or test)."
        )
    return load_image_folder(folder, tables[0], size=size, on_step=on_step)


def _load_own_texts(path: Path, *, encoder: str, groups: str) -> Examples:
    """Load a table with the columns text, label, group and, if there is one, split."""
    if groups == "soft":
        raise InputError("For shares of soft groups in a table of your own call fairdro.data.texts.load_text_table.")
    return load_text_table(path, encoder=encoder)


IMAGES: dict[str, Callable[..., Examples]] = {"utkface": load_utkface, "celeba": load_celeba, "images": _load_own_images}
TEXTS: dict[str, Callable[..., Examples]] = {
    "civilcomments": load_civilcomments,
    "hatexplain": load_hatexplain,
    "texts": _load_own_texts,
}
HARD = {"civilcomments": "argmax", "hatexplain": "majority", "texts": "hard"}
CHECKS = {
    "utkface": check_utkface,
    "celeba": check_celeba,
    "civilcomments": check_civilcomments,
    "hatexplain": check_hatexplain,
}
DEEP = [*IMAGES, *TEXTS]


@dataclass(frozen=True)
class Job:
    """A network on a dataset of images or texts.

    Attributes
    ----------
    dataset : str
        One of :data:`DEEP`; ``images`` and ``texts`` are the user's own.
    data : Path
        Folder, or file, with its data.
    model : str
        ``resnet18``, which starts from nothing, for images; or the name or folder of an encoder of Hugging Face.
    size : int
        Side of the images in pixels; the paper's is 224.
    soft : bool
        Whether texts belong to groups in shares.
    protocol : {"validated", "paper"}
        ``validated``: there is a validation part, if need be a fifth of the training part, which does not train. ``paper``:
        as the paper has it. For UTKFace and CelebA see their loaders, too.
    seed : int
        Of initial weights and batches.
    """

    dataset: str
    data: Path
    model: str = RESNET
    size: int = 224
    soft: bool = False
    protocol: str = "validated"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dataset not in DEEP:
            raise unknown_name("dataset of images or texts", self.dataset, DEEP)
        if self.dataset in TEXTS and self.model == RESNET:
            raise InputError(f"{self.dataset} holds texts: name an encoder of Hugging Face, or its folder, as the model.")
        if self.protocol not in PROTOCOLS:
            raise unknown_name("protocol", self.protocol, PROTOCOLS)
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
        return ResNet18(n_classes) if self.model == RESNET else PretrainedClassifier.from_pretrained(self.model, n_classes)

    def recipe(self, **changes: Any) -> Recipe:
        """Return the paper's settings, with changes; those that are None are left out."""
        paper = (
            Recipe()
            if self.dataset in IMAGES
            else Recipe(epochs=3, batch_size=24, lr=2e-5, schedule="linear", warm_up=0.1, clip=1.0, update_every=100)
        )
        return replace(paper, **{key: value for key, value in changes.items() if value is not None})


def load_examples(job: Job, on_step: OnStep | None = None) -> Examples:
    """Load the data of a job."""
    examples = _load(job, on_step)
    if job.protocol == "paper" or "validation" in examples.parts:
        return examples
    train = examples.parts["train"]
    order = torch.randperm(len(train), generator=generator(0, "validation")).numpy()
    kept, held = (train[np.sort(rows)] for rows in np.split(order, [int(0.8 * len(train))]))
    return replace(examples, parts={"train": kept, "validation": held, "test": examples.parts["test"]})


def _load(job: Job, on_step: OnStep | None) -> Examples:
    if job.dataset in TEXTS:
        return TEXTS[job.dataset](job.data, encoder=job.model, groups="soft" if job.soft else HARD[job.dataset])
    scale = None if job.model == RESNET else channel_scale(job.model)
    examples = IMAGES[job.dataset](job.data, size=job.size, protocol=job.protocol, on_step=on_step)
    if scale is None or not isinstance(examples.inputs, ImageInputs):
        return examples
    return replace(examples, inputs=ImageInputs(examples.inputs.images, size=job.size, mean=scale[0], std=scale[1]))


def check_data(dataset: str, folder: Path) -> list[str]:
    """Return sentences on whether the data of a folder are those that were published."""
    if dataset not in CHECKS:
        raise unknown_name("dataset of images or texts", dataset, list(CHECKS))
    return CHECKS[dataset](folder)


def judge(network: nn.Module, examples: Examples, part: str, on_step: OnStep | None = None) -> Confusion:
    """Return how a part is predicted."""
    inputs, cells = examples.part(part)
    counts = confusion_counts(logits_of(network, inputs, on_step=on_step).argmax(-1), cells)
    return Confusion(counts, examples.class_names, examples.groups.names, not examples.groups.soft)


def train_end_to_end(
    job: Job,
    examples: Examples,
    method: Method,
    out: Path,
    *,
    recipe: Recipe | None = None,
    rows: int | None = None,
    teacher: nn.Module | None = None,
    stage: Stage = quiet,
) -> dict[str, Any]:
    """Train a network by a method, write its weights and what came of it into a folder; return the latter.

    That holds the settings, whether training diverged, the metrics and confusion tensors of the parts that did not train,
    and the method's last weights. Training goes on where it was stopped.

    Parameters
    ----------
    recipe : Recipe, optional
        By default the paper's, :meth:`Job.recipe`.
    rows : int, optional
        Train on so many rows of the training part only, drawn at random but always the same.
    teacher : nn.Module, optional
        For a method that learns from one (MFD); without, one is trained plainly first.
    """
    make_folder(out)
    inputs, cells = examples.part("train")
    if rows is not None:
        if rows < 1:
            raise InputError(f"rows must be a positive whole number, got {rows}.")
        kept = torch.randperm(len(cells), generator=torch.Generator().manual_seed(0))[:rows]
        inputs, cells = type(inputs)(inputs.inputs, inputs.rows[kept]), cells.take(kept)
    recipe = job.recipe() if recipe is None else recipe

    def train(rule: Method, name: str, teacher: nn.Module | None = None) -> TrainedNetwork:
        network, checkpoint = job.network(len(examples.class_names)), out / f"{name}.checkpoint.safetensors"
        with stage(f"training the {name}") as on_step:
            return train_network(
                network, inputs, cells, rule, recipe, seed=job.seed, teacher=teacher, checkpoint=checkpoint, on_step=on_step
            )

    lesson = method.teacher()
    if lesson is not None and teacher is None:
        teacher = train(lesson, "teacher").model
    trained = train(method, "network", teacher)
    with stage("testing") as on_step:
        judged = {part: judge(trained.model, examples, part, on_step) for part in examples.parts if part != "train"}
    result = {
        "job": {key: value for key, value in asdict(job).items() if key != "data"} | {"model": _place(job.model)},
        "method": method.name,
        "hyperparameters": {f.name: getattr(method, f.name) for f in fields(method)},
        "recipe": asdict(recipe),
        "rows": len(cells),
        "seconds": trained.seconds,
        "weights": trained.criterion.weights.tolist(),
        "losses": [loss if math.isfinite(loss) else None for loss in trained.losses],
        "diverged": trained.diverged,
        "metrics": {part: {name: c.metric(name) for name in REPORTED} for part, c in judged.items()},
        "confusion": {part: c.counts.tolist() for part, c in judged.items()},
    }
    if rank() == 0:
        write_whole(out / WEIGHTS, _weights(trained.model))
        write_whole(out / RESULT, json.dumps(result, indent=1) + "\n")
    return result


def _place(model: str) -> str:
    """Return the folder of an encoder from anywhere, or its name."""
    return str(Path(model).resolve()) if Path(model).is_dir() else model


def _weights(network: nn.Module) -> bytes:
    return safetensors.torch.save({key: value.cpu().contiguous() for key, value in network.state_dict().items()})


def load_run(folder: Path, data: Path) -> tuple[Job, nn.Module]:
    """Return what :func:`train_end_to_end` wrote into a folder: the job, with its data in another, and the network."""
    try:
        result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        job = Job(data=data, **result["job"])
        network = job.network(len(result["weights"]))
        network.load_state_dict(safetensors.torch.load_file(folder / WEIGHTS))
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{folder} holds no trained network; name a folder made by `fairdro train`.") from error
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise InputError(f"The network in {folder} cannot be read ({error}); train it anew.") from error
    return job, network


def last_layer(
    job: Job, out: Path, *, network: nn.Module | None = None, epochs: int | None = None, stage: Stage = quiet
) -> Path:
    """Write the features of a network's last hidden layer into a file, a dataset for benches; return its path.

    The name of the file tells networks, parts and data apart; what is there already is not made again.

    Parameters
    ----------
    job : Job
        A pretrained encoder is taken as it is unless ``epochs`` is given; ResNet-18 is trained plainly first.
    out : Path
        Folder for the file.
    network : nn.Module, optional
        One that is trained already, with a method ``features(x)``, to take instead.
    epochs : int, optional
        By default the paper's.
    """
    recipe = job.recipe(epochs=epochs) if network is None and (job.model == RESNET or epochs is not None) else None
    with stage(f"reading {job.dataset}") as on_step:
        examples = load_examples(job, on_step)
    make_folder(out)
    network = job.network(len(examples.class_names)) if network is None else network
    labels = (torch.as_tensor(values) for values in (examples.y, examples.groups.values, *examples.parts.values()))
    known = digest([*network.state_dict().values(), *some_of(examples.inputs), *labels])
    stem = f"{job.name}-{hashlib.sha256(f'{recipe} {known}'.encode()).hexdigest()[:8]}"
    path = out / f"{stem}.safetensors"
    if path.exists():
        return path
    if recipe is not None:
        inputs, cells = examples.part("train")
        checkpoint = out / f"{stem}.checkpoint"
        with stage("training the network") as on_step:
            train_network(network, inputs, cells, Scratch(), recipe, seed=job.seed, checkpoint=checkpoint, on_step=on_step)
    with stage("taking the features") as on_step:
        features = features_of(network, examples.inputs, on_step=on_step).numpy()
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
