"""Limits the copies of a VirtualService's routes. There is a copy for each port of its service or Gateway."""

from __future__ import annotations

from operator import attrgetter

from pilot.config.networking.virtual_service import VirtualService

MAX_HTTP_ROUTES = 32_768
"""Maximum number of HTTP routes of a VirtualService on all ports together. Each takes about 500 bytes."""
MAX_CHAINS = 8192
"""Maximum number of filter chains for the TCP or TLS routes of a VirtualService on all ports together. Each takes about
1 kB."""


def http_route_count(spec: VirtualService) -> int:
    """Return the number of HTTP routes on a port."""
    matches = [*map(len, map(attrgetter("match"), spec.http))]
    return sum(matches) + matches.count(0)


def chain_count(spec: VirtualService) -> int:
    """Return the number of filter chains for TCP and TLS routes on a port."""
    return len(spec.tcp) + sum(len(rule.match) for rule in spec.tls)


def has_routes_at(spec: VirtualService, position: int) -> bool:
    """Return whether a VirtualService has HTTP routes on the port at a position among the ports of a service or
    Gateway."""
    return position == 0 or (position + 1) * http_route_count(spec) <= MAX_HTTP_ROUTES


def chains_per_port(ports: int) -> int:
    """Return the maximum number of filter chains of a VirtualService on each of these ports."""
    return max(1, MAX_CHAINS // max(ports, 1))
