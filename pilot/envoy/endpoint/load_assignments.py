"""Derives the ClusterLoadAssignments of a client's clusters (EDS), each built once for all clients that see the same.

What a client's scope says is resolved first, into the objects of its DestinationRule and a vantage; only these are the arguments
of what is built.
"""

from __future__ import annotations

from envoy.config.endpoint.v3 import endpoint_pb2

from pilot.derive import Gather, derived
from pilot.envoy import names
from pilot.envoy.cluster.cluster_builder import ClusterDestination
from pilot.envoy.cluster.cluster_keys import (
    ClusterKey,
    ResolvedClusterKey,
    find_destination,
    find_eds_destination,
    location_independent_keys,
)
from pilot.envoy.cluster.cluster_traits import without_scope
from pilot.envoy.endpoint.assignment_builder import AssignmentOptions, build_cluster_load_assignment
from pilot.envoy.endpoint.client_location import ClientLocationKey, unlocated_client
from pilot.envoy.endpoint.endpoint_inputs import (
    client_location,
    endpoint_policy,
    is_location_independent,
    lb_endpoint_options,
    originates_tunnels,
    uses_mtls,
)
from pilot.envoy.endpoint.endpoint_policy import EndpointPolicy
from pilot.envoy.endpoint.ingress_waypoint import IngressWaypoint, ingress_waypoint
from pilot.envoy.resource import Resource
from pilot.lib.addresses import joined
from pilot.lib.xds_types import ENDPOINT
from pilot.mesh.model.ambient import prefers_hbone
from pilot.mesh.model.facets import OutboundFacet
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.registry.clusterset import bounds
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.networks import NetworkGateways, all_network_gateways, network_gateways
from pilot.mesh.tables.database import Mesh


@derived
def _load_assignment(
    db: Mesh, ruled: ResolvedClusterKey, proxy_type: NodeType, client: ClientLocationKey, sni: bool
) -> Resource | None:
    to = find_eds_destination(db, ruled, proxy_type)
    if to is None or (sni and to.service.mesh_external):
        return None
    entry = (
        ingress_waypoint(db, ruled.cluster, to.service)
        if proxy_type is NodeType.ROUTER and client.hbone and not sni
        else None
    )
    if entry is not None:
        built = _build_entry(db, ruled.cluster, to, client, entry)
    else:
        built = _build(db, ruled.cluster, to, client, sni, network_gateways(db), inline=False)
    return Resource.of(ENDPOINT, built, built.cluster_name)


def _build_entry(
    db: Mesh, key: ClusterKey, to: ClusterDestination, client: ClientLocationKey, entry: IngressWaypoint
) -> endpoint_pb2.ClusterLoadAssignment:
    """Returns the waypoints of a service in the place of its endpoints; none of the rules for these counts."""
    policy = EndpointPolicy(bounds=bounds(db, to.service))
    host = joined(key.ref.hostname, key.port)
    rules = AssignmentOptions(
        policy, client, network_gateways(db), lb_endpoint_options(db, to.service), entered=entry.address, host=host
    )
    return build_cluster_load_assignment(key.name, entry.endpoints, rules, lambda e: uses_mtls(db, e, policy))


def _resolve(db: Mesh, ruled: ResolvedClusterKey, outbound: OutboundFacet, sni: bool) -> Resource | None:
    """Returns what a client gets for a key: from where it sees the endpoints decides."""
    if is_location_independent(db, outbound):
        client = unlocated_client(outbound.reach.cluster_id, originates_tunnels(db, outbound))
    else:
        to = find_eds_destination(db, ruled, outbound.type)
        if to is None:
            return None
        client = client_location(db, endpoint_policy(db, to, False), outbound)
    return _load_assignment(db, ruled, outbound.type, client, sni)


@derived
def outbound_load_assignment(db: Mesh, ruled: ResolvedClusterKey, outbound: OutboundFacet) -> Resource | None:
    """Returns the endpoints of one cluster, None where they do not come by EDS."""
    return _resolve(db, ruled, outbound, sni=False)


@derived
def _sni_assignment_for(db: Mesh, ruled: ResolvedClusterKey, outbound: OutboundFacet) -> Resource | None:
    return _resolve(db, ruled, outbound, sni=True)


def item_arguments(outbound: OutboundFacet) -> tuple[OutboundFacet]:
    """Returns the argument that the items of an outbound facet have behind their key."""
    return (without_scope(outbound),)


outbound_load_assignments: Gather[ResolvedClusterKey, [OutboundFacet], Resource] = Gather(
    "load_assignments", location_independent_keys, outbound_load_assignment, passed=item_arguments
)
"""The endpoints of a proxy's outbound clusters."""


sni_load_assignments: Gather[ResolvedClusterKey, [OutboundFacet], Resource] = Gather(
    "sni_load_assignments", location_independent_keys, _sni_assignment_for, passed=item_arguments
)
"""The endpoints of the clusters that a gateway forwards to by SNI, which take mesh mTLS and nothing else."""


# -- clusters that hold their endpoints --------------------------------------------------------------------------------------
def inline_load_assignment(
    db: Mesh, ruled: ResolvedClusterKey, outbound: OutboundFacet, sni: bool = False
) -> endpoint_pb2.ClusterLoadAssignment | None:
    """Returns the endpoints of a cluster that holds them itself (STATIC, STRICT_DNS, LOGICAL_DNS); None where it has none.

    The message is shared: copy it, do not change it. No node of its own.
    """
    to = find_destination(db, ruled)
    if to is None:
        return None
    return _inline_load_assignment(db, ruled, client_location(db, endpoint_policy(db, to, True), outbound), sni)


@derived
def _inline_load_assignment(
    db: Mesh, ruled: ResolvedClusterKey, client: ClientLocationKey, sni: bool
) -> endpoint_pb2.ClusterLoadAssignment | None:
    to = find_destination(db, ruled)
    if to is None:
        return None
    built = _build(db, ruled.cluster, to, client, sni, all_network_gateways(db), inline=True)
    return built if built.endpoints else None


def _build(
    db: Mesh,
    key: ClusterKey,
    to: ClusterDestination,
    client: ClientLocationKey,
    sni: bool,
    gateways: NetworkGateways,
    inline: bool,
) -> endpoint_pb2.ClusterLoadAssignment:
    name = names.dns_srv(key.port, key.subset, key.ref.hostname) if sni else key.name
    policy, show = endpoint_policy(db, to, inline), lb_endpoint_options(db, to.service)
    rules = AssignmentOptions(
        policy,
        client,
        gateways,
        show,
        sni,
        inline,
        prefers_hbone(db.settings.ambient),
        host=joined(key.ref.hostname, key.port),
    )
    return build_cluster_load_assignment(
        name, endpoints(db, key.ref, key.port), rules, lambda e: uses_mtls(db, e, policy)
    )
