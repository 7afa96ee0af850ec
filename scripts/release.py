"""Build a release into build/release and try it as a user would; nothing is uploaded.

The wheel and the sdist are checked, then installed into empty environments, without and with extras, on the newest
dependencies and on the oldest (constraints-oldest.txt, in the oldest Python). Pythons that are not here, or for which
there is no CPU build of torch, are skipped in a sentence.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "release"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = ["3.11", "3.12", "3.13"]
NEWEST = ["constraints.txt"]
OLDEST = ["constraints.txt", "constraints-oldest.txt"]
# Tools for tests and for the site are not for users; xgboost brings CUDA packages.
EXTRAS = sorted(PROJECT["optional-dependencies"].keys() - {"test", "docs", "xgboost"})


def run(*command: str | Path) -> None:
    """Run a command, or end in a sentence."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(list(map(str, command)), cwd=ROOT, env=environment, check=False)  # noqa: S603
    if done.returncode:
        sys.exit(f"The release is not ready, this failed: {' '.join(map(str, command))}")


def environment(python: str, folder: Path) -> Path:
    """Make an empty virtual environment and return its Python."""
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def install(python: Path, *arguments: str) -> None:
    """Install into an environment."""
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)


def build(folder: Path) -> list[Path]:
    """Build the wheel and the sdist, check both, and return them."""
    shutil.rmtree(OUT, ignore_errors=True)
    python = environment(sys.executable, folder / "tools")
    install(python, "build", "twine", "check-wheel-contents")
    run(python, "-m", "build", "--outdir", OUT)
    (wheel,), (sdist,) = OUT.glob("*.whl"), OUT.glob("*.tar.gz")
    run(python, "-m", "twine", "check", "--strict", wheel, sdist)
    run(python.with_name("check-wheel-contents"), wheel)
    return [wheel, sdist]


def has_torch(python: str) -> bool:
    """Whether there is a torch without CUDA for this Python; asks only, and installs nothing."""
    (pin,) = re.findall(r"^torch==\S+", (ROOT / "constraints.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    build = "+cpu" if platform.system() == "Linux" else ""
    command = [python, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps", pin + build]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603


def usable_pythons() -> list[str]:
    """The Pythons to try; the others are named."""
    found = []
    for version in PYTHONS:
        python = f"python{version}"
        if not shutil.which(python) or subprocess.run([python, "--version"], check=False, capture_output=True).returncode:  # noqa: S603
            print(f"Python {version} is skipped: {python} is not on the PATH, or does not start.")
        elif not has_torch(python):
            print(f"Python {version} is skipped: there is no CPU build of torch for it here.")
        else:
            found.append(python)
    return found


def try_out(package: Path, python: str, constraints: list[str], folder: Path) -> None:
    """Install a wheel or an sdist into an empty environment and use it, without extras and then with them."""
    print(f"{package.name} on {python} with {constraints[-1]} ...", flush=True)
    inside = environment(python, folder)
    bounds = [word for name in constraints for word in ("-c", name)]
    smoke = [inside, "scripts/smoke.py", PROJECT["version"]]
    install(inside, *bounds, str(package))
    run(*smoke)
    install(inside, *bounds, f"{package}[{','.join(EXTRAS)}]")
    run(*smoke, "--extras")
    shutil.rmtree(folder)


def main() -> None:
    """Build, check and try."""
    pythons = usable_pythons()
    if not pythons:
        sys.exit(
            "There is no Python to try the release on: install one, and say by PIP_FIND_LINKS where CPU builds of torch are."
        )
    with tempfile.TemporaryDirectory() as name:
        packages = build(Path(name))
        for python in pythons:
            oldest = python == f"python{PYTHONS[0]}"
            for constraints in (NEWEST, OLDEST) if oldest else (NEWEST,):
                for package in packages:
                    try_out(package, python, constraints, Path(name) / "environment")
    print(f"Ready in {OUT}: {', '.join(path.name for path in packages)}")


if __name__ == "__main__":
    main()
