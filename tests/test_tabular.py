"""fit, predict and audit on tables in files, as a person meets them; junk included."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import fairdro
from command import run_here
from fairdro._utils.files import read_table, write_table
from fairdro.errors import InputError
from fairdro.estimators.encoder import TableEncoder
from fairdro.estimators.tables import fit_table, predict_table
from fairdro.metrics import balanced_accuracy, dca


def applicants(n=3000, seed=0):
    """A credit-style table: women's incomes are lower for the same credit-worthiness, some values are missing."""
    rng = np.random.default_rng(seed)
    woman, repaid = rng.random(n) < 0.4, rng.random(n) < 0.5
    income = rng.normal(30_000, 8000, n) + 9000 * repaid - 7000 * woman
    table = pd.DataFrame({
        "income": np.where(rng.random(n) < 0.05, np.nan, income.round(2)),
        "job": np.where(repaid & (rng.random(n) < 0.4), "skilled", "other"),
        "part time": woman & (rng.random(n) < 0.7),
        "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 2000, n), unit="D"),
        "sex": np.where(woman, "female", "male"),
        "repaid": np.where(repaid, "yes", "no"),
    })  # fmt: skip
    return table.mask(pd.DataFrame(rng.random(table.shape) < 0.02, columns=table.columns).assign(sex=False, repaid=False))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    applicants().to_csv(folder / "people.csv", index=False)
    applicants(seed=1).drop(columns="sex").to_parquet(folder / "new.parquet")
    done = run_here("fit", "people.csv", "--target", "repaid", "--group", "sex", "--out", "model", cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "printed.txt").write_text(done.stdout)
    return folder


def test_fit_says_what_it_did_and_shows_cells_before_and_after(folder):
    printed = (folder / "printed.txt").read_text()
    assert "'job' misses" in printed
    assert "they count as its median" in printed
    assert "DCA (gap)" in printed
    assert sum(line.startswith("│") and "female" in line for line in printed.splitlines()) == 2
    assert "female / yes gains most" in printed or "loses" in printed
    assert "The model and its card are in model." in printed
    assert sorted(path.name.split("-")[0] for path in (folder / "model").iterdir()) == [
        "model.json", "model_card.md", "weights",
    ]  # fmt: skip


def test_predict_needs_no_group_and_fresh_rows_are_treated_alike(folder):
    assert run_here("predict", "model", "new.parquet", "--out", "out/scored.csv", cwd=folder).returncode == 0
    scored, truth = pd.read_csv(folder / "out" / "scored.csv"), applicants(seed=1)
    assert list(scored.columns[-3:]) == ["predicted", "probability of no", "probability of yes"]
    model = fairdro.load(folder / "model")
    assert (model.predict(truth) == scored["predicted"]).all()
    plain = fairdro.FairDROClassifier(rho=0.0).fit(
        fairdro.TableEncoder().fit_transform(applicants().drop(columns=["sex", "repaid"])),
        applicants()["repaid"],
        sensitive_features=applicants()["sex"],
    )
    encoder = fairdro.TableEncoder().fit(applicants().drop(columns=["sex", "repaid"]))
    gaps = [
        dca(truth["repaid"], predicted, sensitive_features=truth["sex"])
        for predicted in (plain.predict(encoder.transform(truth)), scored["predicted"])
    ]
    assert gaps[1] < gaps[0] / 2
    assert balanced_accuracy(truth["repaid"], scored["predicted"], sensitive_features=truth["sex"]) > 0.7


def test_audit_judges_any_models_predictions(folder):
    table = applicants(seed=2).assign(verdict=lambda t: np.where(t["income"] > 33_000, "yes", "no"))
    table.to_parquet(folder / "scored.parquet")
    arguments = ("audit", "scored.parquet", "--target", "repaid", "--prediction", "verdict", "--group", "sex")
    done = run_here(*arguments, "--out", "audit.md", cwd=folder)
    assert done.returncode == 0, done.stderr
    gap = dca(table["repaid"], table["verdict"], sensitive_features=table["sex"])
    for text in (done.stdout, (folder / "audit.md").read_text()):
        assert f"{100 * gap:.1f}" in text
    assert "95 % bootstrap" in done.stdout
    few = table.assign(sex=table["sex"].where(table.index > 9, "unknown"))
    few.to_parquet(folder / "few.parquet")
    done = run_here(*arguments[:1], "few.parquet", *arguments[2:], cwd=folder)
    assert "too few rows to conclude anything" in done.stdout
    assert "unknown" in done.stdout


def test_a_radius_of_ones_own_and_merged_groups(tmp_path):
    table = applicants()
    rng = np.random.default_rng(7)
    table["region"] = np.where(rng.random(len(table)) < 0.03, "island", rng.choice(["north", "south"], len(table)))
    fitted = fit_table(pa.Table.from_pandas(table), target="repaid", groups=["sex", "region"], rho=3.0, small_cells="merge")
    assert fitted.final.rho_ == 3.0
    names = fitted.model[-1].group_names_
    assert len(names) == 5
    assert "female, island or male, island" in names
    assert any("'female, island', 'male, island' count as one" in note for note in fitted.notes)
    named = table.assign(region=np.where(table["region"] == "north", "north", "west or east"))
    fitted = fit_table(pa.Table.from_pandas(named), target="repaid", groups=["region"], rho=1.0)
    assert not any("count as one" in note for note in fitted.notes)
    assert fitted.model[-1].cell_counts_.min() >= 30
    with pytest.raises(InputError, match="fewer than 30 held-out rows"):
        fit_table(pa.Table.from_pandas(table), target="repaid", groups=["sex", "region"], small_cells="refuse")


def test_trees_take_categories_and_missing_values_as_they_are():
    table = applicants().assign(job=lambda t: np.where(t.index % 3 == 0, None, np.where(t.index % 2 == 0, "cook", "judge")))
    fitted = fit_table(pa.Table.from_pandas(table), target="repaid", groups=["sex"], rho=1.0, model="boosting")
    encoder, classifier = fitted.model
    features = encoder.transform(table)
    assert features["job"].isna().sum() == table["job"].isna().sum()
    place = str(features.columns.get_loc("job"))
    assert classifier.categories_[place].tolist() == ["cook", "judge"]
    assert classifier.n_features_in_ == len(encoder.columns_)


def test_a_multi_layer_perceptron_is_a_model_of_tables(monkeypatch):
    monkeypatch.setattr("fairdro.training.engines.EPOCHS", 20)
    monkeypatch.setattr("fairdro.training.engines.FEWEST_BATCHES", 300)
    table = pa.Table.from_pandas(applicants())
    fitted = fit_table(table, target="repaid", groups=["sex"], rho=1.0, model="mlp")
    assert len(fitted.model[-1].coefs_) == 3
    assert fitted.columns["fair"].metric("accuracy") > 0.6


def test_missing_groups_and_targets_are_said(tmp_path):
    table = applicants()
    table.loc[:199, "sex"] = None
    table.loc[200:209, "repaid"] = None
    fitted = fit_table(pa.Table.from_pandas(table), target="repaid", groups=["sex"], rho=1.0)
    assert "10 rows without a value of 'repaid' are left out." in fitted.notes
    assert any(note.startswith("200 rows without a value of 'sex' are a group of their own, ") for note in fitted.notes)
    assert fitted.model[-1].group_names_ == ["female", "male", "(missing)"]


@pytest.mark.parametrize("target", ["whole", "truth", "float"])
def test_classes_come_back_as_they_were(tmp_path, target):
    table = applicants()
    yes = table.pop("repaid") == "yes"
    table[target] = {"whole": yes * 7, "truth": yes, "float": yes * 2.0}[target]
    fitted = fit_table(pa.Table.from_pandas(table), target=target, groups=["sex"], rho=1.0)
    fairdro.save(fitted.model, tmp_path / "model")
    table = pa.Table.from_pandas(table)
    predicted, _ = predict_table(fairdro.load(tmp_path / "model"), table)
    assert predicted["predicted"].type == table[target].type
    with pytest.raises(InputError, match="has a column 'predicted' already"):
        predict_table(fitted.model, table.append_column("predicted", predicted["predicted"]))


@pytest.fixture(scope="module")
def junk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("junk")
    bytes_ = np.random.default_rng(0).bytes(4000)
    texts = {
        "empty.csv": b"",
        "header.csv": b"x,y,g\n",
        "junk.csv": bytes_,
        "junk.parquet": bytes_,
        "one.csv": b"x,y,g\n" + b"".join(b"%d,yes,%d\n" % (i, i % 2) for i in range(200)),
        "many.csv": b"x,id,y,g\n" + b"".join(b"%d,n%d,%d,%d\n" % (i % 7, i, i % 2, i % 3) for i in range(1_000_000)),
        "ragged.csv": b"x,y,g\n1,2,3\n1,2\n",
        "twice.csv": b"x,x,g\n1,2,3\n1,2,4\n",
        "latin.csv": "x,y,g\n1,a,é\n2,b,ü\n".encode("latin-1"),
        "infinite.csv": b"x,y,g\n" + b"inf,0,1\n" * 50 + b"2,1,0\n" * 50,
        "fractions.csv": b"x,y,g\n" + b"1,0.5,1\n" * 50 + b"2,1.5,0\n" * 50,
        "bare.csv": b"y,g\n" + b"".join(b"%d,%d\n" % (i % 2, i % 3) for i in range(300)),
        "small.csv": b"x,y,g\n1,a,u\n2,b,v\n3,a,v\n",
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_bytes(text)
    (folder / "folder.csv").mkdir()
    (folder / "full").mkdir()
    (folder / "full" / "letter.txt").write_text("dear")
    return folder


@pytest.mark.parametrize(
    ("file", "options", "sentence"),
    [
        ("missing.csv", {}, "There is no file missing.csv."),
        ("folder.csv", {}, "The folder folder.csv holds no tables"),
        ("table.xlsx", {}, "must be a table in CSV"),
        ("empty.csv", {}, "empty.csv is empty."),
        ("header.csv", {}, "header.csv holds no rows."),
        ("junk.csv", {}, "not a text in UTF-8"),
        ("latin.csv", {}, "not a text in UTF-8"),
        ("junk.parquet", {}, "Cannot read junk.parquet"),
        ("ragged.csv", {}, "Expected 3 columns, got 2"),
        ("twice.csv", {"target": "x"}, "two columns named 'x'"),
        ("one.csv", {}, "'y' has one value only"),
        ("one.csv", {"target": "<script>"}, "There is no column '<script>' in the table; it has: x, y, g."),
        ("one.csv", {"group": "age"}, "There is no column 'age'"),
        ("one.csv", {"group": "y"}, "both the target and a group"),
        ("many.csv", {}, "'id' has 1,000,000 different strings, too many for categories"),
        ("many.csv", {"target": "id"}, "too many for classes"),
        ("many.csv", {"group": "id"}, "1000000 groups"),
        ("many.csv", {"drop": "name"}, "There is no column 'name'"),
        ("infinite.csv", {}, "'x' has infinite values"),
        ("fractions.csv", {}, "holds fractions, which are no classes"),
        ("bare.csv", {}, "no column left to learn from"),
        ("small.csv", {"small-cells": "merge"}, "all groups merge into one"),
        ("one.csv", {"out": "full"}, "full holds other things"),
        ("one.csv", {"rho": "-1"}, "rho must be zero or a positive number, got -1."),
        ("one.csv", {"rho": "1", "keep-accuracy": "0.9"}, "not both"),
        ("one.csv", {"keep-accuracy": "95"}, "between 0 and 1, got 95."),
        ("one.csv", {"small-cells": "hide", "target": "x"}, "too many for classes"),
    ],
)
def test_junk_is_one_sentence_and_leaves_nothing_behind(junk, file, options, sentence):
    options = {"target": "y", "group": "g", "out": "model"} | options
    before = sorted(path.name for path in junk.rglob("*"))
    done = run_here("fit", file, *(part for key, value in options.items() for part in (f"--{key}", value)), cwd=junk)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in junk.rglob("*")) == before


def test_a_real_process_exits_with_2_and_no_traceback(junk):
    command = [sys.executable, "-m", "fairdro", "fit", "junk.csv", "--target", "y", "--group", "g", "--out", "model"]
    done = subprocess.run(command, cwd=junk, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "fairdro: junk.csv is not a text in UTF-8; save it as CSV in UTF-8, or as Parquet.\n"


def test_predict_and_audit_on_junk(folder, junk):
    for arguments, sentence in [
        (("predict", junk, junk / "one.csv", "--out", "p.csv"), "There is no complete model"),
        (("predict", folder / "model", junk / "one.csv", "--out", "p.csv"), "lacks columns the model was trained on"),
        (("predict", folder / "model", folder / "people.csv", "--out", "p.xls"), "must be a table in CSV"),
        (("predict", folder / "model", folder / "people.csv", "--out", "/proc/p.csv"), "Cannot write /proc/p.csv"),
        (("audit", junk / "one.csv", "--target", "y", "--prediction", "z", "--group", "g"), "There is no column 'z'"),
        (("audit", junk / "many.csv", "--target", "y", "--prediction", "id", "--group", "g"), "too many for classes"),
    ]:
        done = run_here(*arguments, cwd=folder)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert sentence in done.stderr
    assert not (folder / "p.csv").exists()
    (folder / "texts.csv").write_text((folder / "people.csv").read_text().replace("30", "thirty"))
    done = run_here("predict", folder / "model", folder / "texts.csv", "--out", "p.csv", cwd=folder)
    assert "'income' holds numbers in training, but here strings like" in done.stderr


def test_names_like_html_are_shown_and_never_markup(tmp_path):
    hostile = "<script>alert(1)</script>|`[x](javascript:y)"
    table = applicants().rename(columns={"sex": hostile, "income": f"in {hostile}"})
    table[hostile] = table[hostile] + "<img src=x onerror=y>"
    table.to_csv(tmp_path / "people.csv", index=False)
    options = ("--target", "repaid", "--group", hostile, "--out", "model")
    done = run_here("fit", "people.csv", *options, "--rho", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    card = (tmp_path / "model" / "model_card.md").read_text()
    assert "<" not in card
    assert "&lt;script&gt;" in card
    assert "](javascript" not in card.replace("\\]", "")


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.parquet"])
def test_tables_come_back_as_they_were_written(tmp_path, name):
    table = pa.table({
        "number": [1.5, None, -3.0],
        "whole": [1, 2, None],
        "text": ['say "hi", twice', "a\nb", None],
        "truth": [True, None, False],
    })  # fmt: skip
    if name.endswith(".gz"):
        import gzip

        write_table(table, tmp_path / "t.csv")
        (tmp_path / name).write_bytes(gzip.compress((tmp_path / "t.csv").read_bytes()))
    else:
        write_table(table, tmp_path / name)
    assert read_table(tmp_path / name).to_pylist() == table.to_pylist()


def test_semicolons_and_a_byte_order_mark(tmp_path):
    (tmp_path / "t.csv").write_bytes("\ufeffx;y\n1,5;a\n2,5;?\n".encode())
    assert read_table(tmp_path / "t.csv").to_pydict() == {"x": [1.5, 2.5], "y": ["a", None]}
    assert read_table(tmp_path / "t.csv", raw=True).to_pydict() == {"x": ["1,5", "2,5"], "y": ["a", "?"]}
    (tmp_path / "t.csv").write_text('"a, b, c";"d, e"\n1;2\n')
    assert read_table(tmp_path / "t.csv").column_names == ["a, b, c", "d, e"]


def test_the_same_row_gives_the_same_prediction_whatever_stands_beside_it(tmp_path):
    """Codes look like numbers where the one that does not is missing, and dates like texts."""
    rng = np.random.default_rng(0)
    yes = rng.random(600) < 0.5
    code = np.where(rng.random(600) < 0.9, np.where(yes, "01", "02"), np.where(yes, "02", "01"))
    table = pd.DataFrame({
        "x": rng.normal(size=600), "code": np.where(np.arange(600) == 0, "A1", code), "zip": "02139",
        "day": np.where(np.arange(600) == 0, "unknown", np.where(yes, "2020-01-01", "2021-01-01")),
        "id": [str(12345678901234567890 + i) for i in range(600)],
        "sex": rng.choice(["f", "m"], 600), "y": np.where(yes, "yes", "no"),
    })  # fmt: skip
    table.to_csv(tmp_path / "train.csv", index=False)
    table[1:].to_csv(tmp_path / "new.csv", index=False)
    options = ("--target", "y", "--group", "sex", "--drop", "id", "--rho", "1", "--out", "m")
    assert run_here("fit", "train.csv", *options, cwd=tmp_path).returncode == 0
    scored = []
    for name in ("train", "new"):
        assert run_here("predict", "m", f"{name}.csv", "--out", f"{name}-scored.csv", cwd=tmp_path).returncode == 0
        scored.append(pd.read_csv(tmp_path / f"{name}-scored.csv", dtype=str))
    whole, part = (table["probability of yes"].astype(float).to_numpy() for table in scored)
    np.testing.assert_allclose(whole[1:], part, rtol=1e-12)
    written = scored[1][list(table.columns.drop("x"))]
    pd.testing.assert_frame_equal(written, table[1:].drop(columns="x").reset_index(drop=True).astype(written.dtypes))
    table.assign(code="ZZ", x=None).to_csv(tmp_path / "odd.csv", index=False)
    done = run_here("predict", "m", "odd.csv", "--out", "odd-scored.csv", cwd=tmp_path)
    assert "'x' misses 600 of 600 values." in done.stdout
    assert "600 values of 'code' were never seen in training." in done.stdout


def test_a_full_disk_leaves_no_half_written_file(tmp_path):
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"
        "import pyarrow as pa; from pathlib import Path; from fairdro._utils.files import write_table;"
        "write_table(pa.table({'x': list(range(5000))}), Path(sys.argv[1]))"
    )
    target = tmp_path / "t.csv"
    target.write_text("x\n1\n")
    done = subprocess.run([sys.executable, "-c", code, target], capture_output=True, text=True, check=False)
    assert "Cannot write" in done.stderr
    assert target.read_text() == "x\n1\n"
    assert os.listdir(tmp_path) == ["t.csv"]  # noqa: PTH208


@pytest.mark.parametrize(
    ("values", "note"),
    [
        (
            ["31", "42", "53"] * 10 + ["abc"],
            "'age' holds numbers as strings, as it has 'abc' beside them: they are categories",
        ),
        (["1,234.50", "2,000", "x"] * 1 + ["17"] * 30, "'age' holds numbers as strings, as it has 'x' beside them"),
        (["2020-01-31", "2021-02-28 12:00"] * 10, "'age' holds dates as strings: they are categories; turn them into dates"),
        (["01", "02"] * 10, None),  # codes
        (["31", "a", "b"] * 10, None),
    ],
)
def test_strings_that_are_mostly_numbers_or_dates_are_said(values, note):
    notes = TableEncoder().fit(pd.DataFrame({"age": values})).notes_
    assert [found.startswith(note) for found in notes] == [True] if note else notes == []


def test_what_is_asked_for_cannot_be_left_out(tmp_path):
    pd.DataFrame({"x": [1, 2] * 50, "sex": ["f", "m"] * 50, "y": [0, 1, 1, 0] * 25}).to_csv(tmp_path / "a.csv", index=False)
    for name in ("y", "sex"):
        done = run_here("fit", "a.csv", "--target", "y", "--group", "sex", "--drop", name, "--out", "m", cwd=tmp_path)
        assert (done.returncode, "cannot be left out (--drop)" in done.stderr) == (2, True)


def test_the_card_says_what_is_predicted_and_for_whom(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=300), "se_x": ["f", "m"] * 150, "re|paid": rng.integers(0, 2, 300)})
    table.to_csv(tmp_path / "loans.csv", index=False)
    asked = ("--target", "re|paid", "--group", "se_x", "--rho", "1", "--max-iter", "5")
    assert run_here("fit", "loans.csv", *asked, "--out", "m", cwd=tmp_path).returncode == 0
    card = (tmp_path / "m" / "model_card.md").read_text(encoding="utf-8")
    for line in (r"- predicts: re\|paid", r"- groups: se\_x", r"- trained on: loans.csv"):
        assert line in card.splitlines()


def test_columns_that_are_no_categories_are_named_together(tmp_path):
    table = pd.DataFrame(
        {"x": np.arange(3000) % 7, "my id": [f"i{i}" for i in range(3000)], "b": [f"b{i}" for i in range(3000)]}
    )
    table.assign(sex=["f", "m"] * 1500, y=[0, 1, 1] * 1000).to_csv(tmp_path / "t.csv", index=False)
    done = run_here("fit", "t.csv", "--target", "y", "--group", "sex", "--out", "m", cwd=tmp_path)
    assert done.returncode == 2
    assert "'my id' (3,000), 'b' (3,000)" in done.stderr
    assert "(--drop 'my id' --drop b)" in done.stderr
