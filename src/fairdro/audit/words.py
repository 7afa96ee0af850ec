"""What an audit says in words: the findings in short, what each figure means, what it does not say, and sources."""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from fairdro._utils.markdown import percent
from fairdro.audit.compute import Audit, Judged, Part, Rates
from fairdro.groups import TOO_FEW
from fairdro.metrics import cell_accuracy

NO_VERDICT = "These are figures, with how far chance reaches. They are no verdict: no limit is applied, nothing passes or fails."

METHODS = {
    "Rate": "The share of the rows of a group that got the favourable outcome. Its interval is Wilson's (1927), at 95 %: if "
    "the rows are a sample of people like these, 95 of 100 such intervals hold the true rate. Few rows make a wide interval.",
    "Impact ratio": "The rate of a group divided by the rate of the most selected group; 1 means equally often. Its 95 % "
    "interval is that of the log method (Katz and others, 1978); where nobody or everybody of a group is selected, half a row "
    "is added to all counts (Walter, 1975). Where nobody at all is selected, the ratio is undefined.",
    "Most selected group": "The group with the highest rate among those with at least 30 rows and 2 % of all rows. Smaller "
    "groups are flagged and kept, and may have a ratio above 1; rows of unknown group are counted and shown, and never what "
    "others are compared with. As it is found in the same rows, ratios lie a little below 1 even where all groups are "
    "treated alike, the more so the more groups there are.",
    "Test": "The p-value says how often chance alone would make two rates differ as much as these, if both groups were treated "
    "alike. It is Fisher's exact test (exact) where fewer than five rows are expected in one of the four cells, else Pearson's "
    "chi-square test without correction, the same as a two-sided z-test (Cochran, 1954). Values are not corrected for the "
    "number of groups: of twenty comparisons without any true difference, one is expected below 0.05.",
    "Standardised difference of scores": "The mean score of a group less that of the group most often above the threshold, "
    "divided by their pooled standard deviation; 95 % interval of Hedges and Olkin (1985). Negative means lower scores.",
    "Change": "Where two predictions are compared, both are of the same rows, and the 95 % interval of the difference is "
    "that of pairs (Agresti and Min, 2005). One that does not hold 0 is a change beyond chance.",
    "Accuracy by class and group": "Of the rows that truly are of a class and group, the share that was predicted right. "
    "DCA is the difference between the best and the worst served group of a class, on the mean of the classes; DEO the same "
    "for every pair of class and prediction; the equalised-odds difference is the largest of these. Intervals are of a "
    "bootstrap within each class and group, at 95 %.",
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
    "New York City, Local Law 144 of 2021 (Administrative Code, section 20-870 and following); Rules of the City of New York, "
    "title 6, sections 5-300 to 5-304: selection rate, scoring rate (share above the median of the sample), impact ratio, "
    "unknown categories, categories under 2 %.",
    "Background, United States: Uniform Guidelines on Employee Selection Procedures, 29 CFR 1607.4(D), the four-fifths "
    "guideline. It is not applied here.",
    "Wilson (1927), Probable inference. Journal of the American Statistical Association 22, 209-212.",
    "Katz, Baptista, Azen, Pike (1978), Obtaining confidence intervals for the risk ratio in cohort studies. Biometrics 34, 469-474.",
    "Walter (1975), The distribution of Levin's measure of attributable risk. Biometrika 62, 371-374.",
    "Cochran (1954), Some methods for strengthening the common chi-square tests. Biometrics 10, 417-451.",
    "Hedges, Olkin (1985), Statistical Methods for Meta-Analysis. Academic Press.",
    "Agresti, Min (2005), Simple improved confidence intervals for comparing matched proportions. Statistics in Medicine 24, "
    "729-740.",
    "Hardt, Price, Srebro (2016), Equality of Opportunity in Supervised Learning (equalised odds). NeurIPS.",
    "Jung, Park, Chun, Moon (2023), Re-weighting based Group Fairness Regularization via Classwise Robust Optimization (DCA). "
    "ICLR.",
]


def share(value: float) -> str:
    """Write a share in percent, with its unit."""
    return f"{percent(value)} %"


def between(value: float, low: float, high: float, *, unit: float = 100, digits: int = 1, to: str = " to ") -> str:
    """Write a figure with its interval; nothing for one that is missing."""
    if math.isnan(value):
        return ""
    figures = [f"{unit * v:.{digits}f}" for v in (value, low, high)]
    return figures[0] if math.isnan(low) else f"{figures[0]} ({figures[1]}{to}{figures[2]})"


def p_value(value: float) -> str:
    """Write a p-value; nothing for one that is missing."""
    return "" if math.isnan(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


def remark(row: "pd.Series[float]") -> str:
    """Say what there is to know of a group beside its figures."""
    remarks = {"reference": "most selected", "unknown": "unknown", "small": "small"}
    return ", ".join(words for name, words in remarks.items() if row[name])


def in_short(audit: Audit) -> list[str]:
    """Return the findings, a sentence or two for each."""
    found = []
    for part in audit.parts:
        found += [sentence for rates in part.rates for sentence in _of_rates(part, rates)]
        found += [_of_accuracy(part, judged) for judged in part.judged]
        for changed in [] if part.accuracy_changes is None else [part.accuracy_changes]:
            found += _of_changes(part.grouping.title, audit.predictions, changed[changed["rows"] >= TOO_FEW])
    return found


def _of_rates(part: Part, rates: Rates) -> Iterator[str]:
    by, words = part.grouping.title, rates.outcome.words
    if rates.reference is None:
        selected = int(rates.table["selected"].sum())
        whom = "Nobody is selected" if selected == 0 else "Nobody of a known group is selected"
        yield f"{whom}: {words} never occurs there, so that impact ratios by {by} are undefined."
        return
    table = rates.table[~rates.table["unknown"] & ~rates.table["reference"]]
    table = table[~table["small"]] if (~table["small"]).any() else table
    most = rates.table.loc[rates.reference]
    highest = f"most often in the group {rates.reference}, {share(most['rate'])} of {most['rows']:,}"
    if len(table) == 0:
        yield f"By {by}, {words} {highest}; no other known group is there to compare."
        return
    name, least = next(table.sort_values("ratio").head(1).iterrows())
    ratio = f"{least['ratio']:.2f} times as often, with an interval from {least['ratio_low']:.2f} to {least['ratio_high']:.2f}"
    if least["selected"] == 0:
        ratio = f"an impact ratio of 0, with an interval up to {least['ratio_high']:.2f}"
    yield f"By {by}, {words} {highest}, and least often in {name}, {share(least['rate'])} of {least['rows']:,}: {ratio}."


def _of_accuracy(part: Part, judged: Judged) -> str:
    confusion = judged.confusion
    value, low, high = confusion.metrics().loc["dca"]
    gap = (
        f"By {part.grouping.title}, within a class the accuracy of {judged.prediction} differs between groups by "
        f"{between(value, low, high)} points, on the mean of the classes (DCA)"
    )
    accuracy = cell_accuracy(confusion.counts)
    label, group = np.unravel_index(int(np.nanargmin(accuracy)), accuracy.shape)
    worst = f"{confusion.class_names[label]} of the group {confusion.group_names[group]}"
    return f"{gap}; the least often recognised are {worst}, {share(float(accuracy[label, group]))} of them."


def _of_changes(by: str, predictions: list[str], changed: pd.DataFrame) -> Iterator[str]:
    """Say which class and group loses and which gains most accuracy, among those with enough rows."""
    ranked, told = changed.sort_values("change"), []
    for verb, sign, row in (("loses", -1, ranked.head(1)), ("gains", 1, ranked.tail(1))):
        for (label, group), values in row.iterrows():  # type: ignore[misc] # names of class and group
            if sign * values["change"] > 0:
                ends = sorted(sign * values[["low", "high"]])
                told.append(f"{group} / {label} {verb} {between(sign * values['change'], *ends)} points")
    if len(changed):
        most = " and ".join(told)
        yield f"By {by}, from {predictions[0]} to {predictions[1]}: " + (f"{most} of accuracy." if told else "no accuracy changes.")
