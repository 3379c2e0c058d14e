"""Endpoints of other networks are replaced with the gateways of these.

https://istio.io/latest/docs/ops/deployment/deployment-models/#multiple-networks
"""
from __future__ import annotations

from pilot.lib.addresses import is_ipv4, is_ipv6
from pilot.model.endpoint import Endpoint, Health
from pilot.model.views.networks import NetworkGateway, NetworkGateways
from pilot.translate.endpoint.group import MAX_WEIGHT, Group
from pilot.translate.endpoint.lb_endpoint import TLS_MODE, TRANSPORT_SOCKET_MATCH, LbEndpoint, Presentation, build_lb_endpoint
from pilot.translate.endpoint.vantage import Vantage


def through_gateways(groups: list[Group], gateways: NetworkGateways, vantage: Vantage, show: Presentation) -> list[Group]:
    """The groups as a client reaches them. Weights are multiplied, so that an endpoint's divides evenly among its gateways.

    Only mesh mTLS passes a gateway, for it routes by SNI: other endpoints behind one are left out.
    """
    return [_reach(group, gateways, vantage, show) for group in groups]


def _reach(group: Group, gateways: NetworkGateways, vantage: Vantage, show: Presentation) -> Group:
    out = Group(group.locality, [], group.priority)
    loads: dict[NetworkGateway, int] = {}
    for e, message in group.members:
        weight = min(message.load_balancing_weight.value * gateways.scale, MAX_WEIGHT)
        into = [g for g in gateways.into(e.network, e.cluster_id) if g.port]
        unknown = not vantage.network and e.network
        if not into or (vantage.in_network(e.network) and not unknown):
            if e.addresses[0]:
                message.load_balancing_weight.value = weight
                out.members.append((e, message))
            continue
        reachable = [g for g in into if _reaches(vantage, g.address)]
        if reachable and is_mtls(message):
            for g in reachable:
                loads[g] = loads.get(g, 0) + weight // len(reachable)
    for g in sorted(loads, key=lambda g: (g.address, g.port)):
        e = _gateway_endpoint(g, loads[g] or 1)
        out.members.append((e, build_lb_endpoint(e, True, show)))
    out.weigh()
    return out


def only_mtls(groups: list[Group]) -> list[Group]:
    """The groups with none but endpoints of mesh mTLS: all that a gateway may pass connections on to by SNI."""
    for group in groups:
        group.members = [m for m in group.members if is_mtls(m[1])]
        group.weigh()
    return groups


def is_mtls(message: LbEndpoint) -> bool:
    """Whether connections to an endpoint use mesh mTLS."""
    match = message.metadata.filter_metadata
    return TRANSPORT_SOCKET_MATCH in match and match[TRANSPORT_SOCKET_MATCH].fields[TLS_MODE].string_value == "istio"


def _gateway_endpoint(g: NetworkGateway, weight: int) -> Endpoint:
    return Endpoint(
        addresses=(g.address,),
        port=g.port,
        port_name="",
        network=g.network,
        cluster_id=g.cluster,
        weight=weight,
        health=Health.UNKNOWN,
        tls_mode="istio",
    )


def _reaches(vantage: Vantage, address: str) -> bool:
    """Whether the client has the family of a gateway's address; one without a known family, or with both, reaches all."""
    if vantage.ipv4 == vantage.ipv6:
        return True
    return is_ipv4(address) if vantage.ipv4 else is_ipv6(address)
