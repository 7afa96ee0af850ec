"""Group DRO as its users know it."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fairdro.methods.base import Batch, LogRange, Method, Scalars, State, Task, uniform


@dataclass(frozen=True)
class GroupDROEG(Method):
    r"""Group DRO (Sagawa et al., 2020) over all cells, with an exponentiated-gradient step at every mini-batch.

    .. math:: q_{y,a} \propto q_{y,a} \exp(\gamma\, \bar\ell_{y,a}), \quad \min_\theta \sum_{y,a} q_{y,a} \bar\ell_{y,a}

    Parameters
    ----------
    gamma : float or sequence of float, default 0.1
        Step of the weights.
    class_weight : sequence of float, optional
        What errors on every class cost, relative to each other; by default the same.

    Examples
    --------
    >>> import torch
    >>> from fairdro.methods import GroupDROEG, Task
    >>> task = Task(torch.tensor([[40.0, 10.0], [30.0, 20.0]]))  # samples of every class and group
    >>> method = GroupDROEG()
    >>> method.weights(method.begin(task))
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]], dtype=torch.float64)
    """

    name: ClassVar[str] = "group_dro_eg"
    search: ClassVar[dict[str, LogRange]] = {"gamma": LogRange(1e-3, 1e1)}

    gamma: Scalars = 0.1

    def begin(self, task: Task) -> State:
        """Start from equal weights over all cells."""
        return {"q": task.per_model(uniform(task.counts, classwise=False))}

    def weights(self, state: State) -> Tensor:
        """Return q, scaled to the engine's mean over classes."""
        return state["q"] * state["q"].shape[-2]

    def observe(self, state: State, batch: Batch) -> State:
        """Move q towards the cells with large loss in the batch."""
        exponent = self.hyperparameter("gamma") * batch.means(batch.losses).double()
        raised = state["q"] * (exponent - exponent.amax((-2, -1), keepdim=True)).exp()
        return {"q": raised / raised.sum((-2, -1), keepdim=True)}
