"""Derives the virtual hosts that the services of one namespace have on one port.

Proxies that see the same services of a namespace, through the same VirtualServices, share them; only who has the same DNS domain
as the services gets others, with their short names.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pilot.config.object import ObjectKey
from pilot.config.protocol import Protocol
from pilot.derive import derived
from pilot.envoy.route.route_dependencies import (
    RouteDependencies,
    may_use_consistent_hash,
    merge_dependencies,
    route_dependencies,
)
from pilot.envoy.route.route_destination import DestinationKey
from pilot.envoy.route.sidecar.domains import Domains, build_domains, kubernetes_namespace, without_namespace
from pilot.lib.hosts import bracketed
from pilot.mesh.model.service import Port, Resolution, Service, ServiceRef
from pilot.mesh.model.virtual_addresses import AddressFamiliesFacet
from pilot.mesh.registry.aliases import service_aliases
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.virtual_services import ViewerKey, virtual_services_of


class HostKey(NamedTuple):
    """Plans a virtual host: of a service, or (`ref` None) of a VirtualService alone. `host` is in lower case.

    `rules`: the VirtualServices that may route it, in the order they are tried; the first that has any route for the proxy does.
    """

    host: str
    port: int
    ref: ServiceRef | None
    rules: tuple[ObjectKey, ...] = ()
    aliases: tuple[str, ...] = ()


class SegmentKey(msgspec.Struct, frozen=True, cache_hash=True):
    """Names services of one namespace in sight, by age, that have the port (0: any port)."""

    refs: tuple[ServiceRef, ...]
    port: int
    viewer: ViewerKey


@derived
def segment_hosts(db: Mesh, key: SegmentKey) -> tuple[HostKey, ...]:
    """Returns the virtual hosts of a segment: one for each service and HTTP port. An alias has one only where a VirtualService is for it."""
    hosts: list[HostKey] = []
    for ref in key.refs:
        found = service(db, ref)
        if found is None:
            continue
        for port in http_ports(found, key.port):
            rules = candidate_virtual_services(db, ref, key.viewer)
            if rules or found.resolution is not Resolution.ALIAS:
                hosts.append(HostKey(ref.hostname.lower(), port.number, ref, rules, _aliases(db, ref, key.viewer)))
    return tuple(hosts)


def http_ports(found: Service, number: int) -> list[Port]:
    """Returns the ports of a service that may carry HTTP: that of a number, or (0) all."""
    ports = found.ports if not number else tuple(p for p in (found.port(number),) if p is not None)
    return [p for p in ports if p.protocol.is_http or p.protocol is Protocol.UNSUPPORTED]


def candidate_virtual_services(db: Mesh, ref: ServiceRef, viewer: ViewerKey) -> tuple[ObjectKey, ...]:
    """Returns the VirtualServices that may route a service; those behind one that always does are left out."""
    out: list[ObjectKey] = []
    for key in virtual_services_of(db, ref.hostname, ref.namespace, viewer):
        asks = route_dependencies(db, key)
        if asks is not None:
            out.append(key)
            if not asks.conditional:
                break
    return tuple(out)


def _aliases(db: Mesh, ref: ServiceRef, viewer: ViewerKey) -> tuple[str, ...]:
    """Returns other names of a service, as far as they are imported together with it."""
    refs = service_aliases(db, ref.hostname)
    if not refs or viewer.hosts is None:
        return tuple(a.hostname for a in refs)
    sets = [
        s
        for s in (viewer.hosts.find(ref.namespace), viewer.hosts.everywhere)
        if s is not None and s.imports(ref.hostname)
    ]
    return tuple(a.hostname for a in refs if sets and sets[0].imports(a.hostname))


# -- what a segment depends on ---------------------------------------------------------------------


class SegmentDependencies(msgspec.Struct, frozen=True, cache_hash=True):
    """Says what the hosts of a segment need to know of a proxy. `namespaces`: those whose clients use short names for them."""

    asks: RouteDependencies
    namespaces: frozenset[str]


@derived
def segment_dependencies(db: Mesh, key: SegmentKey) -> SegmentDependencies:
    """Returns what all hosts of a segment need together."""
    hosts = segment_hosts(db, key)
    return SegmentDependencies(
        merge_dependencies(host_dependencies(db, host) for host in hosts),
        frozenset(kubernetes_namespace(n) for h in hosts for n in (h.host, *h.aliases)),
    )


@derived
def host_dependencies(db: Mesh, host: HostKey) -> RouteDependencies:
    """Returns what the routes of one host ask, and its default route where the VirtualServices may have none."""
    asked = [asks for rule in host.rules if (asks := route_dependencies(db, rule)) is not None]
    if (
        host.ref is not None
        and all(asks.conditional for asks in asked)
        and may_use_consistent_hash(db, host.ref.hostname)
    ):
        asked.append(RouteDependencies(hashed=(default_destination(host.ref, host.port),)))
    return merge_dependencies(asked) if asked else RouteDependencies()


def default_destination(ref: ServiceRef, port: int) -> DestinationKey:
    """Returns where requests to a port of a service go that no VirtualService routes."""
    return DestinationKey(ref.hostname, "", port)


# -- domains ---------------------------------------------------------------------------------------


def host_domains(db: Mesh, host: HostKey, dns_domain: str, families: AddressFamiliesFacet, listener: int) -> Domains:
    """Returns the domains of a virtual host, before any is dropped because another host has it. `listener`: 0 where ports are told apart."""
    found = service(db, host.ref) if host.ref is not None else None
    if found is None:
        return Domains((bracketed(host.host),), frozenset())
    return build_domains(
        found, host.aliases, dns_domain, families, db.settings.routes.absolute_domains, 0 if listener else host.port
    )


class SegmentDomains(NamedTuple):
    """Holds the domains of a segment, in lower case; `repeated`: those that more than one of its hosts have."""

    domains: frozenset[str]
    repeated: frozenset[str]


@derived
def segment_domains(db: Mesh, key: SegmentKey, dns_domain: str, families: AddressFamiliesFacet) -> SegmentDomains:
    """Returns the domains that the hosts of a segment have before any is dropped."""
    seen: set[str] = set()
    repeated: set[str] = set()
    for host in segment_hosts(db, key):
        names = {n.lower() for n in host_domains(db, host, dns_domain, families, key.port).names}
        repeated |= seen & names
        seen |= names
    return SegmentDomains(frozenset(seen), frozenset(repeated))


def segment_dns_domain(dns_domain: str, needs: SegmentDependencies) -> str:
    """Returns the DNS domain of a proxy as far as it matters to the names in a segment."""
    return dns_domain if dns_domain.partition(".svc.")[0] in needs.namespaces else without_namespace(dns_domain)
