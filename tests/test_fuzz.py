"""Any table through fit, predict, audit and head: it works and keeps its laws, or one sentence says why not.

50 tables by default; ``make fuzz SEED=7 EXAMPLES=1000`` for more.
"""

import contextlib
import csv
import gzip
import io
import os
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from unittest import mock

import hypothesis
import numpy as np
import pyarrow as pa
import pytest

import fairdro
from command import run_here
from fairdro.estimators import FairDROBoostingClassifier, tables
from fairdro.training.controller import Controller
from tables import samples

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "50"))
REFUSALS = ["already; rename or remove it", "CSV cannot hold"]  # of what a model was trained on
STEPS = 12
ended = Counter()


@contextlib.contextmanager
def short_training():
    """Train for a few steps: this is about tables, others are about convergence."""
    honest = Controller.__init__

    def short(self, method, task, steps, **options):
        honest(self, method, task, min(steps, STEPS), **options)

    trees = partial(FairDROBoostingClassifier, n_estimators=4, n_jobs=1)
    with (
        mock.patch.object(Controller, "__init__", short),
        mock.patch.object(tables, "FairDROBoostingClassifier", trees),
        mock.patch.object(tables, "FOLDS", 2),
        mock.patch("fairdro.training.head.STEPS", STEPS),
        mock.patch("fairdro.training.head.TOLERANCE", 1.0),
    ):
        yield


def run(folder, command, *arguments):
    """Run a command, and check how it ended: with 0, or with 2, one sentence, and nothing left behind."""
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    done = run_here(command, *arguments, cwd=folder)
    lines = done.stderr.removesuffix("\n").split("\n") if done.stderr else []
    assert all(line.startswith("fairdro: ") for line in lines), done.stderr
    assert not list(folder.rglob("*.part"))
    ended[command, done.returncode] += 1
    if done.returncode != 0:
        assert done.returncode == 2, done
        assert (done.stdout, len(lines)) == ("", 1), done
        assert lines[0].endswith("."), done.stderr
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    return done


def predict(folder, sample, file, out):
    done = run(folder, "predict", "m", file, "--out", out)
    assert done.returncode == 0 or any(known in done.stderr for known in REFUSALS), done.stderr
    return done.returncode == 0


def read(path):
    """Return header and rows of a CSV as strings, by the standard library."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    start = text.split('"', 1)[0] if text.startswith('"') else text
    del start
    return text


def scores(path, classes):
    """Return the predicted classes as strings, and probabilities, of a file that predict wrote."""
    names = ["predicted", *(f"probability of {c}" for c in classes)]
    if path.suffix == ".parquet":
        table = pa.parquet.read_table(path)
        columns = [table[name].to_pylist() for name in names]
    else:
        header, rows = parsed(path, "\t" if path.suffix == ".tsv" else ",")
        columns = [[row[header.index(name)] for row in rows] for name in names]
    first = [{"true": "True", "false": "False"}.get(str(value), str(value)) for value in columns[0]]
    return first, np.array(columns[1:], dtype=np.float64).T


def parsed(path, delimiter):
    header, *rows = csv.reader(io.StringIO(read(path), newline=""), delimiter=delimiter)
    return header, [row for row in rows if row]


def same(found, expected, what):
    assert found[0] == expected[0], what
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6, atol=1e-6, err_msg=what)


def check_fields(sample, source, out, n_added):
    """The original fields are as they were: in Parquet as values, in CSV as strings."""
    if out.suffix == ".parquet":
        table = pa.parquet.read_table(out)
        assert table.num_rows == len(sample.table)
        if source.suffix == ".parquet":
            before = pa.parquet.read_table(source)
            for name in before.column_names:
                assert str(table[name].combine_chunks()) == str(before[name].combine_chunks()), name
        return
    header, rows = parsed(out, "\t" if out.suffix == ".tsv" else ",")
    assert len(rows) == len(sample.table)
    if sample.dialect is not None:
        names, before = parsed(source, sample.dialect.delimiter)
        assert header[:-n_added] == names
        assert [row[:-n_added] for row in rows] == before


def check(sample, folder):
    """All laws of one table."""
    saved = []
    honest = fairdro.save
    source = sample.write(folder, "t")
    asked = [f"--target={sample.target}", *(f"--group={name}" for name in sample.groups)]
    fit = ["fit", source, *asked, "--rho", "1", "--model", sample.model, *sample.options]
    with mock.patch("fairdro.estimators.save", lambda model, out: (saved.append(model), honest(model, out))):
        if run(folder, *fit, "--out", "m").returncode != 0:
            return
    ended[sample.model, "fitted"] += 1
    out = folder / f"p.{sample.out}"
    if not predict(folder, sample, source, out.name):
        return
    ended["predicted", ""] += 1
    classes, rng = saved[0].classes_, np.random.default_rng(sample.seed)
    whole = scores(out, classes)
    check_fields(sample, folder / source, out, 1 + len(classes))
    assert np.isfinite(whole[1]).all()
    np.testing.assert_allclose(whole[1].sum(1), 1, atol=1e-6)
    frame = fairdro.estimators.tables
    from fairdro._utils.files import read_table

    table = read_table(folder / source, strings=frame.string_columns(saved[0]))
    for model in (saved[0], fairdro.load(folder / "m")):
        again, _ = frame.predict_table(model, table)
        same(([str(v) for v in again["predicted"].to_pylist()], np.array(again.drop_columns("predicted").to_pydict().__class__(again.drop_columns("predicted").to_pydict()).values().__iter__().__class__ and list(again.drop_columns("predicted").to_pydict().values())).T), whole, "a reload")
    order = rng.permutation(len(sample.table))
    for what, rows in (("permuted", order), ("alone", order[:1]), ("pair", order[1:3])):
        name = sample.write(folder, what, rows)
        assert predict(folder, sample, name, f"{what}-p.{sample.out}")
        same(scores(folder / f"{what}-p.{sample.out}", classes), ([whole[0][i] for i in rows], whole[1][rows]), what)
    if sample.portable and not sample.junk:
        name = sample.write(folder, "other", other=True)
        if run(folder, "predict", "m", name, "--out", f"other-p.{sample.out}").returncode == 0:
            ended["other format", ""] += 1
            same(scores(folder / f"other-p.{sample.out}", classes), whole, "in the other format")
    run(folder, "audit", out.name, *asked, "--prediction", "predicted")
    check_head(sample, folder, out, classes, asked)
    check_renamed(sample, folder, fit, whole, classes)


def check_head(sample, folder, out, classes, asked):
    """A head on the probabilities that were predicted."""
    if out.suffix != ".parquet":
        return
    table = pa.parquet.read_table(out).drop_columns("predicted")
    names = [name.replace("probability of ", "p_") if name.startswith("probability of ") else name for name in table.column_names]
    if len(set(names)) < len(names):
        return
    pa.parquet.write_table(table.rename_columns(names), folder / "h.parquet")
    if run(folder, "head", "h.parquet", *asked, "--class-columns", "p_*", "--rho", "1", "--out", "h.json").returncode == 0:
        done = run(folder, "predict", "h.json", "h.parquet", "--out", "hp.parquet")
        assert done.returncode == 0, done.stderr
        predicted, probabilities = scores(folder / "hp.parquet", classes)
        assert len(predicted) == len(table)
        assert np.isfinite(probabilities).all()


def check_renamed(sample, folder, fit, whole, classes):
    """The same model, whatever groups are called; the order of their names stays, which orders sums."""
    (name, *more) = sample.groups
    column = sample.table[name]
    if more or sample.seed % 3 or sample.junk or not pa.types.is_string(column.type):
        return
    names = sorted({value for value in column.to_pylist() if value is not None})
    renamed = pa.array([None if v is None else f"g{names.index(v):02}" for v in column.to_pylist()])
    place = sample.table.column_names.index(name)
    from dataclasses import replace

    other = replace(sample, table=sample.table.set_column(place, name, renamed))
    source = other.write(folder, "renamed")
    done = run(folder, "fit", source, *fit[2:], "--out", "n")
    assert done.returncode == 0, done.stderr
    done = run(folder, "predict", "n", source, "--out", f"n.{sample.out}")
    assert done.returncode == 0
    ended["renamed", ""] += 1
    same(scores(folder / f"n.{sample.out}", classes), whole, "renamed groups")


@hypothesis.settings(max_examples=EXAMPLES, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(samples())
def test_any_table_works_or_is_refused_in_a_sentence(sample):
    with tempfile.TemporaryDirectory() as folder, short_training():
        ended["tables", ""] += 1
        check(sample, Path(folder))
