"""Derives the outbound clusters of a proxy. Each is resolved in the proxy's scope and then built once for all who resolve it alike."""

from __future__ import annotations

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2

from pilot.derive import Gather, derived
from pilot.envoy.cluster.cluster_builder import ClusterDestination, build_outbound
from pilot.envoy.cluster.cluster_defaults import cluster_defaults
from pilot.envoy.cluster.cluster_keys import ResolvedClusterKey, find_destination, location_independent_keys
from pilot.envoy.cluster.cluster_traits import ClusterTraitsKey, outbound_traits
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
    """Returns whether a port has endpoints and all of them take mesh TLS: where the client chooses the endpoint, it is all or none."""
    found = endpoints(db, ref, port)
    return bool(found) and all(e.tls_mode != "disabled" for e in found)


@derived
def all_accept_hbone(db: Mesh, ref: ServiceRef, port: int) -> bool:
    """Returns whether a port has endpoints and all of them take HBONE."""
    found = endpoints(db, ref, port)
    return bool(found) and all(e.hbone for e in found)


def peer_mtls_mode(db: Mesh, service: Service, port: int, passing: bool) -> Mode:
    """Returns what clients take for granted of a service's workloads. `passing`: the client chooses the endpoint."""
    if service.mesh_external:
        return "UNKNOWN"
    if passing and not all_accept_mtls(db, service.ref, port):
        return "DISABLE"
    mode = namespace_mtls(db, service.namespace)
    return "PERMISSIVE" if mode == "UNKNOWN" else mode


def _passing(to: ClusterDestination) -> bool:
    """Returns whether the client chooses the endpoint, by the service or by the rule."""
    policy = to.subset if to.subset is not None else (to.rule.spec if to.rule is not None else None)
    return to.service.resolution is Resolution.PASSTHROUGH or passes_through(
        policy.traffic_policy if policy is not None else None
    )


def resolve_cluster(
    db: Mesh,
    ruled: ResolvedClusterKey,
    traits: ClusterTraitsKey,
    inline: endpoint_pb2.ClusterLoadAssignment | None,
    sni_routed: bool = False,
) -> Resource | None:
    """Returns the cluster of a key; `inline`: the endpoints of one that holds them. No node of its own."""
    to, key = find_destination(db, ruled, sni_routed), ruled.cluster
    if to is None:
        return None
    mtls = "UNKNOWN" if sni_routed else peer_mtls_mode(db, to.service, key.port, _passing(to))
    if db.settings.ambient.enabled and not sni_routed:
        to = to._replace(all_hbone=all_accept_hbone(db, key.ref, key.port))
    accounts = () if sni_routed else service_accounts(db, key.ref)
    built = build_outbound(to, accounts, mtls, traits, cluster_defaults(db), inline)
    return cluster_resource(built) if built is not None else None


def cluster_resource(built: cluster_pb2.Cluster) -> Resource:
    """Returns the resource of a cluster; one with endpoints by EDS is ready only with these."""
    eds = built.HasField("eds_cluster_config")
    return Resource.of(CLUSTER, built, warms=built.name if eds else "")


@derived
def location_independent_cluster(db: Mesh, ruled: ResolvedClusterKey, traits: ClusterTraitsKey) -> Resource | None:
    """Returns the cluster of a key, where it is the same wherever its proxy is."""
    return resolve_cluster(db, ruled, traits, None)


outbound_clusters: Gather[ResolvedClusterKey, [OutboundFacet], Resource] = Gather(
    "outbound clusters",
    location_independent_keys,
    location_independent_cluster,
    passed=lambda outbound: (outbound_traits(outbound),),
)
"""The outbound clusters without endpoints of their own. The argument is the facet `without_location`, so that proxies of all places share them."""
