"""Replaces endpoints in other networks with the gateways of those networks.

https://istio.io/latest/docs/ops/deployment/deployment-models/#multiple-networks
"""

from __future__ import annotations

from pilot.envoy.endpoint.client_location import ClientLocationKey
from pilot.envoy.endpoint.lb_endpoint import EndpointTunnel, LocalityMember
from pilot.envoy.endpoint.locality_group import MAX_WEIGHT, LocalityGroup
from pilot.lib.addresses import is_ipv4, is_ipv6, joined
from pilot.mesh.model.endpoint import Endpoint, EndpointHealth
from pilot.mesh.registry.networks import NetworkGateway, NetworkGateways

_NO_TUNNEL = EndpointTunnel("")


def replace_with_gateways(
    groups: list[LocalityGroup],
    gateways: NetworkGateways,
    client: ClientLocationKey,
    tunnel: EndpointTunnel = _NO_TUNNEL,
) -> list[LocalityGroup]:
    """Return the groups with the endpoints or gateways to which a client connects.

    Weights are multiplied, so that an endpoint's weight divides evenly among its gateways. A gateway that routes by SNI
    only forwards mesh mTLS, so other endpoints behind it are dropped. `tunnel` is the template for the tunnel to a
    gateway that accepts HBONE.
    """
    return [_reach(group, gateways, client, tunnel) for group in groups]


def _reach(
    group: LocalityGroup, gateways: NetworkGateways, client: ClientLocationKey, tunnel: EndpointTunnel
) -> LocalityGroup:
    by_sni = client.cross_network == "sni"
    reached = LocalityGroup(group.locality, [], group.priority)
    loads: dict[NetworkGateway, int] = {}
    for member in group.members:
        e = member.endpoint
        weight = min(member.weight * gateways.scale, MAX_WEIGHT)
        network_gateways = [g for g in gateways.into(e.network, e.cluster_id) if (g.port if by_sni else g.hbone_port)]
        if not by_sni and not client.in_network(e.network) and (client.cross_network == "none" or not network_gateways):
            continue
        if not network_gateways or (client.network and client.in_network(e.network)) or not e.network:
            if e.addresses[0]:
                reached.members.append(member._replace(weight=weight))
            continue
        reachable = [g for g in network_gateways if _reaches(client, g.address)]
        if reachable and (not by_sni or is_mtls(member)):
            for g in reachable:
                loads[g] = loads.get(g, 0) + weight // len(reachable)
    for g in sorted(loads, key=lambda g: (g.address, g.port)):
        member_tunnel = None if by_sni else tunnel._replace(destination=joined(g.address, g.hbone_port))
        reached.members.append(LocalityMember(_gateway_endpoint(g), by_sni, loads[g] or 1, member_tunnel))
    reached.weigh()
    return reached


def keep_mtls(groups: list[LocalityGroup]) -> list[LocalityGroup]:
    """Return the groups with only mesh mTLS endpoints, because a gateway can only route to these by SNI."""
    for group in groups:
        group.members = [m for m in group.members if is_mtls(m)]
        group.weigh()
    return groups


def is_mtls(member: LocalityMember) -> bool:
    """Return whether connections to an endpoint use mesh mTLS."""
    return member.transport == "istio"


def _gateway_endpoint(g: NetworkGateway) -> Endpoint:
    return Endpoint(
        addresses=(g.address,),
        port=g.port,
        port_name="",
        network=g.network,
        cluster_id=g.cluster,
        health=EndpointHealth.UNKNOWN,
        tls_mode="istio",
    )


def _reaches(client: ClientLocationKey, address: str) -> bool:
    """Return whether the client has the IP family of a gateway's address.

    A client with both families, or with unknown families, reaches every gateway.
    """
    if client.ipv4 == client.ipv6:
        return True
    return is_ipv4(address) if client.ipv4 else is_ipv6(address)
