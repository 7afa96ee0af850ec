"""Networks in a bench: a bank each, by the pipeline of `fairdro train`, resumed after a kill, with and without a head."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from command import run_here
from fairdro.bench import Bank, BenchPlan, Store, Summary, network_run, read_study, run_bench
from fairdro.bench.estimate import estimate
from fairdro.bench.network_run import run_network
from fairdro.bench.store import Outcome
from fairdro.data import Examples, civilcomments
from fairdro.data.images import ImageInputs
from fairdro.errors import InputError
from fairdro.groups import Groups
from fairdro.methods import LBC, METHODS
from fairdro.metrics import METRICS

SMALL = {"size": 8, "width": 4, "epochs": 2, "batch_size": 40}
OPTIONS = ("--model", "resnet18", "--size", "8", "--width", "4", "--epochs", "2", "--batch-size", "40", "--workers", "1")
PARTS = ["train", "train", "train", "validation", "test"]


def write_images(folder, n=480, parts=PARTS):
    """Three classes by brightness, two groups by colour, of which one is darker."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for i in range(n):
        label, group = i % 3, i // 3 % 2
        pixels = rng.integers(0, 100, (9, 9, 3)) + 50 * label - 20 * group + 30
        pixels[..., 2 * group] += 25
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(folder / f"{i}.png")
        rows.append((f"{i}.png", f"class {label}", "ab"[group], parts[i // 6 % len(parts)]))
    pd.DataFrame(rows, columns=["image", "label", "group", "split"]).to_csv(folder / "labels.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("own") / "images")


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Heads of a hundred steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairdro.training.head.TOLERANCE", 1.0)
        yield


def plan_of(images, **changes):
    settings = {"methods": ["scratch", "fairdro"], "points": 2, "seeds": 2, **SMALL, **changes}
    return BenchPlan(["images"], model="resnet18", data=str(images), **settings)


@pytest.fixture(scope="module")
def out(images, tmp_path_factory):
    """A bench with two seeds and heads, by the command line."""
    folder = tmp_path_factory.mktemp("bench")
    options = ("--data", images, "--points", "2", "--seeds", "2", "--solvers", "network,network+head")
    done = run_here("bench", "images", *OPTIONS, *options, "--out", folder / "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "[6/6] images / fairdro / resnet18 / network+head / rho = 100 / seed 1" in done.stdout
    return folder / "out"


def sorted_rows(results):
    """Rows without what differs from run to run: time, and the order in which banks were planned."""
    rows = results.drop(columns="seconds").sort_values(["method", "hyperparameters", "solver", "seed"])
    return rows.reset_index(drop=True)


def test_every_network_has_a_row_and_all_that_tables_have(out):
    results = pd.read_csv(out / "results.csv")
    assert results.groupby(["method", "solver"]).size().to_dict() == {
        ("fairdro", "network"): 4, ("fairdro", "network+head"): 4, ("scratch", "network"): 2, ("scratch", "network+head"): 2,
    }  # fmt: skip
    assert set(results["network"].str.rpartition(", data ")[0]) == {"width 4, 8 px, 2 epochs, batches of 40, lr 0.001"}
    parts = [f"{part}{name}" for part in ("", "train_", "validation_") for name in METRICS]
    assert results[parts].notna().all(axis=None)
    table = (out / "table.md").read_text()
    assert table.count("network+head") == 2
    assert {path.name for path in out.iterdir()} >= {"report.html", "figures", "table.tex"}
    assert not (out / "checkpoints").exists()
    assert "resnet18, width 4, 8 px, 2 epochs" in (out / "report.html").read_text()


def test_what_the_bench_measures_is_what_train_does(out, images, tmp_path):
    results = pd.read_csv(out / "results.csv")
    options = ("--size", "8", "--width", "4", "--epochs", "2", "--batch-size", "40", "--seed", "1", "--set", "rho=100")
    done = run_here("train", "images", "--data", images, *options, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    rows = results[(results["seed"] == 1) & results["hyperparameters"].str.contains('"rho": 100.0')].set_index("solver")
    for solver, metrics in (("network", result["metrics"]), ("network+head", result["head"]["metrics"])):
        for name in METRICS:
            assert rows.loc[solver, name] == pytest.approx(metrics["test"][name], abs=1e-12)
            assert rows.loc[solver, f"validation_{name}"] == pytest.approx(metrics["validation"][name], abs=1e-12)
    stored = next(o for o in Store(out).outcomes() if o.bank.seeds == (1,) and o.bank.method.points and "100" in str(o.bank))
    np.testing.assert_allclose(stored.weights.shape, (2, 1, 1, 3, 2))


def test_stored_networks_are_not_trained_again_and_need_no_data(out, images, monkeypatch):
    before = pd.read_csv(out / "results.csv")
    monkeypatch.setattr("fairdro.bench.network_run.train_job", None)
    plan = plan_of(images, solvers=["network", "network+head"])
    (out / "checkpoints" / plan.banks[0].without_head.id).mkdir(parents=True)  # left by a process that was killed
    run_bench(plan, out)
    assert not (out / "checkpoints").exists()
    monkeypatch.setattr("fairdro.bench.network.load_examples", None)
    done = run_here("report", out)
    assert done.returncode == 0, done.stderr
    pd.testing.assert_frame_equal(pd.read_csv(out / "results.csv"), before)


def test_seeds_of_a_network_are_shown_together(out):
    outcomes = Summary(Store(out)).outcomes
    assert [outcome.bank.seeds for outcome in outcomes] == [(0, 1)] * 6
    single = {str(outcome.bank): outcome for outcome in Store(out).outcomes()}
    for outcome in outcomes:
        name = str(outcome.bank).removesuffix("seed 0")
        both = [single[f"{name}seed {seed}"].cells["accuracy"] for seed in (0, 1)]
        np.testing.assert_allclose(outcome.cells["accuracy"], np.mean(both, axis=0))


def test_a_network_is_known_by_its_content(images, tmp_path):
    shutil.copytree(images, tmp_path / "copy")
    ids = [bank.id for bank in plan_of(images).banks]
    assert len(set(ids)) == 6
    assert [bank.id for bank in plan_of(tmp_path / "copy").banks] == ids
    assert plan_of(tmp_path / "copy").banks == plan_of(images).banks
    labels = pd.read_csv(images / "labels.csv")
    labels.loc[0, "group"] = "b"
    shutil.copytree(images, tmp_path / "other")
    labels.to_csv(tmp_path / "other" / "labels.csv", index=False)
    changes = ({"epochs": 3}, {"width": 5}, {"lr": 0.01}, {"batch_size": 20})
    for other in (plan_of(tmp_path / "other"), *(plan_of(images, **change) for change in changes)):
        assert not set(ids) & {bank.id for bank in other.banks}
        assert other.banks[0].bench != plan_of(images).banks[0].bench  # never mixed in one table


def test_rounds_share_the_epochs(images):
    for epochs, rounds, each in ((70, 14, 5), (8, 4, 2), (2, 2, 1)):
        plan = plan_of(images, methods=["lbc"], epochs=epochs, points=1, seeds=1)
        (bank,) = plan.banks
        assert bank.method == LBC(eta=bank.method.eta, rounds=rounds)
        assert plan.network.recipe(bank.method).epochs == each


def test_a_grid_is_tried_instead_of_the_search_range(images, tmp_path):
    plan = plan_of(images, methods=["fairdro", "pl"], seeds=1, grid={"pl": {"eta": [0.1, 10], "kappa": [1.0]}})
    assert [bank.method.rho[0] for bank in plan.banks[:2]] == [0.01, 100]
    assert [(bank.method.eta[0], bank.method.kappa[0]) for bank in plan.banks[2:]] == [(0.1, 1), (10, 1)]
    options = ("--methods", "fairdro,pl", "--seeds", "1", "--points", "2", "--grid", "pl.eta=0.1,10", "--grid", "pl.kappa=1")
    done = run_here("bench", "images", *OPTIONS, *options, "--data", images, "--dry-run", "--out", "out", cwd=tmp_path)
    assert done.stdout.startswith("4 banks on images: 0 are stored, 4 are to be trained.\n")
    for grid, sentence in (
        ("rvp.rho=1", "There is no method with a grid named 'rvp'; choose one of: fairdro, pl."),
        ("pl.rho=1", "There is no hyperparameter to search of pl named 'rho'; choose one of: eta, kappa."),
        ("pl.eta=", "A grid of pl needs a list of different values of eta and kappa, got {'eta': []}."),
        ("pl.eta=1,1", "A grid of pl needs a list of different values of eta and kappa, got {'eta': [1.0, 1.0]}."),
        ("pl.eta=many", "Write a grid as method.hyperparameter=numbers, e.g. fairdro.rho=0.1,0.3, not 'pl.eta=many'."),
        ("fairdro.rho=-1", "rho of fairdro must not be negative, infinite or missing, got (-1.0,)."),
    ):
        done = run_here("bench", "images", *OPTIONS, *options[:6], "--grid", grid, "--data", images, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (2, f"fairdro: {sentence}\n")


def test_a_head_that_is_asked_for_later_needs_no_training(out, images, tmp_path, monkeypatch):
    plain = plan_of(images, methods=["fairdro"], points=1, seeds=1, solvers=["network"])
    run_bench(plain, tmp_path)
    monkeypatch.setattr("fairdro.bench.network_run.train_job", None)
    with_head = replace(plain, solvers=["network+head"])
    results = run_bench(with_head, tmp_path)
    monkeypatch.undo()
    at_once = run_bench(with_head, tmp_path / "at once")
    pd.testing.assert_frame_equal(results.drop(columns="seconds"), at_once.drop(columns="seconds"), check_exact=True)
    assert results["solver"].tolist() == ["network", "network+head"]
    monkeypatch.setattr("fairdro.bench.network_run.train_job", None)
    (file,) = (tmp_path / "outputs").iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"x")  # damaged: what the network says is asked for anew
    next((tmp_path / "store").glob("*+head*")).unlink()
    with pytest.raises(TypeError, match="not callable"):
        run_bench(with_head, tmp_path)


def test_banks_that_learn_from_a_teacher_share_it(images, tmp_path, monkeypatch):
    trained = []
    original = network_run.train_job
    monkeypatch.setattr(
        network_run, "train_job", lambda *given, **more: trained.append(given[2].name) or original(*given, **more)
    )
    plan = plan_of(images, methods=["mfd"], points=2, seeds=1)
    results = run_bench(plan, tmp_path)
    assert trained == ["scratch", "mfd", "scratch", "mfd"]  # the second teacher is read from its checkpoint
    assert len(results) == 2
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.slow
def test_precision_is_part_of_a_network_and_close_to_single(images, tmp_path):
    single, half = (
        run_bench(plan_of(images, methods=["scratch"], seeds=1, precision=precision, epochs=4), tmp_path / str(precision))
        for precision in (None, "bfloat16")
    )
    assert "in bfloat16" in half["network"][0]
    assert "float" not in single["network"][0]
    assert half["train_accuracy"][0] == pytest.approx(single["train_accuracy"][0], abs=0.1)
    with pytest.raises(InputError, match="There is no precision named 'float8'; choose one of: float32, bfloat16"):
        plan_of(images, precision="float8")


def test_a_dry_run_says_what_it_would_take_and_writes_nothing(out, images, tmp_path):
    plan = plan_of(images, methods=["all"], points=1, seeds=1)
    told = estimate(plan, tmp_path / "new", workers=2)
    assert told[0] == f"{len(METHODS)} banks on images: 0 are stored, 2 are not defined there, 17 are to be trained."
    assert re.fullmatch(r"They take about \d+ s with 2 worker processes of this machine; the longest takes \d+ s\.", told[1])
    assert re.fullmatch(r"They leave about \d+ kB in .*new, and \d+ [kM]B of checkpoints while they are trained\.", told[2])
    assert not (tmp_path / "new").exists()
    assert estimate(plan_of(images), out, workers=1) == ["6 banks on images: 6 are stored, and none is left to train."]
    table = BenchPlan(["compas"], ["scratch", "fairdro"], solvers=["minibatch", "fullbatch", "head"], points=2, seeds=1)
    told = estimate(table, tmp_path / "new", workers=1)
    assert told[0] == "6 banks on compas: 0 are stored, 6 are to be trained."
    grown = replace(table, solvers=["fullbatch"], points=8)
    (told_more, *_) = estimate(grown, tmp_path / "new", workers=1)
    assert told_more.endswith("2 are to be trained, and 1 more that fill the holes of their frontiers.")
    assert "with this process alone" in told[1]
    assert list(tmp_path.iterdir()) == []


def test_a_training_that_is_stopped_goes_on_from_its_last_epoch(images, tmp_path):
    plan = plan_of(images, methods=["fairdro"], points=1, seeds=1)
    whole, told = run_bench(plan, tmp_path / "whole"), []

    def stop(bank, done, total):
        told.append((done, total))
        if done == 10:  # of 14 batches, 7 an epoch
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_bench(plan, tmp_path / "stopped", on_step=stop)
    assert told[:2] == [(1, 14), (2, 14)]
    told.clear()
    again = run_bench(plan, tmp_path / "stopped", on_step=lambda bank, done, total: told.append(done))
    assert told[:-1] == [8, 9, 10, 11, 12, 13, 14]
    pd.testing.assert_frame_equal(sorted_rows(again), sorted_rows(whole), check_exact=True)


def test_a_method_that_is_not_defined_says_why_once(images, tmp_path):
    with pytest.raises(InputError, match="cov is defined for 2 classes, not for 3"):
        plan_of(images, methods=["cov"]).check()
    plan = plan_of(images, methods=["all"], solvers=["network+head"])
    plan.check()
    store = Store(tmp_path)
    for bank in plan.banks:
        if bank.method.name == "cov" or str(bank) == "images / scratch / resnet18 / network+head / seed 0":
            for outcome in run_network(bank, plan.network, tmp_path):
                store.write(outcome)
    table = Summary(Store(tmp_path)).table
    assert table["method"].tolist() == ["scratch", "scratch", "cov", "cov"]
    refused = table["chosen"].str.startswith("N/A: cov is defined for 2 classes, not for 3")
    assert refused.tolist() == [False, False, True, True]
    assert len(Summary(Store(tmp_path)).outcomes) == 4


def test_a_head_that_cannot_be_fitted_says_why(images, tmp_path):
    labels = pd.read_csv(images / "labels.csv")
    shutil.copytree(images, tmp_path / "other")
    held = (labels["split"] == "validation") & (labels["label"] != "class 1")
    labels[~held].to_csv(tmp_path / "other" / "labels.csv", index=False)
    plan = plan_of(tmp_path / "other", methods=["scratch"], solvers=["network+head"], seeds=1)
    results = run_bench(plan, tmp_path / "out")
    assert results["solver"].tolist() == ["network"]
    (reason,) = Store(tmp_path / "out").refused()["reason"]
    assert reason.startswith("No head can be fitted to the validation part: ")


def test_a_network_that_diverged_is_marked_and_stored(images, tmp_path):
    plan = plan_of(images, methods=["scratch", "group_dro_eg"], points=1, seeds=1, lr=1e30, solvers=["network+head"])
    results = run_bench(plan, tmp_path)
    assert results["diverged"].tolist() == [True] * 4
    assert Store(tmp_path).results()["diverged"].all()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda labels: labels[:2].drop(columns="split"), "is not among the 0 rows that train|is not among the 1 rows"),
        (lambda labels: labels[(labels["label"] != "class 2") | (labels["split"] == "test")], "'class 2' of images is not"),
        (lambda labels: labels.replace("0.png", "broken.png"), "'broken.png' in .* is broken"),
        (lambda labels: labels.replace("0.png", "gone.png"), "no image 'gone.png'"),
    ],
)
def test_images_that_cannot_train_are_one_sentence(images, tmp_path, change, sentence):
    shutil.copytree(images, tmp_path / "images")
    (tmp_path / "images" / "broken.png").write_bytes(b"no image")
    change(pd.read_csv(images / "labels.csv")).to_csv(tmp_path / "images" / "labels.csv", index=False)
    with pytest.raises(InputError, match=sentence):
        plan_of(tmp_path / "images").check()


def test_a_stored_network_is_checked_before_it_is_used(out, tmp_path):
    outcome = Store(out).outcomes()[0]
    spec = outcome.bank.spec()
    assert Bank.from_spec(json.loads(json.dumps(spec))) == outcome.bank
    forged = replace(outcome, bank=replace(outcome.bank, network=replace(outcome.bank.network, epochs="many")))
    (tmp_path / "forged.safetensors").write_bytes(forged.to_bytes())
    with pytest.raises(InputError, match=r"is damaged \(epochs: "):
        Outcome.read(tmp_path / "forged.safetensors")
    with pytest.raises(InputError, match="plan the bench again"):
        outcome.bank.refusal()


@pytest.mark.slow
def test_texts_by_an_encoder(encoder, tmp_path):
    rng = np.random.default_rng(0)
    words = {"good": ["cat", "likes", "bird"], "bad": ["dog", "hears", "fish"]}
    rows = []
    for i in range(120):
        label, group = ("good", "bad")[i % 2], "ab"[i // 2 % 2]
        text = " ".join([*rng.choice(words[label], 3), {"a": "red", "b": "blue"}[group]])
        rows.append((text, label, group, PARTS[i // 4 % 5]))
    pd.DataFrame(rows, columns=["text", "label", "group", "split"]).to_csv(tmp_path / "posts.csv", index=False)
    options = ("--model", "encoder", "--encoder", encoder, "--data", "posts.csv", "--epochs", "1", "--points", "1")
    options = (*options, "--seeds", "1", "--workers", "1", "--methods", "scratch,lbc", "--solvers", "network+head")
    done = run_here("bench", "texts", *options, "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = pd.read_csv(tmp_path / "out" / "results.csv")
    assert results["solver"].tolist() == ["network", "network", "network+head", "network+head"]
    assert results["network"].str.startswith(f"{encoder.name}, 1 epochs, batches of 24, lr 2e-05, data ").all()
    assert '"rounds": 1' in results["hyperparameters"][1]
    options = ("--data", "posts.csv", "--model", encoder, "--epochs", "1", "--method", "scratch", "--out", "run")
    done = run_here("train", "texts", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "run" / "result.json").read_text())["metrics"]["validation"]
    for name in METRICS:  # judged without dropout
        assert results[f"validation_{name}"][0] == pytest.approx(metrics[name], abs=1e-12)


# ---------------------------------------------------------------- studies


STUDIES = Path(__file__).parents[1] / "studies"
SHAPES = {
    "utkface": (["under 20", "20 to 39", "40 and over"], ["White", "Black", "Asian", "Indian"]),
    "celeba": (["not blond", "blond"], ["Female", "Male"]),
    "civilcomments": (civilcomments.CLASS_NAMES, civilcomments.ETHNICITIES),
}


class Numbers:
    def __len__(self):
        return 200

    def batch(self, rows, rng=None):
        return rows[:, None].float()


@pytest.mark.parametrize("name", ["utkface", "celeba", "civilcomments", "adult_compas"])
def test_shipped_studies_are_the_papers_settings(name, monkeypatch):
    def examples(job):
        classes, groups = SHAPES[job.dataset]
        rows = np.arange(200)
        return Examples(job.dataset, Numbers(), rows % len(classes), Groups(rows % len(groups), groups), classes,
                        {"train": rows[:100], "test": rows[100:]}, "")  # fmt: skip

    monkeypatch.setattr("fairdro.bench.network.known_examples", examples)
    monkeypatch.setattr("fairdro.networks.runs.Job.network", lambda job, n_classes: torch.nn.Linear(1, n_classes))
    study = read_study(STUDIES / f"{name}.toml")
    assert {plan.protocol for plan in study.plans} == {"paper"}
    assert {plan.seeds for plan in study.plans} == {4}
    banks = [bank for plan in study.plans for bank in plan.banks]
    assert {"scratch", "fairdro", "lbc"} <= {bank.method.name for bank in banks}
    if name == "adult_compas":
        assert {(bank.dataset, bank.model, bank.solver) for bank in banks} == {
            ("adult", "linear", "minibatch"), ("compas", "linear", "minibatch"),
        }  # fmt: skip
        return
    (network,) = {bank.network for bank in banks}
    expected = (None, None, 3, 24, 2e-5) if name == "civilcomments" else (224, 64, 70, 128, 1e-3)
    assert (network.size, network.width, network.epochs, network.batch_size, network.lr) == expected
    assert {bank.seeds for bank in banks} == {(0,), (1,), (2,), (3,)}
    rounds = {bank.method.rounds for bank in banks if bank.method.name == "lbc"}
    assert rounds == {1 if name == "civilcomments" else 14}
    radii = {bank.method.rho[0] for bank in banks if bank.method.name == "fairdro"}
    assert (min(radii - {0.0}), max(radii)) == (pytest.approx(0.01), pytest.approx(100))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["utkface", "celeba"])
def test_shipped_studies_train_a_step(name, tmp_path, monkeypatch):
    classes, groups = SHAPES[name]
    rows = np.arange(24)
    pixels = np.random.default_rng(0).integers(0, 256, (24, 3, 256, 256), dtype=np.uint8)
    inputs = ImageInputs(pixels, size=224, mean=[0.5] * 3, std=[0.2] * 3)
    parts = {"train": rows[:16], "test": rows[16:]}
    grouped = Groups(rows // len(classes) % len(groups), groups)
    examples = Examples(name, inputs, rows % len(classes), grouped, classes, parts, "")
    monkeypatch.setattr("fairdro.bench.network.known_examples", lambda job: examples)
    for plan in read_study(STUDIES / f"{name}.toml").plans:
        told = estimate(plan, tmp_path, workers=1)
        assert told[0].startswith(f"{len(plan.banks)} banks on {name}: 0 are stored")
        assert "They take about" in told[1]


# ---------------------------------------------------------------- killed for real


KILLED_IN_A_WRITE = """
import os, signal, sys
from pathlib import Path
from fairdro.cli import main

replace, place, left = Path.replace, sys.argv.pop(1), [int(sys.argv.pop(1))]

def die(self, target):
    if place in Path(target).parts:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)

Path.replace = die
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "solvers"), [("1", "network+head"), ("2", "network")])
def test_killed_in_an_epoch_and_in_a_write_it_ends_the_same(images, tmp_path, workers, solvers):
    options = ["bench", "images", *OPTIONS[:-1], workers, "--epochs", "30", "--data", str(images), "--points", "1"]
    options += ["--seeds", "1", "--solvers", solvers, "--out"]
    whole = subprocess.run([sys.executable, "-m", "fairdro", *options, str(tmp_path / "whole")], check=False)
    assert whole.returncode == 0
    out = tmp_path / "killed"

    def checkpoints():
        return {(path, path.stat().st_mtime_ns) for path in out.glob("checkpoints/*/*.safetensors")}

    for _ in range(2):  # after a new checkpoint, in the middle of the next epoch
        known = checkpoints()
        process = subprocess.Popen([sys.executable, "-m", "fairdro", *options, str(out)], start_new_session=True)
        while process.poll() is None and checkpoints() <= known:
            time.sleep(0.002)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert checkpoints()
    writes = [("checkpoints", "3"), ("store", "2")]  # the second bank is the head on the network that is stored by then
    for place, number in writes if workers == "1" else []:
        command = [sys.executable, "-c", KILLED_IN_A_WRITE, place, number, *options, str(out)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    subprocess.run([sys.executable, "-m", "fairdro", *options, str(out)], check=True)
    ends = [sorted_rows(pd.read_csv(folder / "results.csv")) for folder in (tmp_path / "whole", out)]
    pd.testing.assert_frame_equal(*ends, check_exact=True)
    assert len(ends[0]) == (4 if solvers == "network+head" else 2)
    assert not (out / "checkpoints").exists()
