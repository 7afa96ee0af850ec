"""What a trained network says of every row: all that a head, or another judgement, needs of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import safetensors.numpy
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from fairdro._utils.files import write_whole
from fairdro._utils.hashing import digest
from fairdro.data import Examples
from fairdro.networks.head import group_probabilities, train_probe
from fairdro.training.inputs import features_of


@dataclass(frozen=True)
class Outputs:
    """Probabilities of the classes by a network, and of the groups by a probe on its last hidden layer, of every part.

    Attributes
    ----------
    p_class, p_group : dict of str to ndarray of shape (N, Y) or (N, A)
        By part.
    """

    p_class: dict[str, np.ndarray]
    p_group: dict[str, np.ndarray]

    @classmethod
    def of(cls, network: nn.Module, examples: Examples) -> Self:
        """Ask a network, which needs ``features(x)`` and ``head(features)``; the probe is trained on the training part.

        Features that are not finite, as in a network that diverged, count as zero.
        """
        features = {part: features_of(network, examples.part(part)[0]).nan_to_num(0, 0, 0) for part in examples.parts}
        cells = examples.part("train")[1]
        p_class = {part: _class_probabilities(network, own) for part, own in features.items()}
        if int((cells.counts.sum(0) > 0).sum()) < 2:  # one group trains: nothing tells it from others
            p_group = {part: np.full((len(own), cells.n_groups), 1 / cells.n_groups) for part, own in features.items()}
        else:
            probe = train_probe(features["train"], cells)
            p_group = {part: group_probabilities(probe, own) for part, own in features.items()}
        return cls(_rounded(p_class), _rounded(p_group))

    def save(self, path: Path) -> None:
        """Write a file, whole or not at all."""
        tensors = {f"class/{part}": p.astype(np.float32) for part, p in self.p_class.items()}
        tensors |= {f"group/{part}": p.astype(np.float32) for part, p in self.p_group.items()}
        write_whole(path, safetensors.numpy.save(tensors, {"checksum": _checksum(tensors)}))

    @classmethod
    def read(cls, path: Path, examples: Examples) -> Self | None:
        """Read what :meth:`save` wrote; None where there is nothing, or not what the examples have."""
        try:
            with safetensors.safe_open(path, "numpy") as file:
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
                sound = (file.metadata() or {}).get("checksum") == _checksum(tensors)
        except (OSError, SafetensorError, ValueError):
            return None
        width = {"class": len(examples.class_names), "group": len(examples.groups.names)}
        wanted = {f"{kind}/{part}": (len(rows), n) for kind, n in width.items() for part, rows in examples.parts.items()}
        if not sound or {key: tensor.shape for key, tensor in tensors.items()} != wanted:
            return None
        p_class, p_group = ({part: tensors[f"{kind}/{part}"].astype(float) for part in examples.parts} for kind in width)
        return cls(_rounded(p_class), _rounded(p_group))


def _rounded(tables: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return probabilities as they are in a file, in single precision, but with a sum of one."""
    single = {part: p.astype(np.float32).astype(float) for part, p in tables.items()}
    return {part: p / p.sum(1, keepdims=True) for part, p in single.items()}


def _checksum(tensors: dict[str, np.ndarray]) -> str:
    return digest(*(tensors[key] for key in sorted(tensors)))


@torch.no_grad()
def _class_probabilities(network: nn.Module, features: Tensor) -> np.ndarray:
    device, was_training = next(network.parameters()).device, network.training
    logits = network.eval().head(features.to(device))  # type: ignore[operator]
    network.train(was_training)
    return logits.double().softmax(-1).cpu().numpy()
