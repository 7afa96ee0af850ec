"""Tables become features, whatever is in them."""

import datetime
from decimal import Decimal

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from fairdro import TableEncoder
from fairdro.errors import InputError


def test_numbers_and_categories_are_scikit_learns():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(1e7, 3, 400), "job": rng.choice(list("abc"), 400)})
    table.loc[:30, "x"] = np.nan
    features = TableEncoder().fit_transform(table)
    filled = SimpleImputer(strategy="median").fit_transform(table[["x"]]) - table["x"].median()
    expected = np.column_stack([filled, table["x"].isna(), OneHotEncoder(sparse_output=False).fit_transform(table[["job"]])])
    np.testing.assert_allclose(features, expected, atol=1e-5)
    assert features.dtype == np.float32


def test_every_kind_of_column():
    table = pd.DataFrame({
        "whole": pd.array([1, None, 3], dtype="Int64"),
        "truth": [True, False, None],
        "date": pd.to_datetime(["2020-01-01", None, "2020-01-03"]),
        "zoned": pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"]).tz_localize("Europe/Berlin"),
        "day": [datetime.date(2020, 1, 1), datetime.date(2020, 1, 1), None],
        "mixed": ["1", 1, 1.0],
        "lists": [[1], [1], [2]],
        "nothing": [None, None, None],
        7: [1, 2, 3],
    })  # fmt: skip
    encoder = TableEncoder().fit(table)
    assert encoder.get_feature_names_out().tolist() == [
        "whole", "whole = (missing)",
        "truth", "truth = (missing)",
        "date", "date = (missing)", "zoned",
        "day", "day = (missing)",
        "mixed = 1", "lists = [1]", "lists = [2]", "7",
    ]  # fmt: skip
    assert any("'nothing' has no values" in note for note in encoder.notes_)
    features = encoder.transform(table)
    assert np.isfinite(features).all()
    np.testing.assert_array_equal(features[:, 6], [-1, 0, 1])


def test_objects_are_taken_for_what_they_are():
    table = pd.DataFrame({
        "number": pd.Series([1.5, 2, 3], dtype=object),
        "decimal": [Decimal("1.5"), Decimal(2), None],
        "length": pd.to_timedelta([1, 2, 3], unit="D"),
    })  # fmt: skip
    assert [column.kind for column in TableEncoder().fit(table).columns_] == ["number"] * 3


def test_the_last_day_of_all_is_a_date_too():
    table = pd.DataFrame({"until": pd.Series(["2020-01-01", "9999-12-31", None]).astype("datetime64[s]")})
    assert np.isfinite(TableEncoder().fit_transform(table)).all()


def test_values_of_another_kind_than_in_training_are_refused():
    dates, numbers, texts = pd.to_datetime(["2020-01-01", "2020-01-05"]), [1.0, 2.0], ["a", "b"]
    for trained, new in [(dates, numbers), (dates, texts), (numbers, dates), (texts, dates)]:
        encoder = TableEncoder().fit(pd.DataFrame({"v": trained}))
        with pytest.raises(InputError, match=r"'v' holds .* in training, but here"):
            encoder.transform(pd.DataFrame({"v": new}))


def test_new_tables_may_hold_new_values_gaps_and_other_columns():
    encoder = TableEncoder().fit(pd.DataFrame({"x": [1.0, 2.0, 3.0], "job": ["a", "b", "b"]}))
    new = pd.DataFrame({"extra": [1, 2], "job": ["never seen", None], "x": [np.nan, 2.0]})
    np.testing.assert_allclose(encoder.transform(new), [[0, 0, 0], [0, 0, 0]], atol=1e-6)
    np.testing.assert_array_equal(encoder.transform(pl.from_pandas(new)), encoder.transform(new))
    as_text = pd.DataFrame({"x": ["1", "3"], "job": ["a", "b"]})
    np.testing.assert_array_equal(encoder.transform(as_text)[:, 0], [-1, 1])


def test_for_trees_categories_and_missing_values_stay_as_they_are():
    dates = pd.to_datetime(["1970-01-03", None, None])
    table = pd.DataFrame({"x": [1.0, None, 3.0], "job": ["a", None, "b"], "since": dates})
    encoder = TableEncoder(one_hot=False).fit(table)
    assert encoder.get_feature_names_out().tolist() == ["x", "job", "since"]
    assert encoder.notes_ == []
    features = TableEncoder.from_state(encoder.to_state()).transform(table.assign(job=["b", None, "never seen"]))
    jobs = pd.Categorical(["b", None, None], ["a", "b"])
    pd.testing.assert_frame_equal(features, table.assign(job=jobs, since=[2.0, None, None]))
    rare = TableEncoder(2, one_hot=False).fit(pd.DataFrame({"v": ["a", "a", "b", "c"]}))
    assert rare.transform(pd.DataFrame({"v": ["a", "c", "d"]}))["v"].tolist() == ["a", "(other)", "(other)"]


def test_rare_values_share_a_feature_also_with_new_ones():
    values = ["often"] * 50 + ["sometimes"] * 10 + [f"rare {i}" for i in range(20)]
    encoder = TableEncoder(max_categories=3).fit(pd.DataFrame({"v": values}))
    assert encoder.get_feature_names_out().tolist() == ["v = often", "v = sometimes", "v = (other)"]
    assert encoder.transform(pd.DataFrame({"v": ["often", "rare 3", "new"]})).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1]]


@given(
    st.lists(
        st.one_of(st.none(), st.text(max_size=3), st.integers(-9, 9), st.floats(allow_nan=True)), min_size=1, max_size=30
    )
)
def test_every_row_of_a_category_has_one_feature(values):
    values = ["text", *values]
    table = pd.DataFrame({"v": pd.Series(values, dtype=object), "x": 1.0})
    encoder = TableEncoder(max_categories=5).fit(table)
    features = encoder.transform(table)
    known = (
        features[:, : len(encoder.columns_[0].features)] if encoder.columns_[0].name == "v" else np.ones((len(values), 1))
    )
    assert (known.sum(1) == 1).all()
    again = TableEncoder.from_state(encoder.to_state())
    np.testing.assert_array_equal(again.transform(table), features)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (pd.DataFrame({"x": [1.0, np.inf]}), "'x' has infinite values"),
        (pd.DataFrame({"x": [None, None]}), "no column to learn from"),
        (pd.DataFrame({"x": []}), "no rows"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "two columns of the same name"),
        (pd.DataFrame({"id": [f"n{i}" for i in range(1001)]}), "1,001 different strings"),
        ([1, 2, 3], "must be a table with rows and columns, got list"),
    ],
)
def test_what_cannot_be_encoded_is_one_sentence(table, sentence):
    with pytest.raises(InputError, match=sentence):
        TableEncoder().fit(table)


def test_other_tables_than_those_of_training_are_refused():
    encoder = TableEncoder().fit(pd.DataFrame({"x": [1.0, 2.0], "job": ["a", "b"]}))
    with pytest.raises(InputError, match="lacks columns the model was trained on: 'job'"):
        encoder.transform(pd.DataFrame({"x": [1.0]}))
    with pytest.raises(InputError, match="'x' holds numbers in training, but here strings like 'one'"):
        encoder.transform(pd.DataFrame({"x": ["one"], "job": ["a"]}))
    with pytest.raises(InputError, match="at least 2"):
        TableEncoder(1).fit(pd.DataFrame({"x": [1.0]}))
