"""Hostnames in Istio's configuration. They are exact names, or wildcards whose first character is `*`.

The `*` matches any string, including dots and the empty string. The wildcard `*` matches every host.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Set

from pilot.lib.addresses import is_ip

MANY_CANDIDATES = 100
"""Number of candidates above which `most_specific` looks up suffixes."""


def is_wildcard(host: str) -> bool:
    return host.startswith("*")


def is_server_name(host: str) -> bool:
    """Return whether Envoy can match a host against the SNI. The host must be exact, `*`, or start with `*.`.

    https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/listener/v3/listener_components.proto#config-listener-v3-filterchainmatch
    """
    return host == "*" or "*" not in host.removeprefix("*.")


def subset_of(host: str, other: str) -> bool:
    """Return whether `other` matches every name that `host` matches."""
    if not is_wildcard(other):
        return host == other
    return host.endswith(other[1:])


def matches(host: str, other: str) -> bool:
    """Return whether one of two hosts covers the other."""
    return subset_of(host, other) or subset_of(other, host)


def specificity(host: str) -> tuple[bool, int, str]:
    """Return a sort key. It orders exact names before wildcards, longer names before shorter names, and names of equal
    length alphabetically."""
    return is_wildcard(host), -len(host), host


def most_specific(host: str, candidates: Iterable[str]) -> str | None:
    """Return the most specific candidate that matches `host`, or None if there is none.

    This is `host` itself if it is a candidate, otherwise the longest wildcard that matches it. Large sets and mappings
    are not searched: each suffix of the host is looked up.
    """
    if isinstance(candidates, Set | Mapping) and len(candidates) > MANY_CANDIDATES:
        names = (host, *(f"*{host[start:]}" for start in range(len(host) + 1)))
        return next((name for name in names if name in candidates), None)
    closest: str | None = None
    for candidate in candidates:
        if candidate == host:
            return candidate
        if (
            is_wildcard(candidate)
            and subset_of(host, candidate)
            and (closest is None or specificity(candidate) < specificity(closest))
        ):
            closest = candidate
    return closest


class HostMatcher:
    """A set of hosts that finds those that match a name. The cost depends only on the length of the name."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = frozenset(hosts)
        self._lengths = sorted({len(host) for host in self._hosts if is_wildcard(host)})

    def wildcards_of(self, host: str) -> list[str]:
        """Return the wildcards that match every name that `host` matches, the shortest first."""
        lengths = self._lengths[: bisect.bisect_right(self._lengths, len(host) + 1)]
        wildcards = (f"*{host[len(host) + 1 - length :]}" for length in lengths)
        return [wildcard for wildcard in wildcards if wildcard in self._hosts]

    def covers(self, host: str) -> bool:
        """Return whether any of the hosts matches every name that `host` matches (see `subset_of`)."""
        return host in self._hosts or bool(self.wildcards_of(host))


def full_name(host: str, namespace: str, domain: str) -> str:
    """Return the full name of a host that an object in `namespace` refers to.

    A name without a dot is a service in that namespace. `*`, addresses and "" are returned unchanged.
    """
    if "." in host or host in ("", "*") or is_address(host):
        return host
    return f"{host}.{namespace}.svc.{domain}"


def is_address(text: str) -> bool:
    """Return whether a host is an IPv4 or IPv6 address."""
    return is_ip(text)


def bracketed(host: str) -> str:
    """Return a host as it is written in an authority. An IPv6 address is in brackets."""
    return f"[{host}]" if ":" in host else host


def with_port(host: str, port: int) -> str:
    """Return `host:port`. An IPv6 address is in brackets."""
    return f"{bracketed(host)}:{port}"


class OverlappingHosts:
    """A set of hosts that finds out whether a host covers one of them or is covered by one.

    The cost depends on the length of the host, and on the logarithm of the size of the set.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self._matcher, self._reversed = HostMatcher(names := set(hosts)), sorted(name[::-1] for name in names)

    def overlap(self, host: str) -> bool:
        """Return whether `matches` is true for the host and one of the set."""
        return self._matcher.covers(host) or (is_wildcard(host) and next(self.covered_by(host), None) is not None)

    def covered_by(self, wildcard: str) -> Iterator[str]:
        """Yield the hosts of the set that a wildcard matches."""
        ending = wildcard[:0:-1]
        for place in range(bisect.bisect_left(self._reversed, ending), len(self._reversed)):
            if not self._reversed[place].startswith(ending):
                return
            yield self._reversed[place][::-1]
