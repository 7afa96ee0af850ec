"""What a method is: it says only what differs from plain training.

An engine minimises, for every model of a bank,

    (1 / Y) * sum over classes y and groups a of weights[y, a] * mean loss of cell (y, a)

and tells the method the cell statistics of the whole training set after every epoch or step. A method never loops over
batches, and an engine never knows which method it runs.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor

from fairdro.errors import InputError, unknown_name

Objective = Literal["balanced", "standard"]
OBJECTIVES = list(get_args(Objective))
Variant = Literal["paper", "code"]

Scalars = float | Sequence[float]
"""A hyperparameter: one value, or one per point of a bank."""

State = dict[str, Tensor]
"""What a method remembers between updates; tensors with the bank's shape in front."""


@dataclass(frozen=True)
class Task:
    """What a method may know before training.

    Attributes
    ----------
    counts : Tensor of shape (Y, A)
        Training samples per cell, or their shares.
    bank : tuple of int
        Shape of the bank of models, ``(seeds, points)``; empty for a single network.
    hidden : bool
        Whether the models have a hidden layer whose features a method can read.
    unknown_group : bool
        Whether the last group holds the samples whose group is not known: they are trained on, and not made equal.

    Examples
    --------
    >>> import torch
    >>> from fairdro.methods import Task
    >>> task = Task(torch.tensor([[40.0, 10.0], [30.0, 20.0]]))  # samples of every class and group
    >>> task.n_classes, task.n_groups
    (2, 2)
    """

    counts: Tensor
    bank: tuple[int, ...] = ()
    hidden: bool = True
    unknown_group: bool = False

    @property
    def n_classes(self) -> int:
        """Number of classes, Y."""
        return self.counts.shape[0]

    @property
    def n_groups(self) -> int:
        """Number of groups, A."""
        return self.counts.shape[1]

    @property
    def known(self) -> Tensor:
        """Samples per cell ``(Y, A)``, without those whose group is not known."""
        if not self.unknown_group:
            return self.counts
        return torch.cat([self.counts[:, :-1], torch.zeros_like(self.counts[:, -1:])], dim=1)

    def per_model(self, per_cell: Tensor) -> Tensor:
        """Repeat a ``(Y, A)`` tensor for every model of the bank, in double precision as all statistics of cells.

        Parameters
        ----------
        per_cell : Tensor of shape (Y, A)
            Values of the cells.
        """
        return per_cell.double().expand(*self.bank, *per_cell.shape).clone()


@dataclass(frozen=True)
class CellMeans:
    """Means per cell ``(*bank, Y, A)`` over the training set; NaN marks an empty cell.

    Attributes
    ----------
    error : Tensor
        0-1 error.
    loss : Tensor or None
        Training loss, computed only for a method with ``needs_loss``.
    probabilities : Tensor or None, shape ``(*bank, Y, A, Y)``
        Predicted probability of every class, computed only for a method with ``needs_probabilities``.

    Examples
    --------
    >>> import torch
    >>> from fairdro.methods import CellMeans
    >>> CellMeans(error=torch.tensor([[0.1, 0.3], [0.2, 0.2]])).error.shape
    torch.Size([2, 2])
    """

    error: Tensor
    loss: Tensor | None = None
    probabilities: Tensor | None = None


@dataclass(frozen=True)
class Batch:
    """What a regulariser sees of a mini-batch of B samples; the bank's shape is in front of all but labels.

    Attributes
    ----------
    logits : Tensor of shape ``(*bank, B, Y)``
        What the models say.
    losses : Tensor of shape ``(*bank, B)``
        Cross-entropy.
    y : Tensor of int64, shape (..., B)
        Class codes, for every seed.
    membership : Tensor of shape (..., B, A)
        Share of every sample in every group.
    averaging : Tensor of shape (..., B, Y * A)
        Turns values into cell means, ``values @ averaging``; zero for cells without samples.
    features : Tensor of shape ``(*bank, B, F)`` or None
        Last hidden layer, for a method with ``needs_features``.
    teacher : Tensor of shape (..., B, F) or None
        The same of the teacher, for a method with one.

    Examples
    --------
    >>> import torch
    >>> from fairdro.cells import Cells
    >>> from fairdro.methods import Batch
    >>> y, group = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    >>> cells = Cells(y, group, n_classes=2, n_groups=2)
    >>> batch = Batch(torch.zeros(4, 2), torch.tensor([0.1, 0.2, 0.3, 0.4]), y, cells.membership, cells.averaging)
    >>> batch.means(batch.losses)  # the mean loss of every class and group
    tensor([[0.1000, 0.2000],
            [0.3000, 0.4000]])
    """

    logits: Tensor
    losses: Tensor
    y: Tensor
    membership: Tensor
    averaging: Tensor
    features: Tensor | None = None
    teacher: Tensor | None = None

    def means(self, values: Tensor) -> Tensor:
        """Cell means ``(*bank, Y, A)`` of values ``(*bank, B)``; zero for cells without samples.

        Parameters
        ----------
        values : Tensor of shape ``(*bank, B)``
            Of every sample.
        """
        return (values @ self.averaging).unflatten(-1, (self.logits.shape[-1], self.membership.shape[-1]))

    @property
    def present(self) -> Tensor:
        """Which cells have samples, ``(..., 1, Y, A)``."""
        shape = (1, self.logits.shape[-1], self.membership.shape[-1])
        return (self.averaging > 0).any(-2).unflatten(-1, shape)


@dataclass(frozen=True)
class LogRange:
    """Search range of a hyperparameter on a logarithmic scale.

    Attributes
    ----------
    low, high : float
        Ends of the range.
    zero : bool, default False
        Whether 0 is in front, of three points or more.

    Examples
    --------
    >>> from fairdro.methods import LogRange
    >>> LogRange(0.01, 100.0, zero=True).grid(4)
    (0.0, 0.01, 1.0, 100.0)
    """

    low: float
    high: float
    zero: bool = False

    def grid(self, points: int) -> tuple[float, ...]:
        """Return ``points`` values from low to high; a single one from the middle.

        Parameters
        ----------
        points : int
            How many.

        Returns
        -------
        tuple of float
        """
        if points < 1:
            raise InputError(f"A grid needs at least one point, got {points}.")
        if points == 1:
            return (float(f"{math.sqrt(self.low * self.high):.6g}"),)
        zero = self.zero and points > 2
        values = np.geomspace(self.low, self.high, points - zero)
        return (0.0,) * zero + tuple(float(f"{v:.6g}") for v in values)


@dataclass(frozen=True)
class Method:
    """A way to train. Hyperparameters are the fields of the dataclass; those in ``search`` may hold one value per point.

    Parameters
    ----------
    class_weight : sequence of float, optional
        What errors on every class cost, relative to each other and on top of what the method weighs; by default the same.

    Attributes
    ----------
    name : str
        The registry's name.
    search : dict of str to LogRange
        Hyperparameters to sweep, with the paper's range.
    stepwise : dict
        Hyperparameters that do better where the weights move at every step, as in the full-batch solver.
    sampling : str
        How mini-batches are drawn: ``equal``, every cell equally, or ``uniform``, as the data come. Weighted cell means do
        not depend on it; what a regulariser averages over a batch does.
    needs_features : bool
        Whether :meth:`penalty` reads the features of a hidden layer.
    max_classes, max_groups : int or None
        What the method is defined for.
    instead : str
        A method to use where it is not.
    restart : bool
        Whether each round starts from the initial models, or on from the last.
    takes_unknown_group : bool
        Whether it can be trained where the groups of some samples are not known.

    See Also
    --------
    Baseline : A method on top of plain training.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from typing import ClassVar
    >>> import torch
    >>> from fairdro.methods import Baseline, CellMeans, LogRange, Task
    >>> @dataclass(frozen=True)
    ... class Worse(Baseline):  # cells gain weight by their error
    ...     name: ClassVar[str] = "worse"
    ...     search: ClassVar[dict[str, LogRange]] = {"strength": LogRange(0.1, 10.0)}
    ...     strength: float = 1.0
    ...     def update(self, state, cells, progress):
    ...         weights = state["weights"] * torch.exp(self.hyperparameter("strength") * cells.error)
    ...         return {"weights": weights / weights.sum(-1, keepdim=True)}
    >>> method, task = Worse(strength=1.0), Task(torch.ones(2, 2))
    >>> errors = CellMeans(error=torch.tensor([[0.1, 0.3], [0.2, 0.2]]))
    >>> method.weights(method.update(method.begin(task), errors, progress=0.0)).round(decimals=3)
    tensor([[0.4500, 0.5500],
            [0.5000, 0.5000]], dtype=torch.float64)
    """

    name: ClassVar[str]
    search: ClassVar[dict[str, LogRange]] = {}
    stepwise: ClassVar[dict[str, Any]] = {}
    sampling: ClassVar[str] = "equal"
    needs_features: ClassVar[bool] = False
    max_classes: ClassVar[int | None] = None
    max_groups: ClassVar[int | None] = None
    instead: ClassVar[str] = "fairdro"
    restart: ClassVar[bool] = False
    takes_unknown_group: ClassVar[bool] = False

    class_weight: tuple[float, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.class_weight is not None:
            costs = np.atleast_1d(_numbers(self.class_weight, f"class_weight of {self.name}"))
            if not (costs > 0).any():
                raise InputError("class_weight must cost something for at least one class.")
            object.__setattr__(self, "class_weight", tuple(costs.tolist()))
        for key in self.search:
            object.__setattr__(self, key, _numbers(getattr(self, key), f"{key} of {self.name}"))
        if len({len(v) for v in self._swept().values()}) > 1:
            raise InputError(f"The hyperparameters of {self.name} have different numbers of values: {self._swept()}.")
        for f in fields(self):
            _check_kind(getattr(self, f.name), f.default, f"{f.name} of {self.name}")
        for key, known in self.choices().items():
            if getattr(self, key) not in known:
                raise unknown_name(key, getattr(self, key), known)

    @classmethod
    @cache
    def choices(cls) -> dict[str, list[str]]:
        """Hyperparameters that are one of a few names, read from their annotations."""
        hints = get_type_hints(cls)
        return {f.name: list(get_args(hints[f.name])) for f in fields(cls) if get_origin(hints[f.name]) is Literal}

    @classmethod
    def has_penalty(cls) -> bool:
        """Whether a :meth:`penalty` of its own adds to the loss of a mini-batch."""
        return cls.penalty is not Method.penalty

    @classmethod
    def observes_batches(cls) -> bool:
        """Whether an :meth:`observe` of its own moves the weights at every mini-batch."""
        return cls.observe is not Method.observe

    @classmethod
    def weighs_cells(cls) -> bool:
        """Whether it does nothing but weigh cells, so that engines without mini-batches can train it."""
        return not cls.has_penalty() and not cls.observes_batches()

    @classmethod
    def sweep(cls, points: int, **fixed: Any) -> Self:
        """Return the method over its search range, other hyperparameters fixed.

        Two hyperparameters make a grid of ``points`` in all, or a few more; a method with nothing to search has one point.

        Parameters
        ----------
        points : int
            How many.
        **fixed
            Other hyperparameters.
        """
        if not cls.search:
            return cls(**fixed)
        side = max(round(points ** (1 / len(cls.search))), 1)
        sizes = [side] * (len(cls.search) - 1)
        sizes = [-(-points // math.prod(sizes)), *sizes]
        grids = [search_range.grid(size) for search_range, size in zip(cls.search.values(), sizes, strict=True)]
        return cls.grid(dict(zip(cls.search, grids, strict=True)), **fixed)

    @classmethod
    def grid(cls, values: Mapping[str, Sequence[float]], **fixed: Any) -> Self:
        """Return the method over all combinations of given values, other hyperparameters fixed.

        Parameters
        ----------
        values : dict of str to sequence of float
            Of every hyperparameter in ``search``.
        **fixed
            Other hyperparameters.
        """
        if not cls.search:
            raise InputError(f"{cls.name} has no hyperparameter to search; leave out its grid.")
        if strange := [key for key in values if key not in cls.search]:
            raise unknown_name(f"hyperparameter to search of {cls.name}", strange[0], list(cls.search))
        lists = [given for given in values.values() if isinstance(given, Sequence) and len(given) > 0]
        if len(lists) < len(cls.search) or any(len(set(given)) < len(given) for given in lists):
            told = " and ".join(cls.search)
            raise InputError(f"A grid of {cls.name} needs a list of different values of {told}, got {dict(values)}.")
        columns = zip(*itertools.product(*values.values()), strict=True)
        return cls(**dict(zip(values, columns, strict=True)), **fixed)

    def _swept(self) -> dict[str, tuple[float, ...]]:
        return {key: v for key in self.search if isinstance(v := getattr(self, key), tuple)}

    @property
    def points(self) -> int:
        """Number of hyperparameter points, P."""
        return max((len(v) for v in self._swept().values()), default=1)

    def some(self, points: Sequence[int]) -> Self:
        """Return the method with some of its points.

        Parameters
        ----------
        points : sequence of int
            Their numbers.
        """
        return replace(self, **{key: tuple(values[p] for p in points) for key, values in self._swept().items()})

    def hyperparameters(self, point: int) -> dict[str, Any]:
        """Return the values of one point of the bank, by name.

        Parameters
        ----------
        point : int
            Its number.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        swept = {key: v[point] for key, v in self._swept().items()}
        others = {key: list(v) if isinstance(v, tuple) else v for key, v in values.items() if v is not None}
        return others | swept

    def check(self, task: Task) -> None:
        """Refuse a task the method is not defined for, in a sentence that names another.

        Parameters
        ----------
        task : Task
            What the method would be trained on.
        """
        limits = ("classes", task.n_classes, self.max_classes), ("groups", task.n_groups, self.max_groups)
        for kind, number, most in limits:
            if most is not None and number > most:
                raise InputError(f"{self.name} is defined for {most} {kind}, not for {number}; use {self.instead} instead.")
        if self.class_weight is not None and len(self.class_weight) != task.n_classes:
            raise InputError(f"class_weight has {len(self.class_weight)} values, but there are {task.n_classes} classes.")
        if task.unknown_group and not self.takes_unknown_group:
            raise InputError(f"{self.name} needs the group of every row; use {self.instead}, or infer the missing groups.")
        if self.needs_features and not task.hidden:
            raise InputError(
                f"{self.name} needs the features of a hidden layer, which a linear model does not have; use model mlp, or "
                f"{self.instead} instead."
            )

    def teacher(self) -> "Method | None":
        """Return the method by which a teacher is trained first, where there is one."""
        return None

    def hyperparameter(self, key: str) -> Tensor:
        """Return a hyperparameter as a tensor ``(P, 1, 1)``, or ``(1, 1)`` if it is one number.

        Parameters
        ----------
        key : str
            Its name.
        """
        return torch.tensor(getattr(self, key), dtype=torch.float64)[..., None, None]

    @property
    def rounds(self) -> int:
        """How often the engine trains in full, with a fresh optimiser and schedule."""
        return 1

    @property
    def adaptive(self) -> bool:
        """Whether statistics of the training set move the weights, by an :meth:`update` or :meth:`next_round` of its own."""
        return type(self).update is not Method.update or type(self).next_round is not Method.next_round

    @property
    def needs_probabilities(self) -> bool:
        """Whether :meth:`update` reads the mean predicted probabilities of the cells."""
        return False

    @property
    def needs_loss(self) -> bool:
        """Whether :meth:`update` reads the mean loss of the cells beside their error."""
        return False

    def begin(self, task: Task) -> State:
        """Return the state before training.

        Parameters
        ----------
        task : Task
            What the method may know.
        """
        raise NotImplementedError

    def weights(self, state: State) -> Tensor:
        """Return the cell weights ``(*bank, Y, A)``, which may be negative; by default those that training began with.

        Parameters
        ----------
        state : dict of str to Tensor
            What the method remembers.
        """
        return state["weights"]

    def costed_weights(self, state: State) -> Tensor:
        """Return the cell weights that engines train with: the method's, times what errors on their class cost.

        Parameters
        ----------
        state : dict of str to Tensor
            What the method remembers.
        """
        weights = self.weights(state)
        if self.class_weight is None:
            return weights
        costs = torch.tensor(self.class_weight, dtype=weights.dtype, device=weights.device)
        return weights * (costs / costs.mean())[:, None]

    def update(self, state: State, cells: CellMeans, progress: float) -> State:
        """Return the state after one more epoch or step, given statistics of the current models over the training set.

        Parameters
        ----------
        state : dict of str to Tensor
            What the method remembers.
        cells : CellMeans
            Statistics of the current models over the training set.
        progress : float
            ``t / T``: the number of this update, from 0, over their number.
        """
        return state

    def observe(self, state: State, batch: Batch) -> State:
        """Return the state after seeing a mini-batch, before it is trained on.

        Parameters
        ----------
        state : dict of str to Tensor
            What the method remembers.
        batch : Batch
            What is trained on next.
        """
        return state

    def penalty(self, state: State, batch: Batch) -> Tensor:
        """Return what is added to the loss of every model ``(*bank)``.

        Parameters
        ----------
        state : dict of str to Tensor
            What the method remembers.
        batch : Batch
            What is trained on.
        """
        raise NotImplementedError

    def next_round(self, state: State, cells: CellMeans) -> State:
        """Return the state for the next round of training.

        Parameters
        ----------
        state : dict of str to Tensor
            What the method remembers.
        cells : CellMeans
            Statistics of the models at the end of the round.
        """
        return state


@dataclass(frozen=True, kw_only=True)
class Baseline(Method):
    """A method on top of plain training, whose objective may count cells or samples the same.

    Parameters
    ----------
    class_weight : sequence of float, optional
        What errors on every class cost, relative to each other; by default the same.
    objective : {"balanced", "standard"}, default "balanced"
        Balanced, every cell counts the same (the paper's main tables); standard, every sample (its appendix).

    Examples
    --------
    >>> import torch
    >>> from fairdro.methods import Baseline, Scratch, Task
    >>> task = Task(torch.tensor([[40.0, 10.0], [30.0, 20.0]]))  # samples of every class and group
    >>> issubclass(Scratch, Baseline)
    True
    >>> Scratch().plain_weights(task)
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]], dtype=torch.float64)
    >>> Scratch(objective="standard").plain_weights(task)
    tensor([[0.8000, 0.2000],
            [0.6000, 0.4000]])
    """

    objective: Objective = "balanced"

    def begin(self, task: Task) -> State:
        """Fix the weights of plain training once.

        Parameters
        ----------
        task : Task
            What the method may know.
        """
        return {"weights": task.per_model(self.plain_weights(task))}

    def plain_weights(self, task: Task) -> Tensor:
        """Return the weights of plain training ``(Y, A)``.

        Parameters
        ----------
        task : Task
            What the method may know.
        """
        return plain_weights(task, self.objective)


def _check_kind(value: Any, default: Any, what: str) -> None:
    """Refuse a switch that is none, or a single number that is none."""
    if isinstance(default, bool) and not isinstance(value, bool | np.bool_):
        raise InputError(f"{what} must be true or false, got {value!r}.")
    number = isinstance(default, float | int) and not isinstance(default, bool) and not isinstance(value, tuple)
    if number and not (isinstance(value, float | int | np.number) and math.isfinite(value)):
        raise InputError(f"{what} must be a number, got {value!r}.")


def _numbers(value: Any, what: str) -> float | tuple[float, ...]:
    """Take one number, or several, from anything that holds them."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.ndim > 1 or array.size == 0 or value is None or isinstance(value, str):
        raise InputError(f"{what} must be a number or a sequence of numbers, got {value!r}.")
    if not np.isfinite(array).all() or (array < 0).any():
        raise InputError(f"{what} must not be negative, infinite or missing, got {value!r}.")
    return tuple(array.tolist()) if array.ndim else float(array)


def plain_weights(task: Task, objective: str) -> Tensor:
    r"""Return the weights of plain training ``(Y, A)``: every cell, or every sample, counts the same.

    Where a share :math:`u_y` of a class is of unknown group, its known cells share :math:`1 - u_y` and that group has
    :math:`u_y`.
    """
    if objective == "standard":
        return task.n_classes * task.counts / task.counts.sum()
    if not task.unknown_group:
        return uniform(task.counts)
    unknown = task.counts[:, -1:] / task.counts.sum(-1, keepdim=True).clamp(min=1)
    return torch.cat([uniform(task.known)[:, :-1] * (1 - unknown), unknown], dim=1)


def uniform(counts: Tensor, *, classwise: bool = True) -> Tensor:
    """Equal weights over the non-empty cells ``(Y, A)``, summing to one within each class or over all cells."""
    present = (counts > 0).double()
    total = present.sum(-1, keepdim=True) if classwise else present.sum()
    return present / total.clamp(min=1)
