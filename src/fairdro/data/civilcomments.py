"""CivilComments: is a comment on a news site toxic? Groups by the ethnicity it mentions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from fairdro.cells import Groups
from fairdro.data.examples import Examples
from fairdro.data.texts import load_tokenizer, tokenise
from fairdro.errors import InputError, unknown_name

__all__ = ["check_civilcomments", "load_civilcomments"]

FILE = "all_data_with_identities.csv"
ETHNICITIES = ["black", "white", "asian", "latino", "other_race_or_ethnicity"]
CLASS_NAMES = ["not toxic", "toxic"]
GROUPS = ["argmax", "soft"]
PARTS = {"train": "train", "validation": "val", "test": "test"}
PAPER_COUNTS = [[11485, 17632, 8154, 4048, 9823], [4564, 5892, 828, 545, 1286]]
CARD = """\
# CivilComments

- **Source**: comments on about 50 English news sites, 2015 to 2017, kept by Civil Comments and rated by crowd workers for
  Jigsaw (Borkan et al., 2019); the file `all_data_with_identities.csv` of the WILDS benchmark (Koh et al., 2021), version
  1.0. It is not part of this package.
- **Licence**: CC0.
- **Task**: did at least half of the raters call the comment toxic?
- **Groups**: the ethnicity that a comment mentions: black, white, asian, latino or other, by the share of raters who saw it
  mentioned. `argmax` takes the largest share (the first of equal ones), as the paper does; `soft` takes all five, scaled to
  sum to one.
- **What was left out**: comments where no ethnicity was seen by a share of `threshold` raters (0.1, as in the authors' code;
  the paper does not say), and all other columns.
- **Split**: that of WILDS. The paper uses no validation part.
- **Limits**: the texts offend. A mention of a group is not membership of it, ratings differ between raters and are noisy for
  single comments, and most comments mention no ethnicity and are not here.
"""


def load_civilcomments(
    path: str | Path,
    *,
    encoder: str | Path,
    groups: str = "argmax",
    max_length: int = 220,
    threshold: float = 0.1,
) -> Examples:
    """Load the WILDS release of CivilComments, as the paper does.

    Parameters
    ----------
    path : str or Path
        The file ``all_data_with_identities.csv``, or its folder.
    encoder : str or Path
        Name or folder of the encoder whose tokenizer is used; the paper's is ``bert-base-uncased``.
    groups : {"argmax", "soft"}
        The ethnicity with the largest score, or all five scores scaled to sum to one.
    max_length : int
        Tokens of a comment at most.
    threshold : float
        Comments whose largest score is below it are left out.
    """
    if groups not in GROUPS:
        raise unknown_name("kind of groups of civilcomments", groups, GROUPS)
    if not 0 < threshold <= 1:
        raise InputError(f"threshold must be a share above 0 and at most 1, got {threshold}.")
    table = _read(Path(path), threshold)
    scores = table[ETHNICITIES].to_numpy(np.float64)
    membership = scores.argmax(axis=1) if groups == "argmax" else scores / scores.sum(axis=1, keepdims=True)
    parts = {name: np.flatnonzero(table["split"] == value) for name, value in PARTS.items()}
    inputs = tokenise(table["comment_text"].tolist(), load_tokenizer(encoder), max_length)
    return Examples("civilcomments", inputs, _toxic(table), Groups(membership, ETHNICITIES), CLASS_NAMES, parts, CARD)


def check_civilcomments(path: str | Path) -> list[str]:
    """Compare the counts per cell with the paper's, which does not say of which parts they are.

    Returns
    -------
    list of str
        A sentence per choice of parts.
    """
    table = _read(Path(path), threshold=0.1)
    cells = _toxic(table) * len(ETHNICITIES) + table[ETHNICITIES].to_numpy(np.float64).argmax(axis=1)
    paper = np.array(PAPER_COUNTS)
    lines = [f"The paper has {paper.sum():,} comments, by class and group {PAPER_COUNTS}."]
    for parts in (["train"], ["test"], ["train", "test"], ["train", "validation", "test"]):
        chosen = table["split"].isin([PARTS[name] for name in parts]).to_numpy()
        counts = np.bincount(cells[chosen], minlength=paper.size).reshape(paper.shape)
        verdict = "equal to the paper's" if (counts == paper).all() else "not the paper's"
        lines.append(f"{' + '.join(parts)}: {counts.sum():,} comments, {counts.tolist()}, {verdict}.")
    return lines


def _read(path: Path, threshold: float) -> pd.DataFrame:
    """Return text, part, toxicity and the five scores of the comments that mention an ethnicity."""
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise InputError(
            f"There is no file {file}; download the WILDS release of CivilComments (https://wilds.stanford.edu/downloads) "
            f"and name the folder that holds its {FILE}."
        )
    numbers = ["toxicity", *ETHNICITIES]
    columns = ["comment_text", "split", *numbers]
    try:
        missing = [name for name in columns if name not in pd.read_csv(file, nrows=0).columns]
        if missing:
            raise InputError(f"{file} has no column {missing[0]!r}; it must be the {FILE} of WILDS.")
        table = pd.read_csv(
            file,
            usecols=columns,
            dtype={"comment_text": str, "split": str} | dict.fromkeys(numbers, np.float64),
            keep_default_na=False,
            na_values={name: [""] for name in numbers},
        )
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"Cannot read {file}, which must be the {FILE} of WILDS; download it again.") from error
    if table["toxicity"].isna().any() or not table["split"].isin(PARTS.values()).all():
        raise InputError(f"{file} has rows without toxicity or part; it must be the {FILE} of WILDS.")
    table[ETHNICITIES] = table[ETHNICITIES].fillna(0.0)
    kept = table[table[ETHNICITIES].max(axis=1) >= threshold].reset_index(drop=True)
    if set(kept["split"]) != set(PARTS.values()):
        raise InputError(f"{file} has no comment that mentions an ethnicity in one of its parts; lower threshold.")
    return kept


def _toxic(table: pd.DataFrame) -> np.ndarray:
    return (table["toxicity"] >= 0.5).to_numpy(np.int64)
