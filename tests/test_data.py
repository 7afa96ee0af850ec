"""The registry; Adult and COMPAS: counts, features and splits as the paper had them, nothing that identifies a person."""

import inspect
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from fairdro import load_dataset
from fairdro._utils.hashing import digest
from fairdro.data import DATASETS, PROTOCOLS, check_data, names
from fairdro.data.base import embedded_table
from fairdro.errors import InputError

ADULT, COMPAS = load_dataset("adult"), load_dataset("compas")


@pytest.mark.parametrize("name", DATASETS)
def test_every_dataset_keeps_to_the_registry(name):
    entry = DATASETS[name]
    assert name in names(entry.kind)
    assert entry.summary.endswith(".")
    assert len(entry.summary) < 110
    required = {key for key, parameter in entry.options.items() if parameter.default is parameter.empty}
    assert required == {"table": set(), "images": {"data"}, "texts": {"data", "encoder"}}[entry.kind]
    assert ("sensitive" in entry.options) == (entry.kind == "table")
    assert ("size" in entry.options) == (entry.kind == "images")
    if "protocol" in entry.options:
        assert entry.options["protocol"].default == PROTOCOLS[0]
    if entry.check is not None:
        assert list(inspect.signature(entry.check).parameters) == ["data"]


def test_names_of_the_registry():
    assert names("table") == ["adult", "compas"]
    assert names("images", "texts") == ["utkface", "celeba", "images", "civilcomments", "hatexplain", "texts"]


def test_the_registry_loads_no_extra():
    code = "import sys, fairdro.data; sys.exit(any(name in sys.modules for name in ('PIL', 'transformers', 'lightgbm')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: load_dataset("adult", size=32), "adult has no option 'size'; it has: sensitive."),
        (lambda: load_dataset("adult", data="."), "adult has no option 'data'"),
        (lambda: load_dataset("utkface"), "utkface holds images and needs data: load_dataset('utkface', data=..., ...)."),
        (lambda: load_dataset("celeba", data=None), "celeba holds images and needs data:"),
        (lambda: load_dataset("images", size=32), "images holds images and needs data:"),
        (lambda: load_dataset("utkface", data=".", sensitive="sex"), "utkface has no option 'sensitive'"),
        (lambda: load_dataset("celeba", data=".", encoder="bert"), "celeba has no option 'encoder'"),
        (lambda: load_dataset("hatexplain", data="."), "hatexplain holds texts and needs encoder:"),
        (lambda: load_dataset("texts", data=".", encoder="e", soft=True), "texts has no option 'soft'"),
        (lambda: load_dataset("civilcomments", data=".", encoder="e", size=32), "civilcomments has no option 'size'"),
        (lambda: load_dataset(3), "Name a dataset, one of: adult, compas,"),
        (lambda: load_dataset(None), "got None."),
        (lambda: load_dataset("adult", sensitive=3), "The option sensitive of adult must be str or Sequence, got 3."),
        (lambda: load_dataset("adult", sensitive=["sex", 3]), "no sensitive column of adult named '3'"),
        (lambda: load_dataset("utkface", data=3), "The option data of utkface must be str or Path, got 3."),
        (lambda: load_dataset("utkface", data=".", size="large"), "The option size of utkface must be int, got 'large'."),
        (lambda: load_dataset("texts", data=".", encoder=3), "The option encoder of texts must be str or Path, got 3."),
        (lambda: load_dataset("f.safetensors", sensitive="sex"), "file of features has no options, got sensitive."),
        (lambda: load_dataset("f.safetensors"), "There is no file f.safetensors"),
        (lambda: check_data("adult", "."), "no dataset of images or texts to check named 'adult'"),
        (lambda: check_data("images", "."), "choose one of: utkface, celeba, civilcomments, hatexplain"),
    ],
)
def test_options_that_do_not_fit_are_one_sentence(call, sentence):
    with pytest.raises(InputError) as caught:
        call()
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_digest_tells_contents_types_and_shapes_apart():
    numbers = np.arange(6.0)
    contents = [
        b"ab", "ab", ["a", "b"], {"a": 1}, numbers, numbers.astype(np.float32), numbers.reshape(2, 3), torch.zeros(0),
        torch.arange(6.0), torch.arange(6).bfloat16(), torch.tensor(1.0), True, None,
    ]  # fmt: skip
    assert len({digest(content) for content in contents}) == len(contents)
    assert digest(b"a", b"b") not in (digest(b"ab"), digest(b"ab", b""), digest(b"b", b"a"))
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest(numbers.reshape(2, 3).T) == digest(np.ascontiguousarray(numbers.reshape(2, 3).T))
    with pytest.raises(TypeError, match="objects"):
        digest(np.array(["a", None]))


@pytest.mark.parametrize(
    ("dataset", "rows", "columns", "counts"),
    [  # counts by class, then group
        (ADULT, 45222, 97, [[13026, 20988], [1669, 9539]]),
        (COMPAS, 6167, 400, [[2080, 1278], [1987, 822]]),
    ],
)
def test_size_and_cells(dataset, rows, columns, counts):
    assert dataset.X.shape == (rows, columns)
    assert dataset.cells.counts.tolist() == counts
    assert len(dataset.y) == len(dataset.a) == len(dataset.sensitive) == rows
    assert dataset.X.columns.is_unique
    assert not dataset.X.isna().any().any()


def test_first_columns_are_in_the_order_of_the_paper():
    assert list(ADULT.X.columns[:6]) == ["age", "education-num", "race", "capital-gain", "capital-loss", "hours-per-week"]
    assert list(COMPAS.X.columns[:6]) == ["sex", "age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"]
    assert ADULT.group_names == ["Female", "Male"]
    assert COMPAS.group_names == ["Non-Caucasian", "Caucasian"]
    assert ADULT.class_names == ["<=50K", ">50K"]


@pytest.mark.parametrize(
    ("dataset", "start", "train", "test"),
    [  # counts by group, then class, as the reference prints them
        (ADULT, [41387, 35278, 26950, 29133, 41794, 39744], [[10421, 1330], [16763, 7663]], [[2605, 339], [4225, 1876]]),
        (COMPAS, [1411, 4757, 4822, 1657, 4933, 4631], [[1652, 1596], [1023, 662]], [[428, 391], [255, 160]]),
    ],
)
def test_paper_split(dataset, start, train, test):
    assert np.random.RandomState(0).permutation(len(dataset))[:6].tolist() == start
    split = dataset.split("paper")
    assert split.validation is None
    assert split.train.cells.counts.T.tolist() == train
    assert split.test.cells.counts.T.tolist() == test
    assert split.train.cells.y[:6].tolist() == dataset.y[start].tolist()


def test_features_are_scaled_by_the_training_part():
    split = ADULT.split("paper")
    assert split.train.X.mean(0).abs().max() < 1e-4
    np.testing.assert_allclose(split.train.X.std(0, correction=0), 1, atol=1e-4)


def test_unseen_charges_become_1e7_in_the_paper_protocol_only():
    paper = COMPAS.split("paper")
    assert int((paper.train.X.abs().amax(0) == 0).sum()) == 38
    assert int((paper.test.X.amax(1) > 1e6).sum()) == 40
    guarded = COMPAS.split("validated")
    assert guarded.test.X.abs().max() < 100


def test_the_validated_protocol_is_the_default():
    assert PROTOCOLS[0] == "validated"
    split = COMPAS.split()
    assert split.validation is not None
    assert split.train.X.equal(COMPAS.split("validated").train.X)


def test_validated_split_holds_out_part_of_the_training_rows():
    split = ADULT.split("validated", seed=3)
    assert (len(split.train.X), len(split.validation.X), len(split.test.X)) == (28941, 7236, 9045)
    whole = ADULT.split("paper", seed=3)
    assert split.test.cells.y.equal(whole.test.cells.y)
    assert whole.train.cells.y[: len(split.train.X)].equal(split.train.cells.y)


def test_other_sensitive_columns():
    both = load_dataset("adult", sensitive=("sex", "race"))
    assert both.X.shape[1] == 96
    assert len(both.group_names) == 10
    assert both.cells.counts.sum() == 45222
    race = load_dataset("compas", sensitive="race")
    assert len(race.group_names) == 6
    assert race.X.shape[1] == 400
    assert pd.crosstab(race.sensitive["race"], race.a).gt(0).sum(axis=1).eq(1).all()


def test_nothing_in_compas_identifies_a_person():
    table = embedded_table("compas")
    allowed = {
        "sex", "age", "age_cat", "race", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count",
        "c_charge_degree", "c_charge_desc", "two_year_recid",
    }  # fmt: skip
    assert set(table.columns) == allowed
    assert "CC BY 4.0" in ADULT.card
    assert "ProPublica" in COMPAS.card


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: load_dataset("adlut"), "no dataset named 'adlut'; choose one of: adult, compas"),
        (
            lambda: load_dataset("adult", sensitive="age"),
            "no sensitive column of adult named 'age'; choose one of: sex, race",
        ),
        (lambda: load_dataset("compas", sensitive=[]), "at least one sensitive column of compas: sex, race"),
        (lambda: ADULT.split("papr"), "no protocol named 'papr'"),
        (lambda: ADULT.split(seed=-1), "must be a whole number from 0"),
        (lambda: ADULT.split(seed=None), "must be a whole number from 0"),
    ],
)
def test_bad_input_is_one_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()
