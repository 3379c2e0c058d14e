"""The addresses of configuration sources in the `configSources` field of the mesh config."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from pilot.lib.addresses import is_ip

Scheme = Literal["fs", "xds", "k8s"]
_HOST = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII | re.IGNORECASE)


class SourceAddress(NamedTuple):
    """The address of a source.

    `place` is the path of a folder for fs, and the host:port of a server for xds. It is "" for k8s, which is the API
    server of the local cluster.
    """

    scheme: Scheme
    place: str


class AddressFault(ValueError):
    """An invalid address. `unknown` is true if the address may be valid in istiod but is not supported here."""

    def __init__(self, message: str, unknown: bool = False) -> None:
        super().__init__(message)
        self.unknown = unknown


def parse_source_address(address: str) -> SourceAddress:
    """Parse the address of a source. Raise AddressFault if the address is invalid or not supported."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        raise AddressFault(f"{address!r}: expected fs:///folder, xds://host:port or k8s://")
    if scheme == "fs":
        if not rest.startswith("/"):
            raise AddressFault(f"{address!r}: expected an absolute path, as in fs:///folder")
        return SourceAddress("fs", rest)
    if scheme == "xds":
        return SourceAddress("xds", _server(address, rest.partition("/")[0]))
    if scheme == "k8s":
        if rest.strip("/"):
            raise AddressFault(
                f"{address!r}: only k8s://, the API server of the local cluster, is supported", unknown=True
            )
        return SourceAddress("k8s", "")
    raise AddressFault(f"{address!r}: unknown scheme {scheme!r}", unknown=True)


def _server(address: str, place: str) -> str:
    host, _, port = place.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (is_ip(bare) if bare != host else is_ip(host) or _HOST.fullmatch(host)) or (":" in host and bare == host):
        raise AddressFault(f"{address!r}: expected a host, as in xds://host:port")
    if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535):
        raise AddressFault(f"{address!r}: expected a port between 1 and 65535, as in xds://host:port")
    return place
