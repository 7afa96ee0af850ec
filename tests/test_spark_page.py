"""The recipe for Spark: the part that needs no Spark runs, and its query in DuckDB predicts as the head does."""

import re
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

from fairdro.metrics import dca

PAGE = Path(__file__).parents[1] / "docs" / "spark.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
NAMES = {"p_class": ["p_y_0", "p_y_1", "p_y_2"], "p_group": ["p_a_0", "p_a_1"]}


def probabilities(n, seed):
    """What Spark would give: columns of probabilities with what is true, and weights as of a sample."""
    rng = np.random.default_rng(seed)
    y, a = rng.integers(3, size=n), rng.integers(2, size=n)
    logits = rng.normal(size=(n, 3)) + 1.5 * np.eye(3)[y] * (1 + a[:, None])
    of_group = rng.normal(size=(n, 2)) + 2 * np.eye(2)[a]
    columns = [np.exp(z) / np.exp(z).sum(1, keepdims=True) for z in (logits, of_group)]
    table = pd.DataFrame(np.hstack(columns), columns=[*NAMES["p_class"], *NAMES["p_group"]])
    return table.assign(income=np.array(["high", "low", "mid"])[y], sex=np.array(["f", "m"])[a], weight=1.0 + (y == 1))


def test_the_query_of_the_page_predicts_as_its_head(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = [block for block in BLOCKS if "fit_head(" in block]
    found = {**NAMES, "sample": probabilities(2000, 0)}
    exec(compile(code, str(PAGE), "exec"), found)  # noqa: S102 - our own page
    table = probabilities(5000, 1)
    connection = duckdb.connect()
    connection.register("probabilities", table)
    predicted = connection.sql(found["query"]).df()["predicted"].to_numpy()
    own = found["head"].predict(table[NAMES["p_class"]], table[NAMES["p_group"]])
    assert np.mean(predicted == own) > 0.999  # single against double precision
    assert set(own) == {"high", "low", "mid"}
    assert (own != found["head"].at(0.0).predict(table[NAMES["p_class"]], table[NAMES["p_group"]])).any()
    assert (tmp_path / "head.json").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning")  # of pyspark
def test_the_whole_page_runs_where_spark_is_installed(tmp_path, monkeypatch):
    sql = pytest.importorskip("pyspark.sql", reason="the page needs pyspark to run as a whole")
    monkeypatch.chdir(tmp_path)
    for name, seed in (("people", 0), ("new_people", 1)):
        table = probabilities(6000, seed).drop(columns="weight")
        table.rename(columns=lambda column: column.removeprefix("p_")).to_parquet(tmp_path / name)
    found = {"features": ["y_0", "y_1", "a_0", "a_1"]}
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "2"}
    builder = sql.SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with builder.getOrCreate() as found["spark"]:
        for block in BLOCKS:
            exec(compile(block, str(PAGE), "exec"), found)  # noqa: S102 - our own page
    done, head = pd.read_parquet(tmp_path / "predicted"), found["head"]
    fair, plain = (one.predict(done[found["p_class"]], done[found["p_group"]]) for one in (head, head.at(0.0)))
    assert np.mean(done["predicted"] == fair) > 0.999
    gaps = [dca(done["income"], predicted, sensitive_features=done["sex"]) for predicted in (fair, plain)]
    assert gaps[0] < gaps[1]
