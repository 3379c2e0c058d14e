"""Converts plain JSON values to the messages Struct, ListValue and Value, in steps.

https://protobuf.dev/reference/protobuf/google.protobuf/#struct
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

STEP = 32
"""Number of items that are converted in a step."""
NAMES = frozenset(f"google.protobuf.{name}" for name in ("ListValue", "Struct", "Value"))
"""The full names of the messages."""


def fill(message: Any, plain: Any) -> Generator[None, None, None]:
    """Set a Struct to a mapping, a ListValue to a list, or a Value to any JSON value."""
    match message.DESCRIPTOR.name:
        case "Struct":
            yield from _fill_struct(message, plain)
        case "ListValue":
            yield from _fill_list(message, plain)
        case _:
            yield from _fill_value(message, plain)


def _fill_struct(message: Any, plain: Mapping[str, Any]) -> Generator[None, None, None]:
    message.SetInParent()
    fields = message.fields
    for number, (key, item) in enumerate(plain.items()):
        if not _set_scalar(fields[key], item):
            yield from _fill_value(fields[key], item)
        if number % STEP == STEP - 1:
            yield


def _fill_list(message: Any, plain: Sequence[Any]) -> Generator[None, None, None]:
    message.SetInParent()
    values = message.values
    for number, item in enumerate(plain):
        value = values.add()
        if not _set_scalar(value, item):
            yield from _fill_value(value, item)
        if number % STEP == STEP - 1:
            yield


def _fill_value(message: Any, plain: Any) -> Generator[None, None, None]:
    if isinstance(plain, Mapping):
        yield from _fill_struct(message.struct_value, plain)
    elif isinstance(plain, list | tuple):
        yield from _fill_list(message.list_value, plain)
    elif not _set_scalar(message, plain):
        raise TypeError(f"unexpected type {type(plain).__name__}")


def _set_scalar(message: Any, plain: Any) -> bool:
    """Set a Value to a scalar. Return whether it is one."""
    if isinstance(plain, str):
        message.string_value = plain
    elif isinstance(plain, bool):
        message.bool_value = plain
    elif isinstance(plain, int | float):
        message.number_value = plain
    elif plain is None:
        message.null_value = 0
    else:
        return False
    return True
