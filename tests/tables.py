"""Tables as people have them, by hypothesis: types, names, missing values and files of many kinds, junk among them."""

import csv
import dataclasses
import datetime as dt
import decimal
import gzip
import io
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from hypothesis import strategies as st

SPELLINGS = ["", "NA", "?", "NaN", "null", "N/A"]
WORDS = [
    "red", "Köln", "a, b", 'say "hi"', "x;y", "two\nlines", "日本", " spaced ", "<b>", "it's", "1e", "-", "#1", "0x1f",
    "yes", "\u2028",
]  # fmt: skip
CODES = ["01", "02", "007", "10", "33"]
NAMES = [
    "age", "income", "größe", "a b", "x,y", 'q"q', "s;t", "tab\there", "new\nline", "日本", "<script>", "=1+1", "-x",
    "predicted", "probability of yes", "a = b", "A", "a", " a", "(missing)", "__index_level_0__", "class",
    "index", "n" * 300, "\u2028", "%s", "{}", "*", "p*", "[x", "a.b", "a\\b", "1", "nan", "NA", "\x1b[31m",
    "\ufeffb", "e\u0301",
]  # fmt: skip
UTC = dt.UTC
EPOCH = dt.datetime(2020, 1, 1)  # noqa: DTZ001 - tables have dates without a zone, too


def _whole(kind, low, high):
    def draw(rng, n):
        values = rng.integers(low, high, n, dtype=np.uint64 if low >= 0 else np.int64, endpoint=True)
        return pa.array(values.tolist(), kind)

    return draw


def _floats(kind, *special, scale=1.0):
    def draw(rng, n):
        values = (rng.normal(size=n) * scale).astype(kind.to_pandas_dtype())
        if special:
            values[rng.random(n) < 0.1] = special[int(rng.integers(len(special)))]
        return pa.array(values, kind, from_pandas=False)

    return draw


def _some(values, kind):
    def draw(rng, n):
        return pa.array([values[i] for i in rng.integers(len(values), size=n)], kind)

    return draw


def _moments(kind, step, zone=None):
    def draw(rng, n):
        return pa.array([EPOCH.replace(tzinfo=zone) + int(i) * step for i in rng.integers(-9000, 9000, n)], kind)

    return draw


def _decimals(rng, n):
    return pa.array([decimal.Decimal(int(i)).scaleb(-2) for i in rng.integers(-99999, 99999, n)], pa.decimal128(12, 2))


def _invalid(rng, n):
    """Strings in Parquet whose bytes are no UTF-8."""
    values = [b"K\xf6ln" if odd else b"Ulm" for odd in rng.random(n) < 0.1]
    return pa.Array.from_buffers(pa.string(), n, pa.array(values, pa.binary()).buffers())


def _names_of_people(rng, n):
    return pa.array([f"person {i}" for i in rng.permutation(n)])


DAY, SECOND = dt.timedelta(days=1), dt.timedelta(seconds=37)
# Every kind of column: what draws n values, and whether CSV can hold the same content.
KINDS = {
    **{f"int{b}": (_whole(getattr(pa, f"int{b}")(), -100, 100), True) for b in (8, 16, 32, 64)},
    **{f"uint{b}": (_whole(getattr(pa, f"uint{b}")(), 0, 200), True) for b in (8, 16, 32, 64)},
    "huge": (_whole(pa.int64(), -(2**63), 2**63 - 1), True),
    "huger": (_whole(pa.uint64(), 2**63, 2**64 - 1), True),
    "float64": (_floats(pa.float64()), True),
    "float32": (_floats(pa.float32()), True),
    "float16": (_floats(pa.float16()), True),
    "small": (_floats(pa.float64(), scale=1e-300), True),
    "nan": (_floats(pa.float64(), np.nan), True),
    "large": (_floats(pa.float64(), scale=1e30), True),
    "too large": (_floats(pa.float64(), 1e308, -1e308), True),
    "infinite": (_floats(pa.float64(), np.inf, -np.inf), True),
    "decimal": (_decimals, True),
    "boolean": (_some([True, False], pa.bool_()), True),
    "constant": (_some([7], pa.int32()), True),
    "words": (_some(WORDS, pa.string()), True),
    "few words": (_some(["red", "green", "blue"], pa.string()), True),
    "codes": (_some(CODES, pa.string()), True),
    "digits": (_some(["1", "2", "3"], pa.string()), True),
    "truths": (_some(["true", "false"], pa.string()), True),
    "missing words": (_some(["a", "b", *SPELLINGS], pa.string()), True),
    "odd words": (_some(["(missing)", "(other)", "nan", "None", "<NA>", "0", "0.0"], pa.string()), True),
    "dictionary": (lambda rng, n: _some(WORDS, pa.string())(rng, n).dictionary_encode(), True),
    "numbers in a dictionary": (lambda rng, n: _some([1, 2, 30], pa.int64())(rng, n).dictionary_encode(), True),
    "large_string": (_some(WORDS, pa.large_string()), True),
    "names": (_names_of_people, True),
    "date32": (_moments(pa.date32(), DAY), True),
    "date64": (_moments(pa.date64(), DAY), True),
    **{f"timestamp {u}": (_moments(pa.timestamp(u), SECOND), True) for u in ("s", "ms", "us", "ns")},
    "zone": (_moments(pa.timestamp("us", "Europe/Berlin"), SECOND, UTC), True),
    "utc": (_moments(pa.timestamp("ms", "UTC"), SECOND, UTC), True),
    "far dates": (_some([dt.date(9999, 12, 31), dt.date(1, 1, 1), dt.date(2020, 2, 29)], pa.date32()), True),
    "time": (_some([dt.time(12, 30), dt.time(0, 0, 1), dt.time(23, 59, 59)], pa.time32("s")), True),
    "duration": (_some([dt.timedelta(days=2), dt.timedelta(seconds=5)], pa.duration("us")), False),
    "binary": (_some([b"a", b"\xff\x00"], pa.binary()), False),
    "list": (_some([[1, 2], [], [3]], pa.list_(pa.int64())), False),
    "struct": (_some([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], pa.struct({"a": pa.int64(), "b": pa.string()})), False),
    "null": (lambda rng, n: pa.nulls(n), True),
    "no UTF-8": (_invalid, False),
}  # fmt: skip
PLAIN = ["int64", "float64", "few words", "boolean", "codes", "date32", "digits", "decimal", "zone", "dictionary"]
JUNK_KINDS = ["too large", "infinite", "no UTF-8"]
TARGETS = {
    "words": ["no", "yes", "per, haps", "Ä", "<i>"],
    "whole": [0, 1, 2, 5, -1],
    "codes": CODES,
    "floats": [0.0, 1.0, 2.0, 3.0, 4.0],
    "booleans": [False, True, False, True, False],
    "huge": [2**53 + i for i in range(5)],
}
NO_TARGETS = {
    "fractions": [0.5, 1.5, 2.5, 3.5, 4.5],
    "dates": [dt.date(2020, 1, 1 + i) for i in range(5)],
    "infinite": [1.0, float("inf"), 2.0, 3.0, 4.0],
    "nothing": [None] * 5,
}
GROUPS = {
    "words": ["women", "men", "a, b", "x|y", "日本", "<b>x</b>"],
    "odd": ["(missing)", "nan", "None", "1", "1.0", "women or men"],
    "whole": [1, 2, 3, 10, 20, 30],
    "huge": [2**53 + i for i in range(6)],
    "fractions": [0.5, 1.5, 2.0, 1e300, -0.0, 1e-3],
    "booleans": [True, False] * 3,
    "dates": [dt.date(2000 + i, 1, 1) for i in range(6)],
    "binary": [bytes([65 + i]) for i in range(6)],
    "lists": [[i] for i in range(6)],
    "long": [f"{i}" * 200 for i in range(6)],
    "lines": [f"line\n{i}\x1b[0m" for i in range(6)],
}


@dataclass(frozen=True)
class Dialect:
    """How a CSV is written."""

    delimiter: str = ","
    quoting: int = csv.QUOTE_MINIMAL
    ending: str = "\n"
    bom: bool = False
    gzipped: bool = False
    missing: str = ""
    truth: tuple[str, str] = ("true", "false")
    last_ending: bool = True
    comma: bool = False


@dataclass(frozen=True)
class Sample:
    """A table, what is asked of it, and the files it is written to."""

    table: pa.Table
    portable: bool
    target: str
    groups: list[str]
    model: str = "linear"
    dialect: Dialect | None = None
    out: str = "csv"
    junk: str = ""
    seed: int = 0
    options: tuple[str, ...] = ()
    pandas_index: bool = False

    def __repr__(self):
        about = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)[1:]}
        return f"{self.table.num_rows} rows of {self.table.schema.to_string(show_schema_metadata=False)!r}, {about}"

    @property
    def suffix(self):
        if self.dialect is None:
            return ".parquet"
        return ".csv.gz" if self.dialect.gzipped else ".csv"

    def write(self, folder, stem, rows=None, *, other=False):
        """Write these rows, or all, in the sample's format or in the other; return the file's name."""
        table = self.table if rows is None else self.table.take(pa.array(rows, pa.int64()))
        dialect = self.dialect if not other else None if self.dialect is not None else Dialect()
        name = f"{stem}{replace(self, dialect=dialect).suffix}"
        if dialect is None:
            if self.pandas_index:
                table = table.append_column("__index_level_0__", pa.array(np.arange(len(table)) * 7))
            pa.parquet.write_table(table, folder / name)
        else:
            content = _damaged(to_csv(table, dialect), self.junk if rows is None else "", dialect)
            (folder / name).write_bytes(gzip.compress(content) if dialect.gzipped else content)
        return name


def fields(table, dialect):
    """Return the rows of a table as the strings that a CSV has."""
    columns = [[_field(value, dialect) for value in column.to_pylist()] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _field(value, dialect):
    if value is None:
        return dialect.missing
    if isinstance(value, bool):
        return dialect.truth[0 if value else 1]
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat(*([" "] if isinstance(value, dt.datetime) else []))
    return str(value).replace(".", ",") if dialect.comma and isinstance(value, float | decimal.Decimal) else str(value)


def to_csv(table, dialect):
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=dialect.delimiter, quoting=dialect.quoting, lineterminator=dialect.ending)
    writer.writerow(table.column_names)
    writer.writerows(fields(table, dialect))
    content = text.getvalue()
    if not dialect.last_ending:
        content = content.removesuffix(dialect.ending)
    return (("\ufeff" if dialect.bom else "") + content).encode()


def _damaged(content, junk, dialect):
    """Do to a CSV what people and programs do to CSVs."""
    end, delimiter = dialect.ending.encode(), dialect.delimiter.encode()
    lines = content.split(end)
    middle = len(lines) // 2
    spoilt = {
        "latin-1": lines[middle] + b"\xe4",
        "null byte": lines[middle] + b"\0",
        "ragged": lines[middle] + delimiter + b"1",
        "short row": lines[middle].rsplit(delimiter, 1)[0],
        "open quote": lines[middle] + b'"x',
    }
    whole = {
        "trailing delimiters": end.join(line + delimiter if line else line for line in lines),
        "comment": b"# made by hand" + end + content,
        "blank lines": end.join([b"", *lines[:middle], b"", *lines[middle:], b"", b""]),
        "only a header": lines[0] + end,
        "empty": b"",
        "utf-16": content.decode("utf-8-sig").encode("utf-16"),
        "cut": content[: len(content) // 2],
        "no header": end.join(lines[1:]),
    }
    if junk in spoilt:
        return end.join([*lines[:middle], spoilt[junk], *lines[middle + 1 :]])
    return whole.get(junk, content)


JUNK = [
    "latin-1", "null byte", "ragged", "short row", "open quote", "trailing delimiters", "comment", "blank lines",
    "only a header", "empty", "utf-16", "cut", "no header",
]  # fmt: skip
often = st.sampled_from


def mostly(value, strategy, share=0.8):
    """Mostly a plain value, now and then one of a strategy."""
    return st.floats(0, 1, exclude_max=True).flatmap(lambda u: st.just(value) if u < share else strategy)


@st.composite
def dialects(draw):
    delimiter = draw(often(",,,;\t|"))
    return Dialect(
        delimiter=delimiter,
        quoting=draw(often([csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])),
        comma=delimiter == ";" and draw(st.booleans()),
        ending=draw(often(["\n", "\n", "\r\n", "\r"])),
        bom=draw(mostly(False, st.just(True))),
        gzipped=draw(mostly(False, st.just(True))),
        missing=draw(often(SPELLINGS)),
        truth=draw(often([("true", "false"), ("True", "False"), ("TRUE", "FALSE"), ("1", "0")])),
        last_ending=draw(mostly(True, st.just(False))),
    )


def with_missing(rng, column, share):
    """Return a column without a share of its values."""
    if share == 0 or pa.types.is_null(column.type):
        return column
    gone = rng.random(len(column)) < share
    return column.take(pa.array(np.arange(len(column)), mask=gone))


@st.composite
def samples(draw):
    rng = np.random.default_rng(seed := draw(st.integers(0, 2**32 - 1)))
    strange = draw(mostly(False, st.just(True), 0.75))  # most tables can be learned from
    n = draw(often([12, 25, 40, 60, 90, 150, 300])) if not strange else draw(often([0, 1, 2, 3, 5, 20, 60]))
    n_classes = draw(often([2, 2, 2, 3, 5] if not strange else [1, 2, 4]))
    n_groups = draw(often([2, 2, 3, 4, 6, 1]))
    number = draw(often([1, 1, 2, 3, 4, 5]))
    name = often(NAMES) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=12)
    names = draw(st.lists(name, min_size=number + 4, max_size=number + 4, unique=not strange or draw(st.booleans())))
    kind = st.one_of(often(PLAIN), often([k for k in KINDS if k not in JUNK_KINDS]))
    kinds = draw(st.lists(kind if not strange else often([*KINDS]), min_size=number, max_size=number))
    y, a = rng.integers(n_classes, size=n), rng.choice(n_groups, n, p=rng.dirichlet(np.full(n_groups, 3.0)))
    columns = [with_missing(rng, KINDS[kind][0](rng, n), draw(often([0, 0, 0.1, 0.5]))) for kind in kinds]
    informative = pa.array((y + a + rng.normal(size=n)).round(2))
    target = draw(_target(rng, y, strange=strange))
    sensitive, group_portable = draw(_groups(rng, a))
    chosen = names[number + 1 : number + 1 + len(sensitive)]
    order = draw(st.permutations(range(number + 2 + len(sensitive))))
    columns = [*columns, informative, target, *sensitive]
    names = [*names[: number + 1], "answer" if draw(st.booleans()) else names[-1], *chosen]
    table = pa.table([columns[i] for i in order], [names[i] for i in order])
    portable = group_portable and all(KINDS[kind][1] for kind in kinds)
    dialect = draw(st.none() | dialects()) if portable else None
    return Sample(
        table,
        portable,
        target=names[number + 1],
        groups=chosen,
        model=draw(often(["linear"] * 6 + ["mlp", "boosting", "boosting", "head"])),
        dialect=dialect,
        out=draw(often(["csv", "csv", "parquet", "tsv"])),
        junk=draw(often(JUNK)) if strange and dialect is not None else "",
        seed=seed,
        options=draw(
            often(
                [
                    (),
                    (),
                    (),
                    ("--small-cells", "merge", "--min-cell-size", "2"),
                    ("--missing-groups", "ignore"),
                    ("--missing-groups", "infer"),
                ]
            )
        ),
        pandas_index=draw(st.booleans()) and "__index_level_0__" not in table.column_names,
    )


@st.composite
def _target(draw, rng, y, *, strange):
    labels = draw(often([*(NO_TARGETS if strange and draw(st.booleans()) else TARGETS).values()]))
    return with_missing(rng, pa.array([labels[k] for k in y]), draw(often([0, 0, 0, 0.1])))


@st.composite
def _groups(draw, rng, a):
    """Columns of groups, and whether CSV can hold them."""
    kinds = [draw(mostly("words", often([*GROUPS]), 0.5))]
    if draw(mostly(False, st.just(True))):
        kinds.append(draw(often(["words", "whole", "booleans"])))
    columns = [
        with_missing(
            rng,
            pa.array([GROUPS[kind][k] for k in (a if j == 0 else rng.integers(2, size=len(a)))]),
            draw(often([0, 0, 0, 0.1, 0.3])),
        )
        for j, kind in enumerate(kinds)
    ]
    return columns, not {"binary", "lists"} & set(kinds)
