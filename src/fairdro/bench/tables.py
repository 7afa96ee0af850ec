"""From rows to the comparison a person reads: the selected point of every method, ours beside the paper's."""

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd

from fairdro._utils.markdown import markdown_table
from fairdro.bench.bank import ALL, BENCH, NO_NETWORK
from fairdro.bench.store import Outcome
from fairdro.errors import InputError
from fairdro.methods import get_method
from fairdro.metrics import METRICS
from fairdro.selection import Guard, KeepAccuracy, Rule, choose
from fairdro.training.engines import NETWORK, NETWORK_HEAD

PAPER_RULE = KeepAccuracy()
DEFAULT_GUARD = Guard()
POINT = [*BENCH, "method", "hyperparameters"]
SOLVERS = {
    "fullbatch": "full-batch training", "minibatch": "mini-batch training", "weights": "weights inside boosting",
    "out_of_fold": "full-batch training by out-of-fold errors", "head": "a head on held-out probabilities",
    "network": "trained from end to end", "network+head": "trained from end to end, with a head on held-out probabilities",
}  # fmt: skip
PAPER_MODELS = {
    "adult": "linear", "compas": "linear", "utkface": "resnet18", "celeba": "resnet18", "civilcomments": "encoder",
}  # fmt: skip
MEASURES = {"accuracy": "accuracy", "DCA": "dca", "worst acc.": "worst_accuracy"}


@cache
def paper_results() -> pd.DataFrame:
    """Return the paper's selected points: percent, mean and standard deviation over 4 seeds."""
    text = resources.files("fairdro.bench").joinpath("paper.json").read_text(encoding="utf-8")
    return pd.DataFrame(json.loads(text))


def over_seeds(results: pd.DataFrame) -> pd.DataFrame:
    """Return mean and sample standard deviation over the seeds of every point, a row per point."""
    measures = [c for c in results.columns if c not in [*POINT, "seed", "diverged"]]
    grouped = results.groupby(POINT, sort=False)
    table = grouped[measures].mean()
    spread = grouped[[*MEASURES.values(), "standard_accuracy"]].std().rename(columns=lambda c: c + "_std")
    table = table.join(spread).join(grouped.size().rename("seeds")).join(grouped["diverged"].any())
    return table.reset_index()


def select(points: pd.DataFrame, rule: Rule = PAPER_RULE, guard: Guard = DEFAULT_GUARD) -> pd.DataFrame:
    """Choose one point of every method by a selection rule, a row per method and bench; the column ``why`` says why.

    Points, from :func:`over_seeds`, are judged on the validation part where there is one, else on the test part as in the
    paper. Where Scratch is not among the methods, the most accurate point stands in for it; networks with a head are
    measured by Scratch without one. Diverged models are not chosen;
    a method none of whose points is eligible has an empty row. The guard against levelling down is for the validated
    protocol; the paper's has none.
    """
    chosen = []
    for _, bench in points.groupby(BENCH, sort=False):
        judged = judged_points(bench)[~bench["diverged"]]
        guarded = guard_of(bench["protocol"].iloc[0], guard)
        methods = bench["method"][judged.index]
        plain = _plain(points, bench, judged)
        for name, curve in bench.groupby("method", sort=False):
            eligible = judged[methods == name]
            row, why = curve.iloc[0].copy(), "All models diverged"
            row[["hyperparameters", *(c for c in curve.columns if c not in POINT)]] = None
            if len(eligible):
                try:
                    choice = choose(rule, eligible, plain.iloc[int(plain["accuracy"].argmax())], guarded)
                    row, why = curve.loc[eligible.index[choice.index]], choice.why
                except InputError as error:
                    why = str(error).split(";")[0]
            chosen.append(pd.concat([row, pd.Series({"why": why})]))
    return pd.DataFrame(chosen).reset_index(drop=True)


def _plain(points: pd.DataFrame, bench: pd.DataFrame, judged: pd.DataFrame) -> pd.DataFrame:
    """Return the points of plain training that a bench is measured by: of networks without a head, if there are any."""
    (solver,) = set(bench["solver"])
    if solver == NETWORK_HEAD:
        same = [name for name in BENCH if name != "solver"]
        without = points[(points[same] == bench[same].iloc[0]).all(axis=1) & (points["solver"] == NETWORK)]
        without = without[(without["method"] == "scratch") & ~without["diverged"]]
        if len(without):
            return judged_points(without)
    plain = judged[bench.loc[judged.index, "method"] == "scratch"]
    return plain if len(plain) else judged


def guard_of(protocol: str, guard: Guard) -> Guard | None:
    """Return the guard of a bench: none with the paper's protocol, which is the paper's own rule."""
    return None if protocol == "paper" else guard


def judged_points(bench: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics to choose by, as a selection rule gets them: ``accuracy`` is that of the objective."""
    validated = "validation_accuracy" in bench and bench["validation_accuracy"].notna().all()
    prefix = "validation_" if validated else ""
    metrics = bench.filter(regex=rf"^{prefix}({'|'.join(METRICS)}|class_accuracy_\d+)$")
    metrics = metrics.rename(columns=lambda name: name.removeprefix(prefix)).dropna(axis=1, how="all")
    standard = (bench["objective"].iloc[0], bench["protocol"].iloc[0]) == ("standard", "validated")
    return metrics.assign(accuracy=metrics["standard_accuracy"]) if standard else metrics


def with_intervals(selected: pd.DataFrame, outcomes: list[Outcome]) -> pd.DataFrame:
    """Add the 95 % bootstrap interval of every measure on the test part to single seeds, as ``dca_low`` and ``dca_high``.

    Shares of soft groups have none.
    """
    bounds: list[dict[str, float]] = []
    for _, chosen in selected.iterrows():
        if pd.isna(chosen["accuracy"]) or chosen["seeds"] > 1:
            bounds.append({})
            continue
        outcome, point = find_point(outcomes, chosen)
        metrics = outcome.judged[point].metrics()
        measures = shown_measures(selected).values()
        bounds.append({f"{m}_{end}": float(metrics[end][m]) for m in measures for end in ("low", "high")})
    return selected.join(pd.DataFrame(bounds, index=selected.index))


def find_point(outcomes: list[Outcome], chosen: pd.Series) -> tuple[Outcome, int]:
    """Return the outcome and the point of its bank that a selected row is about."""
    wanted = json.loads(chosen["hyperparameters"])
    where = [chosen["method"], *chosen[BENCH]]
    for outcome in outcomes:
        method = outcome.bank.method
        if [method.name, *outcome.bank.bench.values()] == where:
            for point in range(method.points):
                if method.hyperparameters(point) == wanted:
                    return outcome, point
    raise LookupError(f"no stored bank holds {where} with {wanted}")


def how_chosen(results: pd.DataFrame, rule: Rule = PAPER_RULE, guard: Guard = DEFAULT_GUARD) -> str:
    """Say in a line how :func:`select` chose."""
    parts = {"paper": "test part, as the paper does", "validated": "validation part"}
    part = "; ".join(parts[protocol] for protocol in dict.fromkeys(results["protocol"]))
    text = str(rule) if "scratch" in set(results["method"]) else str(rule).replace("plain training's", "the best")
    guarded = f" {guard}" if "validated" in set(results["protocol"]) and str(guard) else ""
    return f"{text[0].upper()}{text[1:]}{guarded}, chosen on the {part} (percent)"


def findings(selected: pd.DataFrame) -> list[str]:
    """Say in a line per dataset and solver what fairness costs: plain training, FairDRO, and the fairest of all."""
    lines = []
    for _, bench in selected[selected["accuracy"].notna()].groupby(BENCH, sort=False):
        figures = {
            str(name): (100 * float(accuracy), 100 * float(dca))
            for name, accuracy, dca in zip(bench["method"], bench["accuracy"], bench["dca"], strict=True)
        }
        fair = [name for name in figures if name != "scratch"]
        fairest = min(fair, key=lambda name: figures[name][1], default="scratch")
        shown = [name for name in dict.fromkeys(["scratch", "fairdro", fairest]) if name in figures]
        told = ", ".join(f"{name} {figures[name][0]:.2f} / {figures[name][1]:.2f}" for name in shown)
        where = bench_title(bench.iloc[0], ["model", "solver", *varying(selected)])
        best = f"; fairest of {len(fair)} fair methods: {fairest}" if len(fair) > 1 else ""
        lines.append(f"{where} (accuracy / DCA): {told}{best}.")
    return lines


def varying(table: pd.DataFrame) -> list[str]:
    """Name what tells the benches of a table apart, beside the dataset."""
    return [name for name in BENCH[1:] if table[name].nunique() > 1]


def bench_title(row: pd.Series, named: Sequence[str]) -> str:
    """Name the bench of a row: its dataset and, of what describes it, some words on how it was trained."""
    words = {"split": "split {}", "objective": "{} objective", "protocol": "{} protocol", "model": "{} model"}
    words |= {"fair_classes": "fair: {}", "solver": SOLVERS[row["solver"]]}
    how = [words.get(name, "{}").format(row[name]) for name in dict.fromkeys(named) if row[name] != NO_NETWORK]
    return f"{row['dataset']}: {', '.join(how)}" if how else str(row["dataset"])


def how_trained(row: pd.Series) -> str:
    """Name the model and the solver of a row in words."""
    return ", ".join(word for word in (row["model"], row["network"], SOLVERS[row["solver"]]) if word != NO_NETWORK)


def comparison(selected: pd.DataFrame, refused: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the table for people, as text: percent, mean ± standard deviation over seeds, the paper's figures beside ours.

    With the columns of :func:`with_intervals`, a single seed shows its 95 % interval. What was refused says N/A and why.
    """
    named = ["dataset", *(c for c in BENCH[1:] if c == "solver" or c in varying(selected))]
    rows: list[dict[str, str]] = []
    for _, row in selected.iterrows():
        shown = {"method": str(row["method"]), **{c: str(row[c]) for c in named}}
        if pd.isna(row["accuracy"]):
            rows.append(shown | {"chosen": f"N/A: {row['why']}"})
            continue
        shown["chosen"] = searched(row)
        for title, measure in shown_measures(selected).items():
            interval = [100 * row.get(f"{measure}_{end}", np.nan) for end in ("low", "high")]
            shown[title] = _figure(100 * row[measure], 100 * row[f"{measure}_std"], interval)
        rows.append(shown | {f"paper: {title}": figure for title, figure in paper_figures(row).items()})
    for refusal in [] if refused is None else refused.to_dict("records"):
        told = {c: str(refusal[c]) for c in ["method", *named]}
        rows.append(told | {"chosen": f"N/A: {str(refusal['reason']).split(';')[0]}"})
    titles = [*shown_measures(selected), *(f"paper: {title}" for title in MEASURES)]
    columns = ["dataset", "method", *(c for c in named if c != "dataset"), "chosen", *titles]
    table = pd.DataFrame([dict.fromkeys(columns, "") | row for row in rows], columns=columns)
    table = table.sort_values("dataset", kind="stable", ignore_index=True)
    return table.loc[:, [c for c in columns if not c.startswith("paper") or table[c].ne("").any()]]


def shown_measures(selected: pd.DataFrame) -> dict[str, str]:
    """Name the measures of a table for people; where an objective is the standard one, with ordinary accuracy."""
    standard = {"correct": "standard_accuracy"} if (selected["objective"] == "standard").any() else {}
    return {"accuracy": "accuracy"} | standard | MEASURES


def paper_figures(row: pd.Series) -> dict[str, str]:
    """Return the paper's figures for the method of a row, given its model and protocol; a network may have any size."""
    paper = paper_results().set_index(["dataset", "method"])
    key = (row["dataset"], row["method"])
    told = [row[name] for name in ("model", "protocol", "split", "objective", "fair_classes")]
    as_there = told == [PAPER_MODELS.get(row["dataset"]), "paper", 0, "balanced", ALL]
    if key not in paper.index or not as_there:
        return {}
    theirs = paper.loc[key]
    return {title: _figure(theirs[m], theirs.get(f"{m}_std", np.nan)) for title, m in MEASURES.items()}


def searched(row: pd.Series) -> str:
    """Name the hyperparameters of a selected row that were searched."""
    hyperparameters = json.loads(row["hyperparameters"])
    return ", ".join(f"{key} = {hyperparameters[key]:.3g}" for key in get_method(row["method"]).search)


def best_of(table: pd.DataFrame) -> dict[str, set[Any]]:
    """Return the rows that are best in accuracy, DCA and worst accuracy of their bench, by column of the table."""
    best: dict[str, set[Any]] = {title: set() for title in MEASURES}
    benches = [c for c in BENCH if c in table.columns]
    for _, part in table.groupby(benches, sort=False):
        for title in MEASURES:
            values = pd.to_numeric(part[title].str.split().str[0], errors="coerce")
            extreme = values.min() if title == "DCA" else values.max()
            if values.notna().sum() > 1:
                best[title] |= set(values.index[np.isclose(values, extreme)])
    return best


def to_markdown(table: pd.DataFrame) -> str:
    """Write a table of text in Markdown, the best of every bench in bold."""
    best = best_of(table)
    rows = [
        [f"**{row[c]}**" if index in best.get(c, ()) else row[c].replace("|", "\\|") for c in table.columns]
        for index, row in table.iterrows()
    ]
    return markdown_table(table.columns, rows)


def to_latex(table: pd.DataFrame) -> str:
    """Write a table of text as a LaTeX tabular, the best of every bench in bold."""
    best = best_of(table)
    rows = [
        [rf"\textbf{{{_latex(row[c])}}}" if index in best.get(c, ()) else _latex(row[c]) for c in table.columns]
        for index, row in table.iterrows()
    ]
    header, *lines = [" & ".join(cells) + r" \\" for cells in [map(_latex, table.columns), *rows]]
    begin = r"\begin{tabular}{" + "l" * len(table.columns) + "}"
    return "\n".join([begin, r"\hline", header, r"\hline", *lines, r"\hline", r"\end{tabular}", ""])


def _latex(text: str) -> str:
    escapes = {"\\": r"\textbackslash{}", "±": r"$\pm$"} | {c: "\\" + c for c in "&%$#_{}"}
    return "".join(escapes.get(c, c) for c in text)


def _figure(mean: float, std: float, interval: Sequence[float] = (np.nan, np.nan)) -> str:
    if np.isnan(mean):
        return ""
    if not np.isnan(std):
        return f"{mean:.2f} ± {std:.2f}"
    return f"{mean:.2f}" if np.isnan(interval[0]) else f"{mean:.2f} ({interval[0]:.1f} to {interval[1]:.1f})"
