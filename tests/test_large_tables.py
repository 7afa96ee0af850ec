"""Tables larger than memory: the model of the table in memory, and nothing left behind whatever happens."""

import contextlib
import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import hypothesis
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import strategies as st

import fairdro
from command import run_here
from fairdro._utils import parts as parts_module
from fairdro._utils.files import read_table, write_table
from fairdro._utils.parts import Parts
from fairdro.errors import InputError
from fairdro.estimators import TableEncoder, large_tables, summaries
from fairdro.estimators.columns import as_pandas
from fairdro.estimators.large_tables import fit_files, fit_parts
from fairdro.estimators.summaries import Summary, summaries_of
from fairdro.estimators.tables import fit_table, predict_table, string_columns
from ranks import on_two_processes

ASKED = ("--target", "income", "--group", "sex", "--group", "race")
KINDS = {
    "whole": pa.int64(),
    "fractions": pa.float32(),
    "truths": pa.bool_(),
    "dates": pa.date32(),
    "moments": pa.timestamp("us", "UTC"),
    "strings": pa.string(),
    "nothing": pa.null(),
}


def people(n, seed=0, *, last=False):
    """Rows of people, with missing values; a category of its own in the last file."""
    rng = np.random.default_rng(seed)
    sex, race = rng.choice(["f", "m"], n), rng.choice([1, 2], n)
    age = rng.integers(18, 80, n).astype(float)
    score = rng.normal(size=n) + 0.6 * (sex == "m") + 0.02 * (age - 50)
    city = rng.choice(["Ulm", "Köln", "Bonn", "?"], n)
    return pa.table(
        {
            "age": pa.array(age, mask=rng.random(n) < 0.05),
            "score": score,
            "city": np.where(rng.random(n) < 0.3, "Rom", city) if last else city,
            "since": pa.array(rng.integers(10_000, 19_000, n), pa.int32()).cast(pa.date32()),
            "code": pa.array([f"c{i}" for i in rng.integers(0, 5, n)]).dictionary_encode(),
            "sex": pa.array(sex, mask=rng.random(n) < 0.1),
            "race": race,
            "income": pa.array(
                np.where(score + rng.normal(size=n) > 0.3, "high", "low"), mask=rng.random(n) < 0.01
            ),
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    for i in range(7):
        pa.parquet.write_table(people(500, i, last=i == 6), folder / f"p{i}.parquet", row_group_size=200)
    return folder


def on_disk(folder, tmp_path, **options):
    given = {"target": "income", "groups": ["sex", "race"], "memory": 1, "folder": tmp_path, "min_cell_size": 0, **options}
    return fit_parts(Parts.of([folder]), **given)


def state(model):
    return model[0].to_state()


@pytest.fixture(scope="module")
def saved(folder, tmp_path_factory):
    """A saved model of the table."""
    out = tmp_path_factory.mktemp("model")
    table = Parts.of([folder]).read()
    fairdro.save(fit_table(table, target="income", groups=["sex"], drop=["race"], rho=1.0, min_cell_size=0).model, out)
    return out


@st.composite
def tables(draw):
    n = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    columns = {}
    for j, kind in enumerate(draw(st.lists(st.sampled_from([*KINDS]), min_size=1, max_size=4))):
        numbers = rng.integers(0, draw(st.sampled_from([2, 5, 300])), n)
        values = {
            "truths": numbers % 2 == 1,
            "strings": np.array([f"v{i}" for i in numbers], dtype=object),
            "fractions": (numbers / 7).astype(np.float32),
            "nothing": np.full(n, None),
            "dates": numbers.astype("datetime64[D]"),
        }.get(kind, numbers)
        lacking = rng.random(n) < draw(st.sampled_from([0, 0.3, 1]))
        columns[f"{kind} {j}"] = pa.array(values, KINDS[kind], mask=lacking)
    return pa.table(columns)


@hypothesis.given(tables(), st.lists(st.integers(0, 60), max_size=5))
def test_an_encoder_learned_in_pieces_is_that_of_the_whole(table, cuts):
    def learned(found):
        try:
            encoder = TableEncoder(4).learn(found)
        except InputError as error:
            return str(error)
        return encoder.to_state(), encoder.notes_

    ends = sorted({0, table.num_rows, *(cut for cut in cuts if cut < table.num_rows)})
    pieces = [summaries_of(as_pandas(table.slice(a, b - a))) for a, b in itertools.pairwise(ends)]
    whole = summaries_of(as_pandas(table))
    first, *others = pieces
    for order in (others, others[::-1]):
        found = [sum((piece[j] for piece in order), first[j]) for j in range(table.num_columns)]
        assert learned(found) == learned(whole)


def test_the_median_of_many_is_that_of_a_fair_sample(monkeypatch):
    monkeypatch.setattr(summaries, "MOST_NUMBERS", 4000)
    values = pd.Series(np.random.default_rng(0).permutation(200_000).astype(float))
    draws = large_tables.draws_of(np.arange(len(values)))
    pieces = [slice(i, i + 1000) for i in range(0, 200_000, 1000)]
    found = sum((Summary.of(values[part], "x", draws[part]) for part in pieces), Summary("x", 0, 0))
    assert 1800 < sum(map(len, found.numbers)) <= 4000
    assert abs(found.median - 100_000) < 200_000 * 2 / np.sqrt(2000)
    assert (found.rows, found.low, found.high, found.whole) == (200_000, 0, 199_999, True)


def test_the_sample_for_a_median_is_the_same_whatever_the_pieces(monkeypatch):
    monkeypatch.setattr(summaries, "MOST_NUMBERS", 1000)
    values = pd.Series(np.random.default_rng(0).normal(size=20_000))
    draws = large_tables.draws_of(np.arange(len(values)))

    def median(places):
        pieces = [Summary.of(values[part], "x", draws[part]) for part in places]
        return sum(pieces, Summary("x", 0, 0)).median

    places = np.arange(len(values))
    once = median(np.split(places, 10))
    assert median(np.split(places, 40)[::-1]) == once
    assert median([places[::2], places[1::2]]) == once
    by_process = [
        sum((Summary.of(values[p], "x", draws[p]) for p in np.split(own, 5)), Summary("x", 0, 0))
        for own in (places[::2], places[1::2])
    ]
    assert sum(by_process, Summary("x", 0, 0)).median == once


def test_rows_on_disk_train_the_model_of_rows_in_memory(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(parts_module, "BATCH_ROWS", 300)
    rows = Parts.of([folder]).read()
    found = on_disk(folder, tmp_path, rho=1.0)
    assert list(tmp_path.iterdir()) == []
    inside = fit_table(rows, target="income", groups=["sex", "race"], rho=1.0, min_cell_size=0)
    assert state(found.model) == state(inside.model)
    assert "city = Rom" in found.model[0].get_feature_names_out()
    assert found.notes[3:] == inside.notes
    assert found.notes[1] == "Radii are judged by a fifth of the rows, which is held out once, not by five folds."
    assert found.notes[2] == "Training may take up to 1.5 GB of memory even so."
    assert found.final.group_names_ == inside.final.group_names_
    np.testing.assert_array_equal(found.final.cell_counts_, inside.final.cell_counts_)
    np.testing.assert_allclose(found.final.coef_, inside.final.coef_, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.final.intercept_, inside.final.intercept_, rtol=1e-5, atol=1e-5)


def test_what_is_written_are_the_encoded_rows_by_class_and_group(folder, tmp_path, monkeypatch):
    class SeenError(Exception):
        pass

    def seen(self, X, y, *, sensitive_features):
        groups = np.array(sensitive_features.names)[sensitive_features.values]
        raise SeenError(X[np.arange(len(X))], np.asarray(y), groups, X.draws)

    monkeypatch.setattr(parts_module, "BATCH_ROWS", 300)
    monkeypatch.setattr(large_tables, "PIECE_BYTES", 4000)
    monkeypatch.setattr(large_tables.FairDROClassifierCV, "fit", seen)
    with pytest.raises(SeenError) as caught:
        on_disk(folder, tmp_path)
    X, y, group, draws = caught.value.args
    table = Parts.of([folder]).read().to_pandas().astype({"sex": object, "income": object})
    numbers = np.flatnonzero(table["income"].notna())
    table = table.loc[numbers]
    names = table["sex"].fillna("(missing)").astype(str) + ", " + table["race"].astype(str)
    order = pd.Index(large_tables.draws_of(numbers)).get_indexer(draws)
    assert sorted(order) == list(range(len(table)))
    sorted_by = names.str.replace("(missing)", "~"), table["income"]
    held = large_tables.held_out(draws)
    assert np.lexsort((held, *(column.iloc[order] for column in sorted_by))).tolist() == list(range(len(table)))  # stable
    features = table.drop(columns=["income", "sex", "race"])
    np.testing.assert_array_equal(X, TableEncoder().fit(features).transform(features)[order])
    assert y.tolist() == table["income"].iloc[order].tolist()
    assert group.tolist() == names.iloc[order].tolist()


def test_half_precision_only_where_it_is_exact(folder):
    def exact(*values):
        found = [Summary.of(pd.Series(part), f"x{j}") for j, part in enumerate(values)]
        return large_tables._is_exact_in_half(TableEncoder().learn(found), found)

    assert exact([1, 2, 900], ["a", "b", "c"], [0.0, 1.0, np.nan])
    assert exact([2020, 2021, 1000]) is (2020 - 1000 <= 1024)
    assert not exact([0.5, 1.0])
    assert not exact([0, 1, 5000])
    values = np.arange(-1024, 1024.5, 0.5)
    np.testing.assert_array_equal(values.astype(np.float16).astype(float), values)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"model": "boosting"}, "cannot be trained on by model boosting.*--model linear, or for trees fairdro.dask"),
        ({"missing_groups": "infer"}, "Groups cannot be inferred in this table"),
        ({"certify": 0.2}, "keep some files back, and use fairdro certify"),
        ({"target": "no"}, "There is no column 'no'"),
        ({"drop": ["age", "score", "city", "since", "code"]}, "no column left"),
        ({"target": "score"}, "'score' has .* different values|holds fractions"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_on_disk_is_one_sentence(folder, tmp_path, options, sentence):
    with pytest.raises(InputError, match=sentence):
        on_disk(folder, tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_or_fills_up(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(large_tables.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(InputError, match=r"need 0\.2 MB on disk, but .* has 0\.0 MB left"):
        on_disk(folder, tmp_path)
    monkeypatch.undo()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(InputError, match="No space left on device; name a folder with more room by TMPDIR"):
        on_disk(folder, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_on_the_command_line(folder, tmp_path):
    whole = Parts.of([folder]).read()
    pa.parquet.write_table(whole, tmp_path / "whole.parquet")
    files = sorted(folder.glob("*.parquet"))
    settings = (*ASKED, "--rho", "1", "--max-iter", "20")
    assert run_here("fit", tmp_path / "whole.parquet", *settings, "--out", "one", cwd=tmp_path).returncode == 0
    done = run_here("fit", *files, *settings, "--out", "many", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "one/model.json").read_text() == (tmp_path / "many/model.json").read_text()
    done = run_here("fit", folder, *settings, "--out", "disk", "--memory", "100KB", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "The rows of the table are kept in a temporary file. It would take about" in done.stdout
    done = run_here("fit", folder / "*.parquet", *settings, "--out", "fits", "--memory", "2MB", cwd=tmp_path)
    assert "The table is trained on in memory" in done.stdout
    assert (tmp_path / "one/model.json").read_text() == (tmp_path / "fits/model.json").read_text()
    for junk in ("lots", "0GB", "-1GB", "4PB", "4"):
        done = run_here("fit", folder, *settings, "--out", "no", "--memory", junk, cwd=tmp_path)
        assert (done.returncode, "--memory takes a number with its unit" in done.stderr) == (2, True)
    assert run_here("predict", "disk", folder, cwd=tmp_path).returncode == 2
    assert run_here("predict", "disk", *files, "--out", "p.parquet", cwd=tmp_path).returncode == 0
    assert pa.parquet.read_table(tmp_path / "p.parquet").num_rows == 3500
    done = run_here("audit", "p.parquet", "--prediction", "predicted", "--group", "sex", "--target", "income", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore:The accuracy of a cell still moved")
@pytest.mark.parametrize(
    ("values", "memory"), [([f"v{j}" for j in range(90)], 15_000_000), (["x" * 2000, "z" * 2000], 30_000_000)]
)
def test_wide_categories_and_long_strings_are_counted(tmp_path, values, memory):
    """Of the file, memory takes several times its size."""
    rng = np.random.default_rng(0)
    columns = {name: rng.choice(values, 4000) for name in "abc"}
    table = pd.DataFrame({**columns, "sex": rng.choice(["f", "m"], 4000), "fit": rng.choice(["no", "yes"], 4000)})
    table.to_parquet(tmp_path / "people.parquet", use_dictionary=False)  # every string is written out
    asked = {"target": "fit", "groups": ["sex"], "rho": 1.0, "max_iter": 5, "folder": tmp_path}
    done = fit_files([tmp_path / "people.parquet"], memory=memory, **asked)
    assert done.notes[0].startswith("The rows of the table are kept in a temporary file.")
    done = fit_files([tmp_path / "people.parquet"], memory=20 * memory, **asked)
    assert done.notes == []


def test_a_class_of_one_row_is_named(tmp_path):
    table = pd.DataFrame({"x": range(50), "sex": ["f", "m"] * 25, "fit": ["no"] * 49 + ["yes"]})
    table.to_csv(tmp_path / "people.csv", index=False)
    with pytest.raises(InputError, match="The class 'yes' has one row"):
        fit_files([tmp_path / "people.csv"], memory=1000, target="fit", groups=["sex"], folder=tmp_path)


def test_groups_of_bytes_are_strings_or_a_sentence(tmp_path):
    rows = people(600).drop_columns(["sex", "race"])
    views = rows.set_column(2, "city", rows["city"].cast(pa.string_view()))
    for code, last in ((0, b"m"), (2, b"\xff")):
        groups = pa.array([b"f", last] * 300)
        pa.parquet.write_table(views.append_column("sex", groups), tmp_path / "b.parquet")
        on = ["--target", "income", "--group", "sex"]
        for memory in ("1GB", "1KB"):
            settings = ["--rho", "1", "--max-iter", "5", "--memory", memory, "--force", "--out", tmp_path / "m"]
            done = run_here("fit", tmp_path / "b.parquet", *on, *settings)
            assert done.returncode == code, done.stderr
            assert ("'sex' holds bytes that are not in UTF-8" in done.stderr) == (code == 2)
        done = run_here("audit", tmp_path / "b.parquet", *on, "--prediction", "income")
        assert done.returncode == code, done.stderr
        assert ("'sex' holds bytes that are not in UTF-8" in done.stderr) == (code == 2)


def test_decimal_commas_become_points_in_a_csv_with_commas(saved, tmp_path):
    new = people(200, 9).to_pandas()
    new.to_csv(tmp_path / "a.csv", index=False, sep=";", decimal=",")
    new.to_csv(tmp_path / "b.csv", index=False)
    done = run_here("predict", saved, "a.csv", "b.csv", "--out", "both.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    both = pd.read_csv(tmp_path / "both.csv")
    np.testing.assert_allclose(both["score"], np.tile(new["score"], 2))
    assert both["predicted"][:200].tolist() == both["predicted"][200:].tolist()


@pytest.mark.parametrize(("source", "out"), [("parquet", "parquet"), ("parquet", "csv"), ("csv", "csv"), ("csv", "parquet")])
def test_predictions_by_batches_are_those_of_the_whole(saved, tmp_path, monkeypatch, source, out):
    new = people(1000, 9, last=True)
    for name, rows in (("whole", new), ("a", new[:400]), ("b", new[400:])):
        if source == "parquet":
            pa.parquet.write_table(rows, tmp_path / f"{name}.parquet")
        else:
            rows.to_pandas().to_csv(tmp_path / f"{name}.csv", index=False)
    path, model = tmp_path / f"whole.{source}", fairdro.load(saved)
    assert run_here("predict", saved, path, "--out", f"one.{out}", cwd=tmp_path).returncode == 0
    expected = predict_table(model, read_table(path, strings=string_columns(model)))[0]
    together = read_table(path, raw=out == "csv" or source == "parquet")
    for name in expected.column_names:
        together = together.append_column(name, expected[name])
    write_table(together, tmp_path / f"before.{out}")
    assert (tmp_path / f"before.{out}").read_bytes() == (tmp_path / f"one.{out}").read_bytes()
    monkeypatch.setattr(parts_module, "BATCH_ROWS", 150)
    done = run_here("predict", saved, f"a.{source}", f"b.{source}", "--out", f"two.{out}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "'age' misses" in done.stdout
    read = pd.read_parquet if out == "parquet" else pd.read_csv
    pd.testing.assert_frame_equal(read(tmp_path / f"one.{out}"), read(tmp_path / f"two.{out}"), check_categorical=False)


PEAK = """
import resource
from fairdro.cli import main
try:
    main()
finally:
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def started(command):
    """Start a process that keeps its rows beside the model."""
    environment = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(list(map(str, command)), env=environment, **pipes)


SLOW_ENCODING = """
import sys, time
from fairdro.cli import main
from fairdro.estimators import large_tables
honest = large_tables._write
def slow(*arguments):
    honest(*arguments)
    print("written", flush=True)
    time.sleep(60)
large_tables._write = slow
main()
"""


@pytest.mark.parametrize(("kill", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_killed_while_it_writes_nothing_is_left(folder, tmp_path, kill, code):
    command = [sys.executable, "-c", SLOW_ENCODING, "fit", folder, *ASKED, "--memory", "1KB", "--out", tmp_path / "m"]
    process = started(command)
    assert process.stdout.readline() == "written\n"
    process.send_signal(kill)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


SLOW_PREDICTING = """
import sys, time
from fairdro.cli import main
from fairdro.estimators import large_tables
honest = large_tables.write_tables
def slow(tables, out):
    def slowly():
        yield next(tables)
        print("writing", flush=True)
        time.sleep(60)
    honest(slowly(), out)
large_tables.write_tables = slow
main()
"""


def test_killed_while_it_predicts_nothing_is_left(saved, folder, tmp_path):
    """At once, or when the next command writes there, which takes care of its own drafts only."""
    out, mine = tmp_path / "p.csv", tmp_path / ".notes.0123abcd-1-0123abcd.part"
    mine.write_text("mine")
    for kill, code, sentence in [(signal.SIGTERM, 143, "fairdro: stopped.\n"), (signal.SIGKILL, -9, "")]:
        process = started([sys.executable, "-c", SLOW_PREDICTING, "predict", saved, folder / "p0.parquet", "--out", out])
        assert process.stdout.readline() == "writing\n"
        process.send_signal(kill)
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (code, sentence)
        drafts = [path for path in tmp_path.iterdir() if path != mine]
        assert len(drafts) == (kill == signal.SIGKILL)
    (draft,) = drafts
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as alive:
        of_the_living = draft.with_name(draft.name.replace(f"-{process.pid}-", f"-{alive.pid}-"))
        of_the_living.touch()
        link = draft.with_name(draft.name.replace(".p.csv.", ".q.csv."))
        link.symlink_to(mine)
        assert run_here("predict", saved, folder / "p0.parquet", "--out", tmp_path / "q.csv").returncode == 0
        assert {*tmp_path.iterdir()} == {mine, of_the_living, link, tmp_path / "q.csv"}
        alive.kill()


def _same_encoder(rank, world, folder, out):
    source = large_tables.Source(Parts.of([folder]), "income", ["sex", "race"], [])
    survey = source.survey(None)
    encoder = TableEncoder().learn(survey.columns)
    rows = survey.cells["rows"].to_numpy()
    found = {"state": encoder.to_state(), "rows": int(rows.sum()), "own": int(survey.own.sum()), "notes": encoder.notes_}
    (out / f"{rank}.json").write_text(json.dumps(found | {"lacking": survey.lacking}))


def test_two_processes_come_to_the_encoder_of_one(folder, tmp_path):
    on_two_processes(_same_encoder, folder, tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    alone = large_tables.Source(Parts.of([folder]), "income", ["sex", "race"], []).survey(None)
    encoder = TableEncoder().learn(alone.columns)
    assert first["state"] == second["state"] == json.loads(json.dumps(encoder.to_state()))
    assert first["notes"] == second["notes"] == encoder.notes_
    assert first["rows"] == second["rows"] == first["own"] + second["own"] == alone.rows
    assert first["lacking"] == second["lacking"] == alone.lacking


def torchrun(*arguments, n=2):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(n), "-m", "fairdro", *arguments]
    return started(command)


def has_rows(process, folder):
    """Whether a process holds a file without a name in a folder."""
    links = []
    for fd in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(str(fd.readlink()))
    return any(link.startswith(str(folder)) and link.endswith("(deleted)") for link in links)


@pytest.mark.slow
def test_torchrun_refuses_in_one_sentence(folder, tmp_path):
    (tmp_path / "few").mkdir()
    pa.parquet.write_table(people(100), tmp_path / "few" / "a.parquet")
    (tmp_path / "torn").mkdir()
    for path in folder.iterdir():
        content = bytearray(path.read_bytes())
        if path.stem == "p3":
            content[4:2000] = bytes(1996)
        (tmp_path / "torn" / path.name).write_bytes(content)
    (tmp_path / "idle").mkdir()
    nobody = people(500).set_column(7, "income", pa.array([None] * 500, pa.string()))
    for name, rows in (("a", people(500)), ("b", nobody)):
        pa.parquet.write_table(rows, tmp_path / "idle" / f"{name}.parquet")
    refused = {"few": "There are 1 row groups for 2 processes", "torn": "p3.parquet", "idle": "has 0 rows with a value of"}
    for name, sentence in refused.items():
        process = torchrun("fit", tmp_path / name, *ASKED, "--out", tmp_path / "m")
        _, said = process.communicate(timeout=300)
        assert process.returncode != 0
        assert [line for line in said.splitlines() if line.startswith("fairdro: ") and sentence in line]
        assert said.count("fairdro: ") == 1
        assert not (tmp_path / "m").exists()


SLOW_TO_SAY = """
import os, time
import fairdro.cli as cli
from fairdro.cli import terminal
honest = terminal.say
def slow(sentence):
    time.sleep(2 if os.environ["RANK"] == "0" else 0)
    honest(sentence)
cli.say = terminal.say = slow
cli.main()
"""


@pytest.mark.slow
def test_the_first_process_may_be_slow_to_say_why_all_end(folder, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW_TO_SAY)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", tmp_path / "slow.py"]
    process = started([*command, "fit", folder, *ASKED, "--target", "no", "--out", tmp_path / "m"])
    _, said = process.communicate(timeout=300)
    assert said.count("fairdro: There is no column 'no'") == 1
    assert said.count("fairdro: ") == 1
    assert said.count("Traceback") == 1  # torchrun's own


@pytest.mark.slow
def test_a_process_that_dies_ends_the_others_in_one_sentence(folder, tmp_path):
    process = torchrun("fit", folder, *ASKED, "--max-iter", "1000000", "--out", tmp_path / "m")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    for _ in range(3000):
        ranks = children.read_text().split()
        if len(ranks) == 2 and all(has_rows(rank, tmp_path) for rank in ranks):
            break
        time.sleep(0.1)
    os.kill(int(ranks[1]), signal.SIGKILL)
    _, said = process.communicate(timeout=300)
    assert process.returncode != 0
    assert [line for line in said.splitlines() if line.startswith("fairdro: ")] == [
        "fairdro: The processes that train together end, as one of them has ended or was told to."
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_memory_is_bounded(tmp_path):
    for i in range(4):
        rng = np.random.default_rng(i)
        columns = {f"x{j}": rng.normal(size=500_000).astype(np.float32) for j in range(20)}
        sex, y = rng.integers(2, size=500_000), (columns["x0"] + rng.normal(size=500_000) > 0).astype(int)
        pa.parquet.write_table(pa.table(columns | {"sex": sex, "y": y}), tmp_path / f"p{i}.parquet")
    few_steps = ["--rho", "1", "--max-iter", "20"]
    options = ["--target", "y", "--group", "sex", *few_steps, "--memory", "200MB", "--out", tmp_path / "m"]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, "fit", str(tmp_path), *map(str, options)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    peak = int(done.stdout.rsplit("peak", 1)[1]) / 1e6
    assert peak < 1.5, done.stdout  # GB, of which 0.5 are Python and torch
