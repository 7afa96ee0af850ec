"""A model in a folder: numbers in a safetensors file, all else in ``model.json``, and a card for people.

Nothing in the folder is ever executed. ``model.json`` is written last and names the numbers by their hash, so a folder holds
the former model or the new one, never a mixture; a file that was cut or changed is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import safetensors.numpy
from safetensors import SafetensorError

from fairdro.errors import InputError
from fairdro.files import write_whole

__all__ = ["check_free", "read_folder", "write_folder"]

FORMAT = 1
OURS = r"weights-[0-9a-f]{16}\.safetensors|model\.json|model_card\.md|\..*\.part"
LABELS, TABLE, TENSOR = "$labels", "$table", "$tensor"


def write_folder(folder: str | Path, state: dict[str, Any], card: str) -> None:
    """Write a model's state and its card.

    Parameters
    ----------
    folder : path
        Made if it is not there; a model in it is replaced.
    state : dict
        Nested dicts and lists of numbers, texts, arrays and DataFrames.
    card : str
        In Markdown.
    """
    folder = Path(folder)
    before = check_free(folder)
    tensors: dict[str, np.ndarray] = {}
    packed = _pack(state, tensors)
    content = safetensors.numpy.save(tensors)
    digest = hashlib.sha256(content).hexdigest()
    about = {"format": FORMAT, "fairdro": metadata.version("fairdro"), "tensors": digest, "state": packed}
    about["checksum"] = _checksum(about)
    text = json.dumps(about, indent=1, allow_nan=False) + "\n"
    new = _tensors(folder, digest)
    write_whole(new, content)
    try:
        write_whole(folder / "model.json", text)
    except InputError:
        if before != new:
            new.unlink(missing_ok=True)
        raise
    write_whole(folder / "model_card.md", card)
    if before is not None and before != new:
        before.unlink(missing_ok=True)


def check_free(folder: Path) -> Path | None:
    """Refuse a folder that holds other things than a model of ours; return the file of that model's numbers."""
    try:
        if not folder.exists():
            return None
        others = (
            [path for path in folder.iterdir() if re.fullmatch(OURS, path.name) is None] if folder.is_dir() else [folder]
        )
        known = (folder / "model.json").exists()
        digest = json.loads((folder / "model.json").read_text(encoding="utf-8"))["tensors"] if known else ""
        _demand(known or not others, "others")
        return _tensors(folder, digest) if known else None
    except OSError as error:
        raise InputError(f"Cannot write into {folder}: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder} holds other things; name a new folder, or one with a model to replace.") from error


def read_folder(folder: str | Path) -> dict[str, Any]:
    """Return the state of a saved model, or say in a sentence why that cannot be."""
    folder = Path(folder)
    try:
        about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        _demand(about["format"] == FORMAT, f"fairdro {about.get('fairdro')} saved it in a format this version does not read")
        _demand(about.pop("checksum") == _checksum(about), "model.json was changed")
        _demand(re.fullmatch("[0-9a-f]{64}", about["tensors"]) is not None, "it names no numbers")
        content = _tensors(folder, about["tensors"]).read_bytes()
        _demand(hashlib.sha256(content).hexdigest() == about["tensors"], "its numbers were changed or cut")
        return _unpack(about["state"], safetensors.numpy.load(content))
    except FileNotFoundError as error:
        raise InputError(f"There is no complete model in {folder}: {Path(error.filename).name} is not there.") from error
    except OSError as error:
        raise InputError(f"Cannot read the model in {folder}: {error.strerror}.") from error
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"The model in {folder} cannot be used ({error}); save it again.") from error


def _demand(condition: bool, otherwise: str) -> None:  # noqa: FBT001 - reads like an assertion
    if not condition:
        raise ValueError(otherwise)


def _tensors(folder: Path, digest: str) -> Path:
    return folder / f"weights-{digest[:16]}.safetensors"


def _checksum(about: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _pack(value: Any, tensors: dict[str, np.ndarray]) -> Any:
    """Turn a state into JSON, arrays of numbers into entries of ``tensors``."""
    if isinstance(value, dict):
        return {str(key): _pack(item, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_pack(item, tensors) for item in value]
    if isinstance(value, pd.DataFrame):
        return {TABLE: {str(name): _pack(value[name].to_numpy(), tensors) for name in value.columns}}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        name = str(len(tensors))
        tensors[name] = np.ascontiguousarray(value)
        return {TENSOR: name}
    if isinstance(value, np.ndarray) and value.dtype.kind in "UO":
        return {LABELS: [_pack(item, tensors) for item in value.tolist()], "dtype": value.dtype.kind}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(f"{value!r} is of a kind that cannot be saved ({type(value).__name__}); use numbers or texts.")


def _unpack(value: Any, tensors: dict[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if TENSOR in value:
        return tensors[value[TENSOR]]
    if LABELS in value:
        return np.array(value[LABELS], dtype=object if value["dtype"] == "O" else str)
    if TABLE in value:
        return pd.DataFrame({name: _unpack(item, tensors) for name, item in value[TABLE].items()})
    return {key: _unpack(item, tensors) for key, item in value.items()}
