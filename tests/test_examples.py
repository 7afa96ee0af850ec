"""The examples run, and show what they say."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def printed(capsys):
    def run(name):
        runpy.run_path(str(EXAMPLES / f"{name}.py"))
        return capsys.readouterr().out

    return run


def figures(text, name):
    return [float(value) for value in re.findall(rf"{name} = ([\d.]+)", text)]


def test_credit(printed):
    plain, fair = figures(printed("credit"), "DCA")
    assert fair < plain / 3


@pytest.mark.slow
def test_three_classes_five_groups(printed):
    text = printed("three_classes_five_groups")
    gaps, worst = figures(text, "DCA"), figures(text, "worst class and group")
    assert "fairlearn: Supplied y labels are not 0 or 1" in text
    assert min(gaps) < 0.6 * gaps[0]
    assert max(worst) > worst[0] + 5


def test_soft_groups(printed):
    plain, _, true, guessed = figures(printed("soft_groups"), "DCA")
    assert true < 0.6 * plain
    assert guessed < 0.75 * plain


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Setting a")  # fairlearn with the newest pandas
def test_from_fairlearn(printed):
    lines = {line.split("  ")[0]: line.split()[-5:] for line in printed("from_fairlearn").splitlines()[1:]}
    theirs, ours = (list(map(float, lines[name])) for name in ("ExponentiatedGradient", "FairDRO"))
    assert ours[0] > theirs[0] - 0.02


@pytest.mark.slow
def test_keep_accuracy(printed):
    text = printed("keep_accuracy")
    correct, gaps = figures(text, "correct"), figures(text, "DCA")
    assert correct[2] > 0.985 * correct[0]
    assert correct[1] < correct[2] - 2
    assert gaps[2] < 0.5 * gaps[0]


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
@pytest.mark.filterwarnings("ignore:The accuracy of a cell still moved")
def test_who_pays(printed):
    text = printed("who_pays")
    free, guarded, _ = figures(text, "worst class and group")
    assert guarded > free
    assert "was passed over, as it levels down" in text


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
