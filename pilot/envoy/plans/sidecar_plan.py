"""The plan of a sidecar."""

from __future__ import annotations

from pilot.derive import Gather, derived
from pilot.envoy.agent_resources import name_table
from pilot.envoy.cluster.builtin_clusters import (
    credential_server_clusters,
    dynamic_dns_clusters,
    inbound_builtin_clusters,
    sidecar_builtin_clusters,
)
from pilot.envoy.cluster.cluster_traits import outbound_traits, without_location
from pilot.envoy.cluster.inbound_clusters import inbound_clusters
from pilot.envoy.cluster.outbound_clusters import outbound_clusters
from pilot.envoy.endpoint.inline_clusters import inline_clusters
from pilot.envoy.listener.inbound.inbound_listeners import inbound_listeners
from pilot.envoy.listener.listener_options import listener_defaults
from pilot.envoy.listener.outbound.outbound_listeners import (
    addressing_facet,
    has_own_pod_listener,
    http_listeners,
    http_listeners_except_own,
    route_names,
    tcp_listeners,
    tcp_listeners_except_own,
    without_spans,
)
from pilot.envoy.listener.outbound.virtual_outbound import capture_listeners
from pilot.envoy.names import HTTP_PROXY
from pilot.envoy.plans.patched_plan import patched_plan
from pilot.envoy.plans.resource_group import Group, PatchSide, ProxyPlan
from pilot.envoy.plans.shared_groups import (
    agent_groups,
    extension_groups,
    local_cluster_groups,
    originating_cluster_groups,
    originating_listener_groups,
    outbound_endpoint_group,
    secret_groups,
    terminating_cluster_groups,
    terminating_listener_groups,
)
from pilot.envoy.resource import Resource
from pilot.envoy.route.sidecar.sidecar_route_configurations import sidecar_routes
from pilot.lib.xds_types import CLUSTER, ENDPOINT, LISTENER, NAME_TABLE, ROUTE
from pilot.mesh.model.facets import InboundFacet, OutboundFacet, OutboundListenersFacet, SpanTagsFacet
from pilot.mesh.proxies.classify import inbound_facet, outbound_facet, outbound_listeners_facet
from pilot.mesh.proxies.resolver import resolver_facet
from pilot.mesh.proxies.sidecar_routing import SidecarRoutesFacet, sidecar_routes_facet
from pilot.mesh.scope.sidecar_scope import outbound_traffic_policy
from pilot.mesh.tables.database import Mesh


def sidecar_plan(db: Mesh, node_id: str) -> ProxyPlan:
    """Return the plan of a sidecar. Not memoised."""
    outbound, inbound = outbound_facet(db, node_id), inbound_facet(db, node_id)
    listeners, routes = outbound_listeners_facet(db, node_id), sidecar_routes_facet(db, node_id)
    resolver = resolver_facet(db, node_id, routes.families)
    return patched_plan(
        db,
        node_id,
        ProxyPlan(
            {
                CLUSTER: _clusters(db, outbound, inbound),
                ENDPOINT: (
                    outbound_endpoint_group(db, outbound),
                    *local_cluster_groups(db, node_id),
                ),
                LISTENER: (
                    *_outbound_listeners(db, listeners, inbound.tags, inbound.ips[0]),
                    Group(inbound_listeners, (inbound,), PatchSide.INBOUND),
                    *originating_listener_groups(db, outbound, listeners.listening),
                    *terminating_listener_groups(db, inbound),
                ),
                ROUTE: (Group(route_configurations, (addressing_facet(listeners), routes), PatchSide.OUTBOUND),),
                NAME_TABLE: (Group(name_table, (outbound.scope, resolver), PatchSide.NONE),),
                **agent_groups(db),
            },
            by_name={**secret_groups(db, node_id), **extension_groups(db, node_id)},
        ),
    )


def _clusters(db: Mesh, outbound: OutboundFacet, inbound: InboundFacet) -> tuple[Group, ...]:
    traits = outbound_traits(outbound)
    groups = [
        Group(outbound_clusters, (without_location(outbound),), PatchSide.OUTBOUND),
        Group(inline_clusters, (outbound,), PatchSide.OUTBOUND),
        Group(sidecar_builtin_clusters, (traits,), PatchSide.OUTBOUND),
        Group(inbound_builtin_clusters, (traits,), PatchSide.INBOUND),
        Group(inbound_clusters, (inbound,), PatchSide.INBOUND),
        *originating_cluster_groups(db, outbound),
        *terminating_cluster_groups(inbound),
    ]
    if outbound_traffic_policy(db, outbound.scope).dynamic_dns:
        groups.append(Group(dynamic_dns_clusters, (traits, outbound.dns_proxy), PatchSide.OUTBOUND))
    if outbound.secret_servers.credentials:
        groups.append(Group(credential_server_clusters, (), PatchSide.OUTBOUND))
    return tuple(groups)


def _outbound_listeners(
    db: Mesh, facet: OutboundListenersFacet, spans: SpanTagsFacet, address: str
) -> tuple[Group, ...]:
    capture = Group(capture_listeners, (facet, spans), PatchSide.OUTBOUND)
    if has_own_pod_listener(db, facet, address):
        return (
            Group(tcp_listeners_except_own, (without_spans(facet), address), PatchSide.OUTBOUND),
            Group(http_listeners_except_own, (facet, spans, address), PatchSide.OUTBOUND),
            capture,
        )
    return (
        Group(tcp_listeners, (without_spans(facet),), PatchSide.OUTBOUND),
        Group(http_listeners, (facet, spans), PatchSide.OUTBOUND),
        capture,
    )


# -- routes ------------------------------------------------------------------------------------------------------------


@derived
def _route_names(db: Mesh, listeners: OutboundListenersFacet, _: SidecarRoutesFacet) -> tuple[str, ...]:
    """Return the names of the route configurations to which the sidecar's listeners refer.

    They include the route configuration of the HTTP proxy listener.
    """
    port = listeners.listening.http_proxy_port
    proxy_port = listener_defaults(db).http_proxy_port if port is None else port
    return (*route_names(db, listeners), *((HTTP_PROXY,) if proxy_port else ()))


@derived
def _routes(db: Mesh, name: str, _: OutboundListenersFacet, routing: SidecarRoutesFacet) -> Resource | None:
    return sidecar_routes(db, name, routing)


route_configurations: Gather[str, [OutboundListenersFacet, SidecarRoutesFacet], Resource] = Gather(
    "route_configurations", _route_names, _routes
)
"""The route configurations to which a sidecar's listeners refer."""
