"""The rule of a head as an expression of SQL, for probabilities that are columns of a table."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fairdro.errors import InputError
from fairdro.training.calibration import LEAST


def head_sql(
    coefficients: np.ndarray,
    temperatures: np.ndarray,
    classes: np.ndarray,
    p_class: Sequence[str],
    p_group: Sequence[str],
) -> str:
    r"""Return ``CASE WHEN ... END``, the class with the largest score; of equal ones the first.

    The score of class y is :math:`p_y^{1/T_1} \sum_a c_{y,a}\, g_a^{1/T_2}`: what all classes share is left out.

    Parameters
    ----------
    coefficients : ndarray of shape (Y, A)
        Weights over shares.
    temperatures : ndarray of shape (2,)
    classes : ndarray of shape (Y,)
        Labels.
    p_class, p_group : sequences of str
        Columns, with the probabilities of classes and groups; no groups where A is 1 and none is inferred.
    """
    for columns, number, what in ((p_class, len(classes), "class"), (p_group, coefficients.shape[1], "group")):
        if len(columns) not in ({number, 0} if what == "group" and number == 1 else {number}):
            raise InputError(f"Name a column for every {what}: {number}, got {len(columns)}.")
    of_group = [_power(name, temperatures[1]) for name in p_group] or ["1"]
    scores = [
        f"{_power(name, temperatures[0])} * ({' + '.join(f'{c!r} * {g}' for c, g in zip(row, of_group, strict=True))})"
        for name, row in zip(p_class, coefficients.tolist(), strict=True)
    ]
    cases = []
    for i, (score, label) in enumerate(zip(scores[:-1], classes[:-1], strict=True)):
        leads = " AND ".join(f"{score} >= {other}" for other in scores[i + 1 :])
        cases.append(f"  WHEN {leads} THEN {_literal(label)}")
    return "\n".join(["CASE", *cases, f"  ELSE {_literal(classes[-1])}", "END"])


def _power(name: str, temperature: float) -> str:
    column = '"' + name.replace('"', '""') + '"'
    return f"POWER(GREATEST({column}, {LEAST!r}), {float(1 / temperature)!r})"


def _literal(label: Any) -> str:
    if isinstance(label, bool | np.bool_):
        return "TRUE" if label else "FALSE"
    if isinstance(label, int | float | np.number):
        return repr(label.item() if isinstance(label, np.number) else label)
    return "'" + str(label).replace("'", "''") + "'"
