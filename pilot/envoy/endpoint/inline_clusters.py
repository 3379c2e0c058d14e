"""Derives the outbound clusters that contain their endpoints. Envoy resolves the endpoints' host names by DNS."""

from __future__ import annotations

from pilot.derive import Gather, derived
from pilot.envoy.cluster.cluster_keys import ResolvedClusterKey, cluster_keys, find_destination, inline_keys
from pilot.envoy.cluster.cluster_traits import outbound_traits
from pilot.envoy.cluster.endpoint_discovery import INLINE, discovery_type, is_dynamic
from pilot.envoy.cluster.outbound_clusters import resolve_cluster
from pilot.envoy.endpoint.load_assignments import inline_endpoints, item_arguments
from pilot.envoy.resource import Resource
from pilot.mesh.model.facets import OutboundFacet
from pilot.mesh.tables.database import Mesh


@derived
def _inline_cluster(db: Mesh, key: ResolvedClusterKey, outbound: OutboundFacet) -> Resource | None:
    destination = find_destination(db, key)
    if destination is None:
        return None
    return resolve_cluster(db, destination, outbound_traits(outbound), inline_endpoints(db, key, destination, outbound))


inline_clusters: Gather[ResolvedClusterKey, [OutboundFacet], Resource] = Gather(
    "outbound clusters with endpoints", inline_keys, _inline_cluster, passed=item_arguments
)
"""The outbound clusters of a proxy that contain their endpoints, with priorities for the proxy's location."""


@derived
def _sni_routed_cluster(db: Mesh, key: ResolvedClusterKey, outbound: OutboundFacet) -> Resource | None:
    destination = find_destination(db, key, sni_routed=True)
    if destination is None or destination.service.mesh_external or is_dynamic(destination.service):
        return None
    inline = (
        inline_endpoints(db, key, destination, outbound)
        if discovery_type(destination.service, router=True) in INLINE
        else None
    )
    return resolve_cluster(db, destination, outbound_traits(outbound), inline)


sni_routed_clusters: Gather[ResolvedClusterKey, [OutboundFacet], Resource] = Gather(
    "clusters routed to by SNI", cluster_keys, _sni_routed_cluster, passed=item_arguments
)
"""The additional clusters of a router that has a Gateway server in mode AUTO_PASSTHROUGH.

They are named after the SNI that clients send. The router adds no TLS of its own.
"""
