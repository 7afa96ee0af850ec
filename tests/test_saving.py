"""Saved models come back the same, damaged ones are refused, and nothing in a folder is executed."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fairdro
from fairdro import FairClassifier, FairDROBoostingClassifier, FairDROClassifier, FairDROClassifierCV, TableEncoder
from fairdro._utils.hashing import digest
from fairdro.errors import InputError
from fairdro.metrics import confusion, dca
from fairdro.selection import Choice, LimitDCA
from problems import biased_problem


@pytest.fixture(scope="module")
def problem():
    X, cells = biased_problem(3, 2, n=900)
    return 50 + 20 * X.numpy().astype(np.float64), np.array(["low", "mid", "high"])[cells.y.numpy()], cells.groups.numpy()


@pytest.fixture(scope="module")
def saved(problem, tmp_path_factory):
    X, y, a = problem
    folder = tmp_path_factory.mktemp("saved") / "model"
    model = FairDROClassifier(1.0).fit(X, y, sensitive_features=a)
    model.save(folder)
    return model, folder


@pytest.mark.parametrize(
    "model",
    [
        FairDROClassifier(2.0),
        FairDROClassifier(0.5, model="mlp", random_state=3),
        FairClassifier(method="lbc", eta=1.0, objective="standard"),
        FairDROClassifierCV(rule=LimitDCA(0.2), rhos=[0, 1], cv=KFold(2, shuffle=True, random_state=0)),
    ],
    ids=lambda model: f"{type(model).__name__}-{model.model}",
)
@pytest.mark.parametrize("labels", [str, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (bool, int, object))])
def test_what_was_saved_comes_back(problem, tmp_path, model, labels):
    X, y, a = problem
    y = {str: y, object: y.astype(object), int: np.unique(y, return_inverse=True)[1] + 5, bool: y == "low"}[labels]
    model.fit(X, y, sensitive_features=a)
    model.save(tmp_path / "model")
    back = fairdro.load(tmp_path / "model")
    assert type(back) is type(model)
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    assert back.predict(X).dtype.kind == model.predict(X).dtype.kind
    kept = {key: value for key, value in model.get_params().items() if key != "cv"}
    assert {key: value for key, value in back.get_params().items() if key != "cv"} == kept
    assert back.group_names_ == model.group_names_
    if hasattr(model, "frontier_"):
        pd.testing.assert_frame_equal(back.frontier_, model.frontier_)
        assert back.held_out().metric("dca") == model.held_out().metric("dca")


def test_a_pipeline_with_its_encoder(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({
        "age": rng.normal(40, 10, 500), "job": rng.choice(["a", "b", "<i>"], 500),
        "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 99, 500), unit="D"),
    })  # fmt: skip
    table.loc[:9, ["age", "job"]] = None
    y, a = (rng.normal(size=500) + (table["job"] == "a")) > 0, rng.choice(["u", "v"], 500)
    model = make_pipeline(TableEncoder(), FairDROClassifier(1.0)).fit(table, y, fairdroclassifier__sensitive_features=a)
    fairdro.save(model, tmp_path / "model")
    back = fairdro.load(tmp_path / "model")
    np.testing.assert_array_equal(back.predict_proba(table), model.predict_proba(table))
    assert back[0].get_feature_names_out().tolist() == model[0].get_feature_names_out().tolist()
    with pytest.raises(InputError, match="alone or after a TableEncoder"):
        fairdro.save(make_pipeline(StandardScaler(), FairDROClassifier()), tmp_path / "other")
    with pytest.raises(InputError, match="alone or after a TableEncoder"):
        fairdro.save(StandardScaler(), tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("file", ["model.json", "weights"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "junk", "gone"])
def test_a_damaged_folder_is_refused_with_a_sentence(saved, tmp_path, file, damage):
    folder = shutil.copytree(saved[1], tmp_path / "model")
    path = next(path for path in folder.iterdir() if path.name.startswith(file))
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        middle = len(content) // 2
        path.write_bytes({
            "cut": content[:-9],
            "flipped": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "empty": b"",
            "junk": os.urandom(500),
        }[damage])  # fmt: skip
    with pytest.raises(InputError, match=r"cannot be used|no complete model"):
        fairdro.load(folder)


def resign(folder, change):
    """Change model.json as someone would who knows how its checksum is made."""
    about = json.loads((folder / "model.json").read_text())
    about.pop("checksum")
    change(about)
    (folder / "model.json").write_text(json.dumps(about | {"checksum": digest(about)}))


@pytest.mark.parametrize(
    "change",
    [
        lambda about: about.update(format=99),
        lambda about: about.update(tensors="../../secret"),
        lambda about: about.update(tensors=7),
        lambda about: about["state"].update(kind="os.system"),
        lambda about: about["state"].update(kind="FairDROClassifierCV"),
        lambda about: about["state"]["parameters"].update(surprise=1),
        lambda about: about["state"]["fitted"].pop("coef_"),
        lambda about: about["state"]["fitted"].update(n_features_in_=3),
        lambda about: about["state"]["fitted"].update(predict="mine"),
        lambda about: about["state"]["fitted"].update(coef_={"$tensor": "99"}),
        lambda about: about["state"].update(encoder={"columns": []}),
        lambda about: about.update(state=[1, 2]),
        lambda about: about.pop("state"),
    ],
)
def test_a_forged_folder_is_refused_with_a_sentence(saved, tmp_path, change):
    folder = shutil.copytree(saved[1], tmp_path / "model")
    resign(folder, change)
    with pytest.raises(InputError, match="cannot be used"):
        fairdro.load(folder)


def test_a_missing_folder_and_one_that_cannot_be_made(saved, tmp_path):
    with pytest.raises(InputError, match=r"There is no complete model in .*nowhere: model.json is not there"):
        fairdro.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="holds other things"):
        saved[0].save(tmp_path / "file")
    with pytest.raises(InputError, match="Cannot write"):
        saved[0].save("/proc/model")


def test_files_of_others_are_left_alone(saved, tmp_path):
    (tmp_path / "model.json").write_text('{"tfjs": 1}')
    (tmp_path / "weights-resnet50.safetensors").write_text("precious")
    with pytest.raises(InputError, match="holds other things"):
        saved[0].save(tmp_path)
    assert (tmp_path / "weights-resnet50.safetensors").read_text() == "precious"


def test_a_rule_of_ones_own_and_a_radius_that_was_asked_for_are_told_as_they_are(problem, tmp_path):
    X, y, a = problem

    def fairest(points, plain):
        return Choice(int(points["dca"].argmin()), "the fairest")

    model = FairDROClassifierCV(rule=fairest, rhos=[0, 1], cv=2).fit(X, y, sensitive_features=a)
    model.save(tmp_path)
    assert "the fairest" in fairdro.load(tmp_path).model_card()


def test_saving_again_replaces_the_model_and_keeps_nothing_old(problem, tmp_path):
    X, y, a = problem
    first, second = (FairDROClassifier(rho).fit(X, y, sensitive_features=a) for rho in (0.0, 2.0))
    first.save(tmp_path)
    second.save(tmp_path)
    np.testing.assert_array_equal(fairdro.load(tmp_path).coef_, second.coef_)
    assert len(list(tmp_path.iterdir())) == 3


def test_killed_while_saving_the_old_model_or_the_new_is_there(saved, problem, tmp_path):
    """Kill a process that saves two models in turn, again and again, at moments that differ."""
    X, y, a = problem
    code = (
        "import sys, fairdro; models = [fairdro.load(path) for path in sys.argv[1:3]]; print('ready', flush=True)\n"
        "while True: [model.save(sys.argv[3]) for model in models]"
    )
    other = FairDROClassifier(0.0).fit(X, y, sensitive_features=a)
    other.save(tmp_path / "other")
    other.save(tmp_path / "turns")
    possible = [other.coef_.tobytes(), saved[0].coef_.tobytes()]
    for pause in (0.0, 0.017):
        process = subprocess.Popen(
            [sys.executable, "-c", code, saved[1], tmp_path / "other", tmp_path / "turns"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(pause)
        process.kill()
        process.wait()
        process.stdout.close()
        assert fairdro.load(tmp_path / "turns").coef_.tobytes() in possible


def test_the_card_has_data_groups_metrics_and_intervals(problem):
    X, y, a = problem
    model = FairDROClassifierCV(rhos=[0, 1], cv=2).fit(X, y, sensitive_features=a)
    card = model.model_card()
    held_out = model.held_out().metrics()
    for part in ("900 rows", "| class | 0 | 1 |", "rho: ", "bootstrap", f"{100 * held_out['low']['dca']:.1f}", "optimistic"):
        assert part in card, part
    fresh = model.model_card(X, y, sensitive_features=a)
    judged = confusion(y, model.predict(X), sensitive_features=a)
    assert f"{100 * judged.metric('dca'):.1f}" in fresh
    assert "On 900 rows" in fresh
    with pytest.raises(InputError, match="needs X, y and sensitive_features"):
        model.model_card(X)
    plain = FairDROClassifier().fit(X, y, sensitive_features=a)
    assert "Not judged on rows of its own" in plain.model_card()


def test_a_card_of_soft_groups_has_no_intervals(problem):
    X, y, a = problem
    shares = np.column_stack([0.9 - 0.6 * a, 0.1 + 0.6 * a])
    model = FairDROClassifierCV(rhos=[0, 0.3], cv=2).fit(X, y, sensitive_features=shares)
    assert "No intervals" in model.model_card()
    assert np.isnan(model.held_out().metrics().loc["dca", "low"])
    assert dca(y, model.predict(X), sensitive_features=shares) < 0.5


def test_trees_that_tell_missing_values_from_all_others(tmp_path):
    """LightGBM's threshold of such a split is infinite."""
    pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    y, a = rng.integers(0, 2, (2, 600))
    X = np.column_stack(
        [np.where(rng.random(600) < 0.2 + 0.6 * y, np.nan, rng.integers(0, 3, 600)), rng.normal(size=600) + a]
    )
    model = FairDROBoostingClassifier(rho=1.0, n_estimators=20, n_jobs=1).fit(X, y, sensitive_features=a)
    model.save(tmp_path / "model")
    written = b"".join(path.read_bytes() for path in (tmp_path / "model").iterdir())
    assert b" inf" in written or b"=inf" in written
    np.testing.assert_array_equal(fairdro.load(tmp_path / "model").predict_proba(X), model.predict_proba(X))
