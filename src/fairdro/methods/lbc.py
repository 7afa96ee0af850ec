"""Label bias correction."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fairdro.errors import InputError
from fairdro.methods.base import Baseline, CellMeans, LogRange, Scalars, State, Task


@dataclass(frozen=True)
class LBC(Baseline):
    r"""Label bias correction (Jiang and Nachum, 2020): cells that do worse than their class gain weight, round after round.

    Weights are those of plain training times :math:`\sigma(m_{y,a})`. After each full training, with the accuracy of a cell
    :math:`p_{y,a}` and of its class :math:`p_y`:

    .. math:: m_{y,a} \leftarrow m_{y,a} - \eta\, (p_{y,a} - p_y)

    Parameters
    ----------
    eta : float or sequence of float, default 1
        Step of the multipliers.
    rounds : int, default 10
        Full trainings, of which each goes on from the last. With 1, the multipliers move at every update of a single
        training instead, as the paper does on texts.
    class_weight : sequence of float, optional
        What errors on every class cost, relative to each other; by default the same.
    objective : {"balanced", "standard"}, default "balanced"
        What plain training counts the same: every cell, or every sample.

    Examples
    --------
    >>> import torch
    >>> from fairdro.methods import LBC, Task
    >>> task = Task(torch.tensor([[40.0, 10.0], [30.0, 20.0]]))  # samples of every class and group
    >>> method = LBC(eta=1.0)
    >>> method.weights(method.begin(task))
    tensor([[0.2500, 0.2500],
            [0.2500, 0.2500]], dtype=torch.float64)
    >>> from fairdro.methods import CellMeans
    >>> state = method.begin(task)
    >>> method.weights(method.next_round(state, CellMeans(error=torch.tensor([[0.1, 0.3], [0.2, 0.2]])))).round(decimals=3)
    tensor([[0.2450, 0.2700],
            [0.2500, 0.2500]], dtype=torch.float64)
    """

    name: ClassVar[str] = "lbc"
    search: ClassVar[dict[str, LogRange]] = {"eta": LogRange(1e-3, 1e2)}

    eta: Scalars = 1.0
    rounds: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds < 1 or self.rounds != int(self.rounds):
            raise InputError(f"rounds of lbc must be a positive whole number, got {self.rounds}.")
        object.__setattr__(self, "rounds", int(self.rounds))

    def begin(self, task: Task) -> State:
        """Start from multipliers of zero."""
        in_class = task.counts / task.counts.sum(-1, keepdim=True).clamp(min=1e-12)
        return {
            "multipliers": task.per_model(torch.zeros_like(task.counts)),
            "plain": task.per_model(self.plain_weights(task)),
            "in_class": task.per_model(in_class),
        }

    def weights(self, state: State) -> Tensor:
        """Return the plain weights times the sigmoid of the multipliers."""
        return state["plain"] * state["multipliers"].sigmoid()

    def update(self, state: State, cells: CellMeans, progress: float) -> State:
        """In a single round, do what is otherwise done between rounds."""
        return self.next_round(state, cells) if self.rounds == 1 else state

    def next_round(self, state: State, cells: CellMeans) -> State:
        """Raise the multipliers of cells whose accuracy is below that of their class."""
        accuracy = 1 - cells.error
        of_class = (accuracy.nan_to_num(0) * state["in_class"]).sum(-1, keepdim=True)
        violation = (accuracy - of_class).nan_to_num(0)
        return {**state, "multipliers": state["multipliers"] - self.hyperparameter("eta") * violation}
