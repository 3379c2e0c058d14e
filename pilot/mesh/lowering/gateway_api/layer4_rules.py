"""Rules of TCPRoutes and TLSRoutes, converted to routes of a VirtualService."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pilot.config.gateway_api.l4_route import L4RouteRule
from pilot.config.gateway_api.reference import BackendObjectReference
from pilot.config.networking.virtual_service import (
    Destination,
    L4MatchAttributes,
    PortSelector,
    RouteDestination,
    TCPRoute,
    TLSMatchAttributes,
    TLSRoute,
)
from pilot.mesh.lowering.gateway_api.backends import Backends
from pilot.mesh.lowering.gateway_api.http_rules import referenced_backend
from pilot.mesh.model.condition import Fault

_REJECTED = RouteDestination(
    destination=Destination(host="internal.cluster.local", subset="zero-weight", port=PortSelector(number=65535))
)
"""A destination whose cluster does not exist. Rules that have no backend with a weight use it to reject connections."""
_INVALID_BACKEND = ("RefNotPermitted", "BackendNotFound", "InvalidKind")


class Destinations(NamedTuple):
    """The destinations of each rule, and a fault. If there are no rules, the whole route is invalid."""

    rules: tuple[tuple[RouteDestination, ...], ...] = ()
    fault: Fault | None = None


def layer4_targets(rules: Iterable[L4RouteRule]) -> list[BackendObjectReference]:
    """Return all backends that rules reference."""
    return list(dict.fromkeys(referenced_backend(ref) for rule in rules for ref in rule.backend_refs))


def convert_layer4(rules: Sequence[L4RouteRule], backends: Backends) -> Destinations:
    """Return the destinations of each rule."""
    destinations: list[tuple[RouteDestination, ...]] = []
    fault: Fault | None = None
    for rule in rules:
        weighted = [ref for ref in rule.backend_refs if ref.weight]
        if not weighted:
            destinations.append((_REJECTED,))
            continue
        rule_backends = [backends[referenced_backend(ref)] for ref in weighted]
        fatal = next(
            (
                backend.fault
                for backend in rule_backends
                if backend.fault is not None and backend.fault.reason not in _INVALID_BACKEND
            ),
            None,
        )
        if fatal is not None:
            return Destinations((), fatal)
        fault = next((backend.fault for backend in reversed(rule_backends) if backend.fault is not None), fault)
        destinations.append(
            tuple(
                RouteDestination(destination=backend.destination, set_weight=ref.weight if len(weighted) > 1 else 0)
                for ref, backend in zip(weighted, rule_backends, strict=True)
            )
        )
    return Destinations(tuple(destinations), fault)


def tcp_rules(destinations: Destinations, port: int | None = None) -> tuple[TCPRoute, ...]:
    """Return the TCP routes. They are limited to `port` if it is set."""
    match = (L4MatchAttributes(port=port),) if port is not None else ()
    return tuple(TCPRoute(match=match, route=to) for to in destinations.rules)


def tls_rules(destinations: Destinations, hosts: tuple[str, ...], port: int | None = None) -> tuple[TLSRoute, ...]:
    """Return the TLS routes for clients that send one of the SNI hosts. A rule without backends matches all clients."""
    match = TLSMatchAttributes(sni_hosts=hosts, port=port or 0)
    return tuple(TLSRoute(match=() if to == (_REJECTED,) else (match,), route=to) for to in destinations.rules)
