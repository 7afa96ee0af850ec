"""What tables, figures, report and terminal show of a bench, computed once for all of them."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from fairdro.bench.store import Outcome, Store
from fairdro.bench.tables import (
    DEFAULT_GUARD,
    PAPER_RULE,
    comparison,
    findings,
    how_chosen,
    over_seeds,
    select,
    with_intervals,
)
from fairdro.selection import Guard, Rule


@dataclass(frozen=True)
class Summary:
    """What a store holds so far, and the points that a selection rule, by default the paper's, chooses from it, guarded.

    Attributes
    ----------
    store : Store
        Of a bench.
    rule : Rule
        By default the paper's.
    guard : Guard
        Against levelling down.

    Examples
    --------
    >>> from pathlib import Path
    >>> from fairdro.bench import BenchPlan, Store, Summary, run_bench
    >>> _ = run_bench(BenchPlan(datasets=["compas"], methods=["scratch"]), Path("results"))
    >>> summary = Summary(Store(Path("results")))
    >>> list(summary.selected["method"])
    ['scratch']
    """

    store: Store
    rule: Rule = PAPER_RULE
    guard: Guard = DEFAULT_GUARD

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """What is stored; the seeds of a network together, and a method that was refused once."""
        alike: dict[Any, list[Outcome]] = {}
        for outcome in self.store.outcomes():
            bank = outcome.bank
            refused = (bank.method.name, *bank.bench.values())
            key = bank if bank.network is None else replace(bank, seeds=()) if outcome.refused is None else refused
            alike.setdefault(key, []).append(outcome)
        return [first.with_seeds(others) if first.refused is None else first for first, *others in alike.values()]

    @cached_property
    def results(self) -> pd.DataFrame:
        """A row per trained model."""
        return self.store.results()

    @cached_property
    def points(self) -> pd.DataFrame:
        """A row per point, the means over its seeds."""
        return over_seeds(self.results)

    @cached_property
    def selected(self) -> pd.DataFrame:
        """A row per method and bench: the chosen point, with intervals."""
        return with_intervals(select(self.points, self.rule, self.guard), self.outcomes)

    @cached_property
    def table(self) -> pd.DataFrame:
        """The comparison for people, as strings."""
        return comparison(self.selected, self.store.refused())

    @property
    def how_chosen(self) -> str:
        """How points were chosen, in a line."""
        return how_chosen(self.results, self.rule, self.guard)

    @property
    def findings(self) -> list[str]:
        """What fairness costs, in a line per bench."""
        return findings(self.selected)
