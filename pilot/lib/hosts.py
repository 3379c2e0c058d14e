"""Host names in Istio's configuration: exact names, or wildcards whose first character is `*`.

The `*` matches any text, including dots and the empty text. The wildcard `*` matches every host.
"""

from __future__ import annotations

from collections.abc import Iterable

from pilot.lib.addresses import is_ip


def is_wildcard(host: str) -> bool:
    return host.startswith("*")


def is_server_name(host: str) -> bool:
    """Return whether Envoy can match a host by SNI. There a wildcard matches whole labels, or every name.

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
    """Return a sort key: exact names first, then longer names, then alphabetical order."""
    return is_wildcard(host), -len(host), host


def most_specific(host: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate closest to `host`: itself, else the longest wildcard that covers it, else None."""
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


def full_name(host: str, namespace: str, domain: str) -> str:
    """Return the full name of a host in a namespace. A name without a dot is a service there; `*`, addresses and ""
    stay."""
    if "." in host or host in ("", "*") or is_address(host):
        return host
    return f"{host}.{namespace}.svc.{domain}"


def is_address(text: str) -> bool:
    """Return whether a host is an IPv4 or IPv6 address."""
    return is_ip(text)


def bracketed(host: str) -> str:
    """Return a host as written in an authority, with an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def with_port(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 address in brackets."""
    return f"{bracketed(host)}:{port}"
