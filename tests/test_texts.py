"""Texts: tokens, batches, tables, CivilComments and HateXplain in their published layouts, the classifier."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from command import run_here
from fairdro.data import load_dataset
from fairdro.data.civilcomments import PAPER_COUNTS, check_civilcomments, load_civilcomments
from fairdro.data.examples import Subset
from fairdro.data.hatexplain import check_hatexplain, load_hatexplain
from fairdro.data.texts import TextInputs, load_text_table, load_tokenizer, tokenise
from fairdro.errors import InputError, MissingExtraError
from fairdro.methods import get_method
from fairdro.models.pretrained import PretrainedClassifier
from fairdro.training.inputs import features_of, logits_of
from fairdro.training.network import Recipe, train_network

transformers = pytest.importorskip("transformers", reason="needs transformers: pip install 'fairdro[text]'")
tokenizers = pytest.importorskip("tokenizers", reason="needs transformers: pip install 'fairdro[text]'")

MARKS = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
WORDS = ["the", "a", "cat", "dog", "bird", "fish", "sees", "hears", "likes", "and", "red", "blue", "one", "two", "##s"]
TEXTS = ["the cat sees a dog", "birds", "", "a red fish likes the blue bird and the cat", "unknownword dog", "two cats"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A folder with a tokenizer of a few words and a BERT of two layers."""
    folder = tmp_path_factory.mktemp("encoder")
    vocabulary = {word: i for i, word in enumerate([*MARKS.values(), *WORDS])}
    core = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token=MARKS["unk_token"]))
    core.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    core.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=256, **MARKS)
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=256,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def table(tmp_path):
    """A table of 40 texts; the first 20 train, ten validate and ten test."""
    rng = np.random.default_rng(0)
    share = rng.random(40).round(3)
    frame = pd.DataFrame(
        {
            "text": [" ".join(rng.choice(WORDS[:14], rng.integers(1, 8))) for _ in range(40)],
            "label": np.tile(["yes", "no"], 20),
            "group": np.repeat(["v", "u"], 20),
            "left": share,
            "right": 1 - share,
            "split": np.repeat(["train", "validation", "test"], [20, 10, 10]),
        }
    )
    path = tmp_path / "posts.csv"
    frame.to_csv(path, index=False)
    return path, frame


def test_batches_equal_those_of_the_tokenizer(encoder):
    tokenizer = load_tokenizer(encoder)
    inputs = tokenise(TEXTS, tokenizer, 8)
    assert len(inputs) == len(TEXTS)
    assert inputs.ids.dtype == np.int32
    for rows in ([0, 1, 2, 3, 4, 5], [2], [5, 1], [3, 3, 0]):
        batch = inputs.batch(torch.tensor(rows), torch.Generator())
        expected = tokenizer([TEXTS[row] for row in rows], padding=True, truncation=True, max_length=8, return_tensors="pt")
        for key in ("input_ids", "attention_mask"):
            assert batch[key].dtype == torch.int64
            assert torch.equal(batch[key], expected[key])


def test_chunks_do_not_show(encoder, monkeypatch):
    tokenizer = load_tokenizer(encoder)
    whole = tokenise(TEXTS, tokenizer, 16)
    monkeypatch.setattr("fairdro.data.texts.TEXTS_PER_CHUNK", 4)
    pieces = tokenise(TEXTS, tokenizer, 16)
    assert np.array_equal(whole.ids, pieces.ids)
    assert np.array_equal(whole.offsets, pieces.offsets)


def test_padding_may_be_any_id():
    inputs = TextInputs(np.array([5, 6, 7], dtype=np.int32), np.array([0, 1, 3]), pad=9)
    assert inputs.batch(torch.tensor([0, 1]))["input_ids"].tolist() == [[5, 9], [6, 7]]


def test_mistakes_with_tokens_are_told(encoder, tmp_path):
    tokenizer = load_tokenizer(encoder)
    for length in (2, 257):
        with pytest.raises(InputError, match="from 3 to 256"):
            tokenise(TEXTS, tokenizer, length)
    with pytest.raises(InputError, match="no text"):
        tokenise([], tokenizer, 8)
    with pytest.raises(InputError, match="hf download no-such/encoder"):
        load_tokenizer("no-such/encoder")
    with pytest.raises(InputError, match="hf download no-such/encoder"):
        PretrainedClassifier.from_pretrained("no-such/encoder", 2)
    with pytest.raises(InputError, match=r"model\.safetensors"):
        PretrainedClassifier.from_pretrained(tmp_path, 2)


def test_without_transformers_the_error_says_what_to_install(encoder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fairdro\[text\]'"):
        load_tokenizer(encoder)


def test_classifier_is_its_head_on_the_first_token_of_the_encoder(encoder):
    model = PretrainedClassifier.from_pretrained(encoder, 3).eval()
    batch = tokenise(TEXTS, load_tokenizer(encoder), 16).batch(torch.arange(len(TEXTS)))
    features = model.features(batch)
    assert features.shape == (len(TEXTS), model.n_features) == (len(TEXTS), 16)
    assert torch.equal(model(batch), model.head(features))
    with torch.no_grad():
        reference = transformers.BertModel.from_pretrained(encoder).eval()(**batch).last_hidden_state[:, 0]
    torch.testing.assert_close(features, reference)
    torch.testing.assert_close(model(batch), reference @ model.classifier.weight.T + model.classifier.bias)


def test_padding_does_not_change_the_features(encoder):
    model = PretrainedClassifier.from_pretrained(encoder, 2)
    inputs = tokenise(TEXTS, load_tokenizer(encoder), 16)
    alone = torch.cat([features_of(model, Subset(inputs, torch.tensor([row]))) for row in range(len(TEXTS))])
    torch.testing.assert_close(alone, features_of(model, inputs))


def test_passes_go_by_length_and_come_back_in_place(encoder):
    model = PretrainedClassifier.from_pretrained(encoder, 2)
    texts = ["the", "a red fish likes the blue bird and the cat", "two cats", "the cat sees a dog"] * 100
    inputs = tokenise(texts, load_tokenizer(encoder), 32)
    assert [texts[row] for row in inputs.in_order(torch.arange(4))] == [texts[1], texts[3], texts[2], texts[0]]
    some = Subset(inputs, torch.tensor([399, 2, 0, 5]))
    torch.testing.assert_close(features_of(model, some), features_of(model, inputs)[[399, 2, 0, 5]])
    assert some.in_order(torch.tensor([0, 1, 3])).tolist() == [3, 0, 1]


def test_biases_and_norms_have_no_weight_decay(encoder):
    model = PretrainedClassifier.from_pretrained(encoder, 2)
    decayed, free = model.parameter_groups(0.01)
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.01, 0.0)
    spared = {id(parameter) for parameter in free["params"]}
    for name, parameter in model.named_parameters():
        assert (id(parameter) in spared) == (name.endswith("bias") or "LayerNorm" in name), name
    assert len(decayed["params"]) + len(free["params"]) == len(list(model.parameters()))


def test_every_parameter_gets_a_gradient(encoder):
    model = PretrainedClassifier.from_pretrained(encoder, 2)
    model(tokenise(TEXTS, load_tokenizer(encoder), 16).batch(torch.arange(len(TEXTS)))).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_table_with_groups_and_parts(encoder, table):
    path, frame = table
    examples = load_text_table(path, encoder=encoder)
    assert (examples.name, len(examples), examples.class_names) == ("posts", 40, ["no", "yes"])
    assert examples.groups.names == ["u", "v"]
    assert examples.y.tolist() == (frame["label"] == "yes").astype(int).tolist()
    assert {name: len(rows) for name, rows in examples.parts.items()} == {"train": 20, "validation": 10, "test": 10}
    subset, cells = examples.part("test")
    assert cells.counts.tolist() == [[5, 0], [5, 0]]
    expected = load_tokenizer(encoder)(frame["text"][30:].tolist(), padding=True, return_tensors="pt")["input_ids"]
    assert torch.equal(subset.batch(torch.arange(10))["input_ids"], expected)
    assert "posts.csv" in examples.card


def test_table_with_shares_and_without_parts(encoder, table, tmp_path):
    _, frame = table
    path = tmp_path / "posts.parquet"
    frame.drop(columns="split").to_parquet(path)
    examples = load_text_table(path, encoder=encoder, group=["left", "right"])
    assert examples.groups.soft
    assert examples.groups.names == ["left", "right"]
    np.testing.assert_allclose(examples.groups.values, frame[["left", "right"]])
    assert {name: len(rows) for name, rows in examples.parts.items()} == {"train": 32, "test": 8}
    assert sorted(np.concatenate(list(examples.parts.values()))) == list(range(40))


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"text": "words"}, "no column 'words'"),
        ({}, {"split": "fold"}, "no column 'fold'"),
        ({}, {"text": "left"}, "holds no texts"),
        ({"text": "?"}, {}, "misses 40 of 40 texts"),
        ({"label": "yes"}, {}, "one value only"),
        ({"split": "dev"}, {}, "must hold train, validation or test, got 'dev'"),
        ({"split": "train"}, {}, "no row with 'test'"),
        ({"right": 0.5}, {"group": ["left", "right"]}, "sum to one"),
    ],
)
def test_mistakes_in_a_table_are_told(encoder, table, change, options, message):
    path, frame = table
    frame.assign(**change).to_csv(path, index=False)
    with pytest.raises(InputError, match=message):
        load_text_table(path, encoder=encoder, **options)


def test_a_network_trains_on_texts_with_soft_groups(encoder, table):
    path, _ = table
    examples = load_text_table(path, encoder=encoder, group=["left", "right"])
    subset, cells = examples.part("train")
    model = PretrainedClassifier.from_pretrained(encoder, 2)
    trained = train_network(model, subset, cells, get_method("fairdro")(), Recipe(epochs=2, batch_size=10), device="cpu")
    assert not trained.diverged.any()
    assert logits_of(model, subset).shape == (20, 2)


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


def test_a_table_on_the_command_line_from_end_to_end_and_on_the_last_layer(encoder, table, tmp_path):
    path, frame = table
    frame.assign(group=np.tile(["v", "v", "u", "u"], 10)).to_csv(path, index=False)
    options = ("texts", "--data", path, "--model", encoder)
    done = run_here("train", *options, "--epochs", "1", "--batch-size", "10", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("validation: ")
    done = run_here("bench", *options, "--last-layer", "--points", "3", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = run_here("train", *options, "--soft", "--out", "soft", cwd=tmp_path)
    assert (done.returncode, "load_text_table" in done.stderr) == (2, True)


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


def test_texts_are_loaded_by_name(encoder, hatexplain, table):
    by_name = load_dataset("hatexplain", data=hatexplain, encoder=encoder, soft=True, n_groups=2)
    direct = load_hatexplain(hatexplain, encoder=encoder, soft=True, n_groups=2)
    np.testing.assert_array_equal(by_name.groups.values, direct.groups.values)
    assert load_dataset("texts", data=table[0], encoder=encoder, group=["left", "right"]).groups.soft


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
    data = Path(os.environ.get("FAIRDRO_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (data / "hatexplain").is_dir():
        pytest.skip(f"There is no folder {data / 'hatexplain'}; set FAIRDRO_DATA to the folder that holds it.")
    return data / "hatexplain"


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
