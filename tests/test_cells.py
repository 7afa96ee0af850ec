"""Samples to cells: encoding of labels and groups, sums that add up over chunks and processes."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.groups import Groups, encode_groups, encode_labels


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["b", "a", "b"], ["a", "b"]),
        ([3, 1, 3], [1, 3]),
        ([True, False, True], [False, True]),
        ([(1, "x"), (0, "y"), (1, "x")], [(0, "y"), (1, "x")]),
        ([datetime.date(2020, 1, 2), datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)], None),
        (pd.Series(["b", "a", "b"], dtype="category"), ["a", "b"]),
        (np.array(["b", "a", "b"]), ["a", "b"]),
        (pl.Series(["b", "a", "b"]), ["a", "b"]),
        (torch.tensor([3, 1, 3]), [1, 3]),
        (pd.DataFrame({"y": ["b", "a", "b"]}), ["a", "b"]),
    ],
)
def test_labels_of_any_hashable_kind(labels, expected):
    codes, names = encode_labels(labels, "y")
    assert codes.tolist() == [1, 0, 1]
    assert expected is None or names.tolist() == expected


def test_labels_of_mixed_types_have_a_fixed_order():
    assert encode_labels([1, "a", (1, 2)], "y")[0].tolist() == [0, 1, 2]
    codes, names = encode_labels([2, "a", 1, "a"], "y")
    assert names.tolist() == [1, 2, "a"]
    assert codes.tolist() == [1, 2, 0, 2]


def test_several_columns_make_a_group_per_combination_that_occurs():
    table = pd.DataFrame({"sex": ["F", "M", "F", "M"], "race": ["x", "x", "y", "x"]})
    groups = encode_groups(table)
    assert groups.names == ["F, x", "F, y", "M, x"]
    assert groups.values.tolist() == [0, 2, 1, 2]
    assert encode_groups(pl.from_pandas(table)).names == groups.names
    assert encode_groups({"sex": table["sex"], "race": table["race"]}).names == groups.names
    assert encode_groups(table.to_numpy()).names == groups.names
    assert encode_groups([table["sex"], table["race"]]).names == groups.names
    assert encode_groups([table["sex"].to_numpy(), table["race"].to_numpy()]).names == groups.names
    assert encode_groups(table.to_numpy().tolist()).names == groups.names


def test_one_column_of_any_container():
    for column in (["m", "f"], np.array(["m", "f"]), pd.Series(["m", "f"], index=[7, 9]), np.array([["m"], ["f"]])):
        groups = encode_groups(column)
        assert (groups.names, groups.values.tolist(), groups.soft) == (["f", "m"], [1, 0], False)


def test_rows_that_sum_to_one_are_soft_membership():
    groups = encode_groups(pd.DataFrame({"black": [0.5, 1.0], "white": [0.5, 0.0]}))
    assert groups.soft
    assert groups.names == ["black", "white"]
    assert not encode_groups(pd.DataFrame({"a": [0, 1], "b": [1, 0]})).soft
    assert not encode_groups(np.array([[2.0, 1.0], [1.0, 0.0]])).soft
    rounded = encode_groups(np.array([[0.3333, 0.6666], [1.0, 0.0]], dtype=np.float16))
    np.testing.assert_allclose(rounded.values.sum(axis=1), 1)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: encode_labels([], "y"), "y is empty"),
        (lambda: encode_labels(["a", None, "b"], "y"), r"y has missing values \(1 of 3\)"),
        (lambda: encode_labels([1.0, np.nan, 2.0], "y"), r"y has missing values \(1 of 3\)"),
        (lambda: encode_labels(np.zeros((3, 2)), "y"), "must be one column"),
        (lambda: encode_labels(None, "y"), "must be a column of labels"),
        (lambda: encode_labels("yes", "y"), "must be a column of labels"),
        (lambda: encode_labels([{1}, {2}], "y"), "cannot be compared"),
        (lambda: encode_groups(None), "must be a column of labels"),
        (lambda: encode_groups("sex"), "must be a column of labels"),
        (lambda: encode_groups({"sex": [1, 2], "race": [1]}), "equal length"),
        (lambda: encode_groups(np.array([[0.5, 0.6], [0.2, 0.8]])), "rows sum to between 1 and 1.1"),
        (lambda: encode_groups(np.array([[1.5, -0.5], [0.2, 0.8]])), "looks like soft membership"),
        (lambda: encode_groups(np.array([[np.nan, 0.5], [0.2, 0.8]])), "missing values"),
        (lambda: Cells.from_labels(np.zeros(2), Groups(np.zeros(2), ["a"]), n_classes=2, sample_weight=[1]), "2 rows"),
        (lambda: Cells.from_labels(np.zeros(2), Groups(np.zeros(2), ["a"]), n_classes=2, sample_weight=[0, 0]), "all zero"),
        (lambda: Cells.from_labels(np.zeros(1), Groups(np.zeros(1), ["a"]), n_classes=2, sample_weight=[-1]), "negative"),
        (lambda: Cells.from_labels(np.zeros(1), Groups(np.zeros(1), ["a"]), n_classes=2, sample_weight=["x"]), "numbers"),
        (lambda: encode_groups([]), "sensitive_features is empty"),
        (lambda: encode_groups(["a", None]), "missing value"),
        (lambda: encode_groups(np.random.default_rng(0).random(5000)), "5000 groups of 5000 rows"),
        (lambda: encode_groups(pd.DataFrame([[1, 2]], columns=["a", "a"])), "same name"),
        (lambda: Cells.from_labels(np.zeros(3), Groups(np.zeros(2), ["a"]), n_classes=2), "3 rows but"),
    ],
)
def test_bad_input_is_one_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


def random_cells(seed, n=60, n_classes=3, n_groups=4, *, soft=False):
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(n_classes, (n,), generator=rng)
    if soft:
        groups = torch.rand(n, n_groups, generator=rng).double()
        groups = groups / groups.sum(-1, keepdim=True)
    else:
        groups = torch.randint(n_groups, (n,), generator=rng)
    return Cells(y, groups, n_classes=n_classes, n_groups=n_groups), torch.rand(5, n, generator=rng).double()


@given(st.integers(0, 10_000))
def test_means_against_pandas(seed):
    cells, values = random_cells(seed)
    table = pd.DataFrame({"y": cells.y.numpy(), "a": cells.groups.numpy(), "v": values[2].numpy()})
    expected = table.groupby(["y", "a"])["v"].mean().unstack().reindex(index=range(3), columns=range(4)).to_numpy()
    np.testing.assert_allclose(cells.means(values)[2].numpy(), expected)


@given(st.integers(0, 10_000), st.booleans())
def test_chunks_add_up(seed, soft):
    cells, values = random_cells(seed, soft=soft)
    parts = [cells.take(rows).totals(values[:, rows]) for rows in torch.randperm(60).split(17)]
    whole = cells.totals(values)
    total = parts[0] + parts[1] + parts[2] + parts[3]
    torch.testing.assert_close(total.sums, whole.sums)
    torch.testing.assert_close(total.counts, whole.counts)


@given(st.integers(0, 10_000))
def test_one_hot_membership_equals_codes(seed):
    hard, values = random_cells(seed)
    soft = Cells(hard.y, torch.nn.functional.one_hot(hard.groups, 4).double(), n_classes=3, n_groups=4)
    torch.testing.assert_close(hard.means(values), soft.means(values), equal_nan=True)
    torch.testing.assert_close(hard.counts, soft.counts)


def test_sample_weight_counts_a_sample_that_many_times():
    cells, values = random_cells(1, n=12, n_classes=2, n_groups=2)
    weight = torch.arange(12) % 3
    weighted = Cells(cells.y, cells.groups, n_classes=2, n_groups=2, sample_weight=weight.double())
    repeated = torch.arange(12).repeat_interleave(weight)
    torch.testing.assert_close(weighted.means(values), cells.take(repeated).means(values[:, repeated]), equal_nan=True)


def test_many_cells_are_counted_without_a_dense_table():
    sparse, values = random_cells(5, n=500, n_classes=3, n_groups=40)
    values = torch.rand(2, 500, dtype=torch.float64)
    dense = Cells(sparse.y, torch.nn.functional.one_hot(sparse.groups, 40).double(), n_classes=3, n_groups=40)
    torch.testing.assert_close(sparse.means(values), dense.means(values), equal_nan=True)
    torch.testing.assert_close(sparse.counts, dense.counts)
    assert "indicator" not in vars(sparse)


def test_spread_looks_up_the_cell_of_each_sample():
    cells, _ = random_cells(0)
    table = torch.rand(2, 3, 4, dtype=torch.float64)
    expected = table[:, cells.y, cells.groups]
    torch.testing.assert_close(cells.spread(table), expected)
    weighted = Cells(cells.y, cells.groups, n_classes=3, n_groups=4, sample_weight=torch.rand(60))
    torch.testing.assert_close(weighted.spread(table), expected)
    soft, _ = random_cells(0, soft=True)
    torch.testing.assert_close(soft.spread(table), (table[:, soft.y] * soft.groups).sum(-1))


def test_an_empty_cell_is_nan_and_marked_by_its_count():
    cells = Cells(torch.tensor([0, 1]), torch.tensor([0, 0]), n_classes=2, n_groups=2)
    means = cells.means(torch.tensor([1.0, 3.0]))
    assert cells.counts.tolist() == [[1, 0], [1, 0]]
    assert means[:, 0].tolist() == [1, 3]
    assert means[:, 1].isnan().all()


def test_balanced_loss_with_an_empty_cell(vectors):
    case = vectors["P_balanced_ce_empty"]
    cell = torch.tensor(case["cell"])
    cells = Cells(cell % 2, cell // 2, n_classes=2, n_groups=2)  # the vectors number cells by group first
    means = cells.means(torch.tensor(case["ce"])).nan_to_num(0)
    assert means.T.flatten().tolist() == pytest.approx(case["cell_mean"])
    q = torch.tensor(vectors["P_fairdro_step"]["q_g_y"]).T
    assert float((q * means).sum() / 2) == pytest.approx(vectors["P_fairdro_step"]["loss"])
