"""The PyTorch interface: FairDRO, and every other method, as a loss for a training loop of your own."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fairdro.errors import InputError
from fairdro.methods import FairDRO
from fairdro.methods.base import Objective
from fairdro.training.criterion import Averaging, FairLoss

__all__ = ["FairDROLoss", "FairLoss"]


class FairDROLoss(FairLoss):
    """FairDRO in three lines of anyone's loop.

    Parameters
    ----------
    n_classes, n_groups : int
        Their numbers; ``y`` and ``group`` are codes below them.
    rho : float, default 1
        Radius of the chi-square ball; 0 is plain training.
    total_steps : int
        How often :meth:`step` will be called, e.g. the number of epochs.
    counts : Tensor of shape (Y, A), optional
        Training samples per cell, to tell cells that are empty from those not seen yet.
    objective : {"balanced", "standard"}, default "balanced"
        What plain training counts the same: every class and group, or every sample, which needs the counts.
    class_weight : Tensor or sequence of float, shape (Y,), optional
        What errors on every class cost, as ``weight`` of PyTorch's cross-entropy.
    fair_classes : sequence of int, optional
        Classes whose groups are to be served alike; by default all.
    averaging : {"batch", "counts"}, default "batch"
        Whether the losses of a cell are divided by its samples in the batch, or by the counts, which is exact where
        gradients are accumulated over micro-batches; see :class:`FairLoss`.

    See Also
    --------
    FairLoss : Any other method as a loss.
    fairdro.networks.huggingface.FairTrainer : It in Hugging Face's Trainer.

    Examples
    --------
    >>> import torch
    >>> from fairdro import FairDROLoss
    >>> _ = torch.manual_seed(0)
    >>> x, y, group = torch.randn(64, 5), torch.randint(0, 2, (64,)), torch.randint(0, 2, (64,))
    >>> model = torch.nn.Linear(5, 2)
    >>> criterion = FairDROLoss(n_classes=2, n_groups=2, rho=1.0, total_steps=3)
    >>> optimiser = torch.optim.SGD([*model.parameters()], lr=0.1)
    >>> for epoch in range(3):
    ...     optimiser.zero_grad()
    ...     criterion(model(x), y, group).backward()
    ...     optimiser.step()
    ...     criterion.step()  # after every epoch
    >>> criterion.q.sum(1).round(decimals=6)  # within each class, the weights of the groups sum to one
    tensor([1., 1.], dtype=torch.float64)
    """

    def __init__(
        self,
        n_classes: int,
        n_groups: int,
        *,
        rho: float = 1.0,
        total_steps: int,
        counts: Tensor | None = None,
        objective: Objective = "balanced",
        class_weight: Tensor | Sequence[float] | None = None,
        fair_classes: Sequence[int] | None = None,
        averaging: Averaging = "batch",
    ) -> None:
        costs: Any = class_weight.flatten().tolist() if isinstance(class_weight, Tensor) else class_weight
        fair: Any = fair_classes
        method = FairDRO(rho=rho, objective=objective, class_weight=costs, fair_classes=fair)
        if objective == "standard" and counts is None:
            raise InputError("The standard objective needs counts: the training samples of every class and group.")
        super().__init__(
            method, n_classes=n_classes, n_groups=n_groups, total_steps=total_steps, counts=counts, averaging=averaging
        )

    @property
    def q(self) -> Tensor:
        """The weights of classes and groups ``(Y, A)``; with ``class_weight``, q times these costs over their mean."""
        return self.weights
