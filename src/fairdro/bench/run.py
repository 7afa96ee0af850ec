"""Train the banks of a plan, in this process or in several, and store each as soon as it is done."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from fairdro.bench.plan import BOOSTING, Bank, BenchPlan, known_dataset
from fairdro.bench.store import Outcome, Store
from fairdro.data import Part
from fairdro.errors import InputError
from fairdro.files import make_folder, write_whole
from fairdro.metrics import confusion_counts
from fairdro.models.trees import TreeSettings
from fairdro.training import TrainedBank, train_fullbatch, train_minibatch
from fairdro.training.boosting import BoostedBank, train_boosted

__all__ = ["OnStep", "run_bank", "run_bench"]

MOMENTS = 200  # kept of a history: all of one training, since q may swing from one epoch to the next
POLL_SECONDS = 0.2

OnStep = Callable[[Bank, int, int], object]
"""Told of every epoch or step: the bank, how many are finished, and how many there are; and ``1, 1`` when it is stored."""


def run_bench(plan: BenchPlan, out: Path, *, workers: int = 1, on_step: OnStep | None = None) -> pd.DataFrame:
    """Train every bank of the plan that is not stored in ``out`` yet; ``results.csv`` there is current after each.

    Parameters
    ----------
    plan : BenchPlan
    out : Path
        Folder for the results; made if missing.
    workers : int, optional
        Processes to train in, with one thread each; by default this one. More need the calling script to have its
        ``if __name__ == "__main__":``.
    on_step : callable, optional

    Returns
    -------
    DataFrame
        A row per trained model in the folder, those of earlier runs included.
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}.")
    make_writable(out)
    store = Store(out)
    store.outcomes()  # a damaged file is found before training
    tell = on_step or (lambda bank, done, total: None)
    first = plan.banks()
    _complete(first, store, out, workers, tell)
    _complete(plan.second_banks(store.rows_of(first)), store, out, workers, tell)
    return _refresh(store, out)


def _complete(banks: list[Bank], store: Store, out: Path, workers: int, tell: OnStep) -> None:
    """Train those of the banks that are not stored."""
    missing = [bank for bank in banks if bank not in store]
    for bank in banks:
        if bank not in missing:
            tell(bank, 1, 1)
    for _ in _train_all(missing, out, min(workers, len(missing)), tell):
        if store.rows_of(banks):
            _refresh(store, out)


def _refresh(store: Store, out: Path) -> pd.DataFrame:
    results = store.results()
    write_whole(out / "results.csv", results.to_csv(index=False))
    return results


def _train_all(banks: list[Bank], out: Path, workers: int, tell: OnStep) -> Iterator[Bank]:
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
            with _deaf_to_interrupts():
                running = {pool.submit(_work, number, bank, out): bank for number, bank in enumerate(banks)}
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
def _deaf_to_interrupts() -> Iterator[None]:
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


def _work(number: int, bank: Bank, out: Path) -> None:
    _train_and_store(bank, out, lambda done, total: _events.put((number, done, total)))


def _train_and_store(bank: Bank, out: Path, on_step: Callable[[int, int], object]) -> None:
    store = Store(out)
    if bank not in store:  # another process on the same folder may have been faster
        store.write(run_bank(bank, on_step))


def run_bank(bank: Bank, on_step: Callable[[int, int], object] | None = None) -> Outcome:
    """Train one bank and judge its models on the test part, and on the validation part where there is one."""
    if (reason := bank.refusal()) is not None:
        return Outcome(bank, refused=reason)
    dataset = known_dataset(bank.dataset)
    split = dataset.split(bank.protocol, seed=bank.split)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # diverged models are marked in the results
        trained = _train(bank, split.train, on_step)
    parts = {"test": split.test, "validation": split.validation, "train": split.train}
    weights, accuracy = trained.history.weights, trained.history.accuracy
    moments = np.unique(np.linspace(0, len(weights) - 1, MOMENTS).round().astype(int))
    return Outcome(
        bank,
        seconds=trained.seconds,
        diverged=trained.diverged.numpy(),
        confusion={name: confusion_counts(trained.predict(p.X), p.cells) for name, p in parts.items() if p is not None},
        weights=weights[moments].float().numpy(),
        accuracy=accuracy[moments].float().numpy(),
        progress=((moments + 1) / len(weights)).astype(np.float32),
        class_names=dataset.class_names,
        group_names=dataset.group_names,
    )


def _train(bank: Bank, train: Part, on_step: Callable[[int, int], object] | None) -> TrainedBank | BoostedBank:
    if bank.model == BOOSTING:
        settings = TreeSettings(threads=torch.get_num_threads())
        return train_boosted(train.X, train.cells, bank.method, strategy=bank.solver, settings=settings, on_step=on_step)
    if bank.solver == "fullbatch":
        return train_fullbatch(train.X, train.cells, bank.method, on_step=on_step)
    return train_minibatch(train.X, train.cells, bank.method, model=bank.model, seeds=bank.seeds, on_step=on_step)


def make_writable(out: Path) -> None:
    """Make the folder, and find out before training whether results can be written into it."""
    for folder in (out, out / "store"):
        make_folder(folder)
    if (out / "results.csv").is_dir():
        raise InputError(f"Cannot write {out / 'results.csv'}: it is a folder.")
