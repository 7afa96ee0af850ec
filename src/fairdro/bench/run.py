"""Train the banks of a plan, in this process or by an executor, and store each as soon as it is done."""

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, wait
from contextlib import chdir, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from fairdro._utils.files import make_folder
from fairdro._utils.progress import OnStep
from fairdro.bench.bank import Bank, known_dataset
from fairdro.bench.executors import POLL_SECONDS, Step, local_pool, tell_step
from fairdro.bench.network_run import remove_checkpoints, remove_teachers, run_network
from fairdro.bench.plan import BenchPlan
from fairdro.bench.store import RESULTS, Outcome, Store
from fairdro.errors import InputError
from fairdro.metrics import confusion_counts
from fairdro.networks.runs import Job
from fairdro.training.threads import torch_threads

OnBankStep = Callable[[Bank, int, int], object]
"""Told of every epoch or step: the bank, how many are finished, and how many there are; and ``1, 1`` when it is stored."""

_turn = threading.Lock()  # torch's seed and number of threads are the whole process's


def run_bench(
    plan: BenchPlan,
    out: Path,
    *,
    workers: int = 1,
    executor: Executor | None = None,
    on_step: OnBankStep | None = None,
) -> pd.DataFrame:
    """Train every bank of the plan that is not stored in ``out`` yet; ``results.csv`` there is current after each.

    Parameters
    ----------
    plan : BenchPlan
        What to compare.
    out : Path
        Folder of the results; what is stored there is not trained again.
    workers : int, default 1
        Processes to train in, with one thread each; by default this one. More need the calling script to have its
        ``if __name__ == "__main__":``.
    executor : concurrent.futures.Executor, optional
        Trains the banks instead: Dask's ``client.get_executor()``, mpi4py's ``MPIPoolExecutor``, a pool of your own. Its
        workers must see the folder and the data under the same paths; a bank at a time is trained in each of their
        processes, whatever its threads. It is left open.
    on_step : callable, optional
        Called with the bank, the steps that are done, and their number.

    Returns
    -------
    DataFrame
        A row per trained model in the folder, those of earlier runs included.

    Examples
    --------
    >>> from pathlib import Path
    >>> from fairdro.bench import BenchPlan, run_bench
    >>> plan = BenchPlan(datasets=["compas"], methods=["scratch", "fairdro"], points=3)
    >>> results = run_bench(plan, Path("results"))
    >>> results["method"].value_counts().to_dict()
    {'fairdro': 3, 'scratch': 1}
    >>> Path("results/results.csv").exists()
    True
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}.")
    if executor is not None and not isinstance(executor, Executor):
        raise InputError(
            f"executor must be a concurrent.futures.Executor, got {type(executor).__name__}; of a Dask client pass "
            "client.get_executor()."
        )
    plan.check()
    make_writable(out)
    store = Store(out)
    store.outcomes()  # a damaged file is found before training
    tell = on_step or (lambda bank, done, total: None)
    _complete(plan.banks, store, workers, executor, tell)
    _complete(plan.second_banks(store.rows_of(plan.banks)), store, workers, executor, tell)
    remove_teachers(plan.banks, out)
    return _refresh(store)


def _complete(banks: Sequence[Bank], store: Store, workers: int, executor: Executor | None, tell: OnBankStep) -> None:
    """Train those of the banks that are not stored, the costliest first."""
    missing = sorted((bank for bank in banks if bank not in store), key=lambda bank: -bank.cost)
    for bank in banks:
        if bank not in missing:
            remove_checkpoints(bank, store.out)  # of a process that was killed when it had just stored the bank
            tell(bank, 1, 1)
    for bank in _train_all(missing, store.out, min(workers, len(missing)), executor, tell):
        tell(bank, 1, 1)
        if store.rows_of(banks):
            _refresh(store)


def _refresh(store: Store) -> pd.DataFrame:
    results = store.results()
    store.write_results(results)
    return results


def _train_all(banks: list[Bank], out: Path, workers: int, executor: Executor | None, tell: OnBankStep) -> Iterator[Bank]:
    """Train and store banks; yield each when it is stored."""
    if executor is not None:
        yield from _train_by(executor, banks, out, tell)
    elif workers > 1:
        with local_pool(workers) as (pool, steps):
            yield from _train_by(pool, banks, out, tell, steps)
    else:
        for bank in banks:
            _train_and_store(bank, out, partial(tell, bank))
            yield bank


def _train_by(
    executor: Executor,
    banks: list[Bank],
    out: Path,
    tell: OnBankStep,
    steps: Callable[[], Iterable[Step]] = lambda: (),
) -> Iterator[Bank]:
    """Let an executor train banks; yield each when it is stored, and give up those that wait when this ends early."""
    here = (out.resolve(), Path.cwd())
    running = {executor.submit(work, number, bank.spec(), _job(bank), *here): bank for number, bank in enumerate(banks)}
    try:
        while running:
            done, _ = wait(running, POLL_SECONDS, FIRST_COMPLETED)
            for number, finished, total in steps():
                tell(banks[number], finished, total)
            for future in done:
                future.result()
                if running[future] not in Store(out):
                    raise InputError(
                        f"A worker stored its bank in another place than {out}: workers must share this folder."
                    )
                yield running.pop(future)
    except BrokenExecutor as error:
        raise InputError(
            "A worker process ended suddenly, perhaps for lack of memory (or, in a script of your own, of its "
            "`if __name__ == '__main__':`). What was stored before is still there: run it again with fewer workers."
        ) from error
    finally:
        for future in running:
            future.cancel()


def _job(bank: Bank) -> Job | None:
    """Return where the data and the encoder of a bank are, seen from anywhere."""
    if bank.network is None:
        return None
    job = bank.network.known_job
    model = str(Path(job.model).resolve()) if Path(job.model).is_dir() else job.model
    return replace(job, data=job.data.resolve(), model=model)


def work(number: int, spec: dict[str, Any], job: Job | None, out: Path, folder: Path) -> None:
    """Train a bank in a worker, given as plain data: tensors would be fetched from the parent, which may be gone.

    Paths of features are as seen from ``folder``.
    """
    bank = Bank.from_spec(spec)
    with _turn, torch_threads(1), chdir(folder) if folder.is_dir() else nullcontext():
        if bank.network is not None and job is not None:
            bank = replace(bank, network=bank.network.at(job))
        _train_and_store(bank, out, partial(tell_step, number))


def _train_and_store(bank: Bank, out: Path, on_step: OnStep) -> None:
    store = Store(out)
    if bank not in store:  # another process on the same folder may have been faster
        network = bank.network
        for outcome in [run_bank(bank, on_step)] if network is None else run_network(bank, network, out, on_step):
            store.write(outcome)
        remove_checkpoints(bank, out)


def run_bank(bank: Bank, on_step: OnStep | None = None) -> Outcome:
    """Train one bank on a table and judge its models on the test part, and on the validation part where there is one.

    Parameters
    ----------
    bank : Bank
        What to train.
    on_step : callable, optional
        Called with the steps that are done, and their number.

    Returns
    -------
    Outcome

    Examples
    --------
    >>> from fairdro.bench import Bank, run_bank
    >>> from fairdro.methods import FairDRO
    >>> outcome = run_bank(Bank("compas", FairDRO(rho=(0.0, 10.0))))
    >>> outcome.rows["dca"].is_monotonic_decreasing
    True
    """
    if (reason := bank.refusal()) is not None:
        return Outcome(bank, refused=reason)
    dataset = known_dataset(bank.dataset)
    split = dataset.split(bank.protocol, seed=bank.split)
    seen, held = split.train, split.validation
    held_out = (held.X, held.cells) if held is not None and dataset.trained and bank.engine.fitted_held_out else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # diverged models are marked in the results
        trained = bank.engine.train(
            seen.X, seen.cells, bank.method, seeds=bank.seeds, steps=bank.epochs, held_out=held_out, on_step=on_step
        )
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
