"""``fairdro train`` and ``fairdro data check``: images and texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fairdro.cli.terminal import say, sentences, steps, tell
from fairdro.errors import InputError
from fairdro.methods import check_hyperparameters, get_method
from fairdro.training.processes import processes, rank

__all__ = ["DATA_HELP", "check", "train"]

DEEP_HELP = "utkface, celeba, civilcomments, hatexplain, or your own: images or texts."
DATA_HELP = "Folder or file with the images or texts."
SWITCHES = {"true": True, "false": False}


def train(
    *,
    dataset: Annotated[str, typer.Argument(help=DEEP_HELP, show_default=False)],
    data: Annotated[Path, typer.Option(help=DATA_HELP, show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for the network and its metrics.", show_default=False)],
    method: Annotated[str, typer.Option(help="One of `fairdro list methods`.")] = "fairdro",
    model: Annotated[str, typer.Option(help="'resnet18', or an encoder of Hugging Face, by name or folder.")] = "resnet18",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A hyperparameter of the method, e.g. rho=0.3.", show_default=False)
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="The paper's by default: 70, for texts 3.", show_default=False)] = None,
    lr: Annotated[float | None, typer.Option(help="Likewise: 0.001, for texts 0.00002.", show_default=False)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Likewise: 128, for texts 24.", show_default=False)] = None,
    update_every: Annotated[
        int | None, typer.Option(help="Batches between updates of weights: an epoch, for texts 100.", show_default=False)
    ] = None,
    teacher: Annotated[
        Path | None,
        typer.Option(help="For mfd: folder made by `fairdro train --method scratch`, else one is trained first."),
    ] = None,
    size: Annotated[int, typer.Option(help="Side of images in pixels.")] = 224,
    rows: Annotated[int | None, typer.Option(help="Train on so many rows only.", show_default=False)] = None,
    soft: Annotated[bool, typer.Option("--soft", help="Texts belong to groups in shares.")] = False,
    protocol: Annotated[str, typer.Option(help="'validated', with a validation part, or 'paper'.")] = "validated",
    seed: Annotated[int, typer.Option(help="Seed of initial weights and batches.")] = 0,
) -> None:
    """Train a network from end to end on images or texts; also under torchrun. It goes on where it was stopped."""
    from fairdro.deep import Job, load_examples, load_run, train_end_to_end  # noqa: PLC0415 - a while to load

    job = Job(dataset, data, model=model, size=size, soft=soft, protocol=protocol, seed=seed)
    hyperparameters, kind = _hyperparameters(set_ or []), get_method(method)
    check_hyperparameters(kind, hyperparameters)
    rule = kind(**hyperparameters)
    recipe = job.recipe(epochs=epochs, lr=lr, batch_size=batch_size, update_every=update_every)
    lesson = None
    if teacher is not None:
        taught, lesson = load_run(teacher, data)
        if (taught.dataset, taught.size) != (dataset, size) or taught.model not in (model, str(Path(model).resolve())):
            raise InputError(f"The network in {teacher} is of another kind, data or size, and cannot teach this one.")
    with processes():
        with steps(f"reading {dataset}") as on_step:
            examples = load_examples(job, on_step)
        with sentences():
            result = train_end_to_end(job, examples, rule, out, recipe=recipe, rows=rows, teacher=lesson, stage=steps)
        if rank() > 0:
            return
    for part, values in result["metrics"].items():
        shown = ", ".join(f"{name.replace('_', ' ')} {100 * value:.2f}" for name, value in values.items())
        tell(f"{part}: {shown}")
    tell(f"The network and its metrics are in {out}.")
    if result["diverged"]:
        say("the training diverged, and the network is of no use; train another into another folder.")
        raise typer.Exit(1)


def _hyperparameters(settings: list[str]) -> dict[str, Any]:
    """Read settings such as ``rho=0.3``; a value that is no number is a text."""
    values: dict[str, Any] = {}
    for setting in settings:
        name, given, text = setting.partition("=")
        if not given:
            raise InputError(f"Write a hyperparameter as name=value, for example rho=0.3, not {setting!r}.")
        try:
            values[name] = SWITCHES[text.lower()] if text.lower() in SWITCHES else float(text)
        except ValueError:
            values[name] = text
    return values


def check(
    dataset: Annotated[str, typer.Argument(help="utkface, celeba, civilcomments or hatexplain.", show_default=False)],
    folder: Annotated[Path, typer.Argument(help="Where its files are.", show_default=False)],
) -> None:
    """Check whether images or texts are those that were published: counts of every class and group."""
    from fairdro.deep import check_data  # noqa: PLC0415 - a while to load

    for sentence in check_data(dataset, folder):
        tell(sentence)
