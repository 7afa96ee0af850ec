"""Texts as inputs of a network, and tables of texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairdro.data.base import embedded_card
from fairdro.data.examples import SPLIT, Examples, read_list
from fairdro.errors import InputError
from fairdro.models.pretrained import load_offline

TEXTS_PER_CHUNK = 10_000
IDS_ONLY = {"return_attention_mask": False, "return_token_type_ids": False}


@dataclass(frozen=True)
class TextInputs:
    """Texts as token ids, one after the other: text ``i`` is ``ids[offsets[i]:offsets[i + 1]]``.

    ``pad`` is the id that fills up shorter texts of a batch.
    """

    ids: np.ndarray
    offsets: np.ndarray
    pad: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def batch(self, rows: Tensor, rng: torch.Generator | None = None) -> dict[str, Tensor]:
        """Return ``input_ids`` and ``attention_mask`` of some rows, as long as the longest of them; ``rng`` is not used."""
        picked = rows.numpy()
        starts = self.offsets[picked]
        lengths = self.offsets[picked + 1] - starts
        columns = np.arange(lengths.max(initial=0))
        mask = columns < lengths[:, None]
        places = np.where(mask, starts[:, None] + columns, 0)
        ids = np.where(mask, self.ids[places], self.pad)
        batch = {"input_ids": ids, "attention_mask": mask}
        return {key: torch.from_numpy(values.astype(np.int64)) for key, values in batch.items()}

    def in_order(self, rows: Tensor) -> Tensor:
        """Return rows by falling length, so that a batch has little to fill up, and one too large fails at once."""
        return rows[torch.from_numpy(np.diff(self.offsets))[rows].argsort(descending=True, stable=True)]


def tokenise(texts: Sequence[str], tokenizer: Any, max_length: int) -> TextInputs:
    """Turn texts into at most so many tokens each, the first and the last mark included; the rest is cut off."""
    shortest, longest = tokenizer.num_special_tokens_to_add() + 1, tokenizer.model_max_length
    if not shortest <= max_length <= longest:
        raise InputError(f"max_length must be from {shortest} to {longest} for this encoder, got {max_length}.")
    if tokenizer.pad_token_id is None:
        raise InputError("The encoder's tokenizer has no padding token; choose an encoder like BERT.")
    ids: list[np.ndarray] = []
    lengths: list[int] = []
    for start in range(0, len(texts), TEXTS_PER_CHUNK):
        chunk = list(texts[start : start + TEXTS_PER_CHUNK])
        tokens = tokenizer(chunk, truncation=True, max_length=max_length, **IDS_ONLY)["input_ids"]
        ids.append(np.concatenate([np.asarray(text, dtype=np.int32) for text in tokens]))
        lengths.extend(len(text) for text in tokens)
    if not lengths or 0 in lengths:
        raise InputError("There is no text, or one without a single token; drop empty texts.")
    return TextInputs(np.concatenate(ids), np.concatenate([[0], np.cumsum(lengths)]), tokenizer.pad_token_id)


def load_tokenizer(encoder: str | Path) -> Any:
    """Load the tokenizer of an encoder from a folder, or by name from the local cache; nothing is downloaded."""
    return load_offline("AutoTokenizer", encoder)


def load_text_table(
    data: str | Path,
    *,
    encoder: str | Path,
    text: str = "text",
    label: str = "label",
    group: str | Sequence[str] = "group",
    split: str = SPLIT,
    max_length: int = 128,
) -> Examples:
    """Load texts of your own from a table in CSV or Parquet.

    Parameters
    ----------
    data : str or Path
        The table.
    encoder : str or Path
        Name or folder of the encoder whose tokenizer is used.
    text, label : str
        Columns of the texts and of the classes.
    group : str or list of str
        Column of the groups. Several make a group per combination that occurs; several of floating-point numbers whose
        rows sum to one are shares of soft groups.
    split : str
        Column that says ``train``, ``validation`` or ``test``. Without a column ``split``, 80 % of the rows train and the
        rest test, drawn by seed 0.
    max_length : int
        Tokens of a text at most.
    """
    path = Path(data)
    listed = read_list(path, sample=text, label=label, group=group, split=split)
    texts, groups = listed.samples, listed.groups
    if (missing := texts.count(None)) > 0:
        raise InputError(
            f"The column {text!r} misses {missing} of {len(texts)} texts (in CSV also '?', 'NA' and the like); drop those "
            "rows or fill them in."
        )
    if not isinstance(texts[0], str):
        raise InputError(f"The column {text!r} holds no texts; name the column that does.")
    named = ("shares of " if groups.soft else "") + ", ".join(groups.names)
    about = {
        "name": path.stem,
        "file": path.name,
        "rows": len(texts),
        "label": label,
        "text": text,
        "max_length": max_length,
    }
    card = embedded_card("texts").format(**about, classes=", ".join(listed.class_names), groups=named, sizes=listed.sizes)
    inputs = tokenise(texts, load_tokenizer(encoder), max_length)
    return Examples(path.stem, inputs, listed.y, groups, listed.class_names, listed.parts, card)
