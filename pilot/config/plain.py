"""Configuration structs as the JSON that their users wrote."""

from __future__ import annotations

import enum
import functools
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from pilot.lib.duration import Duration

EXACT = 2**53
"""Whole numbers below are told apart by floats."""


def plain(value: Any, whole: bool = False) -> Any:
    """Returns a struct as a dict by JSON names; durations as "1.5s"; 5 for 5.0; sets sorted. What is at its default is left out, but where `whole`
    only what is empty: what protobuf's JSON leaves out of a message."""
    if isinstance(value, msgspec.Struct):
        fields = _fields(type(value))
        return {
            field.encode_name: plain(getattr(value, field.name), whole)
            for field in fields
            if _said(value, field, whole)
        }
    if isinstance(value, Duration):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, whole) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(plain(item, whole) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item, whole) for item in value]
    return value


def _said(struct: msgspec.Struct, field: msgspec.structs.FieldInfo, whole: bool) -> bool:
    value = getattr(struct, field.name)
    if value is None or (isinstance(value, tuple | list | Mapping) and not value):
        return False
    if whole:
        if isinstance(value, Duration) or field.default is None:
            return True  # an explicit false or 0 of an optional field says something, and so does a message
        return bool(value) and value != _first_names(type(struct)).get(field.name)
    return field.required or bool(value != field.default)


@functools.cache
def _fields(struct: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Returns the fields of a struct; msgspec evaluates their annotations anew each time."""
    return msgspec.structs.fields(struct)


@functools.cache
def _first_names(struct: type[msgspec.Struct]) -> Mapping[str, str]:
    """Returns the fields that are one of some names, with the first of these: the one of number 0."""
    return {f.name: typing.get_args(f.type)[0] for f in _fields(struct) if typing.get_origin(f.type) is typing.Literal}
