"""COMPAS: does a defendant re-offend within two years? Groups by race."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fairdro.data.base import Dataset, embedded_card, embedded_table, groups_from
from fairdro.groups import Groups

CATEGORICAL = ["age_cat", "c_charge_degree", "c_charge_desc"]


def load_compas(*, sensitive: str | Sequence[str] | None = None) -> Dataset:
    """Load COMPAS with the preprocessing of AIF360, as the paper does: 6,167 rows, 400 features.

    Parameters
    ----------
    sensitive : str or list of str, optional
        Sensitive columns to form groups from, of ``sex`` and ``race`` with all the values they were collected with. By
        default the paper's two groups, Caucasian or not. Columns used are left out of the features; the other stays in as
        a 0/1 column (female, Caucasian).
    """
    table = embedded_table("compas").dropna().reset_index(drop=True)
    columns = table[["sex", "race"]].copy()
    caucasian = (table["race"] == "Caucasian").to_numpy(np.int64)
    if sensitive is None:
        groups, chosen = Groups(caucasian, ["Non-Caucasian", "Caucasian"]), ["race"]
    else:
        groups, chosen = groups_from(columns, sensitive, "compas")
    y = table["two_year_recid"].to_numpy(np.int64)
    numeric = table.drop(columns="two_year_recid").assign(sex=(table["sex"] == "Female").astype(int), race=caucasian)
    X = pd.get_dummies(numeric, columns=CATEGORICAL, prefix_sep="=", dtype=float).astype(float).drop(columns=chosen)
    return Dataset("compas", X, y, groups, columns, ["did not re-offend", "re-offended"], embedded_card("compas"))
