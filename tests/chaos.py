"""Kill a bench again and again, also inside a write, and compare what it leaves with an undisturbed one.

    python tests/chaos.py --kills 100 --seed 7

A hook in every process, which Python loads at its start, marks some writes and sleeps in them, between the flushed draft and its
move to its place; whoever is marked is killed there. Other kills come at any moment.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pandas as pd

from fairdro.bench import BenchPlan, Store, run_bench
from fairdro.bench.store import KEY

METHODS = [
    "scratch", "rw", "fairbatch", "fairdro", "fairdro_wo_smoothing", "fairdro_wo_classwise",
    "fairdro_nonnegative", "classwise_simplex", "group_dro",
]  # fmt: skip
OPTIONS = {"datasets": ["compas"], "methods": METHODS, "solvers": ["fullbatch"], "points": 2}
SLEEP, MOST_SECONDS, POLL = 5.0, 120.0, 0.01
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
    """One bench of its own session, with the hook."""

    def __init__(self, out, hook, workers, *, slow):
        self.marks = Path(tempfile.mkdtemp(dir=hook))
        path = os.pathsep.join([str(hook), *sys.path])
        environment = {**os.environ, "PYTHONPATH": path, "CHAOS_MARKS": str(self.marks), "CHAOS_SHARE": "0.3" if slow else "0"}
        options = ["--methods", ",".join(METHODS), "--solvers", "fullbatch", "--points", "2", "--workers", str(workers)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fairdro", "bench", "compas", *options, "--out", str(out)],
            env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def victim(self, how):
        """Return the process to kill, as soon as there is one; None if the bench ended before."""
        end = time.monotonic() + MOST_SECONDS
        while self.process.poll() is None:
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
                if parent == self.process.pid and "spawn_main" in (path / "cmdline").read_text():
                    found.append(int(path.name))
            except OSError:  # it ended while we looked
                continue
        return found

    def end(self):
        """Wait until all processes have left; return what was said."""
        try:
            said = self.process.communicate(timeout=MOST_SECONDS)[1]
            stop = time.monotonic() + 20
            while (left := in_session(self.process.pid)) and time.monotonic() < stop:
                time.sleep(0.1)
            assert not left, f"still running: {left}"
        finally:
            for pid in in_session(self.process.pid):
                os.kill(pid, signal.SIGKILL)
        return said


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
    before = stored(out)
    run = Run(out, hook, workers, slow=how == "inside a write")
    if how == "at any moment":
        time.sleep(rng.uniform(0, 12))
        victim = run.process.pid if run.process.poll() is None else None
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
    if killed and victim != run.process.pid and run.process.returncode != 0:
        assert (run.process.returncode, "A worker process ended suddenly" in said) == (2, True), said
    assert before.items() <= stored(out).items(), "a stored bank was lost, or written again"
    assert len(Store(out).outcomes()) == len(stored(out)), "a stored bank cannot be read"
    if killed:
        counts["kills"] += 1
        counts[f"killed {how}, of {'a worker' if victim != run.process.pid else 'the parent'}"] += 1
        counts[f"with --workers {workers}"] += 1
        counts["drafts left"] += len(list(out.rglob("*.part")))
    return run.process.returncode != 0


def chaos(kills, seed, folder):
    """Kill benches until there were so many kills, each bench until it ends undisturbed; return counts."""
    rng, counts = random.Random(seed), Counter()  # noqa: S311 - no secret
    hook = folder / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    plan = BenchPlan(**OPTIONS)
    whole = run_bench(plan, folder / "whole").drop(columns="seconds")
    while counts["kills"] < kills:
        counts["benches"] += 1
        out = folder / f"bench{counts['benches']}"
        workers = 1 + counts["benches"] % 2
        while counts["kills"] < kills and disturbed(out, hook, rng, workers, counts):
            pass
        for draft in out.rglob("*.part"):
            os.utime(draft, (0, 0))  # as if an hour had passed, after which drafts are swept
        before, again = stored(out), run_bench(plan, out)
        assert before.items() <= stored(out).items(), "a stored bank was written again"
        assert len(stored(out)) == len(plan.banks)
        assert not again.duplicated(KEY).any()
        assert not list(out.rglob("*.part"))
        for results in (again, pd.read_csv(out / "results.csv")):
            pd.testing.assert_frame_equal(results.drop(columns="seconds"), whole, check_exact=True)
        counts["banks stored"] += len(plan.banks)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = chaos(given.kills, given.seed, Path(folder))
    told = [f"| `make chaos KILLS={given.kills} SEED={given.seed}` | |", "|---|---|"]
    sys.stdout.write("\n".join([*told, *(f"| {name} | {number:,} |" for name, number in sorted(counts.items()))]) + "\n")


if __name__ == "__main__":
    main()
