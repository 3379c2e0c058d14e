"""Host names as Istio's configuration writes them: exact, or a wildcard whose first character is `*`.

A wildcard stands for any non-empty or empty text in place of the `*`, dots included; `*` alone is every host.
"""

from __future__ import annotations

from collections.abc import Iterable

from pilot.lib.addresses import is_ip


def is_wildcard(host: str) -> bool:
    return host.startswith("*")


def is_server_name(host: str) -> bool:
    """Returns whether TLS can be told apart by a host. There a wildcard stands for whole labels, or for every name.

    https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/listener/v3/listener_components.proto#config-listener-v3-filterchainmatch
    """
    return host == "*" or "*" not in host.removeprefix("*.")


def subset_of(host: str, other: str) -> bool:
    """Returns whether every name that `host` stands for is one that `other` stands for."""
    if not is_wildcard(other):
        return host == other
    return host.endswith(other[1:])


def matches(host: str, other: str) -> bool:
    """Returns whether one of two hosts covers the other."""
    return subset_of(host, other) or subset_of(other, host)


def specificity(host: str) -> tuple[bool, int, str]:
    """Returns a sort key: exact names first, then longer ones, then by text."""
    return is_wildcard(host), -len(host), host


def most_specific(host: str, candidates: Iterable[str]) -> str | None:
    """Returns the candidate that is closest to `host`: itself, else the longest wildcard that covers it; None for none."""
    found: str | None = None
    for candidate in candidates:
        if candidate == host:
            return candidate
        if (
            is_wildcard(candidate)
            and subset_of(host, candidate)
            and (found is None or specificity(candidate) < specificity(found))
        ):
            found = candidate
    return found


def full_name(host: str, namespace: str, domain: str) -> str:
    """Returns the full name of a host that a user wrote in a namespace: a name without a dot is a service there; `*`, addresses and "" stay."""
    if "." in host or host in ("", "*") or is_address(host):
        return host
    return f"{host}.{namespace}.svc.{domain}"


def is_address(text: str) -> bool:
    """Returns whether a host is an IPv4 or IPv6 address."""
    return is_ip(text)


def bracketed(host: str) -> str:
    """Returns a host as it is in an authority or a virtual host's domain: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def with_port(host: str, port: int) -> str:
    """Returns `host:port`, an IPv6 address in brackets."""
    return f"{bracketed(host)}:{port}"
