"""Declares the one order of filters in chains, of HTTP as of network filters.

Whoever adds a filter says its phase; nobody else needs to know of it. A policy says no to a request before anything looks into it, what
is counted is counted whoever said no, and the filter that sends the request on comes last.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


class Phase(enum.IntEnum):
    """Says where a filter stands. Extensions of users name one of four phases: before authentication, before authorization, before
    statistics, or none."""

    PEER_METADATA = enum.auto()  # who the peer is, for all that follow
    EXTERNAL_AUTHZ = enum.auto()  # asks an authorizer of the user's
    EXTENSION_AUTHN = enum.auto()
    AUTHN = enum.auto()
    EXTENSION_AUTHZ = enum.auto()
    AUTHZ = enum.auto()
    EXTENSION_STATS = enum.auto()
    EXTENSION = enum.auto()
    ENDPOINT_PICKER = enum.auto()  # asks who is to get a request
    CODEC = enum.auto()  # gRPC-Web, and counts of gRPC messages
    ALPN = enum.auto()
    FAULT = enum.auto()
    CORS = enum.auto()
    UPSTREAM_METADATA = enum.auto()  # at a waypoint: who the peer is that the request is sent to
    STATS = enum.auto()
    PROTOCOL = enum.auto()  # looks into a protocol over TCP
    SESSION = enum.auto()
    RESOLUTION = enum.auto()  # looks up the host to send to
    END = enum.auto()  # sends it on


_LATE_AT_WAYPOINTS = {Phase.RESOLUTION: 0, Phase.EXTENSION_STATS: 1, Phase.EXTENSION: 2}


def in_order(filters: Iterable[tuple[Phase, T]], at_waypoint: bool = False) -> list[T]:
    """Returns filters by their phase; those of one phase in the order in which they come. At a waypoint, extensions that are for no phase before
    authorization see requests as they are sent on."""
    return [
        f
        for _, f in sorted(
            filters, key=(lambda item: _place_at_waypoint(item[0])) if at_waypoint else (lambda item: (item[0], 0))
        )
    ]


def _place_at_waypoint(phase: Phase) -> tuple[int, int]:
    late = _LATE_AT_WAYPOINTS.get(phase)
    return (phase, 0) if late is None else (Phase.CORS, 1 + late)
