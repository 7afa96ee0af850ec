"""Images as a network reads them: decoded once, kept on disk, cropped and flipped in training; and folders of one's own."""

import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from fairdro._utils.extras import require
from fairdro._utils.files import write_whole
from fairdro._utils.hashing import digest
from fairdro._utils.progress import OnStep
from fairdro.cells import Cells
from fairdro.data.base import embedded_card
from fairdro.data.examples import SPLIT, Examples, read_list
from fairdro.errors import InputError

TABLES = ["labels.csv", "labels.parquet"]
CACHE = ".fairdro-cache"
WORKERS = 4
FILES_PER_STEP = 256
IMAGES_FOR_SCALE = 1000
LARGEST = 4096  # pixels of a side; beyond, images that were enlarged would fill memory and disk


class ImageInputs:
    """Images for a network, augmented in training as the paper does.

    Parameters
    ----------
    images : ndarray of uint8, shape (N, 3, H, W)
        In memory, or on disk as a ``numpy.memmap``.
    size : int
        Side of the squares the network sees, at most H and W.
    mean, std : sequences of three floats
        Of the channels on a scale from 0 to 1; what the network sees is ``(image - mean) / std``.
    """

    def __init__(self, images: np.ndarray, *, size: int, mean: Sequence[float], std: Sequence[float]) -> None:
        if images.ndim != 4 or images.shape[1] != 3 or images.dtype != np.uint8:
            raise InputError(f"Images must be uint8 of shape (N, 3, H, W), got {images.dtype} of shape {images.shape}.")
        if not 1 <= size <= min(images.shape[2:]):
            raise InputError(f"size must be from 1 to {min(images.shape[2:])}, the side of the images, got {size}.")
        self.images, self.size = images, size
        deviation = torch.tensor(std).view(3, 1, 1)
        self._scale = 1 / (255 * deviation)
        self._shift = -torch.tensor(mean).view(3, 1, 1) / deviation

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, rows: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """Return some images as the network sees them, ``(B, 3, size, size)``.

        Without ``rng`` they are whole, reduced to ``size``. With it each is a random square of that side, mirrored or not.
        """
        pixels = self._whole(rows) if rng is None else self._augmented(rows, rng)
        return pixels.float().mul_(self._scale).add_(self._shift)

    def _whole(self, rows: Tensor) -> Tensor:
        pixels = torch.from_numpy(np.asarray(self.images[rows.numpy()]))
        if pixels.shape[2:] == (self.size, self.size):
            return pixels
        return torch.nn.functional.interpolate(pixels, (self.size, self.size), mode="bilinear", antialias=True)

    def _augmented(self, rows: Tensor, rng: torch.Generator) -> Tensor:
        squares = sliding_window_view(self.images, (self.size, self.size), axis=(2, 3))  # (N, 3, top, left, size, size)
        top = torch.randint(squares.shape[2], (len(rows),), generator=rng)
        left = torch.randint(squares.shape[3], (len(rows),), generator=rng)
        mirrored = torch.rand(len(rows), generator=rng) < 0.5
        pixels = torch.from_numpy(squares[rows.numpy(), :, top.numpy(), left.numpy()])
        return torch.where(mirrored.view(-1, 1, 1, 1), pixels.flip(-1), pixels)


def stored_side(size: int) -> int:
    """Return the side to store images in, of which training takes squares of side ``size``: 256 for the paper's 224."""
    if not 1 <= size <= LARGEST:
        raise InputError(f"size must be from 1 to {LARGEST} pixels, got {size}.")
    return round(size * 256 / 224)


def decode_images(
    folder: Path, names: Sequence[str], side: int, *, cache: str | Path | None = None, on_step: OnStep | None = None
) -> np.ndarray:
    """Decode JPEG and PNG files into squares ``(N, 3, side, side)``, or take them from the cache, on disk.

    Decoding needs the extra ``fairdro[vision]``. The cache is one file per set of images and side, of ``3 * side * side``
    bytes per image. It is made anew when a file has another size or time, and may be deleted at any time.

    Parameters
    ----------
    side : int
        Images are stretched to squares of this side.
    cache : path, optional
        Folder for the cache; by default ``.fairdro-cache`` in ``folder`` or, where that cannot be written, one in the
        system's folder for temporary files.
    on_step : callable, optional
        Called while decoding with the number of finished images and of all.
    """
    file = f"images-{side}-{_fingerprint(folder, names, side)}.npy"
    shape = (len(names), 3, side, side)
    own = folder / CACHE if cache is None else Path(cache)
    stored = _open_stored(own / file, shape)
    if stored is None and cache is None and not os.access(own if own.exists() else folder, os.W_OK):
        own = _temporary_cache()
        stored = _open_stored(own / file, shape)
    if stored is not None:
        return stored
    require("PIL", extra="vision", what="Images")

    def write(into: BinaryIO) -> None:
        np.lib.format.write_array_header_1_0(into, {"descr": "|u1", "fortran_order": False, "shape": shape})
        with ThreadPoolExecutor(WORKERS) as pool:
            for start in range(0, len(names), FILES_PER_STEP):
                some = names[start : start + FILES_PER_STEP]
                for image in pool.map(lambda name: _decode(folder, name, side), some):
                    into.write(image.tobytes())
                if on_step is not None:
                    on_step(start + len(some), len(names))

    write_whole(own / file, write)
    return np.load(own / file, mmap_mode="r", allow_pickle=False)


def _fingerprint(folder: Path, names: Sequence[str], side: int) -> str:
    """Return a hash of what the cache is made of."""
    files = []
    for name in names:
        try:
            about = (folder / name).stat()
        except (OSError, ValueError) as error:
            raise InputError(f"Cannot read the image {name!r} in {folder}: {error}.") from error
        files.append([name, about.st_size, about.st_mtime_ns])
    return digest(["bilinear", side, files])[:16]


def _open_stored(path: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    """Open a cached file if it is there and holds what it should."""
    try:
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return stored if getattr(stored, "shape", None) == shape and stored.dtype == np.uint8 else None


def _temporary_cache() -> Path:
    """Return this user's own folder among the system's temporary files."""
    user = getattr(os, "getuid", int)()  # elsewhere than on POSIX temporary files are the user's own
    folder = Path(tempfile.gettempdir()) / f"fairdro-cache-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != user:
        raise InputError(f"{folder} belongs to another user; name a folder for the cache.")
    return folder


def _decode(folder: Path, name: str, side: int) -> np.ndarray:
    """Decode one file into ``(3, side, side)``."""
    from PIL import Image  # noqa: PLC0415

    try:
        with Image.open(folder / name, formats=("JPEG", "PNG")) as image:
            image.draft("RGB", (side, side))  # a JPEG comes out at the smallest fraction of its size that is large enough
            square = image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        sentence = f"The image {name!r} in {folder} is broken, or neither JPEG nor PNG; replace it, or leave it out."
        raise InputError(sentence) from error
    return np.asarray(square).transpose(2, 0, 1)


def load_image_folder(
    data: str | Path,
    table: str | Path | None = None,
    *,
    label: str = "label",
    group: str | Sequence[str] = "group",
    image: str = "image",
    split: str = SPLIT,
    size: int = 224,
    cache: str | Path | None = None,
    on_step: OnStep | None = None,
) -> Examples:
    """Load images of your own from a folder, listed in a table.

    Channels are scaled by the mean and deviation of the training images, of a thousand where there are more.

    Parameters
    ----------
    data : path
        Folder with JPEG or PNG files, also in folders within.
    table : path, optional
        CSV or Parquet with a row per image; by default ``labels.csv`` or ``labels.parquet`` in the folder.
    image : str
        Column with the path of the file, relative to the folder.
    label, group, split
        Columns with class, groups and part, see :func:`~fairdro.data.texts.load_text_table`.
    size : int
        Side of the images the network sees; the paper's is 224.
    cache, on_step : optional
        See :func:`decode_images`.
    """
    folder = Path(data)
    path = _find_table(folder) if table is None else Path(table)
    listed = read_list(path, sample=image, label=label, group=group, split=split)
    _check_paths(folder, listed.samples, image)
    images = decode_images(folder, listed.samples, stored_side(size), cache=cache, on_step=on_step)
    mean, std = _channels(images, listed.parts["train"])
    inputs = ImageInputs(images, size=size, mean=mean, std=std)
    name, columns = folder.resolve().name, [group] if isinstance(group, str) else list(group)
    named = ", ".join(f"`{column}`" for column in columns)
    classes, groups = ("; ".join(names) for names in (listed.class_names, listed.groups.names))
    about = {"name": name, "label": label, "columns": named, "classes": classes, "groups": groups, "sizes": listed.sizes}
    card = embedded_card("images").format(**about)
    return Examples(name, inputs, listed.y, listed.groups, listed.class_names, listed.parts, card)


def _find_table(folder: Path) -> Path:
    for name in TABLES:
        if (folder / name).exists():
            return folder / name
    raise InputError(
        f"There is no {' or '.join(TABLES)} in {folder}: a table with the columns image (path of the file in the folder), "
        "label, group and, if you like, split (train, validation or test)."
    )


def _check_paths(folder: Path, names: Sequence[object], column: str) -> None:
    """Refuse a column in which not every row names a file inside the folder."""
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}.")
    root = folder.resolve()
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"The column {column!r} must hold paths of images in every row, got {name!r}.")
        try:
            place = (root / name).resolve()
            inside, found = place.is_relative_to(root) and not Path(name).is_absolute(), place.is_file()
        except (OSError, ValueError, RuntimeError) as error:  # too long, a null byte, links in a circle
            raise InputError(f"The column {column!r} holds {name[:100]!r}, which cannot be a path.") from error
        if not inside:
            raise InputError(f"The path {name!r} leads out of {folder}; paths must be relative and stay inside.")
        if not found:
            raise InputError(f"There is no image {name!r} in {folder}.")


def _channels(images: np.ndarray, rows: np.ndarray) -> tuple[list[float], list[float]]:
    """Return the mean and deviation of the channels of some images, on a scale from 0 to 1."""
    some = np.sort(rows[:: max(len(rows) // IMAGES_FOR_SCALE, 1)])
    means = np.stack([images[row].mean(axis=(1, 2)) for row in some]).mean(axis=0)
    squares = np.stack([np.square(images[row], dtype=np.float64).mean(axis=(1, 2)) for row in some]).mean(axis=0)
    deviation = np.sqrt(np.maximum(squares - means**2, 1))
    return (means / 255).tolist(), (deviation / 255).tolist()


def compare_counts(cells: Cells, published: list[list[int]], class_names: list[str], group_names: list[str]) -> list[str]:
    """Say in a sentence per cell how many images were found and published, and in a last one whether they agree."""
    names = [f"{kind} / {group}" for kind in class_names for group in group_names]
    counts = cells.counts.long().flatten().tolist()
    pairs = list(zip(names, counts, np.ravel(published).tolist(), strict=True))
    sentences = [f"{name}: {found:,} images, {known:,} published." for name, found, known in pairs]
    other = sum(found != known for _, found, known in pairs)
    verdict = f"{other} of {len(names)} counts do not agree" if other else f"All {len(names)} counts agree"
    return [*sentences, f"{verdict}: {sum(counts):,} images, {np.sum(published):,} published."]
