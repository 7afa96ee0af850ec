"""The command line: parses, calls, prints."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from functools import partial
from importlib import metadata
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import joblib
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from fairdro.bench import Bank, BenchPlan, OnStep, Store, Study, read_study, run_bench, write_outputs
from fairdro.bench.tables import findings, how_chosen
from fairdro.card import METRIC_NAMES, build_audit, by_cell
from fairdro.cells import TOO_FEW
from fairdro.data import DATASETS
from fairdro.errors import InputError
from fairdro.files import check_table_name, read_table, write_table, write_whole
from fairdro.frontier import KeepAccuracy, Rule, rule_from
from fairdro.methods import METHODS, check_hyperparameters, get_method
from fairdro.models import MODELS
from fairdro.training.processes import processes, rank

if TYPE_CHECKING:
    from torch import nn

    from fairdro.deep import Job
    from fairdro.tabular import FittedTable

app = typer.Typer(
    help="Group-fair training by classwise robust optimisation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="Look after datasets of images and texts.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(data_app, name="data")

OnShare = Callable[[int, int], object]
SWITCHES = {"true": True, "false": False}
SECONDS_BETWEEN_LINES = 30
console = Console() if sys.stdout.isatty() else Console(width=140)


DEEP_HELP = "utkface, celeba, civilcomments, hatexplain, or your own: images or texts."
DATA_HELP = "Folder or file with the images or texts."
SELECT_HELP = "How to choose a point of each method: 'keep=0.95' (the paper's rule), 'max-dca=0.05' or 'knee'."


class Kind(StrEnum):
    """What ``fairdro list`` can list."""

    methods = "methods"
    datasets = "datasets"
    models = "models"


@app.callback(invoke_without_command=True)
def _root(
    *, version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False
) -> None:
    """Group-fair training by classwise robust optimisation."""
    if version:
        console.print(f"fairdro {metadata.version('fairdro')}", highlight=False)
        raise typer.Exit


@app.command()
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
        with _progress([bank for plan in study.plans for bank in plan.banks()]) as on_step:
            for plan in study.plans:
                processes = _workers_for(plan) if study.workers is None else study.workers
                run_bench(plan, study.out, workers=processes, on_step=on_step)
    except KeyboardInterrupt:
        _say("stopped. What is finished is stored; run the same command again to go on.")
        raise typer.Exit(130) from None
    _show(study.out, study.rule)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Output folder of a bench.", show_default=False)],
    select: Annotated[str, typer.Option(help=SELECT_HELP)] = "keep=0.95",
) -> None:
    """Make tables, pictures and the report of a bench again, from what is stored."""
    _show(folder, rule_from(select))


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

    with _sentences():
        return str(last_layer(job, out, network=network, epochs=epochs, stage=_steps))


@app.command()
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
        with _steps(f"reading {dataset}") as on_step:
            examples = load_examples(job, on_step)
        with _sentences():
            result = train_end_to_end(job, examples, rule, out, recipe=recipe, rows=rows, teacher=lesson, stage=_steps)
        if rank() > 0:
            return
    for part, values in result["metrics"].items():
        shown = ", ".join(f"{name.replace('_', ' ')} {100 * value:.2f}" for name, value in values.items())
        _print(f"{part}: {shown}")
    _print(f"The network and its metrics are in {out}.")
    if result["diverged"]:
        _say("the training diverged, and the network is of no use; train another into another folder.")
        raise typer.Exit(1)


@data_app.command()
def check(
    dataset: Annotated[str, typer.Argument(help="utkface, celeba, civilcomments or hatexplain.", show_default=False)],
    folder: Annotated[Path, typer.Argument(help="Where its files are.", show_default=False)],
) -> None:
    """Check whether images or texts are those that were published: counts of every class and group."""
    from fairdro.deep import check_data  # noqa: PLC0415 - a while to load

    for sentence in check_data(dataset, folder):
        _print(sentence)


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


@contextmanager
def _steps(what: str) -> Iterator[OnShare]:
    """Show a bar for a number of steps on a terminal, a line now and then elsewhere."""
    if rank() > 0:
        yield lambda done, total: None
    elif console.is_terminal:
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(what, total=None)
            yield lambda done, total: progress.update(task, completed=done, total=total)
    else:
        told = time.monotonic()

        def tell(done: int, total: int) -> None:
            nonlocal told
            if time.monotonic() - told > SECONDS_BETWEEN_LINES:
                told = time.monotonic()
                _say(f"{what}: {100 * done // total} %")

        yield tell


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _workers_for(plan: BenchPlan) -> int:
    """Return one process for the full-batch solver, which has threads of its own; for mini-batches one per core."""
    return joblib.cpu_count() if "minibatch" in plan.solvers else 1


def _show(out: Path, rule: Rule) -> None:
    """Write what people look at, print the table, and say what was found and where to look."""
    store = Store(out)
    results = store.results()
    if store.outdated:
        _say(f"{store.outdated} stored banks are of another version or of other data, and are left out.")
    with _status("Drawing ..."):
        selected, shown = write_outputs(store, out, rule)
    table = Table(*shown.columns, title=how_chosen(results, rule))
    for row in shown.itertuples(index=False):
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    for line in findings(selected):
        _print(line)
    _print(f"Open {out / 'report.html'} to explore; tables, pictures and results.csv lie beside it.")


@app.command()
def fit(
    file: Annotated[Path, typer.Argument(help="Table in CSV or Parquet.", show_default=False)],
    target: Annotated[str, typer.Option(help="Column to predict.", show_default=False)],
    group: Annotated[
        list[str],
        typer.Option(help="Sensitive column to be fair to; give several for their combinations.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model and its card.", show_default=False)],
    keep_accuracy: Annotated[
        float | None,
        typer.Option(
            help="Share of plain training's accuracy to keep on held-out rows; 0.95 by default.", show_default=False
        ),
    ] = None,
    rho: Annotated[float | None, typer.Option(help="Radius, instead of one that is chosen.", show_default=False)] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out.", show_default=False)] = None,
    model: Annotated[str, typer.Option(help="'linear', or 'boosting' for boosted trees.")] = "linear",
    small_cells: Annotated[
        str, typer.Option(help="Where a class and group have too few rows: 'merge' groups, 'warn' or 'refuse'.")
    ] = "merge",
    min_cell_size: Annotated[int, typer.Option(help="How many rows are enough.")] = TOO_FEW,
) -> None:
    """Train a fair model on your own table and save it with its card."""
    from fairdro.estimators import save  # noqa: PLC0415 - a while to load
    from fairdro.saving import check_free  # noqa: PLC0415
    from fairdro.tabular import fit_table  # noqa: PLC0415

    if keep_accuracy is not None and rho is not None:
        raise InputError("Give --keep-accuracy or --rho, not both: the first chooses rho.")
    rule = KeepAccuracy(0.95 if keep_accuracy is None else keep_accuracy)
    check_free(out)
    with _status(f"Reading {file} ..."):
        table = read_table(file)
    with _sentences():
        fitted = fit_table(
            table,
            target=target,
            groups=group,
            drop=drop or [],
            rho=rho,
            keep_accuracy=rule.share,
            model=model,
            small_cells=small_cells,
            min_cell_size=min_cell_size,
            verbose=True,
        )
    save(fitted.model, out)
    for note in fitted.notes:
        _print(note)
    _print_before_and_after(fitted)
    chosen = "as asked for" if rho is not None else f"the {rule}"
    _print(f"rho = {fitted.rho:.4g}, {chosen}. The model and its card are in {out}.")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a model made by `fairdro fit`.", show_default=False)],
    file: Annotated[Path, typer.Argument(help="Table in CSV or Parquet; needs no group.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Table to write, in CSV or Parquet.", show_default=False)],
) -> None:
    """Write a table again with the predicted class and the probability of every class."""
    from fairdro.estimators import load  # noqa: PLC0415 - a while to load
    from fairdro.tabular import predict_table, texts_of  # noqa: PLC0415

    check_table_name(out, writing=True)
    with _status(f"Predicting {file} ..."):
        fitted = load(model)
        predicted, notes = predict_table(fitted, read_table(file, texts=texts_of(fitted)))
        table = read_table(file, raw=True)  # every field as it was
        for name in predicted.column_names:
            table = table.append_column(name, predicted[name])
        write_table(table, out)
    for note in notes:
        _print(note)
    _print(f"{table.num_rows:,} rows predicted; they are in {out}.")


@app.command()
def audit(
    file: Annotated[Path, typer.Argument(help="Table in CSV or Parquet with truth and predictions.", show_default=False)],
    target: Annotated[str, typer.Option(help="Column with the truth.", show_default=False)],
    prediction: Annotated[str, typer.Option(help="Column with what any model predicted.", show_default=False)],
    group: Annotated[
        list[str], typer.Option(help="Sensitive column; give several for their combinations.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option(help="File for the same in Markdown.", show_default=False)] = None,
) -> None:
    """Judge the predictions of any model: metrics with intervals, and every class and group."""
    from fairdro.tabular import audit_table  # noqa: PLC0415 - a while to load

    with _status(f"Reading {file} ..."):
        table = read_table(file)
    judged, notes = audit_table(table, target=target, prediction=prediction, groups=group)
    if out is not None:
        write_whole(out, build_audit(f"{prediction!r} against {target!r} in {file.name}", judged, notes))
    for note in notes:
        _print(note)
    metrics = Table("in percent", "value", "from", "to", title="95 % bootstrap intervals, drawn within each class and group")
    for name, *row in judged.metrics().itertuples():
        metrics.add_row(METRIC_NAMES[str(name)], *map(_percent, row))
    console.print(metrics)
    cells = Table("class", "group", "rows", "accuracy", "from", "to", "note")
    for (label, of), cell in by_cell(judged.cells()):
        figures = (_percent(cell[name]) for name in ("accuracy", "low", "high"))
        cells.add_row(Text(label), Text(of), f"{cell['count']:,}", *figures, cell["note"])
    console.print(cells)
    if out is not None:
        _print(f"The same is in {out}.")


def _print_before_and_after(fitted: FittedTable) -> None:
    """Print the accuracy of every cell, and the metrics, of plain training and of the model."""
    table = Table("class", "group", "rows", "plain", "fair", "note", title="Accuracy on held-out rows, in percent")
    before, after = fitted.before.cells(), fitted.after.cells()
    for (label, of), row in by_cell(after):
        plain = _percent(before["accuracy"][label, of])
        table.add_row(Text(label), Text(of), f"{row['count']:,}", plain, _percent(row["accuracy"]), row["note"])
    table.add_section()
    before, after = fitted.before.metrics(), fitted.after.metrics()
    for name in ("accuracy", "dca"):
        values = [
            f"{_percent(m['value'][name])} ({_percent(m['low'][name])} to {_percent(m['high'][name])})"
            for m in (before, after)
        ]
        table.add_row({"accuracy": "balanced accuracy", "dca": "DCA (gap)"}[name], "", "", *values)
    console.print(table)


def _percent(value: float) -> str:
    return "" if math.isnan(value) else f"{100 * value:.1f}"


def _status(what: str) -> AbstractContextManager[object]:
    return console.status(Text(what)) if console.is_terminal else nullcontext()


@contextmanager
def _sentences() -> Iterator[None]:
    """Print warnings as sentences when they come, each once."""
    told: set[str] = set()

    def tell(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if str(message) not in told and category is not ResourceWarning:
            told.add(str(message))
            _say(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = tell
        yield


@app.command(name="list")
def list_(kind: Annotated[Kind, typer.Argument(help="What to list.", show_default=False)]) -> None:
    """List methods, datasets or models with a line on each."""
    from fairdro.boosting import FairDROBoostingClassifier  # noqa: PLC0415 - a while to load
    from fairdro.deep import IMAGES, RESNET, TEXTS  # noqa: PLC0415
    from fairdro.models.pretrained import PretrainedClassifier  # noqa: PLC0415
    from fairdro.models.resnet import ResNet18  # noqa: PLC0415

    registries: dict[Kind, Mapping[str, object]] = {
        Kind.methods: METHODS,
        Kind.datasets: {**DATASETS, **IMAGES, **TEXTS},
        Kind.models: {
            **MODELS,
            "boosting": FairDROBoostingClassifier,
            RESNET: ResNet18,
            "NAME or FOLDER": PretrainedClassifier,
        },
    }
    for name, item in registries[kind].items():
        summary = (item.__doc__ or "").strip().splitlines()[0]
        _print(f"{name:22} {summary}")


def _print(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _say(sentence: str) -> None:
    Console(stderr=True).print(f"fairdro: {sentence}", markup=False, highlight=False, soft_wrap=True)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@contextmanager
def _progress(banks: list[Bank]) -> Iterator[OnStep]:
    """Show a bar for the whole and one per bank in training on a terminal, a plain line per finished bank elsewhere."""
    finished: set[Bank] = set()
    if not console.is_terminal:

        def announce(bank: Bank, done: int, total: int) -> None:
            if done == total == 1 and bank not in finished:
                finished.add(bank)
                line = f"[{len(finished)}/{max(len(finished), len(banks))}] {bank}"
                _print(line)

        yield announce
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console) as progress:
        overall = progress.add_task(f"{len(banks)} banks", total=sum(bank.cost for bank in banks))
        share: dict[Bank, float] = {}
        bars: dict[Bank, TaskID] = {}

        def follow(bank: Bank, done: int, total: int) -> None:
            if bank in finished:  # what a worker reported of it may come late
                return
            share[bank] = bank.cost * done / total
            known = {*banks, *share}
            progress.update(overall, completed=sum(share.values()), total=sum(b.cost for b in known))
            if done == total == 1:
                finished.add(bank)
                if bank in bars:
                    progress.remove_task(bars.pop(bank))
                progress.update(overall, description=f"{len(finished)} of {len(known)} banks")
                return
            if bank not in bars:
                bars[bank] = progress.add_task(str(bank), total=total)
            progress.update(bars[bank], completed=done, total=total)

        yield follow


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows few letters
    try:
        app()
    except InputError as error:
        _say(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        _say("stopped.")
        sys.exit(130)
