"""UTKFace and CelebA: the layouts they are published in, their parts and counts."""

import hashlib
import random
from collections import Counter

import numpy as np
import pytest
import torch

from fairdro.data import load_dataset, utkface
from fairdro.data.celeba import check_celeba, load_celeba
from fairdro.data.utkface import check_utkface, load_utkface
from fairdro.errors import InputError
from files import DATA, save_picture, unpacked


def test_faces_are_loaded_by_name_and_get_a_validation_part(faces, tmp_path):
    paper = load_dataset("utkface", data=faces, size=4, protocol="paper", cache=tmp_path)
    assert set(paper.parts) == {"train", "test"}
    validated = paper.with_validation().parts
    assert [len(validated[part]) for part in ("train", "validation", "test")] == [38, 10, 1200]
    assert sorted([*validated["train"], *validated["validation"]]) == sorted(paper.parts["train"])


# ---------------------------------------------------------------- UTKFace


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    """A small UTKFace: 104 images of every cell, some of them identical files, and files to leave out."""
    root = tmp_path_factory.mktemp("faces") / "UTKFace"
    save_picture(root / "1_0_4_1.jpg", size=(4, 4))
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


def test_utkface_holds_out_images_of_rare_cells_too():
    """The test part takes 100 of every cell from the end of the list, and leaves of a rare one what stands at the start."""
    cells = [0] * 150 + [1] * 3000
    parts = utkface._split(cells, [str(row) for row in range(len(cells))], validation=True)
    rare = {name: int((rows < 150).sum()) for name, rows in parts.items()}
    assert rare["test"] == 100
    assert 5 <= rare["validation"] <= 15


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
        save_picture(tmp_path / name)
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
    assert {part: len(rows) for part, rows in validated.parts.items()} == {"train": 16627, "validation": 4077, "test": 1200}
    assert validated.part("validation")[1].counts.min() >= 30
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
            save_picture(tmp_path / "img_align_celeba" / name)
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
