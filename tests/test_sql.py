"""The rule of a head in SQL, against the head itself, in a real engine."""

import duckdb
import numpy as np
import pandas as pd
import pytest

from fairdro import fit_head
from fairdro.errors import InputError


def problem(rng, classes, groups, n=600):
    y, a = rng.integers(len(classes), size=n), rng.integers(len(groups), size=n)
    logits = rng.normal(size=(n, len(classes))) + 1.5 * np.eye(len(classes))[y] * (1 + 0.5 * a[:, None])
    of_group = rng.normal(size=(n, len(groups))) + 2 * np.eye(len(groups))[a]
    p_class, p_group = (np.exp(z) / np.exp(z).sum(1, keepdims=True) for z in (logits, of_group))
    return p_class, p_group, np.array(classes)[y], np.array(groups)[a]


def asked(table, expression):
    connection = duckdb.connect()
    connection.register("rows", table)
    return connection.sql(f"SELECT {expression} AS predicted FROM rows").df()["predicted"].to_numpy()  # noqa: S608 - ours


@pytest.mark.parametrize(
    ("classes", "groups", "settings"),
    [
        (["no", "yes"], ["f", "m"], {}),
        ([0, 1, 2], ["a", "b", "c", "d"], {"rho": 2.0}),
        ([False, True], ['it\'s "x"', "y; DROP TABLE rows --"], {"rho": 1.0}),
        (["it's", 'a "b"', "c"], ["f", "m"], {"infer_groups": False}),
    ],
)
def test_the_expression_predicts_as_the_head_does(classes, groups, settings):
    rng = np.random.default_rng(0)
    p_class, p_group, y, a = problem(rng, classes, groups)
    head = (
        fit_head(p_class, p_group if settings.get("infer_groups", True) else None, y, a, rhos=[0.5, 2.0], **settings)
        if "rho" not in settings
        else fit_head(p_class, p_group, y, a, **settings)
    )
    p_class, p_group, *_ = problem(rng, classes, groups, 3000)
    columns = {f"p_{name}": p_class[:, i] for i, name in enumerate(head.classes_)}
    columns |= {f"p_{name}": p_group[:, i] for i, name in enumerate(head.group_names_)}
    predicted = asked(pd.DataFrame(columns), head.to_sql())
    own = head.predict(p_class, p_group if head.infer_groups else None)
    assert np.mean(predicted == own) > 0.999  # single against double precision
    assert len(np.unique(own)) == len(classes)
    if head.infer_groups:
        assert (predicted != head.classes_[p_class.argmax(1)]).any()


def test_columns_can_be_named_and_must_be_enough():
    p_class, p_group, y, a = problem(np.random.default_rng(1), ["no", "yes"], ["f", "m"])
    head = fit_head(p_class, p_group, y, a, rho=1.0)
    table = pd.DataFrame(np.hstack([p_class, p_group]), columns=["n", "p", "female", "male"])
    predicted = asked(table, head.to_sql(["n", "p"], ["female", "male"]))
    assert np.mean(predicted == head.predict(p_class, p_group)) > 0.999
    with pytest.raises(InputError, match="Name a column for every class: 2, got 1"):
        head.to_sql(["n"], ["female", "male"])
    with pytest.raises(InputError, match="Name a column for every group: 2, got 3"):
        head.to_sql(["n", "p"], ["female", "male", "other"])
