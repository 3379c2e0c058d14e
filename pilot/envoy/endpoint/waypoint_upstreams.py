"""Derives the clusters and endpoints of the services behind a waypoint.

Endpoints that accept tunnels are reached through tunnels.
"""

from __future__ import annotations

import msgspec
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2

from pilot.config.object import ObjectKey
from pilot.derive import Gather, derived
from pilot.envoy.cluster.cluster_builder import ClusterDestination
from pilot.envoy.cluster.cluster_traits import ClusterTraitsKey, outbound_traits, without_scope
from pilot.envoy.cluster.inline_endpoints import InlineEndpoints, serialize_endpoints
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
    """A waypoint and its outbound facet. The facet contains the location, on which the endpoints depend."""

    waypoint: ObjectKey
    outbound: OutboundFacet


@derived
def vip_keys(db: Mesh, key: VipListKey) -> tuple[ResolvedVipKey, ...]:
    """Return the keys of the clusters of all services behind a waypoint."""
    refs = served_services(db, key.waypoint)
    return tuple(vip_key for ref in refs for vip_key in service_vip_keys(db, ref, key.waypoint.namespace))


def _item_arguments(_: ResolvedVipKey, waypoint: VipListKey) -> tuple[OutboundFacet]:
    """Return the arguments for computing one item of a gather. They follow the item's key.

    Waypoints in the same location share the items.
    """
    return (without_scope(waypoint.outbound),)


# -- endpoints -------------------------------------------------------------------------------------


def _policy(db: Mesh, destination: ClusterDestination, inline: bool) -> EndpointPolicy:
    """Return the policy for a cluster's endpoints.

    Zone-aware balancing is disabled, because a waypoint does not know its own pods.
    """
    policy = endpoint_policy(db, destination, inline)
    zone_aware = policy.balancing is not None and policy.balancing.by_region
    return msgspec.structs.replace(policy, balancing=None) if zone_aware else policy


def _build(
    db: Mesh,
    key: ResolvedVipKey,
    destination: ClusterDestination,
    client: ClientLocationKey,
    gateways: NetworkGateways,
    inline: bool,
) -> endpoint_pb2.ClusterLoadAssignment:
    """Return the assignment of a cluster. It has no name if the cluster contains it."""
    vip_key, policy = key.cluster, _policy(db, destination, inline)
    service_host = joined(vip_key.ref.hostname, vip_key.port)
    options = AssignmentOptions(
        policy,
        client,
        gateways,
        lb_endpoint_options(db, destination.service),
        inline=inline,
        vip=True,
        service_host=service_host,
    )
    return build_cluster_load_assignment(
        "" if inline else vip_key.name,
        endpoints(db, vip_key.ref, vip_key.port),
        options,
        lambda e: uses_mtls(db, e, policy),
    )


@derived
def _assignment(db: Mesh, key: ResolvedVipKey, client: ClientLocationKey) -> Resource | None:
    destination = find_vip_destination(db, key)
    if destination is None:
        return None
    assignment = _build(db, key, destination, client, network_gateways(db), inline=False)
    return Resource.of(ENDPOINT, assignment, assignment.cluster_name)


@derived
def _vip_assignment(db: Mesh, key: ResolvedVipKey, outbound: OutboundFacet) -> Resource | None:
    destination = find_vip_destination(db, key)
    if destination is None or vip_discovery_type(destination) != cluster_pb2.Cluster.EDS:
        return None
    return _assignment(db, key, client_location(db, _policy(db, destination, False), outbound))


vip_endpoints: Gather[ResolvedVipKey, [VipListKey], Resource] = Gather(
    "vip endpoints", vip_keys, _vip_assignment, passed=_item_arguments
)
"""The endpoints of the services behind a waypoint."""


# -- clusters --------------------------------------------------------------------------------------


@derived
def _location_independent_cluster(db: Mesh, key: ResolvedVipKey, traits: ClusterTraitsKey) -> Resource | None:
    cluster = resolve_vip(db, key, traits, None)
    return cluster_resource(cluster) if cluster is not None else None


@derived
def _inline_endpoints(db: Mesh, key: ResolvedVipKey, client: ClientLocationKey) -> InlineEndpoints | None:
    destination = find_vip_destination(db, key)
    if destination is None:
        return None
    return serialize_endpoints(_build(db, key, destination, client, all_network_gateways(db), inline=True))


@derived
def _vip_cluster(db: Mesh, key: ResolvedVipKey, outbound: OutboundFacet) -> Resource | None:
    destination, traits = find_vip_destination(db, key), outbound_traits(outbound)
    if destination is None:
        return None
    if not has_inline_endpoints(destination.service):
        return _location_independent_cluster(db, key, traits)
    inline = _inline_endpoints(db, key, client_location(db, _policy(db, destination, True), outbound))
    cluster = resolve_vip(db, key, traits, inline)
    return cluster_resource(cluster, inline) if cluster is not None else None


vip_clusters: Gather[ResolvedVipKey, [VipListKey], Resource] = Gather(
    "vip clusters", vip_keys, _vip_cluster, passed=_item_arguments
)
"""The clusters of the services behind a waypoint."""
