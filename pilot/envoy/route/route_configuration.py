"""Assembles route configurations from serialized virtual hosts.

The items of a protobuf repeated field may be encoded in separate pieces:
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.route.v3 import route_pb2
from google.protobuf import wrappers_pb2

from pilot.envoy.resource import Resource, length_delimited
from pilot.lib.xds_types import ROUTE

DIRECT_RESPONSE_BYTES = 1 << 20  # maximum body of direct responses
_VIRTUAL_HOSTS = route_pb2.RouteConfiguration.VIRTUAL_HOSTS_FIELD_NUMBER
_FALSE = wrappers_pb2.BoolValue()


def virtual_host_field(*pieces: bytes) -> bytes:
    """Return a serialized virtual host, given in pieces, encoded as a field of its route configuration."""
    return length_delimited(_VIRTUAL_HOSTS, *pieces)


def build_route_configuration(name: str, virtual_hosts: Iterable[bytes]) -> Resource:
    """Return the route configuration with these virtual hosts, which are given as encoded fields.

    Envoy ignores the port when it matches the host, and accepts routes to clusters that arrive later.
    """
    configuration = route_pb2.RouteConfiguration(
        name=name,
        validate_clusters=_FALSE,
        ignore_port_in_host_matching=True,
        max_direct_response_body_size_bytes=wrappers_pb2.UInt32Value(value=DIRECT_RESPONSE_BYTES),
    )
    return Resource(name, ROUTE, configuration.SerializeToString(deterministic=True), extra_pieces=tuple(virtual_hosts))
