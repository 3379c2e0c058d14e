"""Puts route configurations together from serialized virtual hosts: the parts of a repeated field may stand in any number of pieces.
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.route.v3 import route_pb2
from google.protobuf import wrappers_pb2

from pilot.envoy.resource import Resource, length_delimited
from pilot.lib.xds_types import ROUTE

DIRECT_RESPONSE_BYTES = 1 << 20  # of a body that a route answers with itself
_VIRTUAL_HOSTS = route_pb2.RouteConfiguration.VIRTUAL_HOSTS_FIELD_NUMBER
_FALSE = wrappers_pb2.BoolValue()


def virtual_host_field(virtual_host: bytes) -> bytes:
    """Returns a serialized virtual host as the field of its configuration."""
    return length_delimited(_VIRTUAL_HOSTS, virtual_host)


def build_route_configuration(name: str, virtual_hosts: Iterable[bytes]) -> Resource:
    """Returns the configuration of virtual hosts that are given as fields. Envoy looks for the host of a request without its port;
    clusters may come later than routes."""
    configuration = route_pb2.RouteConfiguration(
        name=name,
        validate_clusters=_FALSE,
        ignore_port_in_host_matching=True,
        max_direct_response_body_size_bytes=wrappers_pb2.UInt32Value(value=DIRECT_RESPONSE_BYTES),
    )
    return Resource(name, ROUTE, configuration.SerializeToString(deterministic=True), extra_pieces=tuple(virtual_hosts))
