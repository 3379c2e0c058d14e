"""Converts between configuration objects and istio.mcp.v1alpha1.Resource.

https://github.com/istio/api/tree/master/mcp/v1alpha1
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from google.protobuf import any_pb2, descriptor, json_format, timestamp_pb2
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from pilot.mcp.object_types import ObjectType, spec_message
from protos.istio import resource_pb2

RESOURCE = "type.googleapis.com/istio.mcp.v1alpha1.Resource"
_GOOGLE = "type.googleapis.com/"
_Field = descriptor.FieldDescriptor
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class InvalidResourceError(ValueError):
    """A resource does not match its type. `namespace` and `name` identify the object, or are "" if they are unknown."""

    def __init__(self, message: str, namespace: str = "", name: str = "") -> None:
        super().__init__(message)
        self.namespace, self.name = namespace, name


class ReceivedObject(NamedTuple):
    """A received object. `namespace` is "" for cluster-scoped kinds. `plain` is the object as plain data."""

    namespace: str
    name: str
    plain: dict[str, Any]


# Encoding


def encode_object(object_type: ObjectType, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> bytes:
    """Return the serialized Resource of an object.

    It includes only these parts of the metadata: name, namespace, labels, annotations and creationTimestamp. Fields of
    the spec that the message does not have are omitted. The version is a digest of the content.
    """
    message = json_format.ParseDict(dict(spec), spec_message(object_type)(), ignore_unknown_fields=True)
    body = any_pb2.Any(
        type_url=_GOOGLE + message.DESCRIPTOR.full_name, value=message.SerializeToString(deterministic=True)
    )
    resource = resource_pb2.Resource(body=body)
    head = resource.metadata
    head.name = f"{metadata.get('namespace', '')}/{metadata['name']}"
    head.labels.update(metadata.get("labels", {}))
    head.annotations.update(metadata.get("annotations", {}))
    if created := metadata.get("creationTimestamp"):
        head.create_time.FromJsonString(created)
    head.version = hashlib.blake2b(resource.SerializeToString(deterministic=True), digest_size=8).hexdigest()
    encoded: bytes = resource.SerializeToString(deterministic=True)
    return encoded


# Decoding


def decode_object(object_type: ObjectType, type_url: str, data: bytes) -> ReceivedObject:
    """Return the object in a resource, which is given as the type URL and value of its Any.

    Raise InvalidResourceError if the resource is invalid or does not have the expected type.
    """
    if type_url != RESOURCE:
        raise InvalidResourceError(f"expected {RESOURCE}, got {type_url or 'nothing'}")
    try:
        resource = resource_pb2.Resource.FromString(data)
    except DecodeError as error:
        raise InvalidResourceError(f"not a valid Resource: {error}") from error
    namespace, slash, name = resource.metadata.name.partition("/")
    if not slash or not name or "/" in name:
        raise InvalidResourceError(f"metadata.name: {resource.metadata.name!r} is not namespace/name")
    return ReceivedObject(
        namespace,
        name,
        {
            "apiVersion": object_type.api_version,
            "kind": object_type.kind,
            "metadata": _metadata(resource.metadata, namespace, name),
            "spec": _spec(object_type, resource.body, namespace, name),
        },
    )


def _metadata(head: Any, namespace: str, name: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "namespace": namespace,
        "name": name,
        "labels": dict(head.labels),
        "annotations": dict(head.annotations),
    }
    if head.HasField("create_time") and head.create_time != timestamp_pb2.Timestamp():
        try:
            metadata["creationTimestamp"] = head.create_time.ToJsonString()
        except ValueError as error:
            raise InvalidResourceError(f"metadata.create_time: {error}", namespace, name) from error
    return {field: value for field, value in metadata.items() if value}


def _spec(object_type: ObjectType, body: Any, namespace: str, name: str) -> dict[str, Any]:
    """Return the spec in the body of a resource. The message may be of another version, whose encoding is the same."""
    message = spec_message(object_type)()
    actual, expected = body.type_url.rpartition("/")[2], message.DESCRIPTOR
    if actual.rpartition(".")[2] != expected.name:
        raise InvalidResourceError(f"body: expected {expected.full_name}, got {actual or 'nothing'}", namespace, name)
    try:
        message.ParseFromString(body.value)
        spec = message_to_builtins(message)
    except (DecodeError, ValueError) as error:
        raise InvalidResourceError(f"body: not a valid {expected.full_name}: {error}", namespace, name) from error
    assert isinstance(spec, dict)
    return spec


# Messages


def message_to_builtins(message: Any) -> Any:
    """Return a message as plain data, in the form that users write in files. Names are JSON names, and unset fields are
    omitted.

    Unlike in protobuf's JSON format, 64-bit integers are numbers. A field of a newer version of the message is named
    after its number, such as `unknownField12`, and has no value. Raise ValueError if JSON cannot represent the message.
    https://protobuf.dev/programming-guides/json/
    """
    message_type = message.DESCRIPTOR
    if message_type.full_name == "google.protobuf.Struct":
        return {key: _value(value) for key, value in message.fields.items()}
    if message_type.full_name == "google.protobuf.Value":
        return _value(message)
    if message_type.full_name == "google.protobuf.ListValue":
        return [_value(value) for value in message.values]
    if message_type.full_name in ("google.protobuf.Duration", "google.protobuf.Timestamp"):
        return message.ToJsonString()
    if message_type.full_name in _WRAPPERS:
        return _scalar(message_type.fields_by_name["value"], message.value)
    fields = {field.json_name: _field(field, value) for field, value in message.ListFields()}
    unknown = UnknownFieldSet(message)
    return {**fields, **{f"unknownField{unknown[index].field_number}": True for index in range(len(unknown))}}


def _field(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        item = field.message_type.fields_by_name["value"]
        return {str(key): _single(item, inner) for key, inner in value.items()}
    if field.is_repeated:
        return [_single(field, item) for item in value]
    return _single(field, value)


def _single(field: Any, value: Any) -> Any:
    return message_to_builtins(value) if field.message_type is not None else _scalar(field, value)


def _scalar(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        enum_value = field.enum_type.values_by_number.get(value)
        return enum_value.name if enum_value is not None else value
    if field.type == _Field.TYPE_BYTES:
        return base64.b64encode(value).decode()
    return _number(value) if isinstance(value, float) else value


def _value(value: Any) -> Any:
    """Return the content of a google.protobuf.Value. It has no integers, so whole numbers are converted to integers."""
    match value.WhichOneof("kind"):
        case "struct_value":
            return message_to_builtins(value.struct_value)
        case "list_value":
            return message_to_builtins(value.list_value)
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
