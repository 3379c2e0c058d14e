"""Builds the ClusterLoadAssignment of one cluster, from values."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from envoy.config.endpoint.v3 import endpoint_pb2

from pilot.envoy import names
from pilot.envoy.endpoint.client_location import ClientLocationKey
from pilot.envoy.endpoint.endpoint_policy import EndpointPolicy
from pilot.envoy.endpoint.lb_endpoint import EndpointTunnel, LbEndpointOptions, LocalityMember, is_draining
from pilot.envoy.endpoint.locality_group import LocalityGroup, build_assignment, group_by_locality
from pilot.envoy.endpoint.locality_priorities import arrange_by_locality
from pilot.envoy.endpoint.split_horizon import keep_mtls, replace_with_gateways
from pilot.lib.addresses import is_ip, joined
from pilot.lib.labels import GATEWAY_MANAGED, MESH_CONTROLLER
from pilot.mesh.model.endpoint import Endpoint, EndpointHealth
from pilot.mesh.registry.networks import NetworkGateways

_WAYPOINT = (GATEWAY_MANAGED, MESH_CONTROLLER)


class AssignmentOptions(msgspec.Struct, frozen=True):
    """Says what one cluster's endpoints are built by. `sni`: it is reached by SNI, so only mesh mTLS counts. `inline`: Envoy resolves
    names; with EDS it takes only addresses.

    `hbone_first`: tunnels come before mesh mTLS where an endpoint takes both; `vip`: the cluster is one of a service behind a waypoint, which
    speaks no mesh mTLS. `entered`: the endpoints are waypoints, which are sent connections for this address of the service in their cluster;
    `host`: the service and its port, as a gateway of another network is asked for it. `forwarded`: what is sent is a tunnel already.
    """

    policy: EndpointPolicy
    client_location: ClientLocationKey
    gateways: NetworkGateways
    show: LbEndpointOptions
    sni: bool = False
    inline: bool = False
    hbone_first: bool = False
    vip: bool = False
    entered: Callable[[Endpoint], str] | None = None
    host: str = ""
    forwarded: bool = False


def build_cluster_load_assignment(
    name: str, endpoints: Iterable[Endpoint], rules: AssignmentOptions, uses_mtls: Callable[[Endpoint], bool]
) -> endpoint_pb2.ClusterLoadAssignment:
    """Returns the assignment of a cluster; `uses_mtls` tells whether mesh mTLS is used to an endpoint."""
    return build_assignment(name, build_groups(endpoints, rules, uses_mtls), rules.show)


def build_groups(
    endpoints: Iterable[Endpoint], rules: AssignmentOptions, uses_mtls: Callable[[Endpoint], bool]
) -> list[LocalityGroup]:
    """Returns the endpoints that a client gets, by locality and priority."""
    groups = group_by_locality(
        [
            LocalityMember(e, uses_mtls(e), e.weight or 1, find_tunnel(e, rules))
            for e in endpoints
            if is_eligible(e, rules)
        ]
    )
    if rules.gateways.gateways or rules.client_location.ways != "sni":
        groups = replace_with_gateways(
            groups, rules.gateways, rules.client_location, EndpointTunnel("", chosen=not rules.vip, within=rules.host)
        )
    if rules.sni:
        groups = keep_mtls(groups)
    balance = rules.policy.balance
    return arrange_by_locality(groups, balance, rules.client_location) if balance is not None else groups


def find_tunnel(e: Endpoint, rules: AssignmentOptions) -> EndpointTunnel | None:
    """Returns the tunnel to an endpoint, None where there is none."""
    if not rules.client_location.hbone:
        return None
    own = joined(e.addresses[0], e.port)
    if rules.entered is not None:
        return EndpointTunnel(rules.entered(e), waypoint=own)
    if not (e.hbone or _WAYPOINT in e.labels) or (e.tls_mode == "istio" and not rules.hbone_first and not rules.vip):
        return None
    return EndpointTunnel(
        own, chosen=not rules.vip, listener=names.FORWARD_INNER_CONNECT if rules.forwarded else names.CONNECT_ORIGINATE
    )


def is_eligible(e: Endpoint, rules: AssignmentOptions) -> bool:
    """Returns whether a client gets an endpoint at all."""
    policy, client_location = rules.policy, rules.client_location
    if (
        not policy.labels <= e.labels
        or e.health is EndpointHealth.TERMINATING
        or (e.health is EndpointHealth.UNHEALTHY and not policy.unhealthy)
    ):
        return False
    if policy.node_local and (e.node != client_location.node or e.cluster_id != client_location.cluster_id):
        return False
    if e.cluster_id != client_location.cluster_id and not policy.bounds.leaves(e.cluster_id):
        return False
    if not policy.sticky and is_draining(e, rules.show.draining_label):
        return False
    return client_location.sees(e.network) and _has_usable_address(e, rules)


def _has_usable_address(e: Endpoint, rules: AssignmentOptions) -> bool:
    if not e.addresses[0]:
        return bool(rules.gateways.gateways)
    return rules.inline or not e.port or is_ip(e.addresses[0])
