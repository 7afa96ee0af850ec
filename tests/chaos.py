"""Kill a bench again and again, also inside a write, and compare what it leaves with an undisturbed one.

    python tests/chaos.py --kills 100 --seed 7

A hook in every process marks some writes and sleeps in them, between the flushed draft and its move to its place; whoever is
marked is killed there. Other kills come at any moment.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import pandas as pd

from fairdro.bench import BenchPlan, Store, run_bench
from fairdro.bench.store import KEY
from fairdro.cli import main

METHODS = [
    "scratch", "rw", "fairbatch", "fairdro", "fairdro_wo_smoothing", "fairdro_wo_classwise",
    "fairdro_nonnegative", "classwise_simplex", "group_dro",
]  # fmt: skip
OPTIONS = {"datasets": ["compas"], "methods": METHODS, "solvers": ["fullbatch"], "points": 2}
SLEEP, MOST_SECONDS, POLL = 5.0, 300.0, 0.01
KILLS_PER_BENCH = 10
HOOK = f"""\
import os, random, time
from pathlib import Path
move = os.replace
def slow(source, target, **given):
    if str(source).endswith(".part") and random.random() < float(os.environ["CHAOS_SHARE"]):
        Path(os.environ["CHAOS_MARKS"], str(os.getpid())).touch()
        time.sleep({SLEEP})
    return move(source, target, **given)
os.replace = slow
"""
HOW = ["inside a write", "inside a write", "at any moment", "a worker"]


class Run:
    """One bench in a session of its own, with the hook; forked, so that it need not import everything anew."""

    def __init__(self, out, hook, workers, *, slow):
        self.marks, self.returncode = Path(tempfile.mkdtemp(dir=hook)), None
        self.said = self.marks.with_suffix(".txt")
        options = ["--methods", ",".join(METHODS), "--solvers", "fullbatch", "--points", "2", "--workers", str(workers)]
        path = os.pathsep.join([str(hook), *sys.path])
        environment = {"PYTHONPATH": path, "CHAOS_MARKS": str(self.marks), "CHAOS_SHARE": "0.3" if slow else "0"}
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            with self.said.open("wb") as file:
                os.dup2(file.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.environ.update(environment)
            exec(HOOK, {})  # noqa: S102 - our own; workers load it at their start
            sys.argv = ["fairdro", "bench", "compas", *options, "--out", str(out)]
            os._exit(ending(main))

    def poll(self):
        """Return the exit code, None while it runs."""
        if self.returncode is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if found else None
        return self.returncode

    def victim(self, how):
        """Return the process to kill, as soon as there is one; None if the bench ended before."""
        end = time.monotonic() + MOST_SECONDS
        while self.poll() is None:
            if how == "inside a write" and (marked := [int(path.name) for path in self.marks.iterdir()]):
                return marked[0]
            if how == "a worker" and (workers := self.workers()):
                return random.choice(workers)  # noqa: S311 - no secret
            if time.monotonic() > end:
                raise AssertionError("the bench hangs")
            time.sleep(POLL)
        return None

    def workers(self):
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if parent == self.pid and "spawn_main" in (path / "cmdline").read_text():
                    found.append(int(path.name))
            except OSError:  # it ended while we looked
                continue
        return found

    def end(self):
        """Wait until all processes have left; return what was said."""
        try:
            stop = time.monotonic() + MOST_SECONDS
            while (self.poll() is None or in_session(self.pid)) and time.monotonic() < stop:
                time.sleep(POLL)
            assert not in_session(self.pid), "some processes still run"
        finally:
            for pid in in_session(self.pid):
                os.kill(pid, signal.SIGKILL)
        return self.said.read_text()


def ending(command):
    """Run a command line and return its exit code, as Python does at its end."""
    try:
        command()
    except SystemExit as stop:
        return stop.code or 0
    except BaseException:  # noqa: BLE001 - it is what is looked for
        traceback.print_exc()
        return 1
    return 0


def in_session(session):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, own = stat.read_text().rsplit(")", 1)[1].split()[:4]
        except OSError:
            continue
        if int(own) == session and state != "Z":
            found.append(int(stat.parent.name))
    return found


def stored(out):
    return {path.name: path.stat().st_mtime_ns for path in (out / "store").glob("*.safetensors")}


def disturbed(out, hook, rng, workers, counts):
    """Run a bench and kill it; return whether it was there to be killed."""
    how = rng.choice(HOW if workers > 1 else HOW[:3])
    before, drafts = stored(out), len(list(out.rglob("*.part")))
    run = Run(out, hook, workers, slow=how == "inside a write")
    if how == "at any moment":
        time.sleep(rng.uniform(0, 4 * workers))
        victim = run.pid if run.poll() is None else None
    else:
        victim = run.victim(how)
        time.sleep(rng.uniform(0, SLEEP / 5 if how == "inside a write" else 3))
    killed = victim is not None
    if killed:
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:  # it ended meanwhile
            killed = False
    said = run.end()
    assert "Traceback" not in said, said
    if killed and victim != run.pid and run.returncode != 0:
        assert (run.returncode, "A worker process ended suddenly" in said) == (2, True), said
    assert before.items() <= stored(out).items(), "a stored bank was lost, or written again"
    assert len(Store(out).outcomes()) == len(stored(out)), "a stored bank cannot be read"
    if killed:
        counts["kills"] += 1
        counts[f"killed {how}, of {'a worker' if victim != run.pid else 'the parent'}"] += 1
        counts[f"with --workers {workers}"] += 1
        counts["drafts left"] += len(list(out.rglob("*.part"))) - drafts
    return run.returncode != 0


def chaos(kills, seed, folder):
    """Kill benches until there were so many kills, some of each, and let each end undisturbed; return counts."""
    rng, counts = random.Random(seed), Counter()  # noqa: S311 - no secret
    hook = folder / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    plan = BenchPlan(**OPTIONS)
    run_bench(plan, folder / "whole")
    whole = pd.read_csv(folder / "whole" / "results.csv").drop(columns="seconds")
    while counts["kills"] < kills:
        counts["benches"] += 1
        out = folder / f"bench{counts['benches']}"
        workers = 1 + counts["benches"] % 2
        for _ in range(KILLS_PER_BENCH):
            if counts["kills"] == kills or not disturbed(out, hook, rng, workers, counts):
                break
        for draft in out.rglob("*.part"):
            os.utime(draft, (0, 0))  # as if an hour had passed, after which drafts are swept
        before, last = stored(out), Run(out, hook, workers, slow=False)
        said = last.end()
        assert last.returncode == 0, said
        assert before.items() <= stored(out).items(), "a stored bank was written again"
        assert len(stored(out)) == len(plan.banks)
        assert not list(out.rglob("*.part"))
        results = pd.read_csv(out / "results.csv")
        assert not results.duplicated(KEY).any()
        pd.testing.assert_frame_equal(results.drop(columns="seconds"), whole, check_exact=True)
        counts["banks stored"] += len(plan.banks)
    return counts


def tell():
    """Kill as often as asked for, and print counts as a table of docs/reliability.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = chaos(given.kills, given.seed, Path(folder))
    told = [f"| `make chaos KILLS={given.kills} SEED={given.seed}` | |", "|---|---|"]
    sys.stdout.write("\n".join([*told, *(f"| {name} | {number:,} |" for name, number in sorted(counts.items()))]) + "\n")


if __name__ == "__main__":
    tell()
