"""Rules of TCPRoutes and TLSRoutes as rules of a VirtualService."""

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
from pilot.mesh.lowering.gateway_api.rules import target_of
from pilot.mesh.model.condition import Fault

_NOBODY = RouteDestination(
    destination=Destination(host="internal.cluster.local", subset="zero-weight", port=PortSelector(number=65535))
)
"""A cluster that there is not: connections to backends without any weight are refused."""
_INVALID_BACKEND = ("RefNotPermitted", "BackendNotFound", "InvalidKind")


class Destinations(NamedTuple):
    """Where connections go, by rule, and what is wrong. Without rules the route as a whole cannot be."""

    rules: tuple[tuple[RouteDestination, ...], ...] = ()
    fault: Fault | None = None


def layer4_targets(rules: Iterable[L4RouteRule]) -> list[BackendObjectReference]:
    """Returns all that rules refer to."""
    return list(dict.fromkeys(target_of(ref) for rule in rules for ref in rule.backend_refs))


def convert_layer4(rules: Sequence[L4RouteRule], backends: Backends) -> Destinations:
    """Returns the destinations of each rule."""
    out: list[tuple[RouteDestination, ...]] = []
    fault: Fault | None = None
    for rule in rules:
        weighed = [ref for ref in rule.backend_refs if ref.weight]
        if not weighed:
            out.append((_NOBODY,))
            continue
        found = [backends[target_of(ref)] for ref in weighed]
        hard = next((b.fault for b in found if b.fault is not None and b.fault.reason not in _INVALID_BACKEND), None)
        if hard is not None:
            return Destinations((), hard)
        fault = next((b.fault for b in reversed(found) if b.fault is not None), fault)
        out.append(
            tuple(
                RouteDestination(destination=b.destination, weight=ref.weight if len(weighed) > 1 else 0)
                for ref, b in zip(weighed, found, strict=True)
            )
        )
    return Destinations(tuple(out), fault)


def tcp_rules(found: Destinations, port: int | None = None) -> tuple[TCPRoute, ...]:
    """Returns the rules for TCP; `port`: those of a service's port alone."""
    match = (L4MatchAttributes(port=port),) if port is not None else ()
    return tuple(TCPRoute(match=match, route=to) for to in found.rules)


def tls_rules(found: Destinations, hosts: tuple[str, ...], port: int | None = None) -> tuple[TLSRoute, ...]:
    """Returns the rules for clients that ask for one of the hosts; a rule without backends asks for nothing."""
    match = TLSMatchAttributes(sni_hosts=hosts, port=port or 0)
    return tuple(TLSRoute(match=() if to == (_NOBODY,) else (match,), route=to) for to in found.rules)
