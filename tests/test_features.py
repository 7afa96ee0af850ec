"""Features in a file are a dataset like any other."""

import numpy as np
import pandas as pd
import pytest
import torch

from command import run_here
from fairdro import load_dataset
from fairdro.data import Dataset
from fairdro.data.examples import Examples
from fairdro.data.features import load_features, save_features
from fairdro.errors import InputError
from fairdro.groups import Groups
from problems import biased_problem, softness


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


def test_without_a_validation_part_the_last_fifth_of_training_is_one(tmp_path):
    written(tmp_path / "f.safetensors", validation=False)
    split = load_features(tmp_path / "f.safetensors").split("validated")
    assert [len(split.train.cells), len(split.validation.cells)] == [400, 100]


def numbered(*, soft=False, trained=False):
    """Features whose first column is the number of the row; the last 60 rows are copies of the first."""
    X, cells = biased_problem(3, 2, n=900, soft=soft)
    X[:, 0] = torch.arange(900)
    X[840:] = X[:60]
    rows = np.random.default_rng(0).permutation(900)
    parts = {"train": rows[:500], "validation": rows[500:700], "test": rows[700:]}
    groups, table = Groups(cells.groups.numpy(), ["u", "v"]), pd.DataFrame(X.numpy())
    return Dataset("faces", table, cells.y.numpy(), groups, pd.DataFrame(), ["a", "b", "c"], "", parts, trained)


def rows_of(split):
    """Which rows the parts hold, as their scaled numbers are in the same order."""
    parts = {name: getattr(split, name).X[:, 0] for name in ("train", "validation", "test")}
    ranks = torch.cat(list(parts.values())).argsort().argsort().split([len(part) for part in parts.values()])
    return dict(zip(parts, (rank.numpy() for rank in ranks), strict=True))


@softness
@pytest.mark.parametrize("seed", [1, 2**32 - 1])
def test_other_splits_shuffle_cells_among_the_parts_without_copies(soft, seed):
    data = numbered(soft=soft)
    split = data.split(seed=seed)
    found = rows_of(split)
    assert sorted(np.concatenate(list(found.values()))) == list(range(840))
    a = data.a.argmax(-1) if soft else data.a
    for name, own in data.parts.items():
        rows, before = found[name], own[own < 840]
        assert sorted(zip(data.y[rows], a[rows], strict=True)) == sorted(zip(data.y[before], a[before], strict=True))
        np.testing.assert_array_equal(getattr(split, name).cells.y, data.y[rows])
        share = np.isin(rows, before).mean()
        assert abs(share - len(before) / 840) < 0.1  # of rows that stayed where they were, what chance leaves
    again, other = rows_of(data.split(seed=seed)), rows_of(data.split(seed=seed - 1 or 7))
    assert all(np.array_equal(again[name], found[name]) for name in found)
    assert not np.array_equal(np.sort(other["test"]), np.sort(found["test"]))


def test_features_of_a_network_that_was_trained_on_them_keep_their_parts():
    data = numbered(trained=True)
    assert len(data.split().test.cells) == 200
    with pytest.raises(InputError, match="of a network trained on its train part"):
        data.split(seed=1)


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
