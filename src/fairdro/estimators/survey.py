"""One pass over a table larger than memory: its columns, classes and groups, added up over all processes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from fairdro._utils.parts import Parts
from fairdro._utils.progress import OnStep
from fairdro.errors import InputError
from fairdro.estimators.columns import (
    as_pandas,
    check_columns,
    check_drop,
    known,
    labels_of,
    plain,
    sensitive_columns,
    without_group,
)
from fairdro.estimators.summaries import Summary, summaries_of
from fairdro.groups import Groups, encode_groups, refuse_missing
from fairdro.training.processes import agreed, gathered_arrays, gathered_text, rank, world
from fairdro.training.rows import draws_of

MOST_CELLS = 100_000


@dataclass(frozen=True)
class Batch:
    """Some rows that have a target.

    Attributes
    ----------
    keys : pyarrow.Table
        Target and groups, under the names 0, 1, ...
    features : pyarrow.Table
    numbers : ndarray of int
        Of the rows in the table.
    lacking : int
        How many rows beside these have no target.
    """

    keys: pa.Table
    features: pa.Table
    numbers: np.ndarray
    lacking: int


class Source:
    """The rows of a table that this process reads: all, or its share.

    Parameters
    ----------
    parts : Parts
    target : str
    groups, drop : sequence of str
    """

    def __init__(self, parts: Parts, target: str, groups: Sequence[str], drop: Sequence[str]) -> None:
        check_columns(parts.schema.empty_table(), [target, *groups, *drop])
        check_drop(target, groups, drop)
        self.parts, self.target, self.groups = parts, target, list(groups)
        self.features = [name for name in parts.schema.names if name not in {target, *groups, *drop}]
        if not self.features:
            raise InputError("There is no column left to learn from, beside the target and the groups.")
        self.share = parts.share(rank(), world()) if world() > 1 else parts.parts

    def batches(self, on_step: OnStep | None) -> Iterator[Batch]:
        """Give the rows that have a target."""
        named = {self.target, *self.groups, *self.features}
        for table, numbers in self.parts.batches(named, parts=self.share, on_step=on_step):
            rows = known(table[self.target])
            some = table.filter(rows)
            lacking = table.num_rows - some.num_rows
            yield Batch(self.keys(some), some.select(self.features), numbers[rows.to_numpy()], lacking)

    def keys(self, table: pa.Table) -> pa.Table:
        """Return target and groups of some rows, without dictionaries and numbers that are none."""
        columns = {}
        for j, name in enumerate([self.target, *self.groups]):
            column = plain(table[name])
            columns[str(j)] = pa.compute.if_else(known(column), column, pa.scalar(None, column.type))
        return pa.table(columns)

    def survey(self, on_step: OnStep | None) -> Survey:
        """Pass over the rows, and add up what all processes found."""
        columns, lacking, cells = agreed(lambda: self._look(on_step))
        everywhere = _added_up([_from_bytes(part) for part in gathered_arrays(_to_bytes(cells))])
        own = np.zeros(everywhere.num_rows, dtype=np.int64)
        own[places(cells, everywhere)] = cells["rows"].to_numpy()
        return Survey(self, agreed(lambda: _of_all(columns)), sum(map(int, gathered_text(str(lacking)))), everywhere, own)

    def _look(self, on_step: OnStep | None) -> tuple[list[Summary], int, pa.Table]:
        columns, lacking = [Summary(name, 0, 0) for name in self.features], 0
        cells = _counted(self.keys(self.parts.schema.empty_table()))
        for batch in self.batches(on_step):
            lacking += batch.lacking
            if len(batch.numbers) == 0:
                continue
            found = summaries_of(as_pandas(batch.features), draws_of(batch.numbers))
            columns = [before + more for before, more in zip(columns, found, strict=True)]
            cells = _added_up([cells, _counted(batch.keys)])
            if cells.num_rows > MOST_CELLS:
                raise InputError("The target and the groups have too many different values; put them into fewer.")
        return columns, lacking, cells


@dataclass(frozen=True)
class Survey:
    """What a pass over a table finds, in the files of all processes.

    Attributes
    ----------
    source : Source
    columns : list of Summary
        Of the features.
    lacking : int
        Rows without a target, which are left out.
    cells : pyarrow.Table
        The combinations of target and groups that occur, and their number of ``rows``.
    own : ndarray of int
        How many rows of each this process has.
    """

    source: Source
    columns: list[Summary]
    lacking: int
    cells: pa.Table
    own: np.ndarray

    @property
    def rows(self) -> int:
        """How many have a target."""
        return int(pa.compute.sum(self.cells["rows"]).as_py() or 0)

    @cached_property
    def labels(self) -> np.ndarray:
        """The class of every combination."""
        return labels_of(self.cells["0"], self.source.target)

    def groups(self, missing_groups: str) -> tuple[Groups, list[str]]:
        """Return the group of every combination, and what there is to say of rows without one."""
        names = self.source.groups
        values = pa.table({name: self.cells[str(j + 1)] for j, name in enumerate(names)})
        strings = sensitive_columns(values, names, missing_groups, [])
        rows = self.cells["rows"].to_numpy()
        lacking = {name: int(rows[values[name].is_null().to_numpy()].sum()) for name in names}
        for name, number in lacking.items():
            refuse_missing(number, self.rows, f"sensitive feature {name!r}", missing_groups)
        notes = [without_group(number, name) for name, number in lacking.items() if number and missing_groups == "group"]
        return encode_groups(strings, missing_groups, counts=rows), notes


def _of_all(columns: list[Summary]) -> list[Summary]:
    """Return what all processes found of every column."""
    if world() == 1:
        return columns
    states = [json.loads(text) for text in gathered_text(json.dumps([column.to_state() for column in columns]))]
    found = []
    for j, column in enumerate(columns):
        numbers = gathered_arrays(np.concatenate([np.empty(0), *column.numbers]))
        draws = gathered_arrays(np.concatenate([np.empty(0, dtype=np.int64), *column.draws]))
        first, *others = (
            Summary(**state[j], numbers=(part,), draws=(drawn,))
            for state, part, drawn in zip(states, numbers, draws, strict=True)
        )
        found.append(sum(others, first))
    return found


def _counted(keys: pa.Table) -> pa.Table:
    return _added_up([keys.append_column("rows", pa.array(np.ones(keys.num_rows, dtype=np.int64)))])


def _added_up(cells: list[pa.Table]) -> pa.Table:
    """Return every combination once, with all its rows."""
    table = pa.concat_tables(cells)
    names = [name for name in table.column_names if name != "rows"]
    try:
        return table.group_by(names).aggregate([("rows", "sum")]).rename_columns([*names, "rows"])
    except pa.ArrowNotImplementedError as error:
        raise InputError("The target and the groups must be numbers, strings, dates or the like, not lists.") from error


def _to_bytes(table: pa.Table) -> np.ndarray:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return np.frombuffer(sink.getvalue(), dtype=np.uint8)


def _from_bytes(content: np.ndarray) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(content.tobytes())) as reader:
        return reader.read_all()


def places(keys: pa.Table, cells: pa.Table) -> np.ndarray:
    """Return for every row of ``keys`` the row of ``cells`` that it is."""
    flat, of_cells = np.zeros(keys.num_rows, dtype=np.int64), np.zeros(cells.num_rows, dtype=np.int64)
    for name in (name for name in cells.column_names if name != "rows"):
        values = pa.compute.unique(cells[name])
        flat = flat * len(values) + pa.compute.index_in(keys[name], values).to_numpy()
        of_cells = of_cells * len(values) + pa.compute.index_in(cells[name], values).to_numpy()
    order = np.argsort(of_cells)
    return order[np.searchsorted(of_cells, flat, sorter=order)]
