"""The package and the command line at the door: what is loaded when, what is listed, completed and taken by default."""

import inspect
import os
import re
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
from typer.main import get_command

import fairdro
from command import run_here
from fairdro.bench import BenchPlan, Study
from fairdro.cli import app
from fairdro.data import DATASETS
from fairdro.estimators.cv import FairDROClassifierCV
from fairdro.estimators.tables import fit_table
from fairdro.methods import METHODS
from fairdro.models import MODELS
from fairdro.networks.runs import Job
from fairdro.selection import rule_from
from fairdro.training.engines import models_for_tables

COMMAND = Path(sys.executable).with_name("fairdro")
HEAVY = ["torch", "pandas", "sklearn", "numpy", "pyarrow", "altair", "joblib", "lightgbm"]


def run(code, *options):
    return subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, check=True)


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["--help"], ["bench", "--help"], ["fit", "--help"], ["train", "--help"], ["list", "--help"]],
)
def test_help_loads_no_large_package(arguments):
    code = f"""
import sys
from fairdro.__main__ import main
sys.argv = ["fairdro", *{arguments!r}]
try:
    main()
except SystemExit as stop:
    assert not stop.code
print("loaded:", [name for name in {HEAVY!r} if name in sys.modules])
"""
    assert run(code).stdout.endswith("loaded: []\n")


def test_the_package_names_what_it_offers_and_loads_it_when_asked():
    code = f"""
import sys, fairdro
print(fairdro.__version__, dir(fairdro) == sorted(fairdro.__all__), [name for name in {HEAVY!r} if name in sys.modules])
"""
    assert run(code).stdout == f"{fairdro.__version__} True []\n"
    assert all(getattr(fairdro, name) is not None for name in fairdro.__all__)
    with pytest.raises(AttributeError, match="no attribute 'FairDRO'"):
        fairdro.FairDRO  # noqa: B018


def test_import_is_quiet_and_needs_no_network():
    code = "import socket; socket.socket.connect = None; import fairdro; print(fairdro.load_dataset('compas').X.shape)"
    done = run(code, "-W", "error")
    assert (done.stdout.strip(), done.stderr) == ("(6167, 400)", "")


@pytest.mark.parametrize(("kind", "registry"), [("methods", METHODS), ("datasets", DATASETS), ("models", MODELS)])
def test_all_that_is_registered_is_listed_with_a_line(kind, registry):
    lines = run_here("list", kind).stdout.splitlines()
    assert [line[:22].strip() for line in lines] == list(registry)
    assert all(len(line) > 30 for line in lines)


def completed(*words):
    """What bash is offered for the last word."""
    done = subprocess.run(
        [COMMAND],
        env=os.environ
        | {"_FAIRDRO_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_a_shell_completes_commands_options_and_names():
    assert completed("fairdro", "re") == ["report"]
    assert completed("fairdro", "bench", "--poi") == ["--points"]
    assert completed("fairdro", "bench", "adult", "--methods", "rw,fairdro_wo_c") == ["rw,fairdro_wo_classwise"]
    assert completed("fairdro", "fit", "tab") == []  # then bash offers files
    environment = os.environ | {"_FAIRDRO_COMPLETE": "source_bash"}  # --show-completion asks the process tree for the shell
    script = subprocess.run([COMMAND], env=environment, capture_output=True, text=True, check=True).stdout
    assert "complete -o default -F" in script


@pytest.mark.parametrize(
    ("command", "option", "incomplete", "expected"),
    [
        ("bench", "datasets", "comp", ["compas"]),
        ("bench", "methods", "fairdro_wo_c", ["fairdro_wo_classwise"]),
        ("bench", "methods", "rw,scratch,s", []),  # named already
        ("bench", "methods", "al", ["all"]),
        ("bench", "model", "mlp,b", ["mlp,boosting"]),
        ("bench", "solvers", "mini", ["minibatch"]),
        ("train", "dataset", "hate", ["hatexplain"]),
        ("train", "method", "lb", ["lbc"]),
        ("fit", "model", "", [*models_for_tables(), "head"]),
    ],
)
def test_names_are_completed_where_they_belong(command, option, incomplete, expected):
    parsed = get_command(app).commands[command]
    parameter = next(p for p in parsed.params if p.name == option)
    context = parsed.make_context(command, [], resilient_parsing=True)
    assert [item.value for item in parameter.shell_complete(context, incomplete)] == expected


def help_of(command):
    """The help of every option, by name."""
    text = " ".join(run_here(command, "--help").stdout.split())
    return {part.split()[0]: part for part in re.split(r" --(?=[a-z-]+ (?:<|[A-Z]{3}))", text)[1:]}


def defaults_of(kind):
    if inspect.isclass(kind):
        return {f.name: f.default if f.default is not MISSING else f.default_factory() for f in fields(kind)
                if (f.default, f.default_factory) != (MISSING, MISSING)}  # fmt: skip
    return {name: p.default for name, p in inspect.signature(kind).parameters.items() if p.default is not p.empty}


@pytest.mark.parametrize(
    ("command", "kind", "names"),
    [
        ("bench", BenchPlan, ["methods", "model", "points", "seeds", "protocol", "split", "objective"]),
        ("bench", Study, ["out"]),
        ("bench", Job, ["model", "size"]),
        ("train", Job, ["model", "size", "protocol", "seed"]),
        ("fit", fit_table, ["keep_accuracy", "model", "missing_groups"]),
        ("fit", FairDROClassifierCV.__init__, ["small_cells", "min_cell_size", "keep_class_accuracy", "objective"]),
    ],
)
def test_help_names_the_defaults_of_python(command, kind, names):
    told, defaults = help_of(command), defaults_of(kind)
    for name in names:
        default = ",".join(defaults[name]) if isinstance(defaults[name], list) else str(defaults[name])
        option = told[name.replace("_", "-")]
        assert "default" in option
        assert default in option, (name, default)


def test_help_names_the_models_and_the_selection_rules():
    told = help_of("fit")["model"]
    assert all(f"'{name}'" in told for name in models_for_tables())
    assert str(rule_from("keep-accuracy=0.95")) == str(Study([]).rule)
    assert "'keep-accuracy=0.95' (the paper's, the default)" in help_of("bench")["select"].replace("keep- ", "keep-")
