"""Files that tests write, and datasets that they look for."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("FAIRDRO_DATA", Path(__file__).parents[2] / "shared" / "data"))
MARKS = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
WORDS = ["the", "a", "cat", "dog", "bird", "fish", "sees", "hears", "likes", "and", "red", "blue", "one", "two", "##s"]


def unpacked(name):
    reason = f"there is no unpacked folder {name} in ../shared/data, nor in the folder that FAIRDRO_DATA names"
    return pytest.mark.skipif(not (DATA / name).is_dir(), reason=reason)


def save_picture(path, colour=(200, 30, 90), size=(20, 24)):
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def save_encoder(folder):
    """Write a tokenizer of a few words and a BERT of two layers."""
    import tokenizers
    import torch
    import transformers

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
