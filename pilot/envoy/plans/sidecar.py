"""Chooses which resources a sidecar gets."""

from __future__ import annotations

from pilot.envoy.agent_resources import name_table
from pilot.envoy.endpoint.load_assignments import endpoints_of
from pilot.envoy.listener.inbound import inbound_listeners
from pilot.envoy.listener.outbound import (
    addressing,
    http_listeners,
    http_listeners_of_others,
    serves_headless,
    tcp_listeners,
    tcp_listeners_of_others,
    without_spans,
)
from pilot.envoy.listener.virtual_outbound import capture_listeners
from pilot.envoy.plans.agent import companion_groups
from pilot.envoy.plans.clusters import sidecar_cluster_groups
from pilot.envoy.plans.extensions import extension_groups
from pilot.envoy.plans.own_endpoints import own_endpoints
from pilot.envoy.plans.patches import patched_plan
from pilot.envoy.plans.plan import Group, Plan
from pilot.envoy.plans.secrets import secret_groups
from pilot.envoy.plans.sidecar_routes import route_configurations
from pilot.envoy.plans.tunnels import originating_listener_groups, terminating_listener_groups
from pilot.lib.xds_types import CLUSTER, ENDPOINT, LISTENER, NAME_TABLE, ROUTE
from pilot.mesh.model.facets import OutboundListenersFacet, SpanTagsFacet
from pilot.mesh.proxies.classify import inbound_facet, outbound_facet, outbound_listeners_facet
from pilot.mesh.proxies.resolver import resolver_facet
from pilot.mesh.proxies.sidecar_routing import sidecar_routes_facet
from pilot.mesh.tables.database import Mesh


def sidecar_plan(db: Mesh, node_id: str) -> Plan:
    """Returns the groups of one sidecar. No node of its own."""
    outbound, inbound = outbound_facet(db, node_id), inbound_facet(db, node_id)
    listens, routes = outbound_listeners_facet(db, node_id), sidecar_routes_facet(db, node_id)
    return patched_plan(
        db,
        node_id,
        Plan(
            {
                CLUSTER: sidecar_cluster_groups(db, outbound, inbound),
                ENDPOINT: (Group(endpoints_of, (outbound,)), *own_endpoints(db, node_id)),
                LISTENER: (
                    *_outbound_listeners(db, listens, inbound.tags, inbound.ips[0]),
                    Group(inbound_listeners, (inbound,)),
                    *originating_listener_groups(db, outbound, listens.listening),
                    *terminating_listener_groups(db, inbound),
                ),
                ROUTE: (Group(route_configurations, (addressing(listens), routes)),),
                NAME_TABLE: (Group(name_table, (outbound.scope, resolver_facet(db, node_id, routes.families))),),
                **companion_groups(db),
            },
            named={**secret_groups(db, node_id), **extension_groups(db, node_id)},
        ),
    )


def _outbound_listeners(
    db: Mesh, facet: OutboundListenersFacet, spans: SpanTagsFacet, address: str
) -> tuple[Group, ...]:
    capture = Group(capture_listeners, (facet, spans))
    if serves_headless(db, facet, address):
        return (
            Group(tcp_listeners_of_others, (without_spans(facet), address)),
            Group(http_listeners_of_others, (facet, spans, address)),
            capture,
        )
    return Group(tcp_listeners, (without_spans(facet),)), Group(http_listeners, (facet, spans)), capture
