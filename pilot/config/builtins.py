"""Converts configuration structs to JSON-compatible built-in types."""

from __future__ import annotations

import enum
import functools
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from pilot.lib.duration import Duration

EXACT = 2**53
"""The limit below which a float can represent every whole number exactly."""


def to_builtins(value: Any, with_defaults: bool = False) -> Any:
    """Return a struct as a dict with JSON names.

    Durations become strings such as "1.5s", whole floats become integers, and sets become sorted lists. Fields with
    their default value are omitted. If `with_defaults` is set, only the fields that protobuf's JSON format would omit
    are omitted.
    """
    if isinstance(value, msgspec.Struct):
        fields = _struct_fields(type(value))
        return {
            field.encode_name: to_builtins(getattr(value, field.name), with_defaults)
            for field in fields
            if _is_included(value, field, with_defaults)
        }
    if isinstance(value, Duration):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): to_builtins(item, with_defaults) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(to_builtins(item, with_defaults) for item in value)
    if isinstance(value, list | tuple):
        return [to_builtins(item, with_defaults) for item in value]
    return value


def _is_included(struct: msgspec.Struct, field: msgspec.structs.FieldInfo, with_defaults: bool) -> bool:
    value = getattr(struct, field.name)
    if value is None or (isinstance(value, tuple | list | Mapping) and not value):
        return False
    if with_defaults:
        if isinstance(value, Duration) or field.default is None:
            return True  # set explicitly, even if false or 0
        return bool(value) and value != _zero_values(type(struct)).get(field.name)
    return field.required or bool(value != field.default)


@functools.cache
def _struct_fields(struct: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a struct. The result is cached because msgspec evaluates the annotations on every call."""
    return msgspec.structs.fields(struct)


@functools.cache
def _zero_values(struct: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return a mapping from each enum field to the name of the enum's zero value."""
    return {
        f.name: typing.get_args(f.type)[0]
        for f in _struct_fields(struct)
        if typing.get_origin(f.type) is typing.Literal
    }
