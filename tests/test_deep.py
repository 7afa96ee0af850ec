"""Images from files to a fair network and to a frontier on its last layer, on a few small pictures."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from transformers import (
    ConvNextConfig,
    ConvNextModel,
    ResNetConfig,
    ResNetModel,
    SwinConfig,
    SwinModel,
    ViTConfig,
    ViTModel,
)

from command import run_here
from fairdro.data.features import load_features
from fairdro.errors import InputError
from fairdro.models.pretrained import PretrainedClassifier
from fairdro.networks.head import NetworkHead
from fairdro.networks.last_layer import last_layer
from fairdro.networks.runs import Job, load_examples, load_run
from fairdro.training.inputs import logits_of


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
    options = ("--data", celeba, "--size", "32", "--width", "8", "--epochs", "1", "--set", "rho=0.5", "--out", "run")
    done = run_here("train", "celeba", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["hyperparameters"]["rho"] == 0.5
    assert result["rows"] == 96
    assert f"{100 * result['metrics']['test']['dca']:.2f}" in done.stdout
    assert load_run(tmp_path / "run", celeba)[1].n_features == 64
    assert f"{100 * result['head']['metrics']['test']['dca']:.2f}" in done.stdout
    head = NetworkHead.read(tmp_path / "run")
    assert (head.head.rho_, head.probe.in_features) == (result["head"]["rho"], 64)
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


@pytest.mark.slow
def test_a_frontier_on_the_last_layer_of_a_trained_network_and_a_student_of_it(celeba, tmp_path):
    options = ("--data", celeba, "--size", "32", "--epochs", "1", "--batch-size", "48", "--lr", "0.002")
    assert run_here("train", "celeba", *options, "--method", "scratch", "--out", "plain", cwd=tmp_path).returncode == 0
    options = (*options, "--method", "mfd", "--teacher", "plain", "--out", "student")
    done = run_here("train", "celeba", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "student").glob("teacher*"))
    assert json.loads((tmp_path / "student" / "result.json").read_text())["recipe"]["lr"] == 0.002
    options = ("--last-layer", "--data", celeba, "--network", "plain", "--points", "3", "--methods", "scratch")
    done = run_here("bench", "celeba", *options, "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(pd.read_csv(tmp_path / "out" / "results.csv")["protocol"]) == {"validated"}  # as the network was trained
    (file,) = (tmp_path / "out").glob("*.safetensors")
    job, network = load_run(tmp_path / "plain", celeba)
    features = torch.tensor(load_features(file).X.to_numpy())
    expected = logits_of(network, load_examples(job).inputs)
    torch.testing.assert_close(network.head(features), expected, rtol=1e-4, atol=1e-4)
    for changes, sentence in (
        (("utkface",), "is for celeba, not for utkface"),
        (("celeba", "--size", "32", "--soft"), "leave out --size, --soft"),
        (("celeba", "--protocol", "paper"), "was trained with --protocol validated"),
    ):
        done = run_here("bench", *changes, *options, "--out", "out", cwd=tmp_path)
        assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr
    options = ("--data", celeba, "--size", "40", "--epochs", "1", "--method", "mfd", "--teacher", "plain")
    done = run_here("train", "celeba", *options, "--out", "other", cwd=tmp_path)
    assert (done.returncode, "cannot teach this one" in done.stderr) == (2, True)


def test_features_of_another_encoder_protocol_or_data_are_made_anew(own, tmp_path):
    job = Job("images", own, model=str(own / "encoder"), size=32)
    first = last_layer(job, tmp_path)
    assert last_layer(job, tmp_path) == first
    assert "validation" in load_features(first).parts
    folder = tmp_path / "other" / "encoder"
    torch.manual_seed(1)
    ConvNextModel(ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)).save_pretrained(folder)
    others = [replace(job, model=str(folder)), replace(job, protocol="paper"), replace(job, size=28)]
    paths = {last_layer(other, tmp_path) for other in others}
    labels = pd.read_csv(own / "labels.csv")
    moved = tmp_path / "moved"
    shutil.copytree(own, moved)
    labels.assign(group=labels["group"].to_numpy()[::-1]).to_csv(moved / "labels.csv", index=False)
    paths.add(last_layer(replace(job, data=moved), tmp_path))
    assert len({first, *paths}) == 5


def test_a_training_that_diverged_says_so(own, tmp_path):
    options = ("--data", own, "--size", "32", "--epochs", "2", "--batch-size", "32", "--lr", "1e30")
    done = run_here("train", "images", *options, "--out", "run", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("diverged") == 1
    assert json.loads((tmp_path / "run" / "result.json").read_text(), parse_constant=pytest.fail)["diverged"]


@pytest.fixture(scope="module")
def own(celeba, tmp_path_factory):
    """The same pictures in a folder of one's own, and a small encoder of images that says how it was trained."""
    folder = tmp_path_factory.mktemp("own")
    rows = [[f"{i + 1:06d}.jpg", ["dark", "blond"][i % 2], i // 2 % 2] for i in range(160)]
    for name, *_ in rows:
        shutil.copy(celeba / "img_align_celeba" / name, folder / name)
    pd.DataFrame(rows, columns=["image", "label", "group"]).to_csv(folder / "labels.csv", index=False)
    config = ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)
    ConvNextModel(config).save_pretrained(folder / "encoder")
    about = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.5, 0.5], "image_processor_type": "ConvNextImageProcessor"}
    (folder / "encoder" / "preprocessor_config.json").write_text(json.dumps(about))
    return folder


@pytest.mark.slow
def test_own_images_and_an_encoder_of_hugging_face(own, tmp_path):
    options = ("--data", own, "--model", own / "encoder", "--size", "32")
    done = run_here("train", "images", *options, "--epochs", "1", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "test: " in done.stdout
    assert "Loading weights" not in done.stderr
    done = run_here("bench", "images", *options, "--last-layer", "--points", "3", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    job = Job("images", own, model=str(own / "encoder"), size=32)
    examples = load_examples(job)
    image = examples.inputs.batch(torch.tensor([0]))
    pixels = torch.from_numpy(np.array(examples.inputs.images[:1])).float()
    pixels = torch.nn.functional.interpolate(pixels, (32, 32), mode="bilinear", antialias=True) / 255
    expected = (pixels - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)) / 0.5
    torch.testing.assert_close(image, expected, atol=0.01, rtol=0)
    (file,) = (tmp_path / "out").glob("*.safetensors")
    assert load_features(file).X.shape == (160, 16)


ENCODERS = {
    "tokens": ViTModel(ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=32, patch_size=8)),
    "map": ResNetModel(ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])),
    "mean": ConvNextModel(ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)),
    "mean of tokens": SwinModel(SwinConfig(image_size=32, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4)),
}


@pytest.mark.parametrize("kind", ENCODERS)
def test_encoders_of_images_of_every_build(kind):
    model, images = PretrainedClassifier(ENCODERS[kind], 3).eval(), torch.randn(2, 3, 32, 32)
    features = model.features(images)
    assert features.shape == (2, model.n_features)
    torch.testing.assert_close(model(images), model.head(features))
    model(images).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)


def test_an_encoder_with_a_size_of_its_own_says_so():
    with pytest.raises(InputError, match="does not take images of 16 pixels"):
        PretrainedClassifier(ENCODERS["tokens"], 2)(torch.zeros(1, 3, 16, 16))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("train", "faces", "--data", ".", "--out", "o"), "no dataset of images or texts named 'faces'"),
        (("train", "celeba", "--data", ".", "--out", "o"), "list_attr_celeba.txt"),
        (("train", "utkface", "--data", ".", "--out", "o"), "UTKFace"),
        (("train", "celeba", "--data", ".", "--out", "o", "--model", "vgg"), "no encoder 'vgg' on this machine"),
        (("train", "images", "--data", ".", "--out", "o"), "no labels.csv or labels.parquet"),
        (("train", "texts", "--data", "posts.csv", "--out", "o", "--model", "vgg"), "no file posts.csv"),
        (("train", "celeba", "--data", ".", "--out", "o", "--teacher", "t", "--method", "mfd"), "no trained network"),
        (("train", "hatexplain", "--data", ".", "--out", "o"), "name an encoder"),
        (("train", "celeba", "--data", ".", "--out", "o", "--soft"), "no soft groups"),
        (("train", "celeba", "--data", ".", "--out", "o", "--model", "vit", "--width", "8"), "has a width to choose"),
        (("train", "celeba", "--data", ".", "--out", "o", "--set", "rho"), "name=value"),
        (("train", "celeba", "--data", ".", "--out", "o", "--set", "tau=1"), "does not have these hyperparameters: tau"),
        (("bench", "celeba", "--model", "resnet18", "--last-layer"), "say with --data"),
        (("bench", "celeba", "utkface", "--last-layer", "--data", "."), "name one dataset"),
        (("bench", "celeba", "--last-layer", "--data", ".", "--network", "n"), "no trained network"),
        (("bench", "celeba", "--last-layer", "--data", ".", "--methods", "fairdor"), "no method named 'fairdor'"),
        (("bench", "adult", "--network", "n"), "only with --last-layer"),
        (("bench", "adult", "--size", "32"), "size: only for networks"),
        (("bench", "adult", "--model", "resnet18", "--data", "."), "adult is a table, and resnet18 is for images and texts"),
        (("bench", "utkface", "--model", "resnet18"), "Say with --data where the images of utkface are"),
        (("bench", "utkface", "celeba", "--model", "resnet18", "--data", "."), "A network has one dataset"),
        (("bench", "utkface", "--model", "resnet19", "--data", "."), "no model named 'resnet19'"),
        (("bench", "utkface", "--model", "resnet18", "--data", "."), "no images of UTKFace"),
        (("bench", "utkface", "--model", "resnet18", "--data", ".", "--epochs", "0"), "must be positive whole numbers"),
        (("bench", "utkface", "--model", "resnet18", "--data", ".", "--adaptive"), "leave out split and adaptive"),
        (("bench", "utkface", "--model", "resnet18", "--data", ".", "--split", "1"), "leave out split and adaptive"),
        (("bench", "utkface", "--model", "resnet18", "--data", ".", "--solvers", "head"), "solver for resnet18 models"),
        (("bench", "utkface", "--model", "resnet18", "--data", ".", "--encoder", "e"), "goes with --model encoder"),
        (("bench", "utkface", "--model", "encoder", "--data", "."), "goes with --model encoder"),
        (("bench", "celeba", "--model", "encoder", "--data", ".", "--encoder", "e", "--width", "8"), "no width to choose"),
        (("bench", "celeba", "--model", "resnet18", "--data", ".", "--soft"), "no soft groups"),
        (("bench", "hatexplain", "--model", "resnet18", "--data", "."), "needs --model encoder"),
        (("bench", "texts", "--model", "encoder", "--data", ".", "--encoder", "e", "--size", "8"), "no size to choose"),
        (("bench", "celeba", "--last-layer", "--data", ".", "--lr", "0.1"), "--lr: not with --last-layer"),
        (
            ("bench", "celeba", "--model", "resnet18", "--data", ".", "--protocol", "paper", "--solvers", "network+head"),
            "A head is fitted to a validation part",
        ),
        (("bench", "utkface"), "--last-layer"),
        (("bench", "utkface", "--last-layer", "--data", "."), "no images of UTKFace"),
        (("bench", "texts", "--last-layer", "--data", "."), "name an encoder"),
        (("train", "texts", "--data", "t.csv", "--out", "o", "--model", "m", "--protocol", "x"), "no protocol named 'x'"),
        (("train", "celeba", "--data", ".", "--out", "o", "--set", "rho=abc"), "must be a number"),
        (("train", "celeba", "--data", ".", "--out", "o", "--set", "softness=abc"), "must be a number"),
        (("train", "celeba", "--data", ".", "--out", "o", "--set", "classwise=no"), "must be true or false"),
        (("train", "celeba", "--data", ".", "--out", "o", "--method", "lbc", "--set", "rounds=nan"), "must be a number"),
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
