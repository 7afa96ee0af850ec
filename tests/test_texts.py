"""Texts: tokens, batches, tables, the classifier."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch

from command import run_here
from fairdro.data import load_dataset
from fairdro.data.examples import Subset
from fairdro.data.texts import TextInputs, load_text_table, load_tokenizer, tokenise
from fairdro.errors import InputError, MissingExtraError
from fairdro.methods import get_method
from fairdro.models.pretrained import PretrainedClassifier
from fairdro.training.inputs import features_of, logits_of
from fairdro.training.network import Recipe, train_network
from files import WORDS

transformers = pytest.importorskip("transformers", reason="needs transformers: pip install 'fairdro[text]'")
TEXTS = ["the cat sees a dog", "birds", "", "a red fish likes the blue bird and the cat", "unknownword dog", "two cats"]


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


def test_texts_are_loaded_by_name(encoder, table):
    assert load_dataset("texts", data=table[0], encoder=encoder, group=["left", "right"]).groups.soft
