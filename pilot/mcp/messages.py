"""Protobuf messages → plain data, as users write it in files.

Unlike protobuf's JSON, whole numbers stay numbers, of whatever size, since that is what files have.
https://protobuf.dev/programming-guides/json/
"""

from __future__ import annotations

import base64
import math
from typing import Any

from google.protobuf import descriptor

_Field = descriptor.FieldDescriptor
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


def plain_message(message: Any) -> Any:
    """Returns a message by the JSON names of its fields, without those that are not set. ValueError where protobuf's JSON has no form of it."""
    of = message.DESCRIPTOR
    if of.full_name == "google.protobuf.Struct":
        return {key: _value(value) for key, value in message.fields.items()}
    if of.full_name == "google.protobuf.Value":
        return _value(message)
    if of.full_name == "google.protobuf.ListValue":
        return [_value(value) for value in message.values]
    if of.full_name in ("google.protobuf.Duration", "google.protobuf.Timestamp"):
        return message.ToJsonString()
    if of.full_name in _WRAPPERS:
        return _scalar(of.fields_by_name["value"], message.value)
    return {field.json_name: _field(field, value) for field, value in message.ListFields()}


def _field(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        item = field.message_type.fields_by_name["value"]
        return {str(key): _single(item, inner) for key, inner in value.items()}
    if field.is_repeated:
        return [_single(field, item) for item in value]
    return _single(field, value)


def _single(field: Any, value: Any) -> Any:
    return plain_message(value) if field.message_type is not None else _scalar(field, value)


def _scalar(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    if field.type == _Field.TYPE_BYTES:
        return base64.b64encode(value).decode()
    return _number(value) if isinstance(value, float) else value


def _value(value: Any) -> Any:
    """Returns what a google.protobuf.Value holds; whole numbers are integers, which it has no way to tell apart."""
    match value.WhichOneof("kind"):
        case "struct_value":
            return plain_message(value.struct_value)
        case "list_value":
            return plain_message(value.list_value)
        case "number_value":
            return _number(value.number_value)
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
    return None


def _number(value: float) -> int | float:
    if math.isinf(value) or math.isnan(value):
        raise ValueError("a number is not finite")
    return int(value) if value.is_integer() else value
