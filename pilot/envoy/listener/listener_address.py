"""Builds addresses that listeners are bound to."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from envoy.config.core.v3 import address_pb2
from envoy.config.listener.v3 import listener_pb2

from pilot.mesh.model.virtual_addresses import ANY_IPV4

UNIX = "unix://"
ANY_IPV6 = "::"


def wildcards(ipv4: bool, ipv6: bool) -> tuple[str, ...]:
    """Returns the addresses that stand for all, of the families that a proxy has; the first is the one to bind to, the second an additional one."""
    return tuple(a for a, has in ((ANY_IPV4, ipv4), (ANY_IPV6, ipv6)) if has)


def loopbacks(ipv4: bool, ipv6: bool) -> tuple[str, ...]:
    """Returns the addresses of the pod itself, in the same order."""
    return tuple(a for a, has in (("127.0.0.1", ipv4), ("::1", ipv6)) if has)


def canonical(bind: str) -> str:
    """Returns an IPv6 address in the one form that all its spellings have, as Envoy compares them; anything else as it is."""
    if ":" not in bind or bind.startswith(UNIX):
        return bind
    return str(ipaddress.ip_address(bind))


def build_address(bind: str, port: int) -> address_pb2.Address:
    """Returns a socket address; without a port that of a Unix socket's path."""
    if port:
        return address_pb2.Address(socket_address=address_pb2.SocketAddress(address=bind, port_value=port))
    return address_pb2.Address(pipe=address_pb2.Pipe(path=bind.removeprefix(UNIX)))


def build_additional(binds: Iterable[str], port: int) -> list[listener_pb2.AdditionalAddress]:
    """Returns the further addresses of a listener."""
    return [listener_pb2.AdditionalAddress(address=build_address(bind, port)) for bind in binds if bind]


def listener_name(bind: str, port: int) -> str:
    """Returns the name of a listener, such as `0.0.0.0_80`."""
    return f"{bind}_{port}"
