"""Names of the resources that gRPC's xDS client requests."""

from __future__ import annotations

from typing import NamedTuple

SERVER = "xds.istio.io/grpc/lds/inbound/"
"""The prefix of a server listener's name. It is followed by the address that the server listens on."""


class HostPort(NamedTuple):
    """A host and a port. IPv6 addresses have no brackets."""

    host: str
    port: int


def parse_host_port(text: str) -> HostPort | None:
    """Return the parts of `host:port`, or None if the text has another form."""
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
    """Return the address in the name of a server listener, or None if the name has another form."""
    return parse_host_port(name.removeprefix(SERVER)) if name.startswith(SERVER) else None
