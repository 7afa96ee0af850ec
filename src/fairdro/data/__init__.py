"""Datasets, one per file, and the registry that names them."""

from collections.abc import Callable, Sequence

from fairdro.data.adult import load_adult
from fairdro.data.base import PROTOCOLS, Dataset, Part, Split
from fairdro.data.compas import load_compas
from fairdro.data.features import is_features, load_features
from fairdro.errors import unknown_name

__all__ = ["DATASETS", "PROTOCOLS", "Dataset", "Part", "Split", "is_features", "load_dataset"]

DATASETS: dict[str, Callable[..., Dataset]] = {"adult": load_adult, "compas": load_compas}


def load_dataset(name: str, *, sensitive: str | Sequence[str] | None = None) -> Dataset:
    """Load a dataset by name; nothing is downloaded.

    Parameters
    ----------
    name : {"adult", "compas"}, or path
        A file of features that ends in ``.safetensors``, see :func:`~fairdro.data.features.save_features`, is a dataset too.
    sensitive : str or list of str, optional
        Columns to form groups from instead of the paper's; several give a group per combination that occurs.
    """
    if is_features(name):
        return load_features(name)
    if name not in DATASETS:
        raise unknown_name("dataset", name, list(DATASETS))
    return DATASETS[name](sensitive)
