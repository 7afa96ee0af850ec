"""The q-update of FairDRO and its switches, and methods that weigh cells, against the vectors; grids."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from fairdro.errors import InputError
from fairdro.methods import (
    LBC,
    METHODS,
    RW,
    CellMeans,
    FairBatch,
    FairDRO,
    LogRange,
    Scratch,
    Task,
    get_method,
)  # fmt: skip


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
