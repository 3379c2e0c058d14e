"""Mesh configuration in protobuf JSON. Fields with zero values are omitted."""

from __future__ import annotations

import functools
import typing
from typing import Any

import msgspec
from msgspec import inspect as mi

from pilot.lib.duration import Duration


def plain_message(message: msgspec.Struct, built_in: msgspec.Struct | None = None) -> dict[str, Any]:
    """Return the fields of a message, keyed by JSON name. Zero values and values equal to those of `built_in` are
    omitted."""
    result: dict[str, Any] = {}
    for name, encoded, zero in _fields(type(message)):
        value = getattr(message, name)
        if (
            value is None
            or (zero is not _NO_ZERO and value == zero)
            or (built_in is not None and value == getattr(built_in, name))
        ):
            continue
        result[encoded] = _plain(value)
    return result


def message_json(message: msgspec.Struct, built_in: msgspec.Struct | None = None) -> str:
    """Return a message as JSON, with the same fields as `plain_message`."""
    return msgspec.json.encode(plain_message(message, built_in)).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return plain_message(value)
    if isinstance(value, Duration):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(value[key]) for key in sorted(value)}
    return int(value) if isinstance(value, float) and value.is_integer() else value  # 10, not 10.0


_NO_ZERO: Any = object()


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    """Return the attribute, JSON name and zero value of each field. Optional fields have no zero value."""
    info = mi.type_info(kind)
    assert isinstance(info, mi.StructType)
    return tuple((field.name, field.encode_name, _zero(field.type, kind, field.name)) for field in info.fields)


@functools.cache
def zero_of_enum(kind: type[msgspec.Struct], field: str) -> str:
    """Return the default value of an enum field, which is the first declared value."""
    declared = typing.get_type_hints(kind)[field]
    literal = next((t for t in (declared, *typing.get_args(declared)) if typing.get_origin(t) is typing.Literal), None)
    return str(typing.get_args(literal)[0])


def _zero(kind: mi.Type, of: type[msgspec.Struct], field: str) -> Any:
    match kind:
        case mi.StrType():
            return ""
        case mi.BoolType():
            return False
        case mi.IntType() | mi.FloatType():
            return 0
        case mi.LiteralType():
            return zero_of_enum(of, field)
        case mi.DictType():
            return {}
        case mi.VarTupleType():
            return ()
    return _NO_ZERO
