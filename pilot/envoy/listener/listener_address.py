"""Builds the addresses of listeners."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable

from envoy.config.core.v3 import address_pb2
from envoy.config.listener.v3 import listener_pb2

from pilot.mesh.model.virtual_addresses import ANY_IPV4

UNIX = "unix://"
ANY_IPV6 = "::"
FIRST_UNPRIVILEGED_PORT = 1024


def wildcards(ipv4: bool, ipv6: bool) -> tuple[str, ...]:
    """Return the wildcard addresses for the proxy's IP families.

    The first is the primary address of a listener. The second is an additional address.
    """
    return tuple(a for a, has in ((ANY_IPV4, ipv4), (ANY_IPV6, ipv6)) if has)


def loopbacks(ipv4: bool, ipv6: bool) -> tuple[str, ...]:
    """Return the loopback addresses for the proxy's IP families, in the same order as `wildcards`."""
    return tuple(a for a, has in (("127.0.0.1", ipv4), ("::1", ipv6)) if has)


def canonical(bind: str) -> str:
    """Return the canonical form of an IPv6 address, which Envoy uses to compare addresses.

    Return any other string unchanged.
    """
    if ":" not in bind or bind.startswith(UNIX):
        return bind
    return _canonical_ip(bind)


@functools.lru_cache(maxsize=1 << 14)
def _canonical_ip(address: str) -> str:
    """Return the canonical form of an IP address. It is needed again after each change of a service."""
    return str(ipaddress.ip_address(address))


def build_address(bind: str, port: int) -> address_pb2.Address:
    """Return a socket address, or the address of a Unix socket if the port is 0."""
    if port:
        return address_pb2.Address(socket_address=address_pb2.SocketAddress(address=bind, port_value=port))
    return address_pb2.Address(pipe=address_pb2.Pipe(path=bind.removeprefix(UNIX)))


def build_additional(binds: Iterable[str], port: int) -> list[listener_pb2.AdditionalAddress]:
    """Return the additional addresses of a listener."""
    return [listener_pb2.AdditionalAddress(address=build_address(bind, port)) for bind in binds if bind]


def listener_name(bind: str, port: int) -> str:
    """Return the name of a listener, such as `0.0.0.0_80`."""
    return f"{bind}_{port}"
