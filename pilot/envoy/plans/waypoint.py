"""Chooses which resources a waypoint gets: those of the services and workloads that are attached to it, and of nothing else in the mesh."""

from __future__ import annotations

from msgspec.structs import replace

from pilot.config.object import ObjectKey
from pilot.envoy.cluster.builtin_clusters import credential_server_clusters
from pilot.envoy.cluster.cluster_traits import without_place
from pilot.envoy.cluster.hbone_clusters import crossing_clusters, forwarding_clusters, waypoint_fixed_clusters
from pilot.envoy.cluster.outbound_clusters import outbound_clusters
from pilot.envoy.endpoint.east_west_upstreams import passage_clusters, passage_endpoints
from pilot.envoy.endpoint.inline_clusters import inline_clusters
from pilot.envoy.endpoint.load_assignments import endpoints_of
from pilot.envoy.endpoint.waypoint_upstreams import VipListKey, vip_clusters, vip_endpoints
from pilot.envoy.listener.connect_originate import (
    crossing_listeners,
    forwarding_listeners,
    originating_listeners,
    originator_key,
)
from pilot.envoy.listener.connect_terminate import terminating_listeners
from pilot.envoy.listener.east_west import passage_listeners
from pilot.envoy.listener.main_internal import main_internal_listeners
from pilot.envoy.plans.agent import companion_groups
from pilot.envoy.plans.extensions import extension_groups
from pilot.envoy.plans.patches import patched_plan
from pilot.envoy.plans.plan import Group, Plan
from pilot.envoy.plans.secrets import secret_groups
from pilot.lib.xds_types import CLUSTER, ENDPOINT, LISTENER, ROUTE
from pilot.mesh.ambient.east_west import PassageKey, lets_in
from pilot.mesh.model.ambient import serves_waypoints
from pilot.mesh.model.facets import OutboundFacet
from pilot.mesh.proxies.classify import outbound_facet
from pilot.mesh.proxies.waypoint import waypoint_facet, waypoint_of
from pilot.mesh.tables.database import Mesh


def waypoint_plan(db: Mesh, node_id: str) -> Plan:
    """Returns the groups of one waypoint; no resources where waypoints are not served, or where its build cannot be one. No node of its own."""
    whole = outbound_facet(db, node_id)
    if not (serves_waypoints(db.settings.ambient) and whole.features.internal_listeners):
        return Plan(dict.fromkeys((CLUSTER, ENDPOINT, LISTENER, ROUTE), ()))
    waypoint = waypoint_of(db, node_id)
    if lets_in(db, node_id):
        return _between_networks(db, node_id, waypoint, whole)
    facet, served = waypoint_facet(db, node_id, waypoint), VipListKey(waypoint, whole)
    onward = replace(whole, scope=replace(whole.scope, waypoint=waypoint))
    key = originator_key(facet.listening)
    return patched_plan(
        db,
        node_id,
        Plan(
            {
                CLUSTER: (
                    Group(waypoint_fixed_clusters, (waypoint.namespace,)),
                    Group(vip_clusters, (served,)),
                    Group(outbound_clusters, (without_place(onward),)),
                    Group(inline_clusters, (onward,)),
                    *((Group(crossing_clusters, ()),) if facet.crosses else ()),
                    *((Group(credential_server_clusters, ()),) if whole.secret_servers.credentials else ()),
                ),
                ENDPOINT: (Group(vip_endpoints, (served,)), Group(endpoints_of, (onward,))),
                LISTENER: (
                    Group(terminating_listeners, (facet.listening, facet.terminating, False)),
                    Group(main_internal_listeners, (facet,)),
                    Group(originating_listeners, (key,)),
                    *((Group(crossing_listeners, (key, facet.network)),) if facet.crosses else ()),
                ),
                ROUTE: (),
                **companion_groups(db),
            },
            named={**secret_groups(db, node_id), **extension_groups(db, node_id)},
        ),
    )


def _between_networks(db: Mesh, node_id: str, gateway: ObjectKey, whole: OutboundFacet) -> Plan:
    """Returns the groups of a gateway between networks, at which tunnels that came through others go on."""
    facet = waypoint_facet(db, node_id, gateway)
    return patched_plan(
        db,
        node_id,
        Plan(
            {
                CLUSTER: (Group(forwarding_clusters, ()), Group(passage_clusters, (whole,))),
                ENDPOINT: (Group(passage_endpoints, (whole,)),),
                LISTENER: (
                    Group(terminating_listeners, (facet.listening, facet.terminating, True)),
                    Group(passage_listeners, (PassageKey(facet.listening, facet.families),)),
                    Group(forwarding_listeners, (originator_key(facet.listening),)),
                ),
                ROUTE: (),
                **companion_groups(db),
            },
            named={**secret_groups(db, node_id), **extension_groups(db, node_id)},
        ),
    )
