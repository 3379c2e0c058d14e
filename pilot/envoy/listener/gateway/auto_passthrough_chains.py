"""Derives the chains of AUTO_PASSTHROUGH: mesh TLS passed on to any service of the mesh, by the cluster that its handshake names.

Only handshakes that offer a protocol of the mesh get through, so that nothing is reached without its own mutual TLS.
https://istio.io/latest/docs/reference/config/networking/gateway/#ServerTLSSettings-TLSmode
"""

from __future__ import annotations

from pilot.config.protocol import Protocol
from pilot.derive import Gather, derived
from pilot.envoy.listener.filter_chain import MESH_ALPNS
from pilot.envoy.listener.gateway.gateway_builder import GatewayChain, build_gateway_chain
from pilot.envoy.listener.gateway.gateway_chain_plan import AutoPassthroughChain
from pilot.envoy.listener.gateway.gateway_managers import stat_prefix
from pilot.envoy.listener.listener_options import listener_options
from pilot.envoy.names import dns_srv
from pilot.envoy.network_filter.tcp_filters import build_tcp_filters
from pilot.envoy.network_filter.tcp_proxy import TcpRoute, tcp_settings
from pilot.lib import hosts
from pilot.mesh.model.facets import Labels, ScopeFacet
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.proxies.router import GatewayListenersFacet
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import destination_rule
from pilot.mesh.traffic.imports import scope_services


@derived
def _refs(db: Mesh, names: tuple[str, ...], scope: ScopeFacet, _labels: Labels) -> tuple[ServiceRef, ...]:
    return tuple(
        i.ref
        for i in scope_services(db, scope).values()
        if any(hosts.subset_of(i.ref.hostname, name) for name in names)
    )


@derived
def _passages(
    db: Mesh, ref: ServiceRef, _names: tuple[str, ...], scope: ScopeFacet, labels: Labels
) -> tuple[AutoPassthroughChain, ...] | None:
    found = service(db, ref)
    if (
        found is None or found.mesh_external or hosts.is_wildcard(found.hostname)
    ):  # no handshake names the cluster of a wildcard
        return None
    rule = destination_rule(db, scope, ref, labels)
    subsets = ("", *(s.name for s in rule.spec.subsets)) if rule is not None else ("",)
    ports = (p.number for p in found.ports if p.protocol is not Protocol.UDP)
    return tuple(AutoPassthroughChain(ref, port, subset) for port in ports for subset in subsets)


_all_passages: Gather[ServiceRef, [tuple[str, ...], ScopeFacet, Labels], tuple[AutoPassthroughChain, ...]] = Gather(
    "passages", _refs, _passages
)


def passages(db: Mesh, names: tuple[str, ...], scope: ScopeFacet, labels: Labels) -> list[AutoPassthroughChain]:
    """Returns the chains of a server with these hosts: one a port and subset of every service in the mesh that the hosts cover."""
    return [chain for chains in _all_passages(db, names, scope, labels).values() for chain in chains]


def build_passage(db: Mesh, chain: AutoPassthroughChain, front: GatewayListenersFacet) -> GatewayChain | None:
    """Returns one of these chains."""
    found = service(db, chain.service)
    port = found.port(chain.port) if found is not None else None
    if port is None:
        return None
    rule = destination_rule(db, front.scope, chain.service, front.labels)
    settings = tcp_settings(
        rule.spec if rule is not None else None, chain.subset, front.listening.idle_timeout
    )._replace(tunnel=None)
    cluster = dns_srv(chain.port, chain.subset, chain.service.hostname)
    route = TcpRoute(stat_prefix(db, chain.service, port, chain.subset) or cluster, ((cluster, 0),), settings=settings)
    filters = build_tcp_filters(route, port.protocol, listener_options(db, front.listening).network, chain.port)
    return build_gateway_chain((cluster,), filters, timeout=db.settings.gateways.handshake_timeout, alpn=MESH_ALPNS)
