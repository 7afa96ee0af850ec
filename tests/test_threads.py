"""Independent work side by side, with one thread of the libraries each; their number changes no result."""

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fairdro import FairDROBoostingClassifier
from fairdro.models import trees as models
from fairdro.models.trees import TreeSettings
from fairdro.training import trees as training
from fairdro.training import weighted_trees
from fairdro.training.threads import end_if_in_vain, in_threads, one_thread_each, torch_threads

JOBS = 3
COUNTED = f"""
import os, threading
import numpy as np
import torch
from fairdro import FairDROBoostingClassifier

rng = np.random.default_rng(0)
X, y, a = rng.normal(size=(3000, 4)), rng.integers(0, 2, 3000), rng.integers(0, 2, 3000)
torch.ones(1_000_000).exp()  # torch's own are there from now on
seen, done = [], threading.Event()
def count():
    while not done.wait(0.002):
        seen.append(len(os.listdir("/proc/self/task")))
threading.Thread(target=count).start()
before = len(os.listdir("/proc/self/task"))
try:
    for backend in ("lightgbm", "xgboost"):
        for strategy in ("head", "weights"):
            model = FairDROBoostingClassifier(0.0, backend=backend, strategy=strategy, n_estimators=3, n_jobs={JOBS})
            model.fit(X, y, sensitive_features=a).predict(X)
            assert max(seen) <= before + 2 * {JOBS}, (backend, strategy, before, max(seen))
finally:
    done.set()
"""


def _table(n=1500):
    rng = np.random.default_rng(3)
    a = rng.integers(0, 2, n)
    X = np.column_stack([rng.normal(a, 1), rng.normal(size=n), rng.normal(size=n)])
    return X, (X[:, 0] + X[:, 1] + rng.normal(size=n) > 0.5).astype(int), a


def test_work_is_done_in_order_by_threads_with_one_of_torchs_each():
    before, meeting, told = torch.get_num_threads(), threading.Barrier(3, timeout=60), []

    def work(item):
        meeting.wait()  # passed only if three work at the same time
        return item, torch.get_num_threads()

    with torch_threads(2):
        done = in_threads(work, [3, 1, 2], 3, on_step=lambda *step: told.append((*step, torch.get_num_threads())))
        assert torch.get_num_threads() == 2
    assert done == [(3, 1), (1, 1), (2, 1)]
    assert told == [(1, 3, 1), (2, 3, 1), (3, 3, 1)]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("threads", [1, 2])
def test_the_first_error_is_raised_and_the_number_of_threads_put_back(threads):
    before, done = torch.get_num_threads(), []

    def work(item):
        if item == 1:
            raise ValueError("of item 1")
        done.append(item)

    with torch_threads(2), pytest.raises(ValueError, match="of item 1"):
        in_threads(work, [0, 1], threads)
    assert done == [0]
    assert torch.get_num_threads() == before


def test_an_interrupted_caller_ends_what_runs():
    running, ended, done = threading.Event(), threading.Event(), []

    def work(_):
        running.set()
        try:
            while True:  # until nobody waits for it
                end_if_in_vain()
        finally:
            ended.set()

    def interrupted():
        with one_thread_each(1) as pool:
            done.extend(pool.submit(work, item) for item in range(2))
            running.wait()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert ended.is_set()
    assert done[1].cancelled()
    end_if_in_vain()  # other threads go on


def test_a_booster_has_threads_of_its_own_only_for_a_large_table(monkeypatch):
    small, large, settings = np.zeros((10, 3)), np.zeros((10, 4)), TreeSettings(threads=4)
    monkeypatch.setattr(models, "THREADED", 40)
    at_once, own = settings.divided(small)
    assert (at_once, own.threads) == (4, 1)
    at_once, own = settings.divided(large)
    assert (at_once, own.threads) == (1, 4)


@pytest.mark.parametrize(("limit", "expected"), [(1e8, {1}), (1, {2})])
@pytest.mark.parametrize("strategy", ["head", "weights"])
def test_every_booster_of_a_fit_gets_that_number(monkeypatch, limit, expected, strategy):
    asked, (X, y, a) = [], _table()

    def tabulate(X, settings, held=None):
        asked.append(settings.threads)
        return models.tabulate(X, replace(settings, threads=1), held)  # to be quick on any machine

    monkeypatch.setattr(models, "THREADED", limit)
    for module in (training, weighted_trees):
        monkeypatch.setattr(module, "tabulate", tabulate)
    before = torch.get_num_threads()
    FairDROBoostingClassifier(0.0, strategy=strategy, n_estimators=2, n_jobs=2).fit(X, y, sensitive_features=a)
    assert set(asked) == expected
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("backend", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("strategy", ["head", "weights"])
def test_the_number_of_jobs_changes_no_bit(strategy, backend):
    X, y, a = _table()
    options = {"rhos": [0, 0.5, 1], "n_estimators": 10, "strategy": strategy, "backend": backend}
    alone, beside = (FairDROBoostingClassifier(**options, n_jobs=jobs).fit(X, y, sensitive_features=a) for jobs in (1, 3))
    assert alone.trees_ == beside.trees_
    assert alone.frontier_.equals(beside.frontier_)
    for name in ("weights_", "confusion_", "calibration_"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(beside, name))
    np.testing.assert_array_equal(alone.decision_function(X), beside.decision_function(X))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks Linux for the threads of a process")
def test_no_booster_starts_threads_that_spin():
    """Threads of finished work may still be on their way out, so that there are twice as many as jobs at most."""
    free = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "MKL_"))}
    command = [sys.executable, "-c", COUNTED]
    done = subprocess.run(command, env=free | {"OMP_NUM_THREADS": "8"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
