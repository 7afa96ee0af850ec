"""A few of the kills of ``make chaos``."""

import pytest

from chaos import chaos


@pytest.mark.slow
def test_a_bench_that_is_killed_again_and_again_ends_as_one_that_is_not(tmp_path):
    counts = chaos(4, 0, tmp_path)
    assert counts["kills"] == 4
    assert counts["drafts left"] > 0  # a kill was inside a write
