"""Encoding and decoding of objects on the wire."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from google.protobuf import any_pb2, struct_pb2

from pilot.config.catalogue import CATALOGUE
from pilot.config.kind import AnyKind
from pilot.ingest.decode import decode_document
from pilot.mcp.object_types import ObjectType, parse_object_type, spec_message
from pilot.mcp.wire import RESOURCE, InvalidResourceError, decode_object, encode_object, message_to_builtins
from protos.istio import authorization_policy_pb2, destination_rule_pb2, resource_pb2, workload_entry_pb2

ENTRY = ObjectType("networking.istio.io", "v1", "WorkloadEntry")
ROUTE = ObjectType("gateway.networking.k8s.io", "v1", "HTTPRoute")
KINDS = [kind for kind in CATALOGUE if kind.is_over_xds]


def structs(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from structs(argument)


def missing_fields(
    struct: type[msgspec.Struct], message: Any, path: str, visited: set[Any], excluded: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield the fields of a struct that the message lacks."""
    if (struct, message.full_name) in visited or message.full_name.startswith("google.protobuf."):
        return
    visited.add((struct, message.full_name))
    fields = {field.json_name: field for field in message.fields}
    hints = typing.get_type_hints(struct)
    for field in msgspec.structs.fields(struct):
        if field.encode_name in excluded:
            continue
        message_field, field_path = fields.get(field.encode_name), f"{path}.{field.encode_name}"
        if message_field is None:
            yield field_path
        elif message_field.message_type is not None:
            entry = message_field.message_type.GetOptions().map_entry
            inner = (
                message_field.message_type.fields_by_name["value"].message_type if entry else message_field.message_type
            )
            for nested in structs(hints[field.name]) if inner is not None else ():
                yield from missing_fields(nested, inner, field_path, visited)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=str(kind.id)) for kind in KINDS if kind.id.group.endswith(".istio.io")]
)
def test_message_has_all_fields_of_the_kind(kind: AnyKind) -> None:
    message = spec_message(ObjectType(kind.id.group, kind.versions[0], kind.id.name)).DESCRIPTOR
    assert message.full_name != "google.protobuf.Struct"
    assert list(missing_fields(kind.struct, message, "spec", set(), kind.parts)) == []


def test_objects_round_trip() -> None:
    labels = {"labels": {"x": "y"}, "annotations": {"istio.io/a": "b"}}
    metadata = {"namespace": "shop", "name": "a", **labels, "creationTimestamp": "2026-01-02T03:04:05Z"}
    spec = {"address": "10.0.0.1", "ports": {"http": 8080}, "labels": {"app": "a"}, "weight": 3}
    decoded = decode_object(ENTRY, RESOURCE, encode_object(ENTRY, metadata, spec))
    assert decoded == (
        "shop",
        "a",
        {"apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", "metadata": metadata, "spec": spec},
    )


def test_fields_of_a_newer_message_are_unknown_fields() -> None:
    policy = authorization_policy_pb2.AuthorizationPolicy()
    source = policy.rules.add()
    getattr(source, "from").add().source.MergeFromString(b"\x0a\x01a\xba\x3e\x03new")
    assert message_to_builtins(policy) == {
        "rules": [{"from": [{"source": {"principals": ["a"], "unknownField999": True}}]}]
    }
    decoded = decode_document(
        {
            "apiVersion": "security.istio.io/v1",
            "kind": "AuthorizationPolicy",
            "metadata": {"name": "a"},
            "spec": message_to_builtins(policy),
        }
    )
    assert decoded.entries[0].object.spec.rules == ()  # fails closed
    assert [p.path for p in decoded.problems] == ["spec.rules[0]", "spec.rules[0].from[0].source.unknownField999"]


def test_kinds_without_message_use_structs() -> None:
    spec = {
        "rules": [{"backendRefs": [{"name": "a", "port": 80, "weight": 2}], "ratio": 0.5, "on": True, "none": None}]
    }
    assert (
        decode_object(ROUTE, RESOURCE, encode_object(ROUTE, {"namespace": "shop", "name": "a"}, spec)).plain["spec"]
        == spec
    )


def test_versions_identify_content() -> None:
    encoded = [
        encode_object(ENTRY, {"name": "a"}, {"address": address}) for address in ("1.1.1.1", "1.1.1.1", "2.2.2.2")
    ]
    first, second, third = (resource_pb2.Resource.FromString(data).metadata.version for data in encoded)
    assert first == second != third
    assert (first, third) == ("8cc36b1802b500d2", "90ffd0cc23103151")


def test_zero_creation_time_is_omitted() -> None:
    resource = resource_pb2.Resource.FromString(encode_resource())
    resource.metadata.create_time.FromSeconds(0)
    assert decode_object(ENTRY, RESOURCE, resource.SerializeToString()).plain["metadata"] == {
        "namespace": "shop",
        "name": "a",
    }
    resource.metadata.create_time.seconds = 2**40
    with pytest.raises(InvalidResourceError, match=r"^metadata\.create_time: "):
        decode_object(ENTRY, RESOURCE, resource.SerializeToString())


def test_encoding_is_independent_of_label_order() -> None:
    names = [f"key{number:02}" for number in range(40)]
    labels = [dict.fromkeys(order, "x") for order in (names, reversed(names))]
    data = [
        encode_object(ENTRY, {"name": "a", "labels": mapping, "annotations": mapping}, {"labels": mapping})
        for mapping in labels
    ]
    assert data[0] == data[1]
    places = [data[0].index(name.encode()) for name in names]
    assert places == sorted(places)
    spec = resource_pb2.Resource.FromString(data[0]).body.value
    assert [spec.index(name.encode()) for name in names] == sorted(spec.index(name.encode()) for name in names)


def test_message_to_builtins() -> None:
    policy = destination_rule_pb2.TrafficPolicy()
    policy.load_balancer.consistent_hash.ring_hash.minimum_ring_size = 2**40
    policy.outlier_detection.consecutive_5xx_errors.value = 0
    policy.outlier_detection.interval.FromMilliseconds(1500)
    policy.load_balancer.warmup.minimum_percent.value = 12.5
    assert message_to_builtins(policy) == {
        "loadBalancer": {
            "consistentHash": {"ringHash": {"minimumRingSize": 2**40}},
            "warmup": {"minimumPercent": 12.5},
        },
        "outlierDetection": {"consecutive5xxErrors": 0, "interval": "1.500s"},
    }


def encode_resource(name: str = "shop/a", type_url: str = "", value: bytes = b"") -> bytes:
    body = any_pb2.Any(type_url=type_url or "type.googleapis.com/istio.networking.v1alpha3.WorkloadEntry", value=value)
    data: bytes = resource_pb2.Resource(metadata=resource_pb2.Metadata(name=name), body=body).SerializeToString()
    return data


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha3"])
def test_body_api_version_is_ignored(version: str) -> None:
    value = workload_entry_pb2.WorkloadEntry(address="1.1.1.1").SerializeToString()
    decoded = decode_object(
        ENTRY,
        RESOURCE,
        encode_resource(type_url=f"type.googleapis.com/istio.networking.{version}.WorkloadEntry", value=value),
    )
    assert decoded.plain["spec"] == {"address": "1.1.1.1"}


@pytest.mark.parametrize(
    ("type_url", "data", "object_name", "message"),
    [
        ("", b"", "", "expected type.googleapis.com/istio.mcp.v1alpha1.Resource"),
        (
            "type.googleapis.com/google.protobuf.Empty",
            b"",
            "",
            "expected type.googleapis.com/istio.mcp.v1alpha1.Resource",
        ),
        (RESOURCE, b"\xff\xff", "", "not a valid Resource"),
        (RESOURCE, encode_resource(name=""), "", "is not namespace/name"),
        (RESOURCE, encode_resource(name="a"), "", "is not namespace/name"),
        (RESOURCE, encode_resource(name="a/b/c"), "", "is not namespace/name"),
        (
            RESOURCE,
            encode_resource(type_url="type.googleapis.com/istio.networking.v1alpha3.Gateway"),
            "shop/a",
            "got istio.networking.v1alpha3.Gateway",
        ),
        (
            RESOURCE,
            resource_pb2.Resource(metadata=resource_pb2.Metadata(name="shop/a")).SerializeToString(),
            "shop/a",
            "got nothing",
        ),
        (RESOURCE, encode_resource(value=b"\xff\xff"), "shop/a", "not a valid istio.networking.v1alpha3.WorkloadEntry"),
    ],
)
def test_invalid_resources(type_url: str, data: bytes, object_name: str, message: str) -> None:
    with pytest.raises(InvalidResourceError, match=message.replace(".", r"\.")) as caught:
        decode_object(ENTRY, type_url, data)
    assert f"{caught.value.namespace}/{caught.value.name}".strip("/") == object_name
    assert caught.value.args == (str(caught.value),)


def test_infinite_number_is_rejected() -> None:
    struct = struct_pb2.Struct()
    struct.fields["a"].number_value = float("inf")
    data = encode_resource(type_url="type.googleapis.com/google.protobuf.Struct", value=struct.SerializeToString())
    with pytest.raises(InvalidResourceError, match="not finite"):
        decode_object(ROUTE, RESOURCE, data)


@pytest.mark.parametrize(
    "url", ["", "a", "a/b", "a/b/", "a//b", "a/b/c/d", "type.googleapis.com/envoy.config.cluster.v3.Cluster"]
)
def test_other_type_urls_are_not_object_types(url: str) -> None:
    assert parse_object_type(url) is None


def test_kinds_without_group_use_core() -> None:
    assert str(ObjectType("", "v1", "Service")) == "core/v1/Service"
    assert parse_object_type("core/v1/Service") == ObjectType("", "v1", "Service")
