"""From a table larger than memory to a fair linear model, and to predictions.

Training passes over the files twice: first to find columns, classes and groups (:mod:`~fairdro.estimators.survey`), then to
encode the rows and write them into a temporary file, sorted by class and group. Under ``torch.distributed`` every process
reads its share of the files, and all come to the same encoder.
"""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa

from fairdro._utils.files import is_text, write_tables
from fairdro._utils.parts import Parts, files_of, most_fields, read_files
from fairdro._utils.progress import OnStep, Stage, quiet
from fairdro.errors import InputError
from fairdro.estimators.columns import as_pandas, without_target
from fairdro.estimators.cv import FairDROClassifierCV
from fairdro.estimators.encoder import TableEncoder
from fairdro.estimators.head import FairDROHead
from fairdro.estimators.summaries import Summary
from fairdro.estimators.survey import Source, Survey, places
from fairdro.estimators.tables import (
    FittedTable,
    check_options,
    costs_of,
    fit_table,
    fitted,
    predict_head_table,
    predict_tables,
    string_columns,
)
from fairdro.fixed_sequence import CertifiedDCA
from fairdro.groups import Groups
from fairdro.training.processes import agreed, gathered_arrays, gathered_text, world
from fairdro.training.rows import MOST_NUMBERS, DrawnSplit, RowsOnDisk, draws_of, held_out

GB = 1_000_000_000
BYTES_PER_FEATURE, BYTES_PER_FIELD = 16, 16  # of a row in memory: as it is, encoded, scaled, and in a fold
BYTES_PER_CHARACTER = 2  # of strings: in the files' own format, and as pandas has them
MOST_BYTES_PER_FIELD = 100 * BYTES_PER_FEATURE  # of a column with a hundred categories
BYTES_ON_DISK, BYTES_PER_ROW_ON_DISK, BYTES_PER_NUMBER = 1.4 * GB, 40, 12  # in memory all the same: libraries, rows, samples
FEWEST_NUMBERS = 1 << 22  # of a sample to be of use
PIECE_BYTES = 1 << 26
EXACT_IN_HALF = 1024  # whole numbers and halves up to here are exact in half precision


def fit_files(paths: Sequence[Path], *, memory: int, folder: Path, stage: Stage = quiet, **options: Any) -> FittedTable:
    """Train on a table in files, as :func:`fit_parts` says; one that surely fits into memory is read at once.

    Parameters
    ----------
    paths : sequence of Path
        Files, folders of files, or names with a ``*``.
    memory, folder, stage, **options
        As of :func:`fit_parts`.
    """
    files = files_of(paths)
    if world() == 1 and most_fields(files) * MOST_BYTES_PER_FIELD <= memory:
        with stage("reading"):
            table = read_files(files)
        return fit_table(table, **options)
    with stage("looking at files") as on_step:
        parts = agreed(lambda: Parts.of(files, on_step))
    return fit_parts(parts, memory=memory, folder=folder, stage=stage, **options)


def fit_parts(
    parts: Parts,
    *,
    target: str,
    groups: Sequence[str],
    memory: int,
    folder: Path,
    drop: Sequence[str] = (),
    model: str = "linear",
    stage: Stage = quiet,
    **options: Any,
) -> FittedTable:
    """Train on a table in files: in memory if it fits, else with its rows in a temporary file.

    Parameters
    ----------
    parts : Parts
    target, groups, drop, model
        As of :func:`~fairdro.estimators.tables.fit_table`.
    memory : int
        Bytes that may be used; a table that takes more is not loaded.
    folder : Path
        Where the temporary file is kept. It has no name, so that nothing is left behind.
    stage : callable
        Makes a context for a named stage of the work, and says whom to tell its steps.
    **options
        As of :func:`~fairdro.estimators.tables.fit_table`. A model that is not linear, groups that are inferred, and rows
        that are set aside to certify need a table that fits.
    """
    check_options(target, groups, model, **options)
    source = Source(parts, target, groups, drop)
    with stage("reading") as on_step:
        survey = source.survey(on_step)
    _ = survey.labels  # which refuses a target that has none
    encoder = TableEncoder().learn(survey.columns)
    width = len(source.features if model == "boosting" else encoder.get_feature_names_out())
    needed = survey.rows * (width * BYTES_PER_FEATURE + len(parts.schema) * BYTES_PER_FIELD)
    written_out = [not pa.types.is_dictionary(parts.types.field(column.name).type) for column in survey.columns]
    needed += BYTES_PER_CHARACTER * sum(column.characters for column in compress(survey.columns, written_out))
    asked = f"about {_in_words(needed)} of memory, and {_in_words(memory)} may be used (--memory)"
    if world() == 1 and needed <= memory:
        with stage("loading") as on_step:
            whole = parts.read({target, *groups, *source.features}, on_step=on_step)
        done = fit_table(whole, target=target, groups=groups, model=model, **options)
        return FittedTable(done.model, [f"The table is trained on in memory: it takes {asked}.", *done.notes])
    why = f"It would take {asked}" if world() == 1 else f"{world()} processes train on it"
    _refuse_what_needs_memory(model, options, why)
    kept = [
        f"The rows of the table are kept in a temporary file. {why}.",
        "Radii are judged by a fifth of the rows, which is held out once, not by five folds.",
    ]
    least = BYTES_ON_DISK + BYTES_PER_ROW_ON_DISK * survey.rows
    of_all = min(int(part[0]) for part in gathered_arrays(np.array([memory])))  # a sample is the same in every process
    numbers = min(int((of_all - least) / BYTES_PER_NUMBER), MOST_NUMBERS)
    if numbers < FEWEST_NUMBERS:
        numbers = FEWEST_NUMBERS
        kept.append(f"Training may take up to {_in_words(least + FEWEST_NUMBERS * BYTES_PER_NUMBER)} of memory even so.")
    done = _fit_on_disk(survey, encoder, folder, numbers, stage, **options)
    return FittedTable(done.model, [*kept, *done.notes])


def _refuse_what_needs_memory(model: str, options: Mapping[str, Any], why: str) -> None:
    if model != "linear":
        raise InputError(
            f"The table cannot be trained on by model {model}. {why}: use fewer rows, --model linear, or for trees "
            "fairdro.dask."
        )
    if options.get("missing_groups") == "infer":
        raise InputError(f"Groups cannot be inferred in this table. {why}: use --missing-groups group or ignore.")
    if options.get("certify") or isinstance(options.get("rule"), CertifiedDCA):
        raise InputError(f"No rows of this table can be set aside. {why}: keep some files back, and use fairdro certify.")


def _in_words(size: float) -> str:
    return f"{size / GB:.1f} GB" if size >= GB / 10 else f"{size / 1e6:.1f} MB"


def _fit_on_disk(
    survey: Survey,
    encoder: TableEncoder,
    folder: Path,
    most_numbers: int,
    stage: Stage,
    *,
    rho: float | None = None,
    class_weight: Mapping[str, float] | str | None = None,
    missing_groups: str = "group",
    **options: Any,
) -> FittedTable:
    """Encode the rows into a temporary file, and train on that."""
    classes, y = np.unique(survey.labels, return_inverse=True)
    for name, number in zip(classes, np.bincount(y, weights=survey.cells["rows"].to_numpy()), strict=True):
        if number < 2:
            raise InputError(f"The class {str(name)!r} has one row; it takes two, one to train on and one to hold out.")
    groups, notes = survey.groups(missing_groups)
    n_groups = len(groups.names) + groups.unknown_group
    codes = y * n_groups + groups.values
    classifier = FairDROClassifierCV(
        rho, cv=DrawnSplit(), class_weight=costs_of(class_weight, classes), missing_groups=missing_groups, **options
    )
    with agreed(lambda: _temporary(folder)) as file:
        with stage("encoding") as on_step:
            X, own = agreed(lambda: _encoded(survey, encoder, codes, file, folder, on_step))
        X.most_numbers = most_numbers
        pa.default_memory_pool().release_unused()
        group = own % n_groups
        known = group < len(groups.names) if groups.unknown_group else None
        classifier.fit(
            X,
            pd.Categorical.from_codes(own // n_groups, categories=pd.Index(classes)),
            sensitive_features=Groups(group, groups.names, known, unknown_group=groups.unknown_group),
        )
    lacking = [without_target(survey.lacking, survey.source.target)] if survey.lacking else []
    return fitted(encoder, classifier, [*lacking, *notes])


def _temporary(folder: Path) -> Any:
    """Return an open file without a name, so that nothing is left behind whatever happens."""
    try:
        return tempfile.TemporaryFile(dir=folder)
    except OSError as error:
        raise InputError(f"Cannot write into {folder}: {error.strerror}; name another folder by TMPDIR.") from error


def _encoded(
    survey: Survey, encoder: TableEncoder, codes: np.ndarray, file: BinaryIO, folder: Path, on_step: OnStep | None
) -> tuple[RowsOnDisk, np.ndarray]:
    """Write the encoded rows of this process sorted by the ``codes`` of class and group; return also that of every row.

    Of one code, those that are held out come last: then training reads no others on its way.
    """
    counts = np.bincount(codes, weights=survey.own).astype(np.int64)
    rows, width = int(counts.sum()), len(encoder.get_feature_names_out())
    dtype = np.dtype(np.float16 if _is_exact_in_half(encoder, survey.columns) else np.float32)
    _check_room(rows * width * dtype.itemsize, folder)
    draws = np.empty(rows, dtype=np.uint32)
    first_free, end_free = (
        np.cumsum(counts) - counts,
        np.cumsum(counts),
    )  # of each code: trained on from here, held out to there
    piece = max(PIECE_BYTES // (4 * width), 1)
    for batch in survey.source.batches(on_step):
        all_draws = draws_of(batch.numbers)
        keys = 2 * codes[places(batch.keys, survey.cells)] + held_out(all_draws)
        for first in range(0, len(keys), piece):
            order = first + np.argsort(keys[first : first + piece], kind="stable")
            X = np.asarray(encoder.transform(as_pandas(batch.features.slice(first, piece))), dtype)[order - first]
            drawn = all_draws[order]
            present, starts, sizes = np.unique(keys[order], return_index=True, return_counts=True)
            for key, start, size in zip(present, starts, sizes, strict=True):
                code, held = divmod(int(key), 2)
                end_free[code] -= held * size
                place = int(end_free[code] if held else first_free[code])
                first_free[code] += (1 - held) * size
                _write(file, X[start : start + size], place * width * dtype.itemsize, folder)
                draws[place : place + size] = drawn[start : start + size]
    if world() > 1 and len(np.unique(held_out(draws))) < 2:
        raise InputError(
            f"One of the processes has {rows:,} rows with a value of {survey.source.target!r}, too few to train on some and "
            "to hold out others; start fewer processes, or spread the rows over the files."
        )
    return RowsOnDisk(file, (rows, width), dtype.name, draws), np.repeat(np.arange(len(counts)), counts)


def _check_room(needed: int, folder: Path) -> None:
    hosts = [text.rpartition(" ") for text in gathered_text(f"{socket.gethostname()} {needed}")]
    needed = sum(int(bytes_there) for host, _, bytes_there in hosts if host == socket.gethostname())
    if needed > (free := shutil.disk_usage(folder).free):
        raise InputError(
            f"The encoded rows need {_in_words(needed)} on disk, but {folder} has {_in_words(free)} left; name a folder "
            "with more by TMPDIR."
        )


def _is_exact_in_half(encoder: TableEncoder, columns: list[Summary]) -> bool:
    """Whether half precision loses nothing: categories, and whole numbers that are close to a median of whole or half."""
    medians = {column.name: column.median for column in encoder.columns_ if column.kind != "category"}
    return all(
        found.whole and medians[found.name] * 2 % 1 == 0
        and max(medians[found.name] - found.low, found.high - medians[found.name]) <= EXACT_IN_HALF
        for found in columns if found.name in medians
    )  # fmt: skip


def _write(file: BinaryIO, rows: np.ndarray, offset: int, folder: Path) -> None:
    view = memoryview(rows.tobytes())
    try:
        while view:
            written = os.pwrite(file.fileno(), view, offset)
            view, offset = view[written:], offset + written
    except OSError as error:
        raise InputError(
            f"Cannot write the encoded rows into {folder}: {error.strerror}; name a folder with more room by TMPDIR."
        ) from error


def predict_parts(model: Any, parts: Parts, out: Path, on_step: OnStep | None = None) -> list[str]:
    """Write a table again with predictions, batch by batch; return what there is to say of it.

    Parameters
    ----------
    model : Pipeline or FairDROHead
        Of a table.
    parts : Parts
    out : Path
        In CSV or Parquet. Every field is as it was; those of CSV have types in Parquet, and numbers with a decimal comma
        are written with a point.
    on_step : callable, optional
    """
    head = isinstance(model, FairDROHead)
    strings = [] if head else string_columns(model)
    as_it_was = is_text(out) or parts.parts[0].dialect is None
    notes: list[str] = []
    waiting: list[pa.Table] = []

    def read() -> Iterator[pa.Table]:
        for part, raw in parts.raw_batches(on_step):
            waiting.append(parts.with_points(part, raw) if as_it_was else parts.typed(part, raw))
            yield parts.typed(part, raw, strings)

    def predicted() -> Iterator[pa.Table]:
        for added in (
            (predict_head_table(model, table) for table in read()) if head else predict_tables(model, read(), notes)
        ):
            table = waiting.pop()
            for name in added.column_names:
                table = table.append_column(name, added[name])
            yield table

    write_tables(predicted(), out)
    return notes
