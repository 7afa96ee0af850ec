"""q* against the closed form's vectors, against an independent solver, and the paper's theory as laws."""

import math

import cvxpy
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairdro.errors import InputError
from fairdro.metrics import METRICS
from fairdro.uncertainty import ChiSquareBall, Simplex

loss_values = st.floats(0, 1, allow_subnormal=False).map(lambda v: round(v, 6))
losses = st.lists(loss_values, min_size=1, max_size=7)
radii = st.floats(1e-3, 100)
THREE_GROUPS = {"even": [0.10, 0.20, 0.30], "uneven": [0.12, 0.12, 0.31]}  # errors of two models, as on docs/paper.md
dtypes = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 2e-6)])


def best(values, rho, dtype=torch.float64, **options):
    return ChiSquareBall(rho, **options).best_response(torch.tensor(values, dtype=dtype))


@dtypes
@pytest.mark.parametrize(
    ("key", "scale", "signed"),
    [
        ("q_paper", 1, True),
        ("q_code_2rho", 2, True),
        ("q_nonneg_chi2_le_rho", 1, False),
        ("q_nonneg_chi2_le_2rho", 2, False),
    ],
)
def test_vectors(vectors, key, scale, signed, dtype, tolerance):
    for case in vectors["A_qstar"]:
        q = best(case["L"], scale * case["rho"], dtype, signed=signed)
        assert q.tolist() == pytest.approx(case[key], abs=tolerance), case


def test_vectors_of_value_and_range(vectors):
    for case in vectors["A_qstar"]:
        q = best(case["L"], case["rho"])
        assert float(q @ torch.tensor(case["L"], dtype=torch.float64)) == pytest.approx(case["value_paper"], abs=1e-6)
        assert q.min() >= case["min_bound"] - 1e-6
        assert q.max() <= case["max_bound"] + 1e-6


def test_joint_vector(vectors):
    case = vectors["O_wo_classwise_rho1"]
    assert best(case["flat_order_g_times_Y_plus_y"], 1.0).tolist() == pytest.approx(case["q_paper"], abs=1e-6)


@dtypes
@pytest.mark.parametrize("signed", [True, False])
def test_an_empty_cell_gets_no_weight(vectors, signed, dtype, tolerance):
    case = vectors["A_empty_cell_recommended"]
    values = [math.nan if v is None else v for v in case["L"]]
    assert best(values, case["rho_prime"], dtype, signed=signed).tolist() == pytest.approx(case["q"], abs=tolerance)


@pytest.mark.parametrize("uncertainty", [ChiSquareBall(2.0), ChiSquareBall(2.0, signed=False), Simplex()])
def test_a_class_without_samples_gets_zeros(uncertainty):
    response = uncertainty.best_response(torch.tensor([[math.nan, math.nan], [0.1, 0.3]]))
    assert response[0].tolist() == [0, 0]
    assert response[1].sum() == pytest.approx(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("value", [0.0, 0.2, 1 / 3, 40.1])
def test_equal_losses_give_uniform_weights(dtype, signed, size, value):
    q = best([value] * size, 5.0, dtype, signed=signed)
    assert q.tolist() == pytest.approx([1 / size] * size)


@given(losses, radii)
def test_lemma_1_the_value_is_mean_plus_root_of_rho_variance(values, rho):
    q = best(values, rho).numpy()
    assert q @ values == pytest.approx(np.mean(values) + math.sqrt(rho * np.var(values)), abs=1e-9)
    assert q.sum() == pytest.approx(1)


@given(losses, radii)
def test_proposition_2_range(values, rho):
    n = len(values)
    q = best(values, rho)
    reach = math.sqrt(rho * (n - 1)) / n
    assert q.min() >= 1 / n - reach - 1e-9
    assert q.max() <= 1 / n + reach + 1e-9


@given(st.lists(st.integers(0, 50), min_size=2, max_size=7))
def test_proposition_1(wrong):
    """On real counts: the gap in accuracy of a class lies between sqrt(2 Var) and A sqrt(2 Var) of the 0-1 losses."""
    counts = np.array([[[50 - w, w] for w in wrong], [[0, 50] for _ in wrong]], dtype=float)  # class 1 has no gap
    gap = 2 * METRICS["dca"](counts)
    values = np.array(wrong) / 50
    deviation = math.sqrt(2 * np.var(values))
    assert deviation <= gap + 1e-12
    assert gap <= len(values) * deviation + 1e-12


def test_proposition_1_vector(vectors):
    case = vectors["D_prop1"]
    variance = np.var(case["L"])
    assert variance == pytest.approx(case["var_pop"], abs=1e-6)
    assert math.sqrt(2 * variance) == pytest.approx(case["lower"], abs=1e-6)
    assert len(case["L"]) * math.sqrt(2 * variance) == pytest.approx(case["upper"], abs=1e-6)


@given(st.lists(st.lists(loss_values, min_size=3, max_size=3), min_size=1, max_size=4), radii)
def test_corollary_1_the_multiplier_of_root_rho_dca_is_one_over_c(classes, rho):
    """The robust value exceeds the balanced error by sqrt(rho) * DCA / C with C in [sqrt 2, sqrt 2 * A]."""
    error = torch.tensor(classes, dtype=torch.float64)
    robust = (ChiSquareBall(rho).best_response(error) * error).sum(-1).mean()
    excess = float(robust - error.mean())
    dca = float((error.amax(-1) - error.amin(-1)).mean())
    assert math.sqrt(rho) * dca / (math.sqrt(2) * 3) <= excess + 1e-9
    assert excess <= math.sqrt(rho) * dca / math.sqrt(2) + 1e-9


@given(losses.filter(lambda values: max(values) - min(values) > 1e-3), radii)
def test_the_multiplier_of_the_gap_is_far_below_the_range_that_the_paper_prints(values, rho):
    """Of sqrt(rho) * gap: from 1 / sqrt(2 A) to 1 / 2; the paper prints from sqrt 2 to sqrt 2 * A."""
    excess = float(best(values, rho).numpy() @ values) - np.mean(values)
    multiplier = excess / (math.sqrt(rho) * (max(values) - min(values)))
    assert 1 / math.sqrt(2 * len(values)) - 1e-6 <= multiplier <= 1 / 2 + 1e-6


@pytest.mark.parametrize(
    ("values", "multiplier"), [([0.1, 0.3], 1 / 2), ([0.1, 0.1, 0.3, 0.3], 1 / 2), ([0.1, 0.2, 0.2, 0.3], 1 / math.sqrt(8))]
)
def test_both_ends_of_that_range_are_reached(values, multiplier):
    excess = float(best(values, 9.0).numpy() @ values) - np.mean(values)
    assert excess / (3 * 0.2) == pytest.approx(multiplier)


def test_with_three_groups_no_constant_makes_the_corollary_an_equality():
    """FairDRO prefers the first of two models, though the second has less error and a smaller gap."""
    robust = {name: float(best(values, 9.0).numpy() @ values) for name, values in THREE_GROUPS.items()}
    assert robust == pytest.approx({"even": 0.445, "uneven": 0.452}, abs=5e-4)
    assert np.mean(THREE_GROUPS["uneven"]) < np.mean(THREE_GROUPS["even"])
    assert np.ptp(THREE_GROUPS["uneven"]) < np.ptp(THREE_GROUPS["even"])


@given(losses.filter(lambda values: max(values) - min(values) > 1e-3), st.floats(1e-3, 0.999))
def test_weights_are_negative_never_for_small_radii_and_always_for_large_ones(values, share):
    n = len(values)
    assert best(values, share / (n - 1)).min() >= 0
    assert best(values, (n - 1) / share).min() < 0
    assert best([0.0] + [1.0] * (n - 1), 1 / (n - 1) / share).min() < 0
    assert best([1.0] + [0.0] * (n - 1), (n - 1) * share).min() > 0


def solve_independently(values, rho, signed):
    """Return the optimal value by cvxpy."""
    n = len(values)
    q = cvxpy.Variable(n)
    constraints = [cvxpy.sum(q) == 1, n * cvxpy.sum_squares(q - 1 / n) <= rho]
    if not signed:
        constraints.append(q >= 0)
    return cvxpy.Problem(cvxpy.Maximize(q @ np.array(values)), constraints).solve(solver=cvxpy.CLARABEL)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_against_cvxpy(signed, seed):
    rng = np.random.default_rng(seed)
    values = rng.random(rng.integers(2, 7)).round(int(rng.integers(1, 4)))  # coarse rounding makes ties
    rho = float(10 ** rng.uniform(-2, 1.2))
    q = best(values, rho, signed=signed).numpy()
    n = len(values)
    assert n * ((q - 1 / n) ** 2).sum() <= rho + 1e-9
    assert signed or q.min() >= 0
    assert q @ values == pytest.approx(solve_independently(values, rho, signed), abs=1e-6)


@given(losses, radii)
def test_non_negative_response_is_feasible_and_not_below_a_vertex_in_reach(values, rho):
    n = len(values)
    q = best(values, rho, signed=False).numpy()
    assert q.min() >= 0
    assert q.sum() == pytest.approx(1)
    assert n * ((q - 1 / n) ** 2).sum() <= rho + 1e-6
    assert q @ values >= np.mean(values) - 1e-9
    if rho >= n - 1:
        assert q @ values == pytest.approx(max(values), abs=1e-9)


@given(st.integers(2, 5), st.integers(0, 2**31 - 1))
def test_batched_radii_equal_one_by_one(groups, seed):
    rng = torch.Generator().manual_seed(seed)
    values = torch.rand(3, 2, groups, generator=rng, dtype=torch.float64)
    rho = torch.tensor([0.1, 1.0, 9.0], dtype=torch.float64)
    for signed in (True, False):
        together = ChiSquareBall(rho[:, None], signed=signed).best_response(values)
        for k in range(3):
            for y in range(2):
                alone = ChiSquareBall(float(rho[k]), signed=signed).best_response(values[k, y])
                torch.testing.assert_close(together[k, y], alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("signed", [True, False])
def test_infinite_and_huge_losses_give_finite_weights(dtype, signed):
    q = best([math.inf, 1.0, 2.0], 1.0, dtype, signed=signed)
    assert q.isfinite().all()
    assert q.argmax() == 0
    assert best([1e30, 0.0], 0.25, dtype, signed=signed).tolist() == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("signed", [True, False])
def test_losses_that_differ_by_rounding_only_are_equal(signed):
    q = ChiSquareBall(5.0, signed=signed).best_response(torch.tensor([0.1 + 0.2, 0.3, 0.30000001]))
    assert q.tolist() == pytest.approx([1 / 3] * 3)


def test_lists_arrays_and_whole_numbers_are_losses_too():
    for values in ([0, 1, 2], np.array([0, 1, 2]), torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2], dtype=torch.float16)):
        assert ChiSquareBall(0.5).best_response(values).tolist() == pytest.approx(best([0.0, 1.0, 2.0], 0.5).tolist())
        assert Simplex().best_response(values).tolist() == [0, 0, 1]


def test_simplex_puts_all_weight_on_the_first_largest_loss():
    assert Simplex().best_response(torch.tensor([[0.2, 0.9, 0.9], [0.5, 0.1, math.nan]])).tolist() == [
        [0, 1, 0],
        [1, 0, 0],
    ]


@given(st.floats(-0.5, 0.5), st.floats(0.01, 50))
def test_soft_response_fades_to_uniform_as_the_groups_meet(gap, rho):
    sharp = best([0.5, 0.5 + gap], rho)
    soft = best([0.5, 0.5 + gap], rho, softness=0.02)
    shrink = abs(gap) / math.sqrt(2) / (abs(gap) / math.sqrt(2) + 0.02)
    assert (soft - 0.5).tolist() == pytest.approx((shrink * (sharp - 0.5)).tolist(), abs=1e-6)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ChiSquareBall(-1.0), "rho must be zero or a positive finite number"),
        (lambda: ChiSquareBall("1"), "rho must be a number"),
        (lambda: ChiSquareBall(None), "rho must be a number"),
        (lambda: ChiSquareBall(math.nan), "rho must be zero or a positive finite number"),
        (lambda: ChiSquareBall(torch.tensor([1.0, -2.0])), "rho must be zero or a positive finite number"),
        (lambda: ChiSquareBall(1.0, softness=-1), "softness must not be negative"),
        (lambda: ChiSquareBall(1.0, softness=0.1, signed=False), "signed ball only"),
    ],
)
def test_bad_input_is_one_sentence(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()
