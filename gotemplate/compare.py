"""The comparison functions eq, ne, lt, le, gt and ge."""

from __future__ import annotations

from typing import Any

from gotemplate.errors import ActionError
from gotemplate.printf import sprintf
from gotemplate.values import Enum, GoStruct, type_name


def _basic(value: Any) -> str:
    """Return the basic kind of a value, or "" if it has none. Only values of the same kind are comparable."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, Enum):
        return "int"
    if isinstance(value, int):
        return "int"
    if isinstance(value, float):
        return "float"
    return "string" if isinstance(value, str) else ""


def _incompatible(first: Any, other: Any) -> ActionError:
    return ActionError(f"incompatible types for comparison: {type_name(first)} and {type_name(other)}")


def equal(first: Any, *others: Any) -> bool:
    """Return whether the first value equals any of the others."""
    if not others:
        raise ActionError("missing argument for comparison")
    return any(_same(first, other) for other in others)


def _same(first: Any, other: Any) -> bool:
    if type(first) is str and type(other) is str:
        return first == other
    kind, theirs = _basic(first), _basic(other)
    if kind != theirs:
        if first is not None and other is not None:
            raise _incompatible(first, other)
        return False
    if kind:
        return bool(first == other)
    if first is None or other is None:
        return first is other
    for value in (first, other):
        if isinstance(value, list | dict):
            raise ActionError(f"non-comparable type {sprintf('%s', value)}: {type_name(value)}")
    return isinstance(first, GoStruct) and first is other


def unequal(first: Any, other: Any) -> bool:
    """Return whether two values differ."""
    return not _same(first, other)


def less(first: Any, other: Any) -> bool:
    """Return whether the first value is less than the other. Only numbers and strings are ordered."""
    kind, theirs = _basic(first), _basic(other)
    for operand_kind in (kind, theirs):
        if not operand_kind:
            raise ActionError("invalid type for comparison")
    if kind != theirs:
        raise _incompatible(first, other)
    if kind == "bool":
        raise ActionError("invalid type for comparison")
    return bool(first < other)


def less_or_equal(first: Any, other: Any) -> bool:
    """Return whether the first value is less than or equal to the other."""
    return less(first, other) or _same(first, other)


def greater(first: Any, other: Any) -> bool:
    """Return whether the first value is greater than the other."""
    return not less_or_equal(first, other)


def greater_or_equal(first: Any, other: Any) -> bool:
    """Return whether the first value is greater than or equal to the other."""
    return not less(first, other)
