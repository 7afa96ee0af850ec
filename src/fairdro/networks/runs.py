"""A network on images or texts from end to end: what to train, how it is trained and judged, and what is written."""

import json
import math
import warnings
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import nn

from fairdro._utils.files import make_folder, write_whole
from fairdro._utils.progress import OnStep, Stage, quiet
from fairdro._utils.seeding import number
from fairdro.data import DATASETS, Entry, Examples, load_dataset, names
from fairdro.data.base import check_protocol
from fairdro.data.images import ImageInputs
from fairdro.errors import InputError, unknown_name
from fairdro.methods import Method
from fairdro.metrics import METRICS, Confusion, confusion_counts
from fairdro.models.backbones import RESNET, Backbone, get_backbone
from fairdro.networks.head import NetworkHead, fit_network_head
from fairdro.training.inputs import logits_of
from fairdro.training.network import Recipe, TrainedNetwork, train_network
from fairdro.training.processes import rank

WIDTH = 64
WEIGHTS, RESULT = "network.safetensors", "result.json"


@dataclass(frozen=True)
class Job:
    """A network on a dataset of images or texts.

    Attributes
    ----------
    dataset, data
        As :func:`~fairdro.load_dataset` takes them: a name, and the folder that holds it.
    model : str, default "resnet18"
        For images ``resnet18``, which starts from nothing, or ``efficientnet-lite0``, pretrained on ImageNet; or the name or
        folder of an encoder of Hugging Face.
    size : int, default 224
        Of images: pixels of a side.
    width : int, default 64
        Of ResNet-18: channels of its first layer.
    soft : bool, default False
        Whether groups are shares, where the dataset has them.
    protocol : {"validated", "paper"}, default "validated"
        ``validated``: there is a validation part, if need be a fifth of the training part, which does not train. ``paper``:
        as the paper has it. For UTKFace and CelebA see their loaders, too.
    seed : int, default 0
        Of initial weights and batches.

    Examples
    --------
    >>> from pathlib import Path
    >>> from fairdro.networks.runs import Job
    >>> job = Job("celeba", Path("celeba"), size=32, width=8)
    >>> job.backbone.pretrained
    False
    >>> sum(parameter.numel() for parameter in job.network(n_classes=2).parameters())
    175882
    """

    dataset: str
    data: Path
    model: str = RESNET
    size: int = 224
    width: int = WIDTH
    soft: bool = False
    protocol: str = "validated"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dataset not in names("images", "texts"):
            raise unknown_name("dataset of images or texts", self.dataset, names("images", "texts"))
        if self.entry.kind == "texts" and not self.backbone.texts:
            raise InputError(f"{self.dataset} holds texts: name an encoder of Hugging Face, or its folder, as the model.")
        check_protocol(self.protocol)
        if self.width != WIDTH and self.backbone.pretrained:
            raise InputError(f"Only {RESNET} has a width to choose; leave it out for {self.model}.")
        if self.soft and "soft" not in self.entry.options:
            hint = "; for columns of shares call fairdro.data.texts.load_text_table" if self.entry.kind == "texts" else ""
            raise InputError(f"{self.dataset} has no soft groups{hint}.")

    @property
    def entry(self) -> Entry:
        """The dataset in the registry."""
        return DATASETS[self.dataset]

    @property
    def backbone(self) -> Backbone:
        """What the model is."""
        return get_backbone(self.model)

    @property
    def name(self) -> str:
        """A name for files."""
        parts = [self.dataset, Path(self.model).name, f"width{self.width}" if self.width != WIDTH else ""]
        parts += [f"{self.size}px" if self.entry.kind == "images" else "", "soft" if self.soft else "", f"seed{self.seed}"]
        return "-".join(part for part in parts if part)

    def network(self, n_classes: int) -> nn.Module:
        """Return an untrained network, or a pretrained one with a fresh head."""
        torch.manual_seed(number(self.seed, "network"))
        return self.backbone.make(n_classes, self.size, self.width)

    def recipe(self, **changes: Any) -> Recipe:
        """Return the paper's settings, with changes; those that are None are left out."""
        texts = Recipe(epochs=3, batch_size=24, lr=2e-5, schedule="linear", warm_up=0.1, clip=1.0, update_every=100)
        paper = texts if self.entry.kind == "texts" else Recipe()
        return replace(paper, **{key: value for key, value in changes.items() if value is not None})


def load_examples(job: Job, on_step: OnStep | None = None) -> Examples:
    """Load the data of a job."""
    scale = job.backbone.scale() if job.entry.kind == "images" else None
    given = {"encoder": job.model, "soft": job.soft, "size": job.size, "protocol": job.protocol, "on_step": on_step}
    options = {key: value for key, value in given.items() if key in job.entry.options}
    examples = load_dataset(job.dataset, data=job.data, **options)
    if scale is not None and isinstance(examples.inputs, ImageInputs):
        inputs = ImageInputs(examples.inputs.images, size=job.size, mean=scale[0], std=scale[1])
        examples = replace(examples, inputs=inputs)
    examples = examples if job.protocol == "paper" else examples.with_validation()
    counts = examples.part("train")[1].counts.sum(-1)
    if bool((counts == 0).any()):
        missing, rows = examples.class_names[int(counts.argmin())], len(examples.parts["train"])
        raise InputError(f"The class {missing!r} of {job.dataset} is not among the {rows} rows that train; add some of it.")
    return examples


def judge(network: nn.Module, examples: Examples, part: str, on_step: OnStep | None = None) -> Confusion:
    """Return how a part is predicted."""
    inputs, cells = examples.part(part)
    counts = confusion_counts(logits_of(network, inputs, on_step=on_step).argmax(-1), cells)
    return Confusion(counts, examples.class_names, examples.groups.names, not examples.groups.soft)


def train_job(
    job: Job,
    examples: Examples,
    method: Method,
    folder: Path,
    *,
    recipe: Recipe | None = None,
    rows: int | None = None,
    teacher: nn.Module | None = None,
    stage: Stage = quiet,
) -> TrainedNetwork:
    """Train a network by a method, with checkpoints in a folder, from which training resumes where it was stopped.

    Its seconds are with those of a teacher that is trained first. For the parameters see :func:`train_end_to_end`.
    """
    make_folder(folder)
    inputs, cells = examples.part("train")
    if rows is not None:
        if rows < 1:
            raise InputError(f"rows must be a positive whole number, got {rows}.")
        kept = torch.randperm(len(cells), generator=torch.Generator().manual_seed(0))[:rows]
        inputs, cells = type(inputs)(inputs.inputs, inputs.rows[kept]), cells.take(kept)
    recipe = job.recipe() if recipe is None else recipe

    def train(method: Method, name: str, teacher: nn.Module | None = None) -> TrainedNetwork:
        network, checkpoint = job.network(len(examples.class_names)), folder / f"{name}.checkpoint.safetensors"
        with stage(f"training the {name}") as on_step:
            return train_network(
                network, inputs, cells, method, recipe, seed=job.seed, teacher=teacher, checkpoint=checkpoint,
                on_step=on_step,
            )  # fmt: skip

    if (plain := method.teacher()) is None or teacher is not None:
        return train(method, "network", teacher)
    taught_by = train(plain, "teacher")
    trained = train(method, "network", taught_by.model)
    return replace(trained, seconds=trained.seconds + taught_by.seconds)


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

    Training resumes where it was stopped. Where there is a validation part, a head is fitted to it and written too
    (:mod:`fairdro.networks.head`).

    Parameters
    ----------
    recipe : Recipe, optional
        By default the paper's, :meth:`Job.recipe`.
    rows : int, optional
        Train on so many rows of the training part only, drawn at random but always the same.
    teacher : nn.Module, optional
        For a method that learns from one (MFD); without, one is trained plainly first.
    """
    recipe = job.recipe() if recipe is None else recipe
    trained = train_job(job, examples, method, out, recipe=recipe, rows=rows, teacher=teacher, stage=stage)
    with stage("testing") as on_step:
        judged = {part: judge(trained.model, examples, part, on_step) for part in examples.parts if part != "train"}
    model = str(Path(job.model).resolve()) if Path(job.model).is_dir() else job.model  # a folder, seen from anywhere
    n_rows = len(examples.parts["train"])
    result = {
        "job": {key: value for key, value in asdict(job).items() if key != "data"} | {"model": model},
        "method": method.name,
        "hyperparameters": {f.name: getattr(method, f.name) for f in fields(method)},
        "recipe": asdict(recipe),
        "rows": n_rows if rows is None else min(rows, n_rows),
        "seconds": trained.seconds,
        "weights": trained.weights[0, 0].tolist(),
        "losses": [loss if math.isfinite(loss) else None for loss in trained.losses],
        "diverged": bool(trained.diverged),
        **_figures(judged),
    }
    if rank() == 0:
        weights = {key: value.cpu().contiguous() for key, value in trained.model.state_dict().items()}
        write_whole(out / WEIGHTS, safetensors.torch.save(weights))
        with stage("fitting a head"):
            result["head"] = None if trained.diverged else _add_head(trained.model, examples, out)
        write_whole(out / RESULT, json.dumps(result, indent=1) + "\n")
    return result


def _figures(judged: dict[str, Confusion]) -> dict[str, Any]:
    """Return the metrics and confusion tensors of parts as plain data."""
    return {
        "metrics": {part: {name: c.metric(name) for name in METRICS} for part, c in judged.items()},
        "confusion": {part: c.counts.tolist() for part, c in judged.items()},
    }


def _add_head(network: nn.Module, examples: Examples, out: Path) -> dict[str, Any] | None:
    """Fit a head to the validation part and write it; return what it gives on the parts that did not train the network."""
    if "validation" not in examples.parts or len(examples.groups.names) < 2:
        return None
    try:
        head = fit_network_head(network, examples)
    except InputError as error:
        warnings.warn(f"No head was fitted to the validation part: {error}", RuntimeWarning, stacklevel=2)
        return None
    head.save(out)
    judged = {part: judge_head(head, network, examples, part) for part in examples.parts if part != "train"}
    return {"rho": head.head.rho_, **_figures(judged)}


def judge_head(head: NetworkHead, network: nn.Module, examples: Examples, part: str) -> Confusion:
    """Return how a part is predicted with a head; the validation part by heads that were not fitted to the row."""
    return head.head.held_out() if part == "validation" else head.judge(network, examples, part)


def load_run(folder: Path, data: Path) -> tuple[Job, nn.Module]:
    """Return what ``fairdro train`` wrote into a folder: the job and the trained network.

    Parameters
    ----------
    folder : Path
        What ``fairdro train`` wrote.
    data : Path
        Folder or file with the images or texts, which may have moved since.

    Returns
    -------
    job : Job
        With its data in ``data``.
    network : nn.Module
        With its trained weights.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import pandas as pd
    >>> from PIL import Image
    >>> from fairdro.methods import FairDRO
    >>> from fairdro.networks.runs import Job, load_examples, load_run, train_end_to_end
    >>> Path("faces").mkdir()
    >>> files = [f"{i}.png" for i in range(40)]
    >>> for i, file in enumerate(files):
    ...     Image.fromarray(np.full((16, 16, 3), 6 * i, dtype=np.uint8)).save(Path("faces", file))
    >>> table = pd.DataFrame({"image": files, "label": np.arange(40) % 2, "group": np.arange(40) // 2 % 2})
    >>> table.to_csv("faces/labels.csv", index=False)
    >>> job = Job("images", Path("faces"), size=16, width=4, protocol="paper")
    >>> result = train_end_to_end(job, load_examples(job), FairDRO(rho=1.0), Path("run"), recipe=job.recipe(epochs=1))
    >>> again, network = load_run(Path("run"), Path("faces"))
    >>> again == job
    True
    """
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
