"""Derives a proxy's outbound clusters. Proxies with equal cluster traits and DestinationRules share each cluster."""

from __future__ import annotations

from envoy.config.cluster.v3 import cluster_pb2

from pilot.derive import Gather, derived
from pilot.envoy.cluster.cluster_builder import ClusterDestination, build_outbound
from pilot.envoy.cluster.cluster_defaults import cluster_defaults
from pilot.envoy.cluster.cluster_keys import ResolvedClusterKey, find_destination, location_independent_keys
from pilot.envoy.cluster.cluster_traits import ClusterTraitsKey, outbound_traits, shared_traits
from pilot.envoy.cluster.inline_endpoints import InlineEndpoints, serialize_cluster
from pilot.envoy.cluster.policy.effective_policy import passes_through
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import CLUSTER
from pilot.mesh.model.facets import OutboundFacet
from pilot.mesh.model.service import Resolution, Service, ServiceRef
from pilot.mesh.registry.endpoints import endpoints, service_accounts
from pilot.mesh.security.mtls import Mode, namespace_mtls
from pilot.mesh.tables.database import Mesh


@derived
def all_accept_mtls(db: Mesh, ref: ServiceRef, port: int) -> bool:
    """Return whether a port has endpoints and all of them accept mesh mTLS.

    If the client chooses the endpoint, the cluster uses mTLS for all endpoints or for none.
    """
    rows = endpoints(db, ref, port)
    return bool(rows) and all(e.tls_mode != "disabled" for e in rows)


@derived
def all_accept_hbone(db: Mesh, ref: ServiceRef, port: int) -> bool:
    """Return whether a port has endpoints and all of them accept HBONE."""
    rows = endpoints(db, ref, port)
    return bool(rows) and all(e.hbone for e in rows)


def peer_mtls_mode(db: Mesh, service: Service, port: int, client_chooses: bool) -> Mode:
    """Return the mTLS mode that clients assume for a service's workloads.

    `client_chooses` is set if the client, and not the load balancer, chooses the endpoint.
    """
    if service.mesh_external:
        return "UNKNOWN"
    if client_chooses and not all_accept_mtls(db, service.ref, port):
        return "DISABLE"
    mode = namespace_mtls(db, service.namespace)
    return "PERMISSIVE" if mode == "UNKNOWN" else mode


def _passes_through(destination: ClusterDestination) -> bool:
    """Return whether the client chooses the endpoint, because of the service's resolution or a DestinationRule."""
    policy = (
        destination.subset
        if destination.subset is not None
        else (destination.rule.spec if destination.rule is not None else None)
    )
    return destination.service.resolution is Resolution.PASSTHROUGH or passes_through(
        policy.traffic_policy if policy is not None else None
    )


def resolve_cluster(
    db: Mesh,
    destination: ClusterDestination,
    traits: ClusterTraitsKey,
    inline: InlineEndpoints | None = None,
) -> Resource | None:
    """Return the cluster for a destination, or None if the cluster cannot be built. Not memoised.

    If the cluster must contain its endpoints, they are passed in `inline`.
    """
    ref, port, sni_routed = destination.service.ref, destination.port.number, destination.sni_routed
    mtls = "UNKNOWN" if sni_routed else peer_mtls_mode(db, destination.service, port, _passes_through(destination))
    if db.settings.ambient.enabled and not sni_routed:
        destination = destination._replace(all_hbone=all_accept_hbone(db, ref, port))
    accounts = () if sni_routed else service_accounts(db, ref)
    cluster = build_outbound(destination, accounts, mtls, traits, cluster_defaults(db), inline)
    return cluster_resource(cluster, inline) if cluster is not None else None


def cluster_resource(cluster: cluster_pb2.Cluster, inline: InlineEndpoints | None = None) -> Resource:
    """Return the resource for a cluster and its inline endpoints.

    A cluster with EDS only becomes ready when its endpoints arrive.
    """
    if inline is not None and cluster.HasField("load_assignment"):
        value, shared = serialize_cluster(cluster, inline)
        return Resource(cluster.name, CLUSTER, value, extra_pieces=(shared,))
    return Resource.of(CLUSTER, cluster, warms=cluster.name if cluster.HasField("eds_cluster_config") else "")


@derived
def location_independent_cluster(db: Mesh, key: ResolvedClusterKey, traits: ClusterTraitsKey) -> Resource | None:
    """Return the cluster for a key. The cluster must not depend on the proxy's location."""
    destination = find_destination(db, key)
    return resolve_cluster(db, destination, traits) if destination is not None else None


def _traits(key: ResolvedClusterKey, outbound: OutboundFacet) -> tuple[ClusterTraitsKey]:
    """Return the traits of a proxy that affect a cluster."""
    traits = outbound_traits(outbound)
    return (traits if key.router_differs else shared_traits(traits),)


outbound_clusters: Gather[ResolvedClusterKey, [OutboundFacet], Resource] = Gather(
    "outbound clusters",
    location_independent_keys,
    location_independent_cluster,
    passed=_traits,
)
"""The outbound clusters without inline endpoints.

The argument is a facet returned by `without_location`, so that proxies in all locations share the clusters. Sidecars
and routers share those that are the same for both.
"""
