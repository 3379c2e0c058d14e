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
from pilot.envoy.cluster.inline_endpoints import InlineEndpoints, serialize_endpoints
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
    db: Mesh, key: ResolvedClusterKey, router: bool, client: ClientLocationKey, sni: bool
) -> Generator[None, None, Resource | None]:
    destination = find_eds_destination(db, key, router)
    if destination is None or (sni and destination.service.mesh_external):
        return None
    waypoint = ingress_waypoint(db, key.cluster, destination.service) if router and client.hbone and not sni else None
    if waypoint is not None:
        assignment = _build_ingress_waypoint(db, key.cluster, destination, client, waypoint)
        return Resource.of(ENDPOINT, assignment, assignment.cluster_name)
    gateways = network_gateways(db)
    policy = endpoint_policy(db, destination, inline=False)
    if (shared := _find_shared(db, key.cluster, destination, policy, client, sni, gateways)) is not None:
        localities = _shared_localities(db, shared)
        name = endpoint_pb2.ClusterLoadAssignment(cluster_name=key.cluster.name).SerializeToString()
        return Resource(key.cluster.name, ENDPOINT, name, extra_pieces=(localities,) if localities else ())
    assignment = yield from _build(db, key.cluster, destination, client, sni, gateways, inline=False)
    return Resource.of(ENDPOINT, assignment, assignment.cluster_name)


class SharedLocalitiesKey(NamedTuple):
    """The key of the endpoints in the assignments of all hosts of a ServiceEntry: everything that they depend on."""

    endpoints: SharedEndpointsKey
    policy: EndpointPolicy
    client: ClientLocationKey
    lb_options: LbEndpointOptions


def _find_shared(
    db: Mesh,
    key: ClusterKey,
    destination: ClusterDestination,
    policy: EndpointPolicy,
    client: ClientLocationKey,
    sni: bool,
    gateways: NetworkGateways,
) -> SharedLocalitiesKey | None:
    """Return the key of the endpoints of a cluster, or None if no other host has the same ones."""
    if sni or gateways.gateways or client.cross_network != "sni" or policy.balancing is not None:
        return None  # the endpoints depend on the host
    shared = find_shared_endpoints(db, key.ref, key.port)
    if shared is None:
        return None
    return SharedLocalitiesKey(shared, policy, client, lb_endpoint_options(db, destination.service))


@derived_in_steps
def _shared_localities(db: Mesh, key: SharedLocalitiesKey) -> Generator[None, None, bytes]:
    """Return the serialized endpoints in the assignments of all hosts of a ServiceEntry."""
    assignment = yield from _build_shared(db, key, network_gateways(db), inline=False)
    return bytes(assignment.SerializeToString(deterministic=True))


@derived_in_steps
def _shared_inline_endpoints(db: Mesh, key: SharedLocalitiesKey) -> Generator[None, None, InlineEndpoints | None]:
    """Return the endpoints in the clusters of all hosts of a ServiceEntry, or None if there are none."""
    return serialize_endpoints((yield from _build_shared(db, key, all_network_gateways(db), inline=True)))


def _build_shared(
    db: Mesh, key: SharedLocalitiesKey, gateways: NetworkGateways, inline: bool
) -> Generator[None, None, endpoint_pb2.ClusterLoadAssignment]:
    options = AssignmentOptions(
        key.policy,
        key.client,
        gateways,
        key.lb_options,
        inline=inline,
        prefer_hbone=prefers_hbone(db.settings.ambient),
    )
    members = shared_endpoints(db, key.endpoints)
    return (yield from assignment_in_steps("", members, options, lambda e: uses_mtls(db, e, key.policy)))


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


def _router_differs(key: ResolvedClusterKey, outbound: OutboundFacet, client: ClientLocationKey) -> bool:
    """Return whether the client is a router whose endpoints may differ from those of sidecars in the same location.

    Only routers send requests into tunnels to waypoints.
    """
    return outbound.type is NodeType.ROUTER and (key.router_differs or client.hbone)


def _resolve(db: Mesh, key: ResolvedClusterKey, outbound: OutboundFacet, sni: bool) -> Resource | None:
    """Return the assignment for a key and the location of a client."""
    if is_location_independent(db, outbound):
        client = unlocated_client(outbound.location.cluster_id, originates_tunnels(db, outbound))
    else:
        destination = find_eds_destination(db, key, outbound.type is NodeType.ROUTER)
        if destination is None:
            return None
        client = client_location(db, endpoint_policy(db, destination, False), outbound)
    return _load_assignment(db, key, _router_differs(key, outbound, client), client, sni)


@derived
def outbound_load_assignment(db: Mesh, key: ResolvedClusterKey, outbound: OutboundFacet) -> Resource | None:
    """Return the endpoints of a cluster, or None if they do not arrive by EDS."""
    return _resolve(db, key, outbound, sni=False)


@derived
def _sni_load_assignment(db: Mesh, key: ResolvedClusterKey, outbound: OutboundFacet) -> Resource | None:
    return _resolve(db, key, outbound, sni=True)


@derived
def _unlocated_keys(db: Mesh, outbound: OutboundFacet, _: ClientLocationKey) -> tuple[ResolvedClusterKey, ...]:
    return location_independent_keys(db, outbound)


unlocated_load_assignments: Gather[ResolvedClusterKey, [OutboundFacet, ClientLocationKey], Resource] = Gather(
    "unlocated load assignments",
    _unlocated_keys,
    _load_assignment,
    passed=lambda key, outbound, client: (_router_differs(key, outbound, client), client, False),
)
"""The endpoints of a proxy's outbound clusters, if they do not depend on its location.

The arguments are a facet returned by `without_location` and a location returned by `unlocated_client`.
"""


def item_arguments(_: ResolvedClusterKey, outbound: OutboundFacet) -> tuple[OutboundFacet]:
    """Return the arguments for computing one item of a gather. They follow the item's key."""
    return (without_scope(outbound),)


outbound_load_assignments: Gather[ResolvedClusterKey, [OutboundFacet], Resource] = Gather(
    "load_assignments", location_independent_keys, outbound_load_assignment, passed=item_arguments
)
"""The endpoints of a proxy's outbound clusters, if they depend on its location."""

sni_load_assignments: Gather[ResolvedClusterKey, [OutboundFacet], Resource] = Gather(
    "sni_load_assignments", location_independent_keys, _sni_load_assignment, passed=item_arguments
)
"""The endpoints of the clusters that a gateway routes to by SNI. Only endpoints with mesh mTLS are included."""


# -- clusters that contain their endpoints ---------------------------------------------------------


def inline_endpoints(
    db: Mesh, key: ResolvedClusterKey, destination: ClusterDestination, outbound: OutboundFacet
) -> InlineEndpoints | None:
    """Return the endpoints of a cluster that contains them, or None if there are none. Not memoised."""
    sni = destination.sni_routed
    policy = endpoint_policy(db, destination, inline=True)
    client = client_location(db, policy, outbound)
    shared = _find_shared(db, key.cluster, destination, policy, client, sni, all_network_gateways(db))
    return _shared_inline_endpoints(db, shared) if shared is not None else _inline_endpoints(db, key, client, sni)


@derived_in_steps
def _inline_endpoints(
    db: Mesh, key: ResolvedClusterKey, client: ClientLocationKey, sni: bool
) -> Generator[None, None, InlineEndpoints | None]:
    destination = find_destination(db, key)
    if destination is None:
        return None
    gateways = all_network_gateways(db)
    return serialize_endpoints((yield from _build(db, key.cluster, destination, client, sni, gateways, inline=True)))


def _build(
    db: Mesh,
    key: ClusterKey,
    destination: ClusterDestination,
    client: ClientLocationKey,
    sni: bool,
    gateways: NetworkGateways,
    inline: bool,
) -> Generator[None, None, endpoint_pb2.ClusterLoadAssignment]:
    """Return the assignment of a cluster. It has no name if the cluster contains it."""
    name = "" if inline else names.dns_srv(key.port, key.subset, key.ref.hostname) if sni else key.name
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
