"""Small problems with a biased group, with as many classes and groups as asked for, and marks for tests of them."""

import pytest
import torch

from fairdro.cells import Cells

short_runs = pytest.mark.filterwarnings("ignore:The accuracy of a cell still moved")
shapes = pytest.mark.parametrize(("n_classes", "n_groups"), [(2, 2), (3, 4)])
softness = pytest.mark.parametrize("soft", [False, True])


def biased_problem(n_classes=2, n_groups=2, *, n=600, soft=False, seed=0, features=6):
    """Later groups are smaller and look more like class 1, whatever their class."""
    rng = torch.Generator().manual_seed(seed)
    a = (torch.rand(n, generator=rng) ** 1.5 * n_groups).long().clamp(max=n_groups - 1)
    y = torch.randint(n_classes, (n,), generator=rng)
    centres = 1.5 * torch.nn.functional.one_hot(torch.arange(n_classes), features)
    X = centres[y] + 1.2 * a[:, None] / (n_groups - 1) * (centres[1] - centres[0])
    X = X + torch.randn(n, features, generator=rng)
    X[:, -1] += 2 * a  # features tell the group, so a model can make up for it
    groups = a
    if soft:
        groups = torch.nn.functional.one_hot(a, n_groups) * 0.8 + 0.2 / n_groups
    return (X - X.mean(0)) / X.std(0), Cells(y, groups, n_classes=n_classes, n_groups=n_groups)


def biased_table(n_classes=2, n_groups=2, n=800, *, soft=False):
    """The same in an array of double precision, as trees take it."""
    X, cells = biased_problem(n_classes, n_groups, n=n, soft=soft)
    return X.double().numpy(), cells
