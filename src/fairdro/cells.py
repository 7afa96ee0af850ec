"""Samples to cells: the only place that groups data.

Every class ``y`` and group ``a`` meet in a cell ``(y, a)``; values per sample become sums, counts and means per cell, of
shape ``(..., Y, A)``. Soft groups are a membership matrix ``(N, A)``; everything downstream is the same.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fairdro.errors import InputError
from fairdro.groups import Groups

DENSE_CELLS = 64


@dataclass(frozen=True)
class CellTotals:
    """Sums and counts per cell. They add up over chunks, with ``+``."""

    sums: Tensor
    counts: Tensor

    def __add__(self, other: "CellTotals") -> "CellTotals":
        return CellTotals(self.sums + other.sums, self.counts + other.counts)

    @property
    def means(self) -> Tensor:
        """Mean per cell ``(..., Y, A)``; NaN marks an empty cell."""
        return self.sums / self.counts.to(self.sums.dtype)


def take_rows(values: Tensor, rows: Tensor) -> Tensor:
    """Return ``values[rows]`` for rows of any shape, three times faster."""
    return values.index_select(0, rows.flatten()).view(*rows.shape, *values.shape[1:])


def _check_codes(codes: Tensor, number: int, name: str) -> None:
    """Refuse codes that none stands for; on a GPU, looking would make it wait."""
    if codes.device.type != "cpu" or codes.is_floating_point() or codes.numel() == 0:
        return
    least, most = (int(end) for end in codes.aminmax())
    if least < 0 or most >= number:
        raise InputError(
            f"The codes of the {name} must lie between 0 and {number - 1}, but there are some from {least} to {most}; rows "
            f"without a {name} have no code."
        )


def check_weights(sample_weight: Any, n: int) -> np.ndarray:
    """Return sample weights as an array, or say what is wrong with them."""
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight must hold numbers: {error}.") from error
    if weight.shape != (n,):
        raise InputError(f"sample_weight has shape {weight.shape} but there are {n} rows.")
    if not np.isfinite(weight).all() or (weight < 0).any() or not (weight > 0).any():
        raise InputError("sample_weight must hold finite numbers, none negative and not all zero.")
    return weight


class Cells:
    """Which cell, or which cells in shares, each sample belongs to.

    Parameters
    ----------
    y : Tensor of int64, shape (..., N)
        Class codes.
    groups : Tensor
        Group codes ``(..., N)`` (integer), or membership ``(..., N, A)`` (floating point).
    n_classes, n_groups : int
        Their numbers.
    sample_weight : Tensor of shape (..., N), optional
        Counts a sample as this many.
    known : Tensor of bool, shape (..., N), optional
        Whether the group of a sample is known; by default of all. Those of others are inferred shares, or the last group.
    unknown_group : bool, default False
        Whether the last group holds the samples whose group is not known: no group to be fair to.

    Examples
    --------
    >>> import torch
    >>> from fairdro.cells import Cells
    >>> cells = Cells(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 1]), n_classes=2, n_groups=2)
    >>> cells.counts
    tensor([[1., 1.],
            [0., 2.]], dtype=torch.float64)
    >>> cells.means(torch.tensor([0.1, 0.2, 0.3, 0.5]))  # NaN in an empty cell
    tensor([[0.1000, 0.2000],
            [   nan, 0.4000]])
    """

    def __init__(
        self,
        y: Tensor,
        groups: Tensor,
        *,
        n_classes: int,
        n_groups: int,
        sample_weight: Tensor | None = None,
        known: Tensor | None = None,
        unknown_group: bool = False,
    ) -> None:
        self.y, self.groups, self.sample_weight = y, groups, sample_weight
        self.n_classes, self.n_groups = n_classes, n_groups
        self.known, self.unknown_group = known, unknown_group
        _check_codes(y, n_classes, "class")
        _check_codes(groups, n_groups, "group")

    @classmethod
    def from_labels(cls, y: np.ndarray, groups: Groups, *, n_classes: int, sample_weight: np.ndarray | None = None) -> Self:
        """Build from class codes and encoded groups."""
        if len(y) != len(groups):
            raise InputError(f"y has {len(y)} rows but sensitive_features has {len(groups)}.")
        membership = torch.tensor(groups.values, dtype=torch.float32 if groups.soft else torch.int64)
        weight = None if sample_weight is None else torch.tensor(check_weights(sample_weight, len(y)), dtype=torch.float32)
        codes = torch.tensor(y, dtype=torch.int64)
        known = None if groups.known is None else torch.from_numpy(groups.known)
        return cls(
            codes, membership, n_classes=n_classes, n_groups=len(groups.names) + groups.unknown_group, sample_weight=weight,
            known=known, unknown_group=groups.unknown_group,
        )  # fmt: skip

    @property
    def soft(self) -> bool:
        """Whether groups are given as membership shares."""
        return self.groups.is_floating_point()

    def __len__(self) -> int:
        return self.y.shape[-1]

    @cached_property
    def codes(self) -> Tensor:
        """The cell of each sample, ``y * A + a``; where groups are soft, the class alone. For strata and sorting."""
        return (self.y if self.soft else self.y * self.n_groups + self.groups).int()

    @property
    def strata(self) -> dict[int, Tensor]:
        """The rows of every code that occurs, in their order."""
        values, sizes = self.codes.unique(return_counts=True)
        return dict(zip(values.tolist(), self.codes.argsort(stable=True).split(sizes.tolist()), strict=True))

    @property
    def membership(self) -> Tensor:
        """Share of each sample in each group, ``(..., N, A)``."""
        return self.groups if self.soft else torch.nn.functional.one_hot(self.groups, self.n_groups).float()

    @cached_property
    def indicator(self) -> Tensor:
        """Share of each sample in each cell, times its weight: ``(..., N, Y * A)``, kept cell by cell for fast products."""
        in_class = torch.nn.functional.one_hot(self.y, self.n_classes).to(self.membership.dtype)
        if self.sample_weight is not None:
            in_class = in_class * self.sample_weight[..., None]
        return (in_class[..., :, None] * self.membership[..., None, :]).flatten(-2).mT.contiguous().mT

    @cached_property
    def counts(self) -> Tensor:
        """Samples per cell ``(..., Y, A)``, by weight and share."""
        if not self.soft and self.sample_weight is None and self.y.dim() == 1:
            return self._by_cell(torch.bincount(self.codes, minlength=self.n_classes * self.n_groups).double())
        if self._sparse:
            return self._by_cell(self._sums(torch.ones(len(self), dtype=torch.float64)))
        return self._by_cell(self.indicator.sum(-2, dtype=torch.float64))

    @property
    def averaging(self) -> Tensor:
        """Matrix ``(..., N, Y * A)`` that turns values into cell means, ``values @ averaging``; zero for empty cells."""
        counts = self.counts.flatten(-2)[..., None, :]
        return self.indicator / counts.where(counts > 0, 1).to(self.indicator.dtype)

    def take(self, rows: Tensor) -> "Cells":
        """Cells of the samples at ``rows``, an index of any shape ``(..., B)``; only for flat ``y`` of shape (N,)."""
        y, groups = take_rows(self.y, rows), take_rows(self.groups, rows)
        weight = None if self.sample_weight is None else take_rows(self.sample_weight, rows)
        known = None if self.known is None else take_rows(self.known, rows)
        part = Cells(
            y, groups, n_classes=self.n_classes, n_groups=self.n_groups, sample_weight=weight, known=known,
            unknown_group=self.unknown_group,
        )  # fmt: skip
        if "indicator" in self.__dict__:
            part.indicator = take_rows(self.indicator, rows)
        return part

    @property
    def known_rows(self) -> Tensor:
        """The numbers of the samples whose group is known."""
        return torch.arange(len(self)) if self.known is None else self.known.nonzero()[:, 0]

    @cached_property
    def known_part(self) -> "Cells":
        """The cells of :attr:`known_rows`, without a group for others; only for flat ``y``."""
        if self.known is None:
            return self
        part = self.take(self.known_rows)
        groups = part.groups[:, : self.n_known_groups] if part.soft else part.groups
        if not bool(((part.membership > 0) & (part.membership < 1)).any()):
            groups = part.membership.argmax(-1)
        return Cells(
            part.y, groups, n_classes=self.n_classes, n_groups=self.n_known_groups, sample_weight=part.sample_weight
        )

    @property
    def n_known_groups(self) -> int:
        """Number of groups to be fair to."""
        return self.n_groups - self.unknown_group

    @property
    def ungrouped(self) -> "Cells":
        """The same samples as members of one group."""
        everyone = torch.zeros_like(self.y)
        return Cells(self.y, everyone, n_classes=self.n_classes, n_groups=1, sample_weight=self.sample_weight)

    def totals(self, values: Tensor) -> CellTotals:
        """Sums of ``values`` (..., N) over each cell, with the counts."""
        return CellTotals(self._by_cell(self._sums(values)), self.counts)

    def means(self, values: Tensor) -> Tensor:
        """Mean of ``values`` (..., N) in each cell; NaN marks an empty cell."""
        return self.totals(values).means

    def spread(self, per_cell: Tensor) -> Tensor:
        """Look up cell values ``(..., Y, A)`` for every sample ``(..., N)`` of flat ``y``; soft ones get their mixture."""
        if self.soft:
            return (per_cell[..., self.y, :] * self.groups.to(per_cell.dtype)).sum(-1)
        return per_cell.flatten(-2).index_select(-1, self.codes)

    @cached_property
    def _sparse(self) -> bool:
        """Whether the indicator would be large and nearly empty."""
        return not self.soft and self.y.dim() == 1 and self.n_classes * self.n_groups > DENSE_CELLS

    def _sums(self, values: Tensor) -> Tensor:
        if not self._sparse:
            return values @ self.indicator.to(values.dtype)
        if self.sample_weight is not None:
            values = values * self.sample_weight.to(values.dtype)
        sums = values.new_zeros(*values.shape[:-1], self.n_classes * self.n_groups)
        return sums.index_add_(-1, self.codes, values)

    def _by_cell(self, flat: Tensor) -> Tensor:
        return flat.unflatten(-1, (self.n_classes, self.n_groups))
