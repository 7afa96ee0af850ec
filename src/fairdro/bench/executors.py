"""Where banks are trained: worker processes of this machine, or a Dask cluster; any other executor will do as well."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Executor, ProcessPoolExecutor
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from fairdro._utils.extras import require
from fairdro._utils.files import make_folder
from fairdro.errors import InputError

POLL_SECONDS = 0.2
ANSWER_SECONDS = 10  # within which a scheduler and its workers must answer
GO_ON = "What was stored before is still there: run the same command again to go on"

Step = tuple[int, int, int]
"""The number of a bank, how many of its steps are finished, and how many there are."""

_events: Any = None  # of a worker process of this machine


@contextmanager
def local_pool(workers: int) -> Iterator[tuple[Executor, Callable[[], Iterable[Step]]]]:
    """Give a pool of processes with one thread each, and one GPU each where there are some, and what tells their steps."""
    context = multiprocessing.get_context("spawn")
    events, stop = context.Queue(), context.RawValue("b", 0)  # without a lock, which a killed worker would keep
    with ProcessPoolExecutor(workers, context, _start_worker, (events, stop, os.getpid(), _devices())) as pool:
        try:
            with _ignored_interrupts():
                for _ in range(workers):
                    pool.submit(int)  # which starts a process
            yield pool, lambda: _drain(events)
        finally:
            stop.value = 1
            pool.shutdown(wait=True, cancel_futures=True)


def _devices() -> list[str]:
    """Name the GPUs that this process sees."""
    if not torch.cuda.is_available():
        return []
    return (os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))).split(",")


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


def _drain(events: Any) -> Iterator[Step]:
    try:
        while True:
            yield events.get_nowait()
    except queue.Empty:
        return


def _start_worker(events: Any, stop: Any, parent: int, devices: list[str]) -> None:
    """Prepare a worker: one thread, at most one GPU, and gone with its parent."""
    global _events  # noqa: PLW0603 - how a pool hands over a queue
    _events = events
    torch.set_num_threads(1)
    if devices:
        (number, *_) = multiprocessing.current_process()._identity  # counted from 1
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[(number - 1) % len(devices)]

    def leave_with_parent() -> None:
        while not stop.value and os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()


def tell_step(number: int, done: int, total: int) -> None:
    """Tell the process that started this one of a step, where it listens."""
    if _events is not None:
        _events.put((number, done, total))


@contextmanager
def cluster(address: str, out: Path) -> Iterator[Executor]:
    """Give an executor on the workers of a Dask cluster.

    A bank whose worker is lost is trained by another. The workers need this version of fairdro, and the folder ``out`` and
    the data under the same paths.

    Parameters
    ----------
    address : str
        Of the scheduler, for example ``tcp://scheduler:8786``.
    out : Path
        Folder of the bench.
    """
    distributed = require("distributed", extra="dask", what="Clusters")
    try:
        client = distributed.Client(address, timeout=ANSWER_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        told = (
            f"No scheduler answers at {address}; start one with `dask scheduler`, and workers with `dask worker {address}`."
        )
        raise InputError(told) from error
    make_folder(out)
    with client:
        try:
            _check_workers(client, address, out)
            with client.get_executor(pure=False) as executor:
                yield executor
        except distributed.scheduler.KilledWorker as error:
            told = "Several workers ended suddenly with the same bank, perhaps for lack of memory"
            raise InputError(f"{told}. {GO_ON}.") from error
        except (CancelledError, distributed.comm.CommClosedError) as error:
            raise InputError(f"The scheduler at {address} was lost. {GO_ON}.") from error


def _check_workers(client: Any, address: str, out: Path) -> None:
    """Refuse a cluster without workers, and workers that cannot train a bank."""
    try:
        client.wait_for_workers(1, timeout=ANSWER_SECONDS)
    except TimeoutError as error:
        raise InputError(f"The scheduler at {address} has no workers; start some with `dask worker {address}`.") from error
    own = metadata.version("fairdro")
    for worker, told in client.run(_describe, str(out.resolve()), on_error="return").items():
        if isinstance(told, Exception):
            raise InputError(f"The worker {worker} cannot use fairdro ({told}); install version {own} there.")
        version, sees = told
        if version != own:
            raise InputError(f"The worker {worker} has fairdro {version}, not {own}; install the same there.")
        if not sees:
            raise InputError(f"The worker {worker} sees no folder {out.resolve()}; name one with --out that all share.")


def _describe(folder: str) -> tuple[str, bool]:
    """Return what a worker has: the version of fairdro, and whether it sees a folder."""
    return metadata.version("fairdro"), Path(folder).is_dir()
