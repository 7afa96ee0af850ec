"""What every registered method must do, for any number of classes and groups, hard or soft, alone or in a bank."""

import pytest
import torch

from fairdro.errors import InputError
from fairdro.methods import METHODS, CellMeans, Scratch, Task
from fairdro.metrics import METRICS, confusion_counts
from fairdro.training import train_fullbatch, train_minibatch
from problems import biased_problem

pytestmark = pytest.mark.filterwarnings("ignore:The accuracy of a cell still moved")  # short runs on purpose

every_method = pytest.mark.parametrize("name", list(METHODS))
every_shape = pytest.mark.parametrize(
    ("n_classes", "n_groups", "soft"), [(y, a, soft) for y in (2, 3) for a in (2, 4) for soft in (False, True)]
)
RUN = {"epochs": 2, "batch_size": 48, "lr": 1e-2}


def model_for(name):
    return "mlp" if METHODS[name].needs_features else "linear"


def refuses(method, n_classes, n_groups):
    return n_classes > (method.max_classes or 99) or n_groups > (method.max_groups or 99)


@every_method
@every_shape
def test_a_bank_is_finite_and_equals_single_runs(name, n_classes, n_groups, soft):
    X, cells = biased_problem(n_classes, n_groups, n=240, soft=soft)
    method = METHODS[name].sweep(6)
    if refuses(method, n_classes, n_groups):
        with pytest.raises(InputError, match="use fairdro instead"):
            train_minibatch(X, cells, method)
        return
    run = {**RUN, "model": model_for(name)}
    bank = train_minibatch(X, cells, method, seeds=(0, 1), **run)
    again = train_minibatch(X, cells, method, seeds=(0, 1), **run)
    assert bank.logits(X).equal(again.logits(X))
    assert bank.logits(X).isfinite().all()
    assert bank.history.weights.isfinite().all()
    for s, p in ((0, 0), (1, method.points - 1)):
        values = {key: v for key, v in method.hyperparameters(p).items() if key in method.search}
        single = train_minibatch(X, cells, METHODS[name](**values), seeds=(s,), **run)
        torch.testing.assert_close(bank.logits(X)[s, p], single.logits(X)[0, 0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(bank.weights[s, p], single.weights[0, 0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].needs_features])
def test_a_linear_model_has_no_features(name):
    X, cells = biased_problem()
    with pytest.raises(InputError, match="use model mlp, or fairdro instead"):
        train_minibatch(X, cells, METHODS[name](), model="linear")


@every_method
@every_shape
def test_the_full_batch_solver_takes_it(name, n_classes, n_groups, soft):
    X, cells = biased_problem(n_classes, n_groups, n=240, soft=soft)
    method = METHODS[name].sweep(6, **METHODS[name].stepwise)
    if not method.weighs_cells():
        with pytest.raises(InputError, match="needs mini-batches"):
            train_fullbatch(X, cells, method)
        return
    trained = train_fullbatch(X, cells, method, steps=10)
    assert trained.logits(X).isfinite().all()
    assert trained.weights.isfinite().all()
    assert not trained.diverged.any()


def random_means(*bank_and_groups):
    *bank, n_groups = bank_and_groups
    error, loss = torch.rand(2, *bank, 2, n_groups, dtype=torch.float64)
    return CellMeans(error, loss, torch.rand(*bank, 2, n_groups, 2, dtype=torch.float64).softmax(-1))


@every_method
def test_the_state_survives_saving_and_loading(name, tmp_path):
    method = METHODS[name].sweep(3)
    counts = torch.tensor([[5.0, 9.0, 2.0], [4.0, 4.0, 8.0]], dtype=torch.float64)
    n_groups = method.max_groups or 3
    counts = counts[:, :n_groups]
    cells = [random_means(2, method.points, n_groups) for _ in range(3)]
    state = method.begin(Task(counts, (2, method.points)))
    for t, means in enumerate(cells[:2]):
        state = method.next_round(method.update(state, means, t / 3), means)
    torch.save(state, tmp_path / "state.pt")
    loaded = torch.load(tmp_path / "state.pt", weights_only=True)
    expected, after = (method.update(s, cells[2], 2 / 3) for s in (state, loaded))
    assert method.weights(expected).equal(method.weights(after))


@every_method
def test_an_empty_cell_gets_no_weight(name):
    counts = torch.tensor([[5.0, 0.0, 3.0], [2.0, 4.0, 2.0]], dtype=torch.float64)
    method = METHODS[name]()
    error = torch.tensor([[0.1, torch.nan, 0.4], [0.2, 0.3, 0.1]], dtype=torch.float64)
    if method.max_groups == 2:
        counts, error = counts[:, :2], error[:, :2]
    state = method.begin(Task(counts))
    means = CellMeans(error, 2 * error, torch.stack([1 - error, error], dim=-1))
    for t in range(3):
        state = method.next_round(method.update(state, means, t / 3), means)
        weights = method.weights(state)
        assert weights.isfinite().all()
        assert weights[0, 1] == 0


@pytest.mark.parametrize(
    "name",
    [
        "fairbatch", "cov", "fairhsic", "renyi", "mfd", "fairdro", "fairdro_wo_smoothing", "fairdro_wo_classwise",
        "fairdro_wo_dro", "rvp", "fairdro_nonnegative", "group_dro_eg",
    ],
)  # fmt: skip
def test_no_strength_is_scratch(name):
    X, cells = biased_problem(METHODS[name].max_classes or 3, METHODS[name].max_groups or 4)
    run = {**RUN, "model": model_for(name), "sampling": METHODS[name].sampling}
    nothing = train_minibatch(X, cells, METHODS[name](**dict.fromkeys(METHODS[name].search, 0.0)), **run)
    torch.testing.assert_close(nothing.logits(X), train_minibatch(X, cells, Scratch(), **run).logits(X))


@pytest.mark.parametrize(
    ("name", "strong"),
    [
        ("lbc", {"eta": 10.0}),
        ("fairbatch", {"alpha": 0.05}),
        ("cov", {"lam": 10.0}),
        ("fairhsic", {"lam": 100.0}),
        ("renyi", {"lam": 10.0}),
        ("mfd", {"lam": 100.0}),
        ("pl", {"eta": 10.0, "kappa": 0.01}),
        ("egr", {"eta": 5.0, "bound": 1.0, "objective": "standard"}),
        ("fairdro_wo_dro", {"lam": 3.0}),
        ("rvp", {"rho": 10.0}),
        ("fairdro", {"rho": 5.0}),
        pytest.param("fairdro_wo_smoothing", {"rho": 5.0}, marks=pytest.mark.slow),
        pytest.param("fairdro_wo_classwise", {"rho": 5.0}, marks=pytest.mark.slow),
        pytest.param("fairdro_nonnegative", {"rho": 5.0}, marks=pytest.mark.slow),
    ],
)
def test_a_strong_method_narrows_the_gap(name, strong):
    X, cells = biased_problem(2, 2, n=2000)
    options = {"epochs": 40, "lr": 1e-2}
    if METHODS[name].needs_features:
        options = {"epochs": 10, "lr": 3e-3, "model": "mlp"}  # longer, it learns the rows by heart
    gaps = [
        float(METRICS["dca"](confusion_counts(train_minibatch(X, cells, m, **options).predict(X), cells))[0, 0])
        for m in (Scratch(), METHODS[name](**strong))
    ]
    assert gaps[0] > 0.2
    assert gaps[1] < 0.6 * gaps[0]
