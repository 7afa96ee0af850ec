"""From a model and a table of new rows to a certificate: what ``fairdro certify`` does."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fairdro.certificates import Certificate, certify
from fairdro.errors import InputError
from fairdro.estimators.columns import check_columns, labels_of, sensitive_columns, with_target
from fairdro.estimators.head import FairDROHead
from fairdro.estimators.tables import predict_head_table, predict_table
from fairdro.groups import encode_groups
from fairdro.metrics import confusion


def certify_table(
    model: Any,
    table: pa.Table,
    *,
    target: str,
    groups: Sequence[str],
    delta: float = 0.05,
    missing_groups: str = "group",
) -> tuple[Certificate, list[str]]:
    """Predict new rows and certify the model by them; return also sentences on the table.

    Parameters
    ----------
    model : Pipeline or FairDROHead
        Of :func:`~fairdro.estimators.tables.fit_table` or :func:`~fairdro.estimators.tables.fit_head_table`.
    table : pyarrow.Table
        Rows that neither trained nor chose the model, with the columns it takes.
    target : str
        Column with the true class; rows without it are left out.
    groups : sequence of str
        Sensitive columns; every combination of their values is a group.
    delta : float, default 0.05
    missing_groups : {"group", "ignore", "refuse"}
        Whether a missing value is a group of its own, or its row is not counted.
    """
    check_columns(table, [target, *groups])
    if not groups or target in groups:
        raise InputError("Name at least one sensitive column beside the target (--group).")
    if missing_groups == "infer":
        raise InputError("A certificate cannot infer groups, as shares certify nothing; use 'group' or 'ignore'.")
    notes: list[str] = []
    table = with_target(table, target, notes)
    truth = labels_of(table[target], target, several=False).astype(str)
    encoded = encode_groups(sensitive_columns(table, groups, missing_groups, notes), missing_groups)
    if encoded.n_unknown:
        notes.append(f"{encoded.n_unknown:,} of {len(encoded):,} rows have no group and are not counted.")
    head = isinstance(model, FairDROHead)
    predictions, more = (predict_head_table(model, table), []) if head else predict_table(model, table)
    final = model if head else model[-1]
    names, fair = [str(c) for c in final.classes_], final._fair_codes_
    if len(strange := np.setdiff1d(truth, names)) > 0:
        raise InputError(f"{target!r} holds {str(strange[0])!r}, which is no class of the model: {', '.join(names)}.")
    predicted = np.asarray(predictions.column(0).to_pandas()).astype(str)
    about = {"labels": names, "fair_classes": None if fair is None else [names[k] for k in fair]}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*rows have no group", UserWarning)  # said in a note
        judged = confusion(truth, predicted, sensitive_features=encoded, **about)
    return certify(judged, delta=delta), [*notes, *more]
