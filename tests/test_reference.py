"""The reference lists names that exist, says what their parameters are, and shows examples that run."""

import ast
import doctest
import inspect
import re
from dataclasses import is_dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

from fairdro.methods import METHODS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "index.md"
READ = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guide").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
ELSEWHERE = {"args", "kwargs", "arguments", "options"}  # of other libraries
UNLISTED = {"fairdro.__version__"}  # nothing to say about
EXTRAS = {"fairdro.dask": "dask", "fairdro.networks.huggingface": "transformers"}


def public_names(entry):
    """Return the names that the page lists by such lines, with their modules."""
    module, names = None, []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if found := re.fullmatch(r"\.\. currentmodule:: (\S+)", line):
            module = found[1]
        elif found := re.fullmatch(entry, line):
            names.append(f"{module}.{found[1]}")
    return names


def named(name):
    module, _, last = name.rpartition(".")
    if module in EXTRAS:
        pytest.importorskip(EXTRAS[module])
    return getattr(import_module(module), last)


def section(text, title):
    """Return the names that a section of a numpydoc docstring describes, in order; None if it has no such section."""
    body = re.search(rf"^{title}\n-+\n(.*?)(?=^\S[^\n]*\n-{{3,}}$|\Z)", text, re.DOTALL | re.MULTILINE)
    if body is None:
        return None
    heads = [line.split(" :")[0] for line in body[1].splitlines() if line and not line.startswith(" ")]
    return [part.strip().lstrip("*") for head in heads for part in head.split(",")]


def parameters_of(thing):
    try:
        return [name for name in inspect.signature(thing).parameters if name not in {"self", "cls"} | ELSEWHERE]
    except ValueError:  # an error without a constructor of its own
        return []


def string_below(name):
    """Return the docstring of a registry or constant: the string below it in its module."""
    module, _, last = name.rpartition(".")
    for statement, below in pairwise(ast.parse(inspect.getsource(import_module(module))).body):
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        if any(getattr(target, "id", None) == last for target in targets) and isinstance(below, ast.Expr):
            return inspect.cleandoc(below.value.value)
    return ""


def run_examples(text, name):
    """Run the examples of a docstring, and return how many there are."""
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    examples = [example for example in test.examples if not example.options.get(doctest.SKIP)]
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.FAIL_FAST, verbose=False)
    told = []
    runner.run(test, out=told.append)
    assert runner.failures == 0, "".join(told)
    return len(examples)


def imported(path):
    """Give what a page or script imports from fairdro, by full names."""
    text = path.read_text(encoding="utf-8")
    blocks = [text] if path.suffix == ".py" else re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for node in (node for block in blocks for node in ast.walk(ast.parse(block)) if isinstance(node, ast.ImportFrom)):
        if node.module.split(".")[0] == "fairdro":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


NAMES = public_names(r"   (\w+)")
STRINGS = public_names(r"\.\. autodata:: (\w+)")  # registries and constants with a string below them
DATA = public_names(r"\.\. data:: (\w+)")  # those that the page itself says something about
LISTED = {*NAMES, *STRINGS, *DATA}
MODULES = {name.rpartition(".")[0] for name in LISTED}


def test_every_exported_name_is_listed():
    things = {id(named(name)) for name in LISTED if name.rpartition(".")[0] not in EXTRAS}
    for module in map(import_module, MODULES - {*EXTRAS}):  # what two modules export is listed in one of them
        unlisted = [name for name in getattr(module, "__all__", ()) if id(getattr(module, name)) not in things]
        assert {f"{module.__name__}.{name}" for name in unlisted} <= UNLISTED
    assert len(LISTED) == len(NAMES + STRINGS + DATA) > 120, "a name is listed twice"


def test_every_method_is_listed():
    assert {f"fairdro.methods.{kind.__name__}" for kind in METHODS.values()} <= LISTED


@pytest.mark.parametrize("path", [*READ, *(ROOT / "examples").glob("*.py")], ids=lambda path: path.name)
def test_what_pages_and_examples_use_is_listed(path):
    used = {*imported(path), *re.findall(r"`(fairdro(?:\.\w+)+)", path.read_text(encoding="utf-8"))}
    methods = {name for name in used if name.rpartition(".")[0] in NAMES}
    assert used - methods <= LISTED | MODULES | UNLISTED


@pytest.mark.parametrize("name", [*STRINGS, *DATA])
def test_registries_and_constants_say_what_they_are(name):
    assert hasattr(import_module(name.rpartition(".")[0]), name.rpartition(".")[2])
    if name in STRINGS:
        assert string_below(name)
        run_examples(string_below(name), name)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_documented_in_its_order(name):
    thing = named(name)
    text, asked = inspect.getdoc(thing) or "", parameters_of(thing)
    told = section(text, "Parameters")
    if told is None and is_dataclass(thing):  # its fields may be told as attributes, beside others
        told = [attribute for attribute in section(text, "Attributes") or () if attribute in asked]
    assert [parameter for parameter in told or () if parameter not in ELSEWHERE] == asked


@pytest.mark.parametrize("name", NAMES)
def test_every_public_method_has_a_docstring(name):
    thing = named(name)
    given = parameters_of(thing)  # a field's default may be a function
    for member, function in inspect.getmembers(thing, inspect.isroutine) if inspect.isclass(thing) else ():
        if member.startswith("_") or member in given or not getattr(function, "__module__", "").startswith("fairdro"):
            continue
        assert inspect.getdoc(function), f"{name}.{member}"


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_run(name, tmp_path, monkeypatch):
    text = inspect.getdoc(named(name)) or ""
    assert re.search(r"^Examples\n--------$", text, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    assert run_examples(text, name) > 0
