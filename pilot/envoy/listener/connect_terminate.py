"""The listener that terminates HBONE tunnels.

It authenticates the client and passes the payload to an internal listener.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.config.kinds.istio import AUTHORIZATION_POLICY
from pilot.derive import derived
from pilot.envoy import names
from pilot.envoy.access_log.access_logs import build_listener_access_logs, build_termination_access_logs
from pilot.envoy.http_filter.connect_authority import build_connect_authority, build_request_source
from pilot.envoy.http_filter.peer_metadata import build_tunnel_peer_metadata
from pilot.envoy.http_filter.prebuilt_http_filters import build_router
from pilot.envoy.listener.access_logging import access_logs
from pilot.envoy.listener.authorization_filters import tunnel_authorization
from pilot.envoy.listener.listener_address import wildcards
from pilot.envoy.listener.listener_head import ListenerHead, build_listener_head
from pilot.envoy.network_filter.http_connection_manager import CONNECT, NAME, build_terminating_manager
from pilot.envoy.resource import Resource
from pilot.envoy.transport_socket.hbone_sockets import build_tunnel_context, build_tunnel_server
from pilot.envoy.well_known_types import pack
from pilot.lib.xds_types import LISTENER
from pilot.mesh.model.ambient_features import exchanges_baggage
from pilot.mesh.model.facets import ListeningFacet, PolicyFacet
from pilot.mesh.registry.networks import HBONE_PORT
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.trust import trust_domains

_ACTION = route_components_pb2.RouteAction
_ROUTE = route_components_pb2.Route(
    match=route_components_pb2.RouteMatch(connect_matcher=route_components_pb2.RouteMatch.ConnectMatcher()),
    route=_ACTION(
        cluster=names.MAIN_INTERNAL,
        upgrade_configs=[
            _ACTION.UpgradeConfig(upgrade_type=CONNECT, connect_config=_ACTION.UpgradeConfig.ConnectConfig())
        ],
    ),
)
_ROUTES = route_pb2.RouteConfiguration(
    name="default", virtual_hosts=[route_components_pb2.VirtualHost(name="default", domains=["*"], routes=[_ROUTE])]
)


@derived
def terminating_listeners(
    db: Mesh, listening: ListeningFacet, policies: PolicyFacet, between_networks: bool
) -> Mapping[str, Resource]:
    """Return the listener that terminates HBONE tunnels.

    `policies` decide who may open a tunnel, regardless of the tunnel's target. If `between_networks` is set, the
    listener records the type of the proxy that opened the tunnel, because the handling of the payload depends on it.
    """
    logs = access_logs(db, listening)
    binds = wildcards(listening.ipv4, listening.ipv6)
    # Clients have few long-lived connections with many tunnels in each. They must be spread over all worker threads.
    head = ListenerHead(
        names.CONNECT_TERMINATE,
        binds,
        HBONE_PORT,
        inbound=None,
        max_accepts=0,
        exact_balance=True,
        access_logs=build_listener_access_logs(logs),
    )
    listener = build_listener_head(head)
    filters = list(_filters(db, listening, policies, between_networks))
    manager = build_terminating_manager(listening.headers, filters, build_termination_access_logs(logs), _ROUTES)
    chain = listener.filter_chains.add(name="default")
    chain.transport_socket.CopyFrom(
        build_tunnel_server(build_tunnel_context(trust_domains(db), db.settings.tls.compliance_policy))
    )
    chain.filters.add(name=NAME, typed_config=pack(manager))
    return {names.CONNECT_TERMINATE: Resource.of(LISTENER, listener)}


def _filters(
    db: Mesh, listening: ListeningFacet, policies: PolicyFacet, between_networks: bool
) -> Iterator[hcm_pb2.HttpFilter]:
    yield from tunnel_authorization(db, policies.of(AUTHORIZATION_POLICY.id.name))
    if listening.features.peer_metadata:
        yield build_tunnel_peer_metadata(exchanges_baggage(db.settings.ambient))
    yield build_connect_authority(listening.features.hashable_string)
    if between_networks:
        yield build_request_source(listening.features.hashable_string)
    headers = listening.headers
    yield build_router(
        suppress_envoy_headers=bool(headers.envoy_debug_headers is not None and headers.envoy_debug_headers.disabled)
    )
