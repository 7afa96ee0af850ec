"""Export to ONNX: a fitted classifier, alone or at the end of a scikit-learn pipeline."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fairdro._utils.extras import require
from fairdro.errors import InputError
from fairdro.estimators.cv import FairDROClassifierCV
from fairdro.estimators.encoder import TableEncoder
from fairdro.estimators.linear import FairClassifier, FairDROClassifier

KINDS = (FairClassifier, FairDROClassifier, FairDROClassifierCV)


def to_onnx(model: Any, X: Any) -> Any:
    """Convert a fitted classifier or pipeline; needs the extra ``fairdro[onnx]``.

    The graph has outputs ``label``, what ``predict`` decides, and ``probabilities``, those of ``predict_proba``, computed in
    double precision.

    Parameters
    ----------
    model : estimator
        One of fairdro's classifiers, or a scikit-learn pipeline that ends in one.
    X : array or DataFrame
        A row or more of its input, for names and types.

    Returns
    -------
    onnx.ModelProto
        ``model.SerializeToString()`` is what a file holds.

    Examples
    --------
    >>> import fairdro
    >>> data = fairdro.load_dataset("compas")
    >>> X, y, race = data.X.iloc[:, :8], data.y, data.a
    >>> model = fairdro.FairDROClassifier(rho=10.0).fit(X, y, sensitive_features=race)
    >>> from fairdro.estimators.onnx import to_onnx
    >>> graph = to_onnx(model, X.to_numpy()).graph
    >>> [output.name for output in graph.output]
    ['label', 'probabilities']
    """
    skl2onnx = require("skl2onnx", extra="onnx", what="Exports to ONNX")
    final = model.steps[-1][1] if hasattr(model, "steps") else model
    if type(final) not in KINDS or any(isinstance(step, TableEncoder) for _, step in getattr(model, "steps", [])):
        raise InputError(
            "Only fairdro's classifiers can be exported, or pipelines of scikit-learn that end in one; no TableEncoder."
        )
    check_is_fitted(final)
    for kind in KINDS:
        skl2onnx.update_registered_converter(
            kind, f"Fairdro{kind.__name__}", _shapes, _convert, options={"zipmap": [True, False, "columns"]}
        )
    sample = X[:1] if hasattr(model, "steps") else np.asarray(X[:1], dtype=np.float64)
    return skl2onnx.to_onnx(model, sample, options={id(final): {"zipmap": False}})


def _shapes(operator: Any) -> None:
    """Declare the outputs: a label and the probabilities of the classes per row."""
    from skl2onnx.common.data_types import DoubleTensorType, Int64TensorType, StringTensorType  # noqa: PLC0415

    classes = operator.raw_operator.classes_
    label = {"f": DoubleTensorType, **dict.fromkeys("biu", Int64TensorType)}.get(classes.dtype.kind, StringTensorType)
    operator.outputs[0].type = label([None])
    operator.outputs[1].type = DoubleTensorType([None, len(classes)])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Write the graph: cast, the layers that decide and the label of the largest, those of probabilities and softmax."""
    from onnx import TensorProto  # noqa: PLC0415

    model = operator.raw_operator
    features = _step(scope, container, "Cast", [operator.inputs[0].full_name], to=TensorProto.DOUBLE)
    probabilities, label = operator.outputs[1].full_name, operator.outputs[0].full_name
    plain = _logits(scope, container, features, list(zip(model.plain_coefs_, model.plain_intercepts_, strict=True)))
    container.add_node("Softmax", [plain], probabilities, axis=-1, op_version=13, name=scope.get_unique_operator_name("s"))
    best = _step(scope, container, "ArgMax", [_logits(scope, container, features, _layers(model))], axis=1, keepdims=0)
    container.add_node("Gather", [_labels(scope, container, model.classes_), best], label, axis=0,
                       name=scope.get_unique_operator_name("g"))  # fmt: skip


def _logits(scope: Any, container: Any, current: str, layers: list[tuple[np.ndarray, np.ndarray]]) -> str:
    """Write layers, and return the name of what comes out of the last."""
    for i, (W, b) in enumerate(layers):
        current = _step(scope, container, "MatMul", [current, _constant(scope, container, W)])
        current = _step(scope, container, "Add", [current, _constant(scope, container, b)])
        if i + 1 < len(layers):
            current = _step(scope, container, "Relu", [current])
    return current


def _layers(model: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the layers with a logit per class."""
    if model.model != "linear":
        return list(zip(model.coefs_, model.intercepts_, strict=True))
    W, b = model.coef_.T, model.intercept_
    if len(model.classes_) == 2:
        W, b = np.column_stack([np.zeros_like(W), W]), np.append(0.0, b)
    return [(W, b)]


def _step(scope: Any, container: Any, kind: str, inputs: list[str], **attributes: Any) -> str:
    name = scope.get_unique_variable_name(kind)
    container.add_node(kind, inputs, name, name=scope.get_unique_operator_name(kind), **attributes)
    return name


def _constant(scope: Any, container: Any, values: np.ndarray) -> str:
    from onnx import TensorProto  # noqa: PLC0415

    name = scope.get_unique_variable_name("constant")
    container.add_initializer(name, TensorProto.DOUBLE, list(values.shape), values.ravel().tolist())
    return name


def _labels(scope: Any, container: Any, classes: np.ndarray) -> str:
    from onnx import TensorProto  # noqa: PLC0415

    name = scope.get_unique_variable_name("classes")
    if classes.dtype.kind in "biu":
        container.add_initializer(name, TensorProto.INT64, [len(classes)], classes.astype(np.int64).tolist())
    elif classes.dtype.kind == "f":
        container.add_initializer(name, TensorProto.DOUBLE, [len(classes)], classes.tolist())
    else:
        container.add_initializer(name, TensorProto.STRING, [len(classes)], [str(c).encode() for c in classes])
    return name
