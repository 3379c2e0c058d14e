"""Access to the fields and methods of values, and iteration for range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gotemplate.errors import ActionError
from gotemplate.printing import to_text
from gotemplate.values import Enum, GoStruct, StringMap, type_name

_MISSING = object()
_WITH_MEMBERS = GoStruct, Enum


def read_fields(receiver: Any, names: tuple[str, ...], from_map: bool = False) -> Any:
    """Return the value of a chain of fields, or None if a map lacks a key.

    `from_map` means that the receiver is a map entry. Raises ActionError if a value has no such field, or if a nil map
    entry is accessed.
    """
    if receiver is None and not from_map:
        return None
    for name in names:
        if type(receiver) is dict:  # the most frequent type
            receiver, from_map = receiver.get(name, _MISSING), True
            if receiver is _MISSING:
                return None
        elif isinstance(receiver, _WITH_MEMBERS):
            receiver, from_map = receiver.member(name), False
        elif isinstance(receiver, dict):
            from_map = type(receiver) is not StringMap
            receiver = receiver.get(name, _MISSING)
            if receiver is _MISSING:
                return None
        elif receiver is None:
            raise ActionError(f"nil pointer evaluating interface {{}}.{name}")
        else:
            raise ActionError(
                f"can't evaluate field {name} in type {'interface {}' if from_map else type_name(receiver)}"
            )
    return receiver


def entries(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield a key and a value for each iteration of a range. Raises ActionError if the value is not iterable."""
    if isinstance(value, list):
        yield from enumerate(value)
    elif isinstance(value, dict):
        for key in sorted(value):
            yield key, value[key]
    elif isinstance(value, int) and not isinstance(value, bool):
        for index in range(value):
            yield index, index
    elif value is not None:
        raise ActionError(f"range can't iterate over {to_text(value)}")
