"""Files: written whole or not at all, and tables in CSV and Parquet."""

import codecs
import contextlib
import csv
import functools
import io
import os
import re
import secrets
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fairdro.errors import InputError

PARQUET = {".parquet", ".pq"}
TEXT = {".csv", ".tsv", ".txt"}
DELIMITERS = ",;\t|"
MISSING = ["", "?", "#N/A", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"]
HEAD, PIECE = 1 << 16, 1 << 20
STALE_SECONDS = 3600


def write_whole(path: Path, content: str | bytes | Callable[[BinaryIO], object]) -> None:
    """Write a file so that it is there whole or not at all, even if the process is killed or the power fails.

    The content may be a function that writes it into an open file.
    """
    draft = path.with_name(f".{path.name}.{_system()}-{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep_drafts(path.parent, path.name)
        with draft.open("wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError, ValueError):
            draft.unlink(missing_ok=True)
        if isinstance(error, InputError) or not isinstance(error, OSError | ValueError):
            raise
        reason = getattr(error, "strerror", None) or error  # a path may hold a null byte
        raise InputError(f"Cannot write {path}: {reason}. What was there before is still there.") from error


def sweep_drafts(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes left half-written: at once where they ran here, else after an hour, of a file or all."""
    for draft in folder.glob(".*.*.part"):
        with contextlib.suppress(OSError):  # another process was faster, or it is another user's
            status = draft.lstat()
            stale = time.time() - status.st_mtime > STALE_SECONDS and (name is None or draft.name.startswith(f".{name}."))
            if stat.S_ISREG(status.st_mode) and (stale or _writer_is_gone(draft)):
                draft.unlink()


def _writer_is_gone(draft: Path) -> bool:
    """Whether the process that wrote a draft ran on this system, and no longer does."""
    found = re.search(r"\.([0-9a-f]{8})-([1-9]\d{0,8})-[0-9a-f]{8}\.part$", draft.name)
    if found is None or found[1] != _system():
        return False
    try:
        os.kill(int(found[2]), 0)  # which asks whether it is there; PermissionError says that it is another user's
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False


@functools.cache
def _system() -> str:
    """Name this system, whose processes have ids of their own: others, and containers, may write into the same folder."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text() + str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return "elsewhere"  # where ids cannot be trusted, so that drafts are swept after an hour
    return f"{zlib.crc32(text.encode()):08x}"


def make_folder(folder: Path) -> None:
    """Make a folder, and find out before long work whether files can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:  # a path may hold a null byte
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"Cannot write results into {folder}: {reason}.") from error
    sweep_drafts(folder)


def check_writable(path: Path) -> None:
    """Find out before long work whether a file or folder could be written, without leaving anything behind."""
    try:
        nearest = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
        with tempfile.TemporaryFile(dir=nearest.parent if nearest.is_file() and nearest == path.absolute() else nearest):
            pass
    except (OSError, ValueError) as error:  # a path may hold a null byte
        raise InputError(f"Cannot write {path}: {getattr(error, 'strerror', None) or error}.") from error


def check_new(path: Path, *, force: bool, inputs: Collection[Path] = ()) -> None:
    """Refuse to write over a file that is there, unless that is asked for, and ever over what is read."""
    if any(path.exists() and other.exists() and path.samefile(other) for other in inputs):
        raise InputError(f"{path} is what is read; name another file to write.")
    if path.exists() and not force:
        raise InputError(f"{path} is there already; name another file, or add --force to replace it.")
    check_writable(path)


def check_table_name(path: Path, *, writing: bool = False) -> None:
    """Refuse a name that is of neither kind of table; compressed ones are only read."""
    if (path.suffix.lower() if writing else _suffix(path)) not in PARQUET | TEXT:
        raise InputError(f"{path} must be a table in CSV (.csv, .tsv, .txt) or Parquet (.parquet, .pq).")


def is_text(path: Path) -> bool:
    """Whether a table is kept as text, by its name."""
    return _suffix(path) in TEXT


def is_parquet(path: Path) -> bool:
    """Whether a table is kept in Parquet, by its name."""
    return _suffix(path) in PARQUET


def read_table(path: Path, *, strings: Collection[str] = (), raw: bool = False) -> pa.Table:
    """Read a table in CSV or Parquet; types are inferred, strings that occur often are kept as a dictionary.

    The delimiter of a CSV is the one by which its first rows have as many fields as its header. Empty fields, ``NA``, ``?``
    and the like are missing, in strings of Parquet too. Codes with leading zeros are strings, and so are the columns
    ``strings`` of a CSV or, with ``raw``, every field as it is. The unnamed index that pandas writes into Parquet is no
    column, unless ``raw``.
    """
    with reading(path):
        table = _read_parquet(path, raw=raw) if is_parquet(path) else _read_csv(path, strings, raw=raw)
    check_names(table.column_names, path)
    if table.num_rows == 0 or not table.column_names:
        raise InputError(f"{path} holds no rows.")
    return table


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say in a sentence why a table cannot be read."""
    check_table_name(path)
    try:
        if not path.is_file():
            raise InputError(f"{path} is a folder; name a file." if path.is_dir() else f"There is no file {path}.")
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"Cannot read {path}: {_first_line(error)}") from error


def check_names(names: list[str], path: Path) -> None:
    """Refuse two columns of one name."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{path} has two columns named {twice!r}; rename one.")


def _read_parquet(path: Path, *, raw: bool) -> pa.Table:
    with open_parquet(path) as file:  # which reads two columns of one name, so that it can be said
        table = as_plain(file.read())
    check_strings(table, path)
    return table if raw else with_missing(table).select(columns_of(table.column_names))


def open_parquet(path: Path, dictionaries: Collection[str] = ()) -> pa.parquet.ParquetFile:
    """Open a file of Parquet, whose pages are checked where it has checksums; some strings are read as dictionaries."""
    return pa.parquet.ParquetFile(
        path, buffer_size=1 << 20, pre_buffer=False, read_dictionary=list(dictionaries), page_checksum_verification=True
    )


def without_views(schema: pa.Schema) -> pa.Schema:
    """Return the columns of Parquet with strings and bytes in place of views on these, which few functions know."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    for j, field in enumerate(schema):
        schema = schema.set(j, field.with_type(plain.get(field.type, field.type)))
    return schema


def as_plain(table: pa.Table) -> pa.Table:
    """Return a table of Parquet without views."""
    schema = without_views(table.schema)
    return table if schema == table.schema else table.cast(schema)


def columns_of(names: list[str]) -> list[int]:
    """Return which columns of Parquet are columns of the table: all but the unnamed index that pandas writes."""
    return [j for j, name in enumerate(names) if not re.fullmatch(r"__index_level_\d+__", name)]


def check_strings(table: pa.Table, path: Path) -> None:
    """Refuse strings of Parquet that are none."""
    for field, column in zip(table.schema, table.columns, strict=True):
        if holds_strings(field.type):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                raise InputError(
                    f"The column {field.name!r} of {path} holds strings that are not in UTF-8; write them anew."
                ) from error


def with_missing(table: pa.Table) -> pa.Table:
    """Return a table of Parquet in which strings that stand for missing values are missing; dictionaries stay such."""
    for j, field in enumerate(table.schema):
        column = table.column(j)
        if not holds_strings(field.type) or not any(_may_miss(chunk) for chunk in column.chunks):
            continue
        plain = _plain(column)
        missing = pa.compute.is_in(plain, pa.array(MISSING, plain.type))
        if pa.compute.any(missing).as_py():
            found = pa.compute.if_else(missing, pa.scalar(None, plain.type), plain)
            table = table.set_column(j, field.name, found.dictionary_encode() if plain is not column else found)
    return table


def _may_miss(values: pa.Array) -> bool:
    values = values.dictionary if pa.types.is_dictionary(values.type) else values
    return bool(pa.compute.any(pa.compute.is_in(values, pa.array(MISSING, values.type))).as_py())


def holds_strings(kind: pa.DataType) -> bool:
    """Whether values of a type are strings, also as a dictionary."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


PADDED = re.compile(r'(?:^|[\s,;|"])0\d+(?=[\s,;|"]|$)')


def _text_of(path: Path) -> tuple[str, bool]:
    """Return the beginning of a file of text, and whether there may be numbers behind it that begin with a zero.

    Refuse a file that is no UTF-8 anywhere.
    """
    decoder, start, padded = codecs.getincrementaldecoder("utf-8-sig")(), "", False
    try:
        with pa.input_stream(str(path)) as file:  # decompresses .gz and the like by name
            while piece := file.read(PIECE):
                text = decoder.decode(piece)
                if "\0" in text:
                    raise UnicodeError("a null byte")  # noqa: TRY301 - the same sentence
                padded = padded or PADDED.search(text, 0 if start else HEAD) is not None
                start = start or text[:HEAD]
        decoder.decode(b"", final=True)
    except UnicodeError as error:
        raise InputError(f"{path} is not a text in UTF-8; save it as CSV in UTF-8, or as Parquet.") from error
    if not start.strip():
        raise InputError(f"{path} is empty.")
    return start, padded


@dataclass(frozen=True)
class Dialect:
    """How a CSV is to be read.

    Attributes
    ----------
    delimiter : str
        The one by which the first rows have as many fields as the header.
    decimal_point : str
    rows : list of list of str
        The first rows.
    padded : bool
        Whether there may be numbers behind them that begin with a zero.
    """

    delimiter: str
    decimal_point: str
    rows: list[list[str]]
    padded: bool

    @classmethod
    def of(cls, path: Path) -> Self:
        """Judge by the first rows."""
        start, padded = _text_of(path)
        delimiter, rows = _first_rows(start, tabs_first=_suffix(path) == ".tsv")
        comma = delimiter == ";" and any(re.fullmatch(r"-?\d+,\d+", field) for row in rows for field in row)
        return cls(delimiter, "," if comma else ".", rows, padded)

    @property
    def parse(self) -> Any:
        """How lines become fields."""
        return pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)

    def convert(self, types: Mapping[str, pa.DataType], columns: list[str] | None = None) -> Any:
        """How fields become values: by types, inferred where there is none; of all columns or some."""
        return pa.csv.ConvertOptions(
            column_types=types,
            include_columns=columns or [],
            null_values=MISSING,
            strings_can_be_null=True,
            auto_dict_encode=True,
            auto_dict_max_cardinality=10_000,
            decimal_point=self.decimal_point,
        )


def as_strings(names: list[str]) -> Any:
    """Say of a CSV that every field is a string, as it is."""
    return pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)


def _read_csv(path: Path, strings: Collection[str], *, raw: bool) -> pa.Table:
    dialect = Dialect.of(path)
    if raw:
        names = pa.csv.open_csv(path, parse_options=dialect.parse).schema.names
        return pa.csv.read_csv(path, parse_options=dialect.parse, convert_options=as_strings(names))

    def read(strings: Collection[str]) -> pa.Table:
        options = dialect.convert(dict.fromkeys(strings, pa.string()))
        return pa.csv.read_csv(path, parse_options=dialect.parse, convert_options=options)

    table = read(strings)
    codes = _codes(table, dialect.rows)
    if dialect.padded and (whole := [name for name in _whole_numbers(table) if name not in codes]):
        options = pa.csv.ConvertOptions(column_types=dict.fromkeys(whole, pa.string()), include_columns=whole)
        found = pa.csv.read_csv(path, parse_options=dialect.parse, convert_options=options)
        codes += [name for name in whole if is_padded(found[name])]
    return read({*strings, *codes}) if codes else table


def is_padded(column: pa.ChunkedArray) -> bool:
    """Whether a column of strings has numbers that begin with a zero, so that they are codes."""
    return pa.compute.any(pa.compute.match_substring_regex(column, r"^0\d+$")).as_py() or False


def _first_rows(start: str, *, tabs_first: bool) -> tuple[str, list[list[str]]]:
    """Return the delimiter of a CSV by which its first rows have as many fields as its header, and these rows."""

    def parsed(delimiter: str) -> list[list[str]]:
        rows = [row for row in csv.reader(io.StringIO(start, newline=""), delimiter=delimiter) if row]
        return rows[:-1] if len(start) >= HEAD and len(rows) > 1 else rows  # the last may be cut off

    def fits(rows: list[list[str]]) -> tuple[bool, float, int]:
        width = len(rows[0])
        return width > 1, sum(len(row) == width for row in rows) / len(rows), width

    found = {delimiter: parsed(delimiter) for delimiter in ("\t" * tabs_first) + DELIMITERS}
    delimiter = max(found, key=lambda d: fits(found[d]))
    return delimiter, found[delimiter][1:]


def _whole_numbers(table: pa.Table) -> list[str]:
    return [field.name for field in table.schema if pa.types.is_integer(field.type)]


def _codes(table: pa.Table, rows: list[list[str]]) -> list[str]:
    """Return columns that are strings, judged by the first rows: whole numbers that begin with a zero, and times of day."""
    whole = [j for j, field in enumerate(table.schema) if pa.types.is_integer(field.type)]
    padded = {j for row in rows if len(row) == table.num_columns for j in whole if re.fullmatch(r"0\d+", row[j])}
    times = {j for j, field in enumerate(table.schema) if pa.types.is_time(field.type)}  # "12:30" is not "12:30:00"
    return [table.column_names[j] for j in sorted(padded | times)]


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table in CSV or Parquet, by its name, whole or not at all."""
    write_tables(iter([table]), path)


def write_tables(tables: Iterator[pa.Table], path: Path) -> None:
    """Write tables of one schema, one at least, as one table: in CSV or Parquet, by its name, whole or not at all."""
    check_table_name(path, writing=True)
    options = pa.csv.WriteOptions(delimiter="\t" if _suffix(path) == ".tsv" else ",")

    def write(file: BinaryIO) -> None:
        writer: Any = None
        try:
            for table in tables:
                if is_parquet(path):
                    writer = writer or pa.parquet.ParquetWriter(file, table.schema)
                    writer.write_table(table)
                else:
                    plain = pa.table({name: _writable(table[name], name) for name in table.column_names})
                    writer = writer or pa.csv.CSVWriter(file, plain.schema, write_options=options)
                    writer.write_table(plain)
        finally:
            if writer is not None:
                writer.close()

    write_whole(path, write)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Undo the dictionary of a column of strings, which the CSV writer does not know."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _writable(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return a column as CSV can hold it, so that it can be read again."""
    column = _plain(column)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type) or pa.types.is_nested(column.type):
        raise InputError(f"CSV cannot hold the column {name!r} of the kind {column.type}; write Parquet, or drop it.")
    return column


def _suffix(path: Path) -> str:
    """Return the suffix, of a compressed CSV the one before."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() in {".gz", ".bz2", ".zst"} else path.suffix.lower()


def _first_line(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text.splitlines()[0][:200].rstrip(".") + "."
