"""Linear and multi-layer models, S seeds times P points in one batched matrix product.

Models of one seed see the same samples, so their first layers lie side by side in one matrix ``(S, D, P * width)``.
"""

import itertools
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from fairdro._utils.seeding import generator

CACHED = 2**20  # numbers of a layer that stay in a processor's cache; larger ones are taken from the system again and again
FEWEST_ROWS, MOST_ROWS = 128, 16384


class ModelBank(nn.Module):
    """A bank of S x P models; :meth:`forward` gives logits ``(S, P, N, Y)`` for inputs ``(N, D)`` or ``(S, N, D)``.

    There is one initialisation per seed, shared by the P points. A kind of one's own draws its weights by ``_initial`` and
    has a ``forward``; with ``hidden``, also :meth:`features` and :meth:`head`.

    Parameters
    ----------
    n_features, n_classes : int
        Their numbers.
    seeds : sequence of int, default (0,)
        The S seeds that draw initial weights.
    points : int, default 1
        P, how many models each seed has.

    Examples
    --------
    >>> import torch
    >>> from fairdro.models import ModelBank
    >>> class WithoutBias(ModelBank):
    ...     def __init__(self, n_features, n_classes, *, seeds=(0,), points=1):
    ...         super().__init__(n_features, n_classes, seeds=seeds, points=points)
    ...         self.weight = self._initial((n_features, n_classes), n_features, "weight")
    ...     def forward(self, x):
    ...         return (x if x.dim() == 2 else x[:, None]) @ self.weight
    >>> WithoutBias(3, 2, seeds=(0, 1), points=5)(torch.randn(10, 3)).shape
    torch.Size([2, 5, 10, 2])
    """

    hidden: ClassVar[bool] = False

    def __init__(self, n_features: int, n_classes: int, *, seeds: Sequence[int] = (0,), points: int = 1) -> None:
        super().__init__()
        self.n_features, self.n_classes = n_features, n_classes
        self.seeds, self.points = tuple(seeds), points

    @property
    def bank(self) -> tuple[int, int]:
        """Shape of the bank, ``(S, P)``."""
        return len(self.seeds), self.points

    @property
    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weights ``(S, P, inputs, outputs)`` and biases of each layer, with rectified linear units between them."""
        raise NotImplementedError

    @property
    def rows_per_pass(self) -> int:
        """How many rows are best looked at together: so many that the widest layer of all models stays in a cache."""
        widest = len(self.seeds) * self.points * max(bias.shape[-1] for _, bias in self.layers)
        return min(max(CACHED // widest, FEWEST_ROWS), MOST_ROWS)

    def features(self, x: Tensor) -> Tensor:
        """Return the last hidden layer ``(S, P, N, F)``; only where the models are ``hidden``.

        Parameters
        ----------
        x : Tensor of shape (N, D) or (S, N, D)
            Rows.
        """
        raise NotImplementedError

    def head(self, features: Tensor) -> Tensor:
        """Return logits ``(S, P, N, Y)`` from the last hidden layer.

        Parameters
        ----------
        features : Tensor of shape (S, P, N, F)
            What :meth:`features` gives.
        """
        raise NotImplementedError

    def _initial(self, shape: tuple[int, ...], fan_in: int, layer: str) -> nn.Parameter:
        """PyTorch's default for linear layers, uniform within ``1 / sqrt(fan_in)``, drawn per seed: ``(S, P, *shape)``."""
        draws = [
            torch.empty(shape).uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=generator(seed, f"init/{layer}"))
            for seed in self.seeds
        ]
        return nn.Parameter(torch.stack(draws)[:, None].expand(-1, self.points, *shape).contiguous())


class LinearBank(ModelBank):
    """Multinomial logistic regression: one linear layer, softmax over its logits.

    Parameters
    ----------
    n_features, n_classes : int
        Their numbers.
    seeds : sequence of int, default (0,)
        The S seeds that draw initial weights.
    points : int, default 1
        P, how many models each seed has.

    Examples
    --------
    >>> import torch
    >>> from fairdro.models import LinearBank
    >>> bank = LinearBank(3, 2, seeds=(0, 1), points=5)
    >>> bank(torch.randn(10, 3)).shape
    torch.Size([2, 5, 10, 2])
    """

    def __init__(self, n_features: int, n_classes: int, *, seeds: Sequence[int] = (0,), points: int = 1) -> None:
        super().__init__(n_features, n_classes, seeds=seeds, points=points)
        self.weight = self._initial((n_features, n_classes), n_features, "weight")
        self.bias = self._initial((n_classes,), n_features, "bias")

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``(S, P, N, Y)``."""
        return _shared_layer(x, self.weight, self.bias)

    @property
    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weights ``(S, P, D, Y)`` and biases ``(S, P, Y)``."""
        return [(self.weight.detach(), self.bias.detach())]


class MLPBank(ModelBank):
    """Two hidden layers of 64 rectified linear units.

    A class that inherits it may have another ``width``.

    Parameters
    ----------
    n_features, n_classes : int
        Their numbers.
    seeds : sequence of int, default (0,)
        The S seeds that draw initial weights.
    points : int, default 1
        P, how many models each seed has.

    Examples
    --------
    >>> import torch
    >>> from fairdro.models import MLPBank
    >>> class Narrow(MLPBank):
    ...     width = 8
    >>> bank = Narrow(3, 2, points=5)
    >>> bank.features(torch.randn(10, 3)).shape
    torch.Size([1, 5, 10, 8])
    """

    hidden: ClassVar[bool] = True
    width = 64

    def __init__(self, n_features: int, n_classes: int, *, seeds: Sequence[int] = (0,), points: int = 1) -> None:
        super().__init__(n_features, n_classes, seeds=seeds, points=points)
        shapes = list(itertools.pairwise([n_features, self.width, self.width, n_classes]))
        self.weights = nn.ParameterList(self._initial((i, o), i, f"weight{n}") for n, (i, o) in enumerate(shapes))
        self.biases = nn.ParameterList(self._initial((o,), i, f"bias{n}") for n, (i, o) in enumerate(shapes))

    def features(self, x: Tensor) -> Tensor:
        """Return the last hidden layer ``(S, P, N, 64)``."""
        hidden = _shared_layer(x, self.weights[0], self.biases[0]).relu()
        return (hidden @ self.weights[1] + self.biases[1][..., None, :]).relu()

    def head(self, features: Tensor) -> Tensor:
        """Return logits ``(S, P, N, Y)``."""
        return features @ self.weights[2] + self.biases[2][..., None, :]

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``(S, P, N, Y)``."""
        return self.head(self.features(x))

    @property
    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weights ``(S, P, inputs, outputs)`` and biases of each layer."""
        return [(W.detach(), b.detach()) for W, b in zip(self.weights, self.biases, strict=True)]


def _shared_layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply a layer ``(S, P, D, O)`` to inputs shared by all models ``(N, D)``, or by those of a seed ``(S, N, D)``."""
    seeds, points, _, width = weight.shape
    if x.dim() == 2:
        out = torch.addmm(bias.flatten(), x, weight.permute(2, 0, 1, 3).flatten(1))
        return out.view(-1, seeds, points, width).permute(1, 2, 0, 3)
    out = torch.baddbmm(bias.flatten(1)[:, None, :], x, weight.transpose(1, 2).flatten(2))
    return out.view(seeds, -1, points, width).transpose(1, 2)
