"""What an audit says in words: the findings in short, what each figure means, what it does not say, and sources."""

import math
from typing import Any

import pandas as pd

from fairdro._utils.markdown import percent
from fairdro.audit.compute import Audit, Judged, Part, Rates
from fairdro.estimators.card import by_cell
from fairdro.groups import TOO_FEW

NO_VERDICT = (
    "These are figures, with how far chance reaches. They are no verdict: no limit is applied, nothing passes or fails."
)
HOLDS = "That holds, by itself, if these rows neither trained the model nor chose it, or anything of it."
MOST_LETTERS = 60
EVERY_RATE = "No prediction was named as the favourable one (--favourable); tables have the rates of each."

METHODS = {
    "Rate": "The share of the rows of a group that got the favourable outcome. Its interval is Wilson's (1927), at 95 %: if "
    "the rows are a sample of people like these, 95 of 100 such intervals hold the true rate. Few rows make a wide one.",
    "Impact ratio": "The rate of a group divided by the rate of the most selected group; 1 means equally often. Its 95 % "
    "interval is that of the log method (Katz and others, 1978); where nobody or everybody of a group is selected, half a "
    "row is added to all counts (Haldane, 1956; Anscombe, 1956). Where nobody at all is selected, the ratio is undefined.",
    "Most selected group": "The group with the highest rate among those with at least 30 rows and 2 % of all rows. Smaller "
    "groups are flagged and kept, and may have a ratio above 1; rows of unknown group are counted and shown, and never what "
    "others are compared with. As it is found in the same rows, ratios lie a little below 1 even where all groups are "
    "treated alike, the more so the more groups there are.",
    "Test": "The p-value says how often chance alone would make two rates differ at least as much as these, if both groups "
    "were treated alike. It is Fisher's exact test (exact) where fewer than five rows are expected in a cell of the four, "
    "else Pearson's chi-square test without correction, the same as a two-sided z-test (Cochran, 1954). Values are not "
    "corrected for the number of groups: of twenty comparisons without any true difference, one is expected below 0.05.",
    "Standardised difference of scores": "The mean score of a group less that of the group most often above the threshold, "
    "divided by their pooled standard deviation; 95 % interval of Hedges and Olkin (1985). Negative means lower scores.",
    "Change": "Where two predictions are compared, both are of the same rows, and the 95 % interval of the difference is "
    "that of pairs (Agresti and Min, 2005). One that does not hold 0 is a change beyond chance.",
    "Change since an earlier table": "Where another table is given, its rows are others, and the 95 % interval of the "
    "difference is that of two independent shares (Newcombe, 1998). Scores are compared with the same threshold.",
    "Accuracy by class and group": "Of the rows that truly are of a class and group, the share that was predicted right. "
    "DCA is the difference between the best and the worst served group of a class, on the mean of the classes; DEO the same "
    "for every pair of class and prediction; the equalised-odds difference is the largest of these. Intervals are at 95 %: "
    "Wilson's for a class and group, for gaps and means those of a bootstrap within each class and group.",
    "Certificate": "Beside what was observed, an upper bound of the gap that is too small with a probability of at most "
    "5 %, at any number of rows, by exact binomial tests of all classes and groups. It holds only if the rows neither "
    "trained the model nor chose it, or anything of it, and are a sample of the people it is for.",
    "Calibration": "Where a score is a probability, it should come true as often as it says, in every group. Mean score and "
    "observed share are compared for all rows of a group and within five ranges of the score; intervals are Wilson's.",
}
LIMITS = [
    "A difference between groups does not prove discrimination, and none does not prove fairness. What a difference means, "
    "and whether it is allowed, depends on the decision, the people and the law; this is no legal advice.",
    "Figures are about the rows of this file. People who are not in it, and groups that were not named, were not looked at.",
    "The truth, where it is given, is taken as it is. If it was recorded unjustly, accuracies inherit that.",
]
SOURCES = [
    "New York City, Local Law 144 of 2021 (Administrative Code, section 20-870 and following), and Rules of the City of New "
    "York, title 6, sections 5-300 to 5-304: selection rate, scoring rate (share above the median of the sample), impact "
    "ratio, unknown categories, categories under 2 %.",
    "Background, United States: Uniform Guidelines on Employee Selection Procedures, 29 CFR 1607.4(D), the four-fifths "
    "guideline. It is not applied here.",
    "Wilson (1927), Probable inference. Journal of the American Statistical Association 22, 209-212.",
    "Katz, Baptista, Azen, Pike (1978), Obtaining confidence intervals for the risk ratio in cohort studies. Biometrics 34, "
    "469-474.",
    "Haldane (1956), The estimation and significance of the logarithm of a ratio of frequencies. Annals of Human Genetics "
    "20, 309-311. Anscombe (1956), On estimating binomial response relations. Biometrika 43, 461-464.",
    "Cochran (1954), Some methods for strengthening the common chi-square tests. Biometrics 10, 417-451.",
    "Hedges, Olkin (1985), Statistical Methods for Meta-Analysis. Academic Press.",
    "Agresti, Min (2005), Simple improved confidence intervals for comparing matched proportions. Statistics in Medicine "
    "24, 729-740.",
    "Newcombe (1998), Interval estimation for the difference between independent proportions. Statistics in Medicine 17, "
    "873-890.",
    "Hardt, Price, Srebro (2016), Equality of Opportunity in Supervised Learning (equalised odds). NeurIPS.",
    "Jung, Park, Chun, Moon (2023), Re-weighting based Group Fairness Regularization via Classwise Robust Optimization "
    "(DCA). ICLR.",
]


def share(value: float) -> str:
    """Write a share in percent, with its unit."""
    return f"{percent(value)} %"


def cut(name: str) -> str:
    """Return a name that is short enough for a sentence; tables have it whole."""
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 3]}..."


def rows(number: int) -> str:
    """Write a number of rows."""
    return "1 row" if number == 1 else f"{number:,} rows"


def between(value: float, low: float, high: float, *, unit: float = 100, digits: int = 1, to: str = " to ") -> str:
    """Write a figure with its interval; nothing for one that is missing."""
    if math.isnan(value):
        return ""
    figures = [f"{unit * v:.{digits}f}" for v in (value, low, high)]
    return figures[0] if math.isnan(low) else f"{figures[0]} ({figures[1]}{to}{figures[2]})"


def p_value(value: float) -> str:
    """Write a p-value; nothing for one that is missing."""
    return "" if math.isnan(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


def remark(row: dict[str, Any]) -> str:
    """Say what there is to know of a group beside its figures."""
    remarks = {"reference": "most selected", "unknown": "unknown", "small": "small"}
    return ", ".join(words for name, words in remarks.items() if row[name])


def in_short(audit: Audit) -> list[str]:
    """Return the findings, a sentence or two for each.

    Parameters
    ----------
    audit : Audit
        Of :func:`audit_table`.

    Returns
    -------
    list of str

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdro.audit import audit_table, in_short
    >>> table = pd.DataFrame({
    ...     "sex": ["f"] * 100 + ["m"] * 100,
    ...     "hired": ["no"] * 70 + ["yes"] * 30 + ["no"] * 50 + ["yes"] * 50,
    ... })
    >>> audit = audit_table(table, groups=["sex"], predictions=["hired"])
    >>> import textwrap
    >>> print(textwrap.fill(in_short(audit)[0], width=100))
    By sex, hired is yes for 50.0 % of the group m (100 rows), the most, and for 30.0 % of the group f
    (100 rows), the fewest: 0.60 times as often (0.42 to 0.86).
    """
    found = [] if audit.favourable is not None or not audit.predictions else [EVERY_RATE]
    for part in audit.parts:
        found += [_of_rates(part, rates) for rates in part.rates if rates.outcome.value in {None, audit.favourable}]
        found += [_of_accuracy(part, judged) for judged in part.judged]
        if part.accuracy_changes is not None:
            found.append(_of_changes(part.grouping.title, audit.predictions, part.accuracy_changes))
        found += [_of_dates(part.grouping.title, words, table) for words, table in part.since]
    return found


def _of_rates(part: Part, rates: Rates) -> str:
    by, words = part.grouping.title, rates.outcome.words
    if rates.reference is None:
        whom = "Nobody" if not rates.table["selected"].any() else "Nobody of a known group"
        return f"By {by}: {whom} is selected ({words} for none), so that impact ratios are undefined."
    groups = {str(row["group"]): row for row in rates.table.reset_index().to_dict("records")}
    others = [row for row in groups.values() if not row["unknown"] and not row["reference"]]
    others = [row for row in others if not row["small"]] or others
    most = groups[rates.reference]
    told = f"By {by}, {words} for {share(most['rate'])} of the group {cut(rates.reference)} ({rows(most['rows'])}), the most"
    if not others:
        return f"{told}; there is no other known group to compare."
    least = min(others, key=lambda row: row["ratio"])
    ratio = f"{least['ratio']:.2f} times as often ({least['ratio_low']:.2f} to {least['ratio_high']:.2f})"
    if least["selected"] == 0:
        ratio = f"an impact ratio of 0 (at most {least['ratio_high']:.2f})"
    fewest = f"for {share(least['rate'])} of the group {cut(least['group'])} ({rows(least['rows'])}), the fewest"
    return f"{told}, and {fewest}: {ratio}."


def _of_accuracy(part: Part, judged: Judged) -> str:
    gap = (
        f"By {part.grouping.title}, how often {judged.prediction} is right: within a class, the best and the worst "
        f"served group are {between(*judged.confusion.metrics().loc['dca'])} points apart, on the mean of the classes (DCA)"
    )
    enough = judged.cells["rows"] >= TOO_FEW
    if few := int(((judged.cells["rows"] > 0) & ~enough).sum()):
        gap += f"; chance adds to that, as {few} classes and groups have fewer than {TOO_FEW} rows"
    if not enough.any():
        return f"{gap}."
    (((label, group), worst),) = by_cell(judged.cells[enough].sort_values("accuracy").head(1))
    right = f"{share(worst['accuracy'])} of {rows(worst['rows'])}"
    return f"{gap}. Least often right is the class {cut(label)} in the group {cut(group)}: {right}."


def _of_dates(by: str, words: str, table: pd.DataFrame) -> str:
    """Say which group changed most since the earlier table, of those that did beyond chance."""
    beyond = table[(table["low"] > 0) | (table["high"] < 0)]
    told = "no group changed beyond chance"
    if len(beyond):
        name = str(beyond["change"].abs().idxmax())
        before, after = (float(beyond[when][name]) for when in ("before", "after"))
        told = f"most for {cut(name)}, from {share(before)} to {share(after)}"
    return f"By {by}, how often {words} since the earlier table: {told}."


def _of_changes(by: str, predictions: list[str], changed: pd.DataFrame) -> str:
    """Say which class and group loses and which gains most accuracy, of those that do beyond chance."""
    told = []
    for verb, sign, beyond in (("loses", -1, changed["high"] < 0), ("gains", 1, changed["low"] > 0)):
        for (label, group), row in by_cell(changed[beyond].sort_values("change", ascending=sign < 0).head(1)):
            points = between(abs(row["change"]), *sorted([abs(row["low"]), abs(row["high"])]))
            told.append(f"the class {cut(label)} in the group {cut(group)} {verb} {points} points of accuracy")
    most = " and ".join(told) or "no class and group loses or gains accuracy beyond chance"
    return f"By {by}, from {predictions[0]} to {predictions[1]}: {most}."
