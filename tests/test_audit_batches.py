"""An audit reads by batches: it says what it says of the table in one piece, and does not keep the table in memory."""

import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from command import run_here
from fairdro._utils import parts as parts_module
from fairdro._utils.parts import Parts
from fairdro.audit import audit_table, inputs
from fairdro.audit import cells as cells_module
from fairdro.audit.outputs import to_dict
from fairdro.errors import InputError
from test_audit import people


def table_of(seed=0):
    """People with missing values everywhere, numbers as labels, and a race and a class that only the last rows have."""
    table, rng = people(1200, seed), np.random.default_rng(seed)
    table["race"] = table["race"].astype(object)
    for name in ("race", "fit", "old", "p"):
        table.loc[rng.random(len(table)) < 0.03, name] = None
    table.loc[1150:, "race"] = "of the last file"
    table["grade"] = pd.array(rng.integers(1, 4, len(table)), dtype="Int64")
    table.loc[table.index[1190:], "grade"] = 7
    table["level"] = table["grade"].where(rng.random(len(table)) < 0.7, 2)
    table.loc[rng.random(len(table)) < 0.03, "level"] = None
    table["age"] = np.where(rng.random(len(table)) < 0.02, np.nan, rng.integers(2, 5, len(table)) * 10.0)
    return table


def files_of(table, folder, kind):
    folder.mkdir()
    for i, rows in enumerate((table[:500], table[500:1150], table[1150:])):
        if kind == "csv":
            rows.to_csv(folder / f"{i}.csv", index=False)
        else:
            pa.parquet.write_table(
                pa.Table.from_pandas(rows, preserve_index=False), folder / f"{i}.parquet", row_group_size=90
            )
    return Parts.of([folder])


OPTIONS = [
    {"groups": ["sex", "race"], "predictions": ["old"]},
    {"groups": ["sex", "race"], "predictions": ["old", "new"], "target": "fit", "score": "p", "missing_groups": "ignore"},
    {"groups": ["race", "age"], "predictions": ["old"], "target": "fit", "score": "p", "threshold": 0.3},
    {"groups": ["sex", "age"], "predictions": ["level"], "target": "grade", "fair_classes": ["1", "7"]},
    {"groups": ["age"], "score": "p"},
]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("earlier", [False, True])
def test_many_files_by_batches_are_the_table_in_one_piece(tmp_path, monkeypatch, kind, options, earlier):
    now, before = table_of(), table_of(1)
    expected = to_dict(audit_table(now, **options, earlier=before if earlier else None))
    monkeypatch.setattr(parts_module, "BATCH_ROWS", 70)
    monkeypatch.setattr(inputs, "BATCH_ROWS", 70)
    then = files_of(before, tmp_path / "before", kind) if earlier else None
    steps = []
    found = audit_table(files_of(now, tmp_path / "now", kind), **options, earlier=then, stage=lambda _: told(steps))
    assert to_dict(found) == expected
    assert steps
    assert to_dict(audit_table(now, **options, earlier=before if earlier else None)) == expected
    if options["groups"] == ["sex", "race"]:
        assert found.parts[1].rates[0].table.loc["of the last file", "rows"] > 0


@contextmanager
def told(steps):
    yield lambda done, total: steps.append((done, total))


def test_counts_in_messages_are_those_of_rows(tmp_path):
    table = people(400).assign(race=["a", "b", "b", None] * 100)
    with pytest.raises(InputError, match=r"'race' has missing values \(100 of 400\)"):
        audit_table(table, groups=["race"], predictions=["old"], missing_groups="refuse")
    many = table.assign(race=[f"{i % 60}" for i in range(400)])
    with pytest.raises(InputError, match=r"make 60 groups of 400 rows, too many to mean anything \(at most 50\)"):
        audit_table(many, groups=["race"], predictions=["old"])


def test_a_prediction_may_be_the_target_and_a_group_a_list():
    table = people(400).assign(kind=[[1], [2, 3]] * 200)
    audit = audit_table(table, groups=["kind"], predictions=["old"], target="old")
    assert audit.parts[0].judged[0].confusion.metric("accuracy") == 1
    assert audit.parts[0].rates[0].table.index.tolist() == ["[1]", "[2, 3]"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"groups": ["sex"], "predictions": ["id"]}, "The column 'id' has more than 100 different values, too many for"),
        ({"groups": ["sex", "id"], "predictions": ["old"]}, "The sensitive features make more than 1000 groups"),
        ({"groups": ["sex"], "predictions": ["p"]}, "'p' holds fractions, so it is a score rather than classes"),
    ],
)
def test_too_many_values_are_refused_before_all_rows_are_read(monkeypatch, options, sentence):
    monkeypatch.setattr(cells_module, "MOST_CELLS", 1500)
    monkeypatch.setattr(inputs, "BATCH_ROWS", 500)
    table = people(3000).assign(id=lambda t: np.arange(len(t)))
    with pytest.raises(InputError, match=sentence):
        audit_table(table, **options)


def test_many_cells_of_few_values_are_no_reason_to_refuse(monkeypatch):
    options = {"groups": ["sex", "race"], "predictions": ["old", "new"], "target": "fit"}
    expected = to_dict(audit_table(people(), **options))
    monkeypatch.setattr(cells_module, "MOST_CELLS", 3)
    assert to_dict(audit_table(people(), **options)) == expected


def test_a_score_that_is_no_number_in_a_later_batch_is_shown(monkeypatch):
    monkeypatch.setattr(inputs, "BATCH_ROWS", 50)
    strings = [str(i) for i in range(300)]
    table = people(300).assign(p=strings)
    with pytest.raises(InputError, match="must hold numbers to be a score, but has '0'"):
        audit_table(table, groups=["race"], score="p")
    with pytest.raises(InputError, match=r"must hold numbers to be a score, but has 'n\.a\.'"):
        audit_table(table.assign(p=[*strings[:-1], "n.a."]), groups=["race"], score="p")


def test_what_breaks_between_files_is_one_sentence(tmp_path):
    ask = ("--prediction", "old", "--group", "race", "--out", "audit.md")
    files_of(table_of(), tmp_path / "broken", "parquet")
    path = tmp_path / "broken/1.parquet"
    content = bytearray(path.read_bytes())
    content[200 : len(content) // 2] = bytes(len(content) // 2 - 200)  # the end, which has the schema, stays
    path.write_bytes(content)
    files_of(table_of(), tmp_path / "changed", "parquet")
    changed = pa.Table.from_pandas(table_of()[1150:].assign(old=1), preserve_index=False)
    pa.parquet.write_table(changed, tmp_path / "changed/2.parquet")
    for folder, sentence in (("broken", "1.parquet"), ("changed", "The column 'old' holds strings in")):
        done = run_here("audit", folder, *ask, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert sentence in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "audit.md").exists()


MEASURE = """
import resource, sys
from fairdro.cli import main
few, many, *arguments = sys.argv[1:]
for path in (few, many):
    sys.argv = ["fairdro", "audit", path, *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.parametrize(("score", "bytes_per_row"), [pytest.param((), 8, marks=pytest.mark.slow), (("--score", "p"), 48)])
def test_memory_is_that_of_counts_and_scores(tmp_path, score, bytes_per_row):
    """Of 1.5 million rows, strings alone took more than 300 bytes each when all were read at once."""
    unit = 1 if sys.platform == "darwin" else 1024
    few, n = people(100_000), 15
    few["sex"] = few["sex"].fillna("female")
    batch = pa.Table.from_pandas(few, preserve_index=False)
    pa.parquet.write_table(batch, tmp_path / "few.parquet")
    with pa.parquet.ParquetWriter(tmp_path / "many.parquet", batch.schema) as writer:
        for _ in range(n):
            writer.write_table(batch)
    paths = [str(tmp_path / name) for name in ("few.parquet", "many.parquet")]
    arguments = ["--prediction", "old", "--target", "fit", "--group", "sex", "--group", "race", *score]
    command = [sys.executable, "-c", MEASURE, *paths, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, second = (int(line.split()[1]) * unit for line in done.stdout.splitlines() if line.startswith("peak "))
    assert second - first < 40 * 2**20 + bytes_per_row * len(few) * n


def test_bins_periods_and_columns_nobody_asked_about():
    table = pd.DataFrame({"age": np.r_[20:80].repeat(10), "hired": [0, 1, 1] * 200, "id": [1, "a"] * 300})
    table = table.assign(bin=pd.cut(table["age"], 3), year=pd.to_datetime("2020-01-01"))
    table["year"] = (table["year"] + pd.to_timedelta(table["age"] * 100, "D")).dt.to_period("Y")
    for name in ("bin", "year"):
        audit = audit_table(table, groups=[name], predictions=["hired"])
        assert audit.rows == 600
        assert audit.parts[0].grouping.names[0] == str(table[name].min())


@pytest.mark.parametrize("threshold", [0.1, 0.2, 0.3, 0.6, 0.7, 0.8])
def test_a_score_that_equals_the_threshold_is_not_above_it_in_any_precision(threshold):
    scores = np.repeat([0.1, 0.2, 0.3, 0.6, 0.7, 0.8], 100)
    for kind in (np.float32, np.float64):
        table = pd.DataFrame({"s": scores.astype(kind), "sex": ["f", "m"] * 300})
        (rates,) = audit_table(table, groups=["sex"], score="s", threshold=threshold).parts[0].rates
        assert (rates.table["rate"] * rates.table["rows"]).sum() == pytest.approx((table["s"] > threshold).sum())


def test_labels_of_unsigned_numbers_are_those_of_others():
    table = pa.table({"pred": pa.array([0, 1] * 50, pa.uint64()), "y": [1, 1] * 50, "sex": ["f", "m"] * 50})
    audit = audit_table(table, groups=["sex"], predictions=["pred"], target="y", favourable="1")
    assert audit.favourable == "1"


def test_lists_with_a_missing_number_are_the_same_in_every_batch(monkeypatch):
    monkeypatch.setattr("fairdro.audit.inputs.BATCH_ROWS", 10)
    lists = [[1]] * 30 + [[2]] * 30 + [[1, None]] * 5
    table = pa.table({"kind": pa.array(lists), "hired": ["yes", "no", "no"] * 21 + ["yes", "no"]})
    assert audit_table(table, groups=["kind"], predictions=["hired"]).parts[0].grouping.names == ["[1, None]", "[1]", "[2]"]


def test_other_types_of_arrow():
    strings = pa.array(["f", "m"] * 50)
    table = pa.table({"sex": strings.cast(pa.string_view()), "half": pa.array(np.arange(100) % 2, pa.float16())})
    table = table.append_column("s", pa.array(np.arange(100) + 2**60))
    assert audit_table(table, groups=["sex"], predictions=["half"]).parts[0].grouping.names == ["f", "m"]
    assert audit_table(table, groups=["sex"], score="s").rows == 100
    with pytest.raises(InputError, match="two columns named 'sex'"):
        audit_table(pa.table([strings, strings, strings], names=["sex", "sex", "y"]), groups=["sex"], predictions=["y"])


def test_the_earlier_table_is_named_where_it_is_refused():
    table = pd.DataFrame({"sex": ["f", "m"] * 50, "hired": ["yes", "no", "no", "yes"] * 25})
    with pytest.raises(InputError, match=r"Of the earlier table: There is one group only"):
        audit_table(table, groups=["sex"], predictions=["hired"], earlier=table[table["sex"] == "f"])


def test_a_sensitive_column_without_values_is_named():
    table = pd.DataFrame({"sex": ["f", "m"] * 50, "race": [None] * 100, "hired": ["yes", "no", "no", "yes"] * 25})
    with pytest.raises(InputError, match="No row has a value of 'race'; leave it out"):
        audit_table(table, groups=["sex", "race"], predictions=["hired"])
