"""Measure what a busy machine costs: fits alone, then beside two processes of two threads each that spin at barriers.

python benchmarks/busy.py                        # prints tables; under five minutes on a machine that is idle otherwise
python benchmarks/busy.py --out build/busy.json  # also writes the figures

Beside four busy threads the fair share of one more is a fifth of the cores: at most five times the idle time is promised.
Then, idle again, boosting with a head against stock LightGBM's own five folds of class and group models.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from fairdro import FairDROBoostingClassifier, FairDROClassifierCV, fit_head, load_dataset
from fairdro._utils.markdown import markdown_table

PROMISED = 5.0
PROCESSES, IDLE_RUNS, FEW = 2, 2, 500
SETTLED = 3.0  # seconds until the load is under way
LOAD = """
import os, sys, torch
torch.set_num_threads(2)
a, b, long = torch.randn(192, 192), torch.randn(192, 192), torch.randn(100_000)
print("ready", flush=True)
while os.getppid() == int(sys.argv[1]):  # it ends with its parent, however that ends
    for _ in range(100):
        torch.mm(a, b); long.abs()
"""
TREES = {"n_estimators": 200, "num_leaves": 15, "learning_rate": 0.05, "min_child_samples": 20, "verbosity": -1}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    out = parser.parse_args().out
    warnings.simplefilter("ignore")  # heads of small groups that have not converged
    print(f"On {os.cpu_count()} cores; processes waiting before it began: {os.getloadavg()[0]:.1f}\n", flush=True)
    found = {"busy": busy(), "stock": stock()}
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(found | {"cores": os.cpu_count()}, indent=1) + "\n", encoding="utf-8")


def students() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw a table like that of law students: 21,791 rows of three columns, three classes, five groups of unequal size."""
    rng, n = np.random.default_rng(0), 21_791
    a = rng.choice(5, n, p=[0.84, 0.06, 0.05, 0.03, 0.02])
    test, grades, sex = rng.normal(36 - 1.5 * a, 5).round(), rng.normal(3.2 - 0.1 * a, 0.4).round(1), rng.integers(0, 2, n)
    score = 0.15 * (test - 36) + 1.5 * (grades - 3.2) + 0.3 * sex + rng.logistic(size=n)
    return np.column_stack([test, grades, sex]).astype(float), np.digitize(score, [-1, 1.2]), a


def fits() -> dict[str, Callable[[int], Any]]:
    """Return what is measured by name, each a function of a number of rows."""
    X, y, a = students()
    p_class, p_group = (LogisticRegression(max_iter=1000).fit(X, labels).predict_proba(X) for labels in (y, a))
    return {
        "FairDROBoostingClassifier": lambda n: FairDROBoostingClassifier().fit(X[:n], y[:n], sensitive_features=a[:n]),
        "FairDROClassifierCV": lambda n: FairDROClassifierCV().fit(X[:n], y[:n], sensitive_features=a[:n]),
        "fit_head": lambda n: fit_head(p_class[:n], p_group[:n], y[:n], a[:n]),
    }


def busy() -> list[dict[str, Any]]:
    """Measure every fit idle, then beside a load."""
    measured, everyone = fits(), len(students()[0])
    for fit in measured.values():
        fit(FEW)  # what is loaded once is loaded now
    idle = {name: min(timed(lambda fit=fit: fit(everyone)) for _ in range(IDLE_RUNS)) for name, fit in measured.items()}
    with loaded():
        beside = {name: timed(lambda fit=fit: fit(everyone)) for name, fit in measured.items()}
    found = [
        {"fit": name, "idle": idle[name][0], "busy": beside[name][0], "ratio": beside[name][0] / idle[name][0],
         "idle_cpu": idle[name][1], "busy_cpu": beside[name][1]}
        for name in measured
    ]  # fmt: skip
    rows = [[one["fit"], *(f"{one[key]:.1f}" for key in ("idle", "busy", "ratio", "idle_cpu", "busy_cpu"))] for one in found]
    columns = ["seconds", "idle", "busy", f"ratio (promised: {PROMISED:g})", "CPU time idle", "CPU time busy"]
    print(markdown_table(columns, rows), flush=True)
    return found


def stock() -> list[dict[str, Any]]:
    """Compare boosting with stock LightGBM's five folds of class and group models, in turns."""
    adult = load_dataset("adult")
    tables = {"law-sized": students(), "Adult": (adult.X.to_numpy(np.float64), np.asarray(adult.y), np.asarray(adult.a))}
    found = []
    for name, (X, y, a) in tables.items():
        theirs, _ = timed(lambda X=X, y=y, a=a: stock_folds(X, y, a))
        ours, _ = timed(lambda X=X, y=y, a=a: FairDROBoostingClassifier().fit(X, y, sensitive_features=a))
        found.append({"table": name, "stock": theirs, "ours": ours, "ratio": ours / theirs})
    rows = [[one["table"], *(f"{one[key]:.1f}" for key in ("stock", "ours", "ratio"))] for one in found]
    print(markdown_table(["seconds", "LightGBM, class and group, five folds", "FairDROBoostingClassifier", "ratio"], rows))
    return found


def stock_folds(X: np.ndarray, y: np.ndarray, a: np.ndarray) -> None:
    """Predict classes and groups out of fold by LightGBM as it comes, with early stopping by the rows that are held out."""
    for labels in (y, a):
        for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, labels):
            model = lightgbm.LGBMClassifier(**TREES)
            stop = [lightgbm.early_stopping(20, verbose=False)]
            model.fit(X[train], labels[train], eval_set=[(X[test], labels[test])], callbacks=stop)
            model.predict_proba(X[test])


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of work, and those that its threads computed."""
    start, own = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - own


@contextmanager
def loaded() -> Iterator[None]:
    """Keep two processes of two threads each busy, which meet at barriers all the time."""
    command = [sys.executable, "-c", LOAD, str(os.getpid())]
    free = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "MKL_", "KMP_", "GOMP_"))}
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.extend(
            subprocess.Popen(command, stdout=subprocess.PIPE, env=free)  # noqa: S603 - itself
            for _ in range(PROCESSES)
        )
        for process in started:
            process.stdout.readline()
        time.sleep(SETTLED)
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
