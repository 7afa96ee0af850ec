"""Features in a file are a dataset like any other."""

import numpy as np
import pandas as pd
import pytest

from command import run_here
from fairdro import load_dataset
from fairdro.data.examples import Examples
from fairdro.data.features import load_features, save_features
from fairdro.errors import InputError
from fairdro.groups import Groups
from problems import biased_problem


def written(path, *, soft=False, validation=True):
    X, cells = biased_problem(3, 2, n=900, soft=soft)
    rows = np.random.default_rng(0).permutation(900)
    parts = {"train": rows[:500], "test": rows[700:]} | ({"validation": rows[500:700]} if validation else {})
    groups = Groups(cells.groups.numpy(), ["u", "v"])
    save_features(path, X.numpy(), Examples("faces", None, cells.y.numpy(), groups, ["a", "b", "c"], parts, "# Faces"))
    return X, cells, parts


@pytest.mark.parametrize("soft", [False, True])
def test_they_come_back_with_their_parts(tmp_path, soft):
    X, cells, parts = written(tmp_path / "f.safetensors", soft=soft)
    data = load_dataset(str(tmp_path / "f.safetensors"))
    np.testing.assert_array_equal(data.X.to_numpy(), X.numpy())
    np.testing.assert_allclose(data.cells.counts, cells.counts)
    split = data.split("validated")
    assert [len(split.train.cells), len(split.validation.cells), len(split.test.cells)] == [500, 200, 200]
    np.testing.assert_array_equal(split.test.cells.y, cells.y[parts["test"]])
    assert split.train.X.mean(0).abs().max() < 1e-5
    assert len(data.split("paper").train.cells) == 500
    with pytest.raises(InputError, match="its own parts"):
        data.split(seed=1)


def test_without_a_validation_part_the_last_fifth_of_training_is_one(tmp_path):
    written(tmp_path / "f.safetensors", validation=False)
    split = load_features(tmp_path / "f.safetensors").split("validated")
    assert [len(split.train.cells), len(split.validation.cells)] == [400, 100]


def test_a_bench_takes_them_like_any_dataset(tmp_path):
    written(tmp_path / "faces.safetensors")
    options = ("--methods", "scratch,fairdro,lbc", "--points", "4", "--protocol", "validated", "--out", "out")
    done = run_here("bench", "faces.safetensors", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = pd.read_csv(tmp_path / "out" / "results.csv")
    assert set(results["method"]) == {"scratch", "fairdro", "lbc"}
    assert (tmp_path / "out" / "report.html").exists()


def test_what_holds_no_features_is_one_sentence(tmp_path):
    (tmp_path / "junk.safetensors").write_bytes(b"junk" * 20)
    for name, sentence in {"junk.safetensors": "holds no features", "missing.safetensors": "There is no file"}.items():
        done = run_here("bench", name, cwd=tmp_path)
        assert done.returncode == 2
        assert sentence in done.stderr
    with pytest.raises(InputError, match="must end in"):
        save_features(tmp_path / "x.npy", np.zeros((1, 1)), None)
