"""CivilComments and HateXplain in their published layouts."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from fairdro.data import load_dataset
from fairdro.data.civilcomments import PAPER_COUNTS, check_civilcomments, load_civilcomments
from fairdro.data.hatexplain import check_hatexplain, load_hatexplain
from fairdro.data.texts import load_tokenizer
from fairdro.errors import InputError
from files import DATA

pytest.importorskip("transformers", reason="needs transformers: pip install 'fairdro[text]'")


CIVIL = pd.DataFrame(
    [  # text, part, toxicity, then black, white, asian, latino and other
        ("the cat", "train", 0.5, 0.6, 0.2, 0.0, 0.0, 0.0),
        ("a dog, and\na bird", "train", 0.49, 0.3, 0.3, 0.0, 0.0, 0.0),
        ("None", "train", 0.0, 0.0, 0.0, 0.0, 0.1, 0.0),
        ("two fish", "val", 0.0, 0.0, 0.0, 0.5, 0.0, 0.5),
        ("one bird", "test", 1.0, None, None, None, None, 1.0),
        ("blue", "test", 1.0, 0.09, 0.0, 0.0, 0.0, 0.0),
    ],
    columns=["comment_text", "split", "toxicity", "black", "white", "asian", "latino", "other_race_or_ethnicity"],
)


def test_civilcomments_is_that_of_the_paper(encoder, tmp_path):
    CIVIL.assign(male=0.3).to_csv(tmp_path / "all_data_with_identities.csv")
    examples = load_civilcomments(tmp_path, encoder=encoder)
    assert examples.y.tolist() == [1, 0, 0, 0, 1]
    assert examples.groups.values.tolist() == [0, 0, 3, 2, 4]
    assert {name: rows.tolist() for name, rows in examples.parts.items()} == {
        "train": [0, 1, 2],
        "validation": [3],
        "test": [4],
    }
    expected = load_tokenizer(encoder)(CIVIL["comment_text"][:5].tolist(), padding=True, return_tensors="pt")["input_ids"]
    assert torch.equal(examples.inputs.batch(torch.arange(5))["input_ids"], expected)
    assert examples.part("train")[1].counts.shape == (2, 5)

    soft = load_civilcomments(tmp_path / "all_data_with_identities.csv", encoder=encoder, soft=True, threshold=0.5)
    np.testing.assert_allclose(soft.groups.values, [[0.75, 0.25, 0, 0, 0], [0, 0, 0.5, 0, 0.5], [0, 0, 0, 0, 1]])


def test_civilcomments_counts_are_held_against_the_papers(tmp_path):
    counts = np.array(PAPER_COUNTS)
    rows = [(y, a) for y in range(2) for a in range(5) for _ in range(counts[y, a])]
    y, a = np.array(rows).T
    scores = pd.DataFrame(np.eye(5)[a], columns=CIVIL.columns[3:])
    frame = scores.assign(comment_text="cat", toxicity=y, split=np.where(np.arange(len(y)) % 5, "train", "test"))
    extra = CIVIL.iloc[[3]]
    pd.concat([frame, extra]).to_csv(tmp_path / "all_data_with_identities.csv")
    lines = check_civilcomments(tmp_path)
    assert "64,257" in lines[0]
    equal = [line for line in lines if "equal to the paper's" in line]
    assert len(equal) == 1
    assert equal[0].startswith("train + test: 64,257")


def test_mistakes_with_civilcomments_are_told(encoder, tmp_path):
    path = tmp_path / "all_data_with_identities.csv"
    with pytest.raises(InputError, match=r"wilds\.stanford\.edu"):
        load_civilcomments(tmp_path, encoder=encoder)
    CIVIL.to_csv(path)
    with pytest.raises(InputError, match="share above 0"):
        load_civilcomments(path, encoder=encoder, threshold=0)
    with pytest.raises(InputError, match="lower threshold"):
        load_civilcomments(path, encoder=encoder, threshold=0.9)
    for spoiled in (CIVIL.drop(columns="asian"), CIVIL.assign(split="dev"), CIVIL.assign(toxicity="high")):
        spoiled.to_csv(path)
        with pytest.raises(InputError, match="of WILDS"):
            check_civilcomments(path)


POSTS = {  # labels of three annotators, whom they named, the part
    "p0": (["normal"] * 3, [["None"], ["None"], ["None"]], "train"),
    "p1": (["hatespeech", "hatespeech", "normal"], [["Women"], ["Women", "Islam"], ["None"]], "train"),
    "p2": (["offensive"] * 3, [["Islam", "Islam"], ["Women"], ["Women"]], "train"),
    "p3": (["offensive", "normal", "offensive"], [["Islam"], ["Asian"], []], "train"),
    "p4": (["offensive", "normal", "hatespeech"], [["Women"], ["Women"], ["Women"]], "train"),
    "p5": (["normal"] * 3, [["None"], ["Islam"], ["None"]], "val"),
    "p6": (["normal"] * 3, [["Asian"], ["Asian"], ["Women"]], "test"),
    "p7": (["hatespeech"] * 3, [["Other"], ["Other"], ["Islam"]], "test"),
    "p8": (["normal"] * 3, [[], [], []], "test"),
}


@pytest.fixture
def hatexplain(tmp_path):
    """A folder with nine posts in the layout of HateXplain, as a table."""
    frame = pd.DataFrame(
        {
            "post_id": list(POSTS),
            "labels": [labels for labels, _, _ in POSTS.values()],
            "targets": [targets for _, targets, _ in POSTS.values()],
            "tokens": [["a", "cat"]] * 8 + [["birds"]],
        }
    )
    frame.to_parquet(tmp_path / "dataset_native.parquet")
    parts = {part: [name for name, post in POSTS.items() if post[2] == part] for part in ("train", "val", "test")}
    (tmp_path / "post_id_divisions.json").write_text(json.dumps(parts))
    return tmp_path


def test_hatexplain_classes_targets_and_parts(encoder, hatexplain):
    examples = load_hatexplain(hatexplain, encoder=encoder, n_groups=2)
    assert examples.class_names == ["normal", "offensive", "hatespeech"]
    assert examples.groups.names == ["Women", "Islam", "None/Other"]
    assert len(examples) == 8  # p4 has three different labels
    assert examples.y.tolist() == [0, 2, 1, 1, 0, 0, 2, 0]
    assert examples.groups.values.tolist() == [2, 0, 0, 1, 1, 2, 2, 2]
    assert {name: rows.tolist() for name, rows in examples.parts.items()} == {
        "train": [0, 1, 2, 3],
        "validation": [4],
        "test": [5, 6, 7],
    }
    expected = load_tokenizer(encoder)(["a cat", "birds"], padding=True, return_tensors="pt")["input_ids"]
    assert torch.equal(examples.inputs.batch(torch.tensor([0, 7]))["input_ids"], expected)


def test_hatexplain_is_loaded_by_name(encoder, hatexplain):
    by_name = load_dataset("hatexplain", data=hatexplain, encoder=encoder, soft=True, n_groups=2)
    direct = load_hatexplain(hatexplain, encoder=encoder, soft=True, n_groups=2)
    np.testing.assert_array_equal(by_name.groups.values, direct.groups.values)


def test_hatexplain_shares_of_annotators(encoder, hatexplain):
    examples = load_hatexplain(hatexplain, encoder=encoder, soft=True, n_groups=2)
    expected = [[0, 0, 3], [2, 1, 1], [2, 1, 0], [0, 1, 1], [0, 1, 2], [1, 0, 2], [0, 1, 2], [0, 0, 1]]
    np.testing.assert_allclose(examples.groups.values, np.array(expected) / np.sum(expected, axis=1, keepdims=True))


def test_hatexplain_as_published_is_the_same(encoder, hatexplain):
    table = load_hatexplain(hatexplain, encoder=encoder, n_groups=2)
    (hatexplain / "dataset_native.parquet").unlink()
    original = {
        name: {
            "post_id": name,
            "annotators": [
                {"label": label, "annotator_id": i, "target": target}
                for i, (label, target) in enumerate(zip(labels, targets, strict=True))
            ],
            "rationales": [],
            "post_tokens": ["birds"] if name == "p8" else ["a", "cat"],
        }
        for name, (labels, targets, _) in POSTS.items()
    }
    (hatexplain / "dataset.json").write_text(json.dumps(original))
    published = load_hatexplain(hatexplain, encoder=encoder, n_groups=2)
    assert np.array_equal(table.y, published.y)
    assert np.array_equal(table.groups.values, published.groups.values)
    assert np.array_equal(table.inputs.ids, published.inputs.ids)


def test_mistakes_with_hatexplain_are_told(encoder, hatexplain, tmp_path):
    with pytest.raises(InputError, match=r"github\.com/hate-alert"):
        load_hatexplain(tmp_path / "nowhere", encoder=encoder)
    with pytest.raises(InputError, match="from 1 to 3"):
        load_hatexplain(hatexplain, encoder=encoder, n_groups=4)
    for spoiled in ("{", '{"train": ["p0"]}', '{"train": ["p0"], "val": ["p5"], "test": ["p99"]}'):
        (hatexplain / "post_id_divisions.json").write_text(spoiled)
        with pytest.raises(InputError, match="download them again"):
            load_hatexplain(hatexplain, encoder=encoder)


@pytest.fixture(scope="module")
def real_hatexplain():
    """The real files, where they are."""
    if not (DATA / "hatexplain").is_dir():
        pytest.skip(f"There is no folder {DATA / 'hatexplain'}; set FAIRDRO_DATA to the folder that holds it.")
    return DATA / "hatexplain"


def test_real_hatexplain_has_its_published_sizes_and_these_cells(real_hatexplain):
    lines = check_hatexplain(real_hatexplain)
    assert all("as published" in line for line in lines[:4]), lines
    train, _, test = lines[4:]
    assert "(African, Islam, Women, Jewish, Homosexual, None/Other)" in train
    assert "[[490, 444, 579, 160, 431, 4147], [667, 511, 788, 311, 608, 1499], [1764, 893, 138, 911, 351, 691]]" in train
    assert "[[67, 46, 71, 18, 52, 528], [82, 61, 95, 37, 81, 192], [226, 109, 17, 114, 46, 82]]" in test


@pytest.mark.slow
def test_real_hatexplain_has_soft_groups(real_hatexplain, encoder):
    examples = load_hatexplain(real_hatexplain, encoder=encoder, soft=True)
    assert len(examples.inputs) == len(examples) == 19229
    np.testing.assert_allclose(examples.groups.values.sum(axis=1), 1)
    assert 0.4 < (examples.groups.values.max(axis=1) < 1).mean() < 0.5
    hard = load_hatexplain(real_hatexplain, encoder=encoder)
    assert (np.take_along_axis(examples.groups.values, hard.groups.values[:, None], axis=1) > 0).all()
