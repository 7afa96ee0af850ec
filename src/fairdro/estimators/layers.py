"""Layers of a trained model, for features as they were passed, and the scaling that is folded into them."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler

from fairdro.methods import Method
from fairdro.training.rows import RowsOnDisk, ScaledRows
from fairdro.training.trained import STEPS, TrainedBank

ROWS_PER_PIECE, NUMBERS_PER_PIECE = 65_536, 65_536 * 100  # scaled at a time, so that a large table is not held twice
LEAST_VARIANCE = 1e-14  # relative to the squared mean; below, a column is constant


@dataclass(frozen=True)
class Layers:
    """Weights and intercepts of one trained model, for features as they were passed."""

    layers: list[tuple[np.ndarray, np.ndarray]]

    @staticmethod
    def fit_together(weights: list[np.ndarray], intercepts: list[np.ndarray], n_features: int, n_classes: int) -> bool:
        """Whether layers lead from so many features to so many classes."""
        widths = [n_features, *(len(b) for b in intercepts)]
        shapes = [W.shape for W in weights]
        return len(intercepts) > 0 and shapes == list(itertools.pairwise(widths)) and widths[-1] == n_classes

    @classmethod
    def of(cls, trained: TrainedBank, scaler: StandardScaler) -> Self:
        """Take the layers of a bank of one model; scaling is folded into the first."""
        (first, bias), *others = [(W[0, 0].double().numpy(), b[0, 0].double().numpy()) for W, b in trained.model.layers]
        first = first / scaler.scale_[:, None]
        return cls([(first, bias - scaler.mean_ @ first), *others])

    def forward(self, X: Any) -> np.ndarray:
        """Return the logits ``(N, Y)``."""
        hidden, ((first, bias), *others) = X, self.layers
        hidden = hidden @ first + bias
        for W, b in others:
            hidden = np.maximum(hidden, 0) @ W + b
        return hidden

    def logits(self, X: Any, rows: np.ndarray) -> np.ndarray:
        """Return the logits of some rows ``(n, Y)``, piece by piece."""
        return np.concatenate([self.forward(_dense(X[piece])) for piece in pieces_of(rows, X.shape[1])])


def fit_scaler(X: Any, rows: np.ndarray, weight: torch.Tensor | None) -> StandardScaler:
    """Return means and scales of some rows, taken piece by piece; of rows on disk, those of all processes."""
    scaler = StandardScaler()
    if isinstance(X, RowsOnDisk):
        scaler.mean_, scaler.var_ = X.moments(rows)
        scaler.scale_ = np.where(scaler.var_ > LEAST_VARIANCE * scaler.mean_**2, np.sqrt(scaler.var_), 1.0)
        return scaler
    first = 0
    for piece in pieces_of(rows, X.shape[1]):
        part = None if weight is None else weight[first : (first := first + len(piece))].double().numpy()
        scaler.partial_fit(_dense(X[piece]), sample_weight=part)
    return scaler


def scaled(X: Any, rows: np.ndarray, scaler: StandardScaler, *, double: bool) -> torch.Tensor | ScaledRows:
    """Return some rows scaled, as a tensor; rows on disk stay there, and are scaled when they are read."""
    if isinstance(X, RowsOnDisk):
        return ScaledRows(X, rows, scaler.mean_, scaler.scale_, torch.float64 if double else torch.float32)
    out = np.empty((len(rows), X.shape[1]), dtype=np.float64 if double else np.float32)
    first = 0
    for piece in pieces_of(rows, X.shape[1]):
        out[first : (first := first + len(piece))] = scaler.transform(_dense(X[piece]))
    return torch.from_numpy(out)


def _dense(X: Any) -> np.ndarray:
    return (X.toarray() if hasattr(X, "toarray") else X).astype(np.float64, copy=False)


def pieces_of(rows: np.ndarray, width: int) -> list[np.ndarray]:
    """Cut rows of so many features into pieces that are looked at one at a time; of no rows, one that is empty."""
    most = max(min(ROWS_PER_PIECE, NUMBERS_PER_PIECE // width), 1)
    return [rows[i : i + most] for i in range(0, max(len(rows), 1), most)]


def until_converged(
    train: Callable[[Method, int], TrainedBank], method: Method, most: int, tol: float
) -> tuple[TrainedBank, list[int]]:
    """Train, and again with twice the steps what has not converged; return also the points that never did.

    Parameters
    ----------
    train : callable
        Trains a method by so many steps.
    most : int
        Steps at most.
    tol : float
        A model has converged when no accuracy of a cell moves by more over its last steps.
    """
    steps = min(STEPS, most)
    trained = last = train(method, steps)
    moving = np.flatnonzero(last.drift[0] > tol)
    while len(moving) and 2 * steps <= most:
        steps *= 2
        last = train(method.some(moving.tolist()), steps)
        trained = trained.updated(moving.tolist(), last)
        moving = moving[(last.drift[0] > tol).numpy()]
    return trained, moving.tolist()
