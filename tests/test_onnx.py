"""Exported models predict in onnxruntime what they predict here."""

import sys

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fairdro import FairClassifier, FairDROClassifier, FairDROClassifierCV
from fairdro.errors import InputError
from fairdro.estimators.onnx import to_onnx
from problems import biased_problem


def run(exported, inputs):
    session = onnxruntime.InferenceSession(exported.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["label", "probabilities"], inputs)


@pytest.mark.parametrize(("classes", "labels"), [(2, str), (3, int)])
@pytest.mark.parametrize(
    "model",
    [
        FairDROClassifier(1.0),
        FairDROClassifier(0.5, model="mlp"),
        FairClassifier(method="rw"),
        FairDROClassifierCV(rhos=[0, 1], cv=2),
    ],
    ids=lambda model: f"{type(model).__name__}-{model.model}",
)
def test_classifiers(model, classes, labels):
    X, cells = biased_problem(classes, 2, n=600)
    X, y = 1e5 + 20 * X.numpy().astype(np.float64), cells.y.numpy().astype(labels)  # far from zero, where floats would fail
    model.fit(X, y, sensitive_features=cells.groups.numpy())
    label, probabilities = run(to_onnx(model, X), {"X": X})
    np.testing.assert_array_equal(label, model.predict(X))
    np.testing.assert_allclose(probabilities, model.predict_proba(X), atol=1e-12)


def test_a_table_and_classes_of_floats():
    X, cells = biased_problem(2, 2, n=600)
    table = pd.DataFrame(X.numpy(), columns=[f"c{j}" for j in range(X.shape[1])])
    model = FairDROClassifier(1.0).fit(
        table, cells.y.numpy() * 0.0 + cells.y.numpy(), sensitive_features=cells.groups.numpy()
    )
    label, _ = run(to_onnx(model, table), {"X": X.numpy().astype(np.float64)})
    np.testing.assert_array_equal(label, model.predict(table))
    with pytest.raises(InputError, match="Only fairdro's classifiers"):
        to_onnx(StandardScaler().fit(X.numpy()), X.numpy())


def test_a_pipeline_with_scaling_and_categories():
    X, cells = biased_problem(2, 2, n=600)
    table = pd.DataFrame({"x": X[:, 0].numpy(), "z": X[:, 1].numpy(), "job": np.where(X[:, 2] > 0, "a", "b")})
    model = make_pipeline(
        make_column_transformer((StandardScaler(), ["x", "z"]), (OneHotEncoder(sparse_output=False), ["job"])),
        FairDROClassifier(1.0),
    ).fit(table, cells.y.numpy(), fairdroclassifier__sensitive_features=cells.groups.numpy())
    inputs = {name: table[[name]].to_numpy(object if name == "job" else np.float32) for name in table}
    label, probabilities = run(to_onnx(model, table), inputs)
    np.testing.assert_array_equal(label, model.predict(table))
    np.testing.assert_allclose(probabilities, model.predict_proba(table), atol=1e-5)


def test_without_the_extra_a_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    for kind in (InputError, ImportError):
        with pytest.raises(kind, match=r"fairdro\[onnx\]"):
            to_onnx(None, None)
