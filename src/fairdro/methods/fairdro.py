"""FairDRO, and by its switches the ablations of the paper."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fairdro.errors import InputError
from fairdro.methods.base import CellMeans, LogRange, Method, Objective, Scalars, State, Task, plain_weights, uniform
from fairdro.uncertainty import ChiSquareBall, Simplex, UncertaintySet

Uncertainty = Literal["chi_square", "chi_square_nonnegative", "simplex"]
Smoothing = Literal["linear", "none"]


@dataclass(frozen=True)
class FairDRO(Method):
    r"""Classwise DRO over a chi-square ball of quasi-probabilities (paper, Eq. 6 to 9, Algorithm 1).

    .. math:: \min_\theta \frac{1}{|Y|} \sum_y \max_{q^y \in Q_\rho} \sum_a q^y_a L(\theta, D^y_a)

    After every epoch (or step), with :math:`q^{y*}` the best response to the cells' 0-1 errors and
    :math:`\eta_t = 1 - t/T`:

    .. math:: q^{y,t+1} = (1 - \eta_t)\, q^{y,t} + \eta_t\, q^{y*,t}

    With the standard objective, the weights are those of plain training, in which every sample counts the same, plus
    :math:`q` less the uniform one: what is regularised is the same, what is kept is ordinary accuracy. Not in the paper.

    Parameters
    ----------
    rho : float or sequence of float, default 1
        The paper's radius; 0 is balanced plain training. The authors' code calls half of this value rho.
    classwise : bool, default True
        One q per class, or one over all cells.
    uncertainty : {"chi_square", "chi_square_nonnegative", "simplex"}, default "chi_square"
        The set q is chosen from; the first allows negative weights.
    smoothing : {"linear", "none"}, default "linear"
        How the step of q falls over training.
    signal : {"error", "loss"}, default "error"
        What q responds to: the cells' 0-1 errors, or their training losses.
    softness : float, default 0
        Softens the best response where groups are nearly equal, see :class:`~fairdro.uncertainty.ChiSquareBall`. Not in the
        paper.
    objective : {"balanced", "standard"}, default "balanced"
        What plain training, at rho 0, counts the same: every cell (the paper's), or every sample.
    """

    name: ClassVar[str] = "fairdro"
    search: ClassVar[dict[str, LogRange]] = {"rho": LogRange(1e-2, 1e2, zero=True)}
    stepwise: ClassVar[dict[str, Any]] = {"softness": 0.02}

    rho: Scalars = 1.0
    classwise: bool = True
    uncertainty: Uncertainty = "chi_square"
    smoothing: Smoothing = "linear"
    signal: Literal["error", "loss"] = "error"
    softness: float = 0.0
    objective: Objective = "balanced"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.softness and self.uncertainty != "chi_square":
            raise InputError(f"softness is defined for uncertainty='chi_square' only, not for {self.uncertainty!r}.")
        _ = self._uncertainty_set  # what is wrong with it is said now

    @property
    def needs_loss(self) -> bool:
        """Whether q responds to the training losses."""
        return self.signal == "loss"

    def begin(self, task: Task) -> State:
        """Start from uniform q; with the standard objective, also keep what plain training adds to it."""
        state = {"q": task.per_model(uniform(task.counts, classwise=self.classwise))}
        if self.objective == "standard":
            state["added"] = task.per_model(plain_weights(task, self.objective)) - self.weights(state)
        return state

    def weights(self, state: State) -> Tensor:
        """Return q; a joint q sums to one over all cells, so it is scaled to the engine's mean over classes."""
        q = state["q"] if self.classwise else state["q"] * state["q"].shape[-2]
        return q + state["added"] if "added" in state else q

    def update(self, state: State, cells: CellMeans, progress: float) -> State:
        """Move q towards the best response."""
        losses = cells.error if self.signal == "error" else cells.loss
        if losses is None:
            raise InputError("signal='loss' needs the mean loss of every cell.")
        joint = losses if self.classwise else losses.flatten(-2)
        best = self._uncertainty_set.best_response(joint).view_as(losses)
        moved = state["q"].lerp(best.to(state["q"].dtype), 1 - progress if self.smoothing == "linear" else 1.0)
        return {**state, "q": moved}

    @cached_property
    def _uncertainty_set(self) -> UncertaintySet:
        if self.uncertainty == "simplex":
            return Simplex()
        rho = torch.tensor(self.rho, dtype=torch.float64)
        signed = self.uncertainty == "chi_square"
        return ChiSquareBall(rho[..., None] if self.classwise else rho, signed=signed, softness=self.softness)
