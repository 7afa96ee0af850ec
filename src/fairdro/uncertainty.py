"""Uncertainty sets for the weights q, and the best response in each: the q that is worst for the given losses.

``best_response(losses)`` maps losses ``(..., A)`` to weights ``(..., A)`` that sum to one. Classwise robust optimisation
passes ``(..., Y, A)``, joint optimisation flattens the cells first. A NaN loss marks an empty cell: it gets weight zero and
the problem is solved on the others.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairdro.errors import InputError

__all__ = ["ChiSquareBall", "Simplex"]

LARGEST = 1e6  # larger losses, infinite ones among them, count as this
SMALLEST = 1e-30  # divides zeros


@dataclass(frozen=True, eq=False)
class ChiSquareBall:
    r"""Weights within a chi-square distance of uniform, equation 4 of the paper.

    .. math:: Q_\rho = \{q : \sum_a q_a = 1,\; |A| \sum_a (q_a - 1/|A|)^2 \le \rho\}

    Parameters
    ----------
    rho : float or Tensor
        The paper's radius; a tensor must broadcast with ``losses.shape[:-1]``.
    signed : bool, default True
        Whether weights may be negative (quasi-probabilities, as in the paper), or must stay ``q >= 0``.
    softness : float, default 0
        With ``softness > 0`` the signed response divides by ``||d|| + softness`` instead of ``||d||``, so that q fades to
        uniform as the groups' losses meet instead of flipping its sign. Not part of the paper.

    See Also
    --------
    Simplex : All probability vectors, as in Group DRO.

    Examples
    --------
    >>> import torch
    >>> from fairdro.uncertainty import ChiSquareBall
    >>> errors = torch.tensor([0.10, 0.20, 0.30])
    >>> ChiSquareBall(rho=0.5).best_response(errors)
    tensor([0.0447, 0.3333, 0.6220])
    >>> ChiSquareBall(rho=4.0).best_response(errors)  # weights may be negative
    tensor([-0.4832,  0.3333,  1.1498])
    >>> ChiSquareBall(rho=4.0, signed=False).best_response(errors)
    tensor([0., 0., 1.])
    """

    rho: float | Tensor
    signed: bool = True
    softness: float = 0.0

    def __post_init__(self) -> None:
        try:
            rho = torch.as_tensor(self.rho)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"rho must be a number, got {self.rho!r}.") from error
        if not bool(torch.isfinite(rho).all()) or bool((rho < 0).any()):
            raise InputError(f"rho must be zero or a positive finite number, got {self.rho}.")
        if not self.softness >= 0:
            raise InputError(f"softness must not be negative, got {self.softness}.")
        if self.softness > 0 and not self.signed:
            raise InputError("softness is defined for the signed ball only; use signed=True or softness=0.")

    def best_response(self, losses: Tensor) -> Tensor:
        r"""Return the worst weights for ``losses`` (..., A).

        Signed, the closed form of Proposition 2, with :math:`d = L - \bar L`:

        .. math:: q_a = 1/|A| + \sqrt{\rho/|A|}\; d_a / \|d\|_2

        Equal losses give uniform weights. Non-negative, :math:`q_a \propto \max(L_a - \eta, 0)` on the ball's surface, or
        uniform on the largest losses where that is feasible.

        Parameters
        ----------
        losses : Tensor of shape (..., A)
            NaN marks a group without samples, which gets weight zero.

        Returns
        -------
        Tensor of shape (..., A)
            Sums to one.
        """
        losses = torch.as_tensor(losses)
        precise = losses.dtype in (torch.float32, torch.float64)
        losses = (losses if precise else losses.double()).clamp(-LARGEST, LARGEST)
        rho = torch.as_tensor(self.rho, dtype=losses.dtype, device=losses.device)[..., None]
        return self._signed(losses, rho) if self.signed else _non_negative(losses, rho)

    def _signed(self, losses: Tensor, rho: Tensor) -> Tensor:
        present, size = _present(losses)
        filled = losses.nan_to_num(0)
        deviation = (filled - filled.sum(-1, keepdim=True) / size) * present
        norm = torch.linalg.vector_norm(deviation, dim=-1, keepdim=True)
        apart = norm > _tolerance(filled)
        direction = deviation * apart / (norm + self.softness).clamp(min=SMALLEST)
        return torch.addcmul(size.reciprocal(), (rho / size).sqrt(), direction) * present


@dataclass(frozen=True)
class Simplex:
    """All probability vectors over the groups, as in Group DRO, equation 3 of the paper.

    See Also
    --------
    ChiSquareBall : Weights near uniform, as in FairDRO.

    Examples
    --------
    >>> import torch
    >>> from fairdro.uncertainty import Simplex
    >>> Simplex().best_response(torch.tensor([0.10, 0.20, 0.30]))
    tensor([0., 0., 1.])
    """

    def best_response(self, losses: Tensor) -> Tensor:
        """Put all weight on the largest loss of ``losses`` (..., A); of tied losses, on the first.

        Parameters
        ----------
        losses : Tensor of shape (..., A)
            NaN marks a group without samples, which gets weight zero.

        Returns
        -------
        Tensor of shape (..., A)
        """
        losses = torch.as_tensor(losses)
        present, _ = _present(losses)
        worst = losses.where(present, -torch.inf).argmax(-1)
        return torch.nn.functional.one_hot(worst, losses.shape[-1]).to(losses.dtype).where(present, 0)


UncertaintySet = ChiSquareBall | Simplex
"""A set of weights over groups, whose ``best_response(losses)`` is the ``argmax_q sum_a q_a L_a`` in it."""


def _present(losses: Tensor) -> tuple[Tensor, Tensor]:
    """Non-empty cells, and how many there are along the last axis (at least 1, so that it can divide)."""
    present = ~losses.isnan()
    return present, present.sum(-1, keepdim=True, dtype=losses.dtype).clamp(min=1)


def _tolerance(losses: Tensor) -> Tensor:
    """Below this norm, deviations from the mean are rounding errors of equal losses."""
    relative = (1e-12 if losses.dtype == torch.float64 else 1e-6) * losses.shape[-1] ** 0.5
    return torch.linalg.vector_norm(losses, torch.inf, dim=-1, keepdim=True).clamp(min=1) * relative


def _non_negative(losses: Tensor, rho: Tensor) -> Tensor:
    """Solve ``max q.L`` over the ball and the simplex exactly, by trying every support of the m largest losses.

    On a support of size m the solution is ``1/m + s * (L - mean of the support)`` with s so that the chi-square constraint,
    ``sum q^2 = (1 + rho) / A``, is tight. The largest support on which all of that is non-negative is the optimal one. A
    support of tied losses is uniform.
    """
    dtype, tied_below = losses.dtype, _tolerance(losses.nan_to_num(0))
    losses, rho = losses.double(), rho.double()
    present, size = _present(losses)
    ordered, order = losses.where(present, -torch.inf).sort(dim=-1, descending=True, stable=True)
    ordered = ordered.where(ordered.isfinite(), 0)
    n = losses.shape[-1]
    in_support = torch.ones(n, n, dtype=torch.bool, device=losses.device).tril()  # row m-1: the m largest
    m = torch.arange(1, n + 1, dtype=losses.dtype, device=losses.device)[:, None]
    values = ordered[..., None, :]
    mean = (values * in_support).sum(-1, keepdim=True) / m
    deviation = (values - mean).where(in_support, 0)
    norm = deviation.norm(dim=-1, keepdim=True)
    tied = norm <= tied_below[..., None]
    slack = ((1 + rho) / size)[..., None] - 1 / m
    scale = slack.clamp(min=0).sqrt() / norm.where(~tied, torch.inf)
    q = (1 / m + scale * deviation).where(in_support, 0)
    valid = (q >= -1e-9).all(-1) & (slack[..., 0] >= -1e-9) & (m[:, 0] <= size)
    chosen = torch.where(valid, m[:, 0], 0).argmax(-1)
    best = q.gather(-2, chosen[..., None, None].expand(*chosen.shape, 1, n))[..., 0, :].clamp(min=0)
    best = best / best.sum(-1, keepdim=True)
    return torch.zeros_like(best).scatter(-1, order.expand_as(best), best).where(present, 0).to(dtype)
