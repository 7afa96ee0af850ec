"""What a file may hold: entries with their types and shapes, checked by pydantic before anything is used."""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError, ValidationInfo

Finite = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(allow_inf_nan=False, ge=0)]
Positive = Annotated[float, Field(allow_inf_nan=False, gt=0)]
Whole = Annotated[int, Field(ge=0, lt=2**31)]
Scalar = bool | Annotated[int, Field(gt=-(2**63), lt=2**63)] | Finite | str | None
DTYPES = {float: "fiu", int: "iu", bool: "b"}


def checked(entries: Mapping[str, Any], found: Any, *, optional: Mapping[str, Any] | None = None, **sizes: int) -> Any:
    """Return the entries of a file as their types say, or raise a ValueError that says in a line what is wrong.

    Parameters
    ----------
    entries, optional : mapping
        The type of every entry that must be there, and of those that may be: pydantic's, or made by :func:`array` and the
        like. There are no others.
    found : object
    **sizes
        Dimensions that are known. Others are as the first entry that has them.
    """
    if not isinstance(found, dict):
        raise ValueError(f"a dictionary is needed, got {type(found).__name__}")  # noqa: TRY004 - one kind for all damage
    if strange := {*found} - {*entries, *(optional or {})}:
        raise ValueError(f"{min(map(str, strange))[:80]!r} is not known")
    if missing := {*entries} - {*found}:
        raise ValueError(f"{min(missing)!r} is missing")
    types = {**entries, **(optional or {})}
    return {name: _one(name, types[name], value, sizes) for name, value in found.items()}


def _one(name: str, kind: Any, value: Any, sizes: dict[str, int]) -> Any:
    try:
        return TypeAdapter(kind, config=ConfigDict(strict=True)).validate_python(value, context=sizes)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{name}: {first['msg']}"[:200]) from error


def array(*dimensions: str | None, dtype: type = float, finite: bool = True, least: float = -np.inf) -> Any:
    """Return the type of an array of numbers, by default finite ones, of at least so much.

    Dimensions of the same name have the same size in a whole file; one that is None has any.
    """

    def check(value: Any, info: ValidationInfo) -> np.ndarray:
        try:
            found = np.asarray(value)
        except (TypeError, OverflowError) as error:
            raise ValueError(str(error)) from error
        if found.dtype.kind not in DTYPES[dtype] and found.size > 0:
            raise ValueError(f"{dtype.__name__} is needed, got {found.dtype}")
        if found.ndim != len(dimensions):
            raise ValueError(f"{len(dimensions)} dimensions are needed, got {found.ndim}")
        for name, size in zip(dimensions, found.shape, strict=True):
            agree(info, name, size)
        if finite and found.dtype.kind == "f" and not np.isfinite(found).all():
            raise ValueError("holds numbers that are not finite")
        if (found < least).any():
            raise ValueError(f"holds numbers below {least:g}")
        return found.astype(float) if dtype is float and found.dtype.kind != "f" else found

    return Annotated[np.ndarray, PlainValidator(check)]


def several(kind: Any) -> Any:
    """Return the type of a list of things of one type."""
    return list[kind]


def agree(info: ValidationInfo, name: str | None, size: int) -> None:
    """Refuse a size that is not that of the dimension of this name elsewhere in the file."""
    if name is not None and info.context is not None and size != (known := info.context.setdefault(name, size)):
        raise ValueError(f"has the size {size} where {known} is needed")


def labels(name: str, *, strings: bool = False) -> Any:
    """Return the type of an array of labels that are all different: strings, or numbers too."""
    allowed: Any = str if strings else str | int | float

    def check(value: Any, info: ValidationInfo) -> np.ndarray:
        items = value.tolist() if isinstance(value, np.ndarray) else value
        if not isinstance(items, list) or not all(isinstance(item, allowed) for item in items):
            raise ValueError("a list of strings is needed" if strings else "a list of strings or numbers is needed")
        if len({*map(str, items)}) < len(items):
            raise ValueError("holds a label twice")
        agree(info, name, len(items))
        return value if isinstance(value, np.ndarray) else np.array(items)

    return Annotated[np.ndarray, PlainValidator(check)]


def strings(name: str) -> Any:
    """Return the type of a list of strings."""

    def check(value: list[str], info: ValidationInfo) -> list[str]:
        agree(info, name, len(value))
        return value

    return Annotated[list[str], AfterValidator(check)]


def size(name: str) -> Any:
    """Return the type of a whole number that is the size of a dimension."""

    def check(value: int, info: ValidationInfo) -> int:
        agree(info, name, value)
        return value

    return Annotated[Whole, AfterValidator(check)]
