"""The q-update of FairDRO and its switches, against the vectors."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.methods import (
    EGR,
    LBC,
    METHODS,
    MFD,
    RVP,
    RW,
    Batch,
    CellMeans,
    Cov,
    FairBatch,
    FairDRO,
    FairHSIC,
    GroupDROEG,
    LogRange,
    Renyi,
    Scratch,
    Task,
    WithoutDRO,
    get_method,
)  # fmt: skip
from fairdro.methods.pl import PL, stationary


def means(*rows):
    return CellMeans(torch.tensor(rows), torch.tensor(rows))


@pytest.mark.parametrize(("key", "rho"), [("B_smooth_paper_rho1", 1.0), ("B_smooth_code_rho1", 2.0)])
def test_smoothing_vectors(vectors, key, rho):
    method = FairDRO(rho=rho)
    state = method.begin(Task(torch.ones(1, 2)))
    for step, paper in zip(vectors[key], vectors["B_smooth_paper_rho1"], strict=True):
        state = method.update(state, means(paper["L"]), step["t"] / 4)
        assert state["q"][0].tolist() == pytest.approx(step["q"], abs=1e-6)


def test_without_smoothing_q_is_the_best_response():
    method = FairDRO(rho=1.0, smoothing="none")
    state = method.update(method.begin(Task(torch.ones(1, 2))), means([0.3, 0.2]), 0.9)
    assert state["q"][0].tolist() == pytest.approx([1, 0], abs=1e-6)


def test_joint_weights(vectors):
    case = vectors["O_wo_classwise_rho1"]
    method = FairDRO(rho=1.0, classwise=False)
    losses = torch.tensor(case["flat_order_g_times_Y_plus_y"]).view(2, 2).T  # the vectors number cells by group first
    state = method.update(method.begin(Task(torch.ones(2, 2))), CellMeans(losses), 0.0)
    assert state["q"].T.flatten().tolist() == pytest.approx(case["q_paper"], abs=1e-6)
    assert method.weights(state).sum() == pytest.approx(2)  # the engine divides by the number of classes


def test_group_dro_vector(vectors):
    losses = torch.tensor(vectors["C_gdro_eg_gamma0.1"]["group_loss_order_g_times_Y_plus_y"]).view(2, 2).T
    method = FairDRO(uncertainty="simplex", classwise=False)
    state = method.update(method.begin(Task(torch.ones(2, 2))), CellMeans(losses), 0.0)
    assert state["q"].T.flatten().tolist() == [0, 0, 0, 1]


def test_signal_loss_responds_to_the_loss():
    method = FairDRO(rho=1.0, signal="loss")
    assert method.needs_loss
    cells = CellMeans(torch.tensor([[0.1, 0.3]]), torch.tensor([[0.9, 0.2]]))
    state = method.update(method.begin(Task(torch.ones(1, 2))), cells, 0.0)
    assert state["q"][0].tolist() == pytest.approx([1, 0], abs=1e-6)


@pytest.mark.parametrize("key", ["E_rw_small", "E_rw_adult_train"])
def test_reweighing_vectors(vectors, key):
    counts = torch.tensor(vectors[key]["n_g_y"], dtype=torch.float64).T
    method = RW(objective="standard")
    weights = method.weights(method.begin(Task(counts)))
    per_sample = weights / 2 / (counts / counts.sum())
    assert per_sample.T.flatten().tolist() == pytest.approx(np.array(vectors[key]["kamiran"]).flatten(), abs=1e-6)
    balanced = RW()
    assert balanced.weights(balanced.begin(Task(counts))).sum(-1).tolist() == pytest.approx([1, 1])


def test_label_bias_correction_vectors(vectors):
    case = vectors["F_lbc_eta2"]
    counts = torch.tensor(case["n_g_y"], dtype=torch.float64).T
    method = LBC(eta=2.0)
    state = method.begin(Task(counts))
    assert (2 * method.weights(state)).flatten().tolist() == [0.5] * 4
    for correct, step in zip(("correct_iter1", "correct_iter2"), case["steps"], strict=True):
        error = 1 - torch.tensor(case[correct], dtype=torch.float64).T / counts
        state = method.next_round(state, CellMeans(error))
        assert state["multipliers"].T.flatten().tolist() == pytest.approx(np.array(step["mult"]).flatten(), abs=1e-6)
        assert (2 * method.weights(state)).T.flatten().tolist() == pytest.approx(np.array(step["w"]).flatten(), abs=1e-6)
    loss = (method.weights(state) * torch.tensor(case["cell_ce"]).T).sum() / 2
    assert float(loss) == pytest.approx(case["bal_loss_after_iter2"], abs=1e-6)


def test_label_bias_correction_in_a_single_round_moves_at_every_update():
    counts = torch.tensor([[30.0, 20.0], [10.0, 40.0]])
    cells = CellMeans(torch.tensor([[0.1, 0.3], [0.25, 0.2]], dtype=torch.float64))
    single, several = LBC(eta=2.0, rounds=1), LBC(eta=2.0)
    state = single.begin(Task(counts))
    assert torch.equal(single.update(state, cells, 0.5)["multipliers"], several.next_round(state, cells)["multipliers"])
    assert several.update(state, cells, 0.5) is state
    with pytest.raises(InputError, match="positive whole number"):
        LBC(rounds=0)


def test_fairbatch_vectors(vectors):
    case = vectors["G_fairbatch_gamma0.1"]
    counts = torch.tensor(case["n_g_y"], dtype=torch.float64).T
    method = FairBatch(alpha=0.1, objective="standard")
    state = method.begin(Task(counts))
    for step in case["steps"]:
        if "loss_y_g" in step:
            losses = torch.tensor(step["loss_y_g"], dtype=torch.float64)
            state = method.update(state, CellMeans(losses, losses), 0.0)
        assert state["rates"].flatten().tolist() == pytest.approx(np.array(step["lam"]).flatten(), abs=1e-6)
        sizes = case["B"] * method.weights(state) / 2
        assert sizes.round().flatten().tolist() == pytest.approx(np.array(step["sizes"]).flatten(), abs=1)
    three = case["three_groups_gamma05"]
    losses = torch.tensor(three["loss"], dtype=torch.float64)
    state = {"rates": torch.tensor(three["lam0"], dtype=torch.float64), "class_share": torch.ones(2, 3)}
    moved = FairBatch(alpha=0.5).update(state, CellMeans(losses, losses), 0.0)["rates"]
    assert moved.flatten().tolist() == pytest.approx(np.array(three["lam1"]).flatten(), abs=1e-6)


def test_fairbatch_of_the_authors_compares_neighbours():
    losses = torch.tensor(
        [[0.9, 0.5, 0.1], [0.2, 0.8, 0.3]], dtype=torch.float64
    )  # gaps 0.8 and 0.6; of neighbours 0.4, 0.6
    for variant, moved in (("paper", (0, 0)), ("code", (1, 1))):
        method = FairBatch(alpha=0.1, variant=variant)
        state = method.begin(Task(torch.ones(2, 3)))
        shift = method.update(state, CellMeans(losses, losses), 0.0)["rates"] - state["rates"]
        assert (shift == shift.max()).nonzero().tolist() == [list(moved)]
        assert ((shift != 0).sum(1) > 0).tolist() == [moved[0] == 0, moved[0] == 1]


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


def test_equal_and_dead_features_have_finite_slopes():
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


def test_equal_groups_have_finite_slopes():
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
    state["multipliers"] = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    assert (method.weights(state) == 0).tolist() == [[False, False], [True, False]]
    batch = batch_of([[0.0, 2.0], [0.0, 2.0]], [1, 1], [0, 1])
    expected = float(method._cost_sensitive(state)[0][1, 0]) * math.log1p(math.exp(2.0)) / 2
    assert float(method.penalty(state, batch)) == pytest.approx(expected)


def test_two_hyperparameters_make_a_grid():
    @dataclass(frozen=True)
    class Two(Scratch):
        search: ClassVar[dict[str, LogRange]] = {"a": LogRange(1, 100), "b": LogRange(1, 10)}
        a: float = 1.0
        b: float = 1.0

    method = Two.sweep(12)
    assert method.points == 12
    assert len(set(zip(method.a, method.b, strict=True))) == 12
    assert (len(set(method.a)), len(set(method.b))) == (4, 3)


def test_ablations_are_fairdro_with_one_switch_turned():
    switches = {name: METHODS[name]().hyperparameters(0) for name in METHODS if issubclass(METHODS[name], FairDRO)}
    plain = switches.pop("fairdro")
    turned = {name: {k for k, v in values.items() if v != plain[k]} for name, values in switches.items()}
    assert turned == {
        "fairdro_wo_smoothing": {"smoothing"},
        "fairdro_wo_classwise": {"classwise"},
        "fairdro_nonnegative": {"uncertainty"},
        "classwise_simplex": {"uncertainty"},
        "group_dro": {"uncertainty", "classwise"},
    }


def test_a_bank_of_radii_equals_single_radii():
    radii = (0.0, 0.5, 4.0)
    bank = FairDRO(rho=radii, uncertainty="chi_square_nonnegative")
    errors = torch.rand(2, 3, 2, 4)
    state = bank.update(bank.begin(Task(torch.ones(2, 4), (2, 3))), CellMeans(errors), 0.3)
    for p, rho in enumerate(radii):
        single = FairDRO(rho=rho, uncertainty="chi_square_nonnegative")
        alone = single.update(single.begin(Task(torch.ones(2, 4))), CellMeans(errors[1, p]), 0.3)
        torch.testing.assert_close(state["q"][1, p], alone["q"])


def test_an_empty_training_cell_never_gets_weight():
    counts = torch.tensor([[5.0, 0.0, 3.0], [2.0, 2.0, 2.0]])
    for method in (Scratch(), Scratch(objective="standard"), FairDRO(rho=9.0), FairDRO(rho=9.0, classwise=False)):
        state = method.begin(Task(counts))
        errors = torch.tensor([[0.1, math.nan, 0.4], [0.2, 0.3, 0.1]])
        state = method.update(state, CellMeans(errors, errors), 0.0)
        weights = method.weights(state)
        assert weights[0, 1] == 0
        assert weights.isfinite().all()
        assert weights.sum() == pytest.approx(2)


def test_standard_objective_weights_cells_by_their_size():
    state = Scratch(objective="standard").begin(Task(torch.tensor([[30.0, 20.0], [10.0, 40.0]])))
    assert (state["weights"] / 2).flatten().tolist() == pytest.approx([0.3, 0.2, 0.1, 0.4])


def test_grids():
    assert FairDRO.sweep(20).rho[:2] == (0.0, 0.01)
    assert FairDRO.sweep(20).points == 20
    assert FairDRO.sweep(20).hyperparameters(19)["rho"] == 100
    assert Scratch.sweep(20).points == 1
    assert FairDRO(rho=np.array([1.0, 2.0])).rho == FairDRO(rho=torch.tensor([1.0, 2.0])).rho == (1.0, 2.0)
    assert LogRange(0.01, 100).grid(5) == (0.01, 0.1, 1, 10, 100)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: FairDRO(rho=-1), "rho of fairdro must not be negative, infinite or missing"),
        (lambda: FairDRO(rho=(1.0, math.nan)), "rho of fairdro must not be negative, infinite or missing"),
        (lambda: FairDRO(rho="1"), "rho of fairdro must be a number or a sequence of numbers"),
        (lambda: FairDRO(rho=None), "must be a number or a sequence"),
        (lambda: FairDRO(rho=[]), "must be a number or a sequence"),
        (lambda: FairDRO(rho=[[1.0]]), "must be a number or a sequence"),
        (lambda: FairDRO(uncertainty="kl"), "no uncertainty named 'kl'"),
        (lambda: FairDRO(smoothing="exp"), "no smoothing named 'exp'"),
        (lambda: FairDRO(signal="margin"), "no signal named 'margin'"),
        (lambda: FairDRO(uncertainty="simplex", softness=0.1), "softness is defined for"),
        (lambda: Scratch(objective="fair"), "no objective named 'fair'"),
        (lambda: get_method("fairdo"), f"no method named 'fairdo'; choose one of: {', '.join(METHODS)}"),
        (lambda: LogRange(1, 10).grid(0), "at least one point"),
    ],
)
def test_bad_input_is_one_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()
