"""FairDRO, and by its switches the ablations of the paper."""

import operator
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
    r"""Classwise DRO over a chi-square ball of quasi-probabilities, equations 6 to 9 and algorithm 1 of the paper.

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
    fair_classes : sequence of int, optional
        Codes of the classes whose groups are to be served alike; q stays uniform in others. By default all. With one class
        that is equal opportunity. Not in the paper.
    class_weight : sequence of float, optional
        What errors on every class cost, relative to each other; by default the same.

    See Also
    --------
    fairdro.FairDROClassifier : It as a classifier.
    fairdro.FairDROLoss : It as a loss of PyTorch.
    fairdro.uncertainty.ChiSquareBall : The closed form of q.

    Examples
    --------
    >>> import torch
    >>> from fairdro.methods import FairDRO, Task
    >>> task = Task(torch.tensor([[40.0, 10.0], [30.0, 20.0]]))  # samples of every class and group
    >>> method = FairDRO(rho=0.5)
    >>> method.weights(method.begin(task))
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]], dtype=torch.float64)
    >>> from fairdro.methods import CellMeans
    >>> cells = CellMeans(error=torch.tensor([[0.1, 0.3], [0.2, 0.2]], dtype=torch.float64))
    >>> method.weights(method.update(method.begin(task), cells, progress=0.0)).round(decimals=3)
    tensor([[0.1460, 0.8540],
            [0.5000, 0.5000]], dtype=torch.float64)
    """

    name: ClassVar[str] = "fairdro"
    search: ClassVar[dict[str, LogRange]] = {"rho": LogRange(1e-2, 1e2, zero=True)}
    stepwise: ClassVar[dict[str, Any]] = {"softness": 0.02}
    takes_unknown_group: ClassVar[bool] = True

    rho: Scalars = 1.0
    classwise: bool = True
    uncertainty: Uncertainty = "chi_square"
    smoothing: Smoothing = "linear"
    signal: Literal["error", "loss"] = "error"
    softness: float = 0.0
    objective: Objective = "balanced"
    fair_classes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fair_classes is not None:
            object.__setattr__(self, "fair_classes", _class_codes(self.fair_classes))
        if self.softness and self.uncertainty != "chi_square":
            raise InputError(f"softness is defined for uncertainty='chi_square' only, not for {self.uncertainty!r}.")
        _ = self._uncertainty_set  # what is wrong with it is said now

    @property
    def needs_loss(self) -> bool:
        """Whether q responds to the training losses."""
        return self.signal == "loss"

    def check(self, task: Task) -> None:
        """Refuse fair classes that are not there, and unknown groups where weights must not be negative."""
        super().check(task)
        if task.unknown_group and self.uncertainty != "chi_square":
            raise InputError(f"{self.name} needs the group of every row; use {self.instead}, or infer the missing groups.")
        if self.fair_classes is not None and max(self.fair_classes) >= task.n_classes:
            raise InputError(f"fair_classes are codes below {task.n_classes}, one per class; got {self.fair_classes}.")

    def begin(self, task: Task) -> State:
        """Start from uniform q; keep what plain training adds to it, and which cells are made equal, where not all are."""
        state = {"q": task.per_model(uniform(task.known, classwise=self.classwise))}
        if self.objective == "standard" or task.unknown_group:
            state["added"] = task.per_model(plain_weights(task, self.objective)) - self.weights(state)
        if self.fair_classes is not None or task.unknown_group:
            fair = torch.ones_like(task.counts)
            if self.fair_classes is not None:
                fair[[k for k in range(task.n_classes) if k not in self.fair_classes]] = 0
            if task.unknown_group:
                fair[:, -1] = 0
            state["fair"] = task.per_model(fair)
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
        fair = state["fair"] > 0 if "fair" in state else None
        if fair is not None:
            losses = losses.where(fair, torch.nan)
        joint = losses if self.classwise else losses.flatten(-2)
        best = self._uncertainty_set.best_response(joint).view_as(losses).to(state["q"].dtype)
        if fair is not None and not self.classwise:  # what is not to be fair keeps its share of the one q
            best = best * state["q"].where(fair, 0).sum((-2, -1), keepdim=True)
        moved = state["q"].lerp(best, 1 - progress if self.smoothing == "linear" else 1.0)
        return {**state, "q": moved if fair is None else moved.where(fair, state["q"])}

    @cached_property
    def _uncertainty_set(self) -> UncertaintySet:
        if self.uncertainty == "simplex":
            return Simplex()
        rho = torch.tensor(self.rho, dtype=torch.float64)
        signed = self.uncertainty == "chi_square"
        return ChiSquareBall(rho[..., None] if self.classwise else rho, signed=signed, softness=self.softness)


def _class_codes(codes: Any) -> tuple[int, ...]:
    """Return codes of classes, each once and in order, or say what is wrong with them."""
    try:
        found = tuple(sorted({operator.index(code) for code in codes}))
    except TypeError:
        found = ()
    if not found or found[0] < 0:
        raise InputError(f"fair_classes must be codes of one class or more, 0 for the first; got {codes!r}.")
    return found
