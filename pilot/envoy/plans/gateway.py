"""Chooses which resources a router gets."""

from __future__ import annotations

from msgspec.structs import replace

from pilot.derive import derived
from pilot.envoy.cluster.builtin_clusters import credential_server_clusters, router_fixed_clusters
from pilot.envoy.cluster.cluster_traits import without_place
from pilot.envoy.cluster.outbound_clusters import outbound_clusters
from pilot.envoy.endpoint.inline_clusters import inline_clusters, sni_routed_clusters
from pilot.envoy.endpoint.load_assignments import endpoints_of, sni_endpoints_of
from pilot.envoy.listener.gateway import gateway_listeners
from pilot.envoy.plans.agent import companion_groups
from pilot.envoy.plans.extensions import extension_groups
from pilot.envoy.plans.own_endpoints import own_endpoints
from pilot.envoy.plans.patches import patched_plan
from pilot.envoy.plans.plan import Group, Plan
from pilot.envoy.plans.secrets import secret_groups
from pilot.envoy.plans.tunnels import originating_cluster_groups, originating_listener_groups
from pilot.envoy.route.gateway.gateway_route_configurations import gateway_route_configurations
from pilot.lib.xds_types import CLUSTER, ENDPOINT, LISTENER, ROUTE
from pilot.mesh.gateways.gateways import gateway_selection_key, merged_gateway
from pilot.mesh.gateways.servers import GatewaySelectionKey
from pilot.mesh.model.facets import OutboundFacet
from pilot.mesh.proxies.classify import outbound_facet
from pilot.mesh.proxies.router import gateway_listeners_facet, gateway_routes_facet
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy


def gateway_plan(db: Mesh, node_id: str) -> Plan:
    """Returns the groups of one router. No node of its own."""
    outbound, selected = outbound_facet(db, node_id), gateway_selection_key(db, node_id)
    routed = routed_only(outbound, selected) if db.settings.gateways.filter_clusters else outbound
    passes, listens = _passes(db, selected), gateway_listeners_facet(db, node_id)
    return patched_plan(
        db,
        node_id,
        Plan(
            {
                CLUSTER: (*_clusters(routed, outbound, passes), *originating_cluster_groups(db, outbound)),
                ENDPOINT: (
                    Group(endpoints_of, (routed,)),
                    *((Group(sni_endpoints_of, (outbound,)),) if passes else ()),
                    *own_endpoints(db, node_id),
                ),
                LISTENER: (
                    Group(gateway_listeners, (selected, listens)),
                    *originating_listener_groups(
                        db, outbound, listens.listening, find_proxy(db, node_id).text("NETWORK")
                    ),
                ),
                ROUTE: (Group(gateway_route_configurations, (gateway_routes_facet(db, node_id),)),),
                **companion_groups(db),
            },
            named={**secret_groups(db, node_id), **extension_groups(db, node_id)},
        ),
    )


@derived
def _passes(db: Mesh, selected: GatewaySelectionKey) -> bool:
    """Returns whether some server passes mesh TLS on to any service."""
    return merged_gateway(db, selected).auto_passthrough


def routed_only(outbound: OutboundFacet, selected: GatewaySelectionKey) -> OutboundFacet:
    """Returns the facet of a router that gets clusters only for what its Gateways' routes lead to."""
    return replace(outbound, scope=replace(outbound.scope, routed=selected.gateways))


def _clusters(routed: OutboundFacet, outbound: OutboundFacet, passes: bool) -> list[Group]:
    groups = [
        Group(outbound_clusters, (without_place(routed),)),
        Group(inline_clusters, (routed,)),
        Group(router_fixed_clusters, ()),
    ]
    if passes:
        groups.append(Group(sni_routed_clusters, (outbound,)))
    if outbound.secret_servers.credentials:
        groups.append(Group(credential_server_clusters, ()))
    return groups
