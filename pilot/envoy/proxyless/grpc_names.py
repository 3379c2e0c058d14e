"""The names of resources that gRPC's xDS client asks for."""

from __future__ import annotations

from typing import NamedTuple

SERVER = "xds.istio.io/grpc/lds/inbound/"
"""What the listeners of servers begin with; the address that they listen on follows."""


class HostPort(NamedTuple):
    """A host, without brackets where it is an IPv6 address, and a port."""

    host: str
    port: int


def parse_host_port(text: str) -> HostPort | None:
    """Returns the parts of `host:port`; None for what is none."""
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if (
        not colon
        or not bare
        or not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535)
        or (":" in bare and bare == host)
    ):
        return None
    return HostPort(bare, int(port))


def parse_server(name: str) -> HostPort | None:
    """Returns the address that a server listens on, by the name of its listener; None for other names."""
    return parse_host_port(name.removeprefix(SERVER)) if name.startswith(SERVER) else None
