"""The `hosts` of an egress listener of a Sidecar: which hosts of which namespaces it imports.

https://istio.io/latest/docs/reference/config/networking/sidecar/#IstioEgressListener: `namespace/host`, with `*` for any
namespace, `.` for the Sidecar's own and `~` in front of a namespace for hosts to leave out.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from pilot.lib.hosts import is_wildcard, subset_of

ANY_NAMESPACE = "*"


class HostSet(msgspec.Struct, frozen=True, cache_hash=True):
    """Hosts that are imported from one namespace, as written and in order, and those that are left out."""

    hosts: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    @property
    def exact(self) -> frozenset[str]:
        return _split(self).exact

    @property
    def wildcards(self) -> tuple[str, ...]:
        return _split(self).wildcards

    def imports(self, hostname: str) -> bool:
        """Returns whether a service of that name is imported: a wildcard service only by a wildcard that covers all of it."""
        exact, wildcards = _split(self)
        return hostname in exact or any(subset_of(hostname, h) for h in wildcards)

    def excludes(self, hostname: str) -> bool:
        return any(subset_of(hostname, h) for h in self.excluded)


class _Split(NamedTuple):
    exact: frozenset[str]
    wildcards: tuple[str, ...]


@lru_cache(maxsize=256)
def _split(hosts: HostSet) -> _Split:
    """Returns the exact hosts and the wildcards of a set. Cached, because sets of hundreds of hosts are asked about hundreds of services."""
    wildcards = tuple(h for h in hosts.hosts if is_wildcard(h))
    return _Split(frozenset(hosts.hosts) - frozenset(wildcards), wildcards)


class EgressHostsKey(msgspec.Struct, frozen=True, cache_hash=True):
    """The host sets of one egress listener, by namespace (`*` is any)."""

    by_namespace: tuple[tuple[str, HostSet], ...]

    def find(self, namespace: str) -> HostSet | None:
        """Returns the set that is written for this very namespace."""
        return next((s for n, s in self.by_namespace if n == namespace), None)

    @property
    def everywhere(self) -> HostSet | None:
        """Returns the set of `*`."""
        return self.find(ANY_NAMESPACE)

    @property
    def everything(self) -> bool:
        """Returns whether it is `*/*` alone."""
        return self.by_namespace == ((ANY_NAMESPACE, HostSet(hosts=("*",))),)

    def imports(self, hostname: str, namespace: str) -> bool:
        """Returns whether the service of that name and namespace is imported."""
        sets = [s for s in (self.find(namespace), self.everywhere) if s is not None]
        return not any(s.excludes(hostname) for s in sets) and any(s.imports(hostname) for s in sets)


def parse_hosts(hosts: Iterable[str], namespace: str) -> EgressHostsKey:
    """Returns the host sets of an egress listener that takes effect in a namespace; hosts that are not `namespace/host` are left out."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for text in hosts:
        where, slash, host = text.partition("/")
        if not slash or "/" in host:
            continue
        excluded = where.startswith("~")
        if excluded:
            where = where[1:] or ANY_NAMESPACE
        imported, left_out = found.setdefault(namespace if where == "." else where, ([], []))
        (left_out if excluded else imported).append(host)
    return EgressHostsKey(tuple((n, HostSet(tuple(i), tuple(x))) for n, (i, x) in found.items()))
