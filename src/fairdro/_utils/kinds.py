"""Types of columns: which one holds the values of two, what it is called, and a table cast to others."""

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute

from fairdro._utils.files import holds_strings
from fairdro.errors import InputError

UNITS = ["s", "ms", "us", "ns"]
DICTIONARY = pa.dictionary(pa.int32(), pa.string())


def wider(a: pa.DataType, b: pa.DataType, *, bits: bool) -> pa.DataType:
    """Return the type of a column of CSV that holds values of two; ``bits`` says that its whole numbers are 0 and 1."""
    kinds = {a, b}
    if bits and kinds == {pa.int64(), pa.bool_()}:
        return pa.bool_()
    return common(a, b) or DICTIONARY


def common(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the type that holds values of two, None where one is no kind of the other."""
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if holds_strings(a) and holds_strings(b):
        return pa.large_string() if pa.large_string() in {a, b} else pa.string()
    if _is_number(a) and _is_number(b):
        whole = pa.types.is_integer(a) and pa.types.is_integer(b) and pa.uint64() not in {a, b}
        return pa.int64() if whole else pa.float64()
    if _is_moment(a) and _is_moment(b):
        stamps = [kind for kind in (a, b) if pa.types.is_timestamp(kind)] or [pa.timestamp("s")]
        zones = {kind.tz if pa.types.is_timestamp(kind) else None for kind in (a, b)}
        unit = max((kind.unit for kind in stamps), key=UNITS.index)
        return pa.timestamp(unit, *zones) if len(zones) == 1 else None
    return None


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_moment(kind: pa.DataType) -> bool:
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind)


def in_words(kind: pa.DataType) -> str:
    """Name a type as people do."""
    if holds_strings(kind):
        return "strings"
    if pa.types.is_timestamp(kind):
        return f"dates in the time zone {kind.tz}" if kind.tz else "dates without a time zone"
    return "numbers" if _is_number(kind) else "dates" if _is_moment(kind) else f"values of the kind {kind}"


def as_codes(types: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Return columns of which some that hold strings are dictionaries; all dictionaries are of one kind."""
    for j, field in enumerate(types):
        if pa.types.is_dictionary(field.type):
            types = types.set(j, field.with_type(pa.dictionary(pa.int32(), field.type.value_type)))
        elif field.name in names and holds_strings(field.type):
            types = types.set(j, field.with_type(pa.dictionary(pa.int32(), field.type)))
    return types


def conformed(table: pa.Table, types: pa.Schema) -> pa.Table:
    """Return the columns of a schema, cast to its types; whole numbers that are large may be rounded."""
    return pa.table([_cast(table[field.name], field) for field in types], schema=types)


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if pa.types.is_dictionary(field.type) and column.type != field.type:
        column = column.cast(field.type.value_type).dictionary_encode()
    options = pa.compute.CastOptions(field.type, allow_float_truncate=True, allow_decimal_truncate=True)
    try:
        return column.cast(options=options)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"The column {field.name!r} holds a value of the type {column.type} in one file that does not fit into the type "
            f"{field.type} of another; write all files with one type."
        ) from error
