"""The plan of a proxyless gRPC client or server, which requests every resource by name."""

from __future__ import annotations

from pilot.envoy.plans.resource_group import NamedGroup, ProxyPlan
from pilot.envoy.proxyless.client_clusters import cluster_endpoints, clusters
from pilot.envoy.proxyless.client_listeners import client_listeners
from pilot.envoy.proxyless.client_routes import routes
from pilot.envoy.proxyless.server_listeners import server_listeners
from pilot.lib.xds_types import CLUSTER, ENDPOINT, LISTENER, ROUTE
from pilot.mesh.proxies.classify import inbound_facet
from pilot.mesh.proxies.proxyless import proxyless_facet
from pilot.mesh.proxies.sidecar_routing import sidecar_routes_facet
from pilot.mesh.tables.database import Mesh


def proxyless_plan(db: Mesh, node_id: str) -> ProxyPlan:
    """Return the plan of a gRPC client or server. Not memoised."""
    client = proxyless_facet(db, node_id)
    return ProxyPlan(
        {},
        by_name={
            CLUSTER: (NamedGroup(clusters, (client,)),),
            ENDPOINT: (NamedGroup(cluster_endpoints, (client,)),),
            LISTENER: (
                NamedGroup(client_listeners, (client,)),
                NamedGroup(server_listeners, (inbound_facet(db, node_id),)),
            ),
            ROUTE: (NamedGroup(routes, (sidecar_routes_facet(db, node_id),)),),
        },
    )
