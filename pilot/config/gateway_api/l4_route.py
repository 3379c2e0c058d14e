"""gateway.networking.k8s.io TCPRoute, TLSRoute and UDPRoute. https://gateway-api.sigs.k8s.io/concepts/api-overview/#route-resources"""

from __future__ import annotations

from pilot.config.base import Lenient
from pilot.config.gateway_api.reference import BackendRef, ParentReference


class L4RouteRule(Lenient, frozen=True):
    name: str | None = None
    backend_refs: tuple[BackendRef, ...] = ()


class TCPRoute(Lenient, frozen=True):
    """Connections at its parents go to its backends."""

    parent_refs: tuple[ParentReference, ...] = ()
    rules: tuple[L4RouteRule, ...] = ()


class TLSRoute(Lenient, frozen=True):
    """Connections at its parents whose client asks for one of the hosts go to its backends."""

    parent_refs: tuple[ParentReference, ...] = ()
    hostnames: tuple[str, ...] = ()
    rules: tuple[L4RouteRule, ...] = ()


class UDPRoute(Lenient, frozen=True):
    """Datagrams at its parents are for its backends. No listener takes it."""

    parent_refs: tuple[ParentReference, ...] = ()
    rules: tuple[L4RouteRule, ...] = ()
