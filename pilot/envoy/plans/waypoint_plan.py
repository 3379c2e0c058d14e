"""The plans of a waypoint and of an east-west gateway."""

from __future__ import annotations

from msgspec.structs import replace

from pilot.config.object import ObjectKey
from pilot.envoy.cluster.builtin_clusters import credential_server_clusters
from pilot.envoy.cluster.cluster_traits import without_location
from pilot.envoy.cluster.hbone_clusters import double_hbone_clusters, forwarding_clusters, waypoint_builtin_clusters
from pilot.envoy.cluster.outbound_clusters import outbound_clusters
from pilot.envoy.endpoint.east_west_upstreams import east_west_clusters, east_west_endpoints
from pilot.envoy.endpoint.inline_clusters import inline_clusters
from pilot.envoy.endpoint.waypoint_upstreams import VipListKey, vip_clusters, vip_endpoints
from pilot.envoy.listener.connect_originate import (
    crossing_listeners,
    forwarding_listeners,
    originating_listeners,
    originator_key,
)
from pilot.envoy.listener.connect_terminate import terminating_listeners
from pilot.envoy.listener.gateway.gateway_listeners import gateway_listeners
from pilot.envoy.listener.waypoint.east_west_listeners import east_west_listeners
from pilot.envoy.listener.waypoint.main_internal import main_internal_listeners
from pilot.envoy.plans.patched_plan import patched_plan
from pilot.envoy.plans.resource_group import Group, PatchSide, ProxyPlan
from pilot.envoy.plans.shared_groups import agent_groups, extension_groups, outbound_endpoint_group, secret_groups
from pilot.lib.xds_types import CLUSTER, ENDPOINT, LISTENER, ROUTE
from pilot.mesh.ambient.east_west import EastWestKey, is_east_west_gateway
from pilot.mesh.gateway_api.generated_names import is_listener_gateway
from pilot.mesh.gateways.gateways import gateway_selection_key
from pilot.mesh.model.ambient_features import serves_waypoints
from pilot.mesh.model.facets import OutboundFacet
from pilot.mesh.proxies.classify import outbound_facet
from pilot.mesh.proxies.router import gateway_listeners_facet
from pilot.mesh.proxies.waypoint import waypoint_facet, waypoint_of
from pilot.mesh.tables.database import Mesh


def waypoint_plan(db: Mesh, node_id: str) -> ProxyPlan:
    """Return the plan of a waypoint, which only contains the services and workloads attached to it. Not memoised.

    It has no resources if waypoints are disabled, or if the proxy's build does not support internal listeners.
    """
    outbound = outbound_facet(db, node_id)
    if not (serves_waypoints(db.settings.ambient) and outbound.features.internal_listeners):
        return ProxyPlan(dict.fromkeys((CLUSTER, ENDPOINT, LISTENER, ROUTE), ()))
    waypoint = waypoint_of(db, node_id)
    if is_east_west_gateway(db, node_id):
        return _east_west_plan(db, node_id, waypoint, outbound)
    facet, vips = waypoint_facet(db, node_id, waypoint), VipListKey(waypoint, outbound)
    attached = replace(outbound, scope=replace(outbound.scope, waypoint=waypoint))
    key = originator_key(facet.listening)
    tunnel_metadata = facet.listening.features.tunnel_metadata
    clusters = [
        Group(waypoint_builtin_clusters, (waypoint.namespace, tunnel_metadata), PatchSide.NONE),
        Group(vip_clusters, (vips,), PatchSide.NONE),
        Group(outbound_clusters, (without_location(attached),), PatchSide.OUTBOUND),
        Group(inline_clusters, (attached,), PatchSide.OUTBOUND),
    ]
    listeners = [
        Group(terminating_listeners, (facet.listening, facet.terminating, False), PatchSide.INBOUND),
        Group(main_internal_listeners, (facet,), PatchSide.INBOUND),
        Group(originating_listeners, (key,), PatchSide.NONE),
    ]
    if facet.double_hbone:
        clusters.append(Group(double_hbone_clusters, (), PatchSide.NONE))
        listeners.append(Group(crossing_listeners, (key, facet.network), PatchSide.NONE))
    if outbound.secret_servers.credentials:
        clusters.append(Group(credential_server_clusters, (), PatchSide.OUTBOUND))
    return patched_plan(
        db,
        node_id,
        ProxyPlan(
            {
                CLUSTER: tuple(clusters),
                ENDPOINT: (
                    Group(vip_endpoints, (vips,), PatchSide.NONE),
                    outbound_endpoint_group(db, attached),
                ),
                LISTENER: tuple(listeners),
                ROUTE: (),
                **agent_groups(db),
            },
            by_name={**secret_groups(db, node_id), **extension_groups(db, node_id)},
        ),
    )


def _east_west_plan(db: Mesh, node_id: str, gateway: ObjectKey, outbound: OutboundFacet) -> ProxyPlan:
    """Return the plan of an east-west gateway, which terminates outer tunnels and forwards the inner tunnels.

    Listeners of its Gateway that pass TLS through are those of an ordinary gateway.
    """
    facet, passthrough = waypoint_facet(db, node_id, gateway), _passthrough_groups(db, node_id, outbound)
    return patched_plan(
        db,
        node_id,
        ProxyPlan(
            {
                CLUSTER: (
                    Group(forwarding_clusters, (), PatchSide.NONE),
                    Group(east_west_clusters, (outbound,), PatchSide.NONE),
                    *passthrough.get(CLUSTER, ()),
                ),
                ENDPOINT: (
                    Group(east_west_endpoints, (outbound,), PatchSide.NONE),
                    *passthrough.get(ENDPOINT, ()),
                ),
                LISTENER: (
                    Group(terminating_listeners, (facet.listening, facet.terminating, True), PatchSide.INBOUND),
                    Group(east_west_listeners, (EastWestKey(facet.listening, facet.families),), PatchSide.INBOUND),
                    Group(forwarding_listeners, (originator_key(facet.listening),), PatchSide.NONE),
                    *passthrough.get(LISTENER, ()),
                ),
                ROUTE: (),
                **agent_groups(db),
            },
            by_name={**secret_groups(db, node_id), **extension_groups(db, node_id)},
        ),
    )


def _passthrough_groups(db: Mesh, node_id: str, outbound: OutboundFacet) -> dict[str, tuple[Group, ...]]:
    """Return the groups, by type, for the listeners of an east-west gateway that pass TLS through, if there are any.

    Their clusters do not use HBONE, because the gateway has no listener that opens tunnels of its own.
    """
    selected = gateway_selection_key(db, node_id)
    gateways = tuple(key for key in selected.gateways if is_listener_gateway(key.name))
    if not gateways:
        return {}
    selection = replace(selected, gateways=gateways)
    routed = replace(outbound, scope=replace(outbound.scope, routed=gateways), no_hbone=True)
    return {
        CLUSTER: (
            Group(outbound_clusters, (without_location(routed),), PatchSide.OUTBOUND),
            Group(inline_clusters, (routed,), PatchSide.OUTBOUND),
        ),
        ENDPOINT: (outbound_endpoint_group(db, routed),),
        LISTENER: (Group(gateway_listeners, (selection, gateway_listeners_facet(db, node_id)), PatchSide.INBOUND),),
    }
