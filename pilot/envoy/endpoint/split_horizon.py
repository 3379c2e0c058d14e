"""Replaces endpoints of other networks with the gateways of these.

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
    client_location: ClientLocationKey,
    tunnel: EndpointTunnel = _NO_TUNNEL,
) -> list[LocalityGroup]:
    """Returns the groups as a client reaches them. Weights are multiplied, so that an endpoint's divides evenly among its gateways.

    Only mesh mTLS passes a gateway that routes by SNI: other endpoints behind one are left out. A gateway that takes HBONE passes on what comes
    to it in a `tunnel` with another one inside.
    """
    return [_reach(group, gateways, client_location, tunnel) for group in groups]


def _reach(
    group: LocalityGroup, gateways: NetworkGateways, client_location: ClientLocationKey, tunnel: EndpointTunnel
) -> LocalityGroup:
    by_sni = client_location.ways == "sni"
    out = LocalityGroup(group.locality, [], group.priority)
    loads: dict[NetworkGateway, int] = {}
    for member in group.members:
        e = member.endpoint
        weight = min(member.weight * gateways.scale, MAX_WEIGHT)
        into = [g for g in gateways.into(e.network, e.cluster_id) if (g.port if by_sni else g.hbone_port)]
        if not by_sni and not client_location.in_network(e.network) and (client_location.ways == "none" or not into):
            continue
        if not into or (client_location.network and client_location.in_network(e.network)) or not e.network:
            if e.addresses[0]:
                out.members.append(member._replace(weight=weight))
            continue
        reachable = [g for g in into if _reaches(client_location, g.address)]
        if reachable and (not by_sni or is_mtls(member)):
            for g in reachable:
                loads[g] = loads.get(g, 0) + weight // len(reachable)
    for g in sorted(loads, key=lambda g: (g.address, g.port)):
        led = None if by_sni else tunnel._replace(destination=joined(g.address, g.hbone_port))
        out.members.append(LocalityMember(_gateway_endpoint(g), by_sni, loads[g] or 1, led))
    out.weigh()
    return out


def keep_mtls(groups: list[LocalityGroup]) -> list[LocalityGroup]:
    """Returns the groups with none but endpoints of mesh mTLS: all that a gateway may pass connections on to by SNI."""
    for group in groups:
        group.members = [m for m in group.members if is_mtls(m)]
        group.weigh()
    return groups


def is_mtls(member: LocalityMember) -> bool:
    """Returns whether connections to an endpoint use mesh mTLS."""
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


def _reaches(client_location: ClientLocationKey, address: str) -> bool:
    """Returns whether the client has the family of a gateway's address; one without a known family, or with both, reaches all."""
    if client_location.ipv4 == client_location.ipv6:
        return True
    return is_ipv4(address) if client_location.ipv4 else is_ipv6(address)
