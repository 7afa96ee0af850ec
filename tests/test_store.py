"""What a bench promises about crashes: real kills, two processes at once, damage, a disk that is full."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy

from command import run_here
from fairdro.bench import Bank, BenchPlan, Store, run_bank, run_bench
from fairdro.bench.run import make_writable
from fairdro.errors import InputError
from fairdro.methods import METHODS, FairDRO, Scratch
from fairdro.metrics import METRICS

SIX = ["scratch", "rw", "fairbatch", "fairdro", "classwise_simplex", "group_dro"]
PLAN = BenchPlan(datasets=["compas"], methods=SIX, points=2)
COMMAND = [sys.executable, "-m", "fairdro", "bench", "compas", "--methods", ",".join(SIX), "--points", "2"]


def files(out):
    return {path.name: path.stat().st_mtime_ns for path in (out / "store").glob("*.safetensors")}


def start(out, *options, **popen):
    return subprocess.Popen(
        [*COMMAND, *options, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **popen
    )


def wait_for_a_bank(out, process):
    for _ in range(1200):
        if files(out):
            return
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    pytest.fail("no bank was stored within a minute")


def alive_in_session(session):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:  # it ended while we looked
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def all_leave(session):
    """Workers leave with their parent, within seconds."""
    for _ in range(100):
        if not alive_in_session(session):
            return
        time.sleep(0.1)
    pytest.fail(f"still running: {alive_in_session(session)}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    return run_bench(PLAN, out)


@pytest.mark.parametrize("options", [pytest.param([], marks=pytest.mark.slow), ["--workers", "2"]])
def test_killed_at_any_moment_it_goes_on_where_it_was(tmp_path, whole, options):
    process = start(tmp_path, *options, start_new_session=True)
    wait_for_a_bank(tmp_path, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    all_leave(process.pid)
    before = files(tmp_path)
    assert 0 < len(before) < len(PLAN.banks)
    again = run_bench(PLAN, tmp_path)
    assert before.items() <= files(tmp_path).items()
    assert len(files(tmp_path)) == len(PLAN.banks)
    pd.testing.assert_frame_equal(again.drop(columns="seconds"), whole.drop(columns="seconds"), check_exact=True)
    stored = pd.read_csv(tmp_path / "results.csv")
    pd.testing.assert_frame_equal(stored.drop(columns="seconds"), whole.drop(columns="seconds"), check_exact=True)


@pytest.mark.parametrize("options", [pytest.param([], marks=pytest.mark.slow), ["--workers", "2"]])
def test_ctrl_c_ends_cleanly(tmp_path, options):
    process = start(tmp_path, *options, start_new_session=True)
    wait_for_a_bank(tmp_path, process)
    os.killpg(process.pid, signal.SIGINT)
    _, complaint = process.communicate(timeout=30)
    assert process.returncode == 130
    assert complaint == "fairdro: stopped. What is finished is stored; run the same command again to go on.\n"
    all_leave(process.pid)


def test_ctrl_c_in_the_first_moments_ends_cleanly(tmp_path):
    process = start(tmp_path, "--workers", "2", start_new_session=True)
    time.sleep(5)  # workers are being started
    os.killpg(process.pid, signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in complaint
    all_leave(process.pid)


def test_banks_of_another_version_are_left_out(tmp_path, monkeypatch):
    plan = BenchPlan(datasets=["compas"], points=2)
    with monkeypatch.context() as other:
        other.setattr("fairdro.bench.bank.metadata.version", lambda name: "0.0.1")
        run_bench(plan, tmp_path)
        assert Store(tmp_path).outdated == 0
    with pytest.raises(InputError, match="There are no results"):
        Store(tmp_path).results()
    assert len(run_bench(plan, tmp_path)) == 3
    assert Store(tmp_path).outdated == 2


@pytest.mark.parametrize("given", [None, "1"])
def test_files_of_another_format_are_of_another_version_and_not_damaged(tmp_path, given):
    """Also under the name of a current bank, which is then trained anew."""
    plan = BenchPlan(datasets=["compas"], points=2)
    run_bench(plan, tmp_path)
    path, _ = sorted((tmp_path / "store").glob("*.safetensors"))
    with safetensors.safe_open(path, "numpy") as file:
        about = {key: value for key, value in file.metadata().items() if key != "format"}
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
    old = safetensors.numpy.save(tensors, about if given is None else about | {"format": given})
    path.write_bytes(old)
    (tmp_path / "store" / "adult-scratch-fullbatch-0123.safetensors").write_bytes(old)
    assert Store(tmp_path).outdated == 2
    done = run_here("report", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 stored banks are of another version" in done.stdout + done.stderr
    assert len(run_bench(plan, tmp_path)) == 3
    assert Store(tmp_path).outdated == 1


def test_many_processes_may_begin_at_once_and_files_of_the_user_are_left_alone(tmp_path):
    (tmp_path / "probe").write_text("mine")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: make_writable(tmp_path), range(200)))
    assert (tmp_path / "probe").read_text() == "mine"
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "store").touch()
    with pytest.raises(InputError, match="Cannot write results into"):
        make_writable(tmp_path / "x")


def test_drafts_of_killed_processes_are_removed(tmp_path):
    make_writable(tmp_path)
    old, new = (tmp_path / "store" / f".bank.safetensors.{pid}.part" for pid in (1, 2))
    for draft in (old, new):
        draft.touch()
    os.utime(old, (0, 0))
    make_writable(tmp_path)
    assert (old.exists(), new.exists()) == (False, True)


def test_damage_is_found_before_training(tmp_path, monkeypatch):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "a.safetensors").write_bytes(b"junk")
    monkeypatch.setattr("fairdro.bench.run.run_bank", None)
    with pytest.raises(InputError, match="is damaged"):
        run_bench(PLAN, tmp_path)


@pytest.mark.slow
def test_two_processes_on_one_folder(tmp_path, whole):
    both = [start(tmp_path), start(tmp_path, "--workers", "2")]
    for process in both:
        printed, complaint = process.communicate(timeout=300)
        assert process.returncode == 0, complaint
        assert all(f"[{number}/6]" in printed for number in range(1, 7))
    assert len(files(tmp_path)) == len(PLAN.banks)
    stored = pd.read_csv(tmp_path / "results.csv")
    pd.testing.assert_frame_equal(stored.drop(columns="seconds"), whole.drop(columns="seconds"), check_exact=True)
    assert not list(tmp_path.rglob("*.part"))


def test_a_worker_that_is_killed_is_one_sentence(tmp_path):
    process = start(tmp_path, "--workers", "2", start_new_session=True)
    wait_for_a_bank(tmp_path, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    workers = [pid for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]
    os.kill(int(workers[0]), signal.SIGKILL)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "A worker process ended suddenly" in complaint
    assert "Traceback" not in complaint
    assert files(tmp_path)


def test_what_is_stored_is_not_trained_again(tmp_path, monkeypatch):
    plan = BenchPlan(datasets=["compas"], points=3)
    first = run_bench(plan, tmp_path)
    monkeypatch.setattr("fairdro.bench.run.run_bank", None)
    pd.testing.assert_frame_equal(run_bench(plan, tmp_path), first)


def test_a_larger_bench_adds_to_the_folder_and_no_model_counts_twice(tmp_path):
    run_bench(BenchPlan(datasets=["compas"], methods=["fairdro"], points=3), tmp_path)
    results = run_bench(BenchPlan(datasets=["compas"], methods=["fairdro"], points=5), tmp_path)
    rho = [json.loads(text)["rho"] for text in results["hyperparameters"]]
    assert sorted(rho) == sorted({*FairDRO.sweep(3).rho, *FairDRO.sweep(5).rho})


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "junk", "renamed field"])
def test_a_damaged_file_is_one_sentence_and_touches_nothing(tmp_path, damage):
    run_bench(BenchPlan(datasets=["compas"], points=2), tmp_path)
    path = sorted((tmp_path / "store").glob("*.safetensors"))[0]
    content = path.read_bytes()
    path.write_bytes({
        "truncated": content[:-7],
        "flipped": content[:-7] + bytes([content[-7] ^ 1]) + content[-6:],
        "empty": b"",
        "junk": os.urandom(400),
        "renamed field": content.replace(b"seconds", b"secants"),
    }[damage])  # fmt: skip
    before = files(tmp_path)
    done = run_here("report", tmp_path)
    assert done.returncode == 2
    assert f"The stored bank {path} is damaged" in done.stderr
    assert "Traceback" not in done.stderr
    assert files(tmp_path) == before


def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path):
    run_bench(BenchPlan(datasets=["compas"], methods=["scratch"]), tmp_path)
    before = files(tmp_path)

    def no_large_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    process = start(tmp_path, preexec_fn=no_large_files)
    _, complaint = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "Cannot write" in complaint
    assert "What was there before is still there" in complaint
    assert "Traceback" not in complaint
    assert files(tmp_path) == before
    assert not list(tmp_path.rglob("*.part"))


def test_a_stored_bank_comes_back_whole(tmp_path):
    bank = Bank("compas", FairDRO(rho=(0.0, 3.0), softness=0.02), protocol="validated", split=3)
    outcome = run_bank(bank)
    store = Store(tmp_path)
    store.write(outcome)
    (back,) = Store(tmp_path).outcomes()
    assert back.bank == bank
    for name in ("diverged", "weights", "accuracy", "progress"):
        np.testing.assert_array_equal(getattr(back, name), getattr(outcome, name))
    assert set(back.confusion) == {"train", "validation", "test"}
    assert (back.class_names, back.group_names) == (outcome.class_names, outcome.group_names)
    rows = back.rows
    assert rows["dca"].tolist() == METRICS["dca"](outcome.confusion["test"]).reshape(-1).tolist()
    assert rows["validation_dca"].tolist() == METRICS["dca"](outcome.confusion["validation"]).reshape(-1).tolist()


@pytest.mark.parametrize("name", list(METHODS))
def test_a_bank_is_made_again_from_plain_data(name):
    bank = Bank("adult", METHODS[name].sweep(5), solver="minibatch", seeds=(0, 1))
    assert Bank.from_spec(json.loads(json.dumps(bank.spec()))) == bank


def test_the_name_of_a_bank_follows_its_content_the_data_and_the_version(monkeypatch):
    bank = Bank("compas", Scratch())
    names = {bank.id, Bank("adult", Scratch()).id, Bank("compas", Scratch(objective="standard")).id}
    names |= {
        Bank("compas", Scratch(), split=1).id,
        Bank("compas", FairDRO(rho=1.0)).id,
        Bank("compas", FairDRO(rho=2.0)).id,
    }
    assert bank.id == Bank("compas", Scratch()).id
    monkeypatch.setattr("fairdro.bench.bank.metadata.version", lambda name: "99")
    assert len(names | {bank.id}) == 7


def test_a_refused_method_is_stored_with_the_reason(tmp_path):
    plan = BenchPlan(datasets=["compas"], methods=["all"], solvers=["minibatch"])
    refused = [bank for bank in plan.banks if bank.refusal() is not None]
    assert [bank.method.name for bank in refused] == ["fairhsic", "mfd"]
    store = Store(tmp_path)
    for bank in refused:
        store.write(run_bank(bank))
    told = Store(tmp_path).refused().set_index("method")["reason"]
    assert told["mfd"].startswith("mfd needs the features of a hidden layer")


def test_a_bank_that_is_refused_before_any_other_is_trained_stops_nothing(tmp_path, monkeypatch):
    refuses = property(lambda bank: 1.0 if bank.method.name == "scratch" else 2.0)
    monkeypatch.setattr(Bank, "cost", refuses)
    reason = "it was asked to refuse; use scratch."
    monkeypatch.setattr(Bank, "refusal", lambda bank: None if bank.method.name == "scratch" else reason)
    plan = BenchPlan(datasets=["compas"], methods=["all"], solvers=["fullbatch"], points=1)
    results = run_bench(plan, tmp_path, workers=1)
    assert results["method"].tolist() == ["scratch"]
    assert len(Store(tmp_path).refused()) == len(plan.banks) - 1


def test_an_empty_folder_has_no_results(tmp_path):
    with pytest.raises(InputError, match="There are no results in"):
        Store(tmp_path).results()
