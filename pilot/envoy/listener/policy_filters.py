"""Filters that implement policies. To support a new kind of policy, it is sufficient to add a function here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.config.kinds.istio import AUTHORIZATION_POLICY, REQUEST_AUTHENTICATION
from pilot.config.object import ObjectKey
from pilot.derive import derived
from pilot.envoy.filter_phase import Phase
from pilot.envoy.http_filter.connect_authority import CLIENT_IDENTITY
from pilot.envoy.http_filter.http_authz import build_http_denial
from pilot.envoy.http_filter.jwt_authn import build_jwt_authn
from pilot.envoy.listener.authorization_filters import http_authorization, network_authorization
from pilot.envoy.listener.extension_filters import http_extensions
from pilot.envoy.listener.stats_filters import http_stats_filters, network_stats_filters
from pilot.envoy.network_filter.network_authz import build_network_denial
from pilot.envoy.rbac.rbac_rules import DENY_ALL
from pilot.mesh.model.facets import ListeningFacet
from pilot.mesh.security.jwt import token_rules
from pilot.mesh.tables.database import Mesh

HttpFilters = Iterator[tuple[Phase, hcm_pb2.HttpFilter]]
NetworkFilters = Iterator[tuple[Phase, listener_components_pb2.Filter]]


@derived
def jwt_authentication(db: Mesh, policies: tuple[ObjectKey, ...], clear_route_cache: bool) -> hcm_pb2.HttpFilter | None:
    """Return the filter for RequestAuthentications that apply together, or None if they have no rules."""
    rules = token_rules(db, policies)
    return build_jwt_authn(rules, clear_route_cache) if rules else None


def _jwt_filters(db: Mesh, listening: ListeningFacet) -> HttpFilters:
    """Yield the filter for RequestAuthentications.

    On gateways and waypoints, whose routes may depend on claims, it also clears the route cache.
    """
    policies = listening.policies.of(REQUEST_AUTHENTICATION.id.name)
    clear_route_cache = listening.side in ("gateway", "waypoint")
    if policies and (jwt_filter := jwt_authentication(db, policies, clear_route_cache)) is not None:
        yield Phase.AUTHN, jwt_filter


def _authorization_filters(db: Mesh, listening: ListeningFacet) -> HttpFilters:
    """Yield the filters for AuthorizationPolicies."""
    yield from http_authorization(db, listening.policies.of(AUTHORIZATION_POLICY.id.name), listening.tunnelled)


def _network_authorization_filters(db: Mesh, listening: ListeningFacet) -> NetworkFilters:
    """Yield the filters that apply AuthorizationPolicies to connections whose requests are not parsed."""
    yield from network_authorization(db, listening.policies.of(AUTHORIZATION_POLICY.id.name), listening.tunnelled)


def _stats_filters(db: Mesh, listening: ListeningFacet) -> HttpFilters:
    """Yield the filters that report requests, as configured by Telemetries."""
    for stats in http_stats_filters(db, listening):
        yield Phase.STATS, stats


def _identity_filters(db: Mesh, listening: ListeningFacet) -> HttpFilters:
    """Yield the filter that identifies the client to the workloads behind a waypoint.

    It is only used if the workloads are configured to trust the waypoint.
    """
    if listening.forwards_client:
        yield Phase.PEER_METADATA, CLIENT_IDENTITY


_HTTP: tuple[Callable[[Mesh, ListeningFacet], HttpFilters], ...] = (
    _identity_filters,
    _jwt_filters,
    _authorization_filters,
    _stats_filters,
)
_NETWORK: tuple[Callable[[Mesh, ListeningFacet], NetworkFilters], ...] = (_network_authorization_filters,)


def http_policy_filters(db: Mesh, listening: ListeningFacet, port: int) -> list[tuple[Phase, hcm_pb2.HttpFilter]]:
    """Return the HTTP filters of policies and extensions for a port on one side of a proxy. Not memoised."""
    if listening.denies:
        return [(Phase.AUTHZ, build_http_denial(DENY_ALL))]
    return [*(item for filters in _HTTP for item in filters(db, listening)), *http_extensions(db, listening, port)]


def network_policy_filters(db: Mesh, listening: ListeningFacet) -> list[tuple[Phase, listener_components_pb2.Filter]]:
    """Return the network filters that authorize connections on one side of a proxy. Not memoised."""
    if listening.denies:
        return [(Phase.AUTHZ, build_network_denial(DENY_ALL))]
    return [item for filters in _NETWORK for item in filters(db, listening)]


def network_statistics_filters(
    db: Mesh, listening: ListeningFacet
) -> list[tuple[Phase, listener_components_pb2.Filter]]:
    """Return the network filters that report connections on one side of a proxy, including denied connections.

    Not memoised.
    """
    if listening.denies:
        return []
    return [(Phase.STATS, stats) for stats in network_stats_filters(db, listening)]
