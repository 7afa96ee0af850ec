"""HateXplain: is a post normal, offensive or hate speech? Groups by whom it targets, hard or in shares of annotators."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from fairdro._utils.files import read_table
from fairdro.cells import Cells
from fairdro.data.base import embedded_card
from fairdro.data.examples import Examples
from fairdro.data.texts import load_tokenizer, tokenise
from fairdro.errors import InputError
from fairdro.groups import Groups

TABLE, ORIGINAL, DIVISIONS = "dataset_native.parquet", "dataset.json", "post_id_divisions.json"
CLASS_NAMES = ["normal", "offensive", "hatespeech"]
PARTS = {"train": "train", "validation": "val", "test": "test"}
REST = "None/Other"
OFFICIAL_SIZES = {"train": 15383, "validation": 1922, "test": 1924}
OFFICIAL_CLASSES = [7814, 5480, 5935]


@dataclass(frozen=True)
class _Posts:
    """Posts with a class and a part; ``votes`` counts the annotators who named a target, a column per target."""

    texts: list[str]
    y: np.ndarray
    votes: pd.DataFrame
    parts: dict[str, np.ndarray]


def load_hatexplain(
    data: str | Path, *, encoder: str | Path, soft: bool = False, max_length: int = 128, n_groups: int = 5
) -> Examples:
    """Load HateXplain with its official parts.

    Parameters
    ----------
    data : str or Path
        Folder with ``post_id_divisions.json`` and the posts: ``dataset.json`` as published, or the same as the table
        ``dataset_native.parquet`` with columns ``post_id``, ``labels``, ``targets`` and ``tokens``.
    encoder, max_length
        See :func:`~fairdro.data.texts.load_text_table`.
    soft : bool
        Whether a post belongs to each target by its share of all that annotators named, or to the one most of them named.
    n_groups : int
        Targets to keep, the most frequent of the training part; all others are one more group, ``None/Other``.
    """
    posts = _read(Path(data))
    groups = _groups(posts, n_groups, soft=soft)
    inputs = tokenise(posts.texts, load_tokenizer(encoder), max_length)
    return Examples("hatexplain", inputs, posts.y, groups, CLASS_NAMES, posts.parts, embedded_card("hatexplain"))


def check_hatexplain(data: str | Path) -> list[str]:
    """Compare the sizes of parts and classes with those published, and count the cells of five targets and the rest."""
    posts = _read(Path(data))
    lines = []
    for name, rows in posts.parts.items():
        verdict = "as published" if len(rows) == OFFICIAL_SIZES[name] else f"published are {OFFICIAL_SIZES[name]:,}"
        lines.append(f"{name}: {len(rows):,} posts, {verdict}.")
    groups = _groups(posts, 5, soft=False)
    cells = Cells.from_labels(posts.y, groups, n_classes=len(CLASS_NAMES))
    sizes = cells.counts.sum(1).long().tolist()
    verdict = "as published" if sizes == OFFICIAL_CLASSES else f"published are {OFFICIAL_CLASSES}"
    lines.append(f"{', '.join(CLASS_NAMES)}: {sizes} posts, {verdict}.")
    for name, rows in posts.parts.items():
        counts = cells.take(torch.from_numpy(rows)).counts.long().tolist()
        lines.append(f"{name}, by class and target ({', '.join(groups.names)}): {counts}.")
    return lines


def _groups(posts: _Posts, n_groups: int, *, soft: bool) -> Groups:
    in_training = posts.votes.iloc[posts.parts["train"]].sum()
    by_size = in_training.drop(["None", "Other"], errors="ignore").sort_values(ascending=False, kind="stable")
    if not 1 <= n_groups <= len(by_size):
        raise InputError(f"n_groups must be from 1 to {len(by_size)}, the number of targets, got {n_groups}.")
    kept = list(by_size.index[:n_groups])
    names = [*kept, REST]
    if soft:
        shares = posts.votes[kept].to_numpy(np.float64)
        rest = posts.votes.to_numpy(np.float64).sum(axis=1) - shares.sum(axis=1)
        rest[(rest == 0) & (shares == 0).all(axis=1)] = 1  # nobody named anything
        shares = np.column_stack([shares, rest])
        return Groups(shares / shares.sum(axis=1, keepdims=True), names)
    named = posts.votes.reindex(columns=[*by_size.index, "Other"], fill_value=0).to_numpy()
    first = np.where(named.any(axis=1), named.argmax(axis=1), n_groups)
    return Groups(np.minimum(first, n_groups), names)


def _read(folder: Path) -> _Posts:
    """Return the posts that most annotators agree on."""
    posts, divisions = _read_posts(folder), _read_json(folder / DIVISIONS)
    try:
        part_of = {post: name for name, value in PARTS.items() for post in divisions[value]}
        ids = pd.Series([post["post_id"] for post in posts])
        labels = _votes([post["labels"] for post in posts])
        votes = _votes([[name for named in post["targets"] for name in set(named)] for post in posts])
        texts = [" ".join(post["tokens"]) for post in posts]
    except (KeyError, TypeError) as error:
        raise _damaged(folder) from error
    if set(labels.columns) != set(CLASS_NAMES) or not set(part_of) <= set(ids):
        raise _damaged(folder)
    by_class = labels[CLASS_NAMES].to_numpy()
    decided = (by_class == by_class.max(axis=1, keepdims=True)).sum(axis=1) == 1
    part = ids.map(part_of)
    kept = np.flatnonzero(decided & part.notna())
    parts = {name: np.flatnonzero(part.iloc[kept] == name) for name in PARTS}
    if any(len(rows) == 0 for rows in parts.values()):
        raise _damaged(folder)
    return _Posts([texts[row] for row in kept], by_class[kept].argmax(axis=1), votes.iloc[kept], parts)


def _votes(named: Sequence[Sequence[str]]) -> pd.DataFrame:
    """Count how often each name was given to each post, a column per name."""
    names = pd.Series(list(named), dtype=object).explode().dropna()
    return pd.crosstab(names.index, names).reindex(range(len(named)), fill_value=0)


def _read_posts(folder: Path) -> list[dict[str, Any]]:
    if (folder / TABLE).is_file():
        table = read_table(folder / TABLE)
        columns = ["post_id", "labels", "targets", "tokens"]
        if not set(columns) <= set(table.column_names):
            raise _damaged(folder)
        return table.select(columns).to_pylist()
    try:
        return [
            {
                "post_id": name,
                "labels": [annotator["label"] for annotator in post["annotators"]],
                "targets": [annotator["target"] for annotator in post["annotators"]],
                "tokens": post["post_tokens"],
            }
            for name, post in _read_json(folder / ORIGINAL).items()
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(folder) from error


def _read_json(path: Path) -> Any:
    if not path.is_file():
        raise InputError(
            f"There is no file {path}; download {ORIGINAL} and {DIVISIONS} from the folder Data of "
            "https://github.com/hate-alert/HateXplain and name the folder that holds them."
        )
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(path.parent) from error


def _damaged(folder: Path) -> InputError:
    return InputError(f"The files of HateXplain in {folder} are not as published; download them again.")
