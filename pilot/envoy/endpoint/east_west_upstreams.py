"""Derives the clusters of the services that a gateway between networks lets in, and their endpoints: those of its network alone."""

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
from pilot.envoy.cluster.policy.effective_policy import EffectivePolicy
from pilot.envoy.cluster.policy.load_balancing import apply_load_balancing
from pilot.envoy.cluster.vip_clusters import ResolvedVipKey, VipKey, find_vip_destination, vip_ports
from pilot.envoy.endpoint.assignment_builder import AssignmentOptions, build_cluster_load_assignment
from pilot.envoy.endpoint.endpoint_inputs import client_location, endpoint_policy, lb_endpoint_options, uses_mtls
from pilot.envoy.names import TCP
from pilot.envoy.resource import Resource
from pilot.envoy.transport_socket.hbone_sockets import (
    CLUSTER_AND_ENDPOINT_METADATA,
    INTERNAL_UPSTREAM,
    build_internal_upstream,
)
from pilot.lib.xds_types import ENDPOINT
from pilot.mesh.ambient.east_west import passed_services
from pilot.mesh.model.facets import OutboundFacet
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.networks import network_gateways
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh

_NO_RULE = EffectivePolicy()


@derived
def _keys(db: Mesh, _: OutboundFacet) -> tuple[VipKey, ...]:
    """Returns a cluster for each port, whatever is spoken there, for inside of a tunnel that is bytes."""
    found = (service(db, ref) for ref in passed_services(db))
    return tuple(VipKey(one.ref, port.number, TCP) for one in found if one is not None for port, _ in vip_ports(one))


def _destination(db: Mesh, key: VipKey) -> ClusterDestination | None:
    to = find_vip_destination(db, ResolvedVipKey(key, ()))
    return to._replace(port=msgspec.structs.replace(to.port, protocol=Protocol.TCP)) if to is not None else None


def build_east_west_cluster(
    key: VipKey, to: ClusterDestination, traits: ClusterTraitsKey, defaults: ClusterDefaults
) -> cluster_pb2.Cluster:
    """Returns the cluster of a port. DestinationRules are for the tunnel's other end."""
    draft = draft_cluster(key.name, to, cluster_pb2.Cluster.EDS, traits, defaults, None)
    apply_connection_pool(draft, _NO_RULE, defaults)
    apply_load_balancing(draft, None, to.service, False, defaults, NodeType.WAYPOINT)
    apply_eds(draft.cluster)
    draft.cluster.ClearField("transport_socket_matches")
    draft.cluster.transport_socket.CopyFrom(
        build_internal_upstream(passed=CLUSTER_AND_ENDPOINT_METADATA, name=INTERNAL_UPSTREAM)
    )
    metadata.add_services(draft.cluster, (to.service,))
    metadata.set_subset(draft.cluster, TCP)
    return draft.build()


@derived
def _cluster(db: Mesh, key: VipKey, traits: ClusterTraitsKey) -> Resource | None:
    to = _destination(db, key)
    return cluster_resource(build_east_west_cluster(key, to, traits, cluster_defaults(db))) if to is not None else None


east_west_clusters: Gather[VipKey, [OutboundFacet], Resource] = Gather(
    "clusters of passages", _keys, _cluster, passed=lambda outbound: (outbound_traits(outbound),)
)
"""The clusters of the services that are let in."""


@derived
def _assignment(db: Mesh, key: VipKey, outbound: OutboundFacet) -> Resource | None:
    to = _destination(db, key)
    if to is None:
        return None
    policy = msgspec.structs.replace(endpoint_policy(db, to, False), balance=None)
    client = msgspec.structs.replace(client_location(db, policy, outbound), ways="none")
    rules = AssignmentOptions(
        policy, client, network_gateways(db), lb_endpoint_options(db, to.service), vip=True, forwarded=True
    )
    built = build_cluster_load_assignment(
        key.name, endpoints(db, key.ref, key.port), rules, lambda e: uses_mtls(db, e, policy)
    )
    return Resource.of(ENDPOINT, built, built.cluster_name)


east_west_endpoints: Gather[VipKey, [OutboundFacet], Resource] = Gather(
    "endpoints of passages", _keys, _assignment, passed=lambda outbound: (without_scope(outbound),)
)
"""The endpoints of the services that are let in."""
