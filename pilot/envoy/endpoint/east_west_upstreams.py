"""Derives the clusters and endpoints of the services that an east-west gateway exposes.

All endpoints are in the gateway's own network.
"""

from __future__ import annotations

import msgspec
from envoy.config.cluster.v3 import cluster_pb2

from pilot.config.protocol import Protocol
from pilot.derive import Gather, derived
from pilot.envoy.cluster import cluster_metadata as metadata
from pilot.envoy.cluster.cluster_builder import ClusterDestination, draft_cluster
from pilot.envoy.cluster.cluster_defaults import ClusterDefaults, cluster_defaults
from pilot.envoy.cluster.cluster_traits import ClusterTraitsKey, outbound_traits, without_scope
from pilot.envoy.cluster.endpoint_discovery import apply_eds
from pilot.envoy.cluster.outbound_clusters import cluster_resource
from pilot.envoy.cluster.policy.connection_pool import apply_connection_pool
from pilot.envoy.cluster.policy.effective_policy import NO_POLICY
from pilot.envoy.cluster.policy.load_balancing import apply_load_balancing
from pilot.envoy.cluster.vip_clusters import ResolvedVipKey, VipKey, find_vip_destination, vip_ports
from pilot.envoy.endpoint.assignment_builder import AssignmentOptions, build_cluster_load_assignment
from pilot.envoy.endpoint.endpoint_inputs import client_location, endpoint_policy, lb_endpoint_options, uses_mtls
from pilot.envoy.names import TCP
from pilot.envoy.resource import Resource
from pilot.envoy.transport_socket.hbone_sockets import (
    INTERNAL_UPSTREAM,
    build_internal_upstream,
    tunnel_metadata,
)
from pilot.lib.xds_types import ENDPOINT
from pilot.mesh.ambient.east_west import admitted_services
from pilot.mesh.model.facets import OutboundFacet
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.networks import network_gateways
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh


@derived
def _keys(db: Mesh, _: OutboundFacet) -> tuple[VipKey, ...]:
    """Return a cluster key for each port of the exposed services.

    The protocol is TCP, because the traffic is inside a tunnel.
    """
    rows = (service(db, ref) for ref in admitted_services(db))
    return tuple(VipKey(row.ref, port.number, TCP) for row in rows if row is not None for port, _ in vip_ports(row))


def _destination(db: Mesh, key: VipKey) -> ClusterDestination | None:
    destination = find_vip_destination(db, ResolvedVipKey(key, ()))
    return (
        destination._replace(port=msgspec.structs.replace(destination.port, protocol=Protocol.TCP))
        if destination is not None
        else None
    )


def build_east_west_cluster(
    key: VipKey, destination: ClusterDestination, traits: ClusterTraitsKey, defaults: ClusterDefaults
) -> cluster_pb2.Cluster:
    """Return the cluster for a port.

    It ignores DestinationRules, because the waypoint at which the tunnel ends applies them.
    """
    draft = draft_cluster(key.name, destination, cluster_pb2.Cluster.EDS, traits, defaults, None)
    apply_connection_pool(draft, NO_POLICY, defaults)
    apply_load_balancing(draft, None, destination.service, False, defaults, NodeType.WAYPOINT)
    apply_eds(draft.cluster)
    draft.cluster.ClearField("transport_socket_matches")
    draft.cluster.transport_socket.CopyFrom(
        build_internal_upstream(metadata=tunnel_metadata(defaults.baggage), name=INTERNAL_UPSTREAM)
    )
    metadata.add_services(draft.cluster, (destination.service,))
    metadata.set_subset(draft.cluster, TCP)
    return draft.build()


@derived
def _cluster(db: Mesh, key: VipKey, traits: ClusterTraitsKey) -> Resource | None:
    destination = _destination(db, key)
    return (
        cluster_resource(build_east_west_cluster(key, destination, traits, cluster_defaults(db)))
        if destination is not None
        else None
    )


east_west_clusters: Gather[VipKey, [OutboundFacet], Resource] = Gather(
    "east-west clusters", _keys, _cluster, passed=lambda key, outbound: (outbound_traits(outbound),)
)
"""The clusters of the exposed services."""


@derived
def _assignment(db: Mesh, key: VipKey, outbound: OutboundFacet) -> Resource | None:
    destination = _destination(db, key)
    if destination is None:
        return None
    policy = msgspec.structs.replace(endpoint_policy(db, destination, False), balancing=None)
    client = msgspec.structs.replace(client_location(db, policy, outbound), cross_network="none")
    options = AssignmentOptions(
        policy,
        client,
        network_gateways(db),
        lb_endpoint_options(db, destination.service),
        vip=True,
        forwards_tunnels=True,
    )
    assignment = build_cluster_load_assignment(
        key.name, endpoints(db, key.ref, key.port), options, lambda e: uses_mtls(db, e, policy)
    )
    return Resource.of(ENDPOINT, assignment, assignment.cluster_name)


east_west_endpoints: Gather[VipKey, [OutboundFacet], Resource] = Gather(
    "east-west endpoints", _keys, _assignment, passed=lambda key, outbound: (without_scope(outbound),)
)
"""The endpoints of the exposed services."""
