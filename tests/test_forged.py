"""Files that someone changed who knows how their checksums are made: refused in a sentence, or they work."""

import copy
import json
import re
import shutil
from contextlib import contextmanager

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import fairdro
from command import run_here
from fairdro import FairDROBoostingClassifier, FairDROClassifier, FairDROClassifierCV, FairDROHeadClassifier, fit_head
from fairdro._utils.hashing import digest
from fairdro.bench import store
from fairdro.bench.plan import BenchPlan
from fairdro.bench.run import run_bench
from fairdro.errors import InputError
from fairdro.estimators.saving import _tensors
from fairdro.metrics import Confusion
from fairdro.models.trees import read_trees
from problems import biased_problem

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("few_draws")]
DEEP = json.loads("[" * 400 + "]" * 400)
JUNK = [
    None,
    True,
    -1,
    3,
    2**70,
    10**400,
    0.5,
    float("nan"),
    float("inf"),
    "x",
    "../x",
    [],
    {},
    [[]],
    DEEP,
    {"$tensor": "0"},
]
ARRAYS = [
    lambda t: t[:0],
    lambda t: t[..., None],
    lambda t: t.astype(np.int8),
    lambda t: np.concatenate([t, t]),
    lambda t: np.full_like(t, np.nan) if t.dtype.kind == "f" else t[::-1].copy(),
    lambda t: np.zeros(1),
]
MODELS = {
    "linear": lambda: FairDROClassifierCV(rhos=[0, 1], cv=2, class_weight={"yes": 2}, fair_classes=["yes"]),
    "mlp": lambda: FairDROClassifier(model="mlp", max_iter=2),
    "head": lambda: FairDROHeadClassifier(rhos=[0, 1], cv=2),
    "lightgbm": lambda: FairDROBoostingClassifier(rhos=[0, 1], cv=2, n_estimators=3),
    "xgboost": lambda: FairDROBoostingClassifier(1.0, strategy="weights", backend="xgboost", n_estimators=3),
}


@pytest.fixture
def few_draws(monkeypatch):
    """Let cards draw few bootstrap samples, which take most of the time."""
    draw = Confusion.metrics, Confusion.cells
    monkeypatch.setattr(Confusion, "metrics", lambda self: draw[0](self, n_boot=2))
    monkeypatch.setattr(Confusion, "cells", lambda self: draw[1](self, n_boot=2))


def problem(n=160):
    X, cells = biased_problem(2, 2, n=n)
    return X.double().numpy(), np.array(["no", "yes"])[cells.y.numpy()], np.array(["u", "v"])[cells.groups.numpy()]


def places(document, at=()):
    """Every place in a document."""
    yield at
    inner = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, value in list(inner)[:12]:
        yield from places(value, (*at, key))


def changed(document, at, junk):
    """Return the document with something else in a place, or with nothing where ``junk`` is Ellipsis."""
    document = copy.deepcopy(document)
    inner = document
    for key in at[:-1]:
        inner = inner[key]
    if junk is ...:
        del inner[at[-1]]
    else:
        inner[at[-1]] = junk
    return document


@contextmanager
def sentences():
    """Let errors pass that are a sentence."""
    try:
        yield
    except InputError as error:
        if "\n" in str(error):
            pytest.fail(f"more than a sentence: {error}")


def some(rng, number):
    return [JUNK[i] for i in rng.choice(len(JUNK), number, replace=False)]


def use(folder, X):
    """Do with a model what people do; return whether that works."""
    with sentences():
        model = fairdro.load(folder)
        for method in ("predict", "predict_proba", "decision_function"):
            getattr(model, method)(X)
        repr(model)
        if hasattr(model, "who_pays"):
            model.who_pays()
        model.model_card()
        return True
    return False


@pytest.fixture(scope="module")
def problem_rows():
    return problem()


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] if name in {"mlp", "xgboost"} else []) for name in MODELS],
)
def saved(request, tmp_path_factory, problem_rows):
    X, y, a = problem_rows
    folder = tmp_path_factory.mktemp("forged") / request.param
    MODELS[request.param]().fit(X, y, sensitive_features=a).save(folder)
    return folder


def forge(folder, state=None, tensors=None):
    """Write another state or other arrays into a model, with right checksums."""
    about = json.loads((folder / "model.json").read_text())
    about.pop("checksum")
    if tensors is not None:
        content = safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in tensors.items()})
        about["tensors"] = digest(content)
        _tensors(folder, about["tensors"]).write_bytes(content)
    if state is not None:
        about["state"] = state
    (folder / "model.json").write_text(json.dumps(about | {"checksum": digest(about)}))


def test_every_place_of_a_models_description(saved, tmp_path, problem_rows):
    folder = shutil.copytree(saved, tmp_path / "m")
    state = json.loads((folder / "model.json").read_text())["state"]
    rng, worked = np.random.default_rng(0), 0
    for at in places(state):
        for junk in (..., *some(rng, 2)) if at else JUNK:
            forge(folder, state=changed(state, at, junk) if at else junk)
            worked += use(folder, problem_rows[0][:3])
    forge(folder, state=state)
    assert use(folder, problem_rows[0][:3])
    assert worked > 0


def test_every_array_of_a_model(saved, tmp_path, problem_rows):
    folder = shutil.copytree(saved, tmp_path / "m")
    (path,) = folder.glob("weights-*")
    tensors = safetensors.numpy.load(path.read_bytes())
    for name, tensor in tensors.items():
        for change in ARRAYS:
            forge(folder, tensors=tensors | {name: change(tensor)})
            use(folder, problem_rows[0][:3])
    forge(folder, tensors=tensors)
    assert use(folder, problem_rows[0][:3])


def test_every_place_of_a_head(tmp_path, problem_rows):
    X, y, a = problem_rows
    p = np.column_stack([1 - (X[:, 0] > 0) * 0.8 - 0.1, (X[:, 0] > 0) * 0.8 + 0.1])
    fit_head(p, p, y, a, rhos=[0, 1]).save(tmp_path / "head.json")
    about = json.loads((tmp_path / "head.json").read_text())
    about.pop("checksum")
    rng = np.random.default_rng(1)
    for at in places(about):
        for junk in (..., *some(rng, 2)) if at else JUNK:
            forged = changed(about, at, junk) if at else junk
            signed = forged | {"checksum": digest(forged)} if isinstance(forged, dict) else forged
            (tmp_path / "forged.json").write_text(json.dumps(signed))
            with sentences():
                head = fairdro.load(tmp_path / "forged.json")
                head.predict(p, p), head.predict_proba(p, p), head.model_card(), head.at(1), head.who_pays()


@pytest.mark.parametrize("backend", ["lightgbm", "xgboost"])
def test_numbers_in_the_text_of_trees(backend, problem_rows):
    X, y, a = problem_rows
    model = FairDROBoostingClassifier(rhos=[0, 1], cv=2, n_estimators=2, backend=backend).fit(X, y, sensitive_features=a)
    text, rng = model.trees_[0], np.random.default_rng(2)
    sizes = {"n_features": X.shape[1], "n_scores": 1}
    numbers = [found.span() for found in re.finditer(r"-?\d+(\.\d+)?", text)]
    refused = 0
    for start, end in rng.permutation(numbers)[:150]:
        for junk in ("-1", "0", "1", "99999", "-2147483648", "9" * 30, "x", ""):
            try:
                read_trees(backend, text[:start] + junk + text[end:], **sizes).scores(X[:5])
            except InputError:
                refused += 1
    assert refused > 150
    circle = {"lightgbm": (r"left_child=\d+", "left_child=0"), "xgboost": (r'"left_children":\[\d+', '"left_children":[0')}
    with pytest.raises(InputError, match="does not lead down"):
        read_trees(backend, re.sub(*circle[backend], text, count=1), **sizes)
    with pytest.raises(InputError, match="another number of columns"):
        read_trees(backend, text, n_features=99, n_scores=1)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench")
    run_bench(BenchPlan(datasets=["compas"], methods=["fairdro"], points=2), out)
    return out


def test_every_part_of_a_stored_bank(bench, tmp_path):
    (path,) = (bench / "store").iterdir()
    with safetensors.safe_open(path, "numpy") as file:
        about = dict(file.metadata())
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    about.pop("checksum")
    rng, target = np.random.default_rng(3), tmp_path / path.name

    def read(about, tensors):
        known = store._checksum(tensors, about)
        contiguous = {key: np.ascontiguousarray(value) for key, value in tensors.items()}
        target.write_bytes(safetensors.numpy.save(contiguous, about | {"checksum": known}))
        with sentences():
            outcome = store.Outcome.read(target)
            if outcome is not None and outcome.refused is None:
                return outcome.rows, outcome.judged, outcome.cells, outcome.bank.id
        return None

    assert read(about, tensors) is not None
    for key in set(about) - {"format"}:
        told = json.loads(about[key])
        for at in places(told):
            for junk in (..., *some(rng, 8)) if at else JUNK:
                forged = changed(told, at, junk) if at else junk
                read(about | {key: json.dumps(forged)}, tensors)
    for key, tensor in tensors.items():
        for change in ARRAYS:
            read(about, tensors | {key: change(tensor)})
        read(about, {name: other for name, other in tensors.items() if name != key})


def test_a_report_of_forged_results_is_one_sentence(bench, tmp_path):
    out = shutil.copytree(bench, tmp_path / "out")
    (path,) = (out / "store").iterdir()
    outcome = store.Outcome.read(path)
    for name, value in {"seconds": float("nan"), "class_names": ["x"] * 50}.items():
        object.__setattr__(outcome, name, value)
        path.write_bytes(outcome.to_bytes())
        done = run_here("report", out)
        assert (done.returncode, done.stderr.count("\n"), "damaged" in done.stderr) == (2, 1, True), done.stderr
