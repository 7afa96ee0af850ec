"""What every engine returns, and what all of them check first."""

import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from fairdro._utils.seeding import generator
from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.methods import CellMeans, Method
from fairdro.models import ModelBank
from fairdro.training.controller import History
from fairdro.training.rows import ScaledRows

STEPS = 200  # of the full-batch solver
UNSETTLED = 0.05
DIVERGED_LOSS = 10.0  # times that of a blind guess


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What every engine returns, for S seeds times P points of a method.

    Attributes
    ----------
    weights : Tensor of shape (S, P, Y, A)
        Final cell weights; for FairDRO, q.
    history : History
    diverged : Tensor of bool, shape (S, P)
        Models that are not to be used.
    seconds : float
        Wall time of the whole training.
    held_out : ndarray of shape (S, P, Y, A, Y), optional
        Where something was fitted to rows that are held out: how these are predicted by models that were not fitted to them.
    """

    weights: Tensor
    history: History
    diverged: Tensor
    seconds: float
    held_out: np.ndarray | None = None

    def predict(self, X: Any) -> Tensor:
        """Return class codes ``(S, P, N)`` for what the engine takes: rows, probabilities, or inputs of a network."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class TrainedBank(Trained):
    """A trained bank of S x P models.

    Attributes
    ----------
    model : ModelBank
    method : Method
        What it was trained by; point p has ``method.hyperparameters(p)``.
    earlier : tuple of dict of str to Tensor
        Parameters of the models of earlier rounds, for a method whose rounds start anew.
    """

    model: ModelBank
    method: Method
    earlier: tuple[dict[str, Tensor], ...] = ()

    def __post_init__(self) -> None:
        if (number := int(self.diverged.sum())) > 0:
            warnings.warn(
                f"The loss of a cell diverged for {number} of {self.diverged.numel()} models, which negative weights can "
                "cause; they are marked as diverged. Use smaller radii or a smaller learning rate.",
                RuntimeWarning,
                stacklevel=4,
            )

    @property
    def drift(self) -> Tensor:
        """Largest change of a cell's accuracy, as the method saw it, over the last twentieth of training, ``(S, P)``."""
        accuracy = self.history.accuracy
        last = accuracy[-max(len(accuracy) // 20, 2) :]
        return (last.amax(0) - last.amin(0)).nan_to_num(0).flatten(2).amax(-1)

    def updated(self, points: Sequence[int], other: Self) -> Self:
        """Return the bank with some of its points as another bank has them; the history stays."""
        places, model = list(points), copy.deepcopy(self.model)
        with torch.no_grad():
            for own, new in zip(model.parameters(), other.model.parameters(), strict=True):
                own[:, places] = new
        weights, diverged = self.weights.clone(), self.diverged.clone()
        weights[:, places], diverged[:, places] = other.weights, other.diverged
        return replace(self, model=model, weights=weights, diverged=diverged)

    def warn_if_unsettled(self) -> None:
        """Say in a sentence that some models were still moving at the end."""
        if (number := int((self.drift > UNSETTLED).sum())) > 0:
            warnings.warn(
                f"The accuracy of a cell still moved by more than {100 * UNSETTLED:.0f} points at the end of training for "
                f"{number} of {self.diverged.numel()} models. Train longer, or use smaller radii.",
                RuntimeWarning,
                stacklevel=3,
            )

    @torch.no_grad()
    def logits(self, X: Any) -> Tensor:
        """Return logits ``(S, P, N, Y)`` for rows ``(N, D)``."""
        return torch.cat([self.model(rows) for rows in self._pieces(X)], dim=2)

    @torch.no_grad()
    def predict(self, X: Any) -> Tensor:
        """Return class codes ``(S, P, N)`` for rows ``(N, D)``."""
        return torch.cat([most_likely(self.model(rows)) for rows in self._pieces(X)], dim=2)

    @torch.no_grad()
    def predict_randomised(self, X: Any, *, seed: int = 0) -> Tensor:
        """Return class codes ``(S, P, N)``, for every row by a model drawn from those of the earlier rounds."""
        if not self.earlier:
            raise InputError(f"{self.method.name} trains one model per point, so there are none to draw from; use predict.")
        pieces = self._pieces(X)
        by_round = torch.stack([
            torch.cat([most_likely(functional_call(self.model, models, part)) for part in pieces], dim=2)
            for models in self.earlier
        ])  # fmt: skip
        drawn = torch.randint(len(self.earlier), (by_round.shape[-1],), generator=generator(seed, "randomised"))
        return by_round.gather(0, drawn.expand(1, *by_round.shape[1:])).squeeze(0)

    def _pieces(self, X: Any) -> tuple[Tensor, ...]:
        features = as_features(X, next(self.model.parameters()).dtype)
        if features.shape[1] != self.model.n_features:
            raise InputError(f"X has {features.shape[1]} columns, but the models were trained on {self.model.n_features}.")
        return features.split(self.model.rows_per_pass)


def most_likely(logits: Tensor) -> Tensor:
    """Class codes ``(...)`` of the largest logits ``(..., Y)``; of equals the first."""
    if logits.shape[-1] == 2:  # the same in a tenth of the time
        return (logits[..., 1] > logits[..., 0]).long()
    return logits.max(-1).indices  # argmax is ten times slower where classes are kept one after another


def mistaken(logits: Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
    """Whether the largest logits ``(..., N, Y)`` are of another class than ``y`` ``(..., N)``, as zeros and ones."""
    out = logits.new_empty(logits.shape[:-1]) if out is None else out
    if logits.shape[-1] == 2:
        return torch.ne(torch.gt(logits[..., 1], logits[..., 0], out=out), y.to(out.dtype), out=out)
    return torch.ne(most_likely(logits), y, out=out)


def as_features(X: Any, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a table of numbers as a float tensor ``(N, D)``, or say what is wrong with it."""
    try:
        array = X.detach() if isinstance(X, Tensor) else torch.from_numpy(np.array(X, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise InputError(f"X must hold numbers only: {error}.") from error
    if array.dim() != 2 or array.shape[0] == 0 or array.shape[1] == 0:
        raise InputError(f"X must be a table with rows and columns, but its shape is {tuple(array.shape)}.")
    features = array.to(dtype).contiguous()
    if not bool(torch.isfinite(features).all()):
        raise InputError("X has missing or infinite values; fill them in or drop those rows.")
    return features


def check_training_data(X: Any, cells: Cells, dtype: torch.dtype = torch.float32, counts: Tensor | None = None) -> Any:
    """Return the features, refuse what no engine can train on, and warn of cells that cannot be made fair.

    Rows on disk stay there; who wrote them has checked them.
    """
    features = X if isinstance(X, ScaledRows) else as_features(X, dtype)
    if len(features) != len(cells):
        raise InputError(f"X has {len(features)} rows but y has {len(cells)}.")
    counts = cells.counts if counts is None else counts
    check_two_classes(counts)
    counts = counts[:, : cells.n_known_groups]
    if cells.n_known_groups == 1:
        warnings.warn("There is one group only, so there is nothing to be fair between.", RuntimeWarning, stacklevel=3)
    if len(empty := (counts == 0).nonzero()) > 0:
        named = ", ".join(f"(class {y}, group {a})" for y, a in empty[:5].tolist())
        warnings.warn(
            f"{len(empty)} cells have no training rows and get no weight: {named}; their accuracy is left to chance.",
            RuntimeWarning,
            stacklevel=3,
        )
    return features


def check_two_classes(counts: Tensor) -> None:
    """Refuse rows of one class."""
    if int((counts.sum(-1) > 0).sum()) < 2:
        raise InputError("The training rows hold one class only; a classifier needs at least two.")


def has_diverged(means: CellMeans, counts: Tensor) -> Tensor:
    """Models ``(S, P)`` with a cell whose mean cross-entropy is far beyond that of a blind guess."""
    if means.loss is None:
        raise ValueError("the mean losses of the cells are missing")
    sound = (means.loss < DIVERGED_LOSS * math.log(counts.shape[0])) | (counts == 0)
    return ~sound.flatten(2).all(-1)
