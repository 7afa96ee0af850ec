"""``fairdro bench`` and ``fairdro report``: methods compared on datasets."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from fairdro.cli import options
from fairdro.cli.networks import DATA_HELP
from fairdro.cli.terminal import bank_bars, console, say, sentences, status, steps, tell
from fairdro.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from fairdro.bench import BenchPlan, Study
    from fairdro.networks.runs import Job
    from fairdro.selection import Guard, Rule

SELECT_HELP = (
    "How to choose a point of each method: 'keep-accuracy=0.95' (the paper's, the default), 'max-dca=0.05' or 'knee'."
)
PLAN = ("methods", "solvers", "points", "seeds", "protocol", "split", "objective", "fair_classes", "grid", "adaptive")
WIDE = 120  # columns that the whole table needs


def bench(
    *,
    datasets: Annotated[
        list[str] | None,
        typer.Argument(help="Datasets to compare on.", autocompletion=options.complete("table", "images or texts")),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, separated by commas, or 'all'; `fairdro list methods`. By default scratch,fairdro.",
            autocompletion=options.complete("method", several=True, also=["all"]),
        ),
    ] = None,
    solvers: Annotated[
        str | None,
        typer.Option(
            help="For linear 'fullbatch' (the default, deterministic), 'out_of_fold' (the same, by errors on rows not "
            "trained on), 'minibatch' (the paper's) and 'head' (on out-of-fold probabilities); for mlp 'minibatch'; for "
            "boosting 'head' (the default) and 'weights'; for networks 'network' (the default) and 'network+head' (both as "
            "it is and with a head on the validation part). Separated by commas.",
            autocompletion=options.complete("solver", several=True),
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="'linear' (the default), 'mlp' and 'boosting', separated by commas; 'resnet18' or 'encoder' to train "
            "networks on the images or texts in --data; with --last-layer 'resnet18' (the default), 'efficientnet-lite0' or "
            "an encoder of Hugging Face.",
            autocompletion=options.complete("model", "network", several=True),
        ),
    ] = None,
    points: Annotated[int | None, typer.Option(help="Hyperparameter points per method; by default 20.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds per point with the mini-batch solver and of networks; by default 4.")
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="'validated', the default: choose on a validation part; 'paper': on the test part, as the paper did."
        ),
    ] = None,
    split: Annotated[
        int | None, typer.Option(help="Seed of the train/test split; by default 0, which is the paper's.")
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(help="What is minimised: 'balanced', the default (every cell counts the same), or 'standard'."),
    ] = None,
    fair_classes: Annotated[
        list[str] | None, typer.Option("--fair-class", help="Class that gaps are about; by default all classes.")
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(help="Values to try instead of a method's search range, e.g. fairdro.rho=0.1,0.3,1; repeatable."),
    ] = None,
    adaptive: Annotated[
        bool | None,
        typer.Option(
            "--adaptive/--plain-grid",
            help="Put half the points where the frontier has holes; by default with solvers that train one seed.",
        ),
    ] = None,
    select: Annotated[str | None, typer.Option(help=SELECT_HELP)] = None,
    keep_class_accuracy: options.KeepClassAccuracy = None,
    floor: options.Floor = None,
    workers: Annotated[int | None, typer.Option(help="Processes to train in; by default as many as suit.")] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Train on the workers of a Dask scheduler instead, e.g. tcp://scheduler:8786; they share --out."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results, tables, pictures and the report; by default results.")
    ] = None,
    last_layer: Annotated[
        bool | None,
        typer.Option(
            "--last-layer", help="Compare on the last layer of the network --model; for images and texts in --data."
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help=DATA_HELP)] = None,
    network: Annotated[
        Path | None, typer.Option(help="Folder made by `fairdro train`: take the last layer of its network.")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="With --model encoder: 'efficientnet-lite0', or name or folder of an encoder of Hugging Face."),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Epochs of a network: the paper's by default, 70 for images and 3 for texts; with --last-layer none for "
            "a pretrained one."
        ),
    ] = None,
    batch_size: options.BatchSize = None,
    lr: options.LearningRate = None,
    precision: options.Precision = None,
    size: options.Size = None,
    width: options.Width = None,
    soft: options.Soft = None,
    file: Annotated[Path | None, typer.Option(help="A study in TOML, instead of all other options but --dry-run.")] = None,
    dry_run: Annotated[
        bool | None,
        typer.Option("--dry-run", help="Say how many banks there are, how long they take and how much disk; train none."),
    ] = None,
) -> None:
    """Train methods over their hyperparameters and compare accuracy with fairness. A bench that was stopped goes on."""
    given = options.given_of(**locals())
    study = _study(given)
    if dry_run:
        _dry_run(study)
        return
    _train(study)
    _show(study.out, study.rule, study.guard)


def report(
    folder: Annotated[Path, typer.Argument(help="Output folder of a bench.")],
    select: Annotated[str | None, typer.Option(help=SELECT_HELP)] = None,
    keep_class_accuracy: options.KeepClassAccuracy = None,
    floor: options.Floor = None,
) -> None:
    """Make tables, pictures and the report of a bench again, from what is stored."""
    _show(folder, _rule(select), _guard(options.given_of(keep_class_accuracy=keep_class_accuracy, floor=floor)))


def _study(given: dict[str, Any]) -> Study:
    """Return the study in a file, or the one that options describe."""
    from fairdro.bench import Study, read_study

    if ("file" in given) == ("datasets" in given):
        known = ", ".join(options.known("table"))
        raise InputError(f"Name the datasets to compare on ({known}), or a study with --file; one of the two.")
    if "file" in given:
        file = given.pop("file")
        given.pop("dry_run", None)
        if given:
            raise InputError(f"A study says all there is to say; leave out {_flags(given)}, or write it into {file}.")
        return read_study(file)
    rule = _rule(given.get("select"))
    plans = _plans(given)
    for plan in plans:
        with status(f"Reading {', '.join(plan.datasets)} ..."):
            plan.check()
        if plan.left_out_sentence is not None:
            say(plan.left_out_sentence)
    guard = _guard({name: given[name] for name in ("keep_class_accuracy", "floor") if name in given})
    return Study(plans, given.get("out", Study.out), given.get("workers"), rule, guard, given.get("cluster"))


def _plans(given: dict[str, Any]) -> list[BenchPlan]:
    from fairdro.bench import BenchPlan
    from fairdro.bench.plan import OF_NETWORKS

    plan = {name: given[name] for name in PLAN if name in given}
    plan |= {name: _names(plan[name]) for name in ("methods", "solvers") if name in plan}
    plan |= {"grid": _grid(plan["grid"])} if "grid" in plan else {}
    if "last_layer" in given:
        if other := [name for name in ("encoder", "batch_size", "lr", "precision", "dry_run") if name in given]:
            raise InputError(f"{_flags(other)}: not with --last-layer.")
        BenchPlan(**plan)  # what is wrong with it is said before the network is trained
        features, protocol = _last_layer(given)
        return [BenchPlan([features], **plan | {"protocol": protocol})]
    if "network" in given:
        raise InputError("--network: only with --last-layer, which is for images and texts.")
    model = given.get("model", BenchPlan.model)
    models = list(dict.fromkeys(_names(model))) or [model]
    if len(models) > 1 and "solvers" in given:
        raise InputError("With several models each has its own solver; leave out --solvers, or name one model.")
    plan |= {name: str(given[name]) if name == "data" else given[name] for name in OF_NETWORKS if name in given}
    return [BenchPlan(given["datasets"], model=name, **plan) for name in models]


def _grid(texts: list[str]) -> dict[str, dict[str, list[float]]]:
    """Read values such as ``fairdro.rho=0.1,0.3``."""
    grid: dict[str, dict[str, list[float]]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        method, _, key = name.partition(".")
        if key in grid.get(method, {}):
            raise InputError(f"--grid {name} is given twice; write all values into one, separated by commas.")
        try:
            grid.setdefault(method, {})[key] = [float(value) for value in _names(values)]
        except ValueError:
            raise InputError(
                f"Write a grid as method.hyperparameter=numbers, e.g. fairdro.rho=0.1,0.3, not {text!r}."
            ) from None
    return grid


def _last_layer(given: dict[str, Any]) -> tuple[str, str]:
    """Make the features of a network's last layer, or find them made; return their file, a dataset, and their protocol."""
    from fairdro.bench import Study
    from fairdro.networks.last_layer import last_layer

    job, network = _job(given)
    if given.get("split") and (network is not None or "epochs" in given or not job.backbone.pretrained):
        raise InputError("--split is for features of a network that was not trained on the data; leave it out.")
    with sentences():
        file = last_layer(job, given.get("out", Study.out), network=network, epochs=given.get("epochs"), stage=steps)
    return str(file), job.protocol


def _job(given: dict[str, Any]) -> tuple[Job, nn.Module | None]:
    """Return what features to make, from options or as a run of `fairdro train` has it, then with its network."""
    from fairdro.networks.runs import Job, load_run

    if len(given["datasets"]) > 1 or "data" not in given:
        raise InputError("With --last-layer name one dataset, and say with --data where its images or texts are.")
    (dataset,), data, run = given["datasets"], given["data"], given.get("network")
    if run is None:
        return Job(
            dataset, data, **{k: given[k] for k in ("model", "size", "width", "soft", "protocol") if k in given}
        ), None
    if said := [name for name in ("model", "epochs", "size", "width", "soft") if name in given]:
        raise InputError(f"--network says all of the network; leave out {_flags(said)}.")
    job, network = load_run(run, data)
    if job.dataset != dataset:
        raise InputError(f"The network in {run} is for {job.dataset}, not for {dataset}.")
    if given.get("protocol", job.protocol) != job.protocol:
        raise InputError(f"The network in {run} was trained with --protocol {job.protocol}; bench it with the same.")
    return job, network


def _rule(select: str | None) -> Rule:
    from fairdro.bench.tables import PAPER_RULE
    from fairdro.selection import points_rule_from

    return PAPER_RULE if select is None else points_rule_from(select)


def _guard(given: dict[str, float]) -> Guard:
    from fairdro.selection import Guard

    return Guard(**given)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _flags(names: Iterable[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def _train(study: Study) -> None:
    """Train what is missing of a study and show how far it has come."""
    from fairdro.bench import run_bench
    from fairdro.bench.executors import cluster

    executor: AbstractContextManager[Executor | None] = nullcontext()
    if study.cluster is not None:
        executor = cluster(study.cluster, study.out)
    try:
        with executor as chosen, bank_bars([bank for plan in study.plans for bank in plan.banks]) as on_step:
            for plan in study.plans:
                run_bench(plan, study.out, workers=study.workers_for(plan), executor=chosen, on_step=on_step)
    except KeyboardInterrupt:
        say("stopped. What is finished is stored; run the same command again to go on.")
        raise typer.Exit(130) from None


def _dry_run(study: Study) -> None:
    """Say what a study would train, how long that takes and what it leaves on disk; write nothing."""
    from fairdro.bench.estimate import estimate

    for plan in study.plans:
        with status("Timing a step of each method ..."):
            told = estimate(plan, study.out, study.workers_for(plan))
        for sentence in told:
            tell(sentence)
    tell("Nothing was trained or written.")


def _show(out: Path, rule: Rule, guard: Guard) -> None:
    """Write what people look at, print the table, and say what was found and where to look."""
    from fairdro.bench import Store, Summary, write_outputs

    store = Store(out)
    if store.outdated:
        say(f"{store.outdated} stored banks are of another version or of other data, and are left out.")
    summary = Summary(store, rule, guard)
    with status("Drawing ..."):
        write_outputs(summary)
    shown = summary.table
    if console.width < WIDE:  # the files have all columns
        shown = shown[[name for name in shown.columns if not name.startswith(("worst", "paper"))]]
    headers = [Column(name, no_wrap=name in {"dataset", "method", "model", "solver"}) for name in shown.columns]
    table = Table(*headers, title=summary.how_chosen)
    for row in shown.itertuples(index=False):
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    for line in summary.findings:
        tell(line)
    tell(f"Open {out / 'report.html'} to explore; tables, pictures and results.csv lie beside it.")
