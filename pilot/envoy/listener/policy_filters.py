"""Derives what policies add to the chains of a proxy. A kind of policy that becomes filters is a function here, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.config.kinds.istio import AUTHORIZATION_POLICY, REQUEST_AUTHENTICATION
from pilot.envoy.filter_phase import Phase
from pilot.envoy.http_filter.connect_authority import CLIENT_IDENTITY
from pilot.envoy.http_filter.jwt_authn import build_jwt_authn
from pilot.envoy.listener.authorization_filters import http_authorization, network_authorization
from pilot.envoy.listener.extension_filters import http_extensions
from pilot.envoy.listener.stats_filters import http_stats_filters, network_stats_filters
from pilot.mesh.model.facets import ListeningFacet
from pilot.mesh.security.jwt import token_rules
from pilot.mesh.tables.database import Mesh

HttpFilters = Iterator[tuple[Phase, hcm_pb2.HttpFilter]]
NetworkFilters = Iterator[tuple[Phase, listener_components_pb2.Filter]]


def _jwt_filters(db: Mesh, listening: ListeningFacet) -> HttpFilters:
    """Yields the filter of RequestAuthentications; routes of gateways may depend on claims."""
    if rules := token_rules(db, listening.policies.of(REQUEST_AUTHENTICATION.id.name)):
        yield Phase.AUTHN, build_jwt_authn(rules, clear_route_cache=listening.side == "gateway")


def _authorization_filters(db: Mesh, listening: ListeningFacet) -> HttpFilters:
    """Yields the filters of AuthorizationPolicies."""
    yield from http_authorization(db, listening.policies.of(AUTHORIZATION_POLICY.id.name), listening.tunnelled)


def _network_authorization_filters(db: Mesh, listening: ListeningFacet) -> NetworkFilters:
    """Yields the filters of AuthorizationPolicies, for connections whose requests nobody reads."""
    yield from network_authorization(db, listening.policies.of(AUTHORIZATION_POLICY.id.name), listening.tunnelled)


def _statistics_filters(db: Mesh, listening: ListeningFacet) -> HttpFilters:
    """Yields the filters that count requests, by Telemetries."""
    for stats in http_stats_filters(db, listening):
        yield Phase.STATS, stats


def _identity_filters(db: Mesh, listening: ListeningFacet) -> HttpFilters:
    """Yields the filter that tells workloads behind a waypoint who the client is, for those who believe what they are told."""
    if listening.tells_client:
        yield Phase.PEER_METADATA, CLIENT_IDENTITY


_HTTP: tuple[Callable[[Mesh, ListeningFacet], HttpFilters], ...] = (
    _identity_filters,
    _jwt_filters,
    _authorization_filters,
    _statistics_filters,
)
_NETWORK: tuple[Callable[[Mesh, ListeningFacet], NetworkFilters], ...] = (_network_authorization_filters,)


def http_policy_filters(db: Mesh, listening: ListeningFacet, port: int) -> list[tuple[Phase, hcm_pb2.HttpFilter]]:
    """Returns the HTTP filters of the policies of one side of a proxy, at a port. No node of its own."""
    return [*(found for filters in _HTTP for found in filters(db, listening)), *http_extensions(db, listening, port)]


def network_policy_filters(db: Mesh, listening: ListeningFacet) -> list[tuple[Phase, listener_components_pb2.Filter]]:
    """Returns the network filters that guard connections on one side of a proxy. No node of its own."""
    return [found for filters in _NETWORK for found in filters(db, listening)]


def network_statistics_filters(
    db: Mesh, listening: ListeningFacet
) -> list[tuple[Phase, listener_components_pb2.Filter]]:
    """Returns the network filters that count connections, whoever may make them, on one side of a proxy. No node of its own."""
    return [(Phase.STATS, stats) for stats in network_stats_filters(db, listening)]
