"""The statistics of an audit: rates, ratios, tests, score differences and calibration, group by group.

A group ``g`` with ``x_g`` favoured rows of ``n_g`` has the rate ``p_g = x_g / n_g`` and, against the reference group ``r``,
the impact ratio ``p_g / p_r``. Everything is a function of arrays and returns a table with a row per group.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pandas as pd
from scipy.stats import chi2_contingency, fisher_exact

from fairdro.groups import TOO_FEW
from fairdro.metrics import Confusion, wilson_interval
from fairdro.selection import changes

SMALL_SHARE = 0.02  # of all rows: the share below which New York City's rules allow to leave a category out
FEW_EXPECTED = 5  # rows; below, the chi-square approximation is poor (Cochran, 1954)
BINS = np.linspace(0, 1, 6)
RANGES = len(BINS) - 1
BLOCK = 1 << 20  # rows whose figures are in memory at once
Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Grouping:
    """The rows of a table by one sensitive column, or by the combinations of several.

    Attributes
    ----------
    columns : list of str
    names : list of str
        Of the groups.
    codes : ndarray of shape (N,)
        The group of every row.
    unknown : ndarray of bool, shape (A,)
        Groups of rows that miss a value: shown, and never what others are compared with.
    compared : bool
        Whether groups that are unknown are compared with the reference, too.
    counts : ndarray of shape (N,), optional
        How many rows every entry of ``codes`` and of other arrays stands for; by default one.
    """

    columns: list[str]
    names: list[str]
    codes: np.ndarray
    unknown: np.ndarray
    compared: bool = True
    counts: np.ndarray | None = None

    @property
    def title(self) -> str:
        """The columns in words."""
        return " and ".join(self.columns)

    @property
    def sizes(self) -> np.ndarray:
        """Rows per group ``(A,)``."""
        return self.add_up(lambda rows: np.ones(rows.stop - rows.start))

    @property
    def small(self) -> np.ndarray:
        """Which groups have under 2 % of the rows, or too few to conclude anything ``(A,)``."""
        sizes = self.sizes
        return (sizes < SMALL_SHARE * sizes.sum()) | (sizes < TOO_FEW)

    def count(self, values: np.ndarray) -> np.ndarray:
        """Sum values of rows ``(N,)`` by group ``(A,)``."""
        return self.add_up(lambda rows: values[rows])

    def add_up(
        self, values: Callable[[slice], np.ndarray], places: Callable[[slice], np.ndarray] | None = None
    ) -> np.ndarray:
        """Sum what ``values`` returns of some rows by group ``(A,)``, a block of rows at a time.

        With ``places``, by range of the score too ``(A, K)``.
        """
        width = 1 if places is None else RANGES
        found = np.zeros(len(self.names) * width)
        for start in range(0, len(self.codes), BLOCK):
            rows = slice(start, min(start + BLOCK, len(self.codes)))
            codes = self.codes[rows] if places is None else self.codes[rows].astype(np.int64) * width + places(rows)
            weights = values(rows) if self.counts is None else values(rows) * self.counts[rows]
            found += np.bincount(codes, weights=weights, minlength=len(found))
        return found if places is None else found.reshape(-1, width)

    def reference(self, rate: np.ndarray) -> int | None:
        """Return the most selected group of those known and, if possible, not small; None where nobody of it is selected."""
        known = [a for a in np.flatnonzero(~self.unknown) if rate[a] > 0]
        return int(max(known, key=lambda a: (not self.small[a], rate[a]))) if known else None


def rate_table(favoured: np.ndarray, by: Grouping) -> pd.DataFrame:
    """Return rates, impact ratios and tests against the most selected group.

    Columns: ``rows``, ``selected``, ``rate`` with Wilson's interval ``low`` and ``high``; ``ratio`` with the interval of
    :func:`ratio_interval`; ``test`` and ``p_value`` of :func:`compare`; whether the group is the ``reference``,
    ``unknown`` or ``small``. Where nobody is selected, ratios are undefined (NaN).

    Parameters
    ----------
    favoured : ndarray of bool, shape (N,)
    by : Grouping
    """
    rows, selected = by.sizes, by.count(favoured)
    rate = selected / rows
    low, high = np.clip(wilson_interval(rate, rows), 0, 1)
    reference = by.reference(rate)
    ratios, tests = np.full((len(rows), 4), np.nan), [""] * len(rows)
    for a in range(len(rows)) if reference is not None else ():
        pair = (int(selected[a]), int(rows[a]), int(selected[reference]), int(rows[reference]))
        if a == reference:
            ratios[a, 0] = 1
        elif by.compared or not by.unknown[a]:
            tests[a], p_value = compare(*pair)
            ratios[a] = [rate[a] / rate[reference], *ratio_interval(*pair), p_value]
    columns = {"rows": rows.astype(int), "selected": selected.astype(int), "rate": rate, "low": low, "high": high}
    columns |= dict(zip(["ratio", "ratio_low", "ratio_high", "p_value"], ratios.T, strict=True))
    columns |= {"test": np.array(tests), "reference": np.arange(len(rows)) == reference}
    return pd.DataFrame(columns | {"unknown": by.unknown, "small": by.small}, index=pd.Index(by.names, name="group"))


def ratio_interval(x: int, n: int, x_ref: int, n_ref: int) -> tuple[float, float]:
    r"""Return the 95 % interval of a ratio of rates by the log method of Katz et al. (1978).

    .. math:: \exp\Big(\log\frac{x / n}{x_r / n_r} \pm 1.96 \sqrt{1/x - 1/n + 1/x_r - 1/n_r}\Big)

    Where nobody or everybody of a group is selected, half a row is added to the selected and to the others of both groups
    (Haldane, 1956; Anscombe, 1956), and the interval is widened to hold the ratio itself.
    """
    ratio = (x / n) / (x_ref / n_ref)
    half = 0.5 if x in {0, n} or x_ref in {0, n_ref} else 0.0
    a, b, c, d = x + half, n + 2 * half, x_ref + half, n_ref + 2 * half
    middle, spread = np.log((a / b) / (c / d)), Z * np.sqrt(1 / a - 1 / b + 1 / c - 1 / d)
    return min(ratio, float(np.exp(middle - spread))), max(ratio, float(np.exp(middle + spread)))


def compare(x: int, n: int, x_ref: int, n_ref: int) -> tuple[str, float]:
    """Test two-sided whether two rates differ; return the name of the test and its p-value.

    Fisher's exact test where a cell of the table of four is expected to hold fewer than five rows, else Pearson's chi-square
    test without correction, which is the z-test with the pooled rate.
    """
    table = np.array([[x, n - x], [x_ref, n_ref - x_ref]])
    expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    if (expected < FEW_EXPECTED).any():
        return "exact", float(fisher_exact(table).pvalue)
    return "chi-square", float(chi2_contingency(table, correction=False).pvalue)


def rate_changes(before: np.ndarray, after: np.ndarray, by: Grouping) -> pd.DataFrame:
    """Return how the rate of every group changes from one decision to another on the same rows, with intervals of pairs.

    Columns: ``rows``, ``before``, ``after``, ``change``, ``low``, ``high``. The interval is that of
    :func:`~fairdro.selection.changes` (Agresti and Min, 2005).
    """
    as_counts = [np.stack([by.count(f), by.count(~f)], axis=-1)[None] for f in (before, after)]
    # a rate is the accuracy of a single class, all of whose rows should be favoured
    first, second = (Confusion(counts, ["favoured"], by.names) for counts in as_counts)
    lost = by.count(before & ~after)[None]
    return paired(first, second, lost).droplevel("class")


def paired(before: Confusion, after: Confusion, lost: np.ndarray) -> pd.DataFrame:
    """Return what :func:`~fairdro.selection.changes` says, in the words of an audit."""
    table = changes(before, after, lost)
    return table.rename(columns={"count": "rows", "plain": "before", "chosen": "after"}).astype({"rows": int})


def unpaired(before: pd.DataFrame, after: pd.DataFrame, what: str) -> pd.DataFrame:
    r"""Return how a share changes from one table to another, whose rows are others.

    .. math:: d - \sqrt{(p_2 - l_2)^2 + (u_1 - p_1)^2} \quad \text{to} \quad d + \sqrt{(u_2 - p_2)^2 + (p_1 - l_1)^2}

    with :math:`d = p_2 - p_1` and Wilson's intervals :math:`l, u` (Newcombe, 1998, method 10). Columns: ``rows_before``,
    ``rows``, ``before``, ``after``, ``change``, ``low``, ``high``; what is in one table only has no change.

    Parameters
    ----------
    before, after : DataFrame
        With ``rows``, ``low``, ``high`` and the share.
    what : str
        The column of the share.
    """
    columns = ["rows", what, "low", "high"]
    both = after[columns].join(before[columns].add_suffix("_before"), how="outer")
    change = both[what] - both[f"{what}_before"]
    down = np.hypot(both[what] - both["low"], both["high_before"] - both[f"{what}_before"])
    up = np.hypot(both["high"] - both[what], both[f"{what}_before"] - both["low_before"])
    counts = both[["rows_before", "rows"]].fillna(0).astype(int)
    shares = {"before": both[f"{what}_before"], "after": both[what]}
    return counts.assign(**shares, change=change, low=change - down, high=change + up)


def cell_table(judged: Confusion) -> pd.DataFrame:
    """Return the accuracy of every class and group with Wilson's interval.

    Columns: ``rows``, ``accuracy``, ``low``, ``high``, ``note``. The bootstrap of
    :meth:`~fairdro.metrics.Confusion.cells` would give a small cell without errors an interval of no width.
    """
    table = judged.cells().rename(columns={"count": "rows"})
    low, high = np.clip(wilson_interval(table["accuracy"].to_numpy(), table["rows"].to_numpy()), 0, 1)
    return table.assign(low=low, high=high)


def score_table(score: np.ndarray, by: Grouping, reference: str | None) -> pd.DataFrame:
    r"""Return mean scores and their standardised differences from a reference group.

    .. math:: d = \frac{\bar s_g - \bar s_r}{s}, \qquad
        s^2 = \frac{(n_g - 1) s_g^2 + (n_r - 1) s_r^2}{n_g + n_r - 2}, \qquad
        d \pm 1.96 \sqrt{\frac{n_g + n_r}{n_g n_r} + \frac{d^2}{2 (n_g + n_r)}}

    The interval is that of large samples (Hedges and Olkin, 1985). Columns: ``rows``, ``mean``, ``difference``, ``low``,
    ``high``.
    """
    n = by.sizes
    mean = by.count(score) / n
    squares = by.add_up(lambda rows: (score[rows] - mean[by.codes[rows]]) ** 2)
    table = pd.DataFrame({"rows": n.astype(int), "mean": mean}, index=pd.Index(by.names, name="group"))
    difference, half = np.full((2, len(n)), np.nan)
    if reference is not None:
        r = by.names.index(reference)
        spread = np.sqrt((squares + squares[r]) / np.maximum(n + n[r] - 2, 1))
        others = (np.arange(len(n)) != r) & (spread > 0) & (by.compared | ~by.unknown)
        difference[others] = ((mean - mean[r]) / np.where(spread > 0, spread, 1))[others]
        half = Z * np.sqrt((n + n[r]) / (n * n[r]) + difference**2 / (2 * (n + n[r])))
    return table.assign(difference=difference, low=difference - half, high=difference + half)


def calibration_table(score: np.ndarray, positive: np.ndarray, by: Grouping) -> pd.DataFrame:
    """Return how often what a score foretells came true, by group and by range of the score.

    Columns: ``group``, ``from`` and ``to`` of the range (0 and 1 in the row of all scores), ``rows``, ``mean_score``,
    ``observed`` with Wilson's interval ``low`` and ``high``. Ranges without rows are left out.

    Parameters
    ----------
    score : ndarray of shape (N,)
        Probabilities.
    positive : ndarray of bool, shape (N,)
        Whether the favourable class was the truth.
    """

    def places(rows: slice) -> np.ndarray:
        return np.clip(np.digitize(score[rows], BINS) - 1, 0, RANGES - 1)

    sums = [by.add_up(values, places) for values in (
        lambda rows: np.ones(rows.stop - rows.start), lambda rows: score[rows], lambda rows: positive[rows],
    )]  # fmt: skip
    n, total, came_true = (np.column_stack([of.sum(1), of]) for of in sums)  # all scores, then every range
    edges = [(0.0, 1.0), *itertools.pairwise(BINS)]
    found = []
    for a, k in np.argwhere(n > 0):
        observed = came_true[a, k] / n[a, k]
        low, high = np.clip(wilson_interval(observed, n[a, k]), 0, 1)
        mean = total[a, k] / n[a, k]
        found.append([by.names[a], *edges[k], int(n[a, k]), mean, observed, float(low), float(high)])
    return pd.DataFrame(found, columns=["group", "from", "to", "rows", "mean_score", "observed", "low", "high"])
