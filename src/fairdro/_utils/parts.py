"""Many files as one table: one schema for all of them, read in batches that fit into memory."""

import glob
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fairdro._utils.files import (
    TEXT,
    Dialect,
    as_plain,
    as_strings,
    check_names,
    check_strings,
    check_table_name,
    columns_of,
    holds_strings,
    is_padded,
    is_parquet,
    is_text,
    open_parquet,
    read_table,
    reading,
    with_missing,
    without_views,
)
from fairdro._utils.kinds import as_codes, common, conformed, in_words, wider
from fairdro._utils.progress import OnStep
from fairdro.errors import InputError

BATCH_ROWS, BATCH_BYTES = 100_000, 1 << 26
STRING_ROWS = 10_000  # of Parquet with strings as they are, which may take far more than in the file
CODE_BYTES, FEW_BYTES = 3, 1 << 18  # of a value, and of all different ones, where these are few
START = 1 << 20  # bytes of a CSV, by which it is seen whether there is more than a header
FEW_FIELDS, COMPRESSED = 50_000_000, 10  # of a CSV that is read at once; how much smaller one may be


@dataclass(frozen=True)
class Part:
    """A file, or some row groups of one.

    Attributes
    ----------
    path : Path
    schema : pyarrow.Schema
        Its columns, of types as the file has them.
    rows, first : int
        How many there are, and how many there are in the parts before.
    size : int
        Bytes, as far as the file tells, before it was compressed.
    dialect : Dialect, optional
        Of a CSV.
    codes : frozenset of str
        Columns of a CSV that are strings only since some numbers begin with a zero.
    row_groups : tuple of int
        Of Parquet.
    few : frozenset of str
        Columns of Parquet with few different strings, by their size in the file; those without values are among them.
    stamp : tuple of int, optional
        Size and time of the file when it was looked at.
    """

    path: Path
    schema: pa.Schema
    rows: int
    size: int
    first: int = 0
    dialect: Dialect | None = None
    codes: frozenset[str] = frozenset()
    row_groups: tuple[int, ...] = ()
    few: frozenset[str] = frozenset()
    stamp: tuple[int, int] | None = None

    @property
    def names(self) -> list[str]:
        """The columns of the table, without the index that pandas writes."""
        found = self.schema.names
        return found if self.dialect is not None else [found[j] for j in columns_of(found)]

    def raw(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """Give the rows as the file has them, by batches, of all columns or some; fields of a CSV are strings."""
        if self.dialect is None:
            return self._parquet(columns)
        options = as_strings(self.schema.names)
        options.include_columns = columns or []
        return self._csv(self.dialect, options)

    def typed(self, types: pa.Schema) -> Iterator[pa.Table]:
        """Give some columns by batches, with types that all files can have, missing values as such."""
        if self.dialect is None:
            codes = [f.name for f in types if pa.types.is_dictionary(f.type) and holds_strings(f.type)]
            return (conformed(with_missing(table), types) for table in self._parquet(types.names, codes))
        by_name = {field.name: field.type for field in types}
        return self._csv(self.dialect, self.dialect.convert(by_name, types.names))

    def _parquet(self, columns: list[str] | None, codes: Collection[str] = ()) -> Iterator[pa.Table]:
        read = self.schema if columns is None else [self.schema.field(name) for name in columns]
        plain = any(holds_strings(field.type) and field.name not in codes for field in read)
        most = STRING_ROWS if plain else BATCH_ROWS
        rows = min(most, max(1, BATCH_BYTES * self.rows // max(self.size, 1)))
        with self._unchanged(), open_parquet(self.path, codes) as file:
            for batch in file.iter_batches(rows, row_groups=list(self.row_groups), columns=columns):
                table = as_plain(pa.Table.from_batches([batch]).replace_schema_metadata(file.schema_arrow.metadata))
                check_strings(table, self.path)
                yield table

    def _csv(self, dialect: Dialect, options: pa.csv.ConvertOptions) -> Iterator[pa.Table]:
        with self._unchanged(), pa.csv.open_csv(self.path, parse_options=dialect.parse, convert_options=options) as file:
            for batch in file:
                yield pa.Table.from_batches([batch])

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Read the file, and refuse one that is no longer what was looked at."""
        with reading(self.path):
            self._check_stamp()
            yield
            self._check_stamp()

    def _check_stamp(self) -> None:
        if self.stamp not in (None, _stamp(self.path)):
            raise InputError(f"{self.path} has changed while it was read; start again when nobody writes into it.")


class Parts:
    """A table in one file or many, all in CSV or all in Parquet.

    Parameters
    ----------
    parts : list of Part
        In the order of the rows. Those without rows are left out.

    Attributes
    ----------
    schema : pyarrow.Schema
        Columns as all files can have them. Types of a CSV are those that all its rows allow, as of
        :func:`~fairdro._utils.files.read_table`.
    types : pyarrow.Schema
        As rows come: strings of Parquet that are few are dictionaries.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        filled = [part for part in parts if part.rows > 0]
        if not filled:
            raise InputError(f"{parts[0].path} {'holds no rows' if parts[0].schema.names else 'is empty'}.")
        before = accumulate((part.rows for part in filled), initial=0)
        self.parts = [replace(part, first=first) for part, first in zip(filled, before, strict=False)]
        self.schema = _one_schema(self.parts)
        self.types = as_codes(self.schema, frozenset.intersection(*(part.few for part in self.parts)))

    @classmethod
    def of(cls, paths: Sequence[Path], on_step: OnStep | None = None) -> Self:
        """Look at files, folders of files, or names with a ``*``: what columns they have and, of CSV, of what type."""
        files = files_of(paths)
        ends = list(accumulate(path.stat().st_size if path.is_file() else 0 for path in files))
        parts = []
        for path, end in zip(files, ends, strict=True):
            parts.append(_look_at_parquet(path) if is_parquet(path) else _look_at_csv(path, end, ends[-1], on_step))
            if on_step is not None:
                on_step(end, max(ends[-1], 1))
        return cls(parts)

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(part.rows for part in self.parts)

    def share(self, rank: int, world: int) -> list[Part]:
        """Return the parts of one of several processes: every so many row groups of Parquet, or files of CSV."""
        units = [unit for part in self.parts for unit in _row_groups(part)]
        if len(units) < world:
            kind = "files" if self.parts[0].dialect is not None else "row groups"
            raise InputError(f"There are {len(units)} {kind} for {world} processes; start fewer, or write more {kind}.")
        return units[rank::world]

    def batches(
        self,
        columns: Collection[str] | None = None,
        *,
        parts: Sequence[Part] | None = None,
        on_step: OnStep | None = None,
    ) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Give the rows of some parts, by default of all, by batches, and their numbers in the table.

        Parameters
        ----------
        columns : collection of str, optional
            Columns to read; by default all. Strings of Parquet that are few come as dictionaries, which take less memory.
        parts : sequence of Part, optional
            As of :meth:`share`.
        on_step : callable, optional
        """
        types = pa.schema([field for field in self.types if columns is None or field.name in columns])
        parts = self.parts if parts is None else parts
        waiting: list[pa.Table] = []
        numbers: list[np.ndarray] = []
        done, total = 0, sum(part.rows for part in parts)
        for part in parts:
            first = part.first
            for table in part.typed(types):
                waiting.append(table)
                numbers.append(np.arange(first, first := first + table.num_rows))
                if _is_enough(waiting):
                    yield pa.concat_tables(waiting), np.concatenate(numbers)
                    done += sum(map(len, numbers))
                    waiting, numbers = [], []
                    if on_step is not None:
                        on_step(done, total)
        if waiting:
            yield pa.concat_tables(waiting), np.concatenate(numbers)
        if on_step is not None:
            on_step(total, total)

    def read(self, columns: Collection[str] | None = None, on_step: OnStep | None = None) -> pa.Table:
        """Return all rows, of all columns or some."""
        return pa.concat_tables(table for table, _ in self.batches(columns, on_step=on_step))

    def raw_batches(self, on_step: OnStep | None = None) -> Iterator[tuple[Part, pa.Table]]:
        """Give the rows as the files have them, by batches, and whose they are; fields of CSV are strings."""
        done = 0
        for part in self.parts:
            waiting: list[pa.Table] = []
            for table in part.raw():
                waiting.append(self._alike(table))
                if _is_enough(waiting):
                    yield part, pa.concat_tables(waiting)
                    done += sum(table.num_rows for table in waiting)
                    waiting = []
                    if on_step is not None:
                        on_step(done, self.rows)
            if waiting:
                yield part, pa.concat_tables(waiting)
                done += sum(table.num_rows for table in waiting)
        if on_step is not None:
            on_step(self.rows, self.rows)

    def _alike(self, raw: pa.Table) -> pa.Table:
        """Return raw rows of one of several files as those of all others."""
        if len(self.parts) == 1:
            return raw
        return raw.select(self.schema.names) if self.parts[0].dialect is not None else conformed(raw, self.schema)

    def with_points(self, part: Part, raw: pa.Table) -> pa.Table:
        """Return raw rows of a CSV with points where numbers have decimal commas."""
        if part.dialect is None or part.dialect.decimal_point == ".":
            return raw
        for j, name in enumerate(raw.column_names):
            if pa.types.is_floating(self.schema.field(name).type):
                raw = raw.set_column(j, name, pa.compute.replace_substring(raw.column(j), ",", "."))
        return raw

    def typed(self, part: Part, raw: pa.Table, strings: Collection[str] = ()) -> pa.Table:
        """Return raw rows with the types of the table, missing values as such; of a CSV, some columns as strings."""
        if part.dialect is None:
            return conformed(with_missing(raw), self.types)
        types = {field.name: pa.string() if field.name in strings else field.type for field in self.schema}
        return _converted(raw, part.dialect, types)


def read_files(files: Sequence[Path]) -> pa.Table:
    """Read the table in some files."""
    if len(files) == 1 and is_text(files[0]) and most_fields(files) <= FEW_FIELDS:
        return read_table(files[0])
    return Parts.of(files).read()


def most_fields(files: Sequence[Path]) -> int:
    """Return how many fields some files have at most: in CSV, one takes two bytes."""
    found = 0
    for path in files:
        with reading(path):
            if is_parquet(path):
                metadata = pa.parquet.read_metadata(path)
                found += metadata.num_rows * metadata.num_columns
            else:
                found += path.stat().st_size // 2 * (1 if path.suffix.lower() in TEXT else COMPRESSED)
    return found


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Return the tables that are named, in this order; those in a folder, or that fit a name with a ``*``, are sorted."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [
                file for file in path.iterdir()
                if file.is_file() and not file.name.startswith(".") and (is_text(file) or is_parquet(file))
            ]  # fmt: skip
            if not inside:
                raise InputError(f"The folder {path} holds no tables in CSV or Parquet.")
            found += sorted(inside)
        elif glob.has_magic(str(path)) and not path.exists():
            fitting = [Path(name) for name in glob.glob(str(path), recursive=True)]  # noqa: PTH207 - also absolute ones
            if not fitting:
                raise InputError(f"There is no file like {path}.")
            found += sorted(fitting)
        else:
            found.append(path)
    if twice := [path for path, number in Counter(path.resolve() for path in found).items() if number > 1]:
        raise InputError(f"{twice[0]} is named twice.")
    for path in found:
        check_table_name(path)
        if is_parquet(path) != is_parquet(found[0]):
            raise InputError(f"{found[0]} and {path} are of different formats; bring them to one, CSV or Parquet.")
    if not found:
        raise InputError("Name a table in CSV or Parquet.")
    return found


def _is_enough(tables: list[pa.Table]) -> bool:
    rows, size = sum(table.num_rows for table in tables), sum(table.nbytes for table in tables)
    return rows >= BATCH_ROWS or size >= BATCH_BYTES


def _stamp(path: Path) -> tuple[int, int]:
    """Return what changes when a file is written: its size and time."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _look_at_parquet(path: Path) -> Part:
    with reading(path), open_parquet(path) as file:
        schema, metadata = without_views(file.schema_arrow), file.metadata
        check_names(schema.names, path)
        sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
        rows = metadata.num_rows if schema.names else 0
        groups, few = tuple(range(len(sizes))), _few_strings(file.schema, metadata, schema)
        return Part(path, schema, rows, sum(sizes), row_groups=groups, few=few, stamp=_stamp(path))


def _few_strings(paths: pa.parquet.ParquetSchema, metadata: pa.parquet.FileMetaData, schema: pa.Schema) -> frozenset[str]:
    """Return the columns with few different strings: one that is written out every time takes four bytes and its own."""
    strings = {field.name for field in schema if holds_strings(field.type) or pa.types.is_null(field.type)}
    return frozenset(
        paths.column(j).path
        for j in range(metadata.num_columns)
        if paths.column(j).path in strings and all(
            chunk.total_uncompressed_size <= CODE_BYTES * chunk.num_values + FEW_BYTES
            for chunk in (metadata.row_group(i).column(j) for i in range(metadata.num_row_groups))
        )
    )  # fmt: skip


def _row_groups(part: Part) -> list[Part]:
    """Return a part of Parquet by its row groups; a CSV cannot be cut."""
    if part.dialect is not None:
        return [part]
    with reading(part.path), open_parquet(part.path) as file:
        rows = [file.metadata.row_group(i).num_rows for i in part.row_groups]
    first = accumulate(rows, initial=part.first)
    cut = zip(part.row_groups, rows, first, strict=False)
    return [replace(part, rows=n, first=start, row_groups=(i,)) for i, n, start in cut if n > 0]


def _few_lines(path: Path) -> list[str] | None:
    """Return the line of a CSV that is its header, or none; None where there are more lines."""
    with pa.input_stream(str(path)) as file:  # decompresses .gz and the like by name
        content = file.read(START)
    lines = [line for line in content.decode("utf-8-sig", errors="replace").splitlines() if line.strip()]
    return lines if len(lines) < 2 and len(content) < START and b"\0" not in content else None


def _look_at_csv(path: Path, end: int, total: int, on_step: OnStep | None) -> Part:
    """Find the types of a CSV in one pass over its rows: of every column the narrowest that all its values have.

    Of all files, it is the bytes up to ``end`` of ``total``.
    """
    with reading(path):
        stamp, lines = _stamp(path), _few_lines(path)
        if lines is not None:  # without rows, perhaps without a header: Spark writes such files
            return Part(path, pa.schema([(line, pa.null()) for line in lines]), 0, 0)
        dialect = Dialect.of(path)
        with pa.csv.open_csv(path, parse_options=dialect.parse) as file:
            names = file.schema.names
        check_names(names, path)
        part = Part(path, pa.schema([(name, pa.null()) for name in names]), 0, 0, dialect=dialect, stamp=stamp)
        types = dict.fromkeys(names, pa.null())
        bits, padded, rows, size = set(names), set(), 0, 0
        for raw in part.raw():
            rows, size = rows + raw.num_rows, size + raw.nbytes
            if on_step is not None:
                on_step(min(end - path.stat().st_size + size, end), total)
            open_ = [name for name in names if types[name] != pa.string()]
            found = _converted(raw.select(open_), dialect, {}) if open_ else raw
            padded |= {name for name in open_ if pa.types.is_integer(found[name].type) and is_padded(raw[name])}
            for name in open_:
                own = found[name].type
                if pa.types.is_integer(own) and not {*pa.compute.min_max(found[name]).as_py().values()} <= {0, 1}:
                    bits.discard(name)
                types[name] = wider(types[name], own, bits=name in bits)
    codes = {name for name in padded if pa.types.is_integer(types[name])}
    types |= dict.fromkeys(codes, pa.string())
    types |= {name: pa.string() for name in names if pa.types.is_time(types[name])}  # "12:30" is not "12:30:00"
    return replace(part, schema=pa.schema(list(types.items())), rows=rows, size=size, codes=frozenset(codes))


def _converted(raw: pa.Table, dialect: Dialect, types: dict[str, pa.DataType]) -> pa.Table:
    """Return fields of a CSV as values, exactly as the CSV reader has them: it reads them again."""
    buffer = pa.BufferOutputStream()
    pa.csv.write_csv(raw, buffer, pa.csv.WriteOptions(include_header=False))
    content = buffer.getvalue()
    return pa.csv.read_csv(
        pa.BufferReader(content),
        read_options=pa.csv.ReadOptions(column_names=raw.column_names, block_size=len(content) + 1),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=dialect.convert(types),
    )


def _one_schema(parts: Sequence[Part]) -> pa.Schema:
    """Return columns as all parts can have them; refuse one that is not in all, or changes its type."""
    first, *others = parts
    known = {name: (first, first.schema.field(name).type) for name in first.names}
    for part in others:
        for one, other in ((first, part), (part, first)):
            if lacking := [name for name in one.names if name not in set(other.names)]:
                raise InputError(f"{other.path} has no column {lacking[0]!r}, but {one.path} has; give all files the same.")
        for name, (since, kind) in known.items():
            own = part.schema.field(name).type
            found = common(kind, own)
            if found is None and (name in part.codes or name in since.codes) and {kind, own} == {pa.string(), pa.int64()}:
                found = pa.string()
            if found is None:
                raise InputError(
                    f"The column {name!r} holds {in_words(kind)} in {since.path}, but {in_words(own)} in {part.path}; give "
                    "it one type in all files."
                )
            known[name] = (part if pa.types.is_null(kind) or name in part.codes else since), found
    return pa.schema([(name, kind) for name, (_, kind) in known.items()])
