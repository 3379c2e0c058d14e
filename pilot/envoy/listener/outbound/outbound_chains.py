"""Describes the chains that a service asks for at one of its addresses: by the rules of VirtualServices, else to its own cluster."""

from __future__ import annotations

from pilot.config.networking.virtual_service import RouteDestination
from pilot.config.protocol import Protocol
from pilot.envoy.cluster.stat_name import build_stat_name
from pilot.envoy.listener.l4_rules import L4Chain, L4Client, find_tcp_chains, find_tls_chains, l4_keys
from pilot.envoy.listener.listener_address import wildcards
from pilot.envoy.listener.listener_options import listener_defaults
from pilot.envoy.listener.manager_template import ManagerKey
from pilot.envoy.listener.outbound.address_claims import Claim
from pilot.envoy.listener.outbound.outbound_draft import RAW_BUFFER, HttpRoutes, OutboundChainKey
from pilot.envoy.names import outbound_cluster
from pilot.envoy.network_filter.tcp_proxy import PLAIN, TcpRoute, TcpSettings, tcp_settings
from pilot.envoy.route.route_destination import DestinationService, destination_cluster
from pilot.envoy.route.sidecar.domains import absolute_names, short_names
from pilot.lib.hosts import is_wildcard
from pilot.mesh.model.facets import OutboundListenersFacet
from pilot.mesh.model.service import Port, Resolution, Service, ServiceRef
from pilot.mesh.registry.aliases import aliases_of
from pilot.mesh.registry.services import service
from pilot.mesh.scope.sidecar_scope import egress_listeners, outbound_traffic_policy
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import destination_rule
from pilot.mesh.traffic.imports import imported
from pilot.mesh.traffic.virtual_services import virtual_service

HTTP_ALPNS = ("http/1.1", "h2c")


def plaintext_alpns(http10: bool) -> tuple[str, ...]:
    """Returns what the HTTP inspector says of plaintext HTTP; what it says of HTTP/1.0 only counts where that is accepted."""
    return ("http/1.0", *HTTP_ALPNS) if http10 else HTTP_ALPNS


def http_chain(db: Mesh, claim: Claim, facet: OutboundListenersFacet, detected: bool) -> OutboundChainKey:
    """Returns the chain of HTTP; `detected`: only where HTTP is detected on the wire."""
    found = service(db, claim.ref)
    everywhere = wildcards(facet.listening.ipv4, facet.listening.ipv6)[:1]
    if not claim.port.number:
        routes = claim.binds[0]
    elif claim.port.protocol is Protocol.UNSUPPORTED and claim.binds[:1] != everywhere:
        routes = f"{claim.ref.hostname}:{claim.port.number}"
    else:
        routes = str(claim.port.number)
    kind = ManagerKey(
        grpc_web=claim.port.protocol is Protocol.GRPC_WEB,
        dynamic_host=claim.ref.hostname if found is not None and _is_dynamic(found) else "",
        allow_any=outbound_traffic_policy(db, facet.scope).dynamic_dns,
    )
    alpns, transport = (plaintext_alpns(db.settings.listeners.http10), RAW_BUFFER) if detected else ((), "")
    return OutboundChainKey(alpns=alpns, transport=transport, http=HttpRoutes(kind, routes))


def tcp_chains(db: Mesh, claim: Claim, facet: OutboundListenersFacet) -> list[OutboundChainKey]:
    """Returns the chains of TCP or TLS."""
    keys = l4_keys(db, facet.scope, claim.listener, claim.ref.hostname)
    services = [(key, row.spec) for key in keys if (row := virtual_service(db, key)) is not None]
    client = L4Client(facet.scope.namespace, facet.labels)
    find = find_tls_chains if claim.port.protocol.is_tls else find_tcp_chains
    ruling = list(find(services, client, claim.port.number, claim.cidrs))
    chains = [_ruled_chain(db, chain, claim, facet) for chain in ruling]
    covered = bool(ruling) if claim.port.protocol.is_tls else any(c.terminal for c in ruling)
    if not covered:
        chains.append(_own_chain(db, claim, facet))
    return chains


def _ruled_chain(db: Mesh, chain: L4Chain, claim: Claim, facet: OutboundListenersFacet) -> OutboundChainKey:
    """Returns the chain of a VirtualService's rule. The DestinationRule of the first destination counts for all."""
    first = chain.route[0].destination
    settings = _settings(
        db,
        first.host if first is not None else "",
        first.subset if first is not None and len(chain.route) == 1 else "",
        facet,
    )
    if len(chain.route) == 1:
        name = _cluster(db, chain.route[0], claim.port, facet)
        route = TcpRoute(_stat_prefix(db, chain.route[0], claim.port, facet) or name, ((name, 0),), settings=settings)
    else:
        clusters = tuple((_cluster(db, d, claim.port, facet), d.weight) for d in chain.route if d.weight > 0)
        route = TcpRoute(f"{chain.key.name}.{chain.key.namespace}", clusters, weighted=True, settings=settings)
    source = chain.key if chain.named else None
    return OutboundChainKey(sni=chain.sni, cidrs=chain.cidrs, tcp=route, protocol=claim.port.protocol, source=source)


def _own_chain(db: Mesh, claim: Claim, facet: OutboundListenersFacet) -> OutboundChainKey:
    """Returns the chain to the service's own cluster."""
    found = service(db, claim.ref)
    name = outbound_cluster(claim.cluster_port, "", claim.ref.hostname)
    pattern = listener_defaults(db).outbound_stat_name
    stat_prefix = (
        build_stat_name(pattern, found, Port("", claim.cluster_port, Protocol.TCP))
        if pattern and found is not None
        else name
    )
    dynamic = found is not None and _is_dynamic(found)
    return OutboundChainKey(
        sni=_sni(db, claim, facet, dynamic) if claim.port.protocol.is_tls else (),
        cidrs=claim.cidrs,
        tcp=TcpRoute(stat_prefix, ((name, 0),), settings=_rule_settings(db, claim.ref, "", facet)),
        protocol=claim.port.protocol,
        dynamic_host=claim.ref.hostname if dynamic else "",
    )


def _sni(db: Mesh, claim: Claim, facet: OutboundListenersFacet, dynamic: bool) -> tuple[str, ...]:
    """Returns the names that tell TLS apart by its handshake; () where the address tells already."""
    everywhere = wildcards(facet.listening.ipv4, facet.listening.ipv6)[0]
    shared = claim.address == everywhere and claim.binds[:1] == (everywhere,)
    if claim.per_pod or not (claim.cidrs or not claim.address or shared or dynamic):
        return ()
    return (claim.ref.hostname, *_other_names(db, claim, facet))


def _other_names(db: Mesh, claim: Claim, facet: OutboundListenersFacet) -> tuple[str, ...]:
    """Returns what clients may call the service by its aliases, as far as these are imported with it."""
    aliases = aliases_of(db, claim.ref.hostname)
    if not aliases:
        return ()
    hosts = egress_listeners(db, facet.scope)[claim.listener].hosts
    sets = [
        s
        for s in (hosts.find(claim.ref.namespace), hosts.everywhere)
        if s is not None and s.imports(claim.ref.hostname)
    ]
    known = [a.hostname for a in aliases if sets and sets[0].imports(a.hostname)]
    domain = f"{facet.scope.namespace}.svc.{db.settings.registry.domain}"
    return tuple(
        n for a in known for n in (a, *absolute_names(a, db.settings.routes.absolute_domains), *short_names(a, domain))
    )


def _is_dynamic(found: Service) -> bool:
    """Returns whether the hosts of a wildcard are resolved when they are asked for."""
    return found.resolution is Resolution.DYNAMIC_DNS and is_wildcard(found.hostname)


def _destination(db: Mesh, host: str, facet: OutboundListenersFacet) -> tuple[DestinationService, Service] | None:
    item = imported(db, facet.scope, host)
    found = service(db, item.ref) if item is not None else None
    if item is None or found is None:
        return None
    return DestinationService(tuple(p.number for p in item.visible_ports(found)), found.external_name), found


def _cluster(db: Mesh, to: RouteDestination, port: Port, facet: OutboundListenersFacet) -> str:
    known = _destination(db, to.destination.host, facet) if to.destination is not None else None
    return destination_cluster(to.destination, known[0] if known is not None else None, port.number)


def _stat_prefix(db: Mesh, to: RouteDestination, port: Port, facet: OutboundListenersFacet) -> str:
    """Returns what the mesh config calls the cluster in metrics, "" where it does not say."""
    pattern = listener_defaults(db).outbound_stat_name
    known = _destination(db, to.destination.host, facet) if pattern and to.destination is not None else None
    return (
        build_stat_name(pattern, known[1], port, to.destination.subset)
        if known is not None and to.destination is not None
        else ""
    )


def _settings(db: Mesh, host: str, subset: str, facet: OutboundListenersFacet) -> TcpSettings:
    item = imported(db, facet.scope, host)
    if item is None:
        return tcp_settings(None, "", facet.listening.idle_timeout)
    return _rule_settings(db, item.ref, subset, facet)


def _rule_settings(db: Mesh, ref: ServiceRef, subset: str, facet: OutboundListenersFacet) -> TcpSettings:
    merged = destination_rule(db, facet.scope, ref, facet.labels)
    if merged is None and facet.listening.idle_timeout is None:
        return PLAIN
    return tcp_settings(merged.spec if merged is not None else None, subset, facet.listening.idle_timeout)
