"""Any table through fit, predict, audit and head: it works and keeps its laws, or one sentence says why not.

20 tables by default; ``make fuzz SEED=7 EXAMPLES=1000`` for more.
"""

import contextlib
import csv
import gzip
import io
import os
import re
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import hypothesis
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import typer

import fairdro
from command import run_here
from fairdro._utils.files import read_table, write_table
from fairdro.cli import app
from fairdro.errors import InputError
from fairdro.estimators import FairDROBoostingClassifier, tables
from fairdro.training.controller import Controller
from tables import KINDS, Dialect, Sample, samples, to_csv

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "20"))
REFUSALS = ["already; rename or remove it", "CSV cannot hold"]  # of what a model was trained on
STEPS = 12
ended = Counter()


@contextlib.contextmanager
def short_training():
    """Train for a few steps: this is about tables, other tests are about convergence."""
    honest = Controller.__init__

    def short(self, method, task, steps, **options):
        honest(self, method, task, min(steps, STEPS), **options)

    trees = partial(FairDROBoostingClassifier, n_estimators=4, n_jobs=1)
    with (
        mock.patch.object(Controller, "__init__", short),
        mock.patch.object(tables, "FairDROBoostingClassifier", trees),
        mock.patch.object(tables, "FOLDS", 2),
        mock.patch("fairdro.training.engines.FEWEST_BATCHES", 1),
        mock.patch("fairdro.training.head.STEPS", STEPS),
        mock.patch("fairdro.training.head.TOLERANCE", 1.0),
        mock.patch("typer.main.get_command", return_value=typer.main.get_command(app)),  # made once, not at every call
    ):
        yield


def run(folder, command, *arguments):
    """Run a command, and check how it ended: with 0, or with 2, one sentence and nothing left behind."""
    before = files(folder)
    done = run_here(command, *arguments, cwd=folder)
    lines = done.stderr.removesuffix("\n").split("\n") if done.stderr else []
    assert all(line.startswith("fairdro: ") for line in lines), done.stderr
    assert not list(folder.rglob("*.part"))
    ended[command, done.returncode] += 1
    if done.returncode != 0:
        assert (done.returncode, done.stdout, len(lines)) == (2, "", 1), done
        assert lines[0].endswith("."), done.stderr
        assert files(folder) == before
    return done


def files(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def parsed(path, delimiter):
    """Return header and rows of a CSV as strings, by the standard library."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    header, *rows = (row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row)
    return header, rows


def scores(path, classes):
    """Return the predicted classes, and their probabilities, of a file that predict wrote."""
    names = ["predicted", *(f"probability of {c}" for c in classes)]
    if path.suffix == ".parquet":
        columns = [pa.parquet.read_table(path)[name].to_pylist() for name in names]
    else:
        header, rows = parsed(path, "\t" if path.suffix == ".tsv" else ",")
        columns = [[row[header.index(name)] for row in rows] for name in names]
    return list(map(canonical, columns[0])), np.array(columns[1:], dtype=np.float64).T


def canonical(label):
    """Return a label as a string that is the same in all kinds of files."""
    text = str(label)
    return text.capitalize() if text in {"true", "false"} else text.removesuffix(".0")


def same(found, expected, what):
    assert found[0] == expected[0], what
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6, atol=1e-6, err_msg=what)


def check(sample, folder):
    """All laws of one table; see below for each."""
    source, saved, save = sample.write(folder, "t"), [], fairdro.save
    asked = [f"--target={sample.target}", *(f"--group={name}" for name in sample.groups)]
    fit = ["fit", *asked, "--rho", "1", "--model", sample.model, *sample.options]
    with mock.patch("fairdro.estimators.save", lambda model, out, **given: (saved.append(model), save(model, out, **given))):
        if run(folder, *fit, source, "--out", "m").returncode != 0:
            ended["refused", ""] += 1
            return
    ended["fitted", sample.model] += 1
    model, out = saved[0], folder / f"p.{sample.out}"
    done = run(folder, "predict", "m", source, "--out", out.name)
    if done.returncode != 0:
        assert any(known in done.stderr for known in REFUSALS), done.stderr
        return
    whole = scores(out, model.classes_)
    assert np.isfinite(whole[1]).all()
    np.testing.assert_allclose(whole[1].sum(1), 1, atol=1e-6)
    check_fields(sample, folder / source, out, 1 + len(model.classes_))
    check_reload(model, folder, source, whole)
    check_rows(sample, folder, model.classes_, whole)
    run(folder, "audit", out.name, *asked, "--prediction", "predicted")
    check_head(folder, out, model.classes_, asked)
    check_renamed(sample, folder, fit, model.classes_, whole)
    ended["all laws", ""] += 1


def check_fields(sample, source, out, n_added):
    """Predictions stand beside the fields they belong to, which are as they were: in Parquet values, in CSV strings."""
    if out.suffix == ".parquet":
        after = pa.parquet.read_table(out)
        assert after.num_rows == sample.table.num_rows
        if source.suffix == ".parquet":
            before = pa.parquet.read_table(source)
            for name in before.column_names:
                assert str(after[name].combine_chunks()) == str(before[name].combine_chunks()), name
        return
    header, rows = parsed(out, "\t" if out.suffix == ".tsv" else ",")
    assert len(rows) == sample.table.num_rows
    if sample.dialect is not None:
        names, before = parsed(source, sample.dialect.delimiter)
        assert header[:-n_added] == names
        if sample.dialect.comma:
            before = [[re.sub(r"^(-?\d+),(\d+(e[-+]?\d+)?)$", r"\1.\2", field) for field in row] for row in before]
        assert [row[:-n_added] for row in rows] == before


def check_reload(model, folder, source, whole):
    """The model as it was trained predicts what the one from the folder predicted."""
    table = read_table(folder / source, strings=tables.string_columns(model))
    predicted, *probabilities = tables.predict_table(model, table)[0].to_pydict().values()
    same((list(map(canonical, predicted)), np.array(probabilities).T), whole, "a reload")


def check_rows(sample, folder, classes, whole):
    """Rows in another order, a row alone and the same content in the other format are predicted the same."""
    order = np.random.default_rng(sample.seed).permutation(sample.table.num_rows)
    for what, rows in (("permuted", order), ("alone", order[:1])):
        out = f"{what}-p.{sample.out}"
        done = run(folder, "predict", "m", sample.write(folder, what, rows), "--out", out)
        assert done.returncode == 0, (what, done.stderr)
        same(scores(folder / out, classes), ([whole[0][i] for i in rows], whole[1][rows]), what)
    if sample.portable and not sample.junk:
        out = f"other-p.{sample.out}"
        if run(folder, "predict", "m", sample.write(folder, "other", other=True), "--out", out).returncode == 0:
            ended["other format", ""] += 1
            same(scores(folder / out, classes), whole, "in the other format")


def check_head(folder, out, classes, asked):
    """A head is fitted to the probabilities that were predicted, or refused in a sentence."""
    if out.suffix != ".parquet":
        return
    table = pa.parquet.read_table(out).drop_columns("predicted")
    names = [f"p_{name[15:]}" if name.startswith("probability of ") else name for name in table.column_names]
    if len(set(names)) < len(names):
        return
    pa.parquet.write_table(table.rename_columns(names), folder / "h.parquet")
    done = run(folder, "head", "h.parquet", *asked, "--class-columns", "p_*", "--rho", "1", "--out", "h.json")
    if done.returncode == 0:
        done = run(folder, "predict", "h.json", "h.parquet", "--out", "hp.parquet")
        assert done.returncode == 0, done.stderr
        predicted, probabilities = scores(folder / "hp.parquet", classes)
        assert len(predicted) == table.num_rows
        assert np.isfinite(probabilities).all()


def check_renamed(sample, folder, fit, classes, whole):
    """The same model, whatever groups are called; the order of names stays, since it is that in which sums are taken."""
    (name, *more), column = sample.groups, sample.table[sample.groups[0]]
    if more or sample.seed % 3 or sample.junk or not pa.types.is_string(column.type):
        return
    names = sorted({value for value in column.to_pylist() if value is not None})
    if not {"women", "men"} & set(names) or "nan" in names:  # of numbers and missing values in a CSV, names say more
        return
    renamed = pa.array([None if value is None else f"g{names.index(value):02}" for value in column.to_pylist()])
    place = sample.table.column_names.index(name)
    source = replace(sample, table=sample.table.set_column(place, name, renamed)).write(folder, "renamed")
    for command in ([*fit, source, "--out", "n"], ["predict", "n", source, "--out", f"n.{sample.out}"]):
        done = run(folder, *command)
        assert done.returncode == 0, done.stderr
    ended["renamed", ""] += 1
    same(scores(folder / f"n.{sample.out}", classes), whole, "renamed groups")


@pytest.fixture(scope="module", autouse=True)
def say_counts(request):
    """Say how many tables ended how: the line of the table in docs/reliability.md."""
    yield
    if "FUZZ_EXAMPLES" not in os.environ:
        return
    seed = request.config.getoption("--hypothesis-seed")
    fitted = {model: number for (what, model), number in sorted(ended.items()) if what == "fitted"}
    counts = {
        "tables": ended["tables", ""],
        "fitted": sum(fitted.values()),
        "refused": ended["refused", ""],
        "with all laws": ended["all laws", ""],
        "in both formats": ended["other format", ""],
        "with renamed groups": ended["renamed", ""],
        "commands that ended with 0": sum(number for (_, code), number in ended.items() if code == 0),
        "with 2": sum(number for (_, code), number in ended.items() if code == 2),
    }
    models = ", ".join(f"{number:,} {model}" for model, number in fitted.items())
    rows = [
        ["command", *counts],
        ["---"] * 9,
        [f"`make fuzz SEED={seed} EXAMPLES={EXAMPLES}`", *map("{:,}".format, counts.values())],
    ]
    sys.stdout.write("".join(f"\n| {' | '.join(row)} |" for row in rows) + f"\nFitted: {models}.\n")


@hypothesis.settings(max_examples=EXAMPLES, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(samples())
def test_any_table_works_or_is_refused_in_a_sentence(sample):
    with tempfile.TemporaryDirectory() as folder, short_training():
        ended["tables", ""] += 1
        check(sample, Path(folder))


# What was found, one by one.


def predictions_of(folder, train, others, *options):
    """Fit to one file, and return the probabilities of it and of others."""
    with short_training():
        done = run(folder, "fit", train, "--target=y", "--group=g", "--rho=1", "--out=m", *options)
        assert done.returncode == 0, done.stderr
        for name in (train, *others):
            done = run(folder, "predict", "m", name, f"--out=p-{name}.parquet")
            assert done.returncode == 0, done.stderr
    return [scores(folder / f"p-{name}.parquet", ["no", "yes"])[1] for name in (train, *others)]


def people(**columns):
    rng = np.random.default_rng(0)
    y, g = rng.integers(2, size=60), rng.integers(2, size=60)
    x = pa.array((y + g + rng.normal(size=60)).round(2))
    labels = {"y": pa.array(["no", "yes"]).take(pa.array(y)), "g": pa.array(["u", "v"]).take(pa.array(g))}
    return Sample(pa.table({"x": x, **columns, **labels}), portable=True, target="y", groups=["g"])


def test_booleans_are_the_same_with_and_without_missing_values_and_in_every_spelling(tmp_path):
    truths = [None if i == 5 else i % 3 == 0 for i in range(60)]
    sample = replace(people(b=pa.array(truths)), dialect=Dialect(truth=("TRUE", "FALSE")))
    names = [sample.write(tmp_path, "t"), sample.write(tmp_path, "one", [7]), sample.write(tmp_path, "other", other=True)]
    whole, one, other = predictions_of(tmp_path, names[0], names[1:])
    np.testing.assert_allclose(one, whole[[7]])
    np.testing.assert_allclose(other, whole)


def test_a_moment_is_the_same_in_every_zone():
    utc = pd.Series(pd.date_range("2020-06-01", periods=50, freq="7h", tz="UTC"))
    encoder = fairdro.TableEncoder().fit(pd.DataFrame({"t": utc}))
    elsewhere = [utc, utc.dt.tz_convert("Asia/Tokyo"), utc.dt.tz_localize(None)]
    first, *others = (encoder.transform(pd.DataFrame({"t": moments})) for moments in elsewhere)
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_a_list_is_the_same_whoever_misses_one(tmp_path):
    pairs = [None if i == 5 else {"a": i % 3, "b": [i % 2]} for i in range(60)]
    sample = replace(people(s=pa.array(pairs)), portable=False)
    whole, one = predictions_of(tmp_path, sample.write(tmp_path, "t"), [sample.write(tmp_path, "one", [7])])
    np.testing.assert_allclose(one, whole[[7]])


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_decimal_commas_are_found_in_quotes(tmp_path, quoting):
    dialect = Dialect(delimiter=";", comma=True, quoting=quoting)
    (tmp_path / "t.csv").write_bytes(to_csv(pa.table({"x": [1.5, -2.0], "y": ["a", "b"]}), dialect))
    assert read_table(tmp_path / "t.csv")["x"].to_pylist() == [1.5, -2.0]


@pytest.mark.parametrize("name", ["a,b,c", "new\nline", "\u2028", 'q"q', "[x", "=1"])
@pytest.mark.parametrize("file", ["t.csv", "t.tsv", "t.parquet"])
def test_a_table_that_was_written_has_the_same_columns_when_it_is_read(tmp_path, name, file):
    write_table(pa.table({name: ["u", "v"], "x": [1, 2], "z": [1, 2]}), tmp_path / file)
    for raw in (False, True):
        assert read_table(tmp_path / file, raw=raw).column_names == [name, "x", "z"]


def test_blank_lines_before_the_header_and_codes_in_the_last_row(tmp_path):
    (tmp_path / "t.csv").write_text("\n\nx;y\n1;a\n02;b")
    assert read_table(tmp_path / "t.csv").to_pydict() == {"x": ["1", "02"], "y": ["a", "b"]}


def test_times_of_day_are_the_strings_they_are(tmp_path):
    (tmp_path / "t.csv").write_text("t,y\n12:30,a\n08:15,b\n")
    assert read_table(tmp_path / "t.csv")["t"].to_pylist() == read_table(tmp_path / "t.csv", strings=["t"])["t"].to_pylist()


def test_two_columns_of_one_name_in_parquet_are_named(tmp_path):
    pa.parquet.write_table(pa.table([[1], [2]], ["x", "x"]), tmp_path / "two.parquet")
    with pytest.raises(InputError, match="two columns named 'x'"):
        read_table(tmp_path / "two.parquet")


def test_parquet_stays_as_it_was_in_parquet(tmp_path):
    sample = replace(people(q=pa.array(["?", "a", "NA"] * 20)), pandas_index=True)
    source = sample.write(tmp_path, "t")
    with short_training():
        run(tmp_path, "fit", source, "--target=y", "--group=g", "--rho=1", "--out=m")
        run(tmp_path, "predict", "m", source, "--out=p.parquet")
    before, after = (pa.parquet.read_table(tmp_path / name) for name in (source, "p.parquet"))
    assert after.select(before.column_names).equals(before)


@pytest.mark.parametrize("column", ["y", "g"])
def test_numbers_with_more_digits_than_double_precision_has_are_no_classes_and_no_groups(tmp_path, column):
    table = people().table
    numbers = pa.array([f"{10**20 + i % 2}" for i in range(60)])
    sample = replace(people(), table=table.set_column(table.column_names.index(column), column, numbers), dialect=Dialect())
    done = run(tmp_path, "fit", sample.write(tmp_path, "t"), "--target=y", "--group=g", "--out=m")
    assert "more than 15 digits" in done.stderr


def test_a_refusal_is_one_sentence_though_there_were_warnings_and_names_have_lines(tmp_path):
    groups = pa.array(["line\n1\x1b[31m", "line\n2"] * 30)
    sample = replace(people(), table=people().table.set_column(2, "g", groups))
    with short_training():
        done = run(tmp_path, "fit", sample.write(tmp_path, "t"), "--target=y", "--group=g", "--rho=1", "--out=m")
        assert (done.returncode, "line\\n1\\x1b[31m" in done.stdout, "\x1b" in done.stdout) == (0, True, False)
        few = replace(sample, table=sample.table.slice(0, 3)).write(tmp_path, "few")
        assert run(tmp_path, "fit", few, "--target=y", "--group=g", "--rho=1", "--out=n").returncode == 2


@pytest.mark.parametrize("column", ["x", "y", "g"])
def test_strings_of_parquet_that_are_no_utf_8_are_found_in_every_column(tmp_path, column):
    place = people().table.column_names.index(column)
    strange = KINDS["no UTF-8"][0](np.random.default_rng(0), 60)
    sample = replace(people(), table=people().table.set_column(place, column, strange))
    done = run(tmp_path, "fit", sample.write(tmp_path, "t"), "--target=y", "--group=g", "--rho=1", "--out=m")
    assert f"The column '{column}' of t.parquet holds strings that are not in UTF-8" in done.stderr


def test_an_audit_of_numbers_against_strings_is_refused_in_a_sentence(tmp_path):
    table = people().table.append_column("p", pa.array([0, 1] * 30))
    write_table(table, tmp_path / "t.csv")
    for target, prediction in (("y", "p"), ("p", "y")):
        done = run(tmp_path, "audit", "t.csv", f"--target={target}", f"--prediction={prediction}", "--group=g")
        assert "bring them to one kind" in done.stderr


def test_a_target_without_a_name_is_audited(tmp_path):
    pd.DataFrame({"": [0, 1] * 50, "p": [0, 1, 1, 0] * 25, "sex": ["f", "m", "m", "f"] * 25}).to_parquet(
        tmp_path / "t.parquet"
    )
    done = run_here("audit", "t.parquet", "--prediction", "p", "--group", "sex", "--target", "", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
