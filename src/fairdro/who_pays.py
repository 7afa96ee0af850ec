"""Who pays for fairness: which classes and groups lose and gain accuracy against plain training, with intervals."""

from collections.abc import Iterator
from statistics import NormalDist

import numpy as np
import pandas as pd

from fairdro.groups import TOO_FEW
from fairdro.metrics import Confusion, cell_accuracy, class_accuracy

KEEP_CLASS_ACCURACY = 0.8  # share of a class's accuracy; below, it is given up
LARGE_LOSS = 0.01


def changes(plain: Confusion, chosen: Confusion, lost: np.ndarray | None = None) -> pd.DataFrame:
    """Return what every class and group loses or gains against plain training, on the same rows.

    Columns are ``count``, ``plain`` and ``chosen`` (accuracies), ``change``, and ``low`` and ``high``, the ends of its 95 %
    interval; NaN where rows are not countable.

    Parameters
    ----------
    plain, chosen : Confusion
        Of the two models.
    lost : ndarray of shape (Y, A), optional
        How many rows plain training predicts right and the chosen model wrong. With them, intervals are those of pairs
        (Agresti and Min, 2005); without, as if both had been judged on rows of their own, so too wide.

    Returns
    -------
    DataFrame
        A row per class and group.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdro.metrics import Confusion
    >>> from fairdro.selection import changes
    >>> names = ["rejected", "approved"], ["f", "m"]
    >>> plain = Confusion(np.array([[[90, 10], [85, 15]], [[40, 60], [30, 70]]]), *names)
    >>> chosen = Confusion(np.array([[[86, 14], [86, 14]], [[32, 68], [31, 69]]]), *names)
    >>> changes(plain, chosen)[["plain", "chosen", "change"]].round(2)
                    plain  chosen  change
    class    group
    rejected f       0.90    0.86   -0.04
             m       0.85    0.86    0.01
    approved f       0.60    0.68    0.08
             m       0.70    0.69   -0.01
    """
    before, after = (cell_accuracy(c.counts).ravel() for c in (plain, chosen))
    count, change = chosen.counts.sum(-1).ravel(), after - before
    n = np.where(count > 0, count, np.nan)
    if lost is None:
        middle, variance = change, (before * (1 - before) + after * (1 - after)) / n
    else:
        differ = 2 * lost.ravel() + n * change + 1  # rows that one predicts right and the other wrong, and half a row each
        middle = n * change / (n + 2)
        variance = np.maximum(differ / (n + 2) - middle**2, 0) / (n + 2)
    half = NormalDist().inv_cdf(0.975) * np.sqrt(variance) if chosen.countable else np.full(len(count), np.nan)
    index = pd.MultiIndex.from_product([chosen.class_names, chosen.group_names], names=["class", "group"])
    ends = {"low": np.minimum(middle - half, change), "high": np.maximum(middle + half, change)}
    return pd.DataFrame({"count": count, "plain": before, "chosen": after, "change": change} | ends, index=index)


def who_pays_most(plain: Confusion, chosen: Confusion, lost: np.ndarray | None = None) -> str:
    """Say in a few words which class and group loses most against plain training."""
    judged = _judged(changes(plain, chosen, lost))
    if len(judged) == 0:
        return "too few rows to say"
    ((cell, points),) = _in_words(judged.head(1), sign=-1)
    if judged["change"].iloc[0] >= 0:
        return "no one"
    return f"{cell} loses {points}" if judged["change"].iloc[0] <= -LARGE_LOSS else f"no one loses more than {points}"


def _judged(table: pd.DataFrame) -> pd.DataFrame:
    """Return the changes of cells with enough rows, the largest loss first."""
    return table[table["count"] >= TOO_FEW].sort_values("change")


def who_pays(plain: Confusion, chosen: Confusion, lost: np.ndarray | None = None, *, most: int = 3) -> list[str]:
    """Say in words which classes and groups lose and gain against plain training; cells with too few rows are left out.

    Parameters
    ----------
    plain, chosen : Confusion
        Of the two models, on the same rows.
    lost : ndarray of shape (Y, A), optional
        As of :func:`changes`.
    most : int, default 3
        At most so many cells that lose are named.

    Returns
    -------
    list of str

    Examples
    --------
    >>> import numpy as np
    >>> from fairdro.metrics import Confusion
    >>> from fairdro.selection import who_pays
    >>> names = ["rejected", "approved"], ["f", "m"]
    >>> plain = Confusion(np.array([[[90, 10], [85, 15]], [[40, 60], [30, 70]]]), *names)
    >>> chosen = Confusion(np.array([[[86, 14], [86, 14]], [[32, 68], [31, 69]]]), *names)
    >>> for sentence in who_pays(plain, chosen, most=1):
    ...     print(sentence)
    f / rejected loses 4.0 points (-5.0 to 13.0) against plain training.
    f / approved gains most: 8.0 points (-5.3 to 21.3).
    """
    table = changes(plain, chosen, lost)
    judged = _judged(table)
    few = int(((table["count"] > 0) & (table["count"] < TOO_FEW)).sum())
    sentences = []
    kept = [class_accuracy(c.counts) for c in (plain, chosen)]
    for name, before, after in zip(chosen.class_names, *kept, strict=True):
        if after < KEEP_CLASS_ACCURACY * before:
            shares = f"{100 * after:.1f} % of it are recognised instead of {100 * before:.1f} %"
            sentences.append(f"{name} is recognised much less often: {shares}, on the mean of the groups.")
    losing = judged[judged["change"] <= -LARGE_LOSS].head(most)
    sentences += [f"{cell} loses {points} against plain training." for cell, points in _in_words(losing, sign=-1)]
    if len(losing) == 0 and len(judged) > 0:
        lost_most = -100 * float(judged["change"].iloc[0])
        which = f"No class and group with {TOO_FEW} held-out rows or more" if few else "No class and group"
        sentences.append(
            f"{which} loses {f'more than {lost_most:.1f} points' if lost_most > 0 else 'accuracy'} against plain training."
        )
    gaining = judged[judged["change"] >= LARGE_LOSS].tail(1)
    sentences += [f"{cell} gains most: {points}." for cell, points in _in_words(gaining, sign=1)]
    if few:
        sentences.append(f"Classes and groups with fewer than {TOO_FEW} held-out rows, too few to say who pays: {few}.")
    return sentences


def _in_words(table: pd.DataFrame, sign: int) -> Iterator[tuple[str, str]]:
    """Give the name of every cell, and how many points it loses (-1) or gains (1), with the interval."""
    figures = 100 * sign * table[["change", "low", "high"]].to_numpy(np.float64)
    for (label, group), (value, *ends) in zip(table.index.to_list(), figures, strict=True):
        interval = "" if np.isnan(ends[0]) else f" ({min(ends):.1f} to {max(ends):.1f})"
        yield f"{group} / {label}", f"{value:.1f} points{interval}"
