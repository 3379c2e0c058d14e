"""Builds the ClusterLoadAssignment of one cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from itertools import islice

import msgspec
from envoy.config.endpoint.v3 import endpoint_pb2

from pilot.derive import run_steps
from pilot.envoy import names
from pilot.envoy.endpoint.client_location import ClientLocationKey
from pilot.envoy.endpoint.endpoint_policy import EndpointPolicy
from pilot.envoy.endpoint.lb_endpoint import EndpointTunnel, LbEndpointOptions, LocalityMember, is_draining
from pilot.envoy.endpoint.locality_group import STEP, LocalityGroup, build_assignment, group_by_locality
from pilot.envoy.endpoint.locality_priorities import arrange_by_locality
from pilot.envoy.endpoint.split_horizon import keep_mtls, replace_with_gateways
from pilot.lib.addresses import is_ip, joined
from pilot.lib.labels import GATEWAY_MANAGED, MESH_CONTROLLER
from pilot.mesh.model.endpoint import Endpoint, EndpointHealth
from pilot.mesh.registry.networks import NetworkGateways

_WAYPOINT = (GATEWAY_MANAGED, MESH_CONTROLLER)


class AssignmentOptions(msgspec.Struct, frozen=True):
    """Options for building the endpoints of one cluster.

    - `sni`: a gateway routes to the cluster by SNI, so the cluster only has endpoints with mesh mTLS.
    - `inline`: the cluster contains its endpoints, and Envoy resolves host names. With EDS, it only accepts addresses.
    - `prefer_hbone`: use a tunnel instead of mesh mTLS if an endpoint accepts both.
    - `vip`: the cluster belongs to a waypoint or east-west gateway, which does not use mesh mTLS.
    - `service_address`: the endpoints are waypoints. For a waypoint, this function returns the address of the service
      in the waypoint's Kubernetes cluster.
    - `service_host`: the "host:port" of the service to request through the gateways of other networks.
    - `forwards_tunnels`: the downstream connection is already a tunnel.
    """

    policy: EndpointPolicy
    client: ClientLocationKey
    gateways: NetworkGateways
    lb_options: LbEndpointOptions
    sni: bool = False
    inline: bool = False
    prefer_hbone: bool = False
    vip: bool = False
    service_address: Callable[[Endpoint], str] | None = None
    service_host: str = ""
    forwards_tunnels: bool = False


def build_cluster_load_assignment(
    name: str, endpoints: Iterable[Endpoint], options: AssignmentOptions, uses_mtls: Callable[[Endpoint], bool]
) -> endpoint_pb2.ClusterLoadAssignment:
    """Return the assignment of a cluster. `uses_mtls` decides whether an endpoint is reached with mesh mTLS."""
    return run_steps(assignment_in_steps(name, endpoints, options, uses_mtls))


def assignment_in_steps(
    name: str, endpoints: Iterable[Endpoint], options: AssignmentOptions, uses_mtls: Callable[[Endpoint], bool]
) -> Generator[None, None, endpoint_pb2.ClusterLoadAssignment]:
    """Return the same as `build_cluster_load_assignment`, after yielding between endpoints."""
    groups = yield from build_groups(endpoints, options, uses_mtls)
    return (yield from build_assignment(name, groups, options.lb_options))


def build_groups(
    endpoints: Iterable[Endpoint], options: AssignmentOptions, uses_mtls: Callable[[Endpoint], bool]
) -> Generator[None, None, list[LocalityGroup]]:
    """Return the endpoints that a client receives, grouped by locality and priority."""
    members: list[LocalityMember] = []
    remaining = iter(endpoints)
    while part := list(islice(remaining, STEP)):
        members += [
            LocalityMember(e, uses_mtls(e), e.weight or 1, find_tunnel(e, options))
            for e in part
            if is_eligible(e, options)
        ]
        yield
    groups = group_by_locality(members)
    if options.gateways.gateways or options.client.cross_network != "sni":
        groups = replace_with_gateways(
            groups,
            options.gateways,
            options.client,
            EndpointTunnel("", matches_socket=not options.vip, inner_destination=options.service_host),
        )
    if options.sni:
        groups = keep_mtls(groups)
    balancing = options.policy.balancing
    return arrange_by_locality(groups, balancing, options.client) if balancing is not None else groups


def find_tunnel(e: Endpoint, options: AssignmentOptions) -> EndpointTunnel | None:
    """Return the tunnel to an endpoint, or None if the endpoint is reached without a tunnel."""
    if not options.client.hbone:
        return None
    address = joined(e.addresses[0], e.port)
    if options.service_address is not None:
        return EndpointTunnel(options.service_address(e), waypoint=address)
    if not (e.hbone or _WAYPOINT in e.labels) or (
        e.tls_mode == "istio" and not options.prefer_hbone and not options.vip
    ):
        return None
    return EndpointTunnel(
        address,
        matches_socket=not options.vip,
        listener=names.FORWARD_INNER_CONNECT if options.forwards_tunnels else names.CONNECT_ORIGINATE,
    )


def is_eligible(e: Endpoint, options: AssignmentOptions) -> bool:
    """Return whether a client receives an endpoint."""
    policy, client = options.policy, options.client
    if (
        not policy.labels <= e.labels
        or e.health is EndpointHealth.TERMINATING
        or (e.health is EndpointHealth.UNHEALTHY and not policy.send_unhealthy)
    ):
        return False
    if policy.node_local and (e.node != client.node or e.cluster_id != client.cluster_id):
        return False
    if e.cluster_id != client.cluster_id and not policy.endpoint_visibility.is_exported_from(e.cluster_id):
        return False
    if not policy.send_draining and is_draining(e, options.lb_options.draining_label):
        return False
    return client.can_view(e.network) and _has_usable_address(e, options)


def _has_usable_address(e: Endpoint, options: AssignmentOptions) -> bool:
    if not e.addresses[0]:
        return bool(options.gateways.gateways)
    return options.inline or not e.port or is_ip(e.addresses[0])
