"""The order of the filters in a chain. HTTP filters and network filters use the same phases.

A new filter declares its phase, and no other filter needs to change. Policies reject a request before other filters
inspect it, rejected requests are counted too, and the filter that forwards the request comes last.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


class Phase(enum.IntEnum):
    """The position of a filter in its chain.

    A user's extension runs before authentication, before authorization, before statistics or, if it specifies no phase,
    in the phase EXTENSION.
    """

    PEER_METADATA = enum.auto()  # identifies the peer for the filters that follow
    EXTERNAL_AUTHZ = enum.auto()  # calls the user's authorizer
    EXTENSION_AUTHN = enum.auto()
    AUTHN = enum.auto()
    EXTENSION_AUTHZ = enum.auto()
    AUTHZ = enum.auto()
    EXTENSION_STATS = enum.auto()
    EXTENSION = enum.auto()
    ENDPOINT_PICKER = enum.auto()  # selects the endpoint of an inference pool
    CODEC = enum.auto()  # gRPC-Web and statistics on gRPC messages
    ALPN = enum.auto()
    FAULT = enum.auto()
    CORS = enum.auto()
    UPSTREAM_METADATA = enum.auto()  # at a waypoint: identifies the upstream peer
    STATS = enum.auto()
    PROTOCOL = enum.auto()  # parses a protocol over TCP
    SESSION = enum.auto()
    RESOLUTION = enum.auto()  # resolves the destination host
    TERMINAL = enum.auto()  # forwards the request or connection


_LATE_AT_WAYPOINTS = {Phase.RESOLUTION: 0, Phase.EXTENSION_STATS: 1, Phase.EXTENSION: 2}


def in_order(filters: Iterable[tuple[Phase, T]], at_waypoint: bool = False) -> list[T]:
    """Return the filters sorted by phase. Filters in the same phase keep their order.

    At a waypoint, extensions run after host resolution, so that they see requests as they are forwarded. This does not
    apply to extensions that run before authentication or authorization.
    """
    key = (lambda item: _position_at_waypoint(item[0])) if at_waypoint else (lambda item: (item[0], 0))
    return [item for _, item in sorted(filters, key=key)]


def _position_at_waypoint(phase: Phase) -> tuple[int, int]:
    late = _LATE_AT_WAYPOINTS.get(phase)
    return (phase, 0) if late is None else (Phase.CORS, 1 + late)
