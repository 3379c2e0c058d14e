"""gateway.networking.k8s.io GRPCRoute. https://gateway-api.sigs.k8s.io/api-types/grpcroute/"""

from __future__ import annotations

from pilot.config.base import Lenient
from pilot.config.gateway_api.http_route import HTTPBackendRef, HTTPRouteFilter, MatchType, NameMatch
from pilot.config.gateway_api.reference import ParentReference


class GRPCMethodMatch(Lenient, frozen=True):
    type: MatchType = "Exact"
    service: str | None = None
    method: str | None = None


class GRPCRouteMatch(Lenient, frozen=True):
    method: GRPCMethodMatch | None = None
    headers: tuple[NameMatch, ...] = ()


class GRPCRouteRule(Lenient, frozen=True):
    name: str | None = None
    matches: tuple[GRPCRouteMatch, ...] = ()
    filters: tuple[HTTPRouteFilter, ...] = ()
    backend_refs: tuple[HTTPBackendRef, ...] = ()


class GRPCRoute(Lenient, frozen=True):
    """Routes gRPC calls from its parents to its backends, if the host is one of its hostnames.

    Its precedence rules are those of an HTTPRoute.
    """

    parent_refs: tuple[ParentReference, ...] = ()
    hostnames: tuple[str, ...] = ()
    rules: tuple[GRPCRouteRule, ...] = ()
