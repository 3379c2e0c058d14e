"""Puts a listener together from serialized parts.

Protobuf messages concatenate: of a listener only the spans' tags in its HTTP connection managers are a workload's own, so the rest
is serialized once and shared, and a workload's listener is the parts with its tracing behind each manager.
https://protobuf.dev/programming-guides/encoding/#last-one-wins
"""

from __future__ import annotations

import msgspec
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.envoy.network_filter import http_connection_manager
from pilot.envoy.resource import Resource, length_delimited
from pilot.envoy.well_known_types import TYPE_PREFIX
from pilot.lib.xds_types import LISTENER

_CHAINS, _DEFAULT = (
    listener_pb2.Listener.FILTER_CHAINS_FIELD_NUMBER,
    listener_pb2.Listener.DEFAULT_FILTER_CHAIN_FIELD_NUMBER,
)
_FILTERS = listener_components_pb2.FilterChain.FILTERS_FIELD_NUMBER
_CONFIG = listener_components_pb2.Filter.TYPED_CONFIG_FIELD_NUMBER
_FILTER_HEAD = listener_components_pb2.Filter(name=http_connection_manager.NAME).SerializeToString()
_ANY_HEAD = length_delimited(1, (TYPE_PREFIX + hcm_pb2.HttpConnectionManager.DESCRIPTOR.full_name).encode())
_ANY_VALUE = 2


class ChainParts(msgspec.Struct, frozen=True):
    """Holds a filter chain: all of it but the HTTP connection manager that ends it, and that without tracing (b"": there is none)."""

    head: bytes
    manager: bytes = b""


class ListenerParts(msgspec.Struct, frozen=True):
    """Holds a listener: all of it but its filter chains, and these."""

    name: str
    head: bytes
    chains: tuple[ChainParts, ...]
    default: ChainParts | None = None

    @property
    def speaks_http(self) -> bool:
        """Returns whether there is a manager in it, so that it is every workload's own."""
        return any(c.manager for c in self.chains) or bool(self.default is not None and self.default.manager)


def serialize_fields(manager: hcm_pb2.HttpConnectionManager) -> bytes:
    """Returns fields of a manager, which are merged into it."""
    part: bytes = manager.SerializeToString(deterministic=True)
    return part


def assemble(parts: ListenerParts, tracing: bytes) -> Resource:
    """Returns the listener of a workload; `tracing` is from `serialize_fields`."""
    body = [parts.head]
    body += [length_delimited(_CHAINS, _join(c, tracing)) for c in parts.chains]
    if parts.default is not None:
        body.append(length_delimited(_DEFAULT, _join(parts.default, tracing)))
    return Resource(parts.name, LISTENER, b"".join(body))


def traced(chain: ChainParts, tracing: bytes) -> ChainParts:
    """Returns a chain that has its tracing already, as where services are traced in different ways."""
    return ChainParts(_join(chain, tracing))


def _join(chain: ChainParts, tracing: bytes) -> bytes:
    if not chain.manager:
        return chain.head
    config = _ANY_HEAD + length_delimited(_ANY_VALUE, chain.manager + tracing)
    return chain.head + length_delimited(_FILTERS, _FILTER_HEAD + length_delimited(_CONFIG, config))
