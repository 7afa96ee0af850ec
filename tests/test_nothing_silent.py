"""What must not happen without a word: wrong results, files overwritten, parameters that cannot be."""

import contextlib
import inspect
import json
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from command import run_here
from fairdro import (
    FairClassifier,
    FairDROBoostingClassifier,
    FairDROClassifier,
    FairDROClassifierCV,
    FairDROHeadClassifier,
    FairDROLoss,
    fit_head,
    load,
)
from fairdro._utils.files import check_writable, read_table, write_table
from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.groups import encode_groups
from fairdro.methods import FairDRO
from fairdro.selection import Choice
from fairdro.training import train_fullbatch, train_minibatch
from problems import biased_problem


def people(n=400):
    X, cells = biased_problem(2, 2, n=n)
    return X.double().numpy(), cells.y.numpy(), cells.groups.numpy()


def table(n=1200):
    X, y, a = people(n)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(X, columns=list("pqrstu")).round(3)
    kind, answer = np.array(["u", "v"])[a], np.array(["no", "yes"])[y]
    return frame.assign(town=rng.choice(["Ulm", "Köln", "?"], n), kind=kind, answer=answer)


OPTIONS = ("--target", "answer", "--group", "kind")


@pytest.mark.parametrize("strange", [b"K\xf6ln", b"K\0ln"], ids=["latin-1", "null"])
def test_a_byte_that_is_no_text_is_found_wherever_it_is(tmp_path, strange):
    rows = "".join(f"{i},Köln,yes\n" for i in range(9000)).encode()
    assert len(rows) > 2 * (1 << 16)
    (tmp_path / "t.csv").write_bytes(b"n,town,answer\n" + rows + b"1," + strange + b",no\n")
    for raw in (False, True):
        with pytest.raises(InputError, match="is not a text in UTF-8"):
            read_table(tmp_path / "t.csv", raw=raw)


def test_codes_with_leading_zeros_are_strings_wherever_they_are(tmp_path):
    rows = "".join(f"{i},1,{i % 7}\n" for i in range(20_000))
    (tmp_path / "t.csv").write_text("n,zip,k\n" + rows + "5,01,3\n")
    found = read_table(tmp_path / "t.csv")
    assert found["zip"].to_pylist()[-2:] == ["1", "01"]
    assert pa.types.is_integer(found.schema.field("n").type)


def test_csv_and_parquet_agree_on_what_is_missing(tmp_path):
    frame = table()
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.astype({"town": "category"}).to_parquet(tmp_path / "t.parquet")
    missing = [read_table(tmp_path / name)["town"].null_count for name in ("t.csv", "t.parquet")]
    assert missing[0] == missing[1] == (frame["town"] == "?").sum()
    assert read_table(tmp_path / "t.parquet", raw=True)["town"].null_count == 0
    assert run_here("fit", "t.csv", *OPTIONS, "--rho", "1", "--out", "m", cwd=tmp_path).returncode == 0
    done = run_here("predict", "m", "t.parquet", "--out", "p.csv", cwd=tmp_path)
    assert "never seen" not in done.stdout


def test_an_index_of_pandas_is_nothing_to_learn_from(tmp_path):
    frame = table()
    frame[frame["p"] > -1].to_parquet(tmp_path / "t.parquet")  # with an index that is not the default
    assert "__index_level_0__" in pa.parquet.read_schema(tmp_path / "t.parquet").names
    run_here("fit", "t.parquet", *OPTIONS, "--rho", "1", "--out", "m", cwd=tmp_path)
    assert "__index_level_0__" not in load(tmp_path / "m")[0].feature_names_in_


def test_predictions_in_parquet_keep_the_types_of_columns(tmp_path):
    table().to_csv(tmp_path / "t.csv", index=False)
    run_here("fit", "t.csv", *OPTIONS, "--rho", "1", "--out", "m", cwd=tmp_path)
    done = run_here("predict", "m", "t.csv", "--out", "p.parquet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    schema = pa.parquet.read_schema(tmp_path / "p.parquet")
    assert pa.types.is_floating(schema.field("p").type)
    audit = ("audit", "p.parquet", "--target", "answer", "--prediction", "predicted", "--group", "kind")
    assert run_here(*audit, cwd=tmp_path).returncode == 0


def test_large_numbers_of_groups_stay_apart_in_every_library():
    values = [2**53, 2**53 + 1, None]
    for given in (
        values,
        pl.Series(values),
        pa.array(values),
        pd.Series(values, dtype="Int64"),
        pl.DataFrame({"g": values}),
    ):
        assert len(encode_groups(given, "group").names) == 3


def test_large_numbers_of_groups_stay_apart_in_files(tmp_path):
    frame = table()
    numbers = [2**53, 2**53 + 1]
    kind = [None if i % 50 == 0 else numbers[i % 2] for i in range(len(frame))]
    whole = pa.Table.from_pandas(frame.drop(columns="kind")).append_column("kind", pa.array(kind))
    pa.parquet.write_table(whole, tmp_path / "t.pq")
    done = run_here("fit", "t.pq", *OPTIONS, "--rho", "1", "--out", "m", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert load(tmp_path / "m")[-1].group_names_ == [*map(str, numbers), "(missing)"]


def test_nothing_is_overwritten_unasked(tmp_path):
    table().to_csv(tmp_path / "t.csv", index=False)
    fit = ("fit", "t.csv", *OPTIONS, "--rho", "1", "--out", "m")
    assert run_here(*fit, cwd=tmp_path).returncode == 0
    before = (tmp_path / "m" / "model.json").read_bytes()
    done = run_here(*fit, cwd=tmp_path)
    assert (done.returncode, "--force" in done.stderr) == (2, True)
    assert (tmp_path / "m" / "model.json").read_bytes() == before
    assert run_here(*fit, "--force", cwd=tmp_path).returncode == 0
    content = (tmp_path / "t.csv").read_bytes()
    for force in ((), ("--force",)):
        done = run_here("predict", "m", "t.csv", "--out", "t.csv", *force, cwd=tmp_path)
        assert (done.returncode, "is what is read" in done.stderr) == (2, True)
    (tmp_path / "link.csv").symlink_to(tmp_path / "t.csv")
    assert run_here("predict", "m", "t.csv", "--out", "link.csv", "--force", cwd=tmp_path).returncode == 2
    assert (tmp_path / "t.csv").read_bytes() == content
    predict = ("predict", "m", "t.csv", "--out", "p.csv")
    assert [run_here(*predict, *more, cwd=tmp_path).returncode for more in ((), (), ("--force",))] == [0, 2, 0]
    audit = ("audit", "p.csv", "--target", "answer", "--prediction", "predicted", "--group", "kind", "--out", "a.md")
    assert [run_here(*audit, *more, cwd=tmp_path).returncode for more in ((), (), ("--force",))] == [0, 2, 0]


def test_nothing_outside_a_folder_is_touched(tmp_path):
    X, y, a = people()
    model = FairDROClassifier(1.0).fit(X, y, sensitive_features=a)
    model.save(tmp_path / "m")
    victim = tmp_path / "weights-victim.safetensors"
    victim.write_text("mine")
    about = json.loads((tmp_path / "m" / "model.json").read_text())
    for path in ("/../../weights-v", "../victim", "x" * 64, 7, None):
        (tmp_path / "m" / "model.json").write_text(json.dumps(about | {"tensors": path}))
        with pytest.raises(InputError, match="holds other things"):
            model.save(tmp_path / "m")
    assert victim.read_text() == "mine"


def test_what_cannot_be_written_is_said_before_training(tmp_path, monkeypatch):
    table().to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("fairdro.estimators.tables.fit_table", None)  # training would fail otherwise
    done = run_here("fit", "t.csv", *OPTIONS, "--out", "file/m", cwd=tmp_path)
    assert (done.returncode, "Cannot write" in done.stderr) == (2, True), done.stderr
    check_writable(tmp_path / "new" / "folder" / "m")
    assert not (tmp_path / "new").exists()


def test_a_model_without_its_card_is_said_to_be_one(tmp_path, monkeypatch):
    from fairdro.estimators import saving

    X, y, a = people()
    model, honest = FairDROClassifier(1.0).fit(X, y, sensitive_features=a), saving.write_whole

    def full(path, content):
        if path.name == "model_card.md":
            raise InputError("Cannot write it: No space left on device.")
        honest(path, content)

    monkeypatch.setattr(saving, "write_whole", full)
    with pytest.raises(InputError, match="is saved, but without its card"):
        model.save(tmp_path / "m")
    assert (load(tmp_path / "m").predict(X) == model.predict(X)).all()


def test_targets_that_are_missing_or_infinite(tmp_path):
    frame = table().assign(answer=lambda t: (t["answer"] == "yes").astype(float))
    frame.loc[:9, "answer"] = np.nan
    pa.parquet.write_table(pa.Table.from_pandas(frame, preserve_index=False, nthreads=1), tmp_path / "t.pq")
    raw = pa.table({name: pa.array(frame[name].to_numpy(), from_pandas=False) if name == "answer" else pa.array(frame[name])
                    for name in frame})  # fmt: skip
    pa.parquet.write_table(raw, tmp_path / "nan.pq")
    for name in ("t.pq", "nan.pq"):
        done = run_here("fit", name, *OPTIONS, "--rho", "1", "--out", f"m-{name}", cwd=tmp_path)
        assert "10 rows without a value of 'answer' are left out." in done.stdout, done.stderr
    frame.loc[0, "answer"] = np.inf
    frame.to_parquet(tmp_path / "inf.pq")
    done = run_here("fit", "inf.pq", *OPTIONS, "--out", "m", cwd=tmp_path)
    assert (done.returncode, "holds infinite values" in done.stderr) == (2, True), done.stderr


def test_csv_holds_no_bytes(tmp_path):
    with pytest.raises(InputError, match="CSV cannot hold the column 'b'"):
        write_table(pa.table({"b": pa.array([b"x"])}), tmp_path / "t.csv")
    assert list(tmp_path.iterdir()) == []


CLASSIFIERS = {
    "linear": FairDROClassifier,
    "cv": lambda **given: FairDROClassifierCV(**{"rhos": [0, 1], "cv": 2} | given),
    "any": FairClassifier,
    "head": lambda **given: FairDROHeadClassifier(**{"rhos": [0, 1], "cv": 2} | given),
    "boosting": lambda **given: FairDROBoostingClassifier(**{"rhos": [0, 1], "cv": 2, "n_estimators": 3} | given),
}
JUNK = ["x", "", -3, 97, 2.5, 1e300, float("nan"), float("inf"), None, True, [], {"x": 1}, object(), np.ones(3)]


def parameters():
    """Every public parameter of every classifier, from the signatures."""
    for name, made in CLASSIFIERS.items():
        for parameter in inspect.signature(type(made())).parameters.values():
            if parameter.kind is not parameter.VAR_KEYWORD:
                yield name, parameter.name


SLOW = {"cv", "any", "head", "boosting"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("classifier", "parameter"),
    [pytest.param(*names, marks=[pytest.mark.slow] if names[0] in SLOW else []) for names in parameters()],
)
def test_a_parameter_that_cannot_be_is_refused_in_a_sentence(classifier, parameter):
    """Whatever is passed: a fit that works, or a ValueError, whose last line is a sentence."""
    X, y, a = people(100)
    for junk in JUNK:
        sentence = "."
        try:
            CLASSIFIERS[classifier](**{parameter: junk}).fit(X, y, sensitive_features=a)
        except ValueError as error:
            sentence = str(error).strip()
        assert re.search(r"[.!?)'\]]$", sentence), (junk, sentence)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("parameter", inspect.signature(FairDROLoss).parameters)
def test_a_parameter_of_the_loss_that_cannot_be_is_refused_in_a_sentence(parameter):
    sound = {"n_classes": 2, "n_groups": 2, "total_steps": 2}
    logits, y = torch.randn(8, 2, requires_grad=True), torch.arange(8) % 2
    for junk in JUNK:
        sentence = "."
        try:
            criterion = FairDROLoss(**sound | {parameter: junk})
        except ValueError as error:
            sentence = str(error).strip()
        else:
            with contextlib.suppress(InputError):  # of another number of classes
                criterion(logits, y, y).backward()
                criterion.step()
                assert criterion.q.isfinite().all(), junk
        assert re.search(r"[.!?)'\]]$", sentence), (junk, sentence)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("quick_heads")
@pytest.mark.parametrize("parameter", inspect.signature(fit_head).parameters)
def test_a_parameter_of_a_head_that_cannot_be_is_refused_in_a_sentence(parameter):
    X, y, a = people(60)
    p = np.column_stack([1 - (X[:, 0] > 0) * 0.8 - 0.1, (X[:, 0] > 0) * 0.8 + 0.1])
    sound = {"p_class": p, "p_group": p, "y": y, "sensitive_features": a, "rhos": None if parameter == "rho" else [0, 1]}
    for junk in JUNK:
        sentence = "."
        try:
            fit_head(**sound | {parameter: junk})
        except ValueError as error:
            sentence = str(error).strip()
        assert re.search(r"[.!?)'\]]$", sentence), (junk, sentence)


def test_rules_that_are_none():
    X, y, a = people(200)
    strange = [lambda points, plain: 99, lambda points, plain: Choice(99, "")]
    for rule in (lambda: 1, lambda points: 1, 5, "nothing", Choice, *strange):
        with pytest.raises(InputError, match="selection rule"):
            FairDROClassifierCV(rule=rule, rhos=[0, 1], cv=2).fit(X, y, sensitive_features=a)
    with pytest.raises(InputError, match=r"for 97 %, write 0\.97"):
        FairDROClassifierCV(keep_accuracy=97).fit(X, y, sensitive_features=a)


@pytest.mark.filterwarnings("ignore")
def test_constant_columns_strings_and_groups_of_one_row():
    X, y, a = people(200)
    for strategy in ("head", "weights"):
        with pytest.raises(InputError, match="All columns are constant"):
            FairDROBoostingClassifier(1.0, strategy=strategy).fit(np.ones((200, 2)), y, sensitive_features=a)
    frame = pd.DataFrame({"town": np.where(a, "Ulm", "Bonn"), "x": X[:, 0]})
    with pytest.raises(InputError, match=r"'town' holds strings.*astype\('category'\)"):
        FairDROBoostingClassifier(1.0).fit(frame, y, sensitive_features=a)
    for model in (
        FairDROClassifierCV(1.0, cv=2),
        FairDROBoostingClassifier(1.0, cv=2),
        FairDROHeadClassifier(rho=1.0, cv=2),
    ):
        with pytest.raises(InputError):
            model.fit(X[:40], y[:40], sensitive_features=np.arange(40))


@pytest.mark.parametrize("train", [train_fullbatch, train_minibatch])
def test_codes_that_are_none(train):
    X, cells = biased_problem(2, 2, n=60)
    for codes, name in ((cells.y - 1, "class"), (cells.y + 1, "class"), (cells.groups - 1, "group")):
        y, a = (codes, cells.groups) if name == "class" else (cells.y, codes)
        with pytest.raises(InputError, match=f"codes of the {name} must lie between 0 and 1"):
            train(X, Cells(y, a, n_classes=2, n_groups=2), FairDRO())


def test_a_head_at_a_radius_that_is_none():
    X, y, a = people(600)
    p = np.column_stack([1 - (X[:, 0] > 0) * 0.8 - 0.1, (X[:, 0] > 0) * 0.8 + 0.1])
    head = fit_head(p, p, y, a, rhos=[0, 1])
    for junk in ("1", None, 7, [1], float("nan"), True):
        with pytest.raises(InputError):
            head.at(junk)
