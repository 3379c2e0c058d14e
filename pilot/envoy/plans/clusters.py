"""Lists all clusters of a sidecar, as the groups that its plan names."""

from __future__ import annotations

from pilot.envoy.cluster.builtin_clusters import (
    credential_server_clusters,
    dynamic_dns_clusters,
    inbound_fixed_clusters,
    sidecar_fixed_clusters,
)
from pilot.envoy.cluster.cluster_traits import outbound_traits, without_place
from pilot.envoy.cluster.inbound_clusters import inbound_clusters
from pilot.envoy.cluster.outbound_clusters import outbound_clusters
from pilot.envoy.endpoint.inline_clusters import inline_clusters
from pilot.envoy.plans.plan import Group
from pilot.envoy.plans.tunnels import originating_cluster_groups, terminating_cluster_groups
from pilot.mesh.model.facets import InboundFacet, OutboundFacet
from pilot.mesh.scope.sidecar_scope import outbound_traffic_policy
from pilot.mesh.tables.database import Mesh


def sidecar_cluster_groups(db: Mesh, outbound: OutboundFacet, inbound: InboundFacet) -> tuple[Group, ...]:
    """Returns the groups of a sidecar's clusters. No node of its own."""
    traits = outbound_traits(outbound)
    groups = [
        Group(outbound_clusters, (without_place(outbound),)),
        Group(inline_clusters, (outbound,)),
        Group(sidecar_fixed_clusters, (traits,)),
        Group(inbound_fixed_clusters, (traits,)),
        Group(inbound_clusters, (inbound,)),
        *originating_cluster_groups(db, outbound),
        *terminating_cluster_groups(inbound),
    ]
    if outbound_traffic_policy(db, outbound.scope).dynamic_dns:
        groups.append(Group(dynamic_dns_clusters, (traits, outbound.dns_proxy)))
    if outbound.secret_servers.credentials:
        groups.append(Group(credential_server_clusters, ()))
    return tuple(groups)
