"""Tables larger than memory, several processes, and other libraries at scale; each part in processes of its own.

python benchmarks/scale.py growth limited files samples processes peers busy  # measure, keep in results/scale.json
python benchmarks/scale.py page  # write docs/scale.md and its picture from what is kept

Tables are made in --work (8 GB for ten million rows of 100 columns) and kept there. `growth` takes about half an hour,
`peers` up to an hour, the others some minutes; `limited` needs Linux and root. pip install --no-deps oxonfair
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ShuffleSplit

from fairdro import FairDROClassifier, FairDROClassifierCV, load
from fairdro._utils.markdown import markdown_table
from fairdro.metrics import balanced_accuracy, dca

HERE = Path(__file__).parent
DOCS, KEPT, TEXT = HERE.parent / "docs", HERE / "results" / "scale.json", HERE / "scale.md"
PER_FILE = 250_000
MILLION = 1_000_000
COLUMNS, FEW_COLUMNS = 100, 20
MEMORY = 3 * 10**9  # asked for, so that the whole process stays below 4
PEER_ROWS = (100_000, MILLION, 5 * MILLION)
TEST_ROWS = 100_000
TIMES = 5
LIMIT = 4 * 10**9
PEAKS = {"memory.max": "memory.peak", "memory.limit_in_bytes": "memory.max_usage_in_bytes"}  # of a group: limit and peak


def main() -> None:
    """Measure what is asked for, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=["page", *PARTS, *CHILDREN])
    parser.add_argument("--rows", type=float, nargs="+", default=[1, 2, 5, 10], help="million rows for growth")
    parser.add_argument("--work", type=Path, default=Path("build/scale"), help="folder for tables")
    parser.add_argument("--limit", type=float, default=600, help="seconds after which a peer is stopped")
    parser.add_argument("--child", default="{}", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.parts[0] in CHILDREN:
        print("\n" + json.dumps(CHILDREN[given.parts[0]](**json.loads(given.child))))
        return
    given.work.mkdir(parents=True, exist_ok=True)
    for part in given.parts:
        if part == "page":
            write_page()
        else:
            PARTS[part](given)


def keep(name: str, value: object) -> None:
    """Keep what was measured."""
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    KEPT.write_text(json.dumps(kept | {name: value}, indent=1) + "\n", encoding="utf-8")
    print(f"{name}: {value}", flush=True)


def measured(child: str, limit: float | None = None, **arguments: object) -> dict[str, Any]:
    """Run a part in a process of its own; return what it found, its seconds and its largest memory, files not counted."""
    command = [sys.executable, __file__, child, "--child", json.dumps(arguments, default=str)]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - itself
        try:
            out, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            return {"stopped": limit}
    if process.returncode:
        return {"failed": process.returncode}
    return json.loads(out.splitlines()[-1]) | {"wall": round(time.perf_counter() - start, 1)}


def largest_memory() -> float:
    """Return the largest memory of this process so far, in GB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)


# ---------------------------------------------------------------- tables


def people(rows: int, columns: int, seed: int) -> pd.DataFrame:
    """Return a table of so many columns: numbers, a category, two sensitive columns' worth of one group, a class."""
    rng = np.random.default_rng([seed, rows])
    n_numbers = columns - 3
    numbers = rng.standard_normal((rows, n_numbers), dtype=np.float32)
    shape = np.random.default_rng(0)
    coefficients = shape.normal(size=(2, n_numbers)) * np.array([[1.6], [1.0]]) / np.sqrt(n_numbers)
    coefficients[1] += coefficients[0]
    group = (rng.random(rows) < 0.3).astype(int)
    category = rng.integers(0, 4, rows)
    numbers[:, 0] += group
    score = np.where(group, numbers @ coefficients[1] - 0.6, numbers @ coefficients[0]) + 0.3 * category - 0.5
    table = pd.DataFrame(numbers, columns=[f"x{j}" for j in range(n_numbers)])
    table["region"] = pd.Categorical.from_codes(category, ["north", "east", "south", "west"])
    table["sex"] = pd.Categorical.from_codes(group, ["male", "female"])
    return table.assign(approved=np.where(rng.random(rows) < 1 / (1 + np.exp(-score)), "yes", "no"))


def table(rows: int, columns: int, work: Path) -> Path:
    """Return the folder of a table in Parquet, which is made if it is not there."""
    folder = work / f"{rows}x{columns}"
    folder.mkdir(parents=True, exist_ok=True)
    for i, first in enumerate(range(0, rows, PER_FILE)):
        path = folder / f"part-{i:04}.parquet"
        if not path.exists():
            part = people(min(PER_FILE, rows - first), columns, seed=i + 1)
            pa.parquet.write_table(pa.Table.from_pandas(part, preserve_index=False), path.with_suffix(".draft"))
            path.with_suffix(".draft").rename(path)
    return folder


# ---------------------------------------------------------------- what is measured


def growth(given: argparse.Namespace) -> None:
    """Fit tables of more and more rows from files, with little memory."""
    found = []
    for millions in given.rows:
        rows = round(millions * MILLION)
        found.append({"rows": rows} | measured("fit", folder=table(rows, COLUMNS, given.work)))
        keep("growth", found)


def limited(given: argparse.Namespace) -> None:
    """Fit the largest of these tables where processes and the cache of their files may use 4 GB together."""
    rows = round(given.rows[-1] * MILLION)
    folder = table(rows, COLUMNS, given.work)
    with memory_group() as group:
        found = measured("fit", folder=folder, group=group)
        peak = int((group / PEAKS[limit_of(group).name]).read_text())
    keep("limited", {"rows": rows, "limit": LIMIT, "peak": peak} | found)


@contextmanager
def memory_group() -> Iterator[Path]:
    """Make a group of processes that may use so much memory, and no more of the system's cache; needs root on Linux."""
    parent = next(path for path in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")) if path.exists())
    group = parent / f"fairdro-{os.getpid()}"
    group.mkdir()
    try:
        limit_of(group).write_text(str(LIMIT))
        yield group
    finally:
        group.rmdir()


def limit_of(group: Path) -> Path:
    """Return the file that holds the limit of a group, of either version of these groups."""
    return next(group / name for name in PEAKS if (group / name).exists())


def files(given: argparse.Namespace) -> None:
    """Fit one large CSV, and tables that fit into memory by linear models and by trees, as the command line does."""
    long = given.work / "5000000.csv"
    if not long.exists():
        for path in sorted(table(5 * MILLION, FEW_COLUMNS, given.work).glob("*.parquet")):
            part = pa.parquet.read_table(path).to_pandas()
            part.to_csv(long.with_suffix(".draft"), mode="a", header=path.name.endswith("0000.parquet"), index=False)
        long.with_suffix(".draft").rename(long)
    wide = table(300_000, 40, given.work)
    shown = [("CSV", 5 * MILLION, FEW_COLUMNS, "linear", long), ("Parquet", 300_000, 40, "linear", wide),
             ("Parquet", 300_000, 40, "boosting", wide)]  # fmt: skip
    found = []
    for kind, rows, columns, model, path in shown:
        of_table = {"format": kind, "rows": rows, "columns": columns, "model": model}
        found.append(of_table | measured("fit", folder=path, model=model))
        keep("files", found)


def fit(folder: str, group: str | None = None, model: str = "linear") -> dict[str, Any]:
    """Fit a table in files as the command line does; count what is read of the rows on disk, and time reading by itself."""
    if group is not None:
        Path(group, "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")
    from fairdro.estimators.large_tables import fit_files
    from fairdro.training.rows import RowsOnDisk

    read, real, stages = [], RowsOnDisk._read, {}

    def counted(self: RowsOnDisk, first: int, end: int) -> np.ndarray:
        read.append((end - first) * self.shape[1] * self.dtype.itemsize)
        return real(self, first, end)

    @contextmanager
    def stage(what: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        stages[what] = round(time.perf_counter() - start, 1)

    RowsOnDisk._read = counted
    start = time.perf_counter()
    given = {"target": "approved", "groups": ["sex"], "memory": MEMORY, "folder": Path(folder).parent, "stage": stage}
    fitted = fit_files([Path(folder)], model=model, **given)
    seconds, memory = time.perf_counter() - start, largest_memory()
    chosen = fitted.final.frontier_.query("selected").iloc[0]
    return {
        "seconds": round(seconds, 1), "gigabytes": memory, "stages": stages, "read": sum(read),
        "from_cache": bandwidth(folder), "from_disk": bandwidth(folder, cold=True),
        "on_disk": any("temporary file" in note for note in fitted.notes),
        "rho": chosen["rho"], "accuracy": chosen["accuracy"], "dca": chosen["dca"],
    }  # fmt: skip


def bandwidth(folder: str, *, cold: bool = False, size: int = 1 << 30, block: int = 1 << 21) -> float:
    """Return how many bytes a second are read from a file, in blocks, by a thread per core; the median of some times.

    Out of the system's cache or, ``cold``, from the disk.
    """
    times = []
    with tempfile.TemporaryFile(dir=Path(folder).parent) as file, ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in range(size // block):
            file.write(os.urandom(block))
        file.flush()
        os.fsync(file.fileno())
        for _ in range(TIMES):
            if cold:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            start = time.perf_counter()
            list(pool.map(lambda first: os.preadv(file.fileno(), [bytearray(block)], first), range(0, size, block)))
            times.append(time.perf_counter() - start)
    return size / statistics.median(times)


def samples(given: argparse.Namespace) -> None:
    """Compare steps on a sample that grows with steps on all rows, on the same rows on disk."""
    keep("samples", measured("sampled", folder=table(MILLION, COLUMNS, given.work)))


def sampled(folder: str) -> dict[str, Any]:
    """Fit a table in files with growing samples and without."""
    from fairdro.estimators.large_tables import fit_files
    from fairdro.training import blocks

    found: dict[str, Any] = {}
    frontiers = {}
    for name, schedule in {"growing": blocks.GROWTH, "all": ()}.items():
        blocks.GROWTH = schedule
        start = time.perf_counter()
        fitted = fit_files([Path(folder)], target="approved", groups=["sex"], memory=MEMORY, folder=Path(folder).parent)
        frontiers[name] = fitted.final.frontier_
        found[f"{name}_seconds"] = round(time.perf_counter() - start, 1)
        found[f"{name}_rho"] = fitted.final.rho_
        interval = fitted.final.held_out().metrics().loc["dca"]
        found["noise"] = float(interval["high"] - interval["low"]) / 2
    for name in ("accuracy", "dca"):
        found[name] = float((frontiers["growing"][name] - frontiers["all"][name]).abs().max())
    return found


def processes(given: argparse.Namespace) -> None:
    """Fit the same table on disk in one process, and in two by torchrun."""
    folder, found = table(MILLION, COLUMNS, given.work), {}
    for number in (1, 2):
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={number}", "-m", "fairdro", "fit"]
            options = ["--target", "approved", "--group", "sex", "--memory", "3GB", "--out", f"{out}/model"]
            start = time.perf_counter()
            alone = {**os.environ, "OMP_NUM_THREADS": "1"}
            subprocess.run([*command, str(folder), *options], check=True, env=alone)  # noqa: S603 - our own command
            seconds = round(time.perf_counter() - start, 1)
            model = load(Path(out) / "model")[-1]
            shown = model.frontier_[["rho", "accuracy", "dca"]].round(4).to_numpy().tolist()
            found[str(number)] = {"seconds": seconds, "rho": model.rho_, "coef": model.coef_.tolist(), "frontier": shown}
    one, two = found["1"], found["2"]
    keep(
        "processes",
        {
            "seconds": [one["seconds"], two["seconds"]],
            "rho": [one["rho"], two["rho"]],
            "coefficients": float(np.abs(np.subtract(one["coef"], two["coef"])).max()),
            "frontier": float(np.abs(np.subtract(one["frontier"], two["frontier"])).max()),
        },
    )


def busy(given: argparse.Namespace) -> None:
    """Measure what a busy machine costs, by benchmarks/busy.py."""
    out = given.work / "busy.json"
    subprocess.run([sys.executable, HERE / "busy.py", "--out", out], check=True)  # noqa: S603 - our own
    keep("busy", json.loads(out.read_text(encoding="utf-8")))


def peers(given: argparse.Namespace) -> None:
    """Fit one fair linear model by each library on tables in memory, and FairDRO's whole frontier."""
    found = []
    for rows in PEER_ROWS:
        folder = table(rows, FEW_COLUMNS, given.work)
        for library in LIBRARIES:
            found.append({"rows": rows, "library": library} | measured("peer", given.limit, folder=folder, library=library))
            keep("peers", found)


def peer(folder: str, library: str) -> dict[str, Any]:
    """Fit by one library; time and memory are without reading and encoding the table."""
    rows = pa.parquet.read_table(folder).to_pandas()
    X, y, a = arrays(rows)
    del rows
    before, start = largest_memory(), time.perf_counter()
    predict = LIBRARIES[library](X, y, a)
    seconds, memory = time.perf_counter() - start, largest_memory()
    X, y, a = arrays(people(TEST_ROWS, FEW_COLUMNS, seed=0))
    predicted = np.asarray(predict(X)).astype(int)
    return {
        "seconds": round(seconds, 1), "gigabytes": round(memory - before, 2),
        "accuracy": balanced_accuracy(y, predicted, sensitive_features=a), "dca": dca(y, predicted, sensitive_features=a),
    }  # fmt: skip


def arrays(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features in single precision, classes and groups as numbers."""
    numbers = rows.filter(regex=r"^x\d+$").to_numpy(np.float32)
    return numbers, (rows["approved"] == "yes").to_numpy(int), (rows["sex"] == "female").to_numpy(int)


def by_fairdro(X: np.ndarray, y: np.ndarray, a: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return what predicts: FairDRO at one radius."""
    return FairDROClassifier(rho=1.0).fit(X, y, sensitive_features=a).predict


def by_frontier(X: np.ndarray, y: np.ndarray, a: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return what predicts: FairDRO over 20 radii, one of them chosen on a fifth of the rows."""
    once = ShuffleSplit(1, test_size=0.2, random_state=0)
    return FairDROClassifierCV(cv=once).fit(X, y, sensitive_features=a).predict


def by_fairlearn(X: np.ndarray, y: np.ndarray, a: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return what predicts: fairlearn's ExponentiatedGradient for equalised odds, on logistic regression."""
    from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient

    model = ExponentiatedGradient(LogisticRegression(class_weight="balanced"), EqualizedOdds())
    return partial(model.fit(X, y, sensitive_features=a).predict, random_state=0)


def by_oxonfair(X: np.ndarray, y: np.ndarray, a: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return what predicts: thresholds of oxonfair by inferred groups, fitted to a fifth of the rows."""
    from oxonfair import DataDict, FairPredictor, group_metrics

    held = np.arange(len(y)) % 5 == 0
    classes, groups = (LogisticRegression().fit(X[~held], target[~held]) for target in (y, a))
    fair = FairPredictor(classes, DataDict(y[held], X[held], a[held]), inferred_groups=groups)
    fair.fit(group_metrics.balanced_accuracy.average, group_metrics.equalized_odds, 0.02)
    return lambda X: np.asarray(fair.predict(DataDict(np.zeros(len(X)), X, np.zeros(len(X)))))


LIBRARIES = {
    "FairDROClassifier": by_fairdro,
    "FairDROClassifierCV, 20 radii": by_frontier,
    "fairlearn, ExponentiatedGradient": by_fairlearn,
    "oxonfair": by_oxonfair,
}


# ---------------------------------------------------------------- the page


def write_page() -> None:
    """Write docs/scale.md: the text of benchmarks/scale.md, with what is kept in the place of {names}."""
    if not KEPT.exists():
        raise SystemExit(f"There are no figures in {KEPT}; measure them first.")
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    text = TEXT.read_text(encoding="utf-8")
    for name, show in {"growth": show_growth, "limited": show_limited, "files": show_files, "samples": show_samples,
                       "processes": show_processes, "peers": show_peers, "busy": show_busy}.items():  # fmt: skip
        text = text.replace("{" + name + "}", show(kept[name]) if name in kept else "Not measured yet.")
    (DOCS / "scale.md").write_text(text, encoding="utf-8")


def show_growth(found: list[dict[str, Any]]) -> str:
    """Return the table of growth, and what follows for a hundred million rows; draw it."""
    rows = []
    for run in found:
        stages = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in run["stages"].items() if seconds >= 1)
        alone = [run["read"] / run[where] for where in ("from_cache", "from_disk")]
        rows.append([f"{run['rows']:,}", f"{run['seconds']:.0f} s", stages, f"{run['gigabytes']:.1f} GB",
                     f"{run['read'] / 1e9:.0f} GB", *(f"{least:.0f} s" for least in alone),
                     *(f"{run['seconds'] / least:.1f}" for least in alone)])  # fmt: skip
    columns = ["rows", "time", "of it", "memory", "read", "that from cache", "from disk", "ratio to cache", "to disk"]
    points = pd.DataFrame(found)
    line = alt.Chart(points).encode(
        x=alt.X("rows:Q", title="rows", axis=alt.Axis(format="~s")), y=alt.Y("seconds:Q", title="seconds")
    )
    (line.mark_line(point=True).properties(width=420, height=260)).save(DOCS / "scale.png", scale_factor=2)
    slope, start = np.polyfit(points["rows"], points["seconds"], 1)
    off = max(abs(points["seconds"] / (start + slope * points["rows"]) - 1))
    rows_then = 100 * MILLION
    size, passes = rows_then * (COLUMNS + 1) * 4 / 1e9, rows_then / found[-1]["rows"] * found[-1]["read"] / 1e9
    disk = found[-1]["from_disk"] / 1e9
    return (
        markdown_table(columns, rows)
        + "\n![seconds against rows](scale.png)\n\n"
        + f"By a straight line, {start:.0f} s and {1e6 * slope:.1f} s per million rows, the times are off by "
        f"{100 * off:.0f} % at most.\n\n"
        f"A hundred million rows, on paper: {(start + rows_then * slope) / 60:.0f} minutes by that line if the file of "
        f"rows, {size:.0f} GB, stays in the cache of the system. If it does not, the {passes:,.0f} GB of all passes take "
        f"{passes / disk / 60:.0f} minutes from this disk, which reads {disk:.1f} GB a second, and the larger of the two "
        "counts where reading and computing overlap; their sum is the worst case."
    )


def show_limited(found: dict[str, Any]) -> str:
    """Say what it takes where even the cache is limited."""
    least = found["read"] / found["from_disk"]
    return (
        f"{found['rows']:,} rows took {found['seconds']:.0f} s there, {found['seconds'] / least:.1f} times the "
        f"{least:.0f} s that reading {found['read'] / 1e9:.0f} GB from this disk takes by itself; "
        f"{found['gigabytes']:.1f} GB were in use by the process."
    )


def show_files(found: list[dict[str, Any]]) -> str:
    """Return the table of files that are fitted as users do."""
    rows = [
        [one["format"], f"{one['rows']:,}", str(one["columns"]), one["model"],
         "temporary file" if one["on_disk"] else "memory", f"{one['seconds']:.0f} s", f"{one['gigabytes']:.1f} GB"]
        for one in found
    ]  # fmt: skip
    return markdown_table(["format", "rows", "columns", "model", "rows are in", "time", "memory"], rows)


def show_samples(found: dict[str, Any]) -> str:
    """Say how much faster growing samples are, and how far from steps on all rows."""
    return (
        f"With growing samples {found['growing_seconds']:.0f} s, with all rows in every step {found['all_seconds']:.0f} s, "
        f"reading and encoding included. Over the frontier, held-out accuracy differs by {100 * found['accuracy']:.3f} "
        f"points at most and DCA by {100 * found['dca']:.3f}; half the width of the 95 % interval of the chosen DCA is "
        f"{100 * found['noise']:.2f}. The chosen radius is {found['growing_rho']:.4g} and {found['all_rho']:.4g}."
    )


def show_processes(found: dict[str, Any]) -> str:
    """Say what two processes give beside one."""
    (one, two), (rho, other) = found["seconds"], found["rho"]
    return (
        f"One process with one thread took {one:.0f} s, two took {two:.0f} s. The chosen radius is {rho:.4g} and "
        f"{other:.4g}; figures of the frontier, rounded to four digits, differ by {found['frontier']:.4f} at most, "
        f"coefficients by {found['coefficients']:.1e} (single precision)."
    )


def show_peers(found: list[dict[str, Any]]) -> str:
    """Return the table of libraries."""

    def cells(run: dict[str, Any]) -> list[str]:
        if "stopped" in run:
            return [f"more than {run['stopped']:.0f} s", "", "", ""]
        if "failed" in run:
            return ["failed", "", "", ""]
        return [
            f"{run['seconds']:.1f} s",
            f"{run['gigabytes']:.2f} GB",
            f"{100 * run['accuracy']:.1f}",
            f"{100 * run['dca']:.1f}",
        ]

    rows = [[f"{run['rows']:,}", run["library"], *cells(run)] for run in found]
    return markdown_table(["rows", "library", "time", "memory", "accuracy", "DCA"], rows)


def show_busy(found: dict[str, Any]) -> str:
    """Return what a busy machine costs, and boosting beside stock LightGBM, as benchmarks/busy.py found it."""

    def rows(part: str, name: str, keys: tuple[str, ...]) -> list[list[str]]:
        return [[one[name], *(f"{one[key]:.1f}" for key in keys)] for one in found[part]]

    fits = rows("busy", "fit", ("idle", "busy", "ratio", "idle_cpu", "busy_cpu"))
    folds = rows("stock", "table", ("stock", "ours", "ratio"))
    return (
        markdown_table(["seconds", "idle", "busy", "ratio", "CPU time idle", "CPU time busy"], fits)
        + "\nIdle, in turns with stock LightGBM, which predicts classes and groups out of fold with as many trees:\n\n"
        + markdown_table(["seconds", "LightGBM, five folds", "FairDROBoostingClassifier", "ratio"], folds)
    )


PARTS = {
    "growth": growth, "limited": limited, "files": files, "samples": samples, "processes": processes, "peers": peers,
    "busy": busy,
}  # fmt: skip
CHILDREN = {"fit": fit, "sampled": sampled, "peer": peer}


if __name__ == "__main__":
    main()
