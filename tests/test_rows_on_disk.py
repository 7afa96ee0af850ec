"""Rows in a file, growing samples, and rows that processes share: the same models as in memory."""

import tempfile
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fairdro import FairDROClassifierCV
from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.estimators.layers import fit_scaler
from fairdro.groups import Groups
from fairdro.metrics import balanced_accuracy, dca
from fairdro.training import blocks
from fairdro.training.rows import HELD_OUT, DrawnSplit, RowsOnDisk, ScaledRows, draws_of
from ranks import on_two_processes

CLASSES, GROUPS = ["no", "yes"], ["A", "B"]


def people(n, seed=0, d=6):
    """Two groups with different relations of features and class."""
    rng = np.random.default_rng(seed)
    X = rng.normal(3, 2, size=(n, d)).astype(np.float32)
    a = (rng.random(n) < 0.3).astype(np.int64)
    score = np.where(a == 1, X[:, 0] - 2 * X[:, 1] + 2, 1.5 * X[:, 0] - X[:, 2] - 1.5)
    y = (score + rng.logistic(size=n) > 0).astype(np.int64)
    return X, y, a


@contextmanager
def on_disk(X, numbers=None, dtype="float32"):
    with tempfile.TemporaryFile() as file:
        file.write(np.ascontiguousarray(X, dtype=dtype).tobytes())
        file.flush()
        yield RowsOnDisk(file, X.shape, dtype, None if numbers is None else draws_of(numbers))


def fit_on_disk(rows, y, a, **options):
    labels, groups = pd.Categorical.from_codes(y, CLASSES), Groups(a, GROUPS)
    return FairDROClassifierCV(cv=DrawnSplit(), rhos=[0, 0.3, 1, 3], **options).fit(rows, labels, sensitive_features=groups)


def fit_in_memory(X, y, a):
    ((train, test),) = DrawnSplit().split(RowsOnDisk(None, X.shape))
    classifier = FairDROClassifierCV(cv=[(train, test)], rhos=[0, 0.3, 1, 3])
    return classifier.fit(X, np.array(CLASSES)[y], sensitive_features=np.array(GROUPS)[a])


def test_means_and_scales_are_those_of_all_rows_also_of_rare_values():
    X = np.random.default_rng(0).normal(1000, 2, size=(500_000, 3)).astype(np.float32)
    X[:, 1] = 0
    X[[7, 200_000, 499_999], 1] = 5e6  # a sample would hardly have one of them
    X[:, 2] = 0.1
    with on_disk(X) as kept:
        (train, _), *_ = DrawnSplit().split(kept)
        for rows in (np.arange(len(X)), train):
            mean, variance = kept.moments(rows)
            np.testing.assert_allclose(mean, X[rows].mean(0, dtype=np.float64), rtol=1e-12)
            np.testing.assert_allclose(variance[:2], X[rows][:, :2].var(0, dtype=np.float64), rtol=1e-6)
            assert fit_scaler(kept, rows, None).scale_[2] == 1  # which is constant


@settings(deadline=None, max_examples=50)
@given(hnp.arrays(np.int64, st.integers(0, 60), elements=st.integers(0, 99)), st.sampled_from([64, 300, 1 << 20]))
def test_any_rows_are_read_in_any_order(rows, at_once):
    X = np.arange(300, dtype=np.float32).reshape(100, 3)
    with pytest.MonkeyPatch.context() as patch, on_disk(X) as kept:
        patch.setattr("fairdro.training.rows.BYTES_AT_ONCE", at_once)
        np.testing.assert_array_equal(kept[rows], X[rows])


def test_half_precision_is_read_as_single():
    X = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float16)
    with on_disk(X, dtype="float16") as rows:
        read = rows[np.arange(50)]
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, X.astype(np.float32))


def test_a_file_that_ends_too_early_is_no_zeros():
    with on_disk(np.ones((10, 2), dtype=np.float32)) as rows, pytest.raises(OSError, match="ends too early"):
        RowsOnDisk(rows.file, (11, 2))[np.array([10])]


def test_draws_are_uniform_and_independent():
    draws = draws_of(np.arange(200_000))
    assert len(np.unique(draws)) > 199_990
    held = (draws & 255) < HELD_OUT * 256
    assert held.mean() == pytest.approx(52 / 256, abs=0.004)  # HELD_OUT, rounded to the bits there are
    rows = RowsOnDisk(None, (200_000, 1))
    for share in (0.01, 0.3):
        drawn = rows.drawn(np.arange(200_000), share)
        assert drawn.mean() == pytest.approx(share, rel=0.05)
        assert drawn[held].mean() == pytest.approx(share, rel=0.1)
    assert set(rows.sample(0.1)) <= set(rows.sample(0.2))


def test_rows_on_disk_give_the_model_of_rows_in_memory():
    X, y, a = people(6000)
    order = np.lexsort((a, y))
    with on_disk(X[order], order) as rows:
        disk = fit_on_disk(rows, y[order], a[order])
    memory = fit_in_memory(X, y, a)
    assert disk.rho_ == memory.rho_
    np.testing.assert_allclose(disk.coef_, memory.coef_, atol=1e-8)
    np.testing.assert_array_equal(disk.confusion_, memory.confusion_)
    np.testing.assert_allclose(disk.predict_proba(X), memory.predict_proba(X), atol=1e-6)


def test_growing_samples_agree_with_all_rows_within_the_noise(monkeypatch):
    monkeypatch.setattr(blocks, "MOST_PER_CELL", 2**12)
    monkeypatch.setattr(blocks, "FEWEST_PER_CELL", 2**8)
    X, y, a = people(60_000)
    order = np.lexsort((a, y))
    read, real = [], RowsOnDisk._read
    monkeypatch.setattr(RowsOnDisk, "_read", lambda self, i, j: read.append(j - i) or real(self, i, j))
    with on_disk(X[order], order) as rows:
        disk = fit_on_disk(rows, y[order], a[order])
    memory = fit_in_memory(X, y, a)
    assert sum(read) < 0.6 * 4 * 200 * len(X)  # of the four trainings' steps
    held = ~np.isin(np.arange(len(X)), next(iter(DrawnSplit().split(RowsOnDisk(None, X.shape))))[0])
    noise = 2 * np.sqrt(2 * 0.25 / 2000)
    assert np.abs(disk.frontier_["dca"] - memory.frontier_["dca"]).max() < noise
    assert np.abs(disk.frontier_["accuracy"] - memory.frontier_["accuracy"]).max() < noise / 2
    truth, groups = np.array(CLASSES)[y][held], np.array(GROUPS)[a][held]
    for metric in (dca, balanced_accuracy):
        ours, theirs = (metric(truth, model.predict(X[held]), sensitive_features=groups) for model in (disk, memory))
        assert abs(ours - theirs) < noise


def test_all_rows_of_a_small_cell_are_in_every_sample(monkeypatch):
    monkeypatch.setattr(blocks, "MOST_PER_CELL", 1600)
    monkeypatch.setattr(blocks, "FEWEST_PER_CELL", 100)
    X, y, a = people(20_000)
    a[np.flatnonzero((y == 1) & (a == 1))[40:]] = 0
    cells = Cells.from_labels(y, Groups(a, GROUPS), n_classes=2)
    scaled = ScaledRows(RowsOnDisk(None, X.shape), np.arange(len(X)), np.zeros(6), np.ones(6))
    samples, last = blocks.growing_samples(scaled, cells, cells.counts)
    assert ([begin for begin, _ in samples], last) == ([0.0, 0.5, 0.75], blocks.ALL_ROWS)
    sizes = torch.stack([cells.take(rows).counts for _, rows in samples])
    assert sizes[:, 1, 1].tolist() == [40, 40, 40]
    assert (sizes[:, 0, 0] / 1600).tolist() == pytest.approx([1 / 16, 1 / 4, 1], rel=0.25)


def test_samples_that_are_too_small_are_left_out():
    X, y, a = people(80_000)
    cells = Cells.from_labels(y, Groups(a, GROUPS), n_classes=2)
    scaled = ScaledRows(RowsOnDisk(None, X.shape), np.arange(len(X)), np.zeros(6), np.ones(6))
    for per_cell, begins, last in ((4095, [0.0], 0.9), (1000, [], 0.0)):
        scaled.X.most_numbers = per_cell * 6 * cells.counts.numel()
        samples, first = blocks.growing_samples(scaled, cells, cells.counts)
        assert [begin for begin, _ in samples] == begins
        assert first == last


def test_a_block_of_one_row_is_read():
    X = np.arange(12, dtype=np.float32).reshape(6, 2)
    with on_disk(X, np.arange(6)) as rows:
        scaled = ScaledRows(rows, np.arange(6), np.ones(2), np.full(2, 2.0))
        np.testing.assert_array_equal(scaled[torch.tensor([3])].numpy(), (X[[3]] - 1) / 2)
        out = torch.zeros(1, 2)
        scaled.read_into(out, torch.tensor([5]))
        np.testing.assert_array_equal(out.numpy(), (X[[5]] - 1) / 2)


def _fit_share(rank, world, folder):
    X, y, a = people(6000)
    own = np.flatnonzero((np.arange(len(X)) % 3 == 0) == (rank == 0))
    own = own[np.lexsort((a[own], y[own]))]
    with on_disk(X[own], own) as rows:
        model = fit_on_disk(rows, y[own], a[own])
    tensors = {"coef": model.coef_, "confusion": model.confusion_, "plain": model.plain_coefs_[0], "weights": model.weights_}
    frontier = model.frontier_.select_dtypes("number").to_numpy(np.float64)
    safetensors.numpy.save_file(
        {k: np.ascontiguousarray(v) for k, v in {**tensors, "frontier": frontier}.items()}, folder / f"model{rank}"
    )


def test_two_processes_that_share_the_rows_give_the_model_of_one(tmp_path):
    on_two_processes(_fit_share, tmp_path)
    X, y, a = people(6000)
    with on_disk(X) as rows:
        one = fit_on_disk(rows, y, a)
    two = [safetensors.numpy.load_file(tmp_path / f"model{rank}") for rank in range(2)]
    for name, values in two[0].items():
        np.testing.assert_array_equal(values, two[1][name])
    np.testing.assert_allclose(two[0]["coef"], one.coef_, atol=1e-6)
    np.testing.assert_allclose(two[0]["plain"], one.plain_coefs_[0], atol=1e-6)
    np.testing.assert_allclose(two[0]["weights"], one.weights_, atol=1e-6)
    np.testing.assert_array_equal(two[0]["confusion"], one.confusion_)
    np.testing.assert_allclose(two[0]["frontier"], one.frontier_.select_dtypes("number").to_numpy(np.float64), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"certify": 0.2}, "certify on other rows"), ({"errors": "out_of_fold"}, "errors='training' only"),
     ({"missing_groups": "infer"}, "nor inferred groups")],
)  # fmt: skip
def test_what_rows_on_disk_cannot_have_is_refused(options, sentence):
    X, y, a = people(3000)
    with on_disk(X) as rows, pytest.raises(InputError, match=sentence):
        fit_on_disk(rows, y, a, **options)
