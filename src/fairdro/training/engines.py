"""Who trains what: a model and a method give an engine, or a refusal in a sentence. Nothing else knows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fairdro._utils.progress import OnStep
from fairdro.cells import Cells
from fairdro.errors import InputError, unknown_name
from fairdro.methods import Method, Task
from fairdro.models import BANKS
from fairdro.models.backbones import RESNET
from fairdro.models.trees import TreeSettings
from fairdro.training.fullbatch import Errors, fullbatch_refusal, train_fullbatch
from fairdro.training.head import head_refusal
from fairdro.training.linear_head import train_linear_head
from fairdro.training.minibatch import train_minibatch
from fairdro.training.network import train_network
from fairdro.training.rows import ScaledRows, is_shared
from fairdro.training.trained import STEPS, Trained
from fairdro.training.trees import train_head_trees
from fairdro.training.weighted_trees import train_weighted_trees

EPOCHS, BATCH_SIZE, RATE = 70, 128, 1e-3  # the paper's
FEWEST_BATCHES = 300  # a small table is gone through more often
FEWEST_STEPS = 1500  # of the paper's rate; with fewer batches, steps are larger

ENCODER = "encoder"  # any that is pretrained
MINIBATCH, NETWORK, NETWORK_HEAD = "minibatch", "network", "network+head"

HeldOut = tuple[Tensor, Cells]


@dataclass(frozen=True)
class Engine:
    """A way to train one kind of model on a table, or one network on images or texts.

    Attributes
    ----------
    model, solver : str
        Names; the first engine of a model is its default.
    train : callable
        ``train(X, cells, method, seeds=(0,), steps=None, alone=False, held_out=None, on_step=None)`` trains every point of a
        method on features of similar scale ``(N, D)``; of double precision, linear models are too. An engine that is not
        ``seeded`` takes one seed. ``steps`` is how many there are, or epochs, in engines of layers. ``alone`` trains one
        model by itself, faster; its numbers are those of a bank up to float rounding. ``held_out``, features and cells, is
        for engines that are ``fitted_held_out``: the rows they use in place of out-of-fold predictions. Those of
        :data:`NETWORKS` have :func:`~fairdro.training.network.train_network`, for one point and one seed.
    refuses : callable
        Says why a method cannot be trained, or None.
    hidden : bool
        Whether the models have a hidden layer whose features a method can read.
    stepwise : bool
        Whether weights move at every step instead of every epoch; then ``Method.stepwise`` does better.
    seeded : bool
        Whether a comparison trains several seeds: where the seed draws initial weights and batches, it moves results as
        much as a hyperparameter does. Trees depend on it too, by their folds and bags, but so little that one seed stands
        for all; the full-batch solver does not depend on it.
    fitted_held_out : bool
        Whether something is fitted to rows that no model was trained on: a head.
    converges : bool
        Whether more steps lead nearer to one solution, so that training may begin with few.
    parallel : bool
        Whether it uses all cores by itself.
    cost : float
        Of a model, relative to others.

    Examples
    --------
    >>> import torch
    >>> from fairdro.methods import FairDRO, FairHSIC
    >>> from fairdro.training.engines import minibatch_engine
    >>> counts = torch.tensor([[40.0, 10.0], [30.0, 20.0]])  # samples of every class and group
    >>> engine = minibatch_engine("linear")
    >>> engine.refusal(FairDRO(), counts) is None
    True
    >>> print(engine.refusal(FairHSIC(), counts)[:47])
    fairhsic needs the features of a hidden layer,
    """

    model: str
    solver: str
    train: Callable[..., Trained]
    refuses: Callable[[Method], str | None] = lambda method: None
    hidden: bool = False
    stepwise: bool = True
    seeded: bool = False
    fitted_held_out: bool = False
    converges: bool = False
    parallel: bool = True
    cost: float = 1.0

    def refusal(self, method: Method, counts: Tensor) -> str | None:
        """Say why a method cannot be trained on cells with such counts, if so.

        Parameters
        ----------
        method : Method
            What is to be trained.
        counts : Tensor of shape (Y, A)
            Samples per cell.
        """
        try:
            method.check(Task(counts, hidden=self.hidden))
        except InputError as error:
            return str(error)
        return self.refuses(method)

    def hyperparameters(self, kind: type[Method], given: dict[str, Any]) -> dict[str, Any]:
        """Return hyperparameters with those added that do better with this engine.

        Parameters
        ----------
        kind : type
            The method.
        given : dict of str to Any
            Its hyperparameters so far.
        """
        return {**(kind.stepwise if self.stepwise else {}), **given}


def _fullbatch(
    X: Tensor | ScaledRows,
    cells: Cells,
    method: Method,
    *,
    errors: Errors = "training",
    steps: int | None = None,
    alone: bool = False,
    on_step: OnStep | None = None,
    **_: Any,
) -> Trained:
    double, steps = X.dtype == torch.float64, STEPS if steps is None else steps
    return train_fullbatch(
        X, cells, method, steps=steps, errors=errors, double=double, alone=alone, sharded=is_shared(X), on_step=on_step
    )


def _linear_head(
    X: Tensor,
    cells: Cells,
    method: Method,
    *,
    seeds: Sequence[int] = (0,),
    held_out: HeldOut | None = None,
    on_step: OnStep | None = None,
    **_: Any,
) -> Trained:
    return train_linear_head(X, cells, method, held_out=held_out, seed=seeds[0], on_step=on_step)


def minibatch_engine(model: str) -> Engine:
    """Return the engine that trains a bank on mini-batches.

    Parameters
    ----------
    model : str
        Its name in :data:`~fairdro.models.BANKS`.

    Returns
    -------
    Engine

    Examples
    --------
    >>> from fairdro.training.engines import minibatch_engine
    >>> engine = minibatch_engine("mlp")
    >>> engine.model, engine.solver, engine.hidden
    ('mlp', 'minibatch', True)
    """

    def train(
        X: Tensor,
        cells: Cells,
        method: Method,
        *,
        seeds: Sequence[int] = (0,),
        steps: int | None = None,
        on_step: OnStep | None = None,
        **_: Any,
    ) -> Trained:
        batches = max(len(X) // BATCH_SIZE, 1)
        epochs = max(EPOCHS, -(-FEWEST_BATCHES // batches)) if steps is None else steps
        lr = RATE * max(FEWEST_STEPS / (epochs * batches), 1.0) if steps is None else RATE
        return train_minibatch(
            X, cells, method, model=model, seeds=seeds, epochs=epochs, batch_size=BATCH_SIZE, lr=lr, on_step=on_step
        )

    hidden = BANKS[model].hidden
    return Engine(model, MINIBATCH, train, hidden=hidden, stepwise=False, seeded=True, parallel=False, cost=30)


def _tree_settings(seeds: Sequence[int]) -> TreeSettings:
    return TreeSettings(threads=torch.get_num_threads(), seed=seeds[0])


def _head_trees(
    X: Tensor,
    cells: Cells,
    method: Method,
    *,
    seeds: Sequence[int] = (0,),
    held_out: HeldOut | None = None,
    on_step: OnStep | None = None,
    **_: Any,
) -> Trained:
    held = None if held_out is None else (held_out[0].double().numpy(), held_out[1])
    rows = X.double().numpy()
    return train_head_trees(rows, cells, method, _tree_settings(seeds), held_out=held, on_step=on_step)


def _weighted_trees(
    X: Tensor, cells: Cells, method: Method, *, seeds: Sequence[int] = (0,), on_step: OnStep | None = None, **_: Any
) -> Trained:
    return train_weighted_trees(X.double().numpy(), cells, method, _tree_settings(seeds), on_step=on_step)


ENGINES = [
    Engine("linear", "fullbatch", _fullbatch, fullbatch_refusal, converges=True),
    Engine("linear", "out_of_fold", partial(_fullbatch, errors="out_of_fold"), fullbatch_refusal, converges=True, cost=6),
    *map(minibatch_engine, BANKS),
    Engine("linear", "head", _linear_head, head_refusal, fitted_held_out=True, cost=3),
    Engine("boosting", "head", _head_trees, head_refusal, fitted_held_out=True, cost=10),
    Engine("boosting", "weights", _weighted_trees, head_refusal, cost=30),
]
"""The engines for tables; the first of a model that can train a method does so, unless another solver is asked for."""

NETWORKS = [
    Engine(
        model, solver, train_network, hidden=True, stepwise=False, seeded=True, fitted_held_out=solver == NETWORK_HEAD,
        parallel=torch.cuda.is_available(), cost=1000,
    )
    for model in (RESNET, ENCODER)
    for solver in (NETWORK, NETWORK_HEAD)
]  # fmt: skip
"""Networks from end to end on images or texts; on a GPU one at a time."""


def models_for_tables() -> list[str]:
    """Name the models that can be trained on a table."""
    return list(dict.fromkeys(engine.model for engine in ENGINES))


def models_for_networks() -> list[str]:
    """Name the networks that can be trained on images or texts."""
    return list(dict.fromkeys(engine.model for engine in NETWORKS))


def solvers_of(model: str) -> list[str]:
    """Name the solvers of a model, its default first."""
    if model not in (known := [*models_for_tables(), *models_for_networks()]):
        raise unknown_name("model", model, known)
    return [engine.solver for engine in (*ENGINES, *NETWORKS) if engine.model == model]


def get_engine(model: str, solver: str) -> Engine:
    """Return the engine of a model and a solver."""
    if solver not in solvers_of(model):
        raise unknown_name(f"solver for {model} models", solver, solvers_of(model))
    return next(engine for engine in (*ENGINES, *NETWORKS) if (engine.model, engine.solver) == (model, solver))


def engines_for(kind: type[Method]) -> list[Engine]:
    """Return all engines for tables that can train a method, if the data allow it."""
    return [e for e in ENGINES if e.refuses(kind()) is None and (e.hidden or not kind.needs_features)]


def engine_for(model: str, kind: type[Method]) -> Engine:
    """Return the first engine of a model for tables that can train a method."""
    if model not in models_for_tables():
        raise unknown_name("model", model, models_for_tables())
    engines = [get_engine(model, solver) for solver in solvers_of(model)]
    for engine in engines:
        if engine.refuses(kind()) is None:
            return engine
    raise InputError(str(engines[0].refuses(kind())))
