"""Features of a network's last hidden layer, kept in a file: a dataset like any other, with the parts it came with."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import safetensors
import safetensors.numpy
from safetensors import SafetensorError

from fairdro._utils.files import write_whole
from fairdro.data.base import Dataset
from fairdro.data.examples import Examples
from fairdro.errors import InputError
from fairdro.groups import Groups

SUFFIX = ".safetensors"


def is_features(name: str) -> bool:
    """Whether a dataset's name is the path of a file of features."""
    return name.endswith(SUFFIX)


def save_features(path: Path, features: np.ndarray, examples: Examples, *, trained: bool = False) -> None:
    """Write features ``(N, F)`` of examples, with their labels and parts, into a file that ends in ``.safetensors``.

    ``trained`` says that they are those of a network that was trained on the ``train`` part.
    """
    if path.suffix != SUFFIX:
        raise InputError(f"{path} must end in {SUFFIX}.")
    groups, names = examples.groups, {"class_names": examples.class_names, "group_names": examples.groups.names}
    tensors = {"features": features.astype(np.float32), "y": examples.y.astype(np.int64), "groups": groups.values}
    tensors |= {f"part/{key}": rows.astype(np.int64) for key, rows in examples.parts.items()}
    contiguous = {key: np.ascontiguousarray(value) for key, value in tensors.items()}
    about = {"name": path.stem, **names, "card": examples.card, "trained": trained}
    write_whole(path, safetensors.numpy.save(contiguous, {"about": json.dumps(about)}))


def load_features(path: str | Path) -> Dataset:
    """Read what :func:`save_features` wrote."""
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise InputError(f"{path} is no file of features.")
        with safetensors.safe_open(path, "numpy") as file:
            about: dict[str, Any] = json.loads((file.metadata() or {})["about"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
        features = tensors["features"]
        X = pd.DataFrame(features, columns=[f"feature {j}" for j in range(features.shape[1])])
        groups, sensitive = Groups(tensors["groups"], about["group_names"]), pd.DataFrame(index=X.index)
        parts = {key.removeprefix("part/"): rows for key, rows in tensors.items() if key.startswith("part/")}
        named = (about["class_names"], about["card"])
        return Dataset(about["name"], X, tensors["y"], groups, sensitive, *named, parts, about.get("trained", False) is True)
    except FileNotFoundError as error:
        raise InputError(f"There is no file {path}, seen from {Path.cwd()}; run this where the bench was run.") from error
    except (SafetensorError, KeyError, ValueError, TypeError, OSError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} holds no features ({error}); make it anew.") from error
