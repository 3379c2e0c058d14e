"""gateway.networking.k8s.io TCPRoute, TLSRoute and UDPRoute.

https://gateway-api.sigs.k8s.io/concepts/api-overview/#route-resources
"""

from __future__ import annotations

from pilot.config.base import Lenient
from pilot.config.gateway_api.reference import BackendRef, ParentReference


class L4RouteRule(Lenient, frozen=True):
    name: str | None = None
    backend_refs: tuple[BackendRef, ...] = ()


class TCPRoute(Lenient, frozen=True):
    """Routes TCP connections from its parents to its backends."""

    parent_refs: tuple[ParentReference, ...] = ()
    rules: tuple[L4RouteRule, ...] = ()


class TLSRoute(Lenient, frozen=True):
    """Routes TLS connections from its parents to its backends, based on the SNI."""

    parent_refs: tuple[ParentReference, ...] = ()
    hostnames: tuple[str, ...] = ()
    rules: tuple[L4RouteRule, ...] = ()


class UDPRoute(Lenient, frozen=True):
    """Routes UDP datagrams. No listener supports UDPRoutes."""

    parent_refs: tuple[ParentReference, ...] = ()
    rules: tuple[L4RouteRule, ...] = ()
