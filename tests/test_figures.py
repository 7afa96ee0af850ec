"""Pictures of a bench: never more series than can be told apart, in grey and by the colour-blind too."""

import itertools

import numpy as np
import pandas as pd
import pytest

from fairdro.bench import BenchPlan, Store, Summary
from fairdro.bench.figures import COLOURS, DASHES, SHAPES, _far_groups, _spec, frontier_chart, pictures
from fairdro.methods import METHODS
from test_report import synthetic

# What a person without the cones for red or for green sees of linear light (Vienot, Brettel and Mollon, 1999).
DICHROMATS = {
    "protan": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
    "deutan": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
}


def linear(colour):
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    plan = BenchPlan(["compas"], ["all"], ["minibatch"], protocol="paper", points=4, seeds=1)
    return Summary(synthetic(Store(tmp_path_factory.mktemp("figures")), plan))


def test_a_panel_has_eight_series_at_most_and_all_are_somewhere(summary):
    panels = _spec(frontier_chart(summary.points, summary.selected))["concat"]
    shown = []
    for panel in panels:
        encodings = [layer["encoding"] for layer in panel["layer"]]
        domains = [encoding["color"]["scale"]["domain"] for encoding in encodings]
        assert all(domain == domains[0] for domain in domains)
        assert len(domains[0]) <= 8
        assert domains[0][:2] == ["fairdro", "scratch"]
        assert any("shape" in encoding for encoding in encodings)
        shown += domains[0][2:]
    trained = set(summary.points["method"])
    assert len(trained) > 8
    assert sorted(shown) == sorted(trained - {"fairdro", "scratch"})
    assert len(METHODS) >= len(trained)


def test_series_differ_in_shape_and_dash_and_in_colour_for_the_colour_blind():
    assert len(COLOURS) == len(SHAPES) == len(DASHES) == 8
    assert len(set(SHAPES)) == len({tuple(dash) for dash in DASHES}) == 8
    for matrix in (np.eye(3), *map(np.array, DICHROMATS.values())):
        seen = [np.cbrt(np.clip(matrix @ linear(colour), 0, 1)) for colour in COLOURS]
        nearest = min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))
        assert nearest > 0.12
    first, second = (linear(colour) @ [0.2126, 0.7152, 0.0722] for colour in COLOURS[:2])
    assert abs(np.cbrt(first) - np.cbrt(second)) > 0.3  # FairDRO and plain training, in grey


def test_of_many_groups_those_farthest_from_the_mean_are_drawn():
    table = pd.DataFrame({"group": [f"g{i}" for i in range(12)], "value": np.arange(12.0)})
    kept, title = _far_groups(table, "value")
    assert sorted(kept["value"]) == [0, 1, 2, 3, 8, 9, 10, 11]
    assert title == "8 of 12 groups, farthest from the mean"
    assert _far_groups(table.head(8), "value")[1] == "group"


def test_pictures_are_valid_vega_lite(summary):
    for _, chart in pictures(summary):
        chart.to_dict()
