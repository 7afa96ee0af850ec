"""Train the banks of a plan, in this process or in several, and store each as soon as it is done."""

import multiprocessing
import os
import queue
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fairdro._utils.files import make_folder
from fairdro._utils.progress import OnStep
from fairdro.bench.network_run import remove_checkpoints, run_network
from fairdro.bench.plan import Bank, BenchPlan, known_dataset
from fairdro.bench.store import RESULTS, Outcome, Store
from fairdro.errors import InputError
from fairdro.metrics import confusion_counts

POLL_SECONDS = 0.2

OnBankStep = Callable[[Bank, int, int], object]
"""Told of every epoch or step: the bank, how many are finished, and how many there are; and ``1, 1`` when it is stored."""


def run_bench(plan: BenchPlan, out: Path, *, workers: int = 1, on_step: OnBankStep | None = None) -> pd.DataFrame:
    """Train every bank of the plan that is not stored in ``out`` yet; ``results.csv`` there is current after each.

    Returns a row per trained model in the folder, those of earlier runs included.

    Parameters
    ----------
    workers : int, optional
        Processes to train in, with one thread each; by default this one. More need the calling script to have its
        ``if __name__ == "__main__":``.
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}.")
    plan.check()
    make_writable(out)
    store = Store(out)
    store.outcomes()  # a damaged file is found before training
    tell = on_step or (lambda bank, done, total: None)
    _complete(plan.banks, store, workers, tell)
    _complete(plan.second_banks(store.rows_of(plan.banks)), store, workers, tell)
    return _refresh(store)


def _complete(banks: Sequence[Bank], store: Store, workers: int, tell: OnBankStep) -> None:
    """Train those of the banks that are not stored."""
    missing = [bank for bank in banks if bank not in store]
    for bank in banks:
        if bank not in missing:
            remove_checkpoints(bank, store.out)  # of a process that was killed when it had just stored the bank
            tell(bank, 1, 1)
    for _ in _train_all(missing, store.out, min(workers, len(missing)), tell):
        if store.rows_of(banks):
            _refresh(store)


def _refresh(store: Store) -> pd.DataFrame:
    results = store.results()
    store.write_results(results)
    return results


def _train_all(banks: list[Bank], out: Path, workers: int, tell: OnBankStep) -> Iterator[Bank]:
    """Train and store banks, the costliest first; yield each when it is stored."""
    banks = sorted(banks, key=lambda bank: -bank.cost)
    if workers <= 1:
        for bank in banks:
            _train_and_store(bank, out, partial(tell, bank))
            tell(bank, 1, 1)
            yield bank
        return
    context = multiprocessing.get_context("spawn")
    events, stop = context.Queue(), context.RawValue("b", 0)  # without a lock, which a killed worker would keep
    with ProcessPoolExecutor(workers, context, _start_worker, (events, stop, os.getpid())) as pool:
        try:
            with _ignored_interrupts():
                running = {pool.submit(_work, number, bank.spec(), out): bank for number, bank in enumerate(banks)}
            while running:
                done, _ = wait(running, POLL_SECONDS, FIRST_COMPLETED)
                for number, finished, total in _drain(events):
                    tell(banks[number], finished, total)
                for future in done:
                    future.result()
                    tell(running[future], 1, 1)
                    yield running.pop(future)
        except BrokenProcessPool as error:
            raise InputError(
                "A worker process ended suddenly, perhaps for lack of memory (or, in a script of your own, of its "
                "`if __name__ == '__main__':`). What was stored before is still there: run it again with fewer workers."
            ) from error
        finally:
            stop.value = 1
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C while processes are started, which inherit that; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _drain(events: Any) -> Iterator[tuple[int, int, int]]:
    try:
        while True:
            yield events.get_nowait()
    except queue.Empty:
        return


_events: Any = None


def _start_worker(events: Any, stop: Any, parent: int) -> None:
    """Prepare a worker: one thread, and gone with its parent."""
    global _events  # noqa: PLW0603 - how a pool hands over a queue
    _events = events
    torch.set_num_threads(1)

    def leave_with_parent() -> None:
        while not stop.value and os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()


def _work(number: int, spec: dict[str, Any], out: Path) -> None:
    """Train a bank, given as plain data: tensors would be fetched from the parent, which may be gone."""
    _train_and_store(Bank.from_spec(spec), out, lambda done, total: _events.put((number, done, total)))


def _train_and_store(bank: Bank, out: Path, on_step: OnStep) -> None:
    store = Store(out)
    if bank not in store:  # another process on the same folder may have been faster
        network = bank.network
        for outcome in [run_bank(bank, on_step)] if network is None else run_network(bank, network, out, on_step):
            store.write(outcome)
        remove_checkpoints(bank, out)


def run_bank(bank: Bank, on_step: OnStep | None = None) -> Outcome:
    """Train one bank on a table and judge its models on the test part, and on the validation part where there is one."""
    if (reason := bank.refusal()) is not None:
        return Outcome(bank, refused=reason)
    dataset = known_dataset(bank.dataset)
    split = dataset.split(bank.protocol, seed=bank.split)
    seen, held = split.train, split.validation
    held_out = (held.X, held.cells) if held is not None and dataset.trained and bank.engine.fitted_held_out else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # diverged models are marked in the results
        trained = bank.engine.train(seen.X, seen.cells, bank.method, seeds=bank.seeds, held_out=held_out, on_step=on_step)
    parts = {"test": split.test, "validation": held, "train": seen}
    confusion = {name: confusion_counts(trained.predict(p.X), p.cells) for name, p in parts.items() if p is not None}
    if trained.held_out is not None:
        confusion["validation"] = trained.held_out
    return Outcome.of(bank, trained, confusion)


def make_writable(out: Path) -> None:
    """Make the folder, and find out before training whether results can be written into it."""
    for folder in (out, out / "store"):
        make_folder(folder)
    if (out / RESULTS).is_dir():
        raise InputError(f"Cannot write {out / RESULTS}: it is a folder.")
