"""What the feature methods share."""

from torch import Tensor

NEAREST = 1e-12


def squared_distances(u: Tensor, v: Tensor) -> Tensor:
    """Squared distances ``(..., n, m)`` of rows ``(..., n, F)`` and ``(..., m, F)``, never quite zero."""
    lengths = u.square().sum(-1)[..., :, None] + v.square().sum(-1)[..., None, :]
    return (lengths - 2 * u @ v.mT).clamp(min=NEAREST)
