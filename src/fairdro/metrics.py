"""Accuracy and group fairness, all from one confusion tensor per cell.

``counts[..., y, a, k]`` says how many samples of class ``y`` and group ``a`` were predicted as ``k``. Every metric is a
function of that tensor and takes any leading dimensions, so a whole bank of models is judged at once. Empty cells are left
out of means and gaps. All rates are fractions.
"""

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fairdro.cells import Cells
from fairdro.errors import InputError, unknown_name
from fairdro.groups import TOO_FEW, as_column, encode_groups, encode_labels

__all__ = [
    "METRICS", "Confusion", "balanced_accuracy", "cell_accuracy", "class_accuracy", "confusion", "dca",
    "demographic_parity_difference", "deo", "equalized_odds_difference", "group_report", "metric_table", "standard_accuracy",
    "wilson_interval", "worst_accuracy",
]  # fmt: skip

FairClasses = Sequence[int] | None
"""Codes of the classes whose groups are to be served alike; None for all."""

Metric = Callable[..., np.ndarray]
"""Takes ``counts`` and, as second argument, :data:`FairClasses`, which gaps within classes are about."""


def _rates(counts: np.ndarray) -> np.ndarray:
    """P(prediction | class, group), NaN for an empty cell."""
    totals = counts.sum(-1, keepdims=True)
    return np.divide(counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0)


def cell_accuracy(counts: np.ndarray) -> np.ndarray:
    """Accuracy per cell ``(..., Y, A)``, NaN for an empty cell.

    Parameters
    ----------
    counts : ndarray of shape (..., Y, A, Y)
        Samples by class, group and prediction, as :class:`Confusion` has them.

    Returns
    -------
    ndarray of shape (..., Y, A)

    Examples
    --------
    >>> import numpy as np
    >>> from fairdro.metrics import cell_accuracy
    >>> cell_accuracy(np.array([[[90, 10], [85, 15]], [[20, 80], [30, 70]]]))
    array([[0.9 , 0.85],
           [0.8 , 0.7 ]])
    """
    return np.moveaxis(np.diagonal(_rates(counts), axis1=-3, axis2=-1), -1, -2)


def wilson_interval(share: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of Wilson's 95 % interval of a share among ``n`` samples, NaN where there are none.

    Parameters
    ----------
    share : array-like
        Observed shares, between 0 and 1.
    n : array-like
        Of how many samples each.

    Returns
    -------
    low, high : ndarray

    Examples
    --------
    >>> import numpy as np
    >>> from fairdro.metrics import wilson_interval
    >>> low, high = wilson_interval(np.array([0.9, 0.9]), np.array([10, 1000]))
    >>> low.round(3), high.round(3)
    (array([0.596, 0.88 ]), array([0.982, 0.917]))
    """
    z2 = NormalDist().inv_cdf(0.975) ** 2
    n = np.where(n > 0, n, np.nan)
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = np.sqrt(z2 * share * (1 - share) / n + z2**2 / (4 * n**2)) / (1 + z2 / n)
    return middle - half, middle + half


def _mean(values: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    known = ~np.isnan(values)
    number = known.sum(axes)
    return np.divide(np.where(known, values, 0).sum(axes), number, out=np.full(number.shape, np.nan), where=number > 0)


def _gap(values: np.ndarray, axis: int) -> np.ndarray:
    return np.fmax.reduce(values, axis=axis) - np.fmin.reduce(values, axis=axis)


def _of(fair: FairClasses) -> Any:
    return slice(None) if fair is None else list(fair)


METRICS: dict[str, Metric] = {
    "accuracy": lambda counts, fair=None: kept_accuracy(counts),
    "dca": lambda counts, fair=None: _mean(_gap(cell_accuracy(counts)[..., _of(fair), :], -1), (-1,)),
    "deo": lambda counts, fair=None: _mean(_gap(_rates(counts)[..., _of(fair), :, :], -2), (-2, -1)),
    "worst_accuracy": lambda counts, fair=None: np.fmin.reduce(cell_accuracy(counts), axis=(-2, -1)),
    "standard_accuracy": lambda counts, fair=None: kept_accuracy(counts, "standard"),
    "equalized_odds_difference": lambda counts, fair=None: np.fmax.reduce(
        _gap(_rates(counts)[..., _of(fair), :, :], -2), axis=(-2, -1)
    ),
    "demographic_parity_difference": lambda counts, fair=None: np.fmax.reduce(_gap(_rates(counts.sum(-3)), -2), axis=-1),
}
"""The metrics by name, functions of counts ``(..., Y, A, Y)`` and, optionally, the codes of the classes that gaps are about.

Examples
--------
>>> import numpy as np
>>> from fairdro.metrics import METRICS
>>> counts = np.array([[[90, 10], [85, 15]], [[20, 80], [30, 70]]])
>>> round(float(METRICS["dca"](counts)), 3)
0.075
>>> round(float(METRICS["dca"](counts, [1])), 3)
0.1
"""


def kept_accuracy(
    counts: np.ndarray, objective: str = "balanced", class_weight: Sequence[float] | None = None
) -> np.ndarray:
    """Return the accuracy ``(...)`` that an objective speaks of, classes counting by their weights.

    Balanced, every cell counts the same; standard, every sample.
    """
    cost = np.ones(counts.shape[-1]) if class_weight is None else np.asarray(class_weight, dtype=np.float64)
    if objective == "standard":
        right, of = np.diagonal(counts, axis1=-3, axis2=-1).sum(-2), counts.sum((-2, -1))
        return (right * cost).sum(-1) / (of * cost).sum(-1)
    accuracy = cell_accuracy(counts)
    weight = np.where(np.isnan(accuracy), 0, cost[:, None])
    total = weight.sum((-2, -1))
    right = (np.nan_to_num(accuracy) * weight).sum((-2, -1))
    return np.divide(right, total, out=np.full(total.shape, np.nan), where=total > 0)


def class_accuracy(counts: np.ndarray) -> np.ndarray:
    """Accuracy per class, the mean over its groups ``(..., Y)``, NaN for a class without samples.

    Parameters
    ----------
    counts : ndarray of shape (..., Y, A, Y)
        Samples by class, group and prediction, as :class:`Confusion` has them.

    Returns
    -------
    ndarray of shape (..., Y)

    Examples
    --------
    >>> import numpy as np
    >>> from fairdro.metrics import class_accuracy
    >>> class_accuracy(np.array([[[90, 10], [85, 15]], [[20, 80], [30, 70]]]))
    array([0.875, 0.75 ])
    """
    return _mean(cell_accuracy(counts), (-1,))


def metric_table(counts: np.ndarray, fair_classes: FairClasses = None) -> pd.DataFrame:
    """Return a row per model with its metrics, as tables and selection rules have them.

    The columns are :data:`METRICS`, and ``class_accuracy_0`` and so on: the accuracy of every class, averaged over groups.

    Parameters
    ----------
    counts : ndarray of shape (P, Y, A, Y)
        Samples by class, group and prediction, of every model.
    fair_classes : sequence of int, optional
        Codes of the classes that gaps between groups are about; by default all.

    Returns
    -------
    DataFrame

    Examples
    --------
    >>> import numpy as np
    >>> from fairdro.metrics import metric_table
    >>> counts = np.array([[[90, 10], [85, 15]], [[20, 80], [30, 70]]])
    >>> table = metric_table(np.stack([counts, counts[::-1, :, ::-1]]))
    >>> table[["accuracy", "dca", "class_accuracy_0"]].round(3)
       accuracy    dca  class_accuracy_0
    0     0.812  0.075             0.875
    1     0.812  0.075             0.750
    """
    by_class = class_accuracy(counts)
    columns = {name: metric(counts, fair_classes) for name, metric in METRICS.items()}
    return pd.DataFrame(columns | {f"class_accuracy_{k}": by_class[:, k] for k in range(by_class.shape[1])})


def confusion_counts(predictions: Tensor, cells: Cells) -> np.ndarray:
    """Count predicted class codes ``(..., N)``, of any number of models, per cell of the samples: ``(..., Y, A, Y)``."""
    per_class = [cells.totals((predictions == k).double()).sums for k in range(cells.n_classes)]
    return torch.stack(per_class, dim=-1).numpy(force=True)


def lost_counts(predictions: Tensor, plain: Tensor, cells: Cells) -> np.ndarray:
    """Count samples per cell ``(..., Y, A)`` that ``plain`` ``(N,)`` has right and ``predictions`` ``(..., N)`` wrong."""
    lost = (plain == cells.y) & (predictions != cells.y)
    return cells.totals(lost.double()).sums.numpy(force=True)


@dataclass(frozen=True)
class Confusion:
    """The confusion tensor of one classifier with the names of its axes.

    Attributes
    ----------
    counts : ndarray of shape (Y, A, Y)
        Samples by class, group and prediction.
    class_names, group_names : list of str
        Of the axes.
    countable : bool, default True
        Whether samples were counted one by one (no weights, no soft groups), as bootstrap intervals need.
    fair_classes : sequence of int, optional
        Codes of the classes that gaps between groups are about; by default all.

    See Also
    --------
    confusion : Makes one from labels and predictions.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdro.metrics import Confusion
    >>> counts = np.array([[[90, 10], [85, 15]], [[20, 80], [30, 70]]])
    >>> found = Confusion(counts, ["rejected", "approved"], ["f", "m"])
    >>> round(found.metric("dca"), 3)
    0.075
    >>> found.metrics()["value"].round(3)
    accuracy                         0.812
    dca                              0.075
    deo                              0.075
    worst_accuracy                   0.700
    standard_accuracy                0.812
    equalized_odds_difference        0.100
    demographic_parity_difference    0.025
    Name: value, dtype: float64
    >>> found.cells()[["count", "accuracy"]]
                    count  accuracy
    class    group
    rejected f        100      0.90
             m        100      0.85
    approved f        100      0.80
             m        100      0.70
    """

    counts: np.ndarray
    class_names: list[str]
    group_names: list[str]
    countable: bool = True
    fair_classes: FairClasses = None

    @property
    def about(self) -> str:
        """A sentence on the classes that gaps are about; empty where these are all."""
        if self.fair_classes is None:
            return ""
        named = ", ".join(self.class_names[k] for k in self.fair_classes)
        return f"DCA, DEO and equalised odds are about these classes: {named}."

    def metric(self, name: str) -> float:
        """Value of one metric.

        Parameters
        ----------
        name : str
            One of ``accuracy``, ``dca``, ``deo``, ``worst_accuracy``, ``standard_accuracy``,
            ``equalized_odds_difference`` and ``demographic_parity_difference``.
        """
        if name not in METRICS:
            raise unknown_name("metric", name, list(METRICS))
        return float(METRICS[name](self.counts, self.fair_classes))

    def metrics(self, *, level: float = 0.95, n_boot: int = 1000, seed: int = 0) -> pd.DataFrame:
        """All metrics with bootstrap intervals: a row per metric, columns ``value``, ``low``, ``high``.

        Drawing again adds chance to gaps, so that a small one may lie below nearly all that are drawn; the interval then
        begins at the gap itself. Rows with weights or shares cannot be drawn one by one; then there are no intervals (NaN).

        Parameters
        ----------
        level : float, default 0.95
            Coverage of the intervals.
        n_boot, seed : int, default 1000 and 0
            Number of bootstrap draws and their seed.
        """
        draws = self._bootstrap(n_boot, seed)
        rows = {
            name: [self.metric(name), *np.nanquantile(f(draws, self.fair_classes), _tails(level))]
            for name, f in METRICS.items()
        }
        table = pd.DataFrame.from_dict(rows, orient="index", columns=["value", "low", "high"])
        table["low"], table["high"] = table[["value", "low"]].min(axis=1), table[["value", "high"]].max(axis=1)
        return table if self.countable else table.assign(low=np.nan, high=np.nan)

    def cells(self, *, level: float = 0.95, n_boot: int = 1000, seed: int = 0) -> pd.DataFrame:
        """Per-cell table: a row per class and group, columns ``count``, ``accuracy``, ``low``, ``high``, ``note``.

        An empty cell has no accuracy (NaN), and rows with weights or shares no intervals. The note says where there are too
        few rows to conclude anything.

        Parameters
        ----------
        level : float, default 0.95
            Coverage of the intervals.
        n_boot, seed : int, default 1000 and 0
            Number of bootstrap draws and their seed.
        """
        accuracy = cell_accuracy(self.counts).reshape(-1)
        draws = cell_accuracy(self._bootstrap(n_boot, seed)).reshape(n_boot, -1)
        bounds = np.full((2, accuracy.size), np.nan)
        known = ~np.isnan(accuracy)
        bounds[:, known] = np.quantile(draws[:, known], _tails(level), axis=0)
        index = pd.MultiIndex.from_product([self.class_names, self.group_names], names=["class", "group"])
        sizes = self.counts.sum(-1).reshape(-1)
        notes = ["no rows" if n == 0 else "too few rows to conclude anything" if n < TOO_FEW else "" for n in sizes]
        columns = {"count": sizes, "accuracy": accuracy, "low": bounds[0], "high": bounds[1], "note": notes}
        table = pd.DataFrame(columns, index=index)
        return table.astype({"count": np.int64}) if self.countable else table.assign(low=np.nan, high=np.nan)

    def _bootstrap(self, n_boot: int, seed: int) -> np.ndarray:
        """Resample within each cell: given the cell's size, its predictions are multinomial."""
        if n_boot < 1 or seed < 0:
            raise InputError(f"n_boot must be at least 1 and seed not negative, got {n_boot} and {seed}.")
        if (n_boot, seed) not in self._draws:
            sizes = self.counts.sum(-1).astype(np.int64)
            rates = np.nan_to_num(_rates(self.counts))
            rates[sizes == 0, 0] = 1.0
            draws = np.random.default_rng(seed).multinomial(sizes, rates, size=(n_boot, *sizes.shape))
            self._draws[n_boot, seed] = draws.astype(np.float64)
        return self._draws[n_boot, seed]

    @cached_property
    def _draws(self) -> dict[tuple[int, int], np.ndarray]:
        """What was drawn already: metrics and cells, card and terminal ask for the same."""
        return {}


def _tails(level: float) -> list[float]:
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, got {level}.")
    return [(1 - level) / 2, (1 + level) / 2]


def confusion(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    fair_classes: Any = None,
    labels: Any = None,
) -> Confusion:
    """Build the confusion tensor of predictions.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (N,)
        Labels of any hashable kind.
    sensitive_features : array-like
        One column, several (their combinations are the groups), or a soft membership table whose rows sum to one. Rows that
        miss one are of no group and not counted.
    sample_weight : array-like of shape (N,), optional
        Counts a row as this many.
    fair_classes : list of labels, optional
        Classes that gaps between groups are about; by default all.
    labels : list of labels, optional
        All classes, where some do not occur in ``y_true``. A prediction that is none of them is refused.

    Returns
    -------
    Confusion

    Warns
    -----
    UserWarning
        If rows are of no group; it says how many.

    Examples
    --------
    >>> from fairdro.metrics import confusion
    >>> y_true, sex = [1, 1, 1, 1, 0, 0, 0, 0], ["f", "f", "m", "m", "f", "f", "m", "m"]
    >>> y_pred = [1, 0, 1, 1, 0, 0, 0, 1]
    >>> found = confusion(y_true, y_pred, sensitive_features=sex)
    >>> found.counts[1]  # of class 1: rows by group and prediction
    array([[1., 1.],
           [0., 2.]])
    >>> found.metric("dca")
    0.5
    """
    truth, predicted = as_column(y_true, "y_true"), as_column(y_pred, "y_pred")
    n = len(truth)
    if n != len(predicted):
        raise InputError(f"y_true has {n} rows but y_pred has {len(predicted)}.")
    known = as_column([*labels] if labels is not None else truth, "labels").dropna().unique()
    _refuse_strange(truth, predicted, known)
    codes, classes = encode_labels(truth.append(predicted).append(known), "y_true or y_pred")
    codes = codes[: 2 * n]
    groups = encode_groups(sensitive_features, "ignore")
    cells = Cells.from_labels(codes[:n], groups, n_classes=len(classes), sample_weight=sample_weight)
    if groups.n_unknown:
        sentence = f"{groups.n_unknown:,} of {n:,} rows have no group and are not counted."
        warnings.warn(sentence, UserWarning, stacklevel=_stack_level())
    counted = cells.known_part
    counts = confusion_counts(torch.as_tensor(codes[n:])[cells.known_rows], counted)
    fair = class_codes(fair_classes, classes)
    return Confusion(counts, [str(c) for c in classes], groups.names, sample_weight is None and not counted.soft, fair)


def _refuse_strange(truth: pd.Index, predicted: pd.Index, known: pd.Index) -> None:
    """Refuse labels that are none of the known ones: probabilities for predictions, above all."""
    for name, column in (("y_true", truth), ("y_pred", predicted)):
        strange = column.dropna().unique().difference(known, sort=False)
        if len(strange) == 0:
            continue
        if pd.api.types.is_numeric_dtype(known) != pd.api.types.is_numeric_dtype(column):
            raise InputError(f"y_true holds labels like {truth[0]!r}, y_pred like {predicted[0]!r}: bring them to one type.")
        classes = ", ".join(map(str, known[:10])) + (", ..." if len(known) > 10 else "")
        raise InputError(
            f"{name} holds {strange[0]!r}, which is no class of y_true ({classes}). Pass classes, not probabilities; or "
            "name all classes by labels=[...]."
        )


def _stack_level() -> int:
    """Return how many frames of this module lie between a warning and whoever called it."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        level, frame = level + 1, frame.f_back
    return level - 1


def class_codes(labels: Any, classes: np.ndarray, what: str = "fair_classes") -> tuple[int, ...] | None:
    """Return the codes of some classes by their labels, or by their names as strings; None stays None."""
    if labels is None:
        return None
    if isinstance(labels, str) or not hasattr(labels, "__iter__"):
        raise InputError(f"{what} must be a list of classes, for example [{labels!r}].")
    labels = list(labels)
    by_name = {str(label): k for k, label in enumerate(classes.tolist())}
    codes = [by_name.get(str(label)) for label in labels]
    if None in codes or not codes:
        named = "none" if not codes else repr(labels[codes.index(None)])
        raise InputError(f"{what} names {named}; the classes are: {', '.join(by_name)}.")
    return tuple(sorted({k for k in codes if k is not None}))


def _score(
    name: str, y_true: Any, y_pred: Any, sensitive_features: Any, sample_weight: Any, labels: Any, fair_classes: Any = None
) -> float:
    options = {"sample_weight": sample_weight, "labels": labels, "fair_classes": fair_classes}
    return confusion(y_true, y_pred, sensitive_features=sensitive_features, **options).metric(name)


def balanced_accuracy(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None, labels: Any = None
) -> float:
    """Group-class balanced accuracy: the mean of the accuracies of all cells (the paper's accuracy).

    Parameters
    ----------
    y_true, y_pred : array-like of shape (N,)
        Labels of any hashable kind.
    sensitive_features, sample_weight, labels
        As of :func:`confusion`.

    Returns
    -------
    float
        Between 0 and 1.

    See Also
    --------
    standard_accuracy : Every row counts the same.
    worst_accuracy : The worst cell alone.

    Examples
    --------
    >>> from fairdro.metrics import balanced_accuracy
    >>> y_true, sex = [1, 1, 1, 1, 0, 0, 0, 0], ["f", "f", "m", "m", "f", "f", "m", "m"]
    >>> y_pred = [1, 0, 1, 1, 0, 0, 0, 1]
    >>> balanced_accuracy(y_true, y_pred, sensitive_features=sex)
    0.75
    """
    return _score("accuracy", y_true, y_pred, sensitive_features, sample_weight, labels)


def dca(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    fair_classes: Any = None,
    labels: Any = None,
) -> float:
    r"""Difference of conditional accuracy, equation 1 of the paper.

    .. math:: \frac{1}{|Y|} \sum_y \max_{a, a'} |P(\hat Y = y | A = a, Y = y) - P(\hat Y = y | A = a', Y = y)|

    With ``fair_classes``, the mean over these classes; over one, it is the difference of equal opportunity.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (N,)
        Labels of any hashable kind.
    sensitive_features, sample_weight, fair_classes, labels
        As of :func:`confusion`.

    Returns
    -------
    float
        Between 0, where groups are served alike, and 1.

    See Also
    --------
    fairdro.selection.certify : An upper bound of it.
    group_report : The accuracies it is made of, with intervals.

    Examples
    --------
    >>> from fairdro.metrics import dca
    >>> y_true, sex = [1, 1, 1, 1, 0, 0, 0, 0], ["f", "f", "m", "m", "f", "f", "m", "m"]
    >>> y_pred = [1, 0, 1, 1, 0, 0, 0, 1]
    >>> dca(y_true, y_pred, sensitive_features=sex)
    0.5
    """
    return _score("dca", y_true, y_pred, sensitive_features, sample_weight, labels, fair_classes)


def deo(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    fair_classes: Any = None,
    labels: Any = None,
) -> float:
    """Difference of equalised odds: the gap between groups of P(prediction | class), averaged over classes and predictions.

    Equal to :func:`dca` for two classes. With ``fair_classes``, the mean over these classes.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (N,)
        Labels of any hashable kind.
    sensitive_features, sample_weight, fair_classes, labels
        As of :func:`confusion`.

    Returns
    -------
    float
        Between 0, where groups are served alike, and 1.

    See Also
    --------
    equalized_odds_difference : The largest gap instead of the mean.

    Examples
    --------
    >>> from fairdro.metrics import deo
    >>> y_true, sex = [1, 1, 1, 1, 0, 0, 0, 0], ["f", "f", "m", "m", "f", "f", "m", "m"]
    >>> y_pred = [1, 0, 1, 1, 0, 0, 0, 1]
    >>> deo(y_true, y_pred, sensitive_features=sex)
    0.5
    """
    return _score("deo", y_true, y_pred, sensitive_features, sample_weight, labels, fair_classes)


def worst_accuracy(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None, labels: Any = None
) -> float:
    """Accuracy of the worst cell.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (N,)
        Labels of any hashable kind.
    sensitive_features, sample_weight, labels
        As of :func:`confusion`.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> from fairdro.metrics import worst_accuracy
    >>> y_true, sex = [1, 1, 1, 1, 0, 0, 0, 0], ["f", "f", "m", "m", "f", "f", "m", "m"]
    >>> y_pred = [1, 0, 1, 1, 0, 0, 0, 1]
    >>> worst_accuracy(y_true, y_pred, sensitive_features=sex)
    0.5
    """
    return _score("worst_accuracy", y_true, y_pred, sensitive_features, sample_weight, labels)


def standard_accuracy(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None, labels: Any = None
) -> float:
    """Share of correct predictions; groups do not matter.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (N,)
        Labels of any hashable kind.
    sensitive_features, sample_weight, labels
        As of :func:`confusion`.

    Returns
    -------
    float
        Between 0 and 1.

    See Also
    --------
    balanced_accuracy : Every class and group counts the same.

    Examples
    --------
    >>> from fairdro.metrics import standard_accuracy
    >>> y_true, sex = [1, 1, 1, 1, 0, 0, 0, 0], ["f", "f", "m", "m", "f", "f", "m", "m"]
    >>> y_pred = [1, 0, 1, 1, 0, 0, 0, 1]
    >>> standard_accuracy(y_true, y_pred, sensitive_features=sex)
    0.75
    """
    return _score("standard_accuracy", y_true, y_pred, sensitive_features, sample_weight, labels)


def equalized_odds_difference(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    fair_classes: Any = None,
    labels: Any = None,
) -> float:
    """Largest gap between groups of P(prediction | class); fairlearn's metric of that name, for any number of classes.

    With ``fair_classes``, of these classes.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (N,)
        Labels of any hashable kind.
    sensitive_features, sample_weight, fair_classes, labels
        As of :func:`confusion`.

    Returns
    -------
    float
        Between 0 and 1.

    See Also
    --------
    deo : The mean of the gaps instead of the largest.

    Examples
    --------
    >>> from fairdro.metrics import equalized_odds_difference
    >>> y_true, sex = [1, 1, 1, 1, 0, 0, 0, 0], ["f", "f", "m", "m", "f", "f", "m", "m"]
    >>> y_pred = [1, 0, 1, 1, 0, 0, 0, 1]
    >>> equalized_odds_difference(y_true, y_pred, sensitive_features=sex)
    0.5
    """
    return _score("equalized_odds_difference", y_true, y_pred, sensitive_features, sample_weight, labels, fair_classes)


def demographic_parity_difference(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None, labels: Any = None
) -> float:
    """Largest gap between groups of P(prediction); fairlearn's metric of that name, for any number of classes.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (N,)
        Labels of any hashable kind.
    sensitive_features, sample_weight, labels
        As of :func:`confusion`.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> from fairdro.metrics import demographic_parity_difference
    >>> y_true, sex = [1, 1, 1, 1, 0, 0, 0, 0], ["f", "f", "m", "m", "f", "f", "m", "m"]
    >>> y_pred = [1, 0, 1, 1, 0, 0, 0, 1]
    >>> demographic_parity_difference(y_true, y_pred, sensitive_features=sex)
    0.5
    """
    return _score("demographic_parity_difference", y_true, y_pred, sensitive_features, sample_weight, labels)


def group_report(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    labels: Any = None,
    level: float = 0.95,
    n_boot: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Accuracy of every cell with its count and a bootstrap interval, stratified by cell.

    Parameters
    ----------
    y_true, y_pred, sensitive_features, labels
        See :func:`confusion`.
    level : float, default 0.95
        Coverage of the intervals.
    n_boot, seed : int, default 1000 and 0
        Number of bootstrap draws and their seed.

    Returns
    -------
    DataFrame
        Indexed by class and group, with columns ``count``, ``accuracy``, ``low``, ``high``, ``note``. Soft groups have no
        intervals (NaN).

    Warns
    -----
    UserWarning
        If there are cells with too few rows to conclude anything; the note says which.

    See Also
    --------
    confusion : All metrics of the same predictions.

    Examples
    --------
    >>> from fairdro.metrics import group_report
    >>> y_true, sex = [1] * 80 + [0] * 80, (["f"] * 40 + ["m"] * 40) * 2
    >>> y_pred = [1] * 28 + [0] * 12 + [1] * 36 + [0] * 4 + [0] * 80
    >>> group_report(y_true, y_pred, sensitive_features=sex)[["count", "accuracy", "low", "high"]]
                 count  accuracy   low   high
    class group
    0     f         40       1.0  1.00  1.000
          m         40       1.0  1.00  1.000
    1     f         40       0.7  0.55  0.825
          m         40       0.9  0.80  0.975
    """
    judged = confusion(y_true, y_pred, sensitive_features=sensitive_features, labels=labels)
    table = judged.cells(level=level, n_boot=n_boot, seed=seed)
    if len(few := table.index[(table["count"] > 0) & (table["count"] < TOO_FEW)]) > 0:
        more = f" and {len(few) - 5} more" if len(few) > 5 else ""
        named = ", ".join(f"{label} / {group}" for label, group in few[:5]) + more
        warnings.warn(f"Fewer than {TOO_FEW} rows, too few to conclude anything: {named}.", UserWarning, stacklevel=2)
    return table
