"""What a saved model may hold, by its kind: Y classes, A groups (G of them in a head), P radii, D features."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import PlainValidator, ValidationInfo

from fairdro._utils.schema import (
    Finite,
    NotNegative,
    Positive,
    Scalar,
    Whole,
    agree,
    array,
    checked,
    labels,
    several,
    size,
    strings,
)
from fairdro.metrics import METRICS

FLAGS, WORDS = {"diverged", "levels_down", "selected", "converged"}, {"who_pays"}
PARAMETER = Scalar | list[Scalar] | list[list[Scalar]]


def _is_column(name: Any, values: pd.Series) -> bool:
    if name in WORDS:
        return all(isinstance(text, str) for text in values)
    if name in FLAGS:
        return values.dtype == bool
    known = name in {"rho", "weighted_accuracy", *METRICS} or str(name).startswith("class_accuracy_")
    return known and values.dtype.kind in "fiu"


def _frontier(value: Any, info: ValidationInfo) -> pd.DataFrame:
    """Check a frontier: a row per radius, and columns that are known."""
    try:
        table = pd.DataFrame(value)
    except (TypeError, OverflowError) as error:
        raise ValueError(str(error)) from error
    if strange := [name for name in table.columns if not _is_column(name, table[name])]:
        raise ValueError(f"has a column {strange[0]!r} that is not known, or of another type")
    if missing := {"rho", "accuracy", "dca", "selected"} - {*table.columns}:
        raise ValueError(f"has no column {min(missing)!r}")
    if not np.isfinite(table["rho"]).all():
        raise ValueError("has radii that are no numbers")
    agree(info, "P", len(table))
    return table


CELLS: dict[str, Any] = {
    "classes_": labels("Y"),
    "class_weight_": array("Y", least=0) | None,
    "group_names_": strings("A"),
    "merged_groups_": list[str],
    "cell_counts_": array("Y", "A", least=0),
    "_fair_codes_": list[Whole] | None,
    "_countable_": bool,
    "_unknown_": str,
    "_weight_scale_": Positive,
}
FRONTIER: dict[str, Any] = {
    "frontier_": Annotated[pd.DataFrame, PlainValidator(_frontier)],
    "confusion_": array("P", "Y", "A", "Y", least=0),
    "_lost_": array("P", "Y", "A", least=0),
    "_ordinary_": array("Y", "A", "Y", least=0),
    "best_index_": Whole,
    "rho_": NotNegative,
    "_asked_": bool,
    "_how_chosen_": str,
    "_on_choice_": list[str],
}
CERTIFIED: dict[str, Any] = {
    "_certified_": array("Y", "A", "Y", least=0),
    "_delta_": Positive,
    "_limit_": NotNegative | None,
    "_tried_": Whole,
}
HEAD: dict[str, Any] = {
    "frontier_weights_": array("P", "Y", "G"),
    "share_": array("Y", "G", least=0),
    "weights_": array("Y", "G"),
    "temperatures_": array("two", least=0),
    "calibration_": array("Y + 1"),
}
ROWS: dict[str, Any] = {"n_features_in_": size("D")}
NAMED: dict[str, Any] = {"feature_names_in_": labels("D", strings=True)}
WEIGHTS: dict[str, Any] = {"weights_": array("Y", "A")}
PLAIN: dict[str, Any] = {"plain_coefs_": several(array(None, None)), "plain_intercepts_": several(array(None))}
LAYERS: dict[str, Any] = {
    "coef_": array(None, "D"),
    "intercept_": array(None),
    "coefs_": several(array(None, None)),
    "intercepts_": several(array(None)),
}
JOINT: dict[str, Any] = {"joint_": Literal["classes", "independent", "conditional", "cells"]}
TREES: dict[str, Any] = {
    "categories_": dict[str, Any],
    "_backend_": Literal["lightgbm", "xgboost"],
    "n_estimators_": Whole,
    "feature_importances_": array("D"),
    "trees_": list[str],
}
LAYERED = CELLS | ROWS | PLAIN | WEIGHTS
FITTED: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "FairDROClassifier": (LAYERED, NAMED | LAYERS),
    "FairClassifier": (LAYERED, NAMED | LAYERS),
    "FairDROClassifierCV": (LAYERED | FRONTIER, NAMED | LAYERS | CERTIFIED),
    "FairDROHead": (CELLS | FRONTIER | HEAD, CERTIFIED | {"_columns_": dict[str, list[str] | None]}),
    "FairDROHeadClassifier": (
        CELLS | FRONTIER | HEAD | JOINT | {"estimators_": several(array(None, dtype=int))},
        ROWS | NAMED | CERTIFIED,  # texts have no columns
    ),
    "FairDROBoostingClassifier": (CELLS | ROWS | FRONTIER | TREES, NAMED | HEAD | JOINT | CERTIFIED),
}
"""What was fitted, by the kind of classifier: entries that must be there, and those that may be."""

ENCODER: dict[str, Any] = {
    "max_categories": Whole,
    "one_hot": bool,
    "inputs": list[str],
    "columns": list[dict[str, Any]],
}
COLUMN: dict[str, Any] = {
    "name": str,
    "kind": Literal["number", "date", "category"],
    "missing": bool,
    "median": Finite,
    "values": list[str],
    "others": bool,
}


def check_fitted(kind: str, fitted: Any) -> dict[str, Any]:
    """Return what was fitted to a classifier as a file holds it, or say in a ValueError why that is none."""
    required, optional = FITTED[kind]
    found: dict[str, Any] = checked(required, fitted, optional=optional, two=2)
    classes = len(found["classes_"])
    fair = found["_fair_codes_"]
    if classes < 2 or len(found["group_names_"]) < 1 or (fair is not None and (not fair or max(fair) >= classes)):
        raise ValueError("its classes and groups do not fit together")
    if "frontier_" in found and not found["best_index_"] < len(found["frontier_"]):
        raise ValueError("its radius is not on its frontier")
    if "calibration_" in found and len(found["calibration_"]) != 1 + classes:
        raise ValueError("its calibration is of other classes")
    return found


def check_parameters_of(parameters: Any) -> dict[str, Any]:
    """Return parameters as a file holds them."""
    if not isinstance(parameters, dict):
        raise ValueError("its parameters are no dictionary")  # noqa: TRY004 - one kind for all damage
    found: dict[str, Any] = checked(dict.fromkeys(parameters, PARAMETER), parameters)
    return found


def check_encoder(state: Any) -> dict[str, Any]:
    """Return what an encoder learned, as a file holds it."""
    found: dict[str, Any] = checked(ENCODER, state)
    return found | {"columns": [checked(COLUMN, column) for column in found["columns"]]}
