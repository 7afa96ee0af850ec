"""A head on linear models: plain ones of class and group, predicted out of fold, and a head on their probabilities."""

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairdro._utils.progress import OnStep
from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.methods import Method, Scratch
from fairdro.training.folds import stratified_folds
from fairdro.training.fullbatch import train_fullbatch
from fairdro.training.head import Head, Part, Shape, fit_head, fit_held_out, head_refusal, join_parts, parts_of
from fairdro.training.trained import Trained, TrainedBank, check_two_classes


@dataclass(frozen=True, kw_only=True)
class LinearHead(Trained):
    """Plain linear models of class and group, and a head on them for P points."""

    models: list[TrainedBank]
    head: Head
    shape: Shape

    def predict(self, X: Any) -> Tensor:
        """Return class codes ``(1, P, N)`` for rows ``(N, D)``."""
        return self.head.predict(join_parts([probabilities_of(model, X) for model in self.models], self.shape))


def train_linear_head(
    X: Tensor,
    cells: Cells,
    method: Method,
    *,
    held_out: tuple[Tensor, Cells] | None = None,
    seed: int = 0,
    on_step: OnStep | None = None,
) -> LinearHead:
    """Train linear models of class and group, and fit a head to out-of-fold probabilities for every point of a method.

    Parameters
    ----------
    X : Tensor of shape (N, D)
        Features of similar scale.
    cells : Cells
    method : Method
        One that only weighs cells.
    held_out : tuple of Tensor and Cells, optional
        Rows to fit the head to, instead of out-of-fold predictions: where the features are those of a network that was
        trained on the rows of X.
    seed : int
        Of the folds.
    on_step : callable, optional
        Called with the number of finished models and of all.
    """
    if (refusal := head_refusal(method)) is not None:
        raise InputError(refusal)
    check_two_classes(cells.counts)
    start = time.perf_counter()
    parts = parts_of("independent" if cells.n_groups > 1 else "classes", cells)
    everyone = (np.arange(len(cells)), np.empty(0, dtype=np.int64))
    folds = [everyone] if held_out is not None else [*stratified_folds(cells, seed=seed), everyone]
    tables, models = [np.zeros((len(cells), part.width(cells))) for part in parts], []
    for i, (part, (train, test)) in enumerate((part, fold) for part in parts for fold in folds):
        model = train_part(X, cells, part, train)
        if len(test):
            tables[i // len(folds)][test] = probabilities_of(model, X[test])
        else:
            models.append(model)  # the last of a part is trained on all rows
        if on_step is not None:
            on_step(i + 1, len(parts) * len(folds))
    judged = None
    if held_out is None:
        head = fit_head(join_parts(tables, cells), cells, method)
    else:
        rows, own = held_out
        found = join_parts([probabilities_of(model, rows) for model in models], cells)
        head, counts = fit_held_out(found, own, method, seed=seed)
        judged = counts[None]
    return LinearHead(
        models=models,
        head=head,
        shape=Shape(cells.n_classes, cells.n_groups),
        weights=head.weights,
        history=head.history,
        diverged=head.diverged,
        seconds=time.perf_counter() - start,
        held_out=judged,
    )


def train_part(X: Tensor, cells: Cells, part: Part, rows: np.ndarray) -> TrainedBank:
    """Train a plain linear model of class or group, every row counting the same."""
    rows, target, weight = part.target(cells, rows)
    everyone = torch.zeros(len(rows), dtype=torch.int64)
    own = Cells(
        torch.from_numpy(target),
        everyone,
        n_classes=part.width(cells),
        n_groups=1,
        sample_weight=None if weight is None else torch.from_numpy(weight).float(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one group; a class that a fold does not have
        return train_fullbatch(X[torch.from_numpy(rows)], own, Scratch(objective="standard"), alone=True)


def probabilities_of(model: TrainedBank, X: Any) -> np.ndarray:
    """Return the probabilities of what a linear model predicts ``(N, K)``."""
    return model.logits(X)[0, 0].double().softmax(-1).numpy()
