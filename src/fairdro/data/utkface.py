"""UTKFace: is a face younger than 20, younger than 40, or older? Groups by race."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fairdro._utils.hashing import digest
from fairdro._utils.progress import OnStep
from fairdro.cells import Cells
from fairdro.data.base import check_protocol, embedded_card
from fairdro.data.examples import Examples
from fairdro.data.images import ImageInputs, compare_counts, decode_images, stored_side
from fairdro.errors import InputError
from fairdro.groups import Groups

CLASSES = ["under 20", "20 to 39", "40 and over"]
GROUPS = ["White", "Black", "Asian", "Indian"]
PUBLISHED = [[2049, 336, 1025, 638], [3735, 3116, 1856, 2221], [4294, 1074, 553, 1116]]
MEAN, STD = (0.5960, 0.4573, 0.3921), (0.2586, 0.2314, 0.2275)
TEST_PER_CELL = 100
NAME = re.compile(r"([0-9]{1,3})_[^_]*_([0-3])_[^_]*\.jpg")
HOW = (
    "download UTKFace, aligned and cropped, from its project page (susanqq.github.io/UTKFace) and unpack it into a folder "
    "UTKFace with files such as 25_0_1_20170116232725357.jpg.chip.jpg"
)


def load_utkface(
    data: str | Path,
    *,
    size: int = 224,
    protocol: str = "validated",
    cache: str | Path | None = None,
    on_step: OnStep | None = None,
) -> Examples:
    """Load UTKFace from a folder with its files; nothing is downloaded.

    Files are sorted by name, numbers by value, and shuffled with Python's generator of seed 1. From the end of that list,
    the first 100 images of every class and group are the test part.

    Parameters
    ----------
    data : path
        ``UTKFace`` with the aligned and cropped faces, or the folder that holds it.
    protocol : {"validated", "paper"}
        ``paper``: all other images train. ``validated``: files identical (by SHA-256) to one in the test part are dropped,
        and the test still has 100 images of every class and group. Of the rest, in shuffled order, every fifth is in the
        validation part, of which files identical to one that trains are dropped. Identical files may train together.
    size, cache, on_step
        See :func:`~fairdro.data.images.load_image_folder`.
    """
    check_protocol(protocol)
    root, names = _find(Path(data))
    cells = _cells(names)
    if bool((cells.counts <= TEST_PER_CELL).any()):
        k, g = divmod(int(cells.counts.argmin()), len(GROUPS))
        raise InputError(
            f"{root} has only {int(cells.counts[k, g])} images of {CLASSES[k]} / {GROUPS[g]}, and {TEST_PER_CELL} of every "
            f"class and group are for the test; {HOW}."
        )
    validated = protocol == "validated"
    content = _digests(root, names) if validated else names
    parts = _split(cells.codes.tolist(), content, validation=validated)
    images = decode_images(root, names, stored_side(size), cache=cache, on_step=on_step)
    inputs = ImageInputs(images, size=size, mean=MEAN, std=STD)
    groups = Groups(cells.groups.numpy(), GROUPS)
    return Examples("utkface", inputs, cells.y.numpy(), groups, CLASSES, parts, embedded_card("utkface"))


def check_utkface(data: str | Path) -> list[str]:
    """Compare a copy of UTKFace with the published counts, in sentences."""
    root, names = _find(Path(data))
    cells = _cells(names)
    sentences = compare_counts(cells, PUBLISHED, CLASSES, GROUPS)
    if cells.counts.tolist() != PUBLISHED:
        sentences.append("The shuffle depends on the list of files, so the test part is not the paper's.")
    twice = sum(number > 1 for number in Counter(_digests(root, names)).values())
    return [*sentences, f"{twice:,} images occur more than once as identical files."]


def _find(folder: Path) -> tuple[Path, list[str]]:
    """Return the folder with the images, and their names in natural order."""
    root = folder / "UTKFace" if (folder / "UTKFace").is_dir() else folder
    if not root.is_dir():
        raise InputError(f"There is no folder {folder}; {HOW}.")
    names = sorted((path.name for path in root.iterdir() if NAME.fullmatch(path.name) and path.is_file()), key=_natural)
    if not names:
        raise InputError(f"There are no images of UTKFace in {folder}; {HOW}.")
    return root, names


def _natural(name: str) -> tuple[tuple[int | str, ...], str]:
    return tuple(int(piece) if i % 2 else piece for i, piece in enumerate(re.split("([0-9]+)", name))), name


def _cells(names: Sequence[str]) -> Cells:
    """Return the class of age and the group of every image."""
    numbers = np.array([NAME.fullmatch(name).groups() for name in names], dtype=np.int64)  # type: ignore[union-attr]
    y, groups = np.digitize(numbers[:, 0], [20, 40]), Groups(numbers[:, 1], GROUPS)
    return Cells.from_labels(y, groups, n_classes=len(CLASSES))


def _digests(root: Path, names: Sequence[str]) -> list[str]:
    return [digest((root / name).read_bytes()) for name in names]


def _split(cells: Sequence[int], content: Sequence[str], *, validation: bool) -> dict[str, np.ndarray]:
    """Return the rows of the parts, in shuffled order; no content is in two of them, nor twice in the test."""
    order = list(range(len(cells)))
    random.Random(1).shuffle(order)  # noqa: S311 - the paper's split, not a secret
    test: list[int] = []
    tested: set[str] = set()
    filled: Counter[int] = Counter()
    for row in reversed(order):
        if filled[cells[row]] < TEST_PER_CELL and content[row] not in tested:
            test.append(row)
            tested.add(content[row])
            filled[cells[row]] += 1
    train = np.array([row for row in order if content[row] not in tested])
    if not validation:
        return {"train": train, "test": np.array(test)}
    # The test has taken the rare cells from the end of the list, so every fifth of the rest is held out, not its end.
    held, train = train[::5], np.delete(train, np.s_[::5])
    trained = {content[row] for row in train}
    held = held[[content[row] not in trained for row in held]]
    return {"train": train, "validation": held, "test": np.array(test)}
