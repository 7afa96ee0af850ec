"""Trainings that were stopped and resume: all that changes from epoch to epoch, in one file."""

from collections.abc import Callable
from pathlib import Path

import safetensors
import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from fairdro._utils.files import write_whole
from fairdro.errors import InputError

Parts = dict[str, dict[str, Tensor]]
"""Tensors by part, e.g. the model or the optimiser, and name."""


class Checkpoint:
    """A safetensors file of one training, known by a hash of the method, recipe, seed, data and teacher."""

    def __init__(self, path: Path, training: str) -> None:
        self.path, self.training = path, training

    def save(self, parts: Parts) -> None:
        """Write tensors, whole or not at all."""
        tensors = {
            f"{part}/{name}": value.detach().cpu().contiguous().clone()
            for part, named in parts.items()
            for name, value in named.items()
        }
        write_whole(self.path, safetensors.torch.save(tensors, {"training": self.training}))

    def resume(self, restore: Callable[[Parts], None]) -> None:
        """Hand the tensors of the file, if there is one, to what restores a training from them."""
        if not self.path.exists():
            return
        try:
            with safetensors.safe_open(self.path, "pt") as file:
                about = file.metadata()
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
            if about["training"] != self.training:
                differs = "method, recipe, seed, data or teacher"
                raise InputError(f"The checkpoint {self.path} is of another training ({differs}); name another.")
            parts: Parts = {}
            for key, value in tensors.items():
                part, _, name = key.partition("/")
                parts.setdefault(part, {})[name] = value
            restore(parts)
        except (SafetensorError, KeyError, RuntimeError, TypeError, OSError) as error:
            raise InputError(f"The checkpoint {self.path} cannot be used ({error}); delete it to begin anew.") from error
