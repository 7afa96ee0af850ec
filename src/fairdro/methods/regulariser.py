"""What regularisers with one strength share."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fairdro.methods.base import Batch, Scalars, State
from fairdro.methods.scratch import Scratch

NEAREST = 1e-12


@dataclass(frozen=True)
class Regulariser(Scratch):
    """Plain training plus ``lam`` times a regulariser of the mini-batch."""

    takes_unknown_group: ClassVar[bool] = False

    lam: Scalars = 1.0

    def penalty(self, state: State, batch: Batch) -> Tensor:
        """Return the strength times the regulariser."""
        value = self.regulariser(state, batch)
        return self.hyperparameter("lam")[..., 0, 0].to(value.dtype) * value

    def regulariser(self, state: State, batch: Batch) -> Tensor:
        """Return the regulariser of every model ``(*bank)``."""
        raise NotImplementedError


def squared_distances(u: Tensor, v: Tensor) -> Tensor:
    """Squared distances ``(..., n, m)`` of rows ``(..., n, F)`` and ``(..., m, F)``, never quite zero."""
    lengths = u.square().sum(-1)[..., :, None] + v.square().sum(-1)[..., None, :]
    return (lengths - 2 * u @ v.mT).clamp(min=NEAREST)
