"""Any table through fit, predict, audit and head: it works and keeps its laws, or one sentence says why not.

50 tables by default; ``make fuzz SEED=7 EXAMPLES=1000`` for more.
"""

import contextlib
import csv
import gzip
import io
import os
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import typer

import fairdro
from command import run_here
from fairdro.cli import app
from fairdro.estimators import FairDROBoostingClassifier, tables
from fairdro.training.controller import Controller
from tables import samples

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "50"))
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
    with mock.patch("fairdro.estimators.save", lambda model, out: (saved.append(model), save(model, out))):
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
        assert [row[:-n_added] for row in rows] == before


def check_reload(model, folder, source, whole):
    """The model as it was trained predicts what the one from the folder predicted."""
    table = fairdro._utils.files.read_table(folder / source, strings=tables.string_columns(model))
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
