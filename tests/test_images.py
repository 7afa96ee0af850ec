"""Images: decoded once, cropped inside and mirrored in training, whole in evaluation; folders, UTKFace and CelebA."""

import hashlib
import os
import pickle
import random
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fairdro.data.images
from fairdro.data import load_dataset, utkface
from fairdro.data.celeba import check_celeba, load_celeba
from fairdro.data.images import ImageInputs, decode_images, load_image_folder, stored_side
from fairdro.data.utkface import check_utkface, load_utkface
from fairdro.errors import InputError, MissingExtraError

DATA = Path(os.environ.get("FAIRDRO_DATA", Path(__file__).parents[2] / "shared" / "data"))
PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


def unpacked(name):
    reason = f"there is no unpacked folder {name} in ../shared/data, nor in the folder that FAIRDRO_DATA names"
    return pytest.mark.skipif(not (DATA / name).is_dir(), reason=reason)


def save(path, colour=(200, 30, 90), size=(20, 24)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


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
    with pytest.raises(InputError, match="positive whole number"):
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
        save(tmp_path / name, (i, 2 * i, 3 * i))
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
    save(tmp_path / "4.png", (9, 9, 9), size=(30, 30))
    assert decode_images(tmp_path, names, 8)[4, :, 0, 0].tolist() == [9, 9, 9]


@pytest.mark.parametrize("content", [b"", b"no array", pickle.dumps([1, 2])])
def test_a_damaged_cache_is_made_anew(tmp_path, content):
    save(tmp_path / "a.png", (1, 2, 3))
    decode_images(tmp_path, ["a.png"], 8, cache=tmp_path / "cache")
    (stored,) = (tmp_path / "cache").iterdir()
    whole = stored.read_bytes()
    for damaged in (content, whole[:-1]):
        stored.write_bytes(damaged)
        assert decode_images(tmp_path, ["a.png"], 8, cache=tmp_path / "cache")[0, :, 3, 3].tolist() == [1, 2, 3]
        assert stored.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_cached_elsewhere(tmp_path, monkeypatch):
    save(tmp_path / "data" / "a.png", (1, 2, 3))
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
    save(tmp_path / "good.jpg")
    if content == "half":
        whole = (tmp_path / "good.jpg").read_bytes()
        content = whole[: len(whole) // 2]
    if content == "gif":
        save(tmp_path / "broken.gif")
        content = (tmp_path / "broken.gif").read_bytes()
    (tmp_path / "broken.jpg").write_bytes(content)
    with pytest.raises(InputError, match=r"^The image 'broken\.jpg' in .* is broken, or neither JPEG nor PNG; replace it"):
        decode_images(tmp_path, ["good.jpg", "broken.jpg"], 8)
    assert list((tmp_path / ".fairdro-cache").iterdir()) == []


def test_without_pillow_the_error_says_what_to_install(tmp_path, monkeypatch):
    save(tmp_path / "a.png")
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
        save(tmp_path / "pets" / name, (10 * i, 100, 0))
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


def test_images_are_loaded_by_name(folder, faces, tmp_path):
    shutil.copy(folder / "pets.csv", folder / "pets" / "labels.csv")
    pets = load_dataset("images", data=folder / "pets", size=14)
    np.testing.assert_array_equal(pets.inputs.images, load_dataset("images", data=folder / "pets", size=14).inputs.images)
    assert pets.parts["validation"].tolist() == [18]
    assert pets.with_validation() is pets
    paper = load_dataset("utkface", data=faces, size=4, protocol="paper", cache=tmp_path)
    assert set(paper.parts) == {"train", "test"}
    validated = paper.with_validation().parts
    assert [len(validated[part]) for part in ("train", "validation", "test")] == [38, 10, 1200]
    assert sorted([*validated["train"], *validated["validation"]]) == sorted(paper.parts["train"])


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
    save(folder / "secret.png")
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
        ({}, {"size": 0}, "positive whole number"),
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


# ---------------------------------------------------------------- UTKFace


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    """A small UTKFace: 104 images of every cell, some of them identical files, and files to leave out."""
    root = tmp_path_factory.mktemp("faces") / "UTKFace"
    save(root / "1_0_4_1.jpg", size=(4, 4))
    picture = (root / "1_0_4_1.jpg").read_bytes()
    (root / "30_1_20170116174525125.jpg.chip.jpg").write_bytes(picture)
    (root / "notes.txt").write_text("no image")
    for i in range(104):
        for age in (19, 20, 40):
            for race in range(4):
                same = b"twin" if i < 3 else f"{i} {age} {race}".encode()
                (root / f"{age}_0_{race}_{i}.jpg.chip.jpg").write_bytes(picture + same + str(i).encode())
    return root


def test_utkface_names_are_sorted_by_their_numbers():
    names = ["100_0_0_1.jpg", "9_0_0_10.jpg", "9_0_0_9.jpg", "9_1_0_1.jpg"]
    assert sorted(names, key=utkface._natural) == ["9_0_0_9.jpg", "9_0_0_10.jpg", "9_1_0_1.jpg", "100_0_0_1.jpg"]


def test_utkface_paper_protocol(faces, tmp_path):
    examples = load_utkface(faces.parent, size=4, protocol="paper", cache=tmp_path)
    assert len(examples) == 1248
    assert examples.class_names == ["under 20", "20 to 39", "40 and over"]
    assert examples.groups.names == ["White", "Black", "Asian", "Indian"]
    assert set(examples.parts) == {"train", "test"}
    assert sorted(np.concatenate(list(examples.parts.values()))) == list(range(1248))
    assert (examples.part("test")[1].counts == 100).all()
    assert (examples.part("train")[1].counts == 4).all()
    # the same by the words of the paper's code: shuffle all, take from the end
    names = [f"{age}_0_{race}_{i}" for age in (19, 20, 40) for race in range(4) for i in range(104)]
    state = random.getstate()
    random.seed(1)
    random.shuffle(names)
    random.setstate(state)
    seen, train = Counter(), []
    for name in names[::-1]:
        seen[name.rsplit("_", 1)[0]] += 1
        if seen[name.rsplit("_", 1)[0]] > 100:
            train.append(name)
    order = [f"{age}_0_{race}_{i}" for age in (19, 20, 40) for race in range(4) for i in range(104)]
    assert [order[row] for row in examples.parts["train"]] == train[::-1]


def test_utkface_validated_protocol_keeps_identical_files_on_one_side(faces, tmp_path):
    examples = load_utkface(faces, size=4, cache=tmp_path)
    assert (examples.part("test")[1].counts == 100).all()
    _, names = utkface._find(faces)
    content = np.array([hashlib.sha256((faces / name).read_bytes()).hexdigest() for name in names])
    parts = {part: set(content[rows]) for part, rows in examples.parts.items()}
    assert len(parts["test"]) == 1200
    assert not parts["train"] & parts["test"]
    assert not parts["validation"] & parts["test"]
    assert not parts["train"] & parts["validation"]
    rest = 1248 - 1200 - 33  # three contents occur twelve times each, and one of each is tested
    assert len(examples.parts["train"]) == int(0.8 * rest)
    assert len(examples.parts["validation"]) == rest - int(0.8 * rest)


def test_utkface_copies_of_a_training_image_are_not_in_the_validation_part():
    cells = [(0, i % 2) for i in range(3000)]
    content = np.array([str(i % 1500) for i in range(3000)])  # every image twice, in one cell
    parts = utkface._split(cells, content, validation=True)
    train, validation, test = (content[parts[part]] for part in ("train", "validation", "test"))
    assert len(set(test)) == len(test) == 200
    assert not set(test) & {*train, *validation}
    assert not set(train) & set(validation)
    assert len(train) == int(0.8 * (3000 - 400)) > len(set(train))
    assert 0 < len(validation) < 520


def test_check_utkface_compares_with_what_is_published(faces):
    sentences = check_utkface(faces)
    assert sentences[1] == "under 20 / Black: 104 images, 336 published."
    assert "12 of 12 counts do not agree: 1,248 images, 22,013 published." in sentences
    assert sentences[-1] == "3 images occur more than once as identical files."


def test_utkface_errors_say_what_to_download(faces, tmp_path):
    how = "download UTKFace, aligned and cropped, from its project page"
    with pytest.raises(InputError, match=f"There is no folder .*{how}"):
        load_utkface(tmp_path / "none")
    with pytest.raises(InputError, match=f"no images of UTKFace in .*{how}"):
        load_utkface(tmp_path)
    for name in ("25_0_1_2.jpg", "25_0_2_2.jpg"):
        save(tmp_path / name)
    with pytest.raises(InputError, match=f"only 0 images of under 20 / White.*{how}"):
        load_utkface(tmp_path)
    with pytest.raises(InputError, match="no protocol named 'best'"):
        load_utkface(faces, protocol="best")


@unpacked("UTKFace")
def test_real_utkface_has_the_published_counts():
    sentences = check_utkface(DATA)
    assert "under 20 / Black: 335 images, 336 published." in sentences
    assert "1 of 12 counts do not agree: 22,012 images, 22,013 published." in sentences


@pytest.mark.slow
@unpacked("UTKFace")
def test_real_utkface(tmp_path):
    paper = load_utkface(DATA / "UTKFace", size=16, protocol="paper", cache=tmp_path)
    test, cells = paper.part("test")
    assert len(test) == 1200
    assert (cells.counts == 100).all()
    assert paper.part("train")[1].counts.tolist() == [
        [1949, 235, 925, 538],
        [3635, 3016, 1756, 2121],
        [4194, 974, 453, 1016],
    ]
    pixels = paper.inputs.batch(torch.arange(0, len(paper), 20))
    assert pixels.mean((0, 2, 3)).abs().max() < 0.05
    validated = load_utkface(DATA, size=16, cache=tmp_path)
    assert {part: len(rows) for part, rows in validated.parts.items()} == {"train": 16627, "validation": 4046, "test": 1200}
    assert (validated.part("test")[1].counts == 100).all()


# ---------------------------------------------------------------- CelebA


@pytest.fixture
def celebrities(tmp_path):
    """Twelve images in the official layout: four train, four valid, four and one more test; a row without an image."""
    attributes, partition = ["13", "Bald Blond_Hair Male Young "], []
    for i in range(13):
        blond, male = (i // 2) % 2, i % 2
        name = f"{i + 1:06}.jpg"
        attributes.append(f"{name} -1  {2 * blond - 1} {2 * male - 1}  1")
        partition.append(f"{name} {[0, 2, 1, 2][i // 4]}")
        if i != 8:
            save(tmp_path / "img_align_celeba" / name)
    (tmp_path / "list_attr_celeba.txt").write_text("\n".join(attributes) + "\n")
    (tmp_path / "list_eval_partition.txt").write_text("\n".join(partition) + "\n")
    return tmp_path


def test_celeba_in_the_official_layout(celebrities):
    examples = load_celeba(celebrities, size=8, protocol="paper")
    assert len(examples) == 12
    assert examples.class_names == ["not blond", "blond"]
    assert examples.groups.names == ["Female", "Male"]
    assert {part: rows.tolist() for part, rows in examples.parts.items()} == {
        "train": [0, 1, 2, 3],
        "validation": [8, 9, 10],
        "test": [4, 5, 6, 7],
    }
    assert examples.y[:4].tolist() == [0, 0, 1, 1]
    assert examples.groups.values[:4].tolist() == [0, 1, 0, 1]
    assert (examples.part("test")[1].counts == 1).all()
    assert examples.inputs.batch(torch.arange(3)).shape == (3, 3, 8, 8)
    whole = load_celeba(celebrities, size=8, protocol="validated")
    assert whole.parts["test"].tolist() == [4, 5, 6, 7, 11]


def test_celeba_needs_every_cell_to_balance_the_test_part(celebrities):
    (celebrities / "img_align_celeba" / "000008.jpg").unlink()
    with pytest.raises(InputError, match="no test images of blond / Male"):
        load_celeba(celebrities, size=8, protocol="paper")
    assert len(load_celeba(celebrities, size=8, protocol="validated").parts["test"]) == 4


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("list_attr_celeba.txt", None, "no file list_attr_celeba.txt in .*; download CelebA"),
        ("list_attr_celeba.txt", ("Blond_Hair", "Hair"), "no column Blond_Hair"),
        ("list_attr_celeba.txt", ("000003.jpg -1  1", "000003.jpg -1  5"), "no column Blond_Hair with -1 and 1"),
        ("list_attr_celeba.txt", ("000003.jpg", "000004.jpg"), "lists 000004.jpg twice"),
        ("list_attr_celeba.txt", ("000003.jpg", "000003.jpg 1 1 1 1 1"), "Cannot read .* in line 5, saw 10"),
        ("list_eval_partition.txt", ("000003.jpg 0", "000003.jpg 7"), "0, 1 or 2 in every row"),
        ("list_eval_partition.txt", ("000003.jpg 0\n", ""), "which part 000003.jpg belongs to"),
        ("list_eval_partition.txt", (" 0\n", " 1\n"), "are of the train part"),
        ("list_attr_celeba.txt", (".jpg", ".png"), "which part 000001.png"),
    ],
)
def test_celeba_files_that_do_not_fit(celebrities, file, change, message):
    path = celebrities / file
    text = path.read_text()
    path.unlink()
    if change is not None:
        assert change[0] in text
        path.write_text(text.replace(*change))
    with pytest.raises(InputError, match=message):
        load_celeba(celebrities, size=8)


def test_celeba_without_images(celebrities):
    for path in (celebrities / "img_align_celeba").iterdir():
        path.unlink()
    with pytest.raises(InputError, match="None of the images of list_attr_celeba"):
        load_celeba(celebrities)


def test_check_celeba_compares_with_what_is_published(celebrities):
    sentences = check_celeba(celebrities)
    assert len(sentences) == 15
    assert sentences[0] == "train: not blond / Female: 1 images, 71,629 published."
    assert sentences[-1] == "test: 4 of 4 counts do not agree: 5 images, 19,962 published."


@unpacked("celeba")
def test_real_celeba_subset():
    sentences = check_celeba(DATA / "celeba")
    assert "test: blond / Male: 44 images, 180 published." in sentences
    assert "train: blond / Male: 359 images, 1,387 published." in sentences


@pytest.mark.slow
@unpacked("celeba")
def test_real_celeba_subset_loads(tmp_path):
    examples = load_celeba(DATA / "celeba", size=16, protocol="paper", cache=tmp_path)
    assert {part: len(rows) for part, rows in examples.parts.items()} == {"train": 13725, "validation": 1678, "test": 176}
    assert (examples.part("test")[1].counts == 44).all()
