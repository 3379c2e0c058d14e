"""The plan of a gateway."""

from __future__ import annotations

from msgspec.structs import replace

from pilot.derive import derived
from pilot.envoy.cluster.builtin_clusters import credential_server_clusters, router_builtin_clusters
from pilot.envoy.cluster.cluster_traits import without_location
from pilot.envoy.cluster.outbound_clusters import outbound_clusters
from pilot.envoy.endpoint.inline_clusters import inline_clusters, sni_routed_clusters
from pilot.envoy.endpoint.load_assignments import sni_load_assignments
from pilot.envoy.listener.gateway.gateway_listeners import gateway_listeners
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
)
from pilot.envoy.route.gateway.gateway_route_configurations import gateway_route_configurations
from pilot.lib.xds_types import CLUSTER, ENDPOINT, LISTENER, ROUTE
from pilot.mesh.gateways.gateways import gateway_selection_key, merged_gateway
from pilot.mesh.gateways.servers import GatewaySelectionKey
from pilot.mesh.model.facets import OutboundFacet
from pilot.mesh.proxies.classify import outbound_facet
from pilot.mesh.proxies.router import gateway_listeners_facet, gateway_routes_facet
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy


def gateway_plan(db: Mesh, node_id: str) -> ProxyPlan:
    """Return the plan of a gateway. Not memoised."""
    outbound, selection = outbound_facet(db, node_id), gateway_selection_key(db, node_id)
    routed = routed_only(outbound, selection) if db.settings.gateways.filter_clusters else outbound
    auto_passthrough, listeners = _auto_passthrough(db, selection), gateway_listeners_facet(db, node_id)
    network = find_proxy(db, node_id).text("NETWORK")
    sni_endpoints = (Group(sni_load_assignments, (outbound,), PatchSide.NONE),) if auto_passthrough else ()
    return patched_plan(
        db,
        node_id,
        ProxyPlan(
            {
                CLUSTER: (*_clusters(routed, outbound, auto_passthrough), *originating_cluster_groups(db, outbound)),
                ENDPOINT: (
                    outbound_endpoint_group(db, routed),
                    *sni_endpoints,
                    *local_cluster_groups(db, node_id),
                ),
                LISTENER: (
                    Group(gateway_listeners, (selection, listeners), PatchSide.OUTBOUND),
                    *originating_listener_groups(db, outbound, listeners.listening, network),
                ),
                ROUTE: (Group(gateway_route_configurations, (gateway_routes_facet(db, node_id),), PatchSide.OUTBOUND),),
                **agent_groups(db),
            },
            by_name={**secret_groups(db, node_id), **extension_groups(db, node_id)},
        ),
    )


@derived
def _auto_passthrough(db: Mesh, selection: GatewaySelectionKey) -> bool:
    """Return whether any Gateway server is in mode AUTO_PASSTHROUGH.

    Such a server forwards mesh TLS to the service that the SNI names.
    """
    return merged_gateway(db, selection).auto_passthrough


def routed_only(outbound: OutboundFacet, selection: GatewaySelectionKey) -> OutboundFacet:
    """Return the facet of a gateway that only receives the clusters that its routes target."""
    return replace(outbound, scope=replace(outbound.scope, routed=selection.gateways))


def _clusters(routed: OutboundFacet, outbound: OutboundFacet, auto_passthrough: bool) -> list[Group]:
    groups = [
        Group(outbound_clusters, (without_location(routed),), PatchSide.OUTBOUND),
        Group(inline_clusters, (routed,), PatchSide.OUTBOUND),
        Group(router_builtin_clusters, (), PatchSide.OUTBOUND),
    ]
    if auto_passthrough:
        groups.append(Group(sni_routed_clusters, (outbound,), PatchSide.OUTBOUND))
    if outbound.secret_servers.credentials:
        groups.append(Group(credential_server_clusters, (), PatchSide.OUTBOUND))
    return groups
