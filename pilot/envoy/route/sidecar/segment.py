"""Derives the virtual hosts for the services of one namespace on one port.

Proxies share them if they see the same services of the namespace through the same VirtualServices. Only clients in the
DNS domain of the services have different virtual hosts, with short names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from pilot.config.object import ObjectKey
from pilot.config.protocol import Protocol
from pilot.derive import Steps, derived, derived_in_steps
from pilot.envoy.route.route_dependencies import (
    NO_DEPENDENCIES,
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
    """A planned virtual host. It belongs to a service or, if `ref` is None, only to VirtualServices.

    `host` is in lower case. `rules` are the VirtualServices that may route the host, in order of evaluation. The first
    VirtualService that has a route for the proxy wins.
    """

    host: str
    port: int
    ref: ServiceRef | None
    rules: tuple[ObjectKey, ...] = ()
    aliases: tuple[str, ...] = ()


class SegmentKey(msgspec.Struct, frozen=True, cache_hash=True):
    """The visible services in one namespace that have the port, in order of precedence. `port` is 0 for any port."""

    refs: tuple[ServiceRef, ...]
    port: int
    viewer: ViewerKey


@derived_in_steps
def segment_hosts(db: Mesh, key: SegmentKey) -> Steps[tuple[HostKey, ...]]:
    """Return the virtual hosts of a segment."""
    hosts: list[HostKey] = []
    for ref in key.refs:
        yield service_hosts.step(ref, key.viewer)
        by_port = service_hosts(db, ref, key.viewer)
        if not key.port:
            hosts += by_port.values()
        elif (host := by_port.get(key.port)) is not None:
            hosts.append(host)
    return tuple(hosts)


@derived
def service_hosts(db: Mesh, ref: ServiceRef, viewer: ViewerKey) -> Mapping[int, HostKey]:
    """Return the virtual hosts of a service by the numbers of its ports that may carry HTTP.

    An alias has virtual hosts only if a VirtualService applies to it.
    """
    row = service(db, ref)
    if row is None:
        return {}
    rules = candidate_virtual_services(db, ref, viewer)
    if not rules and row.resolution is Resolution.ALIAS:
        return {}
    host, aliases = ref.hostname.lower(), _aliases(db, ref, viewer)
    return {port.number: HostKey(host, port.number, ref, rules, aliases) for port in _http_ports(row)}


def _http_ports(service: Service) -> Iterator[Port]:
    """Yield the ports that may carry HTTP."""
    return (port for port in service.ports if port.protocol.is_http or port.protocol is Protocol.UNSUPPORTED)


def candidate_virtual_services(db: Mesh, ref: ServiceRef, viewer: ViewerKey) -> tuple[ObjectKey, ...]:
    """Return the VirtualServices that may route a service, up to the first that routes it unconditionally."""
    out: list[ObjectKey] = []
    for key in virtual_services_of(db, ref.hostname, ref.namespace, viewer):
        dependencies = route_dependencies(db, key)
        if dependencies is not None:
            out.append(key)
            if not dependencies.conditional:
                break
    return tuple(out)


def _aliases(db: Mesh, ref: ServiceRef, viewer: ViewerKey) -> tuple[str, ...]:
    """Return the aliases of a service that are imported together with it."""
    refs = service_aliases(db, ref.hostname)
    if not refs or viewer.hosts is None:
        return tuple(a.hostname for a in refs)
    host_sets = [
        hosts
        for hosts in (viewer.hosts.find(ref.namespace), viewer.hosts.everywhere)
        if hosts is not None and hosts.imports(ref.hostname)
    ]
    return tuple(a.hostname for a in refs if host_sets and host_sets[0].imports(a.hostname))


# -- dependencies of a segment ---------------------------------------------------------------------


class SegmentDependencies(msgspec.Struct, frozen=True, cache_hash=True):
    """The properties of a proxy that affect the virtual hosts of a segment.

    Clients in `namespaces` use short names for the hosts.
    """

    routes: RouteDependencies
    namespaces: frozenset[str]


@derived_in_steps
def segment_dependencies(db: Mesh, key: SegmentKey) -> Steps[SegmentDependencies]:
    """Return the combined dependencies of all hosts of a segment."""
    routes: dict[RouteDependencies, None] = {}
    namespaces: set[str] = set()
    for host in segment_hosts(db, key):
        yield None
        routes[host_dependencies(db, host)] = None
        namespaces.update(map(kubernetes_namespace, (host.host, *host.aliases)))
    return SegmentDependencies(merge_dependencies(routes), frozenset(namespaces))


def host_dependencies(db: Mesh, host: HostKey) -> RouteDependencies:
    """Return the dependencies of one host's routes. Not memoised.

    They include those of its default route, unless a VirtualService always has a route.
    """
    dependencies_by_rule = [
        dependencies for rule in host.rules if (dependencies := route_dependencies(db, rule)) is not None
    ]
    if (
        host.ref is not None
        and all(dependencies.conditional for dependencies in dependencies_by_rule)
        and may_use_consistent_hash(db, host.ref.hostname)
    ):
        dependencies_by_rule.append(RouteDependencies(hash_candidates=(default_destination(host.ref, host.port),)))
    return merge_dependencies(dependencies_by_rule) if dependencies_by_rule else NO_DEPENDENCIES


def default_destination(ref: ServiceRef, port: int) -> DestinationKey:
    """Return the destination of requests to a service port that no VirtualService routes."""
    return DestinationKey(ref.hostname, "", port)


# -- domains ---------------------------------------------------------------------------------------


def host_domains(db: Mesh, host: HostKey, dns_domain: str, families: AddressFamiliesFacet, listener: int) -> Domains:
    """Return the domains of a virtual host before conflicts are resolved.

    If `listener` is 0, the listener serves all ports, and the domains include the port.
    """
    row = service(db, host.ref) if host.ref is not None else None
    if row is None:
        return Domains((bracketed(host.host),), frozenset())
    return build_domains(
        row, host.aliases, dns_domain, families, db.settings.routes.absolute_domains, 0 if listener else host.port
    )


class SegmentDomains(NamedTuple):
    """The domains of a segment, in lower case. `repeated` are the domains that more than one of its hosts has."""

    domains: frozenset[str]
    repeated: frozenset[str]


@derived_in_steps
def segment_domains(
    db: Mesh, key: SegmentKey, dns_domain: str, families: AddressFamiliesFacet
) -> Steps[SegmentDomains]:
    """Return the domains of all virtual hosts of a segment before conflicts are resolved."""
    claimed_domains: set[str] = set()
    repeated: set[str] = set()
    for host in segment_hosts(db, key):
        yield service.step(host.ref) if host.ref is not None else None
        names = {n.lower() for n in host_domains(db, host, dns_domain, families, key.port).names}
        repeated |= claimed_domains & names
        claimed_domains |= names
    return SegmentDomains(frozenset(claimed_domains), frozenset(repeated))


def segment_dns_domain(dns_domain: str, dependencies: SegmentDependencies) -> str:
    """Return the part of a proxy's DNS domain that affects the names in a segment."""
    return dns_domain if dns_domain.partition(".svc.")[0] in dependencies.namespaces else without_namespace(dns_domain)
