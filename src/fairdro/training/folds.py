"""Rows to train on and rows to hold out, with every class and group in both as far as there are enough rows."""

import numbers
import warnings
from collections.abc import Sequence, Sized
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit, check_cv

from fairdro.cells import Cells
from fairdro.errors import InputError
from fairdro.training.rows import is_shared

FOLDS = 5


def check_two_rows_per_class(cells: Cells) -> int:
    """Return the number of rows of the smallest class, of which there must be enough to hold some out."""
    rows = np.bincount(cells.y.numpy(), minlength=cells.n_classes)
    if cells.n_classes < 2 or rows.min() < 2:
        raise InputError("A class has one sample, or there is one class only; cross-validation needs two rows of two.")
    return int(rows.min())


def stratified_folds(cells: Cells, number: int = FOLDS, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return train and test rows of every fold; fewer folds where a class has fewer rows."""
    strata = cells.codes.numpy()
    number, largest = min(number, check_two_rows_per_class(cells)), int(np.bincount(strata).max())
    if largest < 2:
        raise InputError("Every class and group has one sample at most; cross-validation needs two rows of a cell.")
    folds = StratifiedKFold(min(number, largest), shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class in y", UserWarning)  # a rare cell
        return list(folds.split(strata, strata))


def fold_numbers(folds: Sequence[tuple[np.ndarray, np.ndarray]], n: int) -> np.ndarray:
    """Return which fold holds a row out ``(n,)``, -1 for none."""
    numbers = np.full(n, -1)
    for i, (_, test) in enumerate(folds):
        numbers[test] = i
    return numbers


def folds_of(cv: Any, X: Any, cells: Cells, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return train and test rows as scikit-learn's ``cv`` says; a number of folds means stratified by cell."""
    if isinstance(cv, numbers.Integral):
        return stratified_folds(cells, int(cv), seed)
    if not is_shared(X):
        check_two_rows_per_class(cells)
    codes, rows = cells.y.numpy(), np.arange(len(cells))
    if isinstance(cv, Sized) and len(cv) == 0:
        raise InputError("cv holds no rows to train on and to hold out; give a number of folds, for example 5.")
    try:
        return [(rows[train], rows[test]) for train, test in check_cv(cv, codes, classifier=True).split(X, codes)]
    except (TypeError, IndexError) as error:
        raise InputError(
            "cv must be a number of folds, a splitter of scikit-learn, or pairs of rows to train on and to hold out."
        ) from error


def hold_out(cells: Cells, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that are kept, and a share that is held out."""
    strata, held = cells.codes.numpy(), int(share * len(cells))
    sizes = np.unique(strata, return_counts=True)[1]
    if sizes.min() < 2 or min(held, len(cells) - held) < len(sizes):
        order = np.random.default_rng(seed).permutation(len(cells))
        return np.sort(order[: -max(held, 1)]), np.sort(order[-max(held, 1) :])
    ((kept, left),) = StratifiedShuffleSplit(1, test_size=share, random_state=seed).split(strata, strata)
    return np.sort(kept), np.sort(left)
