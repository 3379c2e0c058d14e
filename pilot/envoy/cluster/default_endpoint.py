"""Reads where the ingress listener of a Sidecar sends its traffic.

https://istio.io/latest/docs/reference/config/networking/sidecar/#IstioIngressListener
"""

from __future__ import annotations

from typing import NamedTuple

from pilot.envoy.cluster.defaults import ClusterTraitsKey
from pilot.lib.hosts import is_address

UNIX = "unix://"
LOCAL_IPV4, LOCAL_IPV6 = "127.0.0.1", "::1"
POD_IPV4, POD_IPV6 = "0.0.0.0", "::"


class DefaultEndpoint(NamedTuple):
    """Holds an address of the application; a Unix socket is its path, with port 0."""

    address: str
    port: int


def local_host(traits: ClusterTraitsKey) -> str:
    """Returns the loopback address of a proxy: IPv4's, where it has that."""
    return LOCAL_IPV4 if traits.ipv4 else LOCAL_IPV6


def parse_default_endpoint(text: str, ips: tuple[str, ...], traits: ClusterTraitsKey) -> DefaultEndpoint | None:
    """Returns the address in a `defaultEndpoint`; None where it has none, alone or beside a port: traffic goes where the client sent it.

    `ips`: the addresses of the proxy, which 0.0.0.0 and :: stand for; a loopback address is one of a family that the proxy has.
    """
    if text.startswith(UNIX):
        return DefaultEndpoint(text.removeprefix(UNIX), 0)
    host, colon, number = text.rpartition(":")
    if not colon or not number.isdecimal():
        return None
    address = _resolve(host.removeprefix("[").removesuffix("]"), ips, traits)
    return DefaultEndpoint(address, int(number)) if address else None


def _resolve(host: str, ips: tuple[str, ...], traits: ClusterTraitsKey) -> str:
    """Returns the address that a host stands for; "" for a host that is not allowed."""
    if host == POD_IPV4:
        return next((ip for ip in ips if is_address(ip) and ":" not in ip), LOCAL_IPV4)
    if host == POD_IPV6:
        return next((ip for ip in ips if ":" in ip), LOCAL_IPV6)
    if host == LOCAL_IPV4:
        return LOCAL_IPV4 if traits.ipv4 else LOCAL_IPV6
    if host == LOCAL_IPV6:
        return LOCAL_IPV6 if traits.ipv6 else LOCAL_IPV4
    return ""
