"""Who trains the banks of a bench: threads, processes, workers of a Dask cluster; the store is the only state."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

from command import run_here
from fairdro.bench import BenchPlan, run_bench
from fairdro.bench.executors import local_pool
from fairdro.errors import InputError
from test_bench_networks import OPTIONS, SMALL, sorted_rows, write_images

FAIRDRO, DASK = [sys.executable, "-m", "fairdro"], [sys.executable, "-m", "dask"]
BENCH = ["bench", "images", *OPTIONS, "--points", "2", "--seeds", "2", "--solvers", "network"]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("own") / "images")


@pytest.fixture(scope="module")
def plan(images):
    methods = ["scratch", "fairdro"]
    return BenchPlan(["images"], methods, model="resnet18", data=str(images), points=2, seeds=2, **SMALL)


@pytest.fixture(scope="module")
def whole(plan, tmp_path_factory):
    """The results of one process."""
    return run_bench(plan, tmp_path_factory.mktemp("whole"))


def test_any_executor_gives_the_results_of_one_process(plan, whole, tmp_path):
    with ThreadPoolExecutor(3) as pool:
        results = run_bench(plan, tmp_path, executor=pool)
        assert pool.submit(int).result() == 0  # it is left open
    pd.testing.assert_frame_equal(sorted_rows(results), sorted_rows(whole), check_exact=True)


def test_banks_of_tables_go_to_an_executor_too(tmp_path):
    plan = BenchPlan(["compas"], ["scratch", "fairdro"], solvers=["minibatch"], points=2, seeds=2, epochs=2)
    with ThreadPoolExecutor(2) as pool:
        run_bench(plan, tmp_path / "pool", executor=pool)
    run_bench(plan, tmp_path / "whole")
    told = [pd.read_csv(tmp_path / name / "results.csv").drop(columns="seconds") for name in ("pool", "whole")]
    pd.testing.assert_frame_equal(*told, check_exact=True)


def test_what_goes_wrong_in_an_executor_is_said_and_what_waits_is_given_up(plan, tmp_path, monkeypatch):
    begun = []

    def fails(bank, out, on_step):
        begun.append(bank)
        raise InputError("There is no such image.")

    monkeypatch.setattr("fairdro.bench.run._train_and_store", fails)
    with ThreadPoolExecutor(1) as pool, pytest.raises(InputError, match="no such image"):
        run_bench(plan, tmp_path, executor=pool)
    assert 0 < len(begun) < len(plan.banks)


def test_what_is_no_executor_is_refused(plan, tmp_path):
    with pytest.raises(InputError, match=r"must be a concurrent.futures.Executor, got int; of a Dask client pass"):
        run_bench(plan, tmp_path, executor=3)


def test_a_worker_that_stores_elsewhere_is_said(plan, tmp_path, monkeypatch):
    monkeypatch.setattr("fairdro.bench.run._train_and_store", lambda bank, out, on_step: None)
    with ThreadPoolExecutor(1) as pool, pytest.raises(InputError, match="workers must share this folder"):
        run_bench(plan, tmp_path, executor=pool)


def test_worker_processes_see_one_gpu_each(monkeypatch):
    monkeypatch.setattr("fairdro.bench.executors._devices", lambda: ["4", "7"])
    with local_pool(2) as (pool, _):
        seen = set()
        while seen != {"4", "7"}:  # until both workers have started
            seen |= set(pool.map(os.getenv, ["CUDA_VISIBLE_DEVICES"] * 8))
            assert seen <= {"4", "7"}


def start_cluster(folder, workers):
    """Start a scheduler and workers as processes of their own; return its address and all processes."""
    file = folder / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    command = [*DASK, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
    processes = [subprocess.Popen(command, **quiet)]
    for _ in range(600):
        if file.exists() and file.read_text().strip().endswith("}"):
            break
        time.sleep(0.05)
    address = pd.read_json(file, typ="series")["address"]
    settings = ["--no-nanny", "--no-dashboard", "--nthreads", "1", "--memory-limit", "0", "--local-directory", str(folder)]
    processes += [subprocess.Popen([*DASK, "worker", address, *settings], **quiet) for _ in range(workers)]
    return address, processes


@pytest.fixture
def cluster(tmp_path):
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    address, processes = start_cluster(tmp_path, 2)
    yield address, processes[1:]
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_worker_of_a_cluster_that_is_killed_costs_its_bank_only(cluster, images, tmp_path):
    address, workers = cluster
    out, longer = tmp_path / "out", [word if word != "2" else "10" for word in OPTIONS]
    options = ["bench", "images", *longer, "--points", "2", "--seeds", "2", "--data", str(images)]
    command = [*FAIRDRO, *options, "--cluster", address, "--out", str(out)]
    bench = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while bench.poll() is None and not list(out.glob("checkpoints/*/*.safetensors")):
        time.sleep(0.01)
    assert bench.poll() is None, bench.stderr.read()
    workers[0].send_signal(signal.SIGKILL)
    told, complaint = bench.communicate(timeout=120)
    assert bench.returncode == 0, complaint
    assert "Open" in told
    assert workers[1].poll() is None
    alone = run_here(*options, "--out", tmp_path / "alone", cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr
    ends = [sorted_rows(pd.read_csv(folder / "results.csv")) for folder in (out, tmp_path / "alone")]
    pd.testing.assert_frame_equal(*ends, check_exact=True)
    assert not (out / "checkpoints").exists()


def test_a_scheduler_without_workers_is_said(images, tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    monkeypatch.setattr("fairdro.bench.executors.ANSWER_SECONDS", 3)
    address, (scheduler,) = start_cluster(tmp_path, 0)
    done = run_here(*BENCH, "--data", images, "--cluster", address, "--out", "out", cwd=tmp_path)
    scheduler.kill()
    scheduler.wait()
    told = f"fairdro: The scheduler at {address} has no workers; start some with `dask worker {address}`.\n"
    assert (done.returncode, done.stderr) == (2, told)


def test_a_scheduler_that_cannot_be_reached_is_said(images, tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    monkeypatch.setattr("fairdro.bench.executors.ANSWER_SECONDS", 1)
    for address in ("tcp://127.0.0.1:9", "nonsense://here"):
        done = run_here(*BENCH, "--data", images, "--cluster", address, "--out", "out", cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith(f"fairdro: No scheduler answers at {address}; start one with `dask scheduler`")
        assert done.stderr.count("\n") == 1
