"""Many files as one table: the table of one file, whatever its cuts; what does not fit together is one sentence."""

import gzip
import io

import hypothesis
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import strategies as st

from fairdro._utils import parts as module
from fairdro._utils.files import read_table
from fairdro._utils.parts import Parts, files_of
from fairdro.errors import InputError

FIELDS = {
    "whole": ["1", "22", "-3", "0", ""],
    "bits": ["0", "1", "NA"],
    "truths": ["true", "FALSE", "0", "1", "?"],
    "fractions": ["1", "2.5", "1e3", "nan"],
    "codes": ["12", "3", "007", ""],
    "dates": ["2020-01-01", "2021-05-06", ""],
    "moments": ["2020-01-01", "2020-01-01 10:00:00", "2020-01-01T10:00:00.5"],
    "zones": ["2020-01-01 10:00:00Z", "2020-01-01 10:00:00+01:00", "2020-01-01"],
    "times": ["12:30", "01:15", ""],
    "strings": ["red", "blue", "7", "", "two\nlines", 'say "hi"', "a,b", " "],
    "mixed": ["5", "2020-01-01", "12:30", "true"],
    "nothing": ["", "NA"],
    "large": ["9", "12345678901234567890"],
}


@st.composite
def texts(draw):
    """A CSV, a row per line."""
    kinds = draw(st.lists(st.sampled_from([*FIELDS]), min_size=2, max_size=5))
    n = draw(st.integers(1, 40))
    columns = {f"{kind} {j}": [draw(st.sampled_from(FIELDS[kind])) for _ in range(n)] for j, kind in enumerate(kinds)}
    sink = io.BytesIO()
    pa.csv.write_csv(pa.table(columns), sink)
    return sink.getvalue()


@hypothesis.given(texts(), st.integers(40, 400))
def test_a_csv_by_blocks_is_the_csv_at_once(tmp_path_factory, text, block):
    path = tmp_path_factory.mktemp("t") / "t.csv"
    path.write_bytes(text)
    longest = max(len(line) for line in text.split(b'"\n"')) + 20
    size = pa.csv.ReadOptions(block_size=max(block, 2 * longest))
    with pytest.MonkeyPatch.context() as patch:
        honest = pa.csv.open_csv
        patch.setattr(pa.csv, "open_csv", lambda *args, **options: honest(*args, read_options=size, **options))
        found = Parts.of([path]).read()
    expected = read_table(path)
    assert found.column_names == expected.column_names
    assert [str(kind) for kind in found.schema.types] == [str(kind) for kind in expected.schema.types]
    assert found.to_pylist() == expected.to_pylist()


LAST_DAY = 253_402_214_400_000_000  # 9999-12-31 in microseconds


def write(folder, **files):
    for name, columns in files.items():
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        pa.parquet.write_table(table, folder / f"{name}.parquet", row_group_size=3)
    return [folder / f"{name}.parquet" for name in files]


def test_types_that_go_together(tmp_path):
    write(
        tmp_path,
        a={"n": pa.array([1, 2], pa.int32()), "x": pa.array([1.5, 2], pa.float32()), "s": ["a", "?"], "d": pa.nulls(2),
           "i": pa.array([1, 2]), "__index_level_0__": [0, 1]},
        b={"s": pa.array(["b", "NA"]).dictionary_encode(), "n": pa.array([3, 4], pa.int64()), "x": pa.array([2.5, None]),
           "d": pa.array([0, 1], pa.date32()), "i": pa.array([1.5, 2])},
        c={"s": pa.array(["c", None], pa.large_string()), "n": pa.array([5, None], pa.uint8()), "x": pa.array([0.5, 0]),
           "d": pa.array([0, 1], pa.timestamp("us")), "i": pa.array([1, 2], pa.int8())},
    )  # fmt: skip
    parts = Parts.of([tmp_path])
    table = parts.read()
    strings = pa.dictionary(pa.int32(), pa.large_string())
    assert table.schema.types == [pa.int64(), pa.float64(), strings, pa.timestamp("us"), pa.float64()]
    assert table["n"].to_pylist() == [1, 2, 3, 4, 5, None]
    assert table["s"].to_pylist() == ["a", None, "b", None, "c", None]
    assert parts.read({"x", "n"}).column_names == ["n", "x"]
    assert parts.rows == 6


def test_files_in_order_and_by_batches(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    paths = write(tmp_path, **{f"p{i}": {"x": rng.normal(size=7), "i": np.arange(7 * i, 7 * i + 7)} for i in range(5)})
    assert files_of([tmp_path]) == files_of([tmp_path / "*.parquet"]) == paths
    assert files_of(paths[::-1]) == paths[::-1]  # as they are named
    (tmp_path / "more").mkdir()
    more = write(tmp_path / "more", a={"x": [1.0]}, b={"x": [2.0]})
    assert files_of([paths[3], tmp_path / "more", tmp_path / "p[12].parquet"]) == [paths[3], *more, *paths[1:3]]
    monkeypatch.setattr(module, "BATCH_ROWS", 4)
    seen = [(table["i"].to_pylist(), numbers.tolist()) for table, numbers in Parts.of(paths).batches()]
    assert all(found == numbers for found, numbers in seen)
    assert [i for found, _ in seen for i in found] == list(range(35))
    shares = [Parts.of(paths).share(rank, 4) for rank in range(4)]
    rows = [
        (found, number)
        for share in shares
        for table, numbers in Parts.of(paths).batches(parts=share)
        for found, number in zip(table["i"].to_pylist(), numbers.tolist(), strict=True)
    ]
    assert all(found == number for found, number in rows)
    assert sorted(found for found, _ in rows) == list(range(35))


def test_files_without_rows_and_others_beside_them_are_passed_over(tmp_path):
    write(tmp_path, a={"x": pa.array([], pa.int64())}, b={"x": [1, 2]}, c=pa.table({}))
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "b.parquet.bak").write_text("of old")
    assert Parts.of([tmp_path]).read()["x"].to_pylist() == [1, 2]
    folder = tmp_path / "csv"
    folder.mkdir()
    for name, text in {
        "a.csv": "x,y\n",
        "b.csv": "",
        "c.csv": "x,y\n1,u\n",
        "d.csv.bak": "of old",
        "e.csv": "x,y\n2,v\n",
        "f.csv": "x,y",
        "g.csv": "\n",
        "h.csv": "\ufeff",
    }.items():
        csv_file(folder, name, text)
    (folder / "i.csv.gz").write_bytes(gzip.compress(b""))
    parts = Parts.of([folder])
    assert parts.read().to_pydict() == {"x": [1, 2], "y": ["u", "v"]}
    assert [part.first for part in parts.parts] == [0, 1]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_that_changes_between_two_passes_is_refused(tmp_path, kind):
    def write_rows(values):
        table = pd.DataFrame({"x": values})
        table.to_csv(tmp_path / "a.csv", index=False) if kind == "csv" else table.to_parquet(tmp_path / "a.parquet")

    write_rows([1, 2, 3])
    parts = Parts.of([tmp_path / f"a.{kind}"])
    assert parts.read().num_rows == 3
    for values in ([1, 2], [1, 2, 3, 4], [3, 2, 1]):
        write_rows(values)
        with pytest.raises(InputError, match="has changed while it was read; start again"):
            parts.read()


def test_the_last_step_is_all_rows(tmp_path):
    told = []
    parts = Parts.of(write(tmp_path, a={"x": [1, 2]}, b={"x": [3]}))
    for _ in parts.batches(on_step=lambda *step: told.append(step)):
        pass
    for _ in parts.raw_batches(on_step=lambda *step: told.append(step)):
        pass
    assert told == [(3, 3), (3, 3)]


def test_looking_at_a_large_csv_tells_how_far_it_has_come(tmp_path):
    csv_file(tmp_path, "a.csv", "x\n" + "1234567\n" * 400_000)
    csv_file(tmp_path, "b.csv", "x\n1\n")
    told = []
    Parts.of([tmp_path], on_step=lambda *step: told.append(step))
    sizes = [(tmp_path / name).stat().st_size for name in ("a.csv", "b.csv")]
    assert {total for _, total in told} == {sum(sizes)}
    done = [step for step, _ in told]
    assert done == sorted(done)
    assert len([step for step in done if step < sizes[0]]) >= 2  # within the first file
    assert done[-1] == sum(sizes)


def csv_file(folder, name, text):
    (folder / name).write_text(text)


def test_codes_of_csv_are_strings_in_all_files(tmp_path):
    csv_file(tmp_path, "a.csv", "zip,n\n90210,1\n10001,2\n")
    csv_file(tmp_path, "b.csv", "n;zip\n2,5;01234\n1;02345\n")
    csv_file(tmp_path, "c.csv", "zip,n\n70001,1\n10002,\n")
    table = Parts.of([tmp_path]).read()
    assert table["zip"].to_pylist() == ["90210", "10001", "01234", "02345", "70001", "10002"]
    assert table["n"].to_pylist() == [1, 2, 2.5, 1, 1, None]


def broken(folder, *, at):
    paths = write(folder, **{f"p{i}": {"x": np.arange(3000.0), "s": ["a"] * 3000} for i in range(3)})
    content = bytearray(paths[1].read_bytes())
    if at == "end":
        content = content[:-100]
    else:
        content[4:60] = bytes(56)
    paths[1].write_bytes(content)


def flipped(folder):
    """A file with checksums, in which a bit of a number is not as it was written."""
    (path,) = write(folder, a={})
    numbers = np.arange(3000.0)
    pa.parquet.write_table(
        pa.table({"x": numbers}), path, write_page_checksum=True, use_dictionary=False, compression="none"
    )
    content = bytearray(path.read_bytes())
    content[content.index(numbers[1000:1100].tobytes())] ^= 1
    path.write_bytes(content)
    return path


def moments(zone):
    return pa.array([0], pa.timestamp("ms", zone))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda f: write(f, a={"x": [1]}, b={"x": ["u"]}), "'x' holds numbers in .*a.parquet, but strings in .*b.parquet"),
        (lambda f: write(f, a={"x": pa.nulls(1)}, b={"x": ["u"]}, c={"x": [1]}), "strings in .*b.*, but numbers in .*c"),
        (lambda f: write(f, a={"x": [1], "y": [1]}, b={"x": [1]}), "b.parquet has no column 'y', but .*a.parquet has"),
        (lambda f: write(f, a={"x": [1]}, b={"x": [1], "z": [1]}), "a.parquet has no column 'z', but .*b.parquet has"),
        (lambda f: write(f, b={"x": pa.array([], pa.int64())}), "b.parquet holds no rows"),
        (lambda f: write(f, a=pa.table([[1], [2]], names=["x", "x"])), "a.parquet has two columns named 'x'"),
        (lambda f: broken(f, at="end"), "Cannot read .*p1.parquet"),
        (lambda f: broken(f, at="start"), "Cannot read .*p1.parquet"),
        (lambda f: csv_file(f, "a.csv", "x\n") or csv_file(f, "b.csv", "x\n"), "a.csv holds no rows"),
        (lambda f: csv_file(f, "a.csv", ""), "a.csv is empty"),
        (lambda f: csv_file(f, "a.csv", " \n"), "a.csv is empty"),
        (
            lambda f: write(
                f, a={"x": pa.array([0], pa.timestamp("ns"))}, b={"x": pa.array([LAST_DAY], pa.timestamp("us"))}
            ),
            r"'x' holds a value of the type timestamp\[us\] in one file that does not fit into the type timestamp\[ns\]",
        ),
        (flipped, "Cannot read .*a.parquet"),
        (
            lambda f: write(f, a={"x": moments("UTC")}, b={"x": moments("Europe/Berlin")}),
            "'x' holds dates in the time zone UTC in .*a.parquet, but dates in the time zone Europe/Berlin in .*b.parquet",
        ),
        (
            lambda f: write(f, a={"x": moments(None)}, b={"x": moments("UTC")}),
            "dates without a time zone in .*a.parquet, but dates in the time zone UTC in .*b.parquet",
        ),
        (lambda f: csv_file(f, "a.csv", "x,y\n1,2\n3\n"), "Cannot read .*a.csv"),
        (lambda f: csv_file(f, "a.csv", "x,x\n1,2\n"), "two columns named 'x'"),
        (lambda f: csv_file(f, "a.csv", "x,y\n1,2\n") or csv_file(f, "b.csv", "x,y\n1,u\n"), "'y' holds numbers in .*a.csv"),
        (lambda f: csv_file(f, "a.csv", "x\n1\n") or write(f, b={"x": [1]}), "different formats"),
        (lambda f: None, "holds no tables"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(tmp_path, make, sentence):
    make(tmp_path)
    with pytest.raises(InputError, match=sentence):
        Parts.of([tmp_path]).read()


def test_names_that_fit_no_file(tmp_path):
    with pytest.raises(InputError, match="There is no file like"):
        files_of([tmp_path / "*.csv"])
    with pytest.raises(InputError, match="There is no file"):
        Parts.of([tmp_path / "no.csv"])
    (path,) = write(tmp_path, a={"x": [1, 2, 3, 4]})
    with pytest.raises(InputError, match="named twice"):
        files_of([path, path])
    with pytest.raises(InputError, match="There are 2 row groups for 3 processes; start fewer"):
        Parts.of([path]).share(0, 3)


def test_checksums_are_verified_in_one_file_too(tmp_path):
    with pytest.raises(InputError, match="Cannot read"):
        read_table(flipped(tmp_path))


def test_views_are_strings_and_bytes(tmp_path):
    columns = {"s": pa.array(["a", "?", None], pa.string_view()), "b": pa.array([b"\xff", b"", None], pa.binary_view())}
    (path,) = write(tmp_path, a=columns)
    for table in (read_table(path), Parts.of([path]).read()):
        assert table.to_pydict() == {"s": ["a", None, None], "b": [b"\xff", b"", None]}
        assert table.schema.field("b").type == pa.binary()
    ((_, raw),) = Parts.of([path]).raw_batches()
    assert raw.schema.types == [pa.string(), pa.binary()]
    assert raw["s"].to_pylist() == ["a", "?", None]


def test_long_strings_that_are_short_in_the_file_are_read_in_little_memory(tmp_path):
    few = pa.array(["x" * 1000, "y" * 1000, "NA"]).take(pa.array(np.arange(60_000) % 3))
    for name, strings in {"a": few, "b": few.cast(pa.large_string()), "c": few.cast(pa.string_view())}.items():
        pa.parquet.write_table(pa.table({"s": strings}), tmp_path / f"{name}.parquet")
        parts = Parts.of([tmp_path / f"{name}.parquet"])
        before = pa.total_allocated_bytes()
        table = parts.read()
        assert table["s"].null_count == 20_000
        assert pa.total_allocated_bytes() - before < 1 << 20  # 40 MB as they are
        assert max(raw.nbytes for raw in parts.parts[0].raw()) < 1e7
    names = pa.array([f"{i:0100}" for i in range(60_000)])  # which are as long in the file
    pa.parquet.write_table(pa.table({"s": few, "n": names}), path := tmp_path / "d.parquet")
    assert [pa.types.is_dictionary(kind) for kind in Parts.of([path]).read().schema.types] == [True, False]
