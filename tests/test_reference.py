"""The reference lists names that exist, says what their parameters are, and shows examples that run."""

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "index.md"
ELSEWHERE = {"args", "kwargs", "arguments", "options"}  # of other libraries


def public_names():
    """Return the names that the page lists, with their modules."""
    module, names = None, []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if found := re.fullmatch(r"\.\. currentmodule:: (\S+)", line):
            module = found[1]
        elif found := re.fullmatch(r"   (\w+)", line):
            names.append(f"{module}.{found[1]}")
    return names


def named(name):
    module, _, last = name.rpartition(".")
    if module in {"fairdro.dask", "fairdro.networks.huggingface"}:
        pytest.importorskip({"fairdro.dask": "dask", "fairdro.networks.huggingface": "transformers"}[module])
    return getattr(import_module(module), last)


def documented(text):
    """Return the parameters and attributes that a numpydoc docstring describes, in order."""
    found = []
    for section in ("Parameters", "Attributes"):
        body = re.search(rf"^{section}\n-+\n(.*?)(?=^\S[^\n]*\n-{{3,}}$|\Z)", text, re.DOTALL | re.MULTILINE)
        for line in body[1].splitlines() if body else ():
            if line and not line.startswith(" "):
                found += [part.strip().lstrip("*") for part in line.split(" :")[0].split(",")]
    return found


def parameters_of(thing):
    try:
        return [name for name in inspect.signature(thing).parameters if name not in {"self", "cls"} | ELSEWHERE]
    except ValueError:  # an error without a constructor of its own
        return []


NAMES = public_names()


def test_every_exported_name_is_listed():
    import fairdro
    from fairdro import audit, methods, uncertainty

    listed = set(NAMES)
    assert {f"fairdro.{name}" for name in fairdro.__all__ if name != "__version__"} <= listed
    assert {f"fairdro.methods.{kind.__name__}" for kind in methods.METHODS.values()} <= listed
    assert {f"fairdro.audit.{name}" for name in audit.__all__} <= listed
    assert {f"fairdro.uncertainty.{name}" for name in uncertainty.__all__} - {"fairdro.uncertainty.UncertaintySet"} <= listed
    assert len(listed) == len(NAMES) > 80, "a name is listed twice"


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_documented_in_its_order(name):
    thing = named(name)
    told, asked = documented(inspect.getdoc(thing) or ""), parameters_of(thing)
    assert [parameter for parameter in dict.fromkeys(told) if parameter in asked] == asked


@pytest.mark.parametrize("name", NAMES)
def test_every_public_method_has_a_docstring(name):
    thing = named(name)
    for member, function in inspect.getmembers(thing, inspect.isroutine) if inspect.isclass(thing) else ():
        if member.startswith("_") or not getattr(function, "__module__", "").startswith("fairdro"):
            continue
        assert inspect.getdoc(function), f"{name}.{member}"


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_run(name, tmp_path, monkeypatch):
    thing = named(name)
    text = inspect.getdoc(thing) or ""
    assert re.search(r"^Examples\n--------$", text, re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    assert any(not example.options.get(doctest.SKIP) for example in test.examples)
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.FAIL_FAST, verbose=False)
    told = []
    runner.run(test, out=told.append)
    assert runner.failures == 0, "".join(told)
