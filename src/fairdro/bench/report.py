"""The report: one HTML page that holds its data, style and script, made from the store alone."""

import json
import re
from collections.abc import Hashable, Sequence
from html import escape
from importlib import metadata, resources
from typing import Any

import numpy as np
import pandas as pd

from fairdro._utils.markdown import percent
from fairdro._utils.pages import fill
from fairdro.bench.bank import ALL, BENCH
from fairdro.bench.store import MODEL, Outcome
from fairdro.bench.summary import Summary
from fairdro.bench.tables import (
    MEASURES,
    PAPER_RULE,
    bench_title,
    find_point,
    guard_of,
    how_trained,
    judged_points,
    paper_figures,
    searched,
    varying,
)
from fairdro.frontier import convex_envelope
from fairdro.methods import METHODS, get_method
from fairdro.selection import Guard, KeepAccuracy, Rule, who_pays
from fairdro.who_pays import who_pays_most

CHOSEN_ON = {
    "paper": "The paper's protocol chooses on the test part and judges on it too, which is optimistic.",
    "validated": "The validated protocol chooses on a validation part and judges on the test part.",
}

Row = dict[Hashable, Any]
"""A row of a table, by the names of its columns."""


def build_report(summary: Summary) -> str:
    """Return the report as an HTML page, which needs nothing but a browser.

    The slider of the page is about accuracy to keep, and starts at the share of the selection rule if it has one.
    """
    points, rule = summary.points, summary.rule
    named = varying(points)
    banks: dict[Any, list[Outcome]] = {}
    for outcome in summary.outcomes:
        banks.setdefault(tuple(outcome.bank.bench.values()), []).append(outcome)
    chosen_in = dict(iter(summary.selected.groupby(BENCH, sort=False)))
    benches, cards = [], []
    for key, part in points.groupby(BENCH, sort=False):
        selected = chosen_in[key]
        bench = _bench(bench_title(part.iloc[0], named), part, selected, banks[key])
        guard = guard_of(bench["protocol"], summary.guard)
        bench["guard"] = None if guard is None else [guard.keep_class_accuracy, guard.floor]
        benches.append(bench)
        cards.append(_card(bench, selected, rule, _who_pays(selected, banks[key])))
    methods = {name: (method.__doc__ or "").partition("\n")[0] for name, method in METHODS.items()}
    kept = rule if isinstance(rule, KeepAccuracy) else PAPER_RULE
    data = {"keep": kept.keep_accuracy, "methods": methods, "benches": benches}
    template = resources.files("fairdro.bench").joinpath("report.html").read_text(encoding="utf-8")
    told = escape(_how_chosen(rule, summary.guard, [bench["protocol"] for bench in benches]))
    version = escape(metadata.version("fairdro"))
    return fill(template, version=version, summary="\n".join(cards), rule=told, data=_embedded(data))


def _bench(title: str, points: pd.DataFrame, selected: pd.DataFrame, outcomes: list[Outcome]) -> dict[str, Any]:
    """Return all the page needs of a bench, as plain data."""
    trained = sorted((o for o in outcomes if o.refused is None), key=lambda o: len(o.bank.seeds))
    first = trained[0]
    judged = judged_points(points)
    plain = next((o for o in trained if o.bank.method.name == "scratch"), None)
    models = {(o.bank.method.name, key): model for o in trained for key, model in _models(o, plain).items()}
    paper = {row["method"]: paper_figures(row) for _, row in selected.iterrows()}
    methods = []
    for name in points["method"].unique().tolist():
        curve = points[points["method"] == name]
        sound = np.flatnonzero(~curve["diverged"])
        measures = curve[["accuracy", "dca"]].iloc[sound].to_numpy().T
        methods.append(
            {
                "name": name,
                "search": list(get_method(name).search),
                "points": [
                    _point(row, judged.loc[i]) | models[name, row["hyperparameters"]]
                    for i, row in zip(curve.index, curve.to_dict("records"), strict=True)
                ],
                "envelope": sound[convex_envelope(*measures)].tolist() if len(sound) else [],
                "paper": [paper[name].get(title, "") for title in MEASURES],
            }
        )
    refused = [{"name": o.bank.method.name, "refused": o.refused} for o in outcomes if o.refused is not None]
    return {
        "title": title,
        "how": how_trained(points.iloc[0]),
        "kin": json.dumps([str(points[name].iloc[0]) for name in BENCH if name not in MODEL]),
        **{name: str(points[name].iloc[0]) for name in BENCH},
        "classes": first.class_names,
        "groups": first.group_names,
        "counts": first.confusion["test"][0, 0].sum(-1).reshape(-1).astype(int).tolist(),
        "seeds": int(points["seeds"].max()),
        "methods": [*methods, *refused],
    }


def _point(row: Row, judged: pd.Series) -> dict[str, Any]:
    """Return the metrics of a point, and those to choose by; unrounded, so that the page chooses as :func:`select` does."""
    measures = ["accuracy", "dca", "worst_accuracy"]
    return {
        "hyperparameters": json.loads(row["hyperparameters"]),
        "diverged": bool(row["diverged"]),
        "judged": judged[measures].tolist(),
        "classes": [None if np.isnan(v) else v for v in judged.filter(like="class_accuracy_")],
        "mean": [row[name] for name in measures],
        "std": _plain([row[f"{name}_std"] for name in measures]),
        "seconds": round(row["seconds"], 4),
    }


def _models(outcome: Outcome, plain: Outcome | None) -> dict[str, dict[str, Any]]:
    """Return the cells (mean over seeds), the history (first seed) and who loses most, by hyperparameters."""
    pays = None if plain is None else [who_pays_most(plain.judged[0], chosen) for chosen in outcome.judged]
    return {
        json.dumps(outcome.bank.method.hyperparameters(point)): {
            **{name: _plain(values[point].reshape(-1)) for name, values in outcome.cells.items()},
            "pays": "" if pays is None else pays[point],
            "epochs": _plain(outcome.progress),
            "weights": _thousandths(outcome.weights[:, 0, point]),
            "training": _thousandths(outcome.accuracy[:, 0, point]),
        }
        for point in range(outcome.bank.method.points)
    }


def _plain(values: Sequence[float] | np.ndarray) -> list[float | None]:
    """Return numbers short enough for a page; JSON knows no NaN."""
    return [round(float(v), 5) if np.isfinite(v) else None for v in values]


def _thousandths(history: np.ndarray) -> list[list[int | None]]:
    """Return a history ``(T, Y, A)`` as whole thousandths, a list per cell."""
    thousandths = np.where(np.isfinite(history), np.rint(1000 * history), np.nan).reshape(len(history), -1).T
    return [[int(v) if v == v else None for v in cell] for cell in thousandths.tolist()]  # noqa: PLR0124 - NaN is not itself


def _who_pays(selected: pd.DataFrame, outcomes: list[Outcome]) -> str:
    """Say who loses and gains by FairDRO's chosen point against plain training, on the test part with the first seed."""
    rows = {str(row["method"]): row for _, row in selected[selected["accuracy"].notna()].iterrows()}
    if not {"scratch", "fairdro"} <= set(rows):
        return ""
    found = [find_point(outcomes, rows[name]) for name in ("scratch", "fairdro")]
    plain, chosen = (outcome.judged[point] for outcome, point in found)
    return " ".join(who_pays(plain, chosen, most=2))


def _card(bench: dict[str, Any], selected: pd.DataFrame, rule: Rule, pays: str) -> str:
    """Say in plain words what fairness costs on a bench: HTML."""
    ranked = selected[selected["accuracy"].notna()].sort_values(["dca", "accuracy"], ascending=[True, False])
    told = {row["method"]: searched(row) for _, row in ranked.iterrows()}
    rows: dict[str, Row] = {row["method"]: row for row in ranked.to_dict("records")}
    plain = rows.get("scratch")
    names = [name for name in rows if name != "scratch"]
    hero = "fairdro" if "fairdro" in names else next(iter(names), None)
    figures, sentences = "", []
    if plain is not None:
        sentences.append(
            f"On {bench['dataset']}, plain training (scratch) gets {percent(plain['accuracy'])} % and treats groups "
            f"differently by {percent(plain['dca'])} points (DCA): of 100 people of the same class, so many more are judged "
            "rightly in the best served group than in the worst, on the mean of the classes."
        )
    else:
        sentences.append("There is no plain training (scratch) to compare with; the most accurate model stands in for it.")
    if "fairdro" in set(selected["method"]) and "fairdro" not in names:
        sentences.append(f"FairDRO has no point to choose by the selection rule: {rule}.")
    if hero is not None:
        first = names[0]
        fairer = sum(rows[name]["dca"] < rows[hero]["dca"] for name in names)
        sentences.append(_effect(_called(hero, told), rows[hero], plain))
        if len(names) > 1:
            sentences.append(_fairest(hero, fairer, _called(first, told), rows[first], plain))
        figures = _figures(hero, rows[hero], plain) if plain is not None else ""
    sentences += [f"Who pays, on the test part: {pays}"] if pays else []
    text = " ".join(sentences).replace(" %", "\u00a0%").replace(" = ", "\u00a0=\u00a0")
    return (
        f'<article class="card"><h3>{escape(bench["title"])}</h3>{figures}<p>{escape(text)}</p>'
        f'<p class="quiet">{escape(_circumstances(bench))}</p></article>'
    )


def _called(name: str, told: dict[str, str]) -> str:
    """Name a method with its chosen hyperparameters."""
    return f"{_spoken(name)} at {told[name]}" if told[name] else _spoken(name)


def _effect(called: str, row: Row, plain: Row | None) -> str:
    if plain is None:
        return f"{called} gets {percent(row['accuracy'])} % with a DCA of {percent(row['dca'])} points."
    change = "brings that down to" if row["dca"] < plain["dca"] else "does not lower that: it has"
    return f"{called} {change} {percent(row['dca'])} points{_price(row, plain)}."


def _fairest(hero: str, fairer: int, called: str, row: Row, plain: Row | None) -> str:
    if fairer == 0:
        return f"Fairest method: {_spoken(hero)}, no other has a smaller DCA at this accuracy."
    price = "" if plain is None else _price(row, plain)
    count = "1 method is" if fairer == 1 else f"{fairer} methods are"
    return f"Fairest method: {called}, with {percent(row['dca'])} points{price}; {count} fairer than {_spoken(hero)} here."


def _price(row: Row, plain: Row) -> str:
    lost = plain["accuracy"] - row["accuracy"]
    return f" for {percent(lost)} points of accuracy" if lost >= 0 else f" and gains {percent(-lost)} points of accuracy"


def _figures(name: str, row: Row, plain: Row) -> str:
    units = {"dca": "points between groups (DCA)", "accuracy": "% judged rightly (balanced accuracy)"}
    lines = [
        f"<div><dt>{unit}</dt><dd>{percent(plain[key])} <span>→</span> <strong>{percent(row[key])}</strong></dd></div>"
        for key, unit in units.items()
    ]
    return f'<p class="from-to">plain training → {escape(_spoken(name))}</p><dl class="figures">{"".join(lines)}</dl>'


def _how_chosen(rule: Rule, guard: Guard, protocols: list[str]) -> str:
    """Say how models were chosen, and how far their figures can be trusted."""
    chosen_on = " ".join(CHOSEN_ON[protocol] for protocol in dict.fromkeys(protocols))
    guarded = f" {guard}" if "validated" in protocols and str(guard) else ""
    return (
        f"Of every method, the {rule}{guarded}. {chosen_on} Every bench is one split, and small cells are judged by few "
        "samples: small differences between methods may be chance."
    )


def _circumstances(bench: dict[str, Any]) -> str:
    """Say how a bench was run."""
    cells = [f"{name}, {group}" for name in bench["classes"] for group in bench["groups"]]
    smallest = min(range(len(cells)), key=bench["counts"].__getitem__)
    seeds = "one training per point" if bench["seeds"] == 1 else f"means over {bench['seeds']} seeds"
    fair = "" if bench["fair_classes"] == ALL else f" Gaps are of {bench['fair_classes']}."
    counted = {"balanced": "every class and group counts the same", "standard": "every row counts the same"}
    return (
        f"Data: {bench['dataset']}, split {bench['split']}. How it was trained: {bench['how']}; "
        f"{counted[bench['objective']]} ({bench['objective']} objective); {seeds}. {bench['protocol'].capitalize()} "
        f"protocol.{fair} Smallest test cell: {cells[smallest]}, {bench['counts'][smallest]} samples."
    )


def _spoken(name: str) -> str:
    return {"fairdro": "FairDRO", "scratch": "plain training"}.get(name, name)


def _embedded(data: dict[str, Any]) -> str:
    """Return JSON that cannot end the script element it stands in, whatever the names in it are."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", text)
