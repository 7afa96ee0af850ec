"""Measure what FairDROLoss adds to a training step, against plain cross-entropy in one run.

python benchmarks/deep.py
"""

from __future__ import annotations

import statistics
import time

import torch

from fairdro import FairDROLoss
from fairdro.models.resnet import ResNet18


def main(steps: int = 10, calls: int = 300) -> None:
    """Time steps of ResNet-18 with both losses in turn, and both losses by themselves in turn."""
    torch.manual_seed(0)
    model, criterion = ResNet18(3), FairDROLoss(3, 4, rho=1.0, total_steps=steps)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y, a = torch.randn(64, 3, 64, 64), torch.randint(3, (64,)), torch.randint(4, (64,))
    losses = {"plain": lambda out: torch.nn.functional.cross_entropy(out, y), "fair": lambda out: criterion(out, y, a)}
    whole: dict[str, list[float]] = {name: [] for name in losses}
    alone: dict[str, list[float]] = {name: [] for name in losses}
    out = torch.randn(64, 3, requires_grad=True)
    for i in range(max(steps, calls)):
        for name, loss in losses.items():
            start = time.perf_counter()
            loss(out).backward()
            alone[name].append(time.perf_counter() - start)
            if i < steps:
                start = time.perf_counter()
                optimiser.zero_grad()
                loss(model(x)).backward()
                optimiser.step()
                whole[name].append(time.perf_counter() - start)
    step, plain, fair = (1000 * statistics.median(times) for times in (whole["plain"], alone["plain"], alone["fair"]))
    print(
        f"A step of ResNet-18 (64 images of 64 pixels) with cross-entropy takes {step:.0f} ms. Cross-entropy alone takes "
        f"{plain:.2f} ms, FairDROLoss {fair:.2f} ms: {100 * (fair - plain) / step:.2f} % of a step more."
    )


if __name__ == "__main__":
    main()
