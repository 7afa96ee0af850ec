"""The examples run, and show what they say."""

import re
import runpy
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from fairdro.methods import METHODS

mpl.use("Agg")
EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def printed(capsys, monkeypatch):
    """Run an example, which must draw something, and return what it prints."""
    monkeypatch.setattr(plt, "show", lambda: None)

    def run(name):
        runpy.run_path(str(EXAMPLES / f"{name}.py"))
        axes = [ax for number in plt.get_fignums() for ax in plt.figure(number).axes]
        assert axes
        assert all(ax.has_data() for ax in axes)
        assert any(ax.get_ylabel() or ax.get_xlabel() for ax in axes)
        return capsys.readouterr().out

    yield run
    plt.close("all")


def figures(text, name):
    return [float(value) for value in re.findall(rf"{name} = ([\d.]+)", text)]


@pytest.mark.slow
def test_credit(printed):
    plain, fair = figures(printed("credit"), "DCA")
    assert fair < plain / 3


@pytest.mark.slow
def test_credit_threshold(printed):
    text = printed("credit_threshold")
    plain, fair = figures(text, "DCA")
    assert fair < plain / 3
    ((man, woman),) = re.findall(r"surest man = ([\d.]+), for the surest woman = ([\d.]+)", text)
    assert float(woman) < float(man)


@pytest.mark.slow
def test_three_classes_five_groups(printed):
    text = printed("three_classes_five_groups")
    gaps, worst = figures(text, "DCA"), figures(text, "worst class and group")
    assert "fairlearn: Supplied y labels are not 0 or 1" in text
    assert min(gaps) < 0.6 * gaps[0]
    assert max(worst) > worst[0] + 5


@pytest.mark.slow
def test_soft_groups(printed):
    plain, _, true, guessed = figures(printed("soft_groups"), "DCA")
    assert true < 0.6 * plain
    assert guessed < 0.75 * plain


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Setting a")  # fairlearn with the newest pandas
def test_from_fairlearn(printed):
    (accuracies,) = re.findall(r"balanced accuracy +([\d.]+) +([\d.]+) +([\d.]+)", printed("from_fairlearn"))
    theirs, ours, _ = map(float, accuracies)
    assert ours > theirs - 0.02


@pytest.mark.slow
def test_keep_accuracy(printed):
    text = printed("keep_accuracy")
    correct, gaps = figures(text, "correct"), figures(text, "DCA")
    assert correct[2] > 0.985 * correct[0]
    assert correct[1] < correct[2] - 2
    assert gaps[2] < 0.5 * gaps[0]


@pytest.mark.slow
def test_approvals_only(printed):
    text = printed("approvals_only")
    assert max(figures(text, "gap of those who repay")) < 6
    costs = figures(text, "cost per applicant")
    assert costs[1] < costs[0]


@pytest.mark.slow
def test_unknown_groups(printed):
    plain, _, inferred, *_ = figures(printed("unknown_groups"), "DCA")
    assert inferred < 0.7 * plain


@pytest.mark.slow
def test_who_pays(printed):
    text = printed("who_pays")
    free, guarded, _ = figures(text, "worst class and group")
    assert guarded > free
    assert "was passed over, as it levels down" in text


@pytest.mark.slow
def test_probabilities(printed):
    plain, fair = figures(printed("probabilities"), "Brier score")
    assert fair < 1.05 * plain


def test_audit(printed):
    old, new = figures(printed("audit"), "impact ratio")
    assert old < 0.8
    assert 0.9 < new < 1.1


@pytest.mark.slow
def test_dask_head(capsys):
    runpy.run_path(str(EXAMPLES / "dask_head.py"), run_name="__main__")  # which starts processes
    plain, fair = figures(capsys.readouterr().out, "DCA")
    assert fair < 0.6 * plain


@pytest.mark.slow
def test_adult(printed):
    text = printed("adult")
    plain, chosen = figures(text, "DCA")
    assert chosen < 0.5 * plain
    assert text.count("True") == 1  # the chosen radius


@pytest.mark.slow
def test_compas(printed):
    text = printed("compas")
    (plain,), (fair,) = figures(text, "plain"), figures(text, "FairDRO")
    assert fair < 0.75 * plain


@pytest.mark.slow
def test_head_on_xgboost(printed):
    text = printed("head_on_xgboost")
    accuracies, gaps = figures(text, "balanced accuracy"), figures(text, "DCA")
    assert gaps[2] < 0.5 * min(gaps[:2])
    assert accuracies[2] > 0.96 * accuracies[1]


@pytest.mark.slow
def test_trained_model(printed):
    text = printed("trained_model")
    promised, kept = figures(text, "promised"), figures(text, "test rows")
    assert kept[0] < 0.5 * kept[1]  # a head that is fitted to rows the model has memorised does not hold
    assert promised[1] < 0.5 * kept[1]


@pytest.mark.slow
def test_pytorch_loop(printed):
    plain, fair = figures(printed("pytorch_loop"), "DCA")
    assert fair < 0.7 * plain


@pytest.mark.slow
def test_texts(printed):
    ordinary, balanced, fair = figures(printed("texts"), "DCA")
    assert max(balanced, fair) < ordinary


@pytest.mark.slow
def test_last_layer(printed):
    text = printed("last_layer")
    accuracies, gaps = figures(text, "balanced accuracy"), figures(text, "DCA")
    assert gaps[1] < gaps[0]
    assert accuracies[1] > accuracies[0]


@pytest.mark.slow
def test_own_method(printed, monkeypatch):
    monkeypatch.setitem(METHODS, "tilted", None)  # so that what the example registers is forgotten
    rows = re.findall(r"(tilted|fairdro) .* ([\d.]+)$", printed("own_method"), re.MULTILINE)
    tilted, fairdro = ([float(gap) for name, gap in rows if name == own] for own in ("tilted", "fairdro"))
    assert tilted[-1] < tilted[0]
    assert fairdro[-1] < tilted[-1]


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        name.removeprefix("test_")
        for name in globals()
        if name.startswith("test_") and name != "test_every_example_is_tested"
    }


def test_certified(printed):
    text = printed("certified")
    assert "Certified with 95 % confidence by 4,800 rows" in text.splitlines()[0]
    assert "No radius is certified to have a DCA of at most 4 %" in text
    assert len(re.findall(r"[Aa]bout [0-9,]+ such rows would certify|need [0-9,]+ rows", text)) >= 2
