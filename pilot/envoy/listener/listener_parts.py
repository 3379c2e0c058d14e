"""Assembles a listener from serialized parts.

Serialized protobuf messages can be concatenated. The listeners of different workloads only differ in the tracing tags
of their HTTP connection managers. The rest is serialized once and shared. A workload's listener consists of these
shared parts, with the workload's tracing fields appended to each HTTP connection manager.
https://protobuf.dev/programming-guides/encoding/#last-one-wins
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import msgspec
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.envoy.network_filter import http_connection_manager
from pilot.envoy.resource import Resource, length_delimited, varint
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
_SHARED_SIZE = 512
"""Minimum size in bytes of a part that listeners share instead of copying it."""


class ChainParts(msgspec.Struct, frozen=True):
    """A filter chain in two parts: everything except its HTTP connection manager, and the manager without tracing.

    The manager is given in pieces. The first one is a template that many chains share. There are none if the chain has
    no manager.
    """

    head: bytes
    manager: tuple[bytes, ...] = ()


class ListenerParts(msgspec.Struct, frozen=True):
    """A listener in two parts: everything except its filter chains, and the chains."""

    name: str
    head: bytes
    chains: tuple[ChainParts, ...]
    default: ChainParts | None = None

    @property
    def speaks_http(self) -> bool:
        """Return whether the listener contains an HTTP connection manager. If so, each workload needs its own copy."""
        return any(c.manager for c in self.chains) or bool(self.default is not None and self.default.manager)


def serialize_fields(manager: hcm_pb2.HttpConnectionManager) -> bytes:
    """Return the serialized fields of an HTTP connection manager.

    Appending them to another serialized manager merges them into it.
    """
    fields: bytes = manager.SerializeToString(deterministic=True)
    return fields


def assemble(parts: ListenerParts, tracing: bytes) -> Resource:
    """Return the listener of a workload. `tracing` comes from `serialize_fields`."""
    body = [parts.head]
    for chain in parts.chains:
        body += _field(_CHAINS, _pieces(chain, tracing))
    if parts.default is not None:
        body += _field(_DEFAULT, _pieces(parts.default, tracing))
    first, *more = _join_small(body)
    return Resource(parts.name, LISTENER, first, extra_pieces=tuple(more))


def traced(chain: ChainParts, tracing: bytes) -> ChainParts:
    """Return a chain that includes its tracing, for listeners that contain services with different tracing."""
    return ChainParts(b"".join(_pieces(chain, tracing)))


def _pieces(chain: ChainParts, tracing: bytes) -> list[bytes]:
    """Return the pieces of a serialized chain. The manager is large, and only copied when the pieces are joined."""
    if not chain.manager:
        return [chain.head]
    config = [_ANY_HEAD, *_field(_ANY_VALUE, [*chain.manager, tracing])]
    return [chain.head, *_field(_FILTERS, [_FILTER_HEAD, *_field(_CONFIG, config)])]


def _join_small(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces. Small ones are joined with those that follow them, and large ones remain the same objects."""
    for is_small, group in itertools.groupby(pieces, key=lambda piece: len(piece) < _SHARED_SIZE):
        if is_small:
            yield b"".join(group)
        else:
            yield from group


def _field(number: int, pieces: list[bytes]) -> list[bytes]:
    """Return the pieces of a protobuf field that contains a message."""
    return [varint(number << 3 | 2) + varint(sum(map(len, pieces))), *pieces]
