"""Chooses which resources a gRPC client or server without a proxy gets: those that it names."""

from __future__ import annotations

from pilot.lib.xds_types import CLUSTER, ENDPOINT, LISTENER, ROUTE
from pilot.model.inputs import Mesh
from pilot.model.views.classify import inbound_facet
from pilot.model.views.proxyless import proxyless_facet
from pilot.model.views.sidecar_routing import sidecar_routes_facet
from pilot.translate.profile.plan import NamedGroup, Plan
from pilot.translate.proxyless.clusters import cluster_endpoints, clusters
from pilot.translate.proxyless.listener import client_listeners
from pilot.translate.proxyless.routes import routes
from pilot.translate.proxyless.server import server_listeners


def proxyless_plan(db: Mesh, node_id: str) -> Plan:
    """Returns the groups of one gRPC client or server. No node of its own."""
    client = proxyless_facet(db, node_id)
    return Plan(
        {},
        named={
            CLUSTER: (NamedGroup(clusters, (client,)),),
            ENDPOINT: (NamedGroup(cluster_endpoints, (client,)),),
            LISTENER: (
                NamedGroup(client_listeners, (client,)),
                NamedGroup(server_listeners, (inbound_facet(db, node_id),)),
            ),
            ROUTE: (NamedGroup(routes, (sidecar_routes_facet(db, node_id),)),),
        },
    )
