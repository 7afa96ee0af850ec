"""Saving and loading classifiers, alone or after a TableEncoder, with their model cards.

A model is a folder: arrays in a safetensors file, all else in ``model.json``, and a card for people. Nothing in it is ever
executed. ``model.json`` is written last and names the arrays by their hash, so a folder holds the former model or the new
one, never a mixture; a file that was cut or changed is refused.
"""

import json
import re
from collections.abc import Mapping, Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import safetensors.numpy
from safetensors import SafetensorError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from fairdro._utils.files import write_whole
from fairdro._utils.hashing import digest
from fairdro.errors import InputError
from fairdro.estimators.card import build_card
from fairdro.estimators.encoder import TableEncoder
from fairdro.estimators.schema import check_encoder, check_fitted, check_parameters_of
from fairdro.metrics import Confusion, confusion
from fairdro.selection import rule_from, rule_text

FORMAT = 3
OURS = r"weights-[0-9a-f]{16}\.safetensors|model\.json|model_card\.md|\..*\.part"
LABELS, TABLE, TENSOR = "$labels", "$table", "$tensor"
CLASSIFIERS = [
    "FairDROClassifier",
    "FairClassifier",
    "FairDROClassifierCV",
    "FairDROHeadClassifier",
    "FairDROBoostingClassifier",
]


class SavingMixin:
    """What a classifier needs to be saved with its card; what is fitted are attributes whose names end in an underscore."""

    classes_: np.ndarray
    group_names_: list[str]
    cell_counts_: np.ndarray
    n_features_in_: int

    def save(self, folder: str | Path) -> None:
        """Save the fitted model into a folder, without pickle, with its card; :func:`fairdro.load` reads it.

        Parameters
        ----------
        folder : path
            Made if it is not there; a model in it is replaced.
        """
        save(self, folder)

    def model_card(self, X: Any = None, y: Any = None, *, sensitive_features: Any = None) -> str:
        """Return the model's card, see :func:`fairdro.model_card`."""
        return model_card(self, X, y, sensitive_features=sensitive_features)

    def _to_state(self) -> dict[str, Any]:
        """Return what was fitted, as a file can hold it."""
        return {key: value for key, value in vars(self).items() if key.endswith("_")}

    def _from_state(self, fitted: dict[str, Any]) -> None:
        """Take over what :meth:`_to_state` gave."""
        for key, value in fitted.items():
            setattr(self, key, value)

    def _check_parameters(self) -> None:
        """Refuse parameters that cannot be."""
        raise NotImplementedError

    def _fits_together(self) -> bool:
        """Whether what was read from a file is one model."""
        raise NotImplementedError

    def _own_results(self) -> list[tuple[str, Confusion]]:
        """Return what the card says of rows that were held out in training: on which rows, and how they were predicted."""
        return []

    def _remarks(self) -> Sequence[str]:
        """Return sentences on how these results came about."""
        return []

    def _facts(self) -> dict[str, object]:
        """Return what the card says of the model beside its parameters."""
        return {}

    @property
    def _class_names(self) -> list[str]:
        return [str(c) for c in self.classes_]


def _steps(model: Any) -> tuple[TableEncoder | None, SavingMixin]:
    """Return the encoder, if there is one, and the classifier of a model of ours."""
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    if not isinstance(steps[-1], SavingMixin) or [type(step) for step in steps[:-1]] not in ([], [TableEncoder]):
        raise InputError(
            f"Only fairdro's classifiers, alone or after a TableEncoder, have cards and can be saved, not "
            f"{type(steps[-1]).__name__} in a pipeline of {len(steps)}; take the classifier by itself."
        )
    if hasattr(steps[-1], "fit"):
        check_is_fitted(steps[-1])
    return (steps[0] if len(steps) == 2 else None), steps[-1]


def model_card(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    sensitive_features: Any = None,
    about: Mapping[str, str] | None = None,
) -> str:
    """Return a model card in Markdown: what a model is, what it was trained on, whom it serves how well.

    Parameters
    ----------
    model : estimator
        A fitted classifier, or a pipeline of a :class:`~fairdro.TableEncoder` and a classifier.
    X, y, sensitive_features : optional
        Rows to judge it on, which it was not trained on. Without them a model whose radius was chosen shows its held-out
        rows, others nothing.
    about : mapping of str to str, optional
        What else readers should know, by name: ``{"predicts": "income", "intended use": "..."}``.

    Returns
    -------
    str

    See Also
    --------
    save : Writes the card beside the model.

    Examples
    --------
    >>> import fairdro
    >>> data = fairdro.load_dataset("compas")
    >>> X, y, race = data.X.iloc[:, :8], data.y, data.a
    >>> model = fairdro.FairDROClassifier(rho=10.0).fit(X, y, sensitive_features=race)
    >>> card = fairdro.model_card(model, X, y, sensitive_features=race)  # better: rows that it was not trained on
    >>> [line for line in card.splitlines() if line.startswith("#")]
    ['# Model card', '## Model', '## Training data', '## Results', '### On 6,167 rows', '## Limits']
    """
    encoder, classifier = _steps(model)
    results, remarks = classifier._own_results(), classifier._remarks()
    if X is not None:
        if y is None or sensitive_features is None:
            raise InputError(
                "A model card needs X, y and sensitive_features of the rows to judge the model on, or none of them."
            )
        codes = getattr(classifier, "_fair_codes_", None)
        fair = None if codes is None else [classifier.classes_[k] for k in codes]
        options = {"labels": classifier.classes_, "fair_classes": fair}
        judged = confusion(y, model.predict(X), sensitive_features=sensitive_features, **options)
        results, remarks = [(f"On {len(y):,} rows", judged)], []
    named = classifier if encoder is None else encoder
    columns = [f"x{j}" for j in range(getattr(classifier, "n_features_in_", 0))]
    return build_card(
        model={
            **(about or {}),
            "estimator": type(classifier).__name__,
            **plain_parameters(classifier),
            **classifier._facts(),
        },
        features=list(getattr(named, "feature_names_in_", columns)),
        counts=classifier.cell_counts_,
        class_names=classifier._class_names,
        group_names=classifier.group_names_,
        results=results,
        remarks=remarks,
        on_data=getattr(classifier, "_unknown_", ""),
    )


def save(model: Any, folder: str | Path, *, about: Mapping[str, str] | None = None) -> None:
    """Save a fitted classifier, or a pipeline of an encoder and a classifier.

    The folder gets ``model.json``, the arrays as safetensors, and ``model_card.md``. There is no pickle in it, and reading
    it runs no code. A parameter that is an object of another kind, such as a splitter for ``cv``, is not kept.

    Parameters
    ----------
    model : estimator
        A fitted classifier, or a pipeline of a :class:`~fairdro.TableEncoder` and a classifier.
    folder : path
        Made if it is not there; a model in it is replaced, other things are left alone.
    about : mapping of str to str, optional
        For the card, as of :func:`model_card`.

    See Also
    --------
    load : Reads the folder.

    Examples
    --------
    >>> import fairdro
    >>> data = fairdro.load_dataset("compas")
    >>> X, y, race = data.X.iloc[:, :8], data.y, data.a
    >>> model = fairdro.FairDROClassifier(rho=10.0).fit(X, y, sensitive_features=race)
    >>> fairdro.save(model, "model")
    >>> (fairdro.load("model").predict(X) == model.predict(X)).all().item()
    True
    """
    model = model.to_local() if hasattr(model, "to_local") else model  # one of Dask's
    encoder, classifier = _steps(model)
    if type(classifier).__name__ not in CLASSIFIERS:
        raise InputError(f"A {type(classifier).__name__} is one file: save it by its own save('head.json').")
    state = {
        "encoder": None if encoder is None else encoder.to_state(),
        "kind": type(classifier).__name__,
        "parameters": plain_parameters(classifier),
        "fitted": classifier._to_state(),
    }
    write_folder(folder, state, model_card(model, about=about))


def load(folder: str | Path) -> Any:
    """Read what :func:`save` wrote, or the JSON file of a head; a file that was cut or changed is refused.

    Parameters
    ----------
    folder : path
        The folder, or the file of a head.

    Returns
    -------
    estimator, pipeline or FairDROHead

    Raises
    ------
    InputError
        If there is no model, or it was cut or changed.

    See Also
    --------
    save : Writes the folder.

    Examples
    --------
    >>> import fairdro
    >>> data = fairdro.load_dataset("compas")
    >>> X, y, race = data.X.iloc[:, :8], data.y, data.a
    >>> model = fairdro.FairDROClassifier(rho=10.0).fit(X, y, sensitive_features=race)
    >>> model.save("model")
    >>> fairdro.load("model").rho
    10.0
    """
    if Path(folder).is_file():
        return import_module("fairdro.estimators").FairDROHead.read(Path(folder))
    state = read_folder(folder)
    try:
        demand(state["kind"] in CLASSIFIERS, f"there is no classifier {state['kind']!r}")
        classifier = getattr(import_module("fairdro.estimators"), state["kind"])(**read_parameters(state["parameters"]))
        classifier._check_parameters()
        classifier._from_state(check_fitted(state["kind"], state["fitted"]))
        demand(classifier._fits_together(), "its parts do not fit together")
        if state["encoder"] is None:
            return classifier
        encoder = TableEncoder.from_state(check_encoder(state["encoder"]))
        demand(len(encoder.get_feature_names_out()) == classifier.n_features_in_, "its features are not those of its table")
        return Pipeline([("encode", encoder), ("classify", classifier)])
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise InputError(f"The model in {folder} cannot be used ({error}); save it again.") from error


def read_parameters(parameters: Any) -> dict[str, Any]:
    """Return parameters as :func:`plain_parameters` took them."""
    parameters = check_parameters_of(parameters)
    if parameters.get("rule") is not None:
        parameters["rule"] = rule_from(parameters["rule"])
    if isinstance(parameters.get("class_weight"), list):
        parameters["class_weight"] = {label: cost for label, cost in parameters["class_weight"]}  # noqa: C416 - pairs
    return parameters


def plain_parameters(model: Any) -> dict[str, Any]:
    """Return the parameters that are numbers and strings, or None where they need not be; selection rules as strings."""
    usual = type(model)().get_params(deep=False)
    plain: dict[str, Any] = {}
    for key, value in model.get_params(deep=False).items():
        if (rule := rule_text(value)) is not None:
            plain[key] = rule
        elif key == "rhos" and value is not None:
            plain[key] = np.asarray(value, dtype=np.float64).tolist()
        elif key == "fair_classes" and value is not None:
            plain[key] = np.asarray(value).tolist()
        elif key == "class_weight" and isinstance(value, Mapping):
            plain[key] = [
                [getattr(label, "item", lambda label=label: label)(), float(cost)] for label, cost in value.items()
            ]
        elif isinstance(value, bool | int | float | str | np.number) or (value is None and usual[key] is not None):
            plain[key] = value
    return plain


def write_folder(folder: str | Path, state: dict[str, Any], card: str) -> None:
    """Write a model's state and its card.

    Parameters
    ----------
    folder : path
        Made if it is not there; a model in it is replaced.
    state : dict
        Nested dicts and lists of numbers, strings, arrays and DataFrames.
    card : str
        In Markdown.
    """
    folder = Path(folder)
    before = check_free(folder)
    tensors: dict[str, np.ndarray] = {}
    packed = _pack(state, tensors)
    content = safetensors.numpy.save(tensors)
    known = digest(content)
    about = {"format": FORMAT, "fairdro": metadata.version("fairdro"), "tensors": known, "state": packed}
    about["checksum"] = digest(about)
    text = json.dumps(about, indent=1, allow_nan=False) + "\n"
    new = _tensors(folder, known)
    write_whole(new, content)
    try:
        write_whole(folder / "model.json", text)
    except InputError:
        if before != new:
            new.unlink(missing_ok=True)
        raise
    try:
        write_whole(folder / "model_card.md", card)
    except InputError as error:
        raise InputError(f"The model in {folder} is saved, but without its card. {error}") from error
    if before is not None and before != new:
        before.unlink(missing_ok=True)


def check_free(folder: Path) -> Path | None:
    """Refuse a folder that holds other things than a model of ours; return the file of that model's arrays."""
    try:
        if not folder.exists():
            return None
        others = (
            [path for path in folder.iterdir() if re.fullmatch(OURS, path.name) is None] if folder.is_dir() else [folder]
        )
        known = (folder / "model.json").exists()
        demand(known or not others, "others")
        if not known:
            return None
        named = json.loads((folder / "model.json").read_text(encoding="utf-8"))["tensors"]
        demand(re.fullmatch("[0-9a-f]{64}", named) is not None, "it names no arrays")  # never a path
        return _tensors(folder, named)
    except OSError as error:
        raise InputError(f"Cannot write into {folder}: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{folder} holds other things; name a new folder, or one with a model to replace.") from error


def read_folder(folder: str | Path) -> dict[str, Any]:
    """Return the state of a saved model, or say in a sentence why that cannot be."""
    folder = Path(folder)
    try:
        about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        demand(about["format"] == FORMAT, f"fairdro {about.get('fairdro')} saved it in a format this version does not read")
        demand(about.pop("checksum") == digest(about), "model.json was changed")
        demand(re.fullmatch("[0-9a-f]{64}", about["tensors"]) is not None, "it names no arrays")
        content = _tensors(folder, about["tensors"]).read_bytes()
        demand(digest(content) == about["tensors"], "its arrays were changed or cut")
        return _unpack(about["state"], safetensors.numpy.load(content))
    except FileNotFoundError as error:
        raise InputError(f"There is no complete model in {folder}: {Path(error.filename).name} is not there.") from error
    except OSError as error:
        raise InputError(f"Cannot read the model in {folder}: {error.strerror}.") from error
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"The model in {folder} cannot be used ({error}); save it again.") from error


def demand(condition: bool, otherwise: str) -> None:  # noqa: FBT001 - reads like an assertion
    """Raise a ValueError that says what is wrong with a file."""
    if not condition:
        raise ValueError(otherwise)


def _tensors(folder: Path, known: str) -> Path:
    return folder / f"weights-{known[:16]}.safetensors"


def _pack(value: Any, tensors: dict[str, np.ndarray]) -> Any:
    """Turn a state into JSON, arrays of numbers into entries of ``tensors``."""
    if isinstance(value, dict):
        return {str(key): _pack(item, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_pack(item, tensors) for item in value]
    if isinstance(value, pd.DataFrame):
        return {TABLE: {str(name): _pack(value[name].to_numpy(), tensors) for name in value.columns}}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        name = str(len(tensors))
        tensors[name] = np.ascontiguousarray(value)
        return {TENSOR: name}
    if isinstance(value, np.ndarray) and value.dtype.kind in "UO":
        return {LABELS: [_pack(item, tensors) for item in value.tolist()], "dtype": value.dtype.kind}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(f"{value!r} is of a kind that cannot be saved ({type(value).__name__}); use numbers or strings.")


def _unpack(value: Any, tensors: dict[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if TENSOR in value:
        return tensors[value[TENSOR]]
    if LABELS in value:
        return np.array(value[LABELS], dtype=object if value["dtype"] == "O" else str)
    if TABLE in value:
        return pd.DataFrame({name: _unpack(item, tensors) for name, item in value[TABLE].items()})
    return {key: _unpack(item, tensors) for key, item in value.items()}
