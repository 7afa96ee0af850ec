"""The benchmark: train banks, store a row per model, show tables and figures."""

from fairdro.bench.outputs import write_outputs
from fairdro.bench.run import Bank, BenchPlan, OnStep, run_bench

__all__ = ["Bank", "BenchPlan", "OnStep", "run_bench", "write_outputs"]
