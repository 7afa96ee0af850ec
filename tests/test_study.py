"""A study in TOML: what it may say, and messages that name the line."""

import pandas as pd
import pytest

from command import run_here
from fairdro.bench import BenchPlan, read_study
from fairdro.errors import InputError
from fairdro.selection import KeepAccuracy, Knee

GOOD = """
out = "there"
workers = 1
select = "knee"

[[bench]]
datasets = ["compas"]
points = 4

[[bench]]
datasets = ["compas"]
methods = ["scratch", "rw"]
split = 2
adaptive = false
"""


def written(tmp_path, text):
    path = tmp_path / "study.toml"
    path.write_text(text)
    return path


def test_a_study_is_a_list_of_plans(tmp_path):
    study = read_study(written(tmp_path, GOOD))
    assert study.plans == [
        BenchPlan(datasets=["compas"], points=4),
        BenchPlan(datasets=["compas"], methods=["scratch", "rw"], split=2, adaptive=False),
    ]
    assert (str(study.out), study.workers, study.rule) == ("there", 1, Knee())
    least = read_study(written(tmp_path, "[[bench]]\n"))
    assert (str(least.out), least.workers, least.rule) == ("results", None, KeepAccuracy(0.95))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("points = 4", "points = 0"), "line 8: points must lie between 1 and 1000, got 0."),
        (("points = 4", "points = 'many'"), "line 8: points must be a whole number, got 'many'."),
        (("points = 4", "points = true"), "line 8: points must be a whole number, got True."),
        (("points = 4", "pionts = 4"), "line 8: there is no option 'pionts'; choose one of: datasets, methods"),
        (("split = 2", "split = -1"), "line 13: split must lie between 0 and 4294967295, got -1."),
        (('"rw"', '"wr"'), "line 12: There is no method named 'wr'"),
        (('methods = ["scratch", "rw"]', 'methods = ["cov"]'), "line 12: cov needs mini-batches"),
        (
            ('methods = ["scratch", "rw"]', 'methods = ["mfd"]\nsolvers = ["minibatch"]'),
            "line 12: mfd needs the features of a hidden layer",
        ),
        (('methods = ["scratch", "rw"]', "methods = [3]"), "line 12: methods must be a list of names"),
        (('methods = ["scratch", "rw"]', 'methods = "rw"'), "line 12: methods must be a list of names"),
        (("adaptive = false", 'adaptive = "no"'), "line 14: adaptive must be true or false, got 'no'."),
        (('"knee"', '"elbow"'), "line 4: There is no selection rule named 'elbow'"),
        (('"knee"', '"max-dca=7"'), "line 4: The selection rule 'max-dca=7' needs a share between 0 and 1"),
        (("workers = 1", 'workers = "two"'), "line 3: workers must be a whole number"),
        (
            ("workers = 1", "wrokers = 1"),
            "line 3: there is no option 'wrokers'; choose one of: out, workers, cluster, select",
        ),
        (("workers = 1", "workers = 0"), "line 3: workers must be at least 1, got 0."),
        (('"there"', '""'), "line 2: out must name a folder."),
        (("points = 4", 'methods = ["cov"]\nsolvers = ["minibatch"]\npoints = 0'), "line 10: points must lie between"),
        (("points = 4", "points = " + 5000 * "9"), "is not valid TOML"),
        (("points = 4", "points = " + 5000 * "["), "is not valid TOML"),
        (("[[bench]]", "[bench"), r"is not valid TOML: .* \(at line 6"),
        (("[[bench]]", "[[bank]]"), "describes no bench"),
    ],
)
def test_a_mistake_names_the_line(tmp_path, change, sentence):
    with pytest.raises(InputError, match=sentence):
        read_study(written(tmp_path, GOOD.replace(*change)))


def test_unreadable_studies_are_one_sentence(tmp_path):
    with pytest.raises(InputError, match="Cannot read"):
        read_study(tmp_path / "missing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a text file"):
        read_study(tmp_path / "binary.toml")


def test_the_command_runs_a_study(tmp_path):
    path = written(tmp_path, GOOD)
    done = run_here("bench", "--file", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = pd.read_csv(tmp_path / "there" / "results.csv")
    assert set(zip(results["method"], results["split"], strict=True)) == {
        ("scratch", 0), ("fairdro", 0), ("scratch", 2), ("rw", 2),
    }  # fmt: skip
    assert "Knee of the frontier" in done.stdout
    assert "report.html" in done.stdout
