"""The one loop logic that all engines share: a method's state, its schedule, its rounds and its history."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairdro._utils.progress import OnStep
from fairdro.errors import InputError
from fairdro.methods import Batch, CellMeans, Method, State, Task

STATE = "state_"


@dataclass(frozen=True)
class History:
    """What happened in training, with one entry per update of the method in front.

    Attributes
    ----------
    weights : Tensor of shape (T, S, P, Y, A)
        The cell weights before the update; for FairDRO, q.
    accuracy : Tensor of shape (T, S, P, Y, A)
        Accuracy per cell that the method responded to; NaN for an empty cell.
    """

    weights: Tensor
    accuracy: Tensor


class Controller(nn.Module):
    """A method in the course of a training, for any engine.

    What the method remembers and how far it has come are buffers: ``state_dict`` saves them, ``load_state_dict`` brings them
    back, and ``to`` moves them. The history is not among them; ``records = False`` keeps none.

    Parameters
    ----------
    method, task
        A task that the method is not defined for is refused.
    steps : int
        Updates of one round, e.g. the number of epochs.
    on_step : callable, optional
        Called after every step of :meth:`steps` with the number of finished steps and of all.

    Examples
    --------
    >>> for _ in controller.rounds():  # doctest: +SKIP
    ...     for step in controller.steps():
    ...         train_with(controller.weights)
    ...         controller.update(cell_means())
    """

    counts: Tensor
    updates: Tensor

    def __init__(self, method: Method, task: Task, steps: int, *, on_step: OnStep | None = None) -> None:
        super().__init__()
        if steps < 1:
            raise InputError(f"The number of updates must be at least 1, got {steps}.")
        method.check(task)
        self.method, self.steps_per_round, self.on_step = method, steps, on_step
        self.register_buffer("counts", task.counts)
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        begun = method.begin(task)
        self._keys = list(begun)
        for key, value in begun.items():
            self.register_buffer(STATE + key, value)
        self.records, self.round, self.means = True, 0, CellMeans(torch.empty(0))
        self.seen: list[tuple[Tensor, Tensor]] = []

    @property
    def state(self) -> State:
        """What the method remembers."""
        return {key: getattr(self, STATE + key) for key in self._keys}

    @state.setter
    def state(self, state: State) -> None:
        if set(state) != set(self._keys):
            raise ValueError(f"{self.method.name} must keep the keys of its state: {', '.join(self._keys)}.")
        for key, value in state.items():
            setattr(self, STATE + key, value.to(self.counts.device))

    @property
    def weights(self) -> Tensor:
        """The cell weights ``(*bank, Y, A)`` to train with."""
        return self.method.costed_weights(self.state)

    @property
    def history(self) -> History:
        """The weights and accuracies of all updates so far."""
        if not self.seen:
            empty = self.weights.new_empty(0, *self.weights.shape)
            return History(empty, empty)
        weights, accuracy = zip(*self.seen, strict=True)
        return History(torch.stack(weights), torch.stack(accuracy))

    @property
    def progress(self) -> float:
        """``t / T`` of the next update in its round."""
        return min(int(self.updates), self.steps_per_round - 1) / self.steps_per_round

    def results(self) -> dict[str, Any]:
        """Return what came of the training so far, as every engine returns it."""
        return {"weights": self.weights.cpu(), "history": self.history}

    def rounds(self) -> Iterator[int]:
        """Go through the rounds, each a full training of its own; in between the method prepares the next."""
        for number in range(self.method.rounds):
            if number > 0:
                self.next_round(self.means)
            self.round = number
            yield number

    def steps(self) -> Iterator[int]:
        """Go through the steps of a round, and tell ``on_step``."""
        for step in range(self.steps_per_round):
            yield step
            if self.on_step is not None:
                self.on_step(self.round * self.steps_per_round + step + 1, self.method.rounds * self.steps_per_round)

    def update(self, means: CellMeans, *, damping: float = 1.0, moving: Tensor | None = None) -> bool:
        """Let the method respond to the cells' errors, and note both; return whether it moved.

        With ``damping``, go only this part of the way to the method's new state; models of the bank that are not ``moving``
        stay as they are.
        """
        state = self._state_on_cpu
        self.means = means
        if self.records:
            self.seen.append((self.method.costed_weights(state), 1 - means.error))
        moved = self.method.update(state, means, self.progress)
        self.updates.add_(1)
        if moved is state:
            return False
        if damping != 1:
            moved = {k: state[k].lerp(new, damping) if new.is_floating_point() else new for k, new in moved.items()}
        if moving is not None and not bool(moving.all()):
            moved = {
                k: torch.where(moving.view(*moving.shape, *[1] * (new.dim() - moving.dim())), new, state[k])
                for k, new in moved.items()
            }
        self.state = moved
        return True

    def next_round(self, means: CellMeans) -> None:
        """Let the method prepare its next full training."""
        self.state = self.method.next_round(self._state_on_cpu, means)
        self.restart(self.steps_per_round)

    def restart(self, steps: int) -> None:
        """Begin a round of so many updates, from the state as it is."""
        self.steps_per_round, self.updates = steps, torch.zeros_like(self.updates)

    @torch.no_grad()
    def observe(self, batch: Batch) -> None:
        """Show the method a mini-batch before it is trained on."""
        self.state = self.method.observe(self._state_on_cpu, batch)

    @property
    def _state_on_cpu(self) -> State:
        """The state where cell statistics are: methods compute on them there, wherever the model is."""
        return {key: value.cpu() for key, value in self.state.items()}
