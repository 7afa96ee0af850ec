"""Images: decoded once, cropped inside and mirrored in training, whole in evaluation; folders."""

import pickle
import shutil
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import fairdro.data.images
from fairdro.data import load_dataset
from fairdro.data.images import ImageInputs, decode_images, load_image_folder, stored_side
from fairdro.errors import InputError, MissingExtraError
from files import save_picture

PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


# ---------------------------------------------------------------- batches


@pytest.fixture
def ramps():
    """Eight images whose channels say where a pixel is: its row, its column, its image."""
    images = np.zeros((8, 3, 16, 16), dtype=np.uint8)
    images[:, 0], images[:, 1] = np.arange(16)[:, None], np.arange(16)[None, :]
    images[:, 2] = np.arange(8)[:, None, None]
    return images


def test_the_stored_side_has_the_paper_s_proportion():
    assert (stored_side(224), stored_side(64)) == (256, 73)


def test_augmentation_is_decided_by_the_generator(ramps):
    inputs = ImageInputs(ramps, size=12, **PLAIN)
    rows = torch.arange(8).repeat(20)
    first, same, other = (inputs.batch(rows, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert first.equal(same)
    assert not first.equal(other)
    assert not inputs.batch(rows, rng := torch.Generator().manual_seed(3)).equal(inputs.batch(rows, rng))


def test_augmented_images_are_squares_of_the_image_mirrored_or_not(ramps):
    rows = torch.arange(8).repeat(100)
    batch = ImageInputs(ramps, size=12, **PLAIN).batch(rows, torch.Generator().manual_seed(0))
    assert batch.shape == (800, 3, 12, 12)
    assert batch.dtype == torch.float32
    pixels = (batch * 255).round().int()
    top, first, last = pixels[:, 0, 0, 0], pixels[:, 1, 0, 0], pixels[:, 1, 0, -1]
    mirrored, left = first > last, torch.minimum(first, last)
    steps = torch.arange(12)
    columns = left[:, None] + torch.where(mirrored[:, None], steps.flip(0), steps)
    assert pixels[:, 0].equal((top[:, None] + steps).int()[:, :, None].expand(-1, -1, 12))
    assert pixels[:, 1].equal(columns.int()[:, None, :].expand(-1, 12, -1))
    assert pixels[:, 2].equal(rows.int()[:, None, None].expand(-1, 12, 12))
    assert 0.4 < mirrored.float().mean() < 0.6
    assert set(top.tolist()) == set(left.tolist()) == set(range(5))


def test_evaluation_sees_the_whole_image_always_the_same(ramps):
    inputs = ImageInputs(ramps, size=12, **PLAIN)
    batch = inputs.batch(torch.tensor([5, 2]))
    assert batch.equal(inputs.batch(torch.tensor([5, 2])))
    assert batch.shape == (2, 3, 12, 12)
    by_pillow = [np.asarray(Image.fromarray(ramps[0, c]).resize((12, 12), Image.Resampling.BILINEAR)) for c in range(3)]
    np.testing.assert_allclose(batch[0, :2] * 255, np.stack(by_pillow[:2]), atol=1)
    assert (batch[:, 2] * 255).mean((1, 2)).tolist() == pytest.approx([5, 2])
    whole = ImageInputs(ramps, size=16, **PLAIN).batch(torch.tensor([5]))
    np.testing.assert_allclose(whole[0] * 255, ramps[5], atol=1e-4)


def test_channels_are_normalised(ramps):
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    batch = ImageInputs(ramps, size=16, mean=mean, std=std).batch(torch.arange(8))
    expected = (ramps / 255 - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    np.testing.assert_allclose(batch, expected, atol=1e-6)


def test_inputs_that_are_no_images(ramps):
    with pytest.raises(InputError, match="size must be from 1 to 16"):
        ImageInputs(ramps, size=17, **PLAIN)
    with pytest.raises(InputError, match="uint8 of shape"):
        ImageInputs(ramps.astype(np.float32), size=8, **PLAIN)
    with pytest.raises(InputError, match="size must be from 1 to 4096 pixels"):
        stored_side(0)


# ---------------------------------------------------------------- decoding and the cache


def test_decoded_images_are_close_to_a_plain_resize(tmp_path):
    pixels = np.add.outer(np.arange(64), np.arange(48))[..., None].repeat(3, 2).astype(np.uint8) * 2
    Image.fromarray(pixels).save(tmp_path / "a.jpg", quality=95)
    Image.fromarray(pixels).save(tmp_path / "b.png")
    Image.fromarray(pixels[..., 0]).save(tmp_path / "grey.png")
    images = decode_images(tmp_path, ["a.jpg", "b.png", "grey.png"], 12)
    assert isinstance(images, np.memmap)
    assert (images.shape, images.dtype) == ((3, 3, 12, 12), np.uint8)
    expected = np.asarray(Image.fromarray(pixels).resize((12, 12), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    np.testing.assert_allclose(images.astype(int), np.broadcast_to(expected, images.shape), atol=6)


def test_images_are_decoded_once_and_again_when_a_file_changes(tmp_path, monkeypatch):
    names = [f"{i}.png" for i in range(5)]
    for i, name in enumerate(names):
        save_picture(tmp_path / name, (i, 2 * i, 3 * i))
    steps = []
    first = decode_images(tmp_path, names, 8, on_step=lambda *step: steps.append(step))
    assert steps == [(5, 5)]
    assert first[4, :, 0, 0].tolist() == [4, 8, 12]
    assert [path.suffix for path in (tmp_path / ".fairdro-cache").iterdir()] == [".npy"]

    def refuse(*_):
        raise AssertionError("decoded again")

    with monkeypatch.context() as patch:
        patch.setattr(fairdro.data.images, "_decode", refuse)
        np.testing.assert_array_equal(decode_images(tmp_path, names, 8), first)
        for changed in ({"side": 9, "names": names}, {"side": 8, "names": names[::-1]}):
            with pytest.raises(AssertionError, match="decoded again"):
                decode_images(tmp_path, changed["names"], changed["side"])
    save_picture(tmp_path / "4.png", (9, 9, 9), size=(30, 30))
    assert decode_images(tmp_path, names, 8)[4, :, 0, 0].tolist() == [9, 9, 9]


@pytest.mark.parametrize("content", [b"", b"no array", pickle.dumps([1, 2])])
def test_a_damaged_cache_is_made_anew(tmp_path, content):
    save_picture(tmp_path / "a.png", (1, 2, 3))
    decode_images(tmp_path, ["a.png"], 8, cache=tmp_path / "cache")
    (stored,) = (tmp_path / "cache").iterdir()
    whole = stored.read_bytes()
    for damaged in (content, whole[:-1]):
        stored.write_bytes(damaged)
        assert decode_images(tmp_path, ["a.png"], 8, cache=tmp_path / "cache")[0, :, 3, 3].tolist() == [1, 2, 3]
        assert stored.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_cached_elsewhere(tmp_path, monkeypatch):
    save_picture(tmp_path / "data" / "a.png", (1, 2, 3))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(fairdro.data.images.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    monkeypatch.setattr(fairdro.data.images.os, "access", lambda *_: False)
    assert decode_images(tmp_path / "data", ["a.png"], 8)[0, :, 3, 3].tolist() == [1, 2, 3]
    assert not (tmp_path / "data" / ".fairdro-cache").exists()
    (folder,) = (tmp_path / "temporary").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(fairdro.data.images, "_decode", None)
    assert len(decode_images(tmp_path / "data", ["a.png"], 8)) == 1


@pytest.mark.parametrize("content", [b"", b"no image at all", "half", "gif"])
def test_a_broken_image_is_named_and_leaves_no_cache(tmp_path, content):
    save_picture(tmp_path / "good.jpg")
    if content == "half":
        whole = (tmp_path / "good.jpg").read_bytes()
        content = whole[: len(whole) // 2]
    if content == "gif":
        save_picture(tmp_path / "broken.gif")
        content = (tmp_path / "broken.gif").read_bytes()
    (tmp_path / "broken.jpg").write_bytes(content)
    with pytest.raises(InputError, match=r"^The image 'broken\.jpg' in .* is broken, or neither JPEG nor PNG; replace it"):
        decode_images(tmp_path, ["good.jpg", "broken.jpg"], 8)
    assert list((tmp_path / ".fairdro-cache").iterdir()) == []


def test_without_pillow_the_error_says_what_to_install(tmp_path, monkeypatch):
    save_picture(tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fairdro\[vision\]'"):
        decode_images(tmp_path, ["a.png"], 8)


# ---------------------------------------------------------------- a folder and a table


@pytest.fixture
def folder(tmp_path):
    """Twenty images: class cat or dog, groups home and age, the last two rows validation and test."""
    lines = ["image,label,group,age,split,own"]
    for i in range(20):
        name, kind = f"in/{i}.{'jpg' if i % 2 else 'png'}", "dog" if i % 2 else "cat"
        save_picture(tmp_path / "pets" / name, (10 * i, 100, 0))
        part, own = {18: "validation", 19: "test"}.get(i, "train"), "test" if i < 5 else "train"
        lines.append(f"{name},{kind},{i % 3},{'old' if i < 8 else 'young'},{part},{own}")
    (tmp_path / "pets.csv").write_text("\n".join(lines))
    return tmp_path


def test_a_folder_with_a_table(folder):
    pets = load_image_folder(folder / "pets", folder / "pets.csv", size=14)
    assert (pets.name, len(pets)) == ("pets", 20)
    assert pets.class_names == ["cat", "dog"]
    assert pets.groups.names == ["0", "1", "2"]
    assert pets.y.tolist() == [0, 1] * 10
    assert {part: rows.tolist() for part, rows in pets.parts.items()} == {
        "train": list(range(18)),
        "validation": [18],
        "test": [19],
    }
    inputs, cells = pets.part("train")
    assert cells.counts.tolist() == [[3, 3, 3], [3, 3, 3]]
    batch = inputs.batch(torch.arange(18))
    assert batch.shape == (18, 3, 14, 14)
    assert batch[:, 0].mean().item() == pytest.approx(0, abs=0.02)
    assert batch[:, 0].std().item() == pytest.approx(1, abs=0.05)
    assert batch.isfinite().all()
    assert "18 train, 1 validation, 1 test" in pets.card


def test_images_are_loaded_by_name(folder):
    shutil.copy(folder / "pets.csv", folder / "pets" / "labels.csv")
    pets = load_dataset("images", data=folder / "pets", size=14)
    np.testing.assert_array_equal(pets.inputs.images, load_dataset("images", data=folder / "pets", size=14).inputs.images)
    assert pets.parts["validation"].tolist() == [18]
    assert pets.with_validation() is pets


def test_several_group_columns_another_split_and_parquet(folder):
    import pandas as pd

    pd.read_csv(folder / "pets.csv").to_parquet(folder / "pets.parquet")
    pets = load_image_folder(folder / "pets", folder / "pets.parquet", group=["group", "age"], split="own", size=8)
    assert pets.groups.names == ["0, old", "0, young", "1, old", "1, young", "2, old", "2, young"]
    assert pets.parts["test"].tolist() == [0, 1, 2, 3, 4]
    assert "validation" not in pets.parts


def test_without_a_split_four_fifths_train_always_the_same(folder):
    text = (folder / "pets.csv").read_text().replace("split", "other")
    (folder / "pets.csv").write_text(text)
    first, second = (load_image_folder(folder / "pets", folder / "pets.csv", size=8).parts for _ in range(2))
    assert {part: len(rows) for part, rows in first.items()} == {"train": 16, "test": 4}
    assert sorted([*first["train"], *first["test"]]) == list(range(20))
    assert first["test"].tolist() == second["test"].tolist()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("../secret.png", "leads out of"),
        ("in/../../secret.png", "leads out of"),
        ("{folder}/secret.png", "leads out of"),
        ("{folder}/pets/in/0.png", "leads out of"),
        ("link.png", "leads out of"),
        ("in", "There is no image 'in'"),
        ("in/99.png", r"There is no image 'in/99\.png'"),
        ("a" * 300, "cannot be a path"),
        ("circle", "cannot be a path"),
        ("?", "must hold paths of images in every row"),
    ],
)
def test_hostile_paths(folder, path, message):
    save_picture(folder / "secret.png")
    (folder / "pets" / "link.png").symlink_to(folder / "secret.png")
    (folder / "pets" / "circle").symlink_to("circle")
    text = (folder / "pets.csv").read_text().replace("in/7.jpg", path.format(folder=folder))
    (folder / "pets.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        load_image_folder(folder / "pets", folder / "pets.csv", size=8)
    assert not (folder / "pets" / ".fairdro-cache").exists()


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"label": "kind"}, "There is no column 'kind'"),
        ({}, {"group": ["group", "sex"]}, "There is no column 'sex'"),
        ({}, {"group": []}, "Name at least one column"),
        ({}, {"split": "part"}, "There is no column 'part'"),
        ({}, {"split": "age"}, "must hold train, validation or test, got 'old'"),
        ({"dog": "cat"}, {}, "'label' has one value only"),
        ({"dog": ""}, {}, "'label' has missing values"),
        ({",0,": ",,"}, {}, "'group' has missing values"),
        ({",test": ",train"}, {}, "no row with 'test'"),
        ({}, {"size": 0}, "size must be from 1 to 4096 pixels, got 0"),
    ],
)
def test_tables_that_do_not_fit(folder, change, options, message):
    text = (folder / "pets.csv").read_text()
    for old, new in change.items():
        text = text.replace(old, new)
    (folder / "pets.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        load_image_folder(folder / "pets", folder / "pets.csv", **{"size": 8, **options})


def test_a_folder_that_is_not_there(folder):
    with pytest.raises(InputError, match="There is no folder"):
        load_image_folder(folder / "none", folder / "pets.csv")
