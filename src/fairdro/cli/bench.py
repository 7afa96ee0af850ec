"""``fairdro bench`` and ``fairdro report``: methods compared on datasets."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import joblib
import typer
from rich.table import Column, Table
from rich.text import Text

from fairdro.bench import BenchPlan, Store, Study, read_study, run_bench, write_outputs
from fairdro.bench.tables import findings, how_chosen
from fairdro.cli.networks import DATA_HELP
from fairdro.cli.terminal import bank_bars, console, say, sentences, status, steps, tell
from fairdro.data import DATASETS
from fairdro.errors import InputError
from fairdro.frontier import Rule, rule_from

if TYPE_CHECKING:
    from torch import nn

    from fairdro.deep import Job

__all__ = ["bench", "report"]

SELECT_HELP = "How to choose a point of each method: 'keep=0.95' (the paper's rule), 'max-dca=0.05' or 'knee'."
WIDE = 120  # columns of a terminal that has room for the whole table


def bench(
    context: typer.Context,
    *,
    datasets: Annotated[list[str] | None, typer.Argument(help="Datasets to compare on.", show_default=False)] = None,
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas, or 'all'; `fairdro list methods`.")
    ] = "scratch,fairdro",
    solvers: Annotated[
        str | None,
        typer.Option(
            help="'fullbatch' (deterministic, for linear), 'minibatch' (the paper's), for boosting 'head' and 'weights', "
            "separated by commas; by default fullbatch, for mlp minibatch, for boosting head.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="'linear', 'mlp' and 'boosting', separated by commas; with --last-layer 'resnet18' or an encoder of "
            "Hugging Face."
        ),
    ] = "linear",
    points: Annotated[int, typer.Option(help="Hyperparameter points per method.")] = 20,
    seeds: Annotated[int, typer.Option(help="Seeds per point with the mini-batch solver.")] = 4,
    protocol: Annotated[
        str, typer.Option(help="'paper': choose on the test part, as the paper did; 'validated': on a validation part.")
    ] = "paper",
    split: Annotated[int, typer.Option(help="Seed of the train/test split; 0 is the paper's.")] = 0,
    objective: Annotated[
        str, typer.Option(help="What baselines minimise: 'balanced' (every cell counts the same) or 'standard'.")
    ] = "balanced",
    adaptive: Annotated[
        bool | None,
        typer.Option(
            "--adaptive/--plain-grid",
            help="Put half the points where the frontier has holes; by default with the full-batch solver.",
            show_default=False,
        ),
    ] = None,
    select: Annotated[str, typer.Option(help=SELECT_HELP)] = "keep=0.95",
    workers: Annotated[
        int | None, typer.Option(help="Processes to train in; by default as many as suit.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for results, tables, pictures and the report.")] = Path("results"),
    last_layer: Annotated[
        bool,
        typer.Option(
            "--last-layer", help="Compare on the last layer of the network --model; for images and texts in --data."
        ),
    ] = False,
    data: Annotated[Path | None, typer.Option(help=DATA_HELP, show_default=False)] = None,
    network: Annotated[
        Path | None,
        typer.Option(help="Folder made by `fairdro train`: take the last layer of its network.", show_default=False),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Epochs to train the network with --last-layer; the paper's for resnet18, none for an encoder.",
            show_default=False,
        ),
    ] = None,
    size: Annotated[int, typer.Option(help="Side of images in pixels with --last-layer.")] = 224,
    soft: Annotated[bool, typer.Option("--soft", help="Texts belong to groups in shares, with --last-layer.")] = False,
    file: Annotated[
        Path | None, typer.Option(help="A study in TOML, instead of all other options.", show_default=False)
    ] = None,
) -> None:
    """Train methods over their hyperparameters and compare accuracy with fairness. A bench that was stopped goes on."""
    if (file is None) == (not datasets):
        raise InputError(f"Name the datasets to compare on ({', '.join(DATASETS)}), or a study with --file; one of the two.")
    if file is not None:
        given = [f"--{name}" for name in context.params if name != "file" and _was_given(context, name)]
        if given:
            raise InputError(f"A study says all there is to say; leave out {', '.join(given)}, or write it into {file}.")
        study = read_study(file)
    else:
        plan_for = partial(
            BenchPlan,
            methods=_names(methods),
            solvers=[] if solvers is None else _names(solvers),
            points=points,
            seeds=seeds,
            split=split,
            objective=objective,
            adaptive=adaptive,
        )
        rule = rule_from(select)
        if last_layer:
            plan_for(protocol=protocol)  # what is wrong with it is said before the network is trained
            named = {name for name in ("model", "epochs", "size", "soft", "protocol") if _was_given(context, name)}
            options = {"model": model, "size": size, "soft": soft, "protocol": protocol}
            job, trained = _job(datasets or [], data, network, options, named)
            datasets, model, protocol = [_last_layer(job, trained, out, epochs)], "linear", job.protocol
        elif given := [f"--{name}" for name in ("data", "network", "epochs", "size", "soft") if _was_given(context, name)]:
            raise InputError(f"{', '.join(given)}: only with --last-layer, which is for images and texts.")
        else:
            _hint_at_last_layer(datasets or [])
        models = list(dict.fromkeys(_names(model))) or [model]
        if len(models) > 1 and solvers is not None:
            raise InputError("With several models each has its own solver; leave out --solvers, or name one model.")
        study = Study([plan_for(datasets or [], model=name, protocol=protocol) for name in models], out, workers, rule)
    try:
        with bank_bars([bank for plan in study.plans for bank in plan.banks()]) as on_step:
            for plan in study.plans:
                processes = _workers_for(plan) if study.workers is None else study.workers
                run_bench(plan, study.out, workers=processes, on_step=on_step)
    except KeyboardInterrupt:
        say("stopped. What is finished is stored; run the same command again to go on.")
        raise typer.Exit(130) from None
    _show(study.out, study.rule)


def report(
    folder: Annotated[Path, typer.Argument(help="Output folder of a bench.", show_default=False)],
    select: Annotated[str, typer.Option(help=SELECT_HELP)] = "keep=0.95",
) -> None:
    """Make tables, pictures and the report of a bench again, from what is stored."""
    _show(folder, rule_from(select))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _hint_at_last_layer(datasets: list[str]) -> None:
    if all(name in DATASETS for name in datasets):
        return
    from fairdro.deep import DEEP  # noqa: PLC0415 - a while to load

    for name in set(datasets) & set(DEEP):
        raise InputError(f"{name} holds images or texts: add --last-layer, --data and --model, or use `fairdro train`.")


def _job(
    datasets: list[str], data: Path | None, run: Path | None, options: dict[str, Any], given: set[str]
) -> tuple[Job, nn.Module | None]:
    """Return what features to make, from options or as a run of `fairdro train` has it, then with its network."""
    from fairdro.deep import RESNET, Job, load_run  # noqa: PLC0415 - a while to load

    if len(datasets) > 1 or data is None:
        raise InputError("With --last-layer name one dataset, and say with --data where its images or texts are.")
    if run is None:
        return Job(datasets[0], data, **(options if "model" in given else options | {"model": RESNET})), None
    if given - {"protocol"}:
        raise InputError(f"--network says all of the network; leave out --{', --'.join(sorted(given - {'protocol'}))}.")
    job, network = load_run(run, data)
    if job.dataset != datasets[0]:
        raise InputError(f"The network in {run} is for {job.dataset}, not for {datasets[0]}.")
    if "protocol" in given and options["protocol"] != job.protocol:
        raise InputError(f"The network in {run} was trained with --protocol {job.protocol}; bench it with the same.")
    return job, network


def _last_layer(job: Job, network: nn.Module | None, out: Path, epochs: int | None) -> str:
    """Make the features of a network's last layer, or find them made; return their file, which is a dataset."""
    from fairdro.deep import last_layer  # noqa: PLC0415 - a while to load

    with sentences():
        return str(last_layer(job, out, network=network, epochs=epochs, stage=steps))


def _workers_for(plan: BenchPlan) -> int:
    """Return one process for the full-batch solver, which has threads of its own; for mini-batches one per core."""
    return joblib.cpu_count() if "minibatch" in plan.solvers else 1


def _show(out: Path, rule: Rule) -> None:
    """Write what people look at, print the table, and say what was found and where to look."""
    store = Store(out)
    results = store.results()
    if store.outdated:
        say(f"{store.outdated} stored banks are of another version or of other data, and are left out.")
    with status("Drawing ..."):
        selected, shown = write_outputs(store, out, rule)
    if console.width < WIDE:  # the files have all columns
        shown = shown[[name for name in shown.columns if not name.startswith(("worst", "paper"))]]
    headers = [Column(name, no_wrap=name in {"dataset", "method", "model", "solver"}) for name in shown.columns]
    table = Table(*headers, title=how_chosen(results, rule))
    for row in shown.itertuples(index=False):
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    for line in findings(selected):
        tell(line)
    tell(f"Open {out / 'report.html'} to explore; tables, pictures and results.csv lie beside it.")
