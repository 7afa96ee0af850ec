"""Adult: does a person earn more than 50,000 dollars a year? Groups by sex."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fairdro.data.base import Dataset, embedded_card, embedded_table, groups_from

CATEGORICAL = ["workclass", "education", "marital-status", "occupation", "relationship", "native-country"]


def load_adult(*, sensitive: str | Sequence[str] | None = None) -> Dataset:
    """Load Adult with the preprocessing of AIF360, as the paper does: 45,222 rows, 97 features.

    Parameters
    ----------
    sensitive : str or list of str, optional
        Sensitive columns to form groups from, of ``sex`` and ``race``; by default ``sex``. They are left out of the
        features; the other stays in as a 0/1 column (male, white).
    """
    table = embedded_table("adult").dropna().reset_index(drop=True)
    columns = table[["sex", "race"]].copy()
    groups, chosen = groups_from(columns, "sex" if sensitive is None else sensitive, "adult")
    y = (table["income"] == ">50K").to_numpy(np.int64)
    white, male = (table["race"] == "White").astype(int), (table["sex"] == "Male").astype(int)
    numeric = table.drop(columns="income").assign(race=white, sex=male)
    X = pd.get_dummies(numeric, columns=CATEGORICAL, prefix_sep="=", dtype=float).astype(float).drop(columns=chosen)
    return Dataset("adult", X, y, groups, columns, ["<=50K", ">50K"], embedded_card("adult"))
