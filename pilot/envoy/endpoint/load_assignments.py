"""Derives the ClusterLoadAssignments of a client's clusters.

An assignment depends on the merged DestinationRule for the cluster and on the client's location, but not on the
client's scope itself. Clients for which these are equal share the assignment.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from envoy.config.endpoint.v3 import endpoint_pb2

from pilot.derive import Gather, derived, derived_in_steps
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
from pilot.envoy.endpoint.assignment_builder import (
    AssignmentOptions,
    assignment_in_steps,
    build_cluster_load_assignment,
)
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
from pilot.envoy.endpoint.lb_endpoint import LbEndpointOptions
from pilot.envoy.resource import Resource
from pilot.lib.addresses import joined
from pilot.lib.xds_types import ENDPOINT
from pilot.mesh.model.ambient_features import prefers_hbone
from pilot.mesh.model.facets import OutboundFacet
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.registry.clusterset import endpoint_visibility
from pilot.mesh.registry.endpoints import (
    SharedEndpointsKey,
    endpoints,
    find_shared_endpoints,
    shared_endpoints,
)
from pilot.mesh.registry.networks import NetworkGateways, all_network_gateways, network_gateways
from pilot.mesh.tables.database import Mesh


@derived_in_steps
def _load_assignment(
    db: Mesh, key: ResolvedClusterKey, proxy_type: NodeType, client: ClientLocationKey, sni: bool
) -> Generator[None, None, Resource | None]:
    destination = find_eds_destination(db, key, proxy_type)
    if destination is None or (sni and destination.service.mesh_external):
        return None
    waypoint = (
        ingress_waypoint(db, key.cluster, destination.service)
        if proxy_type is NodeType.ROUTER and client.hbone and not sni
        else None
    )
    if waypoint is not None:
        assignment = _build_ingress_waypoint(db, key.cluster, destination, client, waypoint)
        return Resource.of(ENDPOINT, assignment, assignment.cluster_name)
    gateways = network_gateways(db)
    if not sni and not gateways.gateways and client.cross_network == "sni":  # the host is only part of its name
        shared = find_shared_endpoints(db, key.cluster.ref, key.cluster.port)
        policy = endpoint_policy(db, destination, inline=False)
        if shared is not None and policy.balancing is None:
            lb_options = lb_endpoint_options(db, destination.service)
            localities = _shared_localities(db, SharedLocalitiesKey(shared, policy, client, lb_options))
            name = endpoint_pb2.ClusterLoadAssignment(cluster_name=key.cluster.name).SerializeToString()
            return Resource(key.cluster.name, ENDPOINT, name, extra_pieces=(localities,) if localities else ())
    assignment = yield from _build(db, key.cluster, destination, client, sni, gateways, inline=False)
    return Resource.of(ENDPOINT, assignment, assignment.cluster_name)


class SharedLocalitiesKey(NamedTuple):
    """The key of the endpoints in the assignments of all hosts of a ServiceEntry: all that they depend on."""

    endpoints: SharedEndpointsKey
    policy: EndpointPolicy
    client: ClientLocationKey
    lb_options: LbEndpointOptions


@derived_in_steps
def _shared_localities(db: Mesh, key: SharedLocalitiesKey) -> Generator[None, None, bytes]:
    """Return the serialized endpoints in the assignments of all hosts of a ServiceEntry."""
    prefer_hbone = prefers_hbone(db.settings.ambient)
    options = AssignmentOptions(key.policy, key.client, network_gateways(db), key.lb_options, prefer_hbone=prefer_hbone)
    members = shared_endpoints(db, key.endpoints)
    assignment = yield from assignment_in_steps("", members, options, lambda e: uses_mtls(db, e, key.policy))
    return bytes(assignment.SerializeToString(deterministic=True))


def _build_ingress_waypoint(
    db: Mesh, key: ClusterKey, destination: ClusterDestination, client: ClientLocationKey, waypoint: IngressWaypoint
) -> endpoint_pb2.ClusterLoadAssignment:
    """Return an assignment with a service's waypoints instead of its endpoints. DestinationRules do not apply."""
    policy = EndpointPolicy(endpoint_visibility=endpoint_visibility(db, destination.service))
    service_host = joined(key.ref.hostname, key.port)
    options = AssignmentOptions(
        policy,
        client,
        network_gateways(db),
        lb_endpoint_options(db, destination.service),
        service_address=waypoint.address,
        service_host=service_host,
    )
    return build_cluster_load_assignment(key.name, waypoint.endpoints, options, lambda e: uses_mtls(db, e, policy))


def _resolve(db: Mesh, key: ResolvedClusterKey, outbound: OutboundFacet, sni: bool) -> Resource | None:
    """Return the assignment for a key and the location of a client."""
    if is_location_independent(db, outbound):
        client = unlocated_client(outbound.location.cluster_id, originates_tunnels(db, outbound))
    else:
        destination = find_eds_destination(db, key, outbound.type)
        if destination is None:
            return None
        client = client_location(db, endpoint_policy(db, destination, False), outbound)
    return _load_assignment(db, key, outbound.type, client, sni)


@derived
def outbound_load_assignment(db: Mesh, key: ResolvedClusterKey, outbound: OutboundFacet) -> Resource | None:
    """Return the endpoints of a cluster, or None if they do not arrive by EDS."""
    return _resolve(db, key, outbound, sni=False)


@derived
def _sni_load_assignment(db: Mesh, key: ResolvedClusterKey, outbound: OutboundFacet) -> Resource | None:
    return _resolve(db, key, outbound, sni=True)


def item_arguments(outbound: OutboundFacet) -> tuple[OutboundFacet]:
    """Return the arguments for computing one item of a gather. They follow the item's key."""
    return (without_scope(outbound),)


outbound_load_assignments: Gather[ResolvedClusterKey, [OutboundFacet], Resource] = Gather(
    "load_assignments", location_independent_keys, outbound_load_assignment, passed=item_arguments
)
"""The endpoints of a proxy's outbound clusters."""

sni_load_assignments: Gather[ResolvedClusterKey, [OutboundFacet], Resource] = Gather(
    "sni_load_assignments", location_independent_keys, _sni_load_assignment, passed=item_arguments
)
"""The endpoints of the clusters that a gateway routes to by SNI. Only endpoints with mesh mTLS are included."""


# -- clusters that contain their endpoints ---------------------------------------------------------


def inline_load_assignment(
    db: Mesh, key: ResolvedClusterKey, outbound: OutboundFacet, sni: bool = False
) -> endpoint_pb2.ClusterLoadAssignment | None:
    """Return the endpoints of a cluster that contains them, or None if there are none. Not memoised.

    The message is shared and must not be modified.
    """
    destination = find_destination(db, key)
    if destination is None:
        return None
    return _inline_load_assignment(db, key, client_location(db, endpoint_policy(db, destination, True), outbound), sni)


@derived_in_steps
def _inline_load_assignment(
    db: Mesh, key: ResolvedClusterKey, client: ClientLocationKey, sni: bool
) -> Generator[None, None, endpoint_pb2.ClusterLoadAssignment | None]:
    destination = find_destination(db, key)
    if destination is None:
        return None
    gateways = all_network_gateways(db)
    assignment = yield from _build(db, key.cluster, destination, client, sni, gateways, inline=True)
    return assignment if assignment.endpoints else None


def _build(
    db: Mesh,
    key: ClusterKey,
    destination: ClusterDestination,
    client: ClientLocationKey,
    sni: bool,
    gateways: NetworkGateways,
    inline: bool,
) -> Generator[None, None, endpoint_pb2.ClusterLoadAssignment]:
    name = names.dns_srv(key.port, key.subset, key.ref.hostname) if sni else key.name
    policy, lb_options = endpoint_policy(db, destination, inline), lb_endpoint_options(db, destination.service)
    options = AssignmentOptions(
        policy,
        client,
        gateways,
        lb_options,
        sni,
        inline,
        prefers_hbone(db.settings.ambient),
        service_host=joined(key.ref.hostname, key.port),
    )
    members = endpoints(db, key.ref, key.port)
    return (yield from assignment_in_steps(name, members, options, lambda e: uses_mtls(db, e, policy)))
