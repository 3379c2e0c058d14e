"""Packs messages inside of messages: as an Any, or as a TypedStruct where only Istio's build of Envoy knows the type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import any_pb2
from udpa.type.v1 import typed_struct_pb2

TYPE_PREFIX = "type.googleapis.com/"


def pack(message: Any) -> any_pb2.Any:
    """Returns a message as an Any; its map fields are in one order, so that equal messages are equal bytes."""
    return any_pb2.Any(
        type_url=TYPE_PREFIX + message.DESCRIPTOR.full_name, value=message.SerializeToString(deterministic=True)
    )


def pack_struct(full_name: str, fields: Mapping[str, Any]) -> any_pb2.Any:
    """Returns a message by its fields as JSON, which spares us its descriptor."""
    struct = typed_struct_pb2.TypedStruct(type_url=TYPE_PREFIX + full_name)
    struct.value.update(dict(fields))
    return pack(struct)
