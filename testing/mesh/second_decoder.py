"""A cross-check of Envoy messages with envoy-data-plane, a decoder that shares no code with ours."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator
from typing import Any

import betterproto2
from envoy_data_plane.google.protobuf import Any as SecondAny
from envoy_data_plane.message_pool import default_message_pool
from google.protobuf import any_pb2, descriptor_pool, message_factory

UNSUPPORTED = frozenset(
    {  # by the second decoder
        "istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig",
        "istio.networking.nds.v1.NameTable",
        "istio.security.Authorization",
        "istio.workload.Address",
        "istio.workload.Workload",
        "stats.PluginConfig",
        "udpa.type.v1.TypedStruct",
        "xds.type.matcher.v3.IPMatcher",
    }
)


def check_same_content(any_bytes: bytes) -> int:
    """Decode a serialized Any, and every Any in it, with both decoders. Return the number of messages compared.

    The second decoder must know every field, and its encoding must be equal to the original for the first.
    """
    outer = any_pb2.Any.FromString(any_bytes)
    name = outer.type_url.rpartition("/")[2]
    if name in UNSUPPORTED:
        return 0
    second = _second_class(name).parse(outer.value)
    count = 0
    for message in _messages(second):
        assert not message._unknown_fields, (
            f"{type(message).__name__} in {name}: unknown fields {message._unknown_fields!r}"
        )
        if isinstance(message, SecondAny):
            count += check_same_content(bytes(message))
    first = message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(name))
    assert first.FromString(bytes(second)) == first.FromString(outer.value), name
    return count + 1


def _second_class(name: str) -> Any:
    importlib.import_module(f"envoy_data_plane.{name.rpartition('.')[0]}")  # importing registers
    return default_message_pool.url_to_type[f"type.googleapis.com/{name}"]


def _messages(value: Any) -> Iterator[betterproto2.Message]:
    if isinstance(value, betterproto2.Message):
        yield value
        for field in dataclasses.fields(value):  # type: ignore[arg-type]
            yield from _messages(getattr(value, field.name))
    elif isinstance(value, list):
        for item in value:
            yield from _messages(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _messages(item)
