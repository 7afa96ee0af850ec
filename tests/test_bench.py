"""The bench from end to end on real data, and the command line as a person meets it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import altair as alt
import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from command import run_here
from fairdro.bench import BenchPlan, Store, Summary, run_bench, write_outputs
from fairdro.bench import tables as bench_tables
from fairdro.bench.bank import known_dataset
from fairdro.bench.figures import _spec, _vega, interactive_page, pictures
from fairdro.bench.tables import (
    PAPER_MODELS,
    comparison,
    how_chosen,
    over_seeds,
    paper_results,
    select,
    to_latex,
    to_markdown,
)
from fairdro.errors import InputError
from fairdro.frontier import non_dominated
from fairdro.methods import METHODS
from fairdro.metrics import METRICS
from fairdro.selection import Choice, LimitDCA

COLUMNS = [
    "dataset", "model", "method", "solver", "hyperparameters", "seed", "protocol", "split", "accuracy", "dca", "deo",
    "worst_accuracy", "standard_accuracy", "seconds",
]  # fmt: skip


def fairdro(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "fairdro", *arguments], capture_output=True, text=True, cwd=cwd, check=False
    )


def chosen_from(results, *rule):
    return select(over_seeds(results), *rule)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    done = fairdro("bench", "compas", "--points", "6", "--protocol", "paper", "--out", str(folder))
    assert done.returncode == 0, done.stderr
    (folder / "printed.txt").write_text(done.stdout)
    return folder


def test_the_command_leaves_results_table_and_pictures(out):
    results = pd.read_csv(out / "results.csv")
    assert set(COLUMNS) <= set(results.columns)
    assert len(results) == 1 + 6
    assert results["accuracy"].between(0.5, 0.8).all()
    assert json.loads(results["hyperparameters"].iloc[1])["rho"] == 0
    for name in ("frontier", "training", "cells", "seconds"):
        assert (out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (out / "figures" / f"{name}.svg").read_text()
        assert "vegaEmbed('#chart'" in (out / "figures" / f"{name}.html").read_text()
    printed = (out / "printed.txt").read_text()
    assert "5.20 ± 0.92" in printed
    assert "compas: linear model, full-batch training (accuracy / DCA): scratch 64." in printed
    assert f"Open {out / 'report.html'} to explore" in printed
    assert "| compas | fairdro | fullbatch |" in (out / "table.md").read_text()


def test_the_report_is_made_again_from_the_store_alone(out, tmp_path):
    shutil.copytree(out / "store", tmp_path / "store")
    done = run_here("report", str(tmp_path), "--select", "max-dca=0.1")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results.csv").read_text() == (out / "results.csv").read_text()
    assert "largest accuracy with a DCA of at most 10 %" in (tmp_path / "report.html").read_text()
    assert "largest accuracy with a DCA of at most 10 %" in (tmp_path / "table.md").read_text().lower().replace("dca", "DCA")
    chosen = chosen_from(pd.read_csv(tmp_path / "results.csv"), LimitDCA(0.1)).set_index("method").loc["fairdro"]
    assert chosen["dca"] <= 0.1
    assert chosen["why"] == "the largest accuracy with a DCA of at most 10 %"


def test_half_the_points_fill_the_holes_of_the_frontier(tmp_path):
    results = run_bench(BenchPlan(datasets=["adult"], methods=["fairdro"], points=40, protocol="paper"), tmp_path)
    assert len(results) == 40
    front = results.iloc[non_dominated(results["accuracy"], results["dca"])]
    accuracy = 100 * front["accuracy"].to_numpy()[::-1]
    assert accuracy.min() < 79
    assert accuracy.max() > 82
    within = (accuracy[1:] > 79) & (accuracy[:-1] < 82)  # steps that lie between 79 and 82 at least in part
    assert np.diff(accuracy)[within].max() < 0.6
    plain = BenchPlan(datasets=["adult"], methods=["fairdro"], points=40, adaptive=False)
    assert plain.banks[0].method.rho == METHODS["fairdro"].sweep(40).rho


def test_results_are_the_same_again(out, tmp_path):
    again = run_bench(BenchPlan(datasets=["compas"], points=6, protocol="paper"), tmp_path)
    before = pd.read_csv(out / "results.csv")
    pd.testing.assert_frame_equal(again.drop(columns="seconds"), before.drop(columns="seconds"), check_exact=True)


def test_fairdro_lowers_dca_on_compas(out):
    chosen = chosen_from(pd.read_csv(out / "results.csv")).set_index("method")
    assert chosen.loc["fairdro", "dca"] < 0.5 * chosen.loc["scratch", "dca"]
    assert chosen.loc["fairdro", "accuracy"] >= 0.95 * chosen.loc["scratch", "accuracy"]


def test_validated_protocol_chooses_on_the_validation_part(tmp_path):
    results = run_bench(BenchPlan(datasets=["compas"], points=6), tmp_path)
    assert set(results["protocol"]) == {"validated"}  # by default
    chosen = chosen_from(results).set_index("method").loc["fairdro"]
    points = over_seeds(results)
    points = points[points["method"] == "fairdro"]
    limit = 0.95 * over_seeds(results).set_index("method").loc["scratch", "validation_accuracy"]
    eligible = points[points["validation_accuracy"] >= limit]
    assert chosen["validation_dca"] == eligible["validation_dca"].min()
    write_outputs(Summary(Store(tmp_path)))
    table = (tmp_path / "table.md").read_text()
    assert "chosen on the validation part" in table
    assert "5.20" not in table  # the paper's figures belong to its own protocol and split


def test_minibatch_bank_has_a_row_per_seed_and_point(tmp_path):
    plan = BenchPlan(datasets=["compas"], methods=["fairdro"], solvers=["minibatch"], points=2, seeds=2)
    results = run_bench(plan, tmp_path)
    assert results.groupby("seed").size().tolist() == [2, 2]
    assert over_seeds(results)["seeds"].tolist() == [2, 2]
    assert "95 % of the best accuracy" in how_chosen(results)


def test_paper_results_are_the_papers():
    table = paper_results().set_index(["dataset", "method"])
    assert table.loc[("adult", "fairdro"), ["accuracy", "dca"]].tolist() == [79.23, 1.99]
    assert table.loc[("compas", "scratch"), ["accuracy", "dca"]].tolist() == [63.29, 14.51]
    assert table.loc[("adult", "group_dro"), "worst_accuracy"] == 78.62
    assert table.loc[("utkface", "fairdro"), ["accuracy", "dca"]].tolist() == [79.48, 14.25]
    assert table.loc[("celeba", "mfd"), ["accuracy", "dca"]].tolist() == [90.97, 4.44]
    assert table.groupby("dataset").size().to_dict() == {
        "adult": 16, "compas": 16, "utkface": 14, "celeba": 10, "civilcomments": 14,
    }  # fmt: skip
    assert set(PAPER_MODELS) == set(table.index.get_level_values("dataset"))


def test_diverged_models_are_never_chosen(out):
    results = pd.read_csv(out / "results.csv")
    best = chosen_from(results).set_index("method").loc["fairdro"]
    results["diverged"] = results["dca"] == best["dca"]
    chosen = chosen_from(results)
    second = chosen.set_index("method").loc["fairdro"]
    assert second["dca"] > best["dca"]
    assert not second["diverged"]
    assert "compas" in to_markdown(comparison(chosen))


def test_a_method_without_an_eligible_point_has_an_empty_row(out):
    results = pd.read_csv(out / "results.csv")
    results.loc[results["method"] == "fairdro", "accuracy"] = 0.2
    assert "| compas | fairdro | fullbatch | N/A: No point keeps an accuracy of 0.61" in to_markdown(
        comparison(chosen_from(results))
    )
    results["diverged"] = True
    assert to_markdown(comparison(chosen_from(results))).count("N/A: All models diverged") == 2


def test_no_point_to_choose_is_no_mistake(out, tmp_path):
    shutil.copytree(out / "store", tmp_path / "store")
    done = run_here("report", str(tmp_path), "--select", "max-dca=0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("N/A: No point has a DCA of 0.0000 or less") == 2
    assert not (tmp_path / "figures" / "cells.png").exists()


def test_a_narrow_terminal_keeps_whole_names(out, tmp_path):
    shutil.copytree(out / "store", tmp_path / "store")
    with mock.patch("fairdro.cli.bench.console", Console(width=80)):
        shown = run_here("report", str(tmp_path)).stdout
    assert "compas" in shown
    assert "fullbatch" in shown
    assert "paper:" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if line.startswith(("│", "┃")))


def test_figures_that_cannot_be_written_are_one_sentence(out, tmp_path):
    shutil.copytree(out / "store", tmp_path / "store")
    (tmp_path / "figures").touch()
    done = run_here("report", str(tmp_path))
    assert done.returncode == 2
    assert "Cannot write" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_benches_in_one_folder_are_kept_apart(tmp_path):
    for objective in ("balanced", "standard"):
        methods = ["scratch", "rw", "fairdro"]
        run_bench(BenchPlan(["compas"], methods, points=3, protocol="paper", objective=objective), tmp_path)
    run_bench(BenchPlan(datasets=["compas"], points=3, protocol="validated"), tmp_path)
    summary = Summary(Store(tmp_path))
    selected = summary.selected
    assert selected.groupby(["protocol", "objective"]).size().to_dict() == {
        ("paper", "balanced"): 3, ("paper", "standard"): 3, ("validated", "balanced"): 2,
    }  # fmt: skip
    standard = selected[selected["objective"] == "standard"].set_index("method")
    assert standard.loc["fairdro", "accuracy"] >= 0.95 * standard.loc["scratch", "accuracy"]
    assert summary.table[["protocol", "objective"]].drop_duplicates().shape == (3, 2)
    specs = {name: chart.to_dict(validate=True) for name, chart in pictures(summary)}
    assert len(specs) == 4
    for name in ("training", "cells"):
        spec = specs[name]
        lines = pd.concat([pd.DataFrame(rows) for rows in spec["datasets"].values()])
        seen = [c for c in ("bench", "measure", "panel", "method", "class", "group", "share") if c in lines]
        assert not lines.duplicated(seen).any()


def test_a_single_seed_shows_its_interval(out):
    summary = Summary(Store(out))
    table = summary.table.set_index("method")
    row = summary.selected.set_index("method").loc["fairdro"]
    value, low, high = map(float, re.fullmatch(r"(\S+) \((\S+) to (\S+)\)", table.loc["fairdro", "DCA"]).groups())
    assert value == pytest.approx(100 * row["dca"], abs=0.005)
    assert low < value < high < low + 15  # about three points either way on COMPAS
    assert (out / "table.md").read_text().count(" to ") == 6


def test_the_best_is_bold_and_special_characters_are_escaped(out):
    selected = chosen_from(pd.read_csv(out / "results.csv"))
    refused = selected.iloc[:1].assign(method="mfd", reason="needs_features & more; use fairdro")
    table = comparison(selected, refused)
    fair = table.set_index("method").loc["fairdro"]
    assert f"**{fair['DCA']}**" in to_markdown(table)
    latex = to_latex(table)
    assert rf"\textbf{{{fair['DCA']}}}" in latex
    assert r"N/A: needs\_features \& more &" in latex
    assert r"5.20 $\pm$ 0.92" in latex


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bench"], "Name the datasets to compare on (adult, compas), or a study with --file"),
        (["bench", "adult", "--file", "study.toml"], "one of the two"),
        (["bench", "--file", "study.toml", "--points", "7", "--out", "x"], "leave out --points, --out, or write it into"),
        (["bench", "adult", "--methods", "all,scratch"], "'all' stands for every method: name it alone"),
        (["bench", "adult", "--select", "best"], "There is no selection rule named 'best'"),
        (["bench", "adult", "--workers", "0"], "workers must be at least 1, got 0"),
        (["bench", "adult", "--objective", "fair"], "There is no objective named 'fair'"),
        (["report", "/nowhere"], "There are no results in /nowhere"),
        (["bench", "adlut"], "There is no dataset named 'adlut'; choose one of: adult, compas."),
        (["bench", "adult", "--methods", "fairdo"], "There is no method named 'fairdo'"),
        (["bench", "adult", "--methods", ","], "Name at least one method"),
        (["bench", "adult", "--solvers", "newton"], "There is no solver for linear models named 'newton'"),
        (
            ["bench", "adult", "--methods", "all", "--solvers", "newton"],
            "There is no solver for linear models named 'newton'",
        ),
        (["bench", "adult", "--methods", "cov"], "cov needs mini-batches; use solver minibatch"),
        (["bench", "adult", "--model", "tree"], "There is no model named 'tree'"),
        (
            ["bench", "adult", "--model", "mlp", "--solvers", "fullbatch"],
            "There is no solver for mlp models named 'fullbatch'; choose one of: minibatch.",
        ),
        (
            ["bench", "adult", "--model", "linear,mlp", "--solvers", "minibatch"],
            "each has its own solver",
        ),
        (["bench", "adult", "--model", ","], "There is no model named ','"),
        (["bench", "adult", "--protocol", "best"], "There is no protocol named 'best'"),
        (["bench", "adult", "--points", "0"], "points must lie between 1 and 1000, got 0"),
        (["bench", "adult", "--split", "-1"], "split must lie between 0 and 4294967295, got -1"),
        (["bench", "adult", "--out", str(Path(__file__) / "x")], "Cannot write results into"),
        (["bench", "compas", "compas"], "A dataset is named twice"),
        (["bench", "adult", "--split", "99999999999"], "split must lie between"),
        (["list", "[bold]"], "[bold]"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_exit_code_2(arguments, sentence):
    done = run_here(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_results_file_that_cannot_be_written_is_found_before_training(tmp_path):
    (tmp_path / "results.csv").mkdir()
    done = fairdro("bench", "adult", "--out", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "it is a folder" in done.stderr


def named(plan):
    return list(dict.fromkeys(bank.method.name for bank in plan.banks))


def test_all_methods_are_those_a_solver_can_train():
    assert named(BenchPlan(methods=["all"], solvers=["minibatch"])) == list(METHODS)
    weights_only = named(BenchPlan(methods=["all"]))
    assert weights_only == [name for name, method in METHODS.items() if method.weighs_cells()]
    assert "cov" not in weights_only
    assert named(BenchPlan(methods=["all"], model="boosting")) == [n for n in weights_only if not METHODS[n]().needs_loss]
    assert set(named(BenchPlan(methods=["all"], solvers=["fullbatch", "minibatch"]))) == set(METHODS)
    with pytest.raises(InputError, match="mfd needs the features of a hidden layer"):
        BenchPlan(methods=["mfd"], solvers=["minibatch"]).check()


def test_a_plan_of_all_methods_says_which_it_leaves_out_and_what_trains_them():
    plan = BenchPlan(methods=["all"])
    assert plan.left_out == [name for name, method in METHODS.items() if not method.weighs_cells()]
    others = [name for name in plan.left_out if name not in {"fairhsic", "mfd"}]
    assert plan.left_out_sentence == (
        f"Left out, as fullbatch cannot train them: {', '.join(others)} "
        "(use --solvers fullbatch,minibatch); fairhsic, mfd (use --model mlp)."
    )
    sentence = BenchPlan(methods=["all"], model="boosting").left_out_sentence
    assert "fairbatch (use --model linear); cov" in sentence
    assert "(use --model linear --solvers minibatch)" in sentence
    for whole in (BenchPlan(methods=["all"], solvers=["minibatch"]), BenchPlan(methods=["cov"], solvers=["minibatch"])):
        assert (whole.left_out, whole.left_out_sentence) == ([], None)


def test_a_plan_loads_no_data_and_makes_its_banks_once(monkeypatch, tmp_path):
    with monkeypatch.context() as without_data:
        without_data.setattr("fairdro.bench.bank.load_dataset", None)
        known_dataset.cache_clear()
        plan = BenchPlan(methods=["mfd"], solvers=["minibatch"])
        assert plan.banks is plan.banks
    done = run_here("bench", "compas", "--methods", "mfd", "--solvers", "minibatch", "--out", tmp_path / "new")
    assert done.returncode == 2
    assert "mfd needs the features of a hidden layer" in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_rule_of_ones_own_sees_every_class_of_every_point(out):
    seen = []

    def best_worst_class(points, plain):
        seen.append((list(points.columns), plain))
        return Choice(int(points[["class_accuracy_0", "class_accuracy_1"]].min(axis=1).argmax()), "the best worst class")

    results = pd.read_csv(out / "results.csv")
    chosen = chosen_from(results, best_worst_class).set_index("method").loc["fairdro"]
    points = over_seeds(results).query("method == 'fairdro'")
    assert min(chosen["class_accuracy_0"], chosen["class_accuracy_1"]) == max(
        points[["class_accuracy_0", "class_accuracy_1"]].min(axis=1)
    )
    columns, plain = seen[0]
    assert columns == [*METRICS, "class_accuracy_0", "class_accuracy_1"] == list(plain.index)
    assert plain["accuracy"] == results.set_index("method").loc["scratch", "accuracy"]


def test_a_rule_may_name_rows_by_their_number_where_some_points_diverged(out):
    results = pd.read_csv(out / "results.csv")
    of_fairdro = results.index[results["method"] == "fairdro"]
    results.loc[of_fairdro[:2], ["diverged", "dca"]] = True, 0.0

    chosen = chosen_from(results, lambda points, plain: Choice(points["dca"].idxmin(), "the smallest DCA"))
    sound = results.loc[of_fairdro[2:]]
    assert len(sound) > 1
    assert chosen.set_index("method").loc["fairdro", "dca"] == sound["dca"].min()
    refused = chosen_from(results, lambda points, plain: points["dca"].idxmin())
    assert refused["why"].str.contains("A selection rule returns Choice").all()


def test_results_and_selection_are_computed_once_for_all_that_is_shown(out, tmp_path, monkeypatch):
    shutil.copytree(out / "store", tmp_path / "store")
    calls = []
    for name in ("over_seeds", "select", "with_intervals", "comparison"):
        original = getattr(bench_tables, name)
        monkeypatch.setattr(
            f"fairdro.bench.summary.{name}", lambda *a, name=name, original=original: calls.append(name) or original(*a)
        )
    assert run_here("report", tmp_path).returncode == 0
    assert sorted(calls) == ["comparison", "over_seeds", "select", "with_intervals"]


def test_names_from_data_cannot_leave_the_interactive_page():
    name = "</script><script>alert(1)</script>"
    chart = alt.Chart(pd.DataFrame({"group": [name], "value": [1.0]})).mark_bar().encode(x="group", y="value")
    page = interactive_page(chart.to_dict(), name)
    assert page.count("</script>") == 2 + _vega().count("</script>")
    assert "<script>alert" not in page.replace(_vega(), "")


def test_plan_refuses_nothing_to_do():
    with pytest.raises(InputError, match="Name at least one dataset: adult, compas"):
        BenchPlan(datasets=[])


def test_a_picture_may_have_any_number_of_rows():
    chart = alt.Chart(pd.DataFrame({"x": range(6000)})).mark_point().encode(x="x:Q")
    assert '{"x": 5999}' in interactive_page(_spec(chart), "many")
