"""A FairDRO head for any model: for probabilities from anywhere, and for any scikit-learn classifier."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fairdro._utils.files import write_whole
from fairdro._utils.hashing import digest
from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.estimators.choice import FrontierMixin, HeldOut
from fairdro.estimators.parts import cell_probabilities, in_order, numbers
from fairdro.estimators.parts import infer_groups as infer_missing
from fairdro.estimators.saving import demand, plain_parameters, read_parameters
from fairdro.estimators.schema import check_fitted
from fairdro.estimators.sql import head_sql
from fairdro.frontier import fill_holes
from fairdro.groups import TOO_FEW, encode_groups, encode_labels
from fairdro.methods import FairDRO
from fairdro.metrics import confusion_counts
from fairdro.selection import AsAsked, Rule, plain_radius, points_of
from fairdro.training.calibration import calibrated, fit_class_scaling, logarithms, scale
from fairdro.training.folds import fold_numbers, stratified_folds
from fairdro.training.head import Head, OutOfFold, class_scores, fit_heads, predict_heads
from fairdro.training.threads import torch_threads
from fairdro.training.thresholds import fit_thresholds

HEAD_FORMAT = 2
FILLED = 10  # radii more, where those of the grid leave holes in the frontier
INFERS = (
    "It infers the group of a row from its features, by a second model, to decide. Where that is not allowed, fit it with "
    "infer_groups=False: it then reads the probabilities of the classes alone."
)
READS_CLASSES = "It reads the probabilities of the classes alone, and infers no group."


@dataclass(frozen=True)
class _Rows:
    """Held-out rows that a head is fitted to and judged by: those whose group is known or inferred."""

    probabilities: np.ndarray
    fold: np.ndarray
    cells: Cells

    @classmethod
    def of(cls, held_out: OutOfFold, cells: Cells) -> _Rows:
        held = held_out.fold >= 0
        if cells.unknown_group and cells.known is not None:
            held &= cells.known.numpy()
        rows = np.flatnonzero(held)
        some = cells.take(torch.from_numpy(rows))
        if len(np.unique(some.y.numpy())) < len(np.unique(cells.y.numpy()[held_out.fold >= 0])):
            raise InputError("A class has no row of known group to fit a head by; infer the groups, or find some of it.")
        return cls(held_out.probabilities[rows], held_out.fold[rows], some.known_part if cells.unknown_group else some)

    def judge(self, predictions: Tensor, plain: int) -> HeldOut:
        """Count predictions by radius ``(P, N)``, and those of the most likely class."""
        return HeldOut.of(predictions, torch.from_numpy(self.probabilities.sum(-1).argmax(1)), self.cells, plain)


class HeadMixin(FrontierMixin):
    """What models with a head share: all radii at once, and predictions from probabilities of cells."""

    infer_groups: bool = True
    temperatures_: np.ndarray
    calibration_: np.ndarray
    _columns_: dict[str, Any]  # of a table, where it was fitted to one

    def _fit_head(self, held_out: OutOfFold, cells: Cells) -> None:
        """Judge heads of every radius on rows they were not fitted to, choose one, and fit all to all rows."""
        radii = self._radii()
        rows, predictions = self._heads_of_others(held_out, cells, radii)
        if self.rho is None and self.rhos is None:
            with torch_threads(1):
                points = points_of(confusion_counts(predictions, rows.cells), **self._kept())
            between = np.array(fill_holes(radii, points["accuracy"], points["dca"], FILLED))
            _, further = self._heads_of_others(held_out, cells, between)
            radii, order = np.unique(np.concatenate([radii, between]), return_index=True)
            predictions = torch.cat([predictions, further])[torch.from_numpy(order)]
        self._choose(rows.judge(predictions, plain_radius(radii)), radii)
        head = self._fit_all([(rows.probabilities, rows.cells)], self._sweep(radii))[0]
        self.frontier_["converged"] = head.converged[0].numpy()
        self.frontier_weights_, self.share_ = head.weights[0].numpy(), head.share.numpy()
        self.temperatures_ = head.temperatures
        self.weights_ = self.frontier_weights_[self.best_index_]
        predicted = np.flatnonzero(held_out.fold >= 0)
        logs = logarithms(held_out.probabilities[predicted].sum(-1))
        self.calibration_ = fit_class_scaling(logs, cells.take(torch.from_numpy(predicted)))

    def _fit_all(self, parts: Sequence[tuple[np.ndarray, Cells]], method: FairDRO) -> list[Head]:
        """Fit heads of all radii to each of several sets of rows."""
        if self.infer_groups:
            return fit_heads(parts, method)
        return [fit_thresholds(probabilities, cells, method) for probabilities, cells in parts]

    def _sweep(self, radii: np.ndarray) -> FairDRO:
        """Return FairDRO over all radii."""
        rho: Any = tuple(radii.tolist())
        return FairDRO(rho=rho, objective=self.objective, **FairDRO.stepwise, **self._by_class())  # type: ignore[arg-type] # checked

    def _threads(self) -> int:
        return torch.get_num_threads()

    def _heads_of_others(self, held_out: OutOfFold, cells: Cells, radii: np.ndarray) -> tuple[_Rows, Tensor]:
        """Return the rows that count, and their classes by heads that were not fitted to them, by radius ``(P, N)``."""
        rows, sweep, threads = _Rows.of(held_out, cells), self._sweep(radii), self._threads()
        return rows, predict_heads(rows.probabilities, rows.cells, sweep, rows.fold, self._fit_all, threads=threads)

    def at(self, rho: float) -> Self:
        """Return the same model at another radius of its frontier, which takes no training.

        Parameters
        ----------
        rho : float
            One of ``frontier_["rho"]``.

        Returns
        -------
        The same kind of model
        """
        self._check_fitted()
        if not isinstance(rho, int | float | np.number) or isinstance(rho, bool):
            raise InputError(f"rho must be one of the numbers in frontier_['rho'], got {rho!r}.")
        places = np.flatnonzero(np.isclose(self.frontier_["rho"], rho))
        if len(places) == 0:
            known = ", ".join(f"{radius:g}" for radius in self.frontier_["rho"])
            raise InputError(f"{rho:g} is not among the radii of the frontier: {known}.")
        other = self._moved(int(places[0]))
        other._how_chosen_, other._asked_, other._on_choice_ = str(AsAsked()), True, []
        other.__dict__.pop("_certified_", None)  # the certificate is of the radius that was chosen
        return other

    def _moved(self, place: int) -> Self:
        other = super()._moved(place)
        other.weights_ = self.frontier_weights_[place]
        return other

    def _fits_together(self) -> bool:
        groups = len(self.group_names_) if self.infer_groups else 1
        return self.share_.shape[1] == groups and bool((self.temperatures_ > 0).all())

    def _head_decision(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the scores of the classes ``(N, Y)``; of two classes, that of the second minus the first ``(N,)``."""
        share, weights = torch.from_numpy(self.share_), torch.from_numpy(self.weights_)[None]
        scores = class_scores(calibrated(probabilities, self.temperatures_), share, weights)[0].double().numpy()
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _head_proba(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the probabilities of the classes ``(N, Y)``, calibrated on rows that no model was trained on."""
        return scale(logarithms(probabilities.sum(-1)), self.calibration_)

    def _remarks(self) -> Sequence[str]:
        return [*super()._remarks(), INFERS if self.infer_groups else READS_CLASSES]


class FairDROHead(HeadMixin):
    """A head on probabilities of class and group; made by :func:`fit_head`.

    Parameters
    ----------
    rho, keep_accuracy, rule, rhos, keep_class_accuracy, floor, objective, class_weight, fair_classes, infer_groups
        As of :func:`fit_head`.
    min_cell_size, missing_groups, certify, delta
        Likewise.

    Attributes
    ----------
    classes_ : ndarray of shape (Y,)
        Of the columns of ``p_class``.
    group_names_ : list of str
        Of the columns of ``p_group``.
    merged_groups_ : list of str
        Empty: a head merges no groups.
    cell_counts_ : ndarray of shape (Y, A)
        Rows per class and group it was fitted to.
    frontier_ : DataFrame
        A row per radius: rho, metrics on rows that its head was not fitted to, whether it converged, and which is selected.
    rho_ : float
    best_index_ : int
        Row of ``frontier_``.
    confusion_ : ndarray of shape (P, Y, A, Y)
        Rows by radius, class, group and prediction, by heads that were not fitted to them.
    weights_ : ndarray of shape (Y, A), or (Y, 1) where no group is inferred
        The fitted weights; for FairDRO, q.
    frontier_weights_ : ndarray of shape (P, Y, A), or (P, Y, 1)
        Those of every radius.
    share_ : ndarray of shape (Y, A), or (Y, 1)
        The mean probabilities of classes and groups.
    temperatures_ : ndarray of shape (2,)
        The temperatures of class and group by which probabilities are calibrated before a decision.
    calibration_ : ndarray of shape (1 + Y,)
        Inverse temperature and offsets of the classes' log-probabilities, for :meth:`predict_proba`.
    class_weight_ : ndarray of shape (Y,), or None
    certificate_ : Certificate
        As of :class:`~fairdro.FairDROClassifierCV`.

    See Also
    --------
    fit_head : Makes one.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdro import fit_head
    >>> rng = np.random.default_rng(0)
    >>> sex, y = rng.integers(0, 2, size=(2, 1000))
    >>> score = 1 / (1 + np.exp(-(2 * y - 1 + 0.5 * sex + rng.normal(size=1000))))
    >>> p_class = np.column_stack([1 - score, score])  # of a model that was not trained on these rows
    >>> p_group = np.where(sex[:, None] == [0, 1], 0.8, 0.2)
    >>> head = fit_head(p_class, p_group, y, sex, rhos=[0, 1, 10])
    >>> head.at(0.0).save("head.json")  # plain training
    >>> import fairdro
    >>> fairdro.load("head.json").rho_
    0.0
    """

    _seed_given: int = 0

    def __init__(
        self,
        rho: float | None = None,
        *,
        keep_accuracy: float = 0.95,
        rule: Rule | str | None = None,
        rhos: Sequence[float] | None = None,
        keep_class_accuracy: float = 0.8,
        floor: float | None = None,
        objective: str = "balanced",
        class_weight: Any = None,
        fair_classes: Any = None,
        infer_groups: bool = True,
        min_cell_size: int = TOO_FEW,
        missing_groups: str = "refuse",
        certify: Any = None,
        delta: float = 0.05,
    ) -> None:
        self.certify, self.delta = certify, delta
        self.rho, self.keep_accuracy, self.rule, self.rhos = rho, keep_accuracy, rule, rhos
        self.keep_class_accuracy, self.floor = keep_class_accuracy, floor
        self.objective, self.class_weight, self.fair_classes = objective, class_weight, fair_classes
        self.infer_groups, self.min_cell_size, self.missing_groups = infer_groups, min_cell_size, missing_groups

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002 - scikit-learn's signature
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool, default True
            As of scikit-learn.

        Returns
        -------
        dict
        """
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    def predict(self, p_class: Any, p_group: Any = None) -> np.ndarray:
        """Return the class of every row.

        Parameters
        ----------
        p_class : array-like of shape (N, Y)
            Probabilities of the classes.
        p_group : array-like of shape (N, A) or (N, Y, A), optional
            As in :func:`fit_head`; not read where no group is inferred.

        Returns
        -------
        ndarray of shape (N,)
        """
        return self._decided(self.decision_function(p_class, p_group))

    def predict_proba(self, p_class: Any, p_group: Any = None) -> np.ndarray:
        """Return the probabilities of the classes ``(N, Y)``, those of ``p_class`` calibrated on the rows of the fit.

        They say how likely a class is, not what is decided: see :meth:`predict` and :meth:`decision_function`.

        Parameters
        ----------
        p_class : array-like of shape (N, Y)
            Probabilities of the classes.
        p_group : array-like of shape (N, A) or (N, Y, A), optional
            As in :func:`fit_head`; not read where no group is inferred.

        Returns
        -------
        ndarray of shape (N, Y)
        """
        return self._head_proba(self._probabilities(p_class, p_group))

    def decision_function(self, p_class: Any, p_group: Any = None) -> np.ndarray:
        """Return the scores of the classes ``(N, Y)``; of two classes, that of the second minus the first ``(N,)``.

        Parameters
        ----------
        p_class : array-like of shape (N, Y)
            Probabilities of the classes.
        p_group : array-like of shape (N, A) or (N, Y, A), optional
            As in :func:`fit_head`; not read where no group is inferred.
        """
        return self._head_decision(self._probabilities(p_class, p_group))

    def to_sql(self, p_class: Sequence[str] | None = None, p_group: Sequence[str] | None = None) -> str:
        """Return the rule as an expression of SQL, which gives the class of every row.

        For engines where the probabilities are columns of a table: DuckDB, PostgreSQL, and Spark, whose settings
        ``spark.sql.ansi.enabled`` and ``spark.sql.ansi.doubleQuotedIdentifiers`` must be on, as names stand in double
        quotes. Where groups are inferred, their probabilities must be those given x alone, ``(N, A)``.

        Parameters
        ----------
        p_class, p_group : sequences of str, optional
            Columns with the probabilities, in the order of ``classes_`` and of ``group_names_``; by default ``p_`` and the
            name of the class or group.

        Returns
        -------
        str
        """
        of_class = [f"p_{label}" for label in self.classes_] if p_class is None else p_class
        names = self.group_names_ if self.infer_groups else []
        of_group = [f"p_{name}" for name in names] if p_group is None else p_group
        share = np.where(self.share_ > 0, self.share_, np.inf)
        return head_sql(self.weights_ / share, self.temperatures_, self.classes_, of_class, of_group)

    def _fit(self, X: np.ndarray, cells: Cells) -> None:
        fold = fold_numbers(stratified_folds(cells, seed=self._seed()), len(cells))
        self._fit_head(OutOfFold(X, fold), cells)

    def _seed(self) -> int:
        return self._seed_given

    def _classes_of(self, passed: np.ndarray) -> np.ndarray:
        return self._decided(self._head_decision(passed))

    def _decided(self, decision: np.ndarray) -> np.ndarray:
        return self.classes_[(decision > 0).astype(int) if decision.ndim == 1 else decision.argmax(1)]

    def _inferred(self, X: np.ndarray, cells: Cells) -> Cells:
        own = X[np.arange(len(X)), cells.y.numpy()]
        if own.shape[1] != cells.n_groups:
            raise InputError("Without p_group there is nothing to infer missing groups by; use missing_groups='ignore'.")
        return infer_missing(cells, own / np.maximum(own.sum(1, keepdims=True), np.finfo(float).tiny))

    def _probabilities(self, p_class: Any, p_group: Any) -> np.ndarray:
        return cell_probabilities(p_class, p_group, len(self.classes_), len(self.group_names_), self.infer_groups)

    def save(self, path: str | Path) -> None:
        """Save the head into one JSON file; :func:`fairdro.load` reads it.

        Parameters
        ----------
        path : path
            Of the file.
        """
        fitted = {key: _plain(value) for key, value in self._to_state().items()}
        about = {"format": HEAD_FORMAT, "kind": "FairDROHead", "parameters": plain_parameters(self), "fitted": fitted}
        write_whole(Path(path), json.dumps(about | {"checksum": digest(about)}, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what :meth:`save` wrote; a file that was cut or changed is refused.

        Parameters
        ----------
        path : Path
            Of the file.

        Returns
        -------
        FairDROHead
        """
        try:
            about = json.loads(path.read_text(encoding="utf-8"))
            same = about.pop("checksum") == digest(about)
            demand(
                same and about["format"] == HEAD_FORMAT and about["kind"] == "FairDROHead", "changed, or another version's"
            )
            head = cls(**read_parameters(about["parameters"]))
            head._check_parameters()
            head._from_state(check_fitted("FairDROHead", about["fitted"]))
            demand(head._fits_together(), "its parts do not fit together")
        except OSError as error:
            raise InputError(f"Cannot read {path}: {error.strerror}.") from error
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
            raise InputError(f"{path} is no head that can be used ({error}); save it again.") from error
        return head


def _plain(value: Any) -> Any:
    """Return a fitted value as JSON holds it."""
    if isinstance(value, pd.DataFrame):
        return {str(name): value[name].tolist() for name in value.columns}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def fit_head(
    p_class: Any,
    p_group: Any,
    y: Any,
    sensitive_features: Any,
    *,
    rho: float | None = None,
    keep_accuracy: float = 0.95,
    rule: Rule | str | None = None,
    rhos: Sequence[float] | None = None,
    keep_class_accuracy: float = 0.8,
    floor: float | None = None,
    objective: str = "balanced",
    class_weight: Any = None,
    fair_classes: Any = None,
    classes: Sequence[Any] | None = None,
    infer_groups: bool = True,
    sample_weight: Any = None,
    min_cell_size: int = TOO_FEW,
    missing_groups: str = "refuse",
    certify: Any = None,
    delta: float = 0.05,
    random_state: int = 0,
) -> FairDROHead:
    r"""Fit a head to probabilities from anywhere, on rows that no model was trained on.

    It predicts :math:`\arg\max_y \sum_a w_{y,a} / \pi_{y,a}\; p(y, a \mid x)`, with weights that FairDRO fits to its errors,
    for all radii at once. The radius is chosen by five folds of these rows.

    Parameters
    ----------
    p_class : array-like of shape (N, Y), or None
        Probabilities of the classes, a column each in sorted order, or in that of ``classes``.
    p_group : array-like, or None
        Probabilities of the groups ``(N, A)`` given x, in the order of the groups' sorted names (of the columns, where
        groups are shares); or given x and the class ``(N, Y, A)``; or, with ``p_class=None``, of all classes and groups
        together ``(N, Y, A)``, which sum to one. None with ``infer_groups=False``.
    y : array-like of shape (N,)
        True classes.
    sensitive_features : array-like, Series, DataFrame or list of columns
        Groups: one column, several (their combinations are the groups), or a table of shares that sum to one in every row.
    rho, keep_accuracy, rule, rhos, keep_class_accuracy, floor, objective, class_weight, fair_classes
        As of :class:`~fairdro.FairDROClassifierCV`.
    classes : sequence, optional
        Labels of the columns of ``p_class``.
    infer_groups : bool, default True
        False for the best head that reads the probabilities of the classes alone: a multiplier per class, and a shorter
        frontier.
    sample_weight : array-like of shape (N,), optional
        Counts a row as this many.
    min_cell_size : int, default 30
        Rows of a class and group below which a warning says that they are few.
    missing_groups : {"refuse", "infer", "ignore", "group"}, default "refuse"
        Where a sensitive feature is missing: raise an error; infer shares of the groups from ``p_group`` and the class;
        leave the row out; or take missing as a group of its own, which has a column of ``p_group``.
    certify, delta
        As of :class:`~fairdro.FairDROClassifierCV`.
    random_state : int, default 0
        Seed of the folds, and of the rows that are set aside.

    Returns
    -------
    FairDROHead

    See Also
    --------
    FairDROHeadClassifier : Trains the models and fits the head in one.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdro import fit_head
    >>> rng = np.random.default_rng(0)
    >>> sex, y = rng.integers(0, 2, size=(2, 1000))
    >>> score = 1 / (1 + np.exp(-(2 * y - 1 + 0.5 * sex + rng.normal(size=1000))))
    >>> p_class = np.column_stack([1 - score, score])  # of a model that was not trained on these rows
    >>> p_group = np.where(sex[:, None] == [0, 1], 0.8, 0.2)
    >>> head = fit_head(p_class, p_group, y, sex, rhos=[0, 1, 10])
    >>> head.frontier_["dca"].round(1).tolist()  # on rows that heads were not fitted to
    [0.1, 0.0, 0.0]
    >>> head.predict(p_class[:5], p_group[:5]).shape
    (5,)
    """
    head = FairDROHead(
        rho,
        keep_accuracy=keep_accuracy,
        rule=rule,
        rhos=rhos,
        keep_class_accuracy=keep_class_accuracy,
        floor=floor,
        objective=objective,
        class_weight=class_weight,
        fair_classes=fair_classes,
        infer_groups=infer_groups,
        min_cell_size=min_cell_size,
        missing_groups=missing_groups,
        certify=certify,
        delta=delta,
    )
    head._seed_given = random_state
    head._check_parameters()
    if not isinstance(random_state, int | np.integer) or isinstance(random_state, bool) or random_state < 0:
        raise InputError(f"random_state must be a whole number, zero or more, got {random_state!r}.")
    codes, labels = encode_labels(y, "y")
    head.classes_, codes = in_order(codes, labels, classes)
    weight = None if sample_weight is None else numbers(sample_weight, "sample_weight")
    names = encode_groups(sensitive_features, missing_groups).names
    probabilities = cell_probabilities(p_class, p_group, len(head.classes_), len(names), infer_groups)
    if len(probabilities) != len(codes):
        raise InputError(f"There are probabilities of {len(probabilities)} rows, but {len(codes)} labels.")
    cells = head._cells(codes, sensitive_features, weight, probabilities)
    head._fit_rows(probabilities, probabilities, cells)
    return head
