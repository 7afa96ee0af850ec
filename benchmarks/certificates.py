"""Check certificates by simulation, and on Adult from end to end.

python benchmarks/certificates.py all       # some minutes on one idle core
python benchmarks/certificates.py page      # write docs/certificates.md from what is kept; nothing is drawn or trained
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pages
from scipy.special import betainccinv, betaincinv

from fairdro import FairDROBoostingClassifier, FairDROClassifierCV, load_dataset
from fairdro._utils.markdown import markdown_table
from fairdro.bounds import gap_bound
from fairdro.certificates import rows_needed
from fairdro.errors import InputError
from fairdro.frontier import non_dominated
from fairdro.metrics import confusion
from fairdro.selection import CertifiedDCA

DELTA, DRAWS, RESAMPLED = 0.05, 2000, 400
WANTED = (0.10, 0.05, 0.04)  # the DCA that planned rows are to certify
Bound = Callable[[np.ndarray, np.ndarray, float], np.ndarray]
ADULT = np.array([[0.460, 0.288], [0.203, 0.049]])  # shares of men and women, below and above 50K, rounded
SETTINGS: dict[str, tuple[list[list[float]], list[list[int]]]] = {
    "2 x 2, no gap, 50 rows a cell": ([[0.8, 0.8]] * 2, [[50, 50]] * 2),
    "2 x 2, no gap, 1,000 a cell": ([[0.8, 0.8]] * 2, [[1000, 1000]] * 2),
    "2 x 2, gap 10, 50 a cell": ([[0.85, 0.75]] * 2, [[50, 50]] * 2),
    "2 x 2, gap 10, 1,000 a cell": ([[0.85, 0.75]] * 2, [[1000, 1000]] * 2),
    "2 x 2, few errors, 30 a cell": ([[0.99, 0.97]] * 2, [[30, 30]] * 2),
    "2 x 2, a gap in errors of 1 %, 40 a cell": ([[1.0, 0.99]] * 2, [[2000, 40]] * 2),
    "2 x 2, cells like Adult's, 9,000": ([[0.82, 0.86], [0.80, 0.82]], (9000 * ADULT).astype(int).tolist()),
    "2 x 2, cells like Adult's, 36,000": ([[0.82, 0.86], [0.80, 0.82]], (36000 * ADULT).astype(int).tolist()),
    "1 fair class x 2, 300 and 1,000": ([[0.8, 0.9]], [[300, 1000]]),
    "3 x 4, 200 a cell": ([[0.7, 0.75, 0.8, 0.8], [0.6, 0.6, 0.5, 0.55], [0.9, 0.92, 0.85, 0.9]], [[200] * 4] * 3),
    "3 x 6, 20 to 3,000": ([[0.7, 0.6, 0.8, 0.75, 0.72, 0.7]] * 3, [[100, 200, 300, 1000, 3000, 20]] * 3),
    "4 x 6, 1,000 a cell": ([[0.7, 0.6, 0.8, 0.75, 0.72, 0.7]] * 4, [[1000] * 6] * 4),
    "4 x 2, 5,000 a cell": ([[0.9, 0.85], [0.7, 0.72], [0.8, 0.8], [0.95, 0.9]], [[5000] * 2] * 4),
}


def cell_ends(right: np.ndarray, sizes: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Return Clopper-Pearson's lower and upper bounds of every cell, each one-sided."""
    with np.errstate(invalid="ignore", divide="ignore"):
        low = np.where(right <= 0, 0.0, betaincinv(right, sizes - right + 1, level))
        high = np.where(right >= sizes, 1.0, betainccinv(right + 1, sizes - right, level))
    return low, high


def bonferroni(right: np.ndarray, sizes: np.ndarray, delta: float) -> np.ndarray:
    """Return the baseline: intervals of all cells, delta spread over them and their two sides."""
    low, high = cell_ends(right, sizes, delta / (2 * sizes.size))
    return (high.max(-1) - low.min(-1)).sum(-1)


def sidak(right: np.ndarray, sizes: np.ndarray, delta: float) -> np.ndarray:
    """Return one-sided bounds of two cells per class, delta spread by independence; pairs of groups cost nothing."""
    low, high = cell_ends(right, sizes, 1 - (1 - delta) ** (1 / (2 * len(sizes))))
    pairs = high[..., :, None] - low[..., None, :]
    pairs[..., np.arange(sizes.shape[1]), np.arange(sizes.shape[1])] = -np.inf
    return pairs.max((-2, -1)).sum(-1)


def bootstrap(right: np.ndarray, sizes: np.ndarray, delta: float) -> np.ndarray:
    """Return the percentile bootstrap's bound, drawn within cells: not valid at finite samples."""
    rng, out = np.random.default_rng(1), np.empty(len(right))
    for first in range(0, len(right), 100):
        rates = right[first : first + 100] / sizes
        drawn = rng.binomial(sizes.astype(int), rates, size=(RESAMPLED, *rates.shape)) / sizes
        out[first : first + 100] = np.quantile((drawn.max(-1) - drawn.min(-1)).sum(-1), 1 - delta, axis=0)
    return out


BOUNDS: dict[str, Bound] = {"fairdro": gap_bound, "Bonferroni": bonferroni, "Sidak": sidak, "bootstrap": bootstrap}


def percent(share: float) -> str:
    """Write percent with one digit."""
    return f"{100 * share:.1f}"


def validity(given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Draw rows of known accuracies; return how large each bound is, and how often it is too small."""
    rng, figures = np.random.default_rng(0), {}
    for name, (accuracy, counts) in SETTINGS.items():
        rates, sizes = np.array(accuracy), np.array(counts, dtype=np.float64)
        truth = (rates.max(-1) - rates.min(-1)).mean()
        right = rng.binomial(sizes.astype(int), rates, size=(DRAWS, *sizes.shape)).astype(np.float64)
        observed = (right / sizes).max(-1) - (right / sizes).min(-1)
        found = {name: bound(right, sizes, DELTA) / len(sizes) for name, bound in BOUNDS.items()}
        figures[name] = {"true": float(truth), "observed": float(observed.mean())} | {
            bound: [float(values.mean()), float((values < truth - 1e-12).mean())] for bound, values in found.items()
        }
    return figures


def show_validity(found: dict[str, dict[str, Any]]) -> str:
    """Return the table of bounds."""
    rows = [
        [
            name,
            percent(own["true"]),
            percent(own["observed"]),
            *(f"{percent(own[b][0])} ({percent(own[b][1])})" for b in BOUNDS),
        ]
        for name, own in found.items()
    ]
    return markdown_table(["classes x groups", "true DCA", "observed, mean", *BOUNDS], rows)


def frontier_rates(steps: int = 20) -> np.ndarray:
    """Return the true accuracies of radii ``(P, Y, A)``: the gap falls from 16 % to 2 %, and accuracy from 83 to 79 %."""
    middle, gap = np.linspace(0.83, 0.79, steps), np.linspace(0.16, 0.02, steps)
    return np.stack([np.stack([middle + s * gap / 2, middle - s * gap / 2], -1) for s in (1, -1)], 1)


def draw_frontier(rates: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw successes of all radii on the same rows ``(draws, P, Y, A)``: what is right at one rate is so at larger ones."""
    out = np.empty((DRAWS, *rates.shape))
    for y, a in np.ndindex(sizes.shape):
        order = np.argsort(rates[:, y, a])
        steps = np.diff(rates[order, y, a], prepend=0.0, append=1.0)
        out[:, order, y, a] = rng.multinomial(int(sizes[y, a]), steps, size=DRAWS).cumsum(-1)[:, :-1]
    return out


def choosing(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Choose among 20 radii by certificates; return how often the chosen one's gap is larger than the limit."""
    rng, rows = np.random.default_rng(2), []
    rates = frontier_rates()
    gaps, accuracy = (rates.max(-1) - rates.min(-1)).mean(-1), rates.mean((-2, -1))
    for total, place in ((2000, 9), (9000, 13), (36000, 16)):
        limit = gaps[place] - 1e-9  # the next radius is hardly above it: the hardest case
        held, sizes = ((share * total * ADULT).astype(int).astype(float) for share in (4, 1))
        seen = draw_frontier(rates, held, rng) / held
        right = draw_frontier(rates, sizes, rng)
        flat = right.reshape(-1, *sizes.shape)
        bound = {
            level: np.concatenate([gap_bound(part, sizes, level) for part in np.array_split(flat, 4)]).reshape(DRAWS, -1) / 2
            for level in (DELTA, DELTA / len(rates))
        }
        point = ((right / sizes).max(-1) - (right / sizes).min(-1)).mean(-1)
        own_accuracy = (right / sizes).mean((-2, -1))
        walked = np.full(DRAWS, -1)
        for draw in range(DRAWS):
            order = non_dominated(seen[draw].mean((-2, -1)), (seen[draw].max(-1) - seen[draw].min(-1)).mean(-1))[::-1]
            passed = bound[DELTA][draw, order] <= limit
            reached = len(order) if passed.all() else int(np.argmin(passed))
            walked[draw] = order[reached - 1] if reached else -1
        ways = {
            "fixed sequence (CertifiedDCA)": walked,
            "each at delta / 20": _most_accurate(own_accuracy, bound[DELTA / len(rates)] <= limit),
            "each at delta, the best taken": _most_accurate(own_accuracy, bound[DELTA] <= limit),
            "observed DCA (LimitDCA)": _most_accurate(own_accuracy, point <= limit),
        }
        for name, chosen in ways.items():
            some = chosen >= 0
            wrong = (gaps[chosen[some]] > limit).sum() / DRAWS
            figures = {"above": float(wrong), "chosen": float(some.mean()), "accuracy": None}
            if some.any():
                figures["accuracy"] = float(accuracy[chosen[some]].mean())
            rows.append({"rows": total, "limit": float(limit), "rule": name} | figures)
    return rows


def show_choosing(found: list[dict[str, Any]]) -> str:
    """Return the table of rules."""
    rows = [
        [f"{own['rows']:,} rows, at most {percent(own['limit'])} %", own["rule"],
         percent(own["above"]), percent(own["chosen"]), "" if own["accuracy"] is None else f"{100 * own['accuracy']:.2f}"]
        for own in found
    ]  # fmt: skip
    return markdown_table(
        ["certification rows, limit", "rule", "gap above the limit", "chosen at all", "true accuracy"], rows
    )


def _most_accurate(accuracy: np.ndarray, eligible: np.ndarray) -> np.ndarray:
    return np.where(eligible.any(1), np.where(eligible, accuracy, -1).argmax(1), -1)


def planning(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Plan rows for bounds, on cells like Adult's and equal ones; return also the share of draws that they certify."""
    rng, rows = np.random.default_rng(3), []
    for gap in (0.01, 0.02, 0.03):
        rates = np.array([[0.85, 0.85 - gap], [0.80, 0.80 + gap]])
        for name, shares in {"like Adult's": ADULT, "equal": np.full((2, 2), 0.25)}.items():
            plans = []
            for wanted in WANTED:
                plan = rows_needed(rates, wanted, shares=shares)
                right = rng.binomial(plan.cells, rates, size=(DRAWS, 2, 2)).astype(float)
                reached = (gap_bound(right, plan.cells.astype(float), DELTA) / 2 <= wanted).mean()
                plans.append([str(plan), float(reached)])
            rows.append({"dca": gap, "cells": name, "plans": plans})
    return rows


def show_planning(found: list[dict[str, Any]]) -> str:
    """Return the table of plans."""
    rows = [
        [f"{100 * own['dca']:g}", own["cells"], *(f"{plan} ({100 * reached:.0f} %)" for plan, reached in own["plans"])]
        for own in found
    ]
    first, *others = (f"{100 * wanted:g} %" for wanted in WANTED)
    return markdown_table(["DCA, percent", "cells", f"to certify {first}", *others], rows)


def adult(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Certify Adult from end to end, and look at test rows that were not used for anything."""
    data, rows = load_dataset("adult"), []
    X, order = data.X.to_numpy(np.float64), np.random.default_rng(0).permutation(len(data.y))
    train, test = np.split(order, [int(0.7 * len(order))])
    for limit in (0.05, 0.02):
        for name, made in {"linear": FairDROClassifierCV, "boosted trees": FairDROBoostingClassifier}.items():
            asked = f"{name}, at most {100 * limit:g} %"
            try:
                model = made(rule=CertifiedDCA(limit)).fit(X[train], data.y[train], sensitive_features=data.a[train])
            except InputError as error:
                rows.append({"asked": asked, "says": str(error).partition("Of the fairest: ")[2]})
                continue
            judged = confusion(data.y[test], model.predict(X[test]), sensitive_features=data.a[test])
            gap = judged.metrics().loc["dca"]
            rows.append(
                {"asked": asked, "rho": float(model.rho_), "observed": float(model.certificate_.observed["dca"]),
                 "dca": [float(gap[name]) for name in ("value", "low", "high")],
                 "accuracy": float(judged.metric("accuracy")), "says": model.certificate_.sentence()}
            )  # fmt: skip
    return rows


def show_adult(found: list[dict[str, Any]]) -> str:
    """Return the table of certificates."""
    rows = []
    for own in found:
        figures = [""] * 4
        if "rho" in own:
            gap, low, high = map(percent, own["dca"])
            figures = [f"{own['rho']:.3g}", percent(own["observed"]), f"{gap} ({low} to {high})", percent(own["accuracy"])]
        rows.append([own["asked"], *figures, own["says"]])
    return markdown_table(["model, limit", "rho", "observed", "test DCA", "test accuracy", "what it says"], rows)


PARTS = {"validity": validity, "choosing": choosing, "planning": planning, "adult": adult}
SHOWN = {"validity": show_validity, "choosing": show_choosing, "planning": show_planning, "adult": show_adult}


def main() -> None:
    """Measure what is asked for, or write the page."""
    warnings.simplefilter("ignore")
    pages.run(pages.command(__doc__), "certificates", PARTS, page)


def page(kept: dict[str, Any]) -> dict[str, str]:
    """Return the parts of the page."""
    return {name: show(kept[name]) for name, show in SHOWN.items()}


if __name__ == "__main__":
    main()
