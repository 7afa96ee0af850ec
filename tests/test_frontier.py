"""Frontier functions against brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairdro.errors import InputError
from fairdro.frontier import best_dca, convex_envelope, non_dominated

points = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=25)


@given(points)
def test_non_dominated_against_brute_force(pairs):
    accuracy, dca = np.array(pairs, dtype=float).T
    kept = non_dominated(accuracy, dca)
    expected = {(a, d) for a, d in pairs if not any((b >= a and e < d) or (b > a and e <= d) for b, e in pairs)}
    assert {(accuracy[i], dca[i]) for i in kept} == expected
    assert len(kept) == len(expected)
    assert (np.diff(accuracy[kept]) < 0).all()


@given(points)
def test_envelope_lies_below_every_point(pairs):
    accuracy, dca = np.array(pairs, dtype=float).T
    hull = convex_envelope(accuracy, dca)
    assert set(hull) <= set(non_dominated(accuracy, dca))
    inside = (accuracy >= accuracy[hull].min()) & (accuracy <= accuracy[hull].max())
    line = np.interp(accuracy[inside], accuracy[hull][::-1], dca[hull][::-1])
    assert (dca[inside] >= line - 1e-9).all()
    slopes = np.diff(dca[hull]) / np.diff(accuracy[hull])
    assert (np.diff(slopes) < 1e-9).all()


def test_best_dca_is_the_papers_rule():
    accuracy, dca = [0.82, 0.80, 0.79, 0.70], [0.07, 0.03, 0.02, 0.0]
    assert best_dca(accuracy, dca, min_accuracy=0.95 * 0.82) == 2
    assert best_dca([0.8, 0.81], [0.03, 0.03], min_accuracy=0.5) == 1


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: best_dca([0.5], [0.1], min_accuracy=0.6), "the best has 0.5000. Lower the demand"),
        (lambda: non_dominated([], []), "at least one point"),
        (lambda: non_dominated([0.5, np.nan], [0.1, 0.1]), "NaN"),
        (lambda: convex_envelope([0.5], [0.1, 0.2]), "one accuracy and one DCA per point"),
    ],
)
def test_bad_input_is_one_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()
