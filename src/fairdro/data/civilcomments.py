"""CivilComments: is a comment on a news site toxic? Groups by the ethnicity it mentions."""

from pathlib import Path

import numpy as np
import pandas as pd

from fairdro.cells import Cells
from fairdro.data.base import embedded_card
from fairdro.data.examples import Examples
from fairdro.data.texts import load_tokenizer, tokenise
from fairdro.errors import InputError
from fairdro.groups import Groups

FILE = "all_data_with_identities.csv"
ETHNICITIES = ["black", "white", "asian", "latino", "other_race_or_ethnicity"]
CLASS_NAMES = ["not toxic", "toxic"]
PARTS = {"train": "train", "validation": "val", "test": "test"}
PAPER_COUNTS = [[11485, 17632, 8154, 4048, 9823], [4564, 5892, 828, 545, 1286]]


def load_civilcomments(
    data: str | Path, *, encoder: str | Path, soft: bool = False, max_length: int = 220, threshold: float = 0.1
) -> Examples:
    """Load the WILDS release of CivilComments, as the paper does.

    Parameters
    ----------
    data : str or Path
        The file ``all_data_with_identities.csv``, or its folder.
    encoder, max_length
        See :func:`~fairdro.data.texts.load_text_table`; the paper's encoder is ``bert-base-uncased``.
    soft : bool
        Whether a comment belongs to all five ethnicities by their scores, scaled to sum to one, or to that with the largest.
    threshold : float
        Comments whose largest score is below it are left out.
    """
    if not 0 < threshold <= 1:
        raise InputError(f"threshold must be a share above 0 and at most 1, got {threshold}.")
    table = _read(Path(data), threshold)
    parts = {name: np.flatnonzero(table["split"] == value) for name, value in PARTS.items()}
    groups = _groups(table, soft=soft)
    inputs = tokenise(table["comment_text"].tolist(), load_tokenizer(encoder), max_length)
    return Examples("civilcomments", inputs, _toxic(table), groups, CLASS_NAMES, parts, embedded_card("civilcomments"))


def check_civilcomments(data: str | Path) -> list[str]:
    """Compare the counts per cell with the paper's, which does not say of which parts they are: a sentence per choice."""
    table = _read(Path(data), threshold=0.1)
    lines = [f"The paper has {np.sum(PAPER_COUNTS):,} comments, by class and group {PAPER_COUNTS}."]
    for parts in (["train"], ["test"], ["train", "test"], ["train", "validation", "test"]):
        chosen = table[table["split"].isin([PARTS[name] for name in parts])]
        cells = Cells.from_labels(_toxic(chosen), _groups(chosen, soft=False), n_classes=len(CLASS_NAMES))
        counts = cells.counts.long().tolist()
        verdict = "equal to the paper's" if counts == PAPER_COUNTS else "not the paper's"
        lines.append(f"{' + '.join(parts)}: {len(cells):,} comments, {counts}, {verdict}.")
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
        kinds = dict.fromkeys(columns, str) | dict.fromkeys(numbers, np.float64)
        missing_as = {name: [""] for name in numbers}
        table = pd.read_csv(file, usecols=columns, dtype=kinds, keep_default_na=False, na_values=missing_as)
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


def _groups(table: pd.DataFrame, *, soft: bool) -> Groups:
    scores = table[ETHNICITIES].to_numpy(np.float64)
    return Groups(scores / scores.sum(axis=1, keepdims=True) if soft else scores.argmax(axis=1), ETHNICITIES)
