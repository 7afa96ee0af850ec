"""Methods that add to the loss of a batch or move at every one, and the reductions, against the vectors."""

import math

import numpy as np
import pytest
import torch

from fairdro.cells import Cells
from fairdro.methods import (
    EGR,
    MFD,
    RVP,
    Batch,
    CellMeans,
    Cov,
    FairHSIC,
    GroupDROEG,
    Renyi,
    Task,
    WithoutDRO,
)  # fmt: skip
from fairdro.methods.pl import PL, stationary


def batch_with_features(features, y, a, teacher=None):
    cells = Cells(torch.tensor(y), torch.tensor(a), n_classes=2, n_groups=2)
    logits = torch.zeros(1, len(y), 2, dtype=torch.float64)
    features, teacher = (None if f is None else torch.tensor(f, dtype=torch.float64)[None] for f in (features, teacher))
    membership, averaging = cells.membership.double(), cells.averaging.double()
    return Batch(logits, logits[..., 0], cells.y, membership, averaging, features, teacher)


def test_independence_vectors(vectors):
    case = vectors["I_hsic_one_class"]
    batch = batch_with_features(case["X"], [0] * 6, case["groups"])
    assert float(FairHSIC(lam=1.0).penalty({}, batch)) == pytest.approx(case["hsic_unbiased"], abs=1e-6)
    polynomial = float(FairHSIC(lam=1.0, kernel="polynomial").penalty({}, batch))
    assert polynomial == pytest.approx(vectors["I_hsic_poly"]["hsic_unbiased"], abs=1e-6)
    alone = batch_with_features(case["X"], [0] * 6, [0] * 6)
    assert float(FairHSIC().penalty({}, alone)) == pytest.approx(vectors["I_hsic_single_group"]["value"], abs=1e-9)


def test_independence_of_two_classes_is_the_sum_and_three_samples_add_nothing(vectors):
    case = vectors["I_hsic_one_class"]
    X, groups = case["X"], case["groups"]
    twice = batch_with_features(X + X[::-1], [0] * 6 + [1] * 6, groups + groups[::-1])
    assert float(FairHSIC().penalty({}, twice)) == pytest.approx(2 * case["hsic_unbiased"], abs=1e-5)
    few = batch_with_features(X + X[:3], [0] * 6 + [1] * 3, [*groups, 0, 1, 0])
    few.features.requires_grad_()
    value = FairHSIC().penalty({}, few)
    assert float(value.detach()) == pytest.approx(case["hsic_unbiased"], abs=1e-6)
    value.sum().backward()
    assert few.features.grad.isfinite().all()


def test_equal_and_dead_features_have_finite_gradients():
    for features in (np.ones((8, 3)), np.zeros((8, 3))):
        batch = batch_with_features(features, [0] * 4 + [1] * 4, [0, 1] * 4, teacher=features)
        batch.features.requires_grad_()
        (FairHSIC().penalty({}, batch) + MFD().penalty({}, batch)).sum().backward()
        assert batch.features.grad.isfinite().all()


def test_distillation_vector(vectors):
    case = vectors["J_mmd"]
    batch = batch_with_features(case["f_s"], case["y"], case["a"], teacher=case["f_t"])
    assert float(MFD(lam=1.0).penalty({}, batch)) == pytest.approx(case["reg_lambda1_half_sum"], abs=1e-6)


def test_distillation_leaves_out_cells_without_samples():
    features = np.random.default_rng(0).normal(size=(6, 2))
    whole = batch_with_features(features, [0, 0, 0, 1, 1, 1], [0, 1, 0, 0, 0, 0], teacher=features)
    assert MFD().penalty({}, whole).isfinite().all()
    one_class = batch_with_features(features, [1] * 6, [0] * 6, teacher=features)
    assert float(MFD().penalty({}, one_class)) == pytest.approx(0, abs=1e-9)  # model and teacher agree in the only cell


def batch_of(logits, y, a):
    cells = Cells(torch.tensor(y), torch.tensor(a), n_classes=2, n_groups=2)
    logits = torch.tensor(logits, dtype=torch.float64)
    losses = torch.nn.functional.cross_entropy(logits, cells.y, reduction="none")
    return Batch(logits[None], losses[None], cells.y, cells.membership.double(), cells.averaging.double())


def batch_with_cell_losses(per_cell):
    """One sample per cell, with the given loss."""
    per_cell = torch.tensor(per_cell, dtype=torch.float64)  # (A, Y)
    a, y = (v.flatten() for v in torch.meshgrid(*(torch.arange(n) for n in per_cell.shape), indexing="ij"))
    cells = Cells(y, a, n_classes=per_cell.shape[1], n_groups=per_cell.shape[0])
    logits = torch.zeros(1, len(y), per_cell.shape[1])
    return Batch(logits, per_cell.flatten()[None], y, cells.membership.double(), cells.averaging.double())


def test_rvp_and_direct_gap_vectors(vectors):
    for case in vectors["N_rvp_direct"]:
        batch = batch_with_cell_losses(case["L_g_y"])
        assert float(RVP(rho=case["rho"]).penalty({}, batch)) == pytest.approx(case["rvp_paper"] - case["bal"], abs=1e-5)
        gap = float(WithoutDRO(lam=1.0).penalty({}, batch))
        assert gap == pytest.approx(case["direct_paper_lam1"] - case["bal"], abs=1e-5)
        deviation = float(WithoutDRO(lam=1.0, variant="code").penalty({}, batch))
        assert deviation == pytest.approx(case["direct_code_lam1"] - case["bal"], abs=1e-5)


def test_equal_groups_have_finite_gradients():
    logits = torch.zeros(1, 1, 4, 2, requires_grad=True)
    cells = Cells(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]), n_classes=2, n_groups=2)
    losses = logits.logsumexp(-1) - logits[..., 0]
    RVP(rho=3.0).penalty({}, Batch(logits, losses, cells.y, cells.membership, cells.averaging)).sum().backward()
    assert logits.grad.isfinite().all()


def test_covariance_vector(vectors):
    case = vectors["H_cov"]
    batch = batch_of(case["logits"], case["y"], case["a"])
    assert float(Cov(lam=1.0).penalty({}, batch)) == pytest.approx(case["reg_total"], abs=1e-6)


def test_renyi_vectors(vectors):
    case = vectors["K_renyi"]
    batch = batch_of(np.log(case["probs"]), case["y"], case["a"])
    cells = Cells(torch.tensor(case["y"]), torch.tensor(case["a"]), n_classes=2, n_groups=2)
    method = Renyi(lam=1.0)
    state = method.begin(Task(cells.counts))
    assert float(method.penalty(state, batch)) == case["W_init_reg"]
    probabilities = cells.means(torch.tensor(case["probs"], dtype=torch.float64).T).movedim(0, -1)
    state = method.update(state, CellMeans(cells.counts, None, probabilities), 0.0)
    assert state["W"].flatten().tolist() == pytest.approx(np.array(case["W_updated"]).flatten(), abs=1e-6)
    assert float(method.penalty(state, batch)) == pytest.approx(case["reg_after"], abs=1e-6)


def test_exponentiated_gradient_vectors(vectors):
    case = vectors["C_gdro_eg_gamma0.1"]
    losses = np.array(case["group_loss_order_g_times_Y_plus_y"]).reshape(2, 2)
    batch = batch_with_cell_losses(losses.tolist())
    method = GroupDROEG(gamma=0.1)
    state = method.begin(Task(torch.ones(2, 2)))
    for key in ("q_after1", "q_after2"):
        state = method.observe(state, batch)
        assert state["q"].mT.flatten().tolist() == pytest.approx(case[key], abs=1e-6)


def batch_with_cell_errors(per_cell):
    """Twenty samples per cell, of which the given share is wrong."""
    logits, y, a = [], [], []
    for group, rates in enumerate(per_cell):
        for label, rate in enumerate(rates):
            wrong = round(20 * rate)
            predicted = [1 - label] * wrong + [label] * (20 - wrong)
            logits += [[1.0 - p, float(p)] for p in predicted]
            y += [label] * 20
            a += [group] * 20
    return batch_of(logits, y, a)


def test_proxy_lagrangian_vectors(vectors):
    case = vectors["M_pl_lr1"]
    batch = batch_with_cell_errors(case["err_g_y"])
    expected = case["correct_eps0.05"]
    method = PL(eta=1.0, kappa=0.05)
    state = method.begin(Task(torch.ones(2, 2)))
    for _ in range(3):
        state = {key: value.reshape(value.shape[-2:]) for key, value in method.observe(state, batch).items()}
    assert stationary(state["M"]).tolist() == pytest.approx(expected["stationary_after3"], abs=1e-6)
    assert state["M"][:, 0].tolist() == pytest.approx(expected["col0_after3"], abs=1e-6)


def test_proxies_are_hinge_losses(vectors):
    case = vectors["M_pl_lr1"]["multimargin"]
    batch = batch_of(case["logits"], case["labels"], [0, 1])
    method = PL(kappa=0.0)
    state = method.begin(Task(torch.ones(2, 2)))
    hinge = [torch.nn.functional.multi_margin_loss(batch.logits[0, i : i + 1], batch.y[i : i + 1]) for i in range(2)]
    assert float(sum(hinge)) / 2 == pytest.approx(case["loss"])
    weighted = float(method.penalty(state, batch))  # both ways of the one constraint have the same multiplier, and cancel
    assert weighted == pytest.approx(0, abs=1e-6)
    state["M"] = torch.zeros(5, 5, dtype=torch.float64)
    state["M"][3] = 1  # all weight on class 1, group 0 minus group 1
    assert float(method.penalty(state, batch)) == pytest.approx(float(hinge[0] - hinge[1]))


def test_reduction_vectors(vectors):
    case = vectors["L_egr_B1_eta2"]
    share = torch.tensor(case["P_g_y"], dtype=torch.float64).T
    method = EGR(eta=2.0, bound=1.0)
    state = method.begin(Task(100 * share))
    rates = torch.tensor(case["mu_g_y"], dtype=torch.float64).view(2, 2).T
    error = torch.stack([rates[0], 1 - rates[1]])
    moved = method.next_round(state, CellMeans(error))
    theta = [*moved["theta_up"].T.flatten().tolist(), *moved["theta_down"].T.flatten().tolist()]
    assert theta == pytest.approx(case["theta1_class_conditional"], abs=1e-6)
    raised = np.exp(theta) / (1 + np.exp(theta).sum())
    assert moved["multipliers"].T.flatten().tolist() == pytest.approx(raised[:4] - raised[4:], abs=1e-9)
    multipliers = torch.tensor(case["lambda_mat"], dtype=torch.float64).T
    for objective, flag in (("standard", 0), ("balanced", 1)):
        expected = case["costs"][f"balanced={flag},correct_sum_over_groups"]
        costs = EGR(objective=objective).costs(share, multipliers)
        for ours, theirs in zip(costs, ("C0", "C1"), strict=True):
            assert ours.T.flatten().tolist() == pytest.approx(expected[theirs], abs=2e-5)  # Lambda is given to six decimals


def test_the_slips_of_the_authors_reduction(vectors, monkeypatch):
    case = vectors["L_egr_B1_eta2"]
    share = torch.tensor(case["P_g_y"], dtype=torch.float64).T
    method = EGR(eta=2.0, bound=1.0, variant="code")
    rates = torch.tensor(case["mu_g_y"], dtype=torch.float64).view(2, 2).T
    moved = method.next_round(method.begin(Task(100 * share)), CellMeans(torch.stack([rates[0], 1 - rates[1]])))
    theta = [*moved["theta_up"].T.flatten().tolist(), *moved["theta_down"].T.flatten().tolist()]
    assert theta == pytest.approx(case["theta1_code"], abs=1e-6)
    monkeypatch.setattr("fairdro.methods.egr.CODE_BATCH", 4)
    multipliers = torch.tensor(case["lambda_mat"], dtype=torch.float64).T
    for objective, flag in (("standard", 0), ("balanced", 1)):
        expected = case["costs"][f"balanced={flag},code_sum_over_batch"]
        for ours, theirs in zip(
            EGR(objective=objective, variant="code").costs(share, multipliers), ("C0", "C1"), strict=True
        ):
            assert ours.T.flatten().tolist() == pytest.approx(expected[theirs], abs=2e-5)


def test_the_last_round_of_the_reduction_takes_the_average_of_the_multipliers():
    method = EGR(eta=5.0)
    state = method.begin(Task(torch.tensor([[4.0, 6.0], [5.0, 5.0]], dtype=torch.float64)))
    seen = []
    for t in range(method.rounds - 1):
        seen.append(state["multipliers"])
        state = method.next_round(state, CellMeans(torch.tensor([[0.1, 0.3], [0.4, 0.1 * (t % 3)]], dtype=torch.float64)))
    torch.testing.assert_close(state["multipliers"], torch.stack(seen).mean(0))


def test_a_cell_whose_other_label_is_cheaper_is_trained_with_it():
    method = EGR(objective="standard")
    state = method.begin(Task(torch.full((2, 2), 5.0, dtype=torch.float64)))
    state = method._with_costs(state, torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64))
    assert (method.weights(state) == 0).tolist() == [[False, False], [True, False]]
    batch = batch_of([[0.0, 2.0], [0.0, 2.0]], [1, 1], [0, 1])
    expected = float(state["weight"][1, 0]) * math.log1p(math.exp(2.0)) / 2
    assert float(method.penalty(state, batch)) == pytest.approx(expected)
