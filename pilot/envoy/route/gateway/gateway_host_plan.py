"""Plans which virtual hosts a route configuration of a gateway has, and which VirtualServices each gets its routes from.

Plans are made of names alone: routes themselves are built once for each `RouteSourceKey` and shared by the virtual hosts that name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pilot.config.object import ObjectKey
from pilot.lib import hosts


class RouteSourceKey(NamedTuple):
    """Names the routes of a VirtualService as a server of a Gateway offers them: for its port, behind TLS or not."""

    gateway: ObjectKey
    virtual_service: ObjectKey
    port: int
    tls: bool


class ServerHosts(NamedTuple):
    """Holds a server as far as its routes go; `hosts` may be `namespace/host`, `redirects`: plain HTTP is sent to HTTPS."""

    gateway: ObjectKey
    hosts: tuple[str, ...]
    port: int
    tls: bool
    redirects: bool


class BoundVirtualService(NamedTuple):
    """Holds a VirtualService bound to a Gateway; `ports` are those of the Gateway's servers for which it has any route."""

    key: ObjectKey
    hosts: tuple[str, ...]
    ports: frozenset[int]


class GatewayHostKey(NamedTuple):
    """Plans a virtual host. `domains`: the first names it; `sources`: in the order of their routes; `redirects`: TLS is required."""

    name: str
    domains: tuple[str, ...]
    sources: tuple[RouteSourceKey, ...]
    redirects: bool


class _Host:
    def __init__(self, port: int) -> None:
        self.port, self.sources, self.redirects = port, list[RouteSourceKey](), False


def plan_hosts(
    servers: Sequence[ServerHosts], bound: Mapping[ObjectKey, Iterable[BoundVirtualService]], collapse: bool
) -> tuple[GatewayHostKey, ...]:
    """Returns the virtual hosts of the servers that share a route configuration, by name.

    `bound`: by Gateway, in order of precedence. `collapse`: hosts of the same routes are domains of one virtual host. Without any,
    there is one that answers 404 to everything.
    """
    found: dict[str, _Host] = {}
    sources: dict[tuple[ObjectKey, ObjectKey], RouteSourceKey] = {}
    for server in servers:
        for service in bound.get(server.gateway, ()):
            _offer(found, sources, server, service)
        if server.redirects:
            for host in server.hosts:
                found.setdefault(host.lower(), _Host(server.port)).redirects = True
    if not found:
        return (GatewayHostKey(f"blackhole:{servers[0].port}", ("*",), (), False),)
    planned = [
        GatewayHostKey(hosts.with_port(name, host.port), (name,), tuple(host.sources), host.redirects)
        for name, host in found.items()
    ]
    return tuple(sorted(_collapse(planned) if collapse else planned))


def _offer(
    found: dict[str, _Host],
    sources: dict[tuple[ObjectKey, ObjectKey], RouteSourceKey],
    server: ServerHosts,
    service: BoundVirtualService,
) -> None:
    """Adds the routes of a VirtualService to the hosts that a server shares with it.

    The first server of a Gateway for whose port there are routes says for which port they are built: the others of the same
    route configuration get the same.
    """
    shared = intersect_hosts(hosts_for_namespace(server.hosts, service.key.namespace), service.hosts)
    if not shared:
        return
    key = server.gateway, service.key
    if key not in sources:
        if server.port not in service.ports:
            return
        sources[key] = RouteSourceKey(server.gateway, service.key, server.port, server.tls)
    for name in shared:
        host = found.setdefault(name.lower(), _Host(server.port))
        host.sources.append(sources[key])
        host.redirects |= server.redirects


def _collapse(planned: list[GatewayHostKey]) -> list[GatewayHostKey]:
    """Merges hosts of the same routes into the most specific of them."""
    merged: dict[str, GatewayHostKey] = {}
    known: dict[tuple[RouteSourceKey, ...], str] = {}
    for host in sorted(planned, key=lambda h: hosts.specificity(h.domains[0])):
        primary = merged.get(known.get(host.sources, ""))
        if primary is not None and primary.redirects == host.redirects:
            merged[primary.name] = primary._replace(domains=primary.domains + host.domains)
        else:
            known[host.sources] = host.name
            merged[host.name] = host
    return list(merged.values())


def hosts_for_namespace(server_hosts: Iterable[str], namespace: str) -> list[str]:
    """Returns the hosts that VirtualServices of a namespace may have, without the namespaces that they are limited to."""
    parts = (h.rpartition("/") for h in server_hosts)
    return [host for limit, _, host in parts if limit in ("", "*", namespace)]


def intersect_hosts(first: Iterable[str], second: Sequence[str]) -> list[str]:
    """Returns, of every pair of hosts where one covers the other, the narrower one, once each."""
    out: dict[str, None] = {}
    for a in first:
        for b in second:
            if hosts.subset_of(a, b):
                out[a] = None
            elif hosts.subset_of(b, a):
                out[b] = None
    return list(out)
