"""A configuration object as istio.mcp.v1alpha1.Resource, and back as the plain data that a file would have.

https://github.com/istio/api/tree/master/mcp/v1alpha1
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from google.protobuf import any_pb2, json_format, timestamp_pb2
from google.protobuf.message import DecodeError

from pilot.mcp.messages import plain_message
from pilot.mcp.object_types import ObjectType, spec_message
from protos.istio import resource_pb2

RESOURCE = "type.googleapis.com/istio.mcp.v1alpha1.Resource"
_GOOGLE = "type.googleapis.com/"


class WireFault(ValueError):
    """A resource is not what its type says. `namespace` and `name` are those of the object, "" where not even that can be read."""

    def __init__(self, message: str, namespace: str = "", name: str = "") -> None:
        super().__init__(message)
        self.namespace, self.name = namespace, name


class ReceivedObject(NamedTuple):
    """An object as it came: its namespace, "" for one that is in none, its name, and the plain data that a file would have."""

    namespace: str
    name: str
    plain: dict[str, Any]


def encode_object(of: ObjectType, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> bytes:
    """Returns the serialized Resource of an object, of whose plain metadata name, namespace, labels, annotations and creationTimestamp are sent.

    Fields of the spec that the message has not, as users may not write them, are left out. The version is a digest of everything else.
    """
    message = json_format.ParseDict(dict(spec), spec_message(of)(), ignore_unknown_fields=True)
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


def decode_object(of: ObjectType, type_url: str, data: bytes) -> ReceivedObject:
    """Returns the object of a resource: `type_url` and `data` are those of its Any. WireFault where it is not of that kind."""
    if type_url != RESOURCE:
        raise WireFault(f"expected {RESOURCE}, got {type_url or 'nothing'}")
    try:
        resource = resource_pb2.Resource.FromString(data)
    except DecodeError as error:
        raise WireFault(f"this is no Resource: {error}") from error
    namespace, slash, name = resource.metadata.name.partition("/")
    if not slash or not name or "/" in name:
        raise WireFault(f"metadata.name: {resource.metadata.name!r} is not namespace/name")
    return ReceivedObject(
        namespace,
        name,
        {
            "apiVersion": of.api_version,
            "kind": of.kind,
            "metadata": _metadata(resource.metadata, namespace, name),
            "spec": _spec(of, resource.body, namespace, name),
        },
    )


def _metadata(head: Any, namespace: str, name: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "namespace": namespace,
        "name": name,
        "labels": dict(head.labels),
        "annotations": dict(head.annotations),
    }
    if head.HasField("create_time") and head.create_time != timestamp_pb2.Timestamp():
        try:
            made["creationTimestamp"] = head.create_time.ToJsonString()
        except ValueError as error:
            raise WireFault(f"metadata.create_time: {error}", namespace, name) from error
    return {field: value for field, value in made.items() if value}


def _spec(of: ObjectType, body: Any, namespace: str, name: str) -> dict[str, Any]:
    """Returns the spec of a body, whose message may be of another version of the kind: they are the same on the wire."""
    message = spec_message(of)()
    sent, expected = body.type_url.rpartition("/")[2], message.DESCRIPTOR
    if sent.rpartition(".")[2] != expected.name:
        raise WireFault(f"body: expected {expected.full_name}, got {sent or 'nothing'}", namespace, name)
    try:
        message.ParseFromString(body.value)
        spec = plain_message(message)
    except (DecodeError, ValueError) as error:
        raise WireFault(f"body: this is no {expected.full_name}: {error}", namespace, name) from error
    assert isinstance(spec, dict)
    return spec
