"""Flags give listening addresses as text, which is parsed here."""

from __future__ import annotations

from typing import Any, NamedTuple

from pilot.lib.flags import FlagError


class Address(NamedTuple):
    """An address to listen on; `host` is "" for every interface."""

    host: str
    port: int

    def __str__(self) -> str:
        """Returns the address as gRPC takes it."""
        host = self.host or "::"
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def shown_address(peer: Any) -> str:
    """Returns the address of a socket's peer as gRPC writes it, without the family."""
    host, port = peer[:2]
    bare = host.removeprefix("::ffff:")
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def parse_address(text: str, flag: str) -> Address | None:
    """Returns the address that "host:port", "[v6]:port" or ":port" says, None for an empty text. Any other text raises FlagError, which names
    the flag."""
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535 or (":" in host and bare == host):
        raise FlagError(f"invalid argument for --{flag}: {text!r} is not host:port or :port")
    return Address(bare, int(port))
