"""Heads on models that a Dask cluster trains, on two real worker processes, against the same in memory."""

import os
import signal
import threading
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from fairdro import FairDROHeadClassifier, fit_head, load
from fairdro.dask import DaskFairDROHeadClassifier
from fairdro.errors import InputError
from fairdro.metrics import balanced_accuracy, dca
from fairdro.selection import CertifiedDCA

distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
dd = pytest.importorskip("dask.dataframe", reason="the extra dask is not installed")
lightgbm = pytest.importorskip("lightgbm", reason="the extra lightgbm is not installed")

PARTITIONS, HELD_OUT = 13, 0.2
TREES = {"n_estimators": 30, "num_leaves": 7, "verbosity": -1}
JOBS = ["a", "b", "c", "never"]
FEATURES = ["x0", "x1", "x2", "x3", "job"]


def people(n, seed):
    """Three classes, and two sensitive columns that move what classes look like."""
    rng = np.random.default_rng(seed)
    y, sex, old = rng.integers(3, size=n), rng.choice(["f", "m"], size=n), rng.integers(2, size=n)
    table = pd.DataFrame(rng.normal(size=(n, 4)), columns=FEATURES[:4])
    table["x0"] += 2 * (y == 1) + (sex == "f") * (y != 2)
    table["x1"] += 2 * (y == 2) + old * (y != 1)
    table["x2"] += 2 * (sex == "f")
    table["x3"] += 2 * old
    table["job"] = pd.Categorical(rng.choice(["a", "b", "c"], size=n), categories=JOBS)
    return table.assign(income=np.array(["low", "middle", "high"])[y], sex=sex, old=old)


def pieces(table):
    """Cut a table into partitions, of which one is empty."""
    cuts = np.linspace(0, len(table), PARTITIONS).astype(int)
    parts = [table.iloc[i:j] for i, j in pairwise(cuts)]
    return [*parts[:3], table.iloc[:0], *parts[3:]]


def in_partitions(table):
    return dd.concat([dd.from_pandas(part, npartitions=1, sort=False) for part in pieces(table)])


def held_out(table, seed=0):
    """Return which rows are held out: at random, in every partition by its number."""
    draws = [np.random.default_rng([seed, i]).random(len(part)) for i, part in enumerate(pieces(table))]
    return np.concatenate(draws) < HELD_OUT


@pytest.fixture(scope="module")
def client():
    quiet = {"dashboard_address": ":0", "silence_logs": 50}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **quiet) as cluster,
        distributed.Client(cluster) as connected,
    ):
        yield connected


@pytest.fixture(scope="module")
def table():
    """Rows of which the first are sorted, so that partitions lack classes and groups."""
    table = people(12_000, 0)
    order = np.argsort((table["income"] + table["sex"]).to_numpy()[:4000], kind="stable")
    return pd.concat([table.iloc[:4000].iloc[order], table.iloc[4000:]]).reset_index(drop=True)


@pytest.fixture(scope="module")
def rows(table, client, tmp_path_factory):
    """Files that Dask would read several of at a time where a few columns are asked for."""
    folder = tmp_path_factory.mktemp("people")
    for i, part in enumerate(pieces(table)):
        part.to_parquet(folder / f"{i}.parquet")
    rows = dd.read_parquet([folder / f"{i}.parquet" for i in range(PARTITIONS)])
    return rows.assign(job=rows["job"].cat.set_categories(JOBS))


@pytest.fixture(scope="module")
def fresh():
    return people(6000, 1)


def fit(rows, estimator=None, **settings):
    model = DaskFairDROHeadClassifier(estimator or lightgbm.DaskLGBMClassifier(**TREES), **settings)
    return model.fit(rows[FEATURES], rows["income"], sensitive_features=rows[["sex", "old"]])


@pytest.fixture(scope="module")
def fitted(rows):
    """A model whose radius is chosen, and whose models are those that the head was fitted to."""
    return fit(rows, refit=False, rhos=[0.0, 0.3, 1.0])


def test_the_head_is_that_of_the_same_probabilities_in_memory(fitted, rows, table):
    held = table[held_out(table)]
    p_class, p_group = (model.predict_proba(held[FEATURES]) for model in fitted.estimators_)
    head = fit_head(p_class, p_group, held["income"], held[["sex", "old"]], rhos=[0.0, 0.3, 1.0])
    assert np.array_equal(fitted.weights_, head.weights_)
    assert np.array_equal(fitted.share_, head.share_)
    pd.testing.assert_frame_equal(fitted.frontier_, head.frontier_, check_exact=True)
    assert fitted.classes_.tolist() == ["high", "low", "middle"]
    assert fitted.group_names_ == head.group_names_ == ["f, 0", "f, 1", "m, 0", "m, 1"]
    assert fitted.rho_ == head.rho_ > 0


def test_predictions_are_those_of_the_class_in_memory(rows, table, fresh):
    """They differ no more than those of two models in memory whose histograms have other bins."""
    check_predictions(fit(rows, rho=1.0), lightgbm.LGBMClassifier(**TREES, n_jobs=1), table, fresh)


@pytest.mark.slow
def test_predictions_of_xgboost_are_those_of_the_class_in_memory(rows, table, fresh):
    xgboost = pytest.importorskip("xgboost.dask", reason="the extra xgboost is not installed")
    settings = {"n_estimators": 30, "max_leaves": 7, "tree_method": "hist", "enable_categorical": True}
    model = fit(rows, estimator=xgboost.DaskXGBClassifier(**settings), rho=1.0)
    check_predictions(model, xgboost.XGBClassifier(**settings, n_jobs=1), table, fresh)


def check_predictions(model, estimator, table, fresh):
    held, y, a = held_out(table), fresh["income"], fresh[["sex", "old"]]

    def in_memory(cv, **settings):
        head = FairDROHeadClassifier(clone(estimator).set_params(**settings), rho=1.0, cv=cv)
        head.fit(table[FEATURES], table["income"], sensitive_features=table[["sex", "old"]])
        return head.predict(fresh[FEATURES])

    folds = [(np.flatnonzero(~held), np.flatnonzero(held))]
    alone, usual = in_memory(folds), in_memory(5)  # on the same held-out rows; out of fold, by all rows
    noise = np.mean(alone == in_memory(folds, max_bin=150))
    plain = model.at(0.0).predict(fresh[FEATURES])
    predicted = model.predict(fresh[FEATURES])
    for own, agreed in ((alone, noise - 0.01), (usual, 0.95)):
        assert np.mean(predicted == own) > agreed
        for metric in (dca, balanced_accuracy):
            assert metric(y, predicted, sensitive_features=a) == pytest.approx(
                metric(y, own, sensitive_features=a), abs=0.02
            )
    assert dca(y, predicted, sensitive_features=a) < 0.7 * dca(y, plain, sensitive_features=a)


def test_dask_collections_are_predicted_lazily_and_as_pandas(fitted, fresh):
    table = in_partitions(fresh)
    features = table[FEATURES]
    own = {name: getattr(fitted, name)(fresh[FEATURES]) for name in ("predict", "predict_proba", "decision_function")}
    for name, expected in own.items():
        lazy = getattr(fitted, name)(features)
        assert isinstance(lazy, dd.Series if expected.ndim == 1 else dd.DataFrame)
        found = lazy.compute()
        np.testing.assert_array_equal(found.to_numpy(), expected)
        pd.testing.assert_index_equal(found.index, fresh.index)
    assert fitted.predict_proba(features).columns.tolist() == ["high", "low", "middle"]
    joined = table.assign(predicted=fitted.predict(features))
    assert (joined["predicted"] == joined["income"]).mean().compute() == np.mean(own["predict"] == fresh["income"])


def test_it_moves_along_its_frontier_and_out_of_the_cluster(fitted, fresh, tmp_path):
    moved = fitted.at(0.3)
    assert isinstance(moved, DaskFairDROHeadClassifier)
    assert moved.rho_ == 0.3
    moved.save(tmp_path / "model")
    read = load(tmp_path / "model")
    assert type(read) is type(moved.to_local()) is FairDROHeadClassifier
    np.testing.assert_array_equal(read.predict(fresh[FEATURES]), moved.predict(fresh[FEATURES]))
    np.testing.assert_array_equal(read.predict_proba(fresh[FEATURES]), moved.predict_proba(fresh[FEATURES]))
    p_class, p_group = (model.predict_proba(fresh[FEATURES]) for model in fitted.estimators_)
    np.testing.assert_array_equal(moved.head.predict(p_class, p_group), moved.predict(fresh[FEATURES]))
    assert moved.head.to_sql().startswith("CASE\n  WHEN")


@pytest.mark.slow
def test_a_sample_of_large_cells_counts_for_all(fitted, rows, table, fresh):
    model = fit(rows, refit=False, rho=1.0, rows_per_cell=60)
    held = table[held_out(table)]
    sizes = held.groupby(["income", "sex", "old"]).size().to_numpy().reshape(3, 4)
    np.testing.assert_allclose(model.cell_counts_, sizes, rtol=0.45)  # 60 rows or so stand for 200
    np.testing.assert_allclose(model.share_, fitted.share_, atol=0.02)
    predicted = model.predict(fresh[FEATURES])
    assert np.mean(predicted == fitted.at(1.0).predict(fresh[FEATURES])) > 0.85


@pytest.mark.slow
def test_arrays_numbers_and_xgboost(client, fresh):
    xgboost = pytest.importorskip("xgboost.dask", reason="the extra xgboost is not installed")
    da = pytest.importorskip("dask.array")
    table = people(4000, 2).sort_values("old")
    X, a = table[FEATURES[:4]].to_numpy(), table["old"].to_numpy()
    y = (table["income"] == "high").to_numpy().astype(int)
    values = [da.from_array(array, chunks=(700, *array.shape[1:])) for array in (X, y, a)]
    model = DaskFairDROHeadClassifier(xgboost.DaskXGBClassifier(n_estimators=20, max_depth=3), rho=0.5)
    model.fit(values[0], values[1], sensitive_features=values[2])
    assert model.group_names_ == ["0", "1"]
    new = fresh[FEATURES[:4]].to_numpy()
    lazy, own = model.predict(da.from_array(new, chunks=(1000, 2))), model.predict(new)
    assert lazy.dtype == own.dtype == np.int64
    np.testing.assert_array_equal(lazy.compute(), own)
    assert np.mean(own == (fresh["income"] == "high")) > 0.8
    likely = model.predict_proba(da.from_array(new, chunks=(1000, 4)))
    assert likely.shape == (len(new), 2)
    np.testing.assert_array_equal(likely.compute(), model.predict_proba(new))
    decided = model.decision_function(da.from_array(new, chunks=(1000, 4))).compute()
    np.testing.assert_array_equal(decided > 0, own == 1)


@pytest.mark.slow
def test_a_worker_that_is_killed_while_it_predicts_costs_time_only(client, fitted, fresh):
    lazy = fitted.predict(in_partitions(fresh)[FEATURES]).persist()
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
    np.testing.assert_array_equal(lazy.compute(), fitted.predict(fresh[FEATURES]))
    client.wait_for_workers(2)


@pytest.mark.slow
def test_without_inferred_groups_there_is_no_model_of_them(rows, fresh, quick_heads):
    model = fit(rows, refit=False, rho=0.3, infer_groups=False)
    assert len(model.estimators_) == 1
    assert model.weights_.shape == (3, 1)
    assert set(model.predict(fresh[FEATURES])) == {"low", "middle", "high"}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"validation_fraction": 0}, "validation_fraction must leave rows to train on"),
        ({"validation_fraction": 20}, r"validation_fraction must be a share between 0 and 1, got 20; for 20 %, write 0.2"),
        ({"rows_per_cell": 0.5}, r"rows_per_cell must be a positive whole number, got 0.5"),
        ({"rho": -1.0}, "rho and rhos must be zero or positive"),
        ({"rule": CertifiedDCA(0.1)}, "not certified by its rule"),
        ({"group_estimator": lightgbm.LGBMClassifier()}, "must be a DaskLGBMClassifier or a DaskXGBClassifier, got LGBM"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_any_work(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        DaskFairDROHeadClassifier(**settings).fit(None, None, sensitive_features=None)


def test_tables_that_cannot_be_are_refused(client, rows, fitted, fresh):
    X, y, a = rows[FEATURES], rows["income"], rows["sex"]
    strings = X.assign(name="x")
    unknown = X.assign(job=X["job"].cat.as_unknown())
    missing = a.where(a != "m")
    shares = rows[["x0"]].assign(f=0.5, m=0.5)[["f", "m"]]
    shorter = rows[rows["old"] == 1]["income"]
    refused = {
        "X must be a Dask DataFrame, Series or Array, got DataFrame": (fresh[FEATURES], y, a),
        "y must be a Dask DataFrame, Series or Array, got list": (X, [0, 1], a),
        "sensitive_features must be a Dask DataFrame, Series or Array, got NoneType": (X, y, None),
        "y must be one column, but it has 2": (X, rows[["income", "sex"]], a),
        r"same partitions, but have \[13, 13, 1\] of them": (X, y, a.repartition(npartitions=1)),
        r"A partition has \[\d+, \d+, \d+\] rows of X, y and sensitive_features": (X, shorter, a),
        "Column 'name' holds strings; where they are categories": (strings, y, a),
        "The categories of column 'job' are not known yet": (unknown, y, a),
        r"sensitive feature 'sex' has missing values \(\d{4} of 12000\); drop those rows": (X, y, missing),
        "Groups in shares are not supported": (X, y, shares),
        "make 12000 groups or more, too many to mean anything": (X, y, rows["x0"]),
        "The training rows hold one class only": (X, rows[["income"]].assign(income="same"), a),
        "y is empty": (X.partitions[3], y.partitions[3], a.partitions[3]),
    }
    for sentence, (features, labels, sensitive) in refused.items():
        with pytest.raises(InputError, match=sentence):
            DaskFairDROHeadClassifier().fit(features, labels, sensitive_features=sensitive)
    with pytest.raises(ValueError, match="Unknown label type"):
        DaskFairDROHeadClassifier().fit(X, rows["x0"], sensitive_features=a)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(in_partitions(fresh)[["x0", "x1", "x2", "sex", "job"]])
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(fresh[[*FEATURES, "old"]])


def test_without_a_cluster_a_sentence_says_what_to_do(fresh, monkeypatch):
    monkeypatch.setattr("distributed.client._get_global_client", lambda: None)
    with pytest.raises(InputError, match="no Dask cluster; connect to one, or start one"):
        fit(dd.from_pandas(fresh, npartitions=2))


@pytest.mark.slow
def test_a_worker_that_is_killed_while_trees_train_is_said_in_a_sentence(table):
    quiet = {"dashboard_address": ":0", "silence_logs": 50}
    long = lightgbm.DaskLGBMClassifier(**TREES | {"n_estimators": 20_000})
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **quiet) as cluster,
        distributed.Client(cluster) as connected,
    ):
        (worker, *_) = connected.run(os.getpid).values()
        later = threading.Timer(8, os.kill, (worker, signal.SIGKILL))
        later.start()
        rows = in_partitions(table)
        with pytest.raises(RuntimeError, match="A worker of the cluster ended while trees were trained"):
            DaskFairDROHeadClassifier(long).fit(rows[FEATURES], rows["income"], sensitive_features=rows[["sex", "old"]])
        later.join()
