"""Listening addresses as flags give them."""
from __future__ import annotations

from typing import NamedTuple

from pilot.lib.flags import FlagError


class Address(NamedTuple):
    """`host` is "" for every interface."""

    host: str
    port: int

    def __str__(self) -> str:
        """As gRPC takes it."""
        host = self.host or "::"
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def parse_address(text: str, flag: str) -> Address | None:
    """Of "host:port", "[v6]:port" or ":port"; None where it is empty. FlagError, which names the flag, where it is neither."""
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535 or (":" in host and bare == host):
        raise FlagError(f"invalid argument for --{flag}: {text!r} is not host:port or :port")
    return Address(bare, int(port))
