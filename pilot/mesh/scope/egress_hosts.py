"""The hosts that an egress listener of a Sidecar imports.

https://istio.io/latest/docs/reference/config/networking/sidecar/#IstioEgressListener

Hosts have the form `namespace/host`. The namespace `*` is any namespace, and `.` is the namespace of the Sidecar. A `~`
before the namespace excludes the hosts.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from pilot.lib import hosts

ANY_NAMESPACE = "*"


class HostSet(msgspec.Struct, frozen=True, cache_hash=True):
    """The hosts that are imported from a namespace, as written and in order, and the hosts that are excluded."""

    hosts: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    @property
    def exact(self) -> frozenset[str]:
        return _split(self).exact

    @property
    def wildcards(self) -> tuple[str, ...]:
        return _split(self).wildcards

    def imports(self, hostname: str) -> bool:
        """Return True if a service with this hostname is imported.

        If the hostname is a wildcard, an imported wildcard must match all its subdomains.
        """
        return _split(self).imported.covers(hostname)

    def overlaps(self, host: str) -> bool:
        """Return True if an imported host matches this host, or is matched by it."""
        return _split(self).overlapping.overlap(host)

    def excludes(self, hostname: str) -> bool:
        return bool(self.excluded) and _split(self).excluded.covers(hostname)


class _Split(NamedTuple):
    exact: frozenset[str]
    wildcards: tuple[str, ...]
    imported: hosts.HostMatcher
    overlapping: hosts.OverlappingHosts
    excluded: hosts.HostMatcher


@lru_cache(maxsize=256)
def _split(host_set: HostSet) -> _Split:
    """Return the exact hosts and the wildcards of a set.

    The result is cached, because hundreds of services are matched against each set.
    """
    wildcards = tuple(host for host in host_set.hosts if hosts.is_wildcard(host))
    exact = frozenset(host_set.hosts) - frozenset(wildcards)
    imported, overlapping = hosts.HostMatcher(host_set.hosts), hosts.OverlappingHosts(host_set.hosts)
    return _Split(exact, wildcards, imported, overlapping, hosts.HostMatcher(host_set.excluded))


class EgressHostsKey(msgspec.Struct, frozen=True, cache_hash=True):
    """The host sets of an egress listener, keyed by namespace. The namespace `*` is any namespace."""

    by_namespace: tuple[tuple[str, HostSet], ...]

    def find(self, namespace: str) -> HostSet | None:
        """Return the host set of `namespace`, or None. Sets of other namespaces, such as `*`, are not considered."""
        return _by_namespace(self).get(namespace)

    @property
    def everywhere(self) -> HostSet | None:
        """Return the host set of the namespace `*`."""
        return self.find(ANY_NAMESPACE)

    @property
    def everything(self) -> bool:
        """Return True if the only host is `*/*`."""
        return self.by_namespace == ((ANY_NAMESPACE, HostSet(hosts=("*",))),)

    def imports(self, hostname: str, namespace: str) -> bool:
        """Return True if the service with this hostname and namespace is imported."""
        sets = [hosts for hosts in (self.find(namespace), self.everywhere) if hosts is not None]
        return not any(hosts.excludes(hostname) for hosts in sets) and any(hosts.imports(hostname) for hosts in sets)


@lru_cache(maxsize=256)
def _by_namespace(key: EgressHostsKey) -> dict[str, HostSet]:
    return dict(key.by_namespace)


def parse_hosts(hosts: Iterable[str], namespace: str) -> EgressHostsKey:
    """Return the host sets of an egress listener in `namespace`.

    Hosts that do not have the form `namespace/host` are ignored.
    """
    sets: dict[str, tuple[list[str], list[str]]] = {}
    for text in hosts:
        scope, slash, host = text.partition("/")
        if not slash or "/" in host:
            continue
        excluded = scope.startswith("~")
        if excluded:
            scope = scope[1:] or ANY_NAMESPACE
        hosts_imported, omitted = sets.setdefault(namespace if scope == "." else scope, ([], []))
        (omitted if excluded else hosts_imported).append(host)
    return EgressHostsKey(
        tuple((name, HostSet(tuple(hosts), tuple(exclusions))) for name, (hosts, exclusions) in sets.items())
    )
