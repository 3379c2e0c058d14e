"""Messages of the mesh's configuration in protobuf's JSON: fields that are zero are left out."""

from __future__ import annotations

import functools
import typing
from typing import Any

import msgspec
from msgspec import inspect as mi

from pilot.lib.duration import Duration


def plain_message(message: msgspec.Struct, built_in: msgspec.Struct | None = None) -> dict[str, Any]:
    """Returns the fields of a message by their JSON names. Those are left out that are zero, and those that equal the message `built_in`."""
    found: dict[str, Any] = {}
    for name, encoded, zero in _fields(type(message)):
        value = getattr(message, name)
        if (
            value is None
            or (zero is not _NO_ZERO and value == zero)
            or (built_in is not None and value == getattr(built_in, name))
        ):
            continue
        found[encoded] = _plain(value)
    return found


def message_json(message: msgspec.Struct, built_in: msgspec.Struct | None = None) -> str:
    """Returns `plain_message` as JSON."""
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
    """Returns the attribute, the JSON name and the zero of each field; those that may be absent have no zero."""
    info = mi.type_info(kind)
    assert isinstance(info, mi.StructType)
    return tuple((field.name, field.encode_name, _zero(field.type, kind, field.name)) for field in info.fields)


@functools.cache
def zero_of_enum(kind: type[msgspec.Struct], field: str) -> str:
    """Returns the value that a field of an enum has where nothing is said: the first one of its declaration."""
    declared = typing.get_type_hints(kind)[field]
    named = next((t for t in (declared, *typing.get_args(declared)) if typing.get_origin(t) is typing.Literal), None)
    return str(typing.get_args(named)[0])


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
