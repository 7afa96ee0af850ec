"""Datasets, one per file, and the registry that names them: tables, images and texts alike."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, overload

from fairdro.data.adult import load_adult
from fairdro.data.base import PROTOCOLS, Dataset, Part, Split
from fairdro.data.celeba import check_celeba, load_celeba
from fairdro.data.civilcomments import check_civilcomments, load_civilcomments
from fairdro.data.compas import load_compas
from fairdro.data.examples import Examples
from fairdro.data.features import is_features, load_features
from fairdro.data.hatexplain import check_hatexplain, load_hatexplain
from fairdro.data.images import load_image_folder
from fairdro.data.texts import load_text_table
from fairdro.data.utkface import check_utkface, load_utkface
from fairdro.errors import InputError, unknown_name

__all__ = [
    "DATASETS", "PROTOCOLS", "Dataset", "Entry", "Examples", "Part", "Split", "check_data", "load_dataset",
]  # fmt: skip

Kind = Literal["table", "images", "texts"]
ALIKE: dict[Any, Any] = {Path: os.PathLike, int: Integral, float: Real}  # types that are as good


@dataclass(frozen=True)
class Entry:
    """A dataset with a name.

    Attributes
    ----------
    kind : {"table", "images", "texts"}
        Tables ship with the package. Images and texts are read from ``data``, a folder or file; texts need an ``encoder``.
    load, check : callable
        The parameters of ``load`` are the options of :func:`load_dataset`, the first line of its docstring is the summary.
        ``check``, where there is one, compares files with those that were published, in sentences.

    Examples
    --------
    >>> from fairdro.data import Dataset, Entry
    >>> def load_coins(*, rows: int = 100) -> Dataset:
    ...     "Load made-up rows of two classes and two groups."
    >>> entry = Entry("table", load_coins)  # DATASETS["coins"] = entry gives it a name
    >>> entry.summary, list(entry.options)
    ('Load made-up rows of two classes and two groups.', ['rows'])
    """

    kind: Kind
    load: Callable[..., Dataset | Examples]
    check: Callable[[Path], list[str]] | None = None

    @property
    def summary(self) -> str:
        """What it is, in a line."""
        return (inspect.getdoc(self.load) or "").partition("\n")[0]

    @property
    def options(self) -> Mapping[str, inspect.Parameter]:
        """What can be chosen when it is loaded, by name."""
        return inspect.signature(self.load).parameters

    def check_options(self, name: str, options: Mapping[str, Any]) -> None:
        """Refuse options that the dataset does not have or that are of another type, and ask for those it needs.

        Parameters
        ----------
        name : str
            Of the dataset.
        options : dict
            As they are given to :func:`load_dataset`.
        """
        for key, value in options.items():
            if key not in self.options:
                raise InputError(f"{name} has no option {key!r}; it has: {', '.join(self.options)}.")
            annotation = self.options[key].annotation
            kinds = get_args(annotation) or (annotation,)
            if not isinstance(value, tuple(ALIKE.get(kind, get_origin(kind) or kind) for kind in kinds)):
                wanted = " or ".join(kind.__name__ for kind in kinds if kind is not NoneType)
                raise InputError(f"The option {key} of {name} must be {wanted}, got {value!r}.")
        for key, parameter in self.options.items():
            if parameter.default is parameter.empty and key not in options:
                raise InputError(f"{name} holds {self.kind} and needs {key}: load_dataset({name!r}, {key}=..., ...).")


DATASETS: dict[str, Entry] = {
    "adult": Entry("table", load_adult),
    "compas": Entry("table", load_compas),
    "utkface": Entry("images", load_utkface, check_utkface),
    "celeba": Entry("images", load_celeba, check_celeba),
    "images": Entry("images", load_image_folder),
    "civilcomments": Entry("texts", load_civilcomments, check_civilcomments),
    "hatexplain": Entry("texts", load_hatexplain, check_hatexplain),
    "texts": Entry("texts", load_text_table),
}
"""The datasets by name; with an entry here, :func:`~fairdro.load_dataset`, benches and the command line know yours."""


def names(*kinds: Kind) -> list[str]:
    """Return the names of all datasets of some kinds."""
    return [name for name, entry in DATASETS.items() if entry.kind in kinds]


@overload
def load_dataset(name: str, *, sensitive: str | Sequence[str] | None = None) -> Dataset: ...


@overload
def load_dataset(name: str, *, data: str | Path, **options: Any) -> Examples: ...


def load_dataset(name: str, **options: Any) -> Dataset | Examples:
    """Load a dataset by name, a table (Dataset) or images or texts (Examples); nothing is downloaded.

    Parameters
    ----------
    name : str
        ``adult`` or ``compas``, which ship with the package; ``utkface``, ``celeba``, ``civilcomments`` or ``hatexplain``,
        whose files you have; ``images`` or ``texts`` of your own. A path that ends in ``.safetensors`` is a file of features
        and a table, too.
    **options
        Of a table, ``sensitive``: a column, or several, to form groups from instead of the paper's. Of images and texts,
        ``data``: the folder or file that holds them; and others that the dataset has, such as ``size``, ``protocol``,
        ``encoder`` and ``soft``.

    Returns
    -------
    Dataset or Examples

    Examples
    --------
    >>> from fairdro import load_dataset
    >>> data = load_dataset("compas", sensitive=["sex", "race"])
    >>> data.X.shape, data.group_names[:2]
    ((6167, 399), ['Female, African-American', 'Female, Asian'])
    """
    if not isinstance(name, str):
        raise InputError(f"Name a dataset, one of: {', '.join(DATASETS)}; got {name!r}.")
    options = {key: value for key, value in options.items() if value is not None}
    if is_features(name):
        if options:
            raise InputError(f"A file of features has no options, got {', '.join(options)}.")
        return load_features(name)
    if name not in DATASETS:
        raise unknown_name("dataset", name, list(DATASETS))
    entry = DATASETS[name]
    entry.check_options(name, options)
    return entry.load(**options)


def check_data(name: str, data: Path) -> list[str]:
    """Say in sentences whether images or texts are those that were published.

    Parameters
    ----------
    name : str
        Of a dataset whose files were published and counted: ``utkface``, ``celeba``, ``civilcomments`` or ``hatexplain``.
    data : Path
        The folder or file that holds them.

    Returns
    -------
    list of str

    Examples
    --------
    >>> from pathlib import Path
    >>> from fairdro.data import check_data
    >>> Path("25_0_1_20170116232725357.jpg.chip.jpg").touch()  # one of 22,013
    >>> check_data("utkface", Path())[0]
    'under 20 / White: 0 images, 2,049 published.'
    """
    checks = {name: entry.check for name, entry in DATASETS.items() if entry.check is not None}
    if name not in checks:
        raise unknown_name("dataset of images or texts to check", name, list(checks))
    return checks[name](data)
