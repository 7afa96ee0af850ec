"""Files about a release agree with each other and with what is installed."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import fairdro

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Not tried on the oldest: see constraints-oldest.txt.
LEFT_OUT = {"torch", "xgboost"}


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def lower_bounds():
    """Every package that users install, with its lower bound."""
    extras = [
        line for name, lines in PROJECT["optional-dependencies"].items() if name not in {"test", "docs"} for line in lines
    ]
    found = {}
    for requirement in map(Requirement, PROJECT["dependencies"] + extras):
        (bound,) = [part.version for part in requirement.specifier if part.operator == ">="]
        found[requirement.name] = bound
    return found


def pins(name):
    lines = [line for line in read(name).splitlines() if line and not line.startswith("#")]
    found = {}
    for requirement in map(Requirement, lines):
        (pin,) = requirement.specifier
        assert pin.operator == "==", requirement
        found[requirement.name] = pin.version
    return found


def test_the_version_is_that_of_the_installed_package():
    assert fairdro.__version__ == version("fairdro")
    assert "__version__ =" not in read("src/fairdro/__init__.py")


def test_changelog_and_citation_have_the_version_of_the_project():
    current = Version(PROJECT["version"])
    newest = re.search(r"^## (.+)$", read("CHANGELOG.md"), flags=re.MULTILINE).group(1)
    if current.is_devrelease:
        assert newest == "Unreleased"
    else:
        assert re.fullmatch(rf"{re.escape(str(current))} - \d{{4}}-\d\d-\d\d", newest)
    assert yaml.safe_load(read("CITATION.cff"))["version"] == str(current)


def test_the_oldest_versions_are_the_lower_bounds():
    bounds = lower_bounds()
    assert bounds.keys() >= LEFT_OUT
    assert pins("constraints-oldest.txt") == {name: bound for name, bound in bounds.items() if name not in LEFT_OUT}


def test_the_pinned_torch_is_allowed_by_its_bound():
    (bound,) = [requirement for requirement in map(Requirement, PROJECT["dependencies"]) if requirement.name == "torch"]
    assert bound.specifier.contains(pins("constraints.txt")["torch"])


def test_the_citation_names_the_software_and_the_paper():
    citation = yaml.safe_load(read("CITATION.cff"))
    assert citation["cff-version"] == "1.2.0"
    assert (citation["title"], citation["type"], citation["license"]) == ("fairdro", "software", PROJECT["license"])
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in PROJECT["authors"]]
    (paper,) = citation["references"]
    assert paper["title"] in " ".join(read("README.md").split())
    authors = [f"{author['given-names']} {author['family-names']}" for author in paper["authors"]]
    assert authors == ["Sangwon Jung", "Taeeon Park", "Sanghyuk Chun", "Taesup Moon"]
    assert (paper["type"], paper["year"]) == ("conference-paper", 2023)


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_files_for_the_forge_parse(path):
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["name"]


def test_the_workflow_does_what_ci_does():
    jobs = yaml.safe_load(read(".github/workflows/ci.yml"))["jobs"]
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert commands == {"test": ["bash .ci/run"], "docs": ["make docs docs-check"]}


def test_every_package_of_an_extra_is_imported_by_the_smoke_test():
    (names,) = re.findall(r"^EXTRAS = (\[.*?\])", read("scripts/smoke.py"), flags=re.MULTILINE | re.DOTALL)
    homes = packages_distributions()
    imported = {canonicalize_name(home) for module in ast.literal_eval(names) for home in homes[module.split(".")[0]]}
    needed = lower_bounds().keys() - {Requirement(line).name for line in PROJECT["dependencies"]} - LEFT_OUT
    assert imported == needed


def test_importing_everything_public_opens_no_connection():
    """What SECURITY.md promises; a socket that connects ends the process."""
    code = """
import sys
def refuse(event, arguments):
    if event in {"socket.connect", "socket.getaddrinfo", "socket.sendto"}:
        raise SystemExit(f"{event} {arguments}")
sys.addaudithook(refuse)
import fairdro
for name in fairdro.__all__:
    getattr(fairdro, name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_module_pickles_or_evaluates():
    """What SECURITY.md promises."""
    for path in (ROOT / "src").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(import|from) (pickle|dill|marshal|shelve)\b", source, flags=re.MULTILINE), path
        assert not re.search(r"(?<![\w.])(eval|exec)\(", source), path
        assert not re.search(r"torch\.load\((?!.*weights_only=True)", source), path
        assert "joblib.load(" not in source, path
