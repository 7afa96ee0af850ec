"""The frontier picture: accuracy against DCA, a curve per method."""

from __future__ import annotations

from pathlib import Path

import altair as alt
import pandas as pd

from fairdro.bench.tables import over_seeds
from fairdro.frontier import convex_envelope

__all__ = ["frontier_chart", "save_chart"]

COLOURS = ["#1f5fa8", "#d1495b", "#2a9d8f", "#e9a23b", "#7a5195", "#5c6770"]


def frontier_chart(results: pd.DataFrame) -> alt.HConcatChart:
    """Draw every trained point (mean over seeds) and the convex envelope of each method and solver, a panel per dataset.

    Scratch, which has no hyperparameter, is a diamond with dotted lines through it. Lower right is better.
    """
    points = over_seeds(results)
    points = points[~points["diverged"]]
    points = points.assign(
        series=points["method"] + ", " + points["solver"], accuracy=100 * points["accuracy"], dca=100 * points["dca"]
    )
    series = list(dict.fromkeys(points["series"]))
    colour = alt.Color("series:N", title=None, scale=alt.Scale(domain=series, range=COLOURS))
    panels = [_panel(name, part, colour) for name, part in points.groupby("dataset", sort=False)]
    return alt.hconcat(*panels).configure_view(stroke=None).configure_axis(grid=True, gridOpacity=0.4)


def _panel(dataset: object, points: pd.DataFrame, colour: alt.Color) -> alt.LayerChart | alt.FacetChart:
    x = alt.X("accuracy:Q", title="balanced accuracy (%)", scale=alt.Scale(zero=False, nice=True))
    y = alt.Y("dca:Q", title="DCA (%), lower is fairer", scale=alt.Scale(zero=True))
    curves = points[points["method"] != "scratch"]
    plain = points[points["method"] == "scratch"]
    envelopes = [
        part.iloc[convex_envelope(part["accuracy"], part["dca"])] for _, part in curves.groupby("series", sort=False)
    ]
    tooltip = [
        "series:N",
        "hyperparameters:N",
        alt.Tooltip("accuracy:Q", format=".2f"),
        alt.Tooltip("dca:Q", format=".2f"),
    ]
    layers: list[alt.Chart] = []
    if envelopes:
        lines = alt.Chart(pd.concat(envelopes)).mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, order="accuracy:Q")
        layers.append(lines)
    layers.append(alt.Chart(curves).mark_circle(size=45, opacity=0.75).encode(x=x, y=y, color=colour, tooltip=tooltip))
    if len(plain):
        base = alt.Chart(plain).encode(color=colour)
        layers += [
            base.mark_rule(strokeDash=[2, 3], opacity=0.7).encode(x=x),
            base.mark_rule(strokeDash=[2, 3], opacity=0.7).encode(y=y),
            base.mark_point(shape="diamond", filled=True, size=130, opacity=1).encode(x=x, y=y, tooltip=tooltip),
        ]
    return alt.layer(*layers).properties(width=420, height=320, title=str(dataset))


def save_chart(chart: alt.HConcatChart, stem: Path) -> list[Path]:
    """Write the chart as PNG and SVG beside each other and return both paths."""
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    chart.save(paths[0], scale_factor=2)
    chart.save(paths[1])
    return paths
