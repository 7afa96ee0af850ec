"""
A head on models of a Dask cluster
==================================

Rows on a Dask cluster: LightGBM trains there, and a sample of its held-out predictions is enough for a head.

Here the cluster is two processes of this machine; elsewhere, `Client("tcp://scheduler:8786")`.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import dask.dataframe as dd
from distributed import Client, LocalCluster
from lightgbm import DaskLGBMClassifier

from fairdro import load_dataset
from fairdro.dask import DaskFairDROHeadClassifier
from fairdro.metrics import balanced_accuracy, dca


def main(folder: Path) -> None:
    """Train on 16 files, and predict 4 others."""
    data = load_dataset("adult")
    table = data.X.assign(income=data.y, sex=data.sensitive["sex"]).sample(frac=1.0, random_state=0)
    for i in range(20):
        table[i::20].to_parquet(folder / f"{i}.parquet")
    rows, new = (dd.read_parquet([folder / f"{i}.parquet" for i in files]) for files in (range(16), range(16, 20)))

    features = list(data.X.columns)
    model = DaskFairDROHeadClassifier(DaskLGBMClassifier(num_leaves=15, verbosity=-1), keep_accuracy=0.98)
    model.fit(rows[features], rows["income"], sensitive_features=rows["sex"])
    for name, one in {"rho = 0": model.at(0.0), f"rho = {model.rho_:.3g}": model}.items():
        told = new.assign(predicted=one.predict(new[features]))[["income", "sex", "predicted"]].compute()
        accuracy = balanced_accuracy(told["income"], told["predicted"], sensitive_features=told["sex"])
        gap = dca(told["income"], told["predicted"], sensitive_features=told["sex"])
        print(f"{name:10}  balanced accuracy = {100 * accuracy:.1f}   DCA = {100 * gap:.1f}")
    model.save(folder / "model")  # without pickle; fairdro.load gives a model that needs no cluster


if __name__ == "__main__":
    with (
        TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        main(Path(folder))
