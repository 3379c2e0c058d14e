"""The filter chains for a service at one of its addresses: the chains of VirtualServices, and the default chain."""

from __future__ import annotations

from itertools import islice

from pilot.config.networking.virtual_service import RouteDestination
from pilot.config.protocol import Protocol
from pilot.derive import derived
from pilot.envoy.cluster.stat_name import build_stat_name
from pilot.envoy.listener.filter_chain import RAW_BUFFER, plaintext_alpns
from pilot.envoy.listener.l4_rules import L4Chain, L4Client, find_tcp_chains, find_tls_chains, l4_keys
from pilot.envoy.listener.listener_address import wildcards
from pilot.envoy.listener.listener_options import listener_defaults
from pilot.envoy.listener.manager_template import ManagerKey
from pilot.envoy.listener.outbound.address_claims import AddressClaim
from pilot.envoy.listener.outbound.outbound_draft import HttpRoutes, OutboundChainKey
from pilot.envoy.names import outbound_cluster
from pilot.envoy.network_filter.tcp_proxy import DEFAULT_SETTINGS, TcpRoute, TcpSettings, tcp_settings
from pilot.envoy.route.route_destination import DestinationService, destination_cluster
from pilot.envoy.route.sidecar.domains import absolute_names, short_names
from pilot.lib.hosts import is_wildcard
from pilot.mesh.model.facets import OutboundListenersFacet
from pilot.mesh.model.service import Port, Resolution, Service, ServiceRef
from pilot.mesh.registry.aliases import service_aliases
from pilot.mesh.registry.services import service
from pilot.mesh.scope.sidecar_scope import egress_listeners, outbound_traffic_policy
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import destination_rule
from pilot.mesh.traffic.imports import imported
from pilot.mesh.traffic.route_limits import chains_per_port
from pilot.mesh.traffic.virtual_services import virtual_service


def http_chain(db: Mesh, claim: AddressClaim, facet: OutboundListenersFacet, detected: bool) -> OutboundChainKey:
    """Return the HTTP chain. If `detected` is set, it only matches connections on which inspection detects HTTP."""
    row = service(db, claim.ref)
    wildcard = wildcards(facet.listening.ipv4, facet.listening.ipv6)[:1]
    if not claim.port.number:
        routes = claim.binds[0]
    elif claim.port.protocol is Protocol.UNSUPPORTED and claim.binds[:1] != wildcard:
        routes = f"{claim.ref.hostname}:{claim.port.number}"
    else:
        routes = str(claim.port.number)
    kind = ManagerKey(
        grpc_web=claim.port.protocol is Protocol.GRPC_WEB,
        dynamic_host=claim.ref.hostname if row is not None and _is_dynamic(row) else "",
        allow_any=outbound_traffic_policy(db, facet.scope).dynamic_dns,
    )
    alpns, transport = (plaintext_alpns(db.settings.listeners.http10), RAW_BUFFER) if detected else ((), "")
    return OutboundChainKey(alpns=alpns, transport=transport, http=HttpRoutes(kind, routes))


def tcp_chains(db: Mesh, claim: AddressClaim, facet: OutboundListenersFacet) -> list[OutboundChainKey]:
    """Return the chains for TCP or TLS."""
    keys = l4_keys(db, facet.scope, claim.listener, claim.ref.hostname)
    services = [(key, row.spec) for key in keys if (row := virtual_service(db, key)) is not None]
    client = L4Client(facet.scope.namespace, facet.labels)
    find = find_tls_chains if claim.port.protocol.is_tls else find_tcp_chains
    target = service(db, claim.ref)
    limit = chains_per_port(len(target.ports) if target is not None else 1)
    rule_chains = list(islice(find(services, client, claim.port.number, claim.cidrs), limit))
    chains = [_rule_chain(db, chain, claim, facet) for chain in rule_chains]
    covered = bool(rule_chains) if claim.port.protocol.is_tls else any(c.terminal for c in rule_chains)
    if not covered:
        chains.append(_default_chain(db, claim, facet))
    return chains


def _rule_chain(db: Mesh, chain: L4Chain, claim: AddressClaim, facet: OutboundListenersFacet) -> OutboundChainKey:
    """Return the chain for a rule of a VirtualService.

    The DestinationRule of the first destination applies to all destinations.
    """
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
    source = chain.key if chain.records_source else None
    return OutboundChainKey(sni=chain.sni, cidrs=chain.cidrs, tcp=route, protocol=claim.port.protocol, source=source)


def _default_chain(db: Mesh, claim: AddressClaim, facet: OutboundListenersFacet) -> OutboundChainKey:
    """Return the chain that forwards to the service's own cluster."""
    row = service(db, claim.ref)
    name = outbound_cluster(claim.cluster_port, "", claim.ref.hostname)
    pattern = listener_defaults(db).outbound_stat_name
    stat_prefix = (
        build_stat_name(pattern, row, Port("", claim.cluster_port, Protocol.TCP))
        if pattern and row is not None
        else name
    )
    dynamic = row is not None and _is_dynamic(row)
    return OutboundChainKey(
        sni=_sni(db, claim, facet, dynamic) if claim.port.protocol.is_tls else (),
        cidrs=claim.cidrs,
        tcp=TcpRoute(stat_prefix, ((name, 0),), settings=_rule_settings(db, claim.ref, "", facet)),
        protocol=claim.port.protocol,
        dynamic_host=claim.ref.hostname if dynamic else "",
    )


def _sni(db: Mesh, claim: AddressClaim, facet: OutboundListenersFacet, dynamic: bool) -> tuple[str, ...]:
    """Return the server names that distinguish the service's TLS connections, or () if the address is sufficient."""
    wildcard = wildcards(facet.listening.ipv4, facet.listening.ipv6)[0]
    shared = claim.address == wildcard and claim.binds[:1] == (wildcard,)
    if claim.per_pod or not (claim.cidrs or not claim.address or shared or dynamic):
        return ()
    return (claim.ref.hostname, *_alias_names(db, claim, facet))


def _alias_names(db: Mesh, claim: AddressClaim, facet: OutboundListenersFacet) -> tuple[str, ...]:
    """Return the names by which clients may refer to the imported aliases of the service."""
    aliases = service_aliases(db, claim.ref.hostname)
    if not aliases:
        return ()
    hosts = egress_listeners(db, facet.scope)[claim.listener].hosts
    sets = [
        s
        for s in (hosts.find(claim.ref.namespace), hosts.everywhere)
        if s is not None and s.imports(claim.ref.hostname)
    ]
    imported_aliases = [a.hostname for a in aliases if sets and sets[0].imports(a.hostname)]
    domain = f"{facet.scope.namespace}.svc.{db.settings.registry.domain}"
    return tuple(
        n
        for a in imported_aliases
        for n in (a, *absolute_names(a, db.settings.routes.absolute_domains), *short_names(a, domain))
    )


def _is_dynamic(service: Service) -> bool:
    """Return whether the service has a wildcard host, so that names matching it are resolved at request time."""
    return service.resolution is Resolution.DYNAMIC_DNS and is_wildcard(service.hostname)


@derived
def _destination(db: Mesh, host: str, facet: OutboundListenersFacet) -> tuple[DestinationService, Service] | None:
    import_key = imported(db, facet.scope, host)
    row = service(db, import_key.ref) if import_key is not None else None
    if import_key is None or row is None:
        return None
    return DestinationService(tuple(p.number for p in import_key.visible_ports(row)), row.external_name), row


def _cluster(db: Mesh, route: RouteDestination, port: Port, facet: OutboundListenersFacet) -> str:
    destination = _destination(db, route.destination.host, facet) if route.destination is not None else None
    return destination_cluster(route.destination, destination[0] if destination is not None else None, port.number)


def _stat_prefix(db: Mesh, route: RouteDestination, port: Port, facet: OutboundListenersFacet) -> str:
    """Return the statistics prefix that the mesh config defines for the cluster, or "" if it defines none."""
    pattern = listener_defaults(db).outbound_stat_name
    destination = _destination(db, route.destination.host, facet) if pattern and route.destination is not None else None
    return (
        build_stat_name(pattern, destination[1], port, route.destination.subset)
        if destination is not None and route.destination is not None
        else ""
    )


def _settings(db: Mesh, host: str, subset: str, facet: OutboundListenersFacet) -> TcpSettings:
    import_key = imported(db, facet.scope, host)
    if import_key is None:
        return tcp_settings(None, "", facet.listening.idle_timeout)
    return _rule_settings(db, import_key.ref, subset, facet)


def _rule_settings(db: Mesh, ref: ServiceRef, subset: str, facet: OutboundListenersFacet) -> TcpSettings:
    merged = destination_rule(db, facet.scope, ref, facet.labels)
    if merged is None and facet.listening.idle_timeout is None:
        return DEFAULT_SETTINGS
    return tcp_settings(merged.spec if merged is not None else None, subset, facet.listening.idle_timeout)
