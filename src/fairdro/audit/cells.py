"""Rows counted while they are read: how many there are of every combination of values in some columns."""

from collections.abc import Collection

import numpy as np
import pandas as pd
import pyarrow as pa

from fairdro.errors import InputError
from fairdro.estimators.columns import MAX_CLASSES, known
from fairdro.groups import MAX_GROUPS

MOST_CELLS = 100_000  # beyond, it is looked at whether an audit of these columns will be refused


class Cells:
    """The combinations of classes and groups that occur, in the order of their first rows, and how many rows each has.

    Parameters
    ----------
    classes, groups : collection of str
        Columns.
    """

    def __init__(self, classes: Collection[str], groups: Collection[str]) -> None:
        self.classes, self.groups = list(dict.fromkeys(classes)), list(groups)
        self.counts = np.empty(0, dtype=np.int64)
        self._values: dict[str, pa.Array] = {}
        self._places: dict[tuple[int, ...], int] = {}

    def add(self, table: pa.Table) -> np.ndarray:
        """Count some rows ``(N,)``, one at least, and return which combination each of them is."""
        by_column = [self._codes(table[name], name) for name in (*self.classes, *self.groups)]
        found = np.zeros(table.num_rows, dtype=np.int64)
        for codes in by_column:
            found = pd.factorize(found * (int(codes.max()) + 1) + codes)[0]  # numbered as they first occur
        first = np.empty(int(found.max()) + 1, dtype=np.int64)
        first[found[::-1]] = np.arange(len(found))[::-1]
        combinations = zip(*(codes[first].tolist() for codes in by_column), strict=True)
        places = np.array([self._places.setdefault(key, len(self._places)) for key in combinations], dtype=np.int32)
        if len(self._places) > MOST_CELLS:
            self._refuse_too_many()
        rows = places[found]
        counts = np.bincount(rows, minlength=len(self._places))
        counts[: len(self.counts)] += self.counts
        self.counts = counts
        return rows

    @property
    def table(self) -> pa.Table:
        """The combinations, a row each."""
        codes = np.array(list(self._places), dtype=np.int64)
        return pa.table({name: values.take(pa.array(codes[:, j])) for j, (name, values) in enumerate(self._values.items())})

    def _codes(self, column: pa.ChunkedArray, name: str) -> np.ndarray:
        """Return values as numbers, which stay the same from batch to batch; a missing one is a value."""
        if pa.types.is_floating(column.type):
            column = pa.compute.if_else(known(column), column, pa.scalar(None, column.type))
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        before = self._values.get(name, encoded.dictionary[:0])
        new = encoded.dictionary.filter(pa.compute.invert(pa.compute.is_in(encoded.dictionary, before)))
        self._values[name] = pa.concat_arrays([before, new])
        return pa.compute.index_in(encoded.dictionary, self._values[name]).to_numpy()[encoded.indices.to_numpy()]

    def _refuse_too_many(self) -> None:
        """Stop early where there will be too many classes or groups, however many rows are still to be read."""
        for name in self.classes:
            if len(self._values[name]) > MAX_CLASSES:
                raise InputError(
                    f"The column {name!r} has more than {MAX_CLASSES} different values, too many for classes; put its "
                    "values into fewer."
                )
        lacking = [pa.compute.index(self._values[name], None).as_py() for name in self.groups]
        groups = {key[len(self.classes) :] for key in self._places}
        whole = [key for key in groups if not any(code == null for code, null in zip(key, lacking, strict=True))]
        if len(whole) > MAX_GROUPS:
            raise InputError(
                f"The sensitive features make more than {MAX_GROUPS} groups, too many to mean anything; put values into "
                "bins."
            )
