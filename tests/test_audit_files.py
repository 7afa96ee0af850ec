"""The files of an audit have the same content, and the command writes them; junk is one sentence."""

import json

import numpy as np
import pytest

from command import run_here
from fairdro.audit import Audit, audit_table, write_audit
from fairdro.audit.outputs import to_dict, to_markdown
from fairdro.errors import InputError
from fairdro.selection import certify
from test_audit import people

HOSTILE = [
    "<script>window.hacked=1</script>",
    "</script>'\"><img src=x onerror=alert(1)>",
    "\u202e\u05d0\u05d1 right",
    "W" * 200,
]


@pytest.fixture(scope="module")
def everything() -> Audit:
    return audit_table(people(), groups=["sex", "race"], predictions=["old", "new"], target="fit", score="p")


def test_the_files_have_the_same_figures(everything, tmp_path):
    for name in ("a.html", "a.md", "a.json"):
        write_audit(everything, tmp_path / name, title="people")
    record = json.loads((tmp_path / "a.json").read_text())
    assert (record["format"], record["version"], record["title"]) == ("fairdro audit", 1, "people")
    assert [grouping["columns"] for grouping in record["groupings"]] == [["sex"], ["race"], ["sex", "race"]]
    for text in ((tmp_path / "a.html").read_text(), (tmp_path / "a.md").read_text()):
        for group in record["groupings"]:
            for row in group["rates"][0]["groups"]:
                assert f"{100 * row['rate']:.1f} ({100 * row['low']:.1f} to {100 * row['high']:.1f})" in text
            for row in group["accuracy_changes"]:
                assert f"{100 * row['change']:.1f} ({100 * row['low']:.1f} to {100 * row['high']:.1f})" in text
            for row in group["calibration"]:
                assert f"{100 * row['observed']:.1f} ({100 * row['low']:.1f} to {100 * row['high']:.1f})" in text
        assert "Local Law 144" in text
        assert "29 CFR 1607.4(D)" in text
    with pytest.raises(InputError, match="must end in"):
        write_audit(everything, tmp_path / "a.pdf")


def test_an_audit_gives_no_verdict(everything):
    text = to_markdown(everything).lower()
    assert "no verdict" in text
    assert not any(word in text for word in ("compliant", "violat", "unfair", "four-fifths rule"))


def test_the_certificate_is_that_of_the_same_rows(everything):
    judged = everything.parts[0].judged[0]
    told = to_dict(everything)["groupings"][0]["accuracy"][0]["certificate"]
    assert told["bounds"]["dca"] == certify(judged.confusion).dca > judged.confusion.metric("dca")
    assert judged.certificate.sentence() in to_markdown(everything).replace("\\", "")
    assert "if these rows neither trained the model" in to_markdown(everything)


def test_names_like_markup_are_text_in_markdown():
    table = people().assign(race=np.resize(HOSTILE, 3000), **{"<b>|x": lambda t: t["old"]})
    text = to_markdown(audit_table(table, groups=["race"], predictions=["<b>|x"], target="fit"))
    assert "<script" not in text
    assert "<img" not in text
    assert "<b>" not in text


def test_the_command_needs_no_target_and_writes_what_is_asked_for(tmp_path):
    people().to_csv(tmp_path / "people.csv", index=False)
    done = run_here("audit", "people.csv", "--prediction", "old", "--group", "sex", "--group", "race", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "old is yes, by sex and race" in done.stdout
    assert "impact ratio" in done.stdout
    assert "DCA" not in done.stdout
    options = ("--prediction", "old", "--prediction", "new", "--group", "race", "--target", "fit", "--score", "p")
    for name in ("a.html", "a.md", "a.json"):
        done = run_here("audit", "people.csv", *options, "--threshold", "0.4", "--out", name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert f"The whole audit is in {name}." in done.stdout
        assert "p is above 0.4, by race" in done.stdout
        assert "Audit of old, new, p in people.csv" in (tmp_path / name).read_text()
    assert run_here("audit", "people.csv", *options, "--out", "a.md", cwd=tmp_path).returncode == 2


def test_junk_on_the_command_line_is_one_sentence(tmp_path):
    people(200).to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("old,race\n")
    for arguments, sentence in [
        (("empty.csv", "--prediction", "old", "--group", "race"), "empty.csv is empty."),
        (("header.csv", "--prediction", "old", "--group", "race"), "holds no rows."),
        (("people.csv", "--prediction", "x", "--group", "race"), "There is no column 'x'"),
        (("people.csv", "--prediction", "old", "--group", "race", "--favourable", "1"), "does not occur in 'old'"),
        (("people.csv", "--score", "fit", "--group", "race"), "must hold numbers to be a score, but has"),
        (("people.csv", "--group", "race"), "Name the column of predictions (--prediction), or of a score (--score)."),
        (("people.csv", "--prediction", "old", "--group", "race", "--out", "a.pdf"), "must end in .html, .md, .json"),
    ]:
        done = run_here("audit", *arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert sentence in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_a_terminal_of_80_columns_holds_the_tables(tmp_path, monkeypatch):
    monkeypatch.setattr("fairdro.cli.audit.console.width", 80)
    people().to_csv(tmp_path / "people.csv", index=False)
    done = run_here("audit", "people.csv", "--prediction", "old", "--group", "sex", "--group", "race", "--target", "fit",
                    cwd=tmp_path)  # fmt: skip
    tables = [line for line in done.stdout.splitlines() if line.startswith(" ")]
    assert max(map(len, tables)) <= 80
    assert "\u2026" not in done.stdout
