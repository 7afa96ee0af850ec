"""CelebA: is a celebrity's hair blond? Groups by sex."""

from pathlib import Path

import numpy as np
import pandas as pd

from fairdro._utils.progress import OnStep
from fairdro.cells import Cells
from fairdro.data.base import PARTS, check_protocol, embedded_card
from fairdro.data.examples import Examples
from fairdro.data.images import ImageInputs, compare_counts, decode_images, stored_side
from fairdro.errors import InputError
from fairdro.groups import Groups

CLASSES = ["not blond", "blond"]
GROUPS = ["Female", "Male"]
PUBLISHED = {
    "train": [[71629, 66874], [22880, 1387]],
    "validation": [[8535, 8276], [2874, 182]],
    "test": [[9767, 7535], [2480, 180]],
}
MEAN, STD = (0.5063, 0.4258, 0.3832), (0.3107, 0.2904, 0.2897)
IMAGES, ATTRIBUTES, PARTITION = "img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt"
HOW = (
    "download CelebA, aligned and cropped, from its project page (mmlab.ie.cuhk.edu.hk/projects/CelebA.html) into a folder "
    f"with {ATTRIBUTES}, {PARTITION} and the images in {IMAGES}"
)


def load_celeba(
    data: str | Path,
    *,
    size: int = 224,
    protocol: str = "validated",
    cache: str | Path | None = None,
    on_step: OnStep | None = None,
) -> Examples:
    """Load CelebA from a folder with its official files; nothing is downloaded.

    Rows of the attribute file whose image is not there are left out, so a part of the images can be used.

    Parameters
    ----------
    data : path
        Folder with ``list_attr_celeba.txt``, ``list_eval_partition.txt`` and ``img_align_celeba``.
    protocol : {"validated", "paper"}
        ``paper``: of the official test images, the first n of every class and group, where n is the number in the smallest.
        ``validated``: all of them.
    size, cache, on_step
        See :func:`~fairdro.data.images.load_image_folder`.
    """
    check_protocol(protocol)
    folder = Path(data)
    table = _read(folder)
    parts = {part: np.flatnonzero(table["part"] == i) for i, part in enumerate(PARTS)}
    if protocol == "paper":
        parts["test"] = _balanced(parts["test"], table)
    for part in ("train", "test"):
        if len(parts[part]) == 0:
            raise InputError(f"None of the images in {folder / IMAGES} are of the {part} part; {HOW}.")
    names = [f"{IMAGES}/{name}" for name in table.index]
    images = decode_images(folder, names, stored_side(size), cache=cache, on_step=on_step)
    inputs = ImageInputs(images, size=size, mean=MEAN, std=STD)
    parts = {part: rows for part, rows in parts.items() if len(rows) > 0}
    y, groups = table["y"].to_numpy(), Groups(table["a"].to_numpy(), GROUPS)
    return Examples("celeba", inputs, y, groups, CLASSES, parts, embedded_card("celeba"))


def check_celeba(data: str | Path) -> list[str]:
    """Compare a copy of CelebA with the published counts, in sentences."""
    table = _read(Path(data))
    sentences = []
    for i, part in enumerate(PARTS):
        compared = compare_counts(_cells(table[table["part"] == i]), PUBLISHED[part], CLASSES, GROUPS)
        sentences += [f"{part}: {sentence}" for sentence in compared]
    return sentences


def _cells(table: pd.DataFrame) -> Cells:
    return Cells.from_labels(table["y"].to_numpy(), Groups(table["a"].to_numpy(), GROUPS), n_classes=len(CLASSES))


def _balanced(rows: np.ndarray, table: pd.DataFrame) -> np.ndarray:
    """Return the first n rows of every cell, where n is the size of the smallest."""
    cells = _cells(table.iloc[rows])
    smallest = int(cells.counts.min())
    if smallest == 0:
        k, g = cells.counts.eq(0).nonzero()[0].tolist()
        raise InputError(
            f"There are no test images of {CLASSES[k]} / {GROUPS[g]}, so the test part cannot be balanced; add some, or use "
            "protocol='validated'."
        )
    return np.sort(rows[np.concatenate([of_cell[:smallest] for of_cell in cells.strata.values()])])


def _read(folder: Path) -> pd.DataFrame:
    """Return class, group and part of every image that is there, by its name, in the order of the attribute file."""
    for name in (ATTRIBUTES, PARTITION, IMAGES):
        if not ((folder / name).is_dir() if name == IMAGES else (folder / name).is_file()):
            raise InputError(f"There is no {'folder' if name == IMAGES else 'file'} {name} in {folder}; {HOW}.")
    attributes, partition = _read_text(folder / ATTRIBUTES, skiprows=1), _read_text(folder / PARTITION, header=None)
    for column in ("Blond_Hair", "Male"):
        if column not in attributes or not attributes[column].isin([-1, 1]).all():
            raise InputError(f"{folder / ATTRIBUTES} has no column {column} with -1 and 1 in every row; download it again.")
    if partition.shape[1] != 1 or not partition.iloc[:, 0].isin(range(len(PARTS))).all():
        raise InputError(f"{folder / PARTITION} must have a name and 0, 1 or 2 in every row; download it again.")
    unplaced = attributes.index.difference(partition.index)
    if len(unplaced) > 0:
        raise InputError(f"{folder / PARTITION} does not say which part {unplaced[0]} belongs to; download it again.")
    present = {path.name for path in (folder / IMAGES).iterdir()}
    table = pd.DataFrame(
        {
            "y": (attributes["Blond_Hair"] == 1).astype(np.int64),
            "a": (attributes["Male"] == 1).astype(np.int64),
            "part": partition.iloc[:, 0].reindex(attributes.index).astype(np.int64),
        }
    )
    table = table[[name in present for name in table.index]]
    if table.empty:
        raise InputError(f"None of the images of {ATTRIBUTES} are in {folder / IMAGES}; {HOW}.")
    return table


def _read_text(path: Path, *, skiprows: int = 0, header: int | None = 0) -> pd.DataFrame:
    """Read a table of words between spaces, whose first column holds the names of the images."""
    try:
        table = pd.read_csv(path, sep=r"\s+", skiprows=skiprows, header=header, index_col=0 if header is None else None)
    except (OSError, ValueError) as error:
        raise InputError(f"Cannot read {path} ({str(error).splitlines()[0]}); download it again.") from error
    table.index = table.index.astype(str)
    if not table.index.is_unique:
        raise InputError(f"{path} lists {table.index[table.index.duplicated()][0]} twice; download it again.")
    return table
