"""Models of class and group by any scikit-learn classifier, and what they say of groups that are missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import KFold
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.training.calibration import fit_scaling, logarithms, scale
from fairdro.training.folds import FOLDS
from fairdro.training.head import Part

GROUP = Part("group")


def fit_model(model: Any, part: Part, cells: Cells, X: Any, rows: np.ndarray) -> Any:
    """Train a model on some rows; a frozen one is left as it is, and one thing to predict needs no model."""
    if isinstance(model, FrozenEstimator):
        return model
    rows, y, weight = part.target(cells, rows)
    if len(np.unique(y)) < 2:
        return DummyClassifier().fit(np.zeros((len(y), 1)), y)
    if weight is not None and not has_fit_parameter(model, "sample_weight"):
        raise InputError(
            f"{type(model).__name__} takes no sample_weight, which weighted rows and shares of groups need; use another."
        )
    some = _safe_indexing(X, rows)
    return model.fit(some, y) if weight is None else model.fit(some, y, sample_weight=weight)


def fit_and_predict(model: Any, part: Part, cells: Cells, X: Any, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Train a model on some rows, and return the probabilities of others."""
    return proba_of(fit_model(model, part, cells, X, train), _safe_indexing(X, test), part.width(cells))


def proba_of(model: Any, X: Any, width: int) -> np.ndarray:
    """Return probabilities with a column for everything to predict, zero for what a model has not seen."""
    values = model.predict_proba(X)
    if isinstance(model, FrozenEstimator):
        return values
    out = np.zeros((len(values), width))
    out[:, np.asarray(model.classes_, dtype=np.int64)] = values
    return out


def group_probabilities(model: Any, X: Any, cells: Cells, seed: int) -> np.ndarray:
    r"""Return :math:`p(a \mid x, y)` of every row ``(N, A)``, by models that do not know its group.

    Rows of known group are predicted out of fold, others by a model of all known ones. The class is one of the features,
    unless the model takes something else than a table.
    """
    known = cells.known_rows.numpy()
    if len(known) < 2:
        raise InputError("Fewer than two rows have a group; to infer the others, more must be known.")
    if not isinstance(model, FrozenEstimator):
        X = _with_class(X, cells)
    unknown = np.setdiff1d(np.arange(len(cells)), known)
    found = np.empty((len(cells), cells.n_groups))
    for train, test in KFold(min(FOLDS, len(known)), shuffle=True, random_state=seed).split(known):
        found[known[test]] = fit_and_predict(clone(model), GROUP, cells, X, known[train], known[test])
    found[unknown] = fit_and_predict(clone(model), GROUP, cells, X, known, unknown)
    return found


def _with_class(X: Any, cells: Cells) -> Any:
    """Return a table with a column more for every class; what is no table of numbers stays as it is."""
    own = np.eye(cells.n_classes)[cells.y.numpy()]
    if isinstance(X, pd.DataFrame):
        if not all(isinstance(name, str) for name in X.columns):
            return X
        named = pd.DataFrame(own, index=X.index, columns=[f"class {k}" for k in range(cells.n_classes)])
        return X if set(named.columns) & set(X.columns) else pd.concat([X, named], axis=1)
    if scipy.sparse.issparse(X):
        return scipy.sparse.hstack([X, own], format="csr")
    table = isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf"
    return np.column_stack([X, own]) if table else X


def infer_groups(cells: Cells, p_group: np.ndarray) -> Cells:
    r"""Return the cells with inferred shares where the group is not known.

    .. math:: q(a \mid x, y) \propto \exp(\beta_y \log p(a \mid x, y) + b_{y,a})

    over the groups that a row may belong to: the probabilities of a model, calibrated within every class, with
    :math:`\beta` and :math:`b` fitted to the rows of class y whose group is known. A prediction depends on x alone, so that
    the mean error of a cell, with rows counted by these shares, is an unbiased estimate where the probabilities are right.

    Parameters
    ----------
    cells : Cells
        Of soft groups; the shares of a row of unknown group are positive for those it may belong to.
    p_group : ndarray of shape (N, A)
        By models that do not know the row's group.
    """
    if cells.known is None:
        return cells
    known, y, shares = cells.known.numpy(), cells.y.numpy(), cells.groups.double().numpy().copy()
    logs = logarithms(p_group)
    for k in range(cells.n_classes):
        fitted, asked = np.flatnonzero(known & (y == k)), np.flatnonzero(~known & (y == k))
        if len(asked):
            weight = 1.0 if cells.sample_weight is None else cells.sample_weight.double().numpy()[fitted, None]
            likely = scale(logs[asked], fit_scaling(logs[fitted], shares[fitted] * weight)) * (shares[asked] > 0)
            shares[asked] = likely / likely.sum(axis=1, keepdims=True)
    return Cells(
        cells.y, torch.from_numpy(shares).float(), n_classes=cells.n_classes, n_groups=cells.n_groups,
        sample_weight=cells.sample_weight, known=cells.known,
    )  # fmt: skip


def cell_probabilities(p_class: Any, p_group: Any, n_classes: int, n_groups: int, infer_groups: bool) -> np.ndarray:  # noqa: FBT001
    """Return probabilities of cells ``(N, Y, A)``, or of classes ``(N, Y, 1)`` where no group is inferred."""
    classes = None if p_class is None else _checked(p_class, "p_class", (n_classes,))
    if not infer_groups:
        if classes is None:
            raise InputError("Without inferring groups, p_class is needed.")
        return classes[:, :, None]
    if p_group is None:
        raise InputError("p_group is needed: the probabilities of the groups. Or fit with infer_groups=False.")
    shape = (n_groups,) if np.ndim(p_group) == 2 and classes is not None else (n_classes, n_groups)
    groups = _checked(p_group, "p_group", shape, joint=classes is None)
    if classes is None:
        return groups
    if len(classes) != len(groups):
        raise InputError(f"p_class has {len(classes)} rows but p_group has {len(groups)}.")
    return classes[:, :, None] * (groups[:, None, :] if groups.ndim == 2 else groups)


def numbers(values: Any, what: str) -> np.ndarray:
    """Return numbers as an array, or say that they are none."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must hold numbers: {error}.") from error


def _checked(values: Any, what: str, shape: tuple[int, ...], *, joint: bool = False) -> np.ndarray:
    """Return probabilities as an array, or say what is wrong with them."""
    array = numbers(values, what)
    if array.ndim != len(shape) + 1 or array.shape[1:] != shape or len(array) == 0:
        wanted = " x ".join(map(str, shape))
        raise InputError(f"{what} must have a row per sample and {wanted} columns, got shape {array.shape}.")
    total = array.reshape(len(array), -1).sum(1) if joint else array.sum(-1)
    if not np.isfinite(array).all() or (array < 0).any() or not np.allclose(total, 1, atol=1e-3):
        raise InputError(
            f"{what} must hold probabilities: none missing or negative, and every row sums to one (rows sum to between "
            f"{total.min():.4g} and {total.max():.4g})."
        )
    return array


def in_order(codes: np.ndarray, labels: np.ndarray, classes: Sequence[Any] | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes in the order of the columns of ``p_class``, and codes of the rows in it."""
    if classes is None:
        return labels, codes
    if isinstance(classes, str) or np.ndim(classes) != 1 or len({*map(str, classes)}) < len(classes):
        raise InputError(f"classes must be a list of the classes, each once, got {classes!r}.")
    places = pd.Index(np.asarray(classes)).get_indexer(pd.Index(labels))
    if (places < 0).any():
        raise InputError(
            f"y holds {labels[places < 0][0]!r}, which is not among the classes: {', '.join(map(str, classes))}."
        )
    return np.asarray(classes), places[codes]
