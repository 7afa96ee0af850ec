"""Networks in a bench: which network a bank trains, on which images or texts, and for how long."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from fairdro._utils.hashing import digest
from fairdro.data import Examples
from fairdro.errors import InputError
from fairdro.methods import LBC, Method
from fairdro.networks.runs import Job, load_examples
from fairdro.training.inputs import some_of
from fairdro.training.network import Recipe

LBC_ROUNDS, LBC_EPOCHS = 14, 5  # the paper's for images: rounds, and epochs of each; a text has one round


@cache
def known_examples(job: Job) -> Examples:
    """Return the images or texts that many banks ask for; not to be changed."""
    return load_examples(job)


@dataclass(frozen=True)
class Network:
    """The network of a bank and how it is trained.

    Attributes
    ----------
    content : str
        Hash of some of the images or texts, of all labels and parts, and of pretrained weights: what a bank is known by,
        wherever the files are.
    encoder : str
        Name of a pretrained network, or of its folder; empty for ResNet-18.
    size, width : int or None
        Of images, and of ResNet-18.
    soft : bool
        Whether texts belong to groups in shares.
    epochs, batch_size, lr, precision
        As of :class:`~fairdro.training.network.Recipe`. The epochs of a method with several rounds are those of all rounds
        together, an epoch each at least.
    job : Job or None
        Where the data are, with any seed; None where the bank is read from a store.
    """

    content: str
    encoder: str
    size: int | None
    width: int | None
    soft: bool
    epochs: int
    batch_size: int
    lr: float
    precision: str | None = None
    job: Job | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, job: Job, recipe: Recipe) -> Network:
        """Load the data of a job, and describe its network."""
        examples = known_examples(job)
        labels = [examples.y, examples.groups.values, *examples.parts.values()]
        names = [examples.class_names, examples.groups.names, list(examples.parts)]
        pretrained = job.backbone.pretrained
        weights = job.network(len(examples.class_names)).state_dict().values() if pretrained else []
        return cls(
            content=digest(names, *labels, *some_of(examples.inputs), *weights),
            encoder=Path(job.model).name if pretrained else "",
            size=job.size if job.entry.kind == "images" else None,
            width=None if pretrained else job.width,
            soft=job.soft,
            epochs=recipe.epochs,
            batch_size=recipe.batch_size,
            lr=recipe.lr,
            precision=recipe.precision,
            job=job,
        )

    def __str__(self) -> str:
        told = {
            "{}": self.encoder, "width {}": self.width, "{} px": self.size, "soft groups": self.soft,
            "{} epochs": self.epochs, "batches of {}": self.batch_size, "lr {:g}": self.lr, "in {}": self.precision,
            "data {:.8}": self.content,
        }  # fmt: skip
        return ", ".join(words.format(value) for words, value in told.items() if value)

    def spec(self) -> dict[str, Any]:
        """Return the network as plain data, without where its files are."""
        values = asdict(replace(self, job=None))
        return {key: value for key, value in values.items() if key != "job" and (key, value) != ("precision", None)}

    @property
    def known_job(self) -> Job:
        """Where the data are."""
        if self.job is None:
            raise InputError("A stored bank does not know where its images or texts are; plan the bench again.")
        return self.job

    @property
    def examples(self) -> Examples:
        """The images or texts."""
        return known_examples(self.known_job)

    def at(self, job: Job) -> Network:
        """Return the same network with its data in another place, which must hold the same."""
        found = Network.of(job, self.recipe_of(job))
        if found != self:
            raise InputError(f"{job.data} holds other images or texts on a worker, or held them when it first read them.")
        return found

    def hyperparameters(self, kind: type[Method]) -> dict[str, Any]:
        """Return hyperparameters that a method has here in the paper: LBC's rounds, which share the epochs.

        Of fewer epochs, there are fewer rounds and fewer epochs in each, in about the paper's proportion.
        """
        if not issubclass(kind, LBC):
            return {}
        if self.known_job.entry.kind == "texts":
            return {"rounds": 1}
        wanted = math.sqrt(self.epochs * LBC_ROUNDS / LBC_EPOCHS)
        near = range(min(math.ceil(wanted / 1.4), self.epochs), min(math.floor(wanted * 1.4), self.epochs) + 1)
        return {"rounds": min(near, key=lambda rounds: (self.epochs % rounds, abs(rounds - wanted)))}

    def recipe(self, method: Method) -> Recipe:
        """Return how a method is trained, in each of its rounds."""
        return replace(self.recipe_of(self.known_job), epochs=max(self.epochs // method.rounds, 1))

    def recipe_of(self, job: Job) -> Recipe:
        """Return how a plain network of a job is trained."""
        return job.recipe(epochs=self.epochs, batch_size=self.batch_size, lr=self.lr, precision=self.precision)

    def cost(self, method: Method) -> float:
        """Return how many rows are gone through in all."""
        epochs = self.recipe(method).epochs
        return len(self.examples) * epochs * (method.rounds + (method.teacher() is not None))
