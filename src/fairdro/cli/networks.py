"""``fairdro train`` and ``fairdro data check``: images and texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairdro.cli import options
from fairdro.cli.terminal import say, sentences, steps, tell
from fairdro.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from fairdro.methods import Method
    from fairdro.networks.runs import Job

DATA_HELP = "Folder or file with the images or texts."
SWITCHES = {"true": True, "false": False}


def train(
    *,
    dataset: Annotated[
        str,
        typer.Argument(
            help="utkface, celeba, civilcomments, hatexplain, or your own: images or texts.",
            autocompletion=options.complete("images or texts"),
        ),
    ],
    data: Annotated[Path, typer.Option(help=DATA_HELP)],
    out: Annotated[Path, typer.Option(help="Folder for the network and its metrics.")],
    method: Annotated[
        str, typer.Option(help="One of `fairdro list methods`.", autocompletion=options.complete("method"))
    ] = "fairdro",
    model: Annotated[
        str | None,
        typer.Option(
            help="'resnet18', the default for images, 'efficientnet-lite0', or an encoder of Hugging Face by name or folder."
        ),
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A hyperparameter of the method, e.g. rho=0.3.")] = None,
    epochs: Annotated[int | None, typer.Option(help="The paper's by default: 70, for texts 3.")] = None,
    lr: options.LearningRate = None,
    batch_size: options.BatchSize = None,
    precision: options.Precision = None,
    update_every: Annotated[
        int | None, typer.Option(help="Batches between updates of weights: an epoch, for texts 100.")
    ] = None,
    teacher: Annotated[
        Path | None,
        typer.Option(help="For mfd: folder made by `fairdro train --method scratch`, else one is trained first."),
    ] = None,
    size: options.Size = None,
    width: options.Width = None,
    rows: Annotated[int | None, typer.Option(help="Train on so many rows only.")] = None,
    soft: options.Soft = None,
    protocol: Annotated[
        str | None, typer.Option(help="'validated', the default, with a validation part, or 'paper'.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of initial weights and batches; by default 0.")] = None,
) -> None:
    """Train a network from end to end on images or texts; also under torchrun. It goes on where it was stopped."""
    from fairdro.networks.runs import Job, load_examples, train_end_to_end
    from fairdro.training.processes import processes, rank

    job = Job(
        dataset, data, **options.given_of(model=model, size=size, width=width, soft=soft, protocol=protocol, seed=seed)
    )
    chosen = _method(method, set_ or [])
    recipe = job.recipe(epochs=epochs, lr=lr, batch_size=batch_size, update_every=update_every, precision=precision)
    taught_by = None if teacher is None else _teacher(teacher, job)
    with processes():
        with steps(f"reading {dataset}") as on_step:
            examples = load_examples(job, on_step)
        with sentences():
            result = train_end_to_end(job, examples, chosen, out, recipe=recipe, rows=rows, teacher=taught_by, stage=steps)
        if rank() > 0:
            return
    _show(result["metrics"])
    if result["head"] is not None:
        tell(f"With a head fitted to the validation part (rho = {result['head']['rho']:.4g}):")
        _show(result["head"]["metrics"])
    tell(f"The network{'' if result['head'] is None else ', its head'} and the metrics are in {out}.")
    if result["diverged"]:
        say("the training diverged, and the network is of no use; train another into another folder.")
        raise typer.Exit(1)


def _show(metrics: dict[str, dict[str, float]]) -> None:
    """Print the metrics of every part."""
    for part, values in metrics.items():
        tell(f"{part}: " + ", ".join(f"{name.replace('_', ' ')} {100 * value:.2f}" for name, value in values.items()))


def _teacher(folder: Path, job: Job) -> nn.Module:
    """Return the network of another run, if it can teach this one."""
    from fairdro.networks.runs import load_run

    other, network = load_run(folder, job.data)
    same_model = other.model in (job.model, str(Path(job.model).resolve()))
    if (other.dataset, other.size) != (job.dataset, job.size) or not same_model:
        raise InputError(f"The network in {folder} is of another kind, data or size, and cannot teach this one.")
    return network


def _method(name: str, settings: list[str]) -> Method:
    """Return a method with settings such as ``rho=0.3``; a value that is no number is a string."""
    from fairdro.methods import check_hyperparameters, get_method

    values: dict[str, Any] = {}
    for setting in settings:
        key, given, text = setting.partition("=")
        if not given:
            raise InputError(f"Write a hyperparameter as name=value, for example rho=0.3, not {setting!r}.")
        try:
            values[key] = SWITCHES[text.lower()] if text.lower() in SWITCHES else float(text)
        except ValueError:
            values[key] = text
    kind = get_method(name)
    check_hyperparameters(kind, values)
    return kind(**values)


def check(
    dataset: Annotated[
        str,
        typer.Argument(help="utkface, celeba, civilcomments or hatexplain.", autocompletion=options.complete("published")),
    ],
    folder: Annotated[Path, typer.Argument(help="Where its files are.")],
) -> None:
    """Check whether images or texts are those that were published: counts of every class and group."""
    from fairdro.data import check_data

    for sentence in check_data(dataset, folder):
        tell(sentence)
