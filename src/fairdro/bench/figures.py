"""The frontier picture: accuracy against DCA, a curve per method."""

from __future__ import annotations

from pathlib import Path

import altair as alt
import pandas as pd

from fairdro.bench.tables import over_seeds
from fairdro.frontier import convex_envelope

__all__ = ["frontier_chart", "save_chart"]

COLOURS = ["#1f5fa8", "#d1495b", "#2a9d8f", "#e9a23b", "#7a5195", "#5c6770", "#8cb369", "#f4a3b4", "#17becf", "#8b5e34"]


def frontier_chart(results: pd.DataFrame, selected: pd.DataFrame) -> alt.HConcatChart:
    """Draw every trained point (mean over seeds) and the convex envelope of each method and solver, a panel per dataset.

    Scratch, which has no hyperparameter, is a diamond with dotted lines through it; selected points are ringed. Lower right
    is better.
    """
    points = over_seeds(results)
    points = _in_percent(points[~points["diverged"]])
    series = list(dict.fromkeys(points["series"]))
    colour = alt.Color("series:N", title=None, scale=alt.Scale(domain=series, range=COLOURS))
    chosen = _in_percent(selected[selected["accuracy"].notna()])
    panels = [
        _panel(str(name), part, chosen[chosen["dataset"] == name], colour)
        for name, part in points.groupby("dataset", sort=False)
    ]
    return alt.hconcat(*panels).configure_view(stroke=None).configure_axis(grid=True, gridOpacity=0.4)


def _in_percent(points: pd.DataFrame) -> pd.DataFrame:
    series = points["method"] + ", " + points["solver"]
    return points.assign(
        series=series, accuracy=100 * points["accuracy"].astype(float), dca=100 * points["dca"].astype(float)
    )


def _panel(dataset: str, points: pd.DataFrame, chosen: pd.DataFrame, colour: alt.Color) -> alt.LayerChart | alt.FacetChart:
    x = alt.X("accuracy:Q", title="balanced accuracy (%)", scale=alt.Scale(zero=False, nice=True))
    y = alt.Y("dca:Q", title="DCA (%), lower is fairer", scale=alt.Scale(zero=True))
    tooltip = ["series:N", "hyperparameters:N", alt.Tooltip("accuracy:Q", format=".2f"), alt.Tooltip("dca:Q", format=".2f")]
    curves = points[points["method"] != "scratch"]
    plain = points[points["method"] == "scratch"]
    layers: list[alt.Chart] = []
    if len(curves):
        corners = [
            part.iloc[convex_envelope(part["accuracy"], part["dca"])] for _, part in curves.groupby("series", sort=False)
        ]
        envelope = alt.Chart(pd.concat(corners)).mark_line(strokeWidth=2)
        layers += [
            envelope.encode(x=x, y=y, color=colour, order="accuracy:Q"),
            alt.Chart(curves).mark_circle(size=45, opacity=0.75).encode(x=x, y=y, color=colour, tooltip=tooltip),
        ]
    if len(plain):
        base = alt.Chart(plain).encode(color=colour)
        layers += [
            base.mark_rule(strokeDash=[2, 3], opacity=0.7).encode(x=x),
            base.mark_rule(strokeDash=[2, 3], opacity=0.7).encode(y=y),
            base.mark_point(shape="diamond", filled=True, size=130, opacity=1).encode(x=x, y=y, tooltip=tooltip),
        ]
    rings = chosen[chosen["method"] != "scratch"]
    if len(rings):
        ring = alt.Chart(rings).mark_point(shape="circle", size=220, strokeWidth=2, opacity=1)
        layers.append(ring.encode(x=x, y=y, color=colour, tooltip=tooltip))
    return alt.layer(*layers).properties(width=420, height=320, title=dataset)


def save_chart(chart: alt.HConcatChart, stem: Path) -> list[Path]:
    """Write the chart as PNG and SVG beside each other and return both paths."""
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    chart.save(paths[0], scale_factor=2)
    chart.save(paths[1])
    return paths
