"""Images from files to a fair network and to a frontier on its last layer, on a few small pictures."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from command import run_here
from fairdro.data.features import load_features


@pytest.fixture(scope="module")
def celeba(tmp_path_factory):
    """Blond is bright at the top, men are dark at the bottom; the official layout, 40 pictures of every cell."""
    folder = tmp_path_factory.mktemp("celeba")
    (folder / "img_align_celeba").mkdir()
    rng = np.random.default_rng(0)
    attributes, parts = [], []
    for i in range(160):
        blond, male = i % 2, i // 2 % 2
        pixels = rng.integers(0, 120, (40, 32, 3)) + 110 * blond * (np.arange(40) < 20)[:, None, None]
        pixels = np.clip(pixels - 60 * male * (np.arange(40) >= 20)[:, None, None], 0, 255).astype(np.uint8)
        name = f"{i + 1:06d}.jpg"
        Image.fromarray(pixels).save(folder / "img_align_celeba" / name)
        attributes.append(f"{name} {2 * blond - 1} {2 * male - 1}")
        parts.append(f"{name} {0 if i < 96 else 1 if i < 128 else 2}")
    (folder / "list_attr_celeba.txt").write_text("\n".join(["160", "Blond_Hair Male", *attributes]) + "\n")
    (folder / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")
    return folder


def test_a_network_is_trained_judged_and_written(celeba, tmp_path):
    options = ("--data", celeba, "--size", "32", "--epochs", "1", "--set", "rho=0.5", "--out", "run")
    done = run_here("train", "celeba", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["hyperparameters"]["rho"] == 0.5
    assert result["rows"] == 96
    assert f"{100 * result['metrics']['test']['dca']:.2f}" in done.stdout
    assert (tmp_path / "run" / "network.safetensors").stat().st_size > 40e6
    again = run_here("train", "celeba", *options, cwd=tmp_path)  # everything is there already
    assert again.stdout == done.stdout


@pytest.mark.slow
def test_two_processes_by_torchrun(celeba, tmp_path):
    options = ["--data", celeba, "--size", "32", "--epochs", "1", "--out", tmp_path / "run"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "fairdro", "train", "celeba"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test: ") == 1
    assert json.loads((tmp_path / "run" / "result.json").read_text())["rows"] == 96


def test_a_frontier_on_the_last_layer(celeba, tmp_path):
    options = ("--model", "resnet18", "--last-layer", "--data", celeba, "--size", "32", "--epochs", "1", "--points", "3")
    done = run_here("bench", "celeba", *options, "--protocol", "validated", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (features,) = (tmp_path / "out").glob("*.safetensors")
    assert load_features(features).X.shape == (160, 512)
    results = pd.read_csv(tmp_path / "out" / "results.csv")
    assert set(results["method"]) == {"scratch", "fairdro"}
    before = features.stat().st_mtime_ns
    assert run_here("bench", "celeba", *options, "--protocol", "validated", "--out", "out", cwd=tmp_path).returncode == 0
    assert features.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("train", "faces", "--data", ".", "--out", "o"), "no dataset of images or texts named 'faces'"),
        (("train", "celeba", "--data", ".", "--out", "o"), "list_attr_celeba.txt"),
        (("train", "utkface", "--data", ".", "--out", "o"), "UTKFace"),
        (("train", "celeba", "--data", ".", "--out", "o", "--model", "vgg"), "no model for images named 'vgg'"),
        (("train", "hatexplain", "--data", ".", "--out", "o"), "name an encoder"),
        (("train", "celeba", "--data", ".", "--out", "o", "--soft"), "no soft groups"),
        (("train", "celeba", "--data", ".", "--out", "o", "--set", "rho"), "name=value"),
        (("train", "celeba", "--data", ".", "--out", "o", "--set", "tau=1"), "does not have these hyperparameters: tau"),
        (("bench", "celeba", "--model", "resnet18", "--last-layer"), "Say with --data"),
        (("bench", "adult", "--model", "resnet18", "--last-layer", "--data", "."), "no dataset of images or texts"),
        (("data", "check", "adult", "."), "no dataset of images or texts"),
        (("data", "check", "civilcomments", "."), "all_data_with_identities.csv"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, arguments, sentence):
    done = run_here(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done
    assert sentence in done.stderr
    assert list(tmp_path.iterdir()) == []
