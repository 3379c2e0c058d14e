"""Plans the virtual hosts of a gateway's route configuration, and the VirtualServices that provide each host's routes.

A plan consists only of names. The routes for a `RouteSourceKey` are built once, and shared by all virtual hosts that
name the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pilot.config.object import ObjectKey
from pilot.derive import Steps
from pilot.lib import hosts


class RouteSourceKey(NamedTuple):
    """The key of a VirtualService's routes for a Gateway server. `tls` is set if the server terminates TLS."""

    gateway: ObjectKey
    virtual_service: ObjectKey
    port: int
    tls: bool


class ServerHosts(NamedTuple):
    """The properties of a server that affect its routes.

    A host may have the form "namespace/host". `redirects` is set if plaintext HTTP is redirected to HTTPS.
    """

    gateway: ObjectKey
    hosts: tuple[str, ...]
    port: int
    tls: bool
    redirects: bool


class BoundVirtualService(NamedTuple):
    """A VirtualService bound to a Gateway. It has routes for `ports`, a subset of the Gateway's server ports."""

    key: ObjectKey
    hosts: tuple[str, ...]
    ports: frozenset[int]


class GatewayHostKey(NamedTuple):
    """A planned virtual host.

    It is named after its first domain. `sources` are in the order of their routes. `redirects` is set if TLS is
    required.
    """

    name: str
    domains: tuple[str, ...]
    sources: tuple[RouteSourceKey, ...]
    redirects: bool


class _Host:
    def __init__(self, port: int) -> None:
        self.port, self.sources, self.redirects = port, list[RouteSourceKey](), False


class _HostGroup:
    def __init__(self, host: GatewayHostKey) -> None:
        self.first, self.domains = host, [*host.domains]


FEW_PAIRS = 64
"""Number of pairs of hosts up to which comparing all of them is the fastest way to intersect two lists."""
STEP = 256
"""Number of hosts that are planned in a step, which takes less than a millisecond."""


def plan_hosts_in_steps(
    servers: Sequence[ServerHosts], virtual_services: Mapping[ObjectKey, Iterable[BoundVirtualService]], collapse: bool
) -> Steps[tuple[GatewayHostKey, ...]]:
    """Plan the virtual hosts for servers that share a route configuration, and return them sorted by name.

    `virtual_services` maps each Gateway to its VirtualServices in order of precedence. If `collapse` is set, hosts with
    the same routes become domains of one virtual host. If there are no hosts, the result is one virtual host that
    responds to all requests with 404.
    """
    by_name: dict[str, _Host] = {}
    sources: dict[tuple[ObjectKey, ObjectKey], RouteSourceKey] = {}
    for server in servers:
        usable: dict[str, list[str]] = {}
        for virtual_service in virtual_services.get(server.gateway, ()):
            namespace = virtual_service.key.namespace
            if namespace not in usable:
                usable[namespace] = hosts_for_namespace(server.hosts, namespace)
            yield from _add_routes(by_name, sources, server, usable[namespace], virtual_service)
        if server.redirects:
            for number, host in enumerate(server.hosts):
                by_name.setdefault(host.lower(), _Host(server.port)).redirects = True
                if number % STEP == STEP - 1:
                    yield None
    if not by_name:
        return (GatewayHostKey(f"blackhole:{servers[0].port}", ("*",), (), False),)
    keys = []
    for number, (name, planned) in enumerate(by_name.items()):
        label = hosts.with_port(name, planned.port)
        keys.append(GatewayHostKey(label, (name,), tuple(planned.sources), planned.redirects))
        if number % STEP == STEP - 1:
            yield None
    return tuple(sorted((yield from _collapse(keys)) if collapse else keys))


def _add_routes(
    by_name: dict[str, _Host],
    sources: dict[tuple[ObjectKey, ObjectKey], RouteSourceKey],
    server: ServerHosts,
    server_hosts: Sequence[str],
    virtual_service: BoundVirtualService,
) -> Steps[None]:
    """Add the routes of a VirtualService to the hosts that the VirtualService and a server have in common.

    `server_hosts` are the server's hosts that the VirtualService may use. The routes are built for the port of the
    Gateway's first server that has routes. The Gateway's other servers in the same route configuration share them.
    """
    shared = yield from intersect_hosts_in_steps(server_hosts, virtual_service.hosts)
    if not shared:
        return
    key = server.gateway, virtual_service.key
    if key not in sources:
        if server.port not in virtual_service.ports:
            return
        sources[key] = RouteSourceKey(server.gateway, virtual_service.key, server.port, server.tls)
    for number, name in enumerate(shared):
        if number % STEP == STEP - 1:
            yield None
        host = by_name.get(name.lower())
        if host is None:
            host = by_name[name.lower()] = _Host(server.port)
        host.sources.append(sources[key])
        host.redirects |= server.redirects


def _collapse(keys: list[GatewayHostKey]) -> Steps[list[GatewayHostKey]]:
    """Merge hosts with the same routes into the most specific host."""
    groups: list[_HostGroup] = []
    latest: dict[tuple[RouteSourceKey, ...], _HostGroup] = {}
    for number, host in enumerate(sorted(keys, key=lambda h: hosts.specificity(h.domains[0]))):
        group = latest.get(host.sources)
        if group is not None and group.first.redirects == host.redirects:
            group.domains += host.domains
        else:
            latest[host.sources] = group = _HostGroup(host)
            groups.append(group)
        if number % STEP == STEP - 1:
            yield None
    return [group.first._replace(domains=tuple(group.domains)) for group in groups]


def hosts_for_namespace(server_hosts: Iterable[str], namespace: str) -> list[str]:
    """Return the server hosts that VirtualServices in a namespace may use, without the "namespace/" prefix."""
    parts = (h.rpartition("/") for h in server_hosts)
    return [host for limit, _, host in parts if limit in ("", "*", namespace)]


def intersect_hosts_in_steps(first: Sequence[str], second: Sequence[str]) -> Steps[Iterable[str]]:
    """Return the hosts that the two lists have in common, without duplicates.

    If one host of a pair covers the other, the narrower host is returned.
    """
    if first == ["*"]:
        return dict.fromkeys(second)
    if len(first) * len(second) <= FEW_PAIRS:
        return _compare_all(first, second)
    shared: dict[str, None] = {}
    for covering, covered in ((hosts.HostMatcher(second), first), (hosts.HostMatcher(first), second)):
        for start in range(0, len(covered), STEP):
            shared |= dict.fromkeys(host for host in covered[start : start + STEP] if covering.covers(host))
            yield None
    return shared


def _compare_all(first: Sequence[str], second: Sequence[str]) -> Iterable[str]:
    out: dict[str, None] = {}
    for a in first:
        for b in second:
            if hosts.subset_of(a, b):
                out[a] = None
            elif hosts.subset_of(b, a):
                out[b] = None
    return out
