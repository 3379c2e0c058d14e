"""eq, ne, lt, le, gt and ge of templates."""

from __future__ import annotations

from typing import Any

from gotemplate.errors import ActionError
from gotemplate.printf import sprintf
from gotemplate.values import Enum, GoStruct, type_name


def _basic(value: Any) -> str:
    """Returns the kind that decides what a value can be compared with; "" where it is of none."""
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
    """Returns whether the first value equals any of the others."""
    if not others:
        raise ActionError("missing argument for comparison")
    return any(_same(first, other) for other in others)


def _same(first: Any, other: Any) -> bool:
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
    """Returns whether two values differ."""
    return not _same(first, other)


def less(first: Any, other: Any) -> bool:
    """Returns whether a value comes before another one; numbers and text have an order."""
    kind, theirs = _basic(first), _basic(other)
    for found in (kind, theirs):
        if not found:
            raise ActionError("invalid type for comparison")
    if kind != theirs:
        raise _incompatible(first, other)
    if kind == "bool":
        raise ActionError("invalid type for comparison")
    return bool(first < other)


def less_or_equal(first: Any, other: Any) -> bool:
    """Returns whether a value comes before another one, or equals it."""
    return less(first, other) or _same(first, other)


def greater(first: Any, other: Any) -> bool:
    """Returns whether a value comes after another one."""
    return not less_or_equal(first, other)


def greater_or_equal(first: Any, other: Any) -> bool:
    """Returns whether a value comes after another one, or equals it."""
    return not less(first, other)
