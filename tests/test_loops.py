"""What training loops get wrong with a loss: validation, accumulated gradients, forgotten steps, junk."""

import pytest
import torch

from fairdro import FairDROLoss
from fairdro.errors import InputError


def batch(n=64, seed=0, n_groups=2):
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, 2, generator=rng).requires_grad_()
    return logits, torch.randint(2, (n,), generator=rng), torch.randint(n_groups, (n,), generator=rng)


def test_a_validation_loss_teaches_nothing():
    criterion = FairDROLoss(2, 2, rho=1.0, total_steps=4)
    logits, y, a = batch()
    with torch.no_grad():
        criterion(logits * 1, y, a)
    criterion(logits.detach(), y, a)
    assert criterion.seen.sum() == 0
    criterion(logits, y, a)
    assert criterion.seen.sum() == 64


def test_accumulated_gradients_are_exact_with_counts():
    """Micro-batches of unlike cells, as they come: their gradients add up to that of the whole batch."""
    _, y, a = batch(256, n_groups=3)
    x = torch.randn(256, 5, generator=torch.Generator().manual_seed(1))
    counts = torch.tensor([[100.0, 60.0, 40.0], [90.0, 70.0, 30.0]])
    cosines = {}
    for averaging in ("batch", "counts"):
        found = []
        for size in (256, 16):
            model = torch.nn.Linear(5, 2, bias=False)
            torch.nn.init.constant_(model.weight, 0.1)
            criterion = FairDROLoss(2, 3, rho=1.0, total_steps=2, counts=counts, averaging=averaging)
            for rows in torch.arange(256).split(size):
                (criterion(model(x[rows]), y[rows], a[rows]) * size / 256).backward()
            found.append(model.weight.grad.flatten())
        cosines[averaging] = float(torch.nn.functional.cosine_similarity(*found, dim=0))
        if averaging == "counts":
            torch.testing.assert_close(*found)
    assert cosines["batch"] < 0.99
    assert "averaging='counts'" in repr(criterion)
    with pytest.raises(InputError, match="needs counts"):
        FairDROLoss(2, 2, total_steps=1, averaging="counts")
    with pytest.raises(InputError, match="no averaging named 'mean'"):
        FairDROLoss(2, 2, total_steps=1, averaging="mean")


def test_with_the_true_counts_of_a_batch_both_ways_of_averaging_are_the_same():
    logits, y, a = batch()
    counts = torch.stack([torch.bincount(a[y == k], minlength=2) for k in range(2)])
    losses = [FairDROLoss(2, 2, total_steps=1, counts=counts, averaging=how)(logits, y, a) for how in ("batch", "counts")]
    torch.testing.assert_close(*losses)


def test_what_a_loop_forgot_is_said_once():
    logits, y, a = batch()
    with pytest.warns(UserWarning, match="looks like probabilities") as told:
        FairDROLoss(2, 2, total_steps=1)(logits.softmax(-1), y, a)
    assert told[0].filename == __file__
    criterion = FairDROLoss(2, 2, total_steps=2, counts=torch.full((2, 2), 10.0))
    criterion(logits, y, a)
    with pytest.warns(UserWarning, match="many batches without step"):
        criterion(logits, y, a)
    criterion(logits, y, a)  # not said again
    for _ in range(2):
        criterion.step()
        criterion(logits, y, a)
    with pytest.warns(UserWarning, match=r"more often than total_steps = 2"):
        criterion.step()
    criterion(logits, y, a)
    criterion.step()  # not said again


@pytest.mark.parametrize(
    "counts", [[[-1.0, 2], [1, 1]], [[float("nan"), 2], [1, 1]], [[0.0, 0], [0, 0]], [[0.0, 0], [1, 1]], "many", [[1, 2, 3]]]
)
def test_counts_that_are_none(counts):
    with pytest.raises(InputError, match="counts"):
        FairDROLoss(2, 2, total_steps=1, counts=counts)


def test_groups_that_are_none():
    logits, y, _ = batch(2)
    criterion = FairDROLoss(2, 2, total_steps=1)
    with pytest.raises(InputError, match="none may be negative"):
        criterion(logits, y, torch.tensor([[-1.0, 2.0], [0.5, 0.5]]))
    with pytest.raises(InputError, match="must be tensors"):
        criterion(logits, y, [0, 1])


def test_a_network_that_diverged_does_not_spoil_the_weights():
    logits, y, a = batch()
    criterion = FairDROLoss(2, 2, rho=1.0, total_steps=2)
    criterion(logits, y, a)
    with pytest.warns(UserWarning, match="not finite"):
        criterion(torch.full_like(logits, torch.nan).requires_grad_(), y, a)
    criterion.step()
    assert criterion.q.isfinite().all()
    assert criterion.means.isfinite().all()
