"""The filter chains of AUTO_PASSTHROUGH servers, which forward mesh TLS to the cluster that the SNI names.

The chains only match handshakes that offer a mesh protocol. Clients can therefore only connect with mutual TLS, which
the service itself terminates.
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
def _service_chains(
    db: Mesh, ref: ServiceRef, _names: tuple[str, ...], scope: ScopeFacet, labels: Labels
) -> tuple[AutoPassthroughChain, ...] | None:
    row = service(db, ref)
    if row is None or row.mesh_external or hosts.is_wildcard(row.hostname):  # an SNI cannot name a wildcard's cluster
        return None
    rule = destination_rule(db, scope, ref, labels)
    subsets = ("", *(s.name for s in rule.spec.subsets)) if rule is not None else ("",)
    ports = (p.number for p in row.ports if p.protocol is not Protocol.UDP)
    return tuple(AutoPassthroughChain(ref, port, subset) for port in ports for subset in subsets)


_chains_by_service: Gather[ServiceRef, [tuple[str, ...], ScopeFacet, Labels], tuple[AutoPassthroughChain, ...]] = (
    Gather("auto_passthrough_chains", _refs, _service_chains)
)


def auto_passthrough_chains(
    db: Mesh, names: tuple[str, ...], scope: ScopeFacet, labels: Labels
) -> list[AutoPassthroughChain]:
    """Return the chains of a server with these hosts.

    There is one chain for each port and each subset of the services that match the hosts.
    """
    return [chain for chains in _chains_by_service(db, names, scope, labels).values() for chain in chains]


def build_auto_passthrough_chain(
    db: Mesh, chain: AutoPassthroughChain, facet: GatewayListenersFacet
) -> GatewayChain | None:
    """Return the filter chain, or None if the service no longer has the port."""
    row = service(db, chain.service)
    port = row.port(chain.port) if row is not None else None
    if port is None:
        return None
    rule = destination_rule(db, facet.scope, chain.service, facet.labels)
    settings = tcp_settings(
        rule.spec if rule is not None else None, chain.subset, facet.listening.idle_timeout
    )._replace(tunnel=None)
    cluster = dns_srv(chain.port, chain.subset, chain.service.hostname)
    route = TcpRoute(stat_prefix(db, chain.service, port, chain.subset) or cluster, ((cluster, 0),), settings=settings)
    filters = build_tcp_filters(route, port.protocol, listener_options(db, facet.listening).network, chain.port)
    return build_gateway_chain((cluster,), filters, timeout=db.settings.gateways.handshake_timeout, alpn=MESH_ALPNS)
