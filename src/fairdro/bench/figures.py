"""The pictures of a bench, made from the store: frontiers, ablations, weights over training, cells, time."""

import html
import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import vl_convert

from fairdro._utils.files import write_whole
from fairdro.bench.bank import NO_NETWORK
from fairdro.bench.store import MODEL, Outcome
from fairdro.bench.summary import Summary
from fairdro.bench.tables import bench_title, find_point, varying
from fairdro.frontier import convex_envelope

COLOURS = ["#0072b2", "#000000", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255"]
"""Of Okabe and Ito (2008), told apart by the colour-blind too; wine stands for their yellow, too light on white."""
SHAPES = ["circle", "diamond", "square", "triangle-up", "cross", "triangle-down", "triangle-right", "triangle-left"]
DASHES = [[1, 0], [2, 3], [8, 3], [4, 2], [8, 2, 2, 2], [2, 2], [12, 4], [6, 2, 2, 2, 2, 2]]
MOST_SERIES = len(COLOURS)
FIRST = ("fairdro", "scratch")  # in every picture, with the first colours
ABLATIONS = [
    "scratch", "fairdro", "fairdro_wo_smoothing", "fairdro_wo_classwise", "fairdro_wo_dro", "rvp", "fairdro_nonnegative",
    "classwise_simplex", "group_dro",
]  # fmt: skip
APART: dict[str, Any] = dict.fromkeys(["color", "shape", "strokeDash"], "independent")
Chart = alt.TopLevelMixin


def pictures(summary: Summary) -> Iterator[tuple[str, Chart]]:
    """Give every picture that the results allow, with its name."""
    points, selected = summary.points, summary.selected
    yield "frontier", frontier_chart(points, selected)
    if len(set(points["method"]) & set(ABLATIONS)) > 2:
        kept = [frame[frame["method"].isin(ABLATIONS)] for frame in (points, selected)]
        yield "ablations", frontier_chart(*kept)
    trained = [outcome for outcome in summary.outcomes if outcome.refused is None]
    found = selected[selected["accuracy"].notna()]
    for name, compared in (("training", ["scratch", "fairdro"]), ("smoothing", ["fairdro", "fairdro_wo_smoothing"])):
        if set(compared) <= set(found["method"]):
            yield name, training_chart(found[found["method"].isin(compared)], trained)
    if len(found):
        yield "cells", cells_chart(found, trained)
    yield "seconds", seconds_chart(summary.results)


def frontier_chart(points: pd.DataFrame, selected: pd.DataFrame) -> alt.ConcatChart:
    """Draw every trained point (mean over seeds) and the convex envelope of each method, a panel per bench.

    Models and solvers share a panel, so that they can be compared; a panel has eight series at most, FairDRO and Scratch
    among them, and further ones have the others. Series differ in colour, shape and dash. Scratch, which has no
    hyperparameter, is a diamond with dotted lines through it; selected points are ringed. Lower right is better.
    """
    named = varying(points)
    points = _in_percent(points[~points["diverged"]], named)
    chosen = _in_percent(selected[selected["accuracy"].notna()], named)
    panels = []
    for title, part in points.groupby("bench", sort=False):
        batches = _batches(part)
        for number, names in enumerate(batches, 1):
            shown = f"{title} ({number} of {len(batches)})" if len(batches) > 1 else str(title)
            ringed = chosen[(chosen["bench"] == title) & chosen["series"].isin(names)]
            legend = alt.Legend(title=None, symbolSize=90, labelLimit=260, orient="bottom", columns=4)
            panels.append(_panel(shown, part[part["series"].isin(names)], ringed, looks_of("series", names, legend)))
    chart = alt.concat(*panels, columns=2).configure_view(stroke=None).configure_legend(labelFontSize=15)
    chart = chart.configure_axis(grid=True, gridOpacity=0.4, labelFontSize=14, titleFontSize=15)
    return chart.configure_title(fontSize=17, subtitleFontSize=14).resolve_scale(**APART)


def _batches(points: pd.DataFrame) -> list[list[str]]:
    """Put the series of a bench into pictures of at most eight, evenly: those of FairDRO and Scratch are in all of them."""
    methods = dict(zip(points["series"], points["method"], strict=True))
    first = sorted(
        (name for name, method in methods.items() if method in FIRST), key=lambda name: FIRST.index(methods[name])
    )
    first = first[: MOST_SERIES - 1]
    others = [name for name in methods if name not in first]
    pictures = max(math.ceil(len(others) / (MOST_SERIES - len(first))), 1)
    return [first + [str(name) for name in part] for part in np.array_split(others, pictures)]


def looks_of(field: str, names: list[str], legend: alt.Legend) -> dict[str, Any]:
    """Return colour and shape of series, which make one legend, and the dash of their lines, which has none."""
    told = {"color": (alt.Color, COLOURS), "shape": (alt.Shape, SHAPES)}
    looks: dict[str, Any] = {
        key: kind(f"{field}:N", legend=legend, scale=alt.Scale(domain=names, range=values[: len(names)]))
        for key, (kind, values) in told.items()
    }
    apart = alt.Scale(domain=[*names, ""], range=DASHES)  # channels of one domain share a legend, and also its absence
    return looks | {"strokeDash": alt.StrokeDash(f"{field}:N", legend=None, scale=apart)}


def _in_percent(points: pd.DataFrame, named: list[str]) -> pd.DataFrame:
    """Add the name of each point's panel and curve, given what tells the benches apart."""
    told = [name for name in named if name not in MODEL]
    series = points["method"].astype(str)
    for name in MODEL:
        if name in named:
            series = series + (", " + points[name]).where(points[name] != NO_NETWORK, "")
    return points.assign(
        bench=[bench_title(row, told) for _, row in points.iterrows()],
        series=series,
        accuracy=100 * points["accuracy"].astype(float),
        dca=100 * points["dca"].astype(float),
    )


def _panel(bench: str, points: pd.DataFrame, chosen: pd.DataFrame, looks: dict[str, Any]) -> alt.LayerChart | alt.FacetChart:
    least, most, highest = _window(points, chosen)
    outside = int(((points["accuracy"] < least) | (points["dca"] > highest)).sum())
    x = alt.X("accuracy:Q", title="balanced accuracy (%)", scale=alt.Scale(domain=[least, most], nice=False))
    y = alt.Y("dca:Q", title="DCA (%), lower is fairer", scale=alt.Scale(domain=[0, highest], nice=False))
    tooltip = ["series:N", "hyperparameters:N", alt.Tooltip("accuracy:Q", format=".2f"), alt.Tooltip("dca:Q", format=".2f")]
    curves = points[points["method"] != "scratch"]
    plain = points[points["method"] == "scratch"]
    layers: list[alt.Chart] = []
    if len(curves):
        series = [part for _, part in curves.groupby("series", sort=False)]
        corners = [part.iloc[convex_envelope(part["accuracy"], part["dca"])] for part in series]
        envelope = alt.Chart(pd.concat(corners)).mark_line(strokeWidth=2, clip=True)
        dots = alt.Chart(curves).mark_point(filled=True, size=55, opacity=0.8, clip=True)
        layers += [
            envelope.encode(x=x, y=y, color=looks["color"], strokeDash=looks["strokeDash"], order="accuracy:Q"),
            dots.encode(x=x, y=y, color=looks["color"], shape=looks["shape"], tooltip=tooltip),
        ]
    if len(plain):
        lines = alt.Chart(plain).mark_rule(strokeDash=DASHES[1], opacity=0.7).encode(color=looks["color"])
        mark = alt.Chart(plain).mark_point(filled=True, size=130, opacity=1)
        layers += [
            lines.encode(x=x),
            lines.encode(y=y),
            mark.encode(x=x, y=y, color=looks["color"], shape=looks["shape"], tooltip=tooltip),
        ]
    rings = chosen[chosen["method"] != "scratch"]
    if len(rings):
        ring = alt.Chart(rings).mark_point(shape="circle", size=220, strokeWidth=2, opacity=1, clip=True)
        layers.append(ring.encode(x=x, y=y, color=looks["color"], tooltip=tooltip))
    title = alt.TitleParams(bench, subtitle=f"outside: {outside} more" if outside else "")
    return alt.layer(*layers).properties(width=460, height=360, title=title)


def _window(points: pd.DataFrame, chosen: pd.DataFrame) -> tuple[float, float, float]:
    """Return the least and largest accuracy and the largest DCA to show: around what is worth choosing."""
    shown = pd.concat([chosen, points[points["method"] == "scratch"]]) if len(chosen) else points
    span = points["accuracy"].max() - shown["accuracy"].min()
    least = max(points["accuracy"].min(), shown["accuracy"].min() - 0.3 * span) - 0.02 * span - 0.1
    return float(least), float(points["accuracy"].max() + 0.05 * span + 0.1), float(1.1 * shown["dca"].max() + 0.1)


def training_chart(selected: pd.DataFrame, outcomes: list[Outcome]) -> alt.VConcatChart:
    """Draw weights and training accuracy of every cell over training (first seed), for selected points."""
    rows = []
    for _, chosen in selected.iterrows():
        outcome, point = find_point(outcomes, chosen)
        for quantity, values in (("weight q", outcome.weights), ("accuracy (%)", 100 * outcome.accuracy)):
            one = values[:, 0, point]
            for y, a in np.ndindex(one.shape[1:]):
                told = {"bench": bench_title(chosen, ["solver", *varying(selected)]), "measure": quantity}
                told |= {"panel": f"{chosen['method']}, class {outcome.class_names[y]}", "group": outcome.group_names[a]}
                rows += [{**told, "share": t, "value": v} for t, v in zip(outcome.progress, one[:, y, a], strict=True)]
    return history_chart(pd.DataFrame(rows))


def history_chart(table: pd.DataFrame) -> alt.VConcatChart:
    """Draw what became of groups over training: the paper's Figure 4.

    The table has a row per ``bench``, ``measure``, ``panel``, ``group`` and ``share`` of training, with its ``value``. There
    is one row of panels per bench and measure, one column per panel (a method and a class), one line per group.
    """
    charts = []
    for (title, measure), whole in table.groupby(["bench", "measure"], sort=False):
        part, shown = _far_groups(whole, "value")
        line = alt.Chart(part).mark_line().encode(
            x=alt.X("share:Q", title="share of training", axis=alt.Axis(format="%")),
            y=alt.Y("value:Q", title=str(measure), scale=alt.Scale(zero=False)),
            color=alt.Color("group:N", title=shown, scale=alt.Scale(range=COLOURS)),
            strokeDash=alt.StrokeDash("group:N", title=shown, scale=alt.Scale(range=DASHES)),
        )  # fmt: skip
        panels = list(dict.fromkeys(part["panel"]))
        facet = alt.Facet("panel:N", title=None, sort=panels)
        charts.append(line.properties(width=200, height=130).facet(facet, columns=4, title=str(title)))
    return alt.vconcat(*charts).resolve_scale(**APART)


def _far_groups(table: pd.DataFrame, value: str) -> tuple[pd.DataFrame, str]:
    """Return the rows of the groups farthest from the mean, as many as can be told apart, and what to call them."""
    number = table["group"].nunique()
    if number <= MOST_SERIES:
        return table, "group"
    distance = (table.groupby("group")[value].mean() - table[value].mean()).abs().sort_values(ascending=False)
    kept = table[table["group"].isin(distance.index[:MOST_SERIES])]
    return kept, f"{MOST_SERIES} of {number} groups, farthest from the mean"


def cells_chart(selected: pd.DataFrame, outcomes: list[Outcome]) -> alt.VConcatChart:
    """Draw the test accuracy of every cell with its 95 % interval (first seed), for selected points."""
    tables = []
    for _, chosen in selected.iterrows():
        outcome, point = find_point(outcomes, chosen)
        title = bench_title(chosen, ["model", "solver", *varying(selected)])
        tables.append(outcome.judged[point].cells().reset_index().assign(method=chosen["method"], bench=title))
    table = pd.concat(tables)
    table = table.assign(**{c: 100 * table[c] for c in ("accuracy", "low", "high")})
    charts = []
    for bench, whole in table.groupby("bench", sort=False):
        part, shown = _far_groups(whole, "accuracy")
        base = alt.Chart(part).encode(y=alt.Y("method:N", title=None, sort=list(dict.fromkeys(part["method"]))))
        looks = looks_of("group", list(dict.fromkeys(part["group"])), alt.Legend(title=shown))
        x = alt.X("accuracy:Q", title="test accuracy (%), 95 % interval", scale=alt.Scale(zero=False))
        intervals = base.mark_rule(strokeWidth=2, opacity=0.5).encode(x="low:Q", x2="high:Q", color=looks["color"])
        marks = base.mark_point(filled=True, size=55, opacity=1).encode(x=x, color=looks["color"], shape=looks["shape"])
        layers = alt.layer(intervals, marks)
        sized = layers.properties(width=300, height=alt.Step(20))
        charts.append(sized.facet(column=alt.Column("class:N", title="class"), title=str(bench)))
    return alt.vconcat(*charts).resolve_scale(**APART)


def seconds_chart(results: pd.DataFrame) -> alt.FacetChart:
    """Draw how long the training of a method takes in all, every point and seed of it."""
    benches = results.assign(bench=results.apply(bench_title, axis=1, named=["solver", *varying(results)]))
    total = benches.groupby(["bench", "method"], sort=False, as_index=False)["seconds"].sum()
    bars = alt.Chart(total).mark_bar(color=COLOURS[0]).encode(
        x=alt.X("seconds:Q", title="seconds for all points and seeds"),
        y=alt.Y("method:N", title=None, sort="-x"),
        tooltip=["method:N", alt.Tooltip("seconds:Q", format=".3f")],
    )  # fmt: skip
    facet = alt.Facet("bench:N", title=None, sort=list(dict.fromkeys(total["bench"])))
    return bars.properties(width=320).facet(facet, columns=2).resolve_scale(x="independent", y="independent")


def save_chart(chart: Chart, stem: Path) -> list[Path]:
    """Write the chart as PNG, as SVG and as an interactive page that works offline; return the paths."""
    spec = _spec(chart)
    drawn = vl_convert.vegalite_to_svg(spec)
    page, png = interactive_page(spec, stem.name), vl_convert.svg_to_png(drawn, scale=2)
    contents: dict[str, str | bytes] = {".png": png, ".svg": drawn, ".html": page}
    for suffix, content in contents.items():
        write_whole(stem.with_suffix(suffix), content)
    return [stem.with_suffix(suffix) for suffix in contents]


def _spec(chart: Chart) -> dict[str, Any]:
    """Return the chart as plain data, however many rows it has: 18 cells of two methods have thousands.

    It is not checked against the schema, which takes longer than all the rest: tests do that.
    """
    with alt.data_transformers.enable("default", max_rows=None):
        return chart.to_dict(validate=False)


def interactive_page(chart: dict[str, Any], title: str) -> str:
    """Return a page with the chart and all it needs; names from data cannot leave their place in it."""
    spec = json.dumps(chart).replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<script>{_vega()}</script></head><body><div id='chart'></div>"
        f"<script>vegaEmbed('#chart', {spec}, {{renderer: 'svg'}});</script></body></html>\n"
    )


@cache
def _vega() -> str:
    return vl_convert.javascript_bundle()  # type: ignore[call-arg]  # without a snippet it is the whole of Vega
