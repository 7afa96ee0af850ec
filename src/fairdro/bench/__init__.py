"""The benchmark: train banks, store what came of them, show tables and figures."""

from fairdro.bench.bank import Bank
from fairdro.bench.outputs import write_outputs
from fairdro.bench.plan import BenchPlan
from fairdro.bench.run import run_bank, run_bench
from fairdro.bench.store import Outcome, Store
from fairdro.bench.study import Study, read_study
from fairdro.bench.summary import Summary

__all__ = [
    "Bank", "BenchPlan", "Outcome", "Store", "Study", "Summary", "read_study", "run_bank", "run_bench", "write_outputs",
]  # fmt: skip
