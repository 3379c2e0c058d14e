"""Derives the clusters of the services behind a waypoint and their endpoints, which it reaches through tunnels where they take them."""

from __future__ import annotations

import msgspec
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2

from pilot.config.object import ObjectKey
from pilot.derive import Gather, derived
from pilot.envoy.cluster.cluster_builder import ClusterDestination
from pilot.envoy.cluster.cluster_traits import ClusterTraitsKey, outbound_traits, without_scope
from pilot.envoy.cluster.outbound_clusters import cluster_resource
from pilot.envoy.cluster.vip_clusters import (
    ResolvedVipKey,
    find_vip_destination,
    has_inline_endpoints,
    resolve_vip,
    service_vip_keys,
    vip_discovery_type,
)
from pilot.envoy.endpoint.assignment_builder import AssignmentOptions, build_cluster_load_assignment
from pilot.envoy.endpoint.client_location import ClientLocationKey
from pilot.envoy.endpoint.endpoint_inputs import client_location, endpoint_policy, lb_endpoint_options, uses_mtls
from pilot.envoy.endpoint.endpoint_policy import EndpointPolicy
from pilot.envoy.resource import Resource
from pilot.lib.addresses import joined
from pilot.lib.xds_types import ENDPOINT
from pilot.mesh.model.facets import OutboundFacet
from pilot.mesh.proxies.waypoint import served_services
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.networks import NetworkGateways, all_network_gateways, network_gateways
from pilot.mesh.tables.database import Mesh


class VipListKey(msgspec.Struct, frozen=True, cache_hash=True):
    """Says which waypoint it is, and from where it sees what is behind it."""

    waypoint: ObjectKey
    outbound: OutboundFacet


@derived
def vip_keys(db: Mesh, by: VipListKey) -> tuple[ResolvedVipKey, ...]:
    """Returns the clusters of all services behind a waypoint."""
    return tuple(
        key for ref in served_services(db, by.waypoint) for key in service_vip_keys(db, ref, by.waypoint.namespace)
    )


def _unscoped(by: VipListKey) -> tuple[OutboundFacet]:
    """Returns the argument that items have behind their key, which waypoints at the same place have in common."""
    return (without_scope(by.outbound),)


# -- endpoints -------------------------------------------------------------------------------------------------------------
def _policy(db: Mesh, to: ClusterDestination, inline: bool) -> EndpointPolicy:
    """Returns which endpoints a cluster has. Zones are not balanced: a waypoint does not know its own pods."""
    policy = endpoint_policy(db, to, inline)
    zones = policy.balance is not None and policy.balance.by_region
    return msgspec.structs.replace(policy, balance=None) if zones else policy


def _build(
    db: Mesh,
    ruled: ResolvedVipKey,
    to: ClusterDestination,
    client: ClientLocationKey,
    gateways: NetworkGateways,
    inline: bool,
) -> endpoint_pb2.ClusterLoadAssignment:
    key, policy = ruled.cluster, _policy(db, to, inline)
    host = joined(key.ref.hostname, key.port)
    rules = AssignmentOptions(
        policy, client, gateways, lb_endpoint_options(db, to.service), inline=inline, vip=True, host=host
    )
    return build_cluster_load_assignment(
        key.name, endpoints(db, key.ref, key.port), rules, lambda e: uses_mtls(db, e, policy)
    )


@derived
def _assignment(db: Mesh, ruled: ResolvedVipKey, client: ClientLocationKey) -> Resource | None:
    to = find_vip_destination(db, ruled)
    if to is None:
        return None
    built = _build(db, ruled, to, client, network_gateways(db), inline=False)
    return Resource.of(ENDPOINT, built, built.cluster_name)


@derived
def _vip_assignment(db: Mesh, ruled: ResolvedVipKey, outbound: OutboundFacet) -> Resource | None:
    to = find_vip_destination(db, ruled)
    if to is None or vip_discovery_type(to) != cluster_pb2.Cluster.EDS:
        return None
    return _assignment(db, ruled, client_location(db, _policy(db, to, False), outbound))


vip_endpoints: Gather[ResolvedVipKey, [VipListKey], Resource] = Gather(
    "vip endpoints", vip_keys, _vip_assignment, passed=_unscoped
)
"""The endpoints of the services behind a waypoint."""


# -- clusters --------------------------------------------------------------------------------------------------------------
@derived
def _placeless_cluster(db: Mesh, ruled: ResolvedVipKey, traits: ClusterTraitsKey) -> Resource | None:
    built = resolve_vip(db, ruled, traits, None)
    return cluster_resource(built) if built is not None else None


@derived
def _inline_assignment(
    db: Mesh, ruled: ResolvedVipKey, client: ClientLocationKey
) -> endpoint_pb2.ClusterLoadAssignment | None:
    to = find_vip_destination(db, ruled)
    built = _build(db, ruled, to, client, all_network_gateways(db), inline=True) if to is not None else None
    return built if built is not None and built.endpoints else None


@derived
def _vip_cluster(db: Mesh, ruled: ResolvedVipKey, outbound: OutboundFacet) -> Resource | None:
    to, traits = find_vip_destination(db, ruled), outbound_traits(outbound)
    if to is None:
        return None
    if not has_inline_endpoints(to.service):
        return _placeless_cluster(db, ruled, traits)
    built = resolve_vip(
        db, ruled, traits, _inline_assignment(db, ruled, client_location(db, _policy(db, to, True), outbound))
    )
    return cluster_resource(built) if built is not None else None


vip_clusters: Gather[ResolvedVipKey, [VipListKey], Resource] = Gather(
    "vip clusters", vip_keys, _vip_cluster, passed=_unscoped
)
"""The clusters of the services behind a waypoint."""
