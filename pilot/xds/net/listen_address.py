"""Addresses of listeners and peers."""

from __future__ import annotations

from typing import Any, NamedTuple

from pilot.lib.flags import FlagError


class Address(NamedTuple):
    """An address to listen on. `host` is "" for all interfaces. `flag` is the flag that sets it, or ""."""

    host: str
    port: int
    flag: str = ""

    def __str__(self) -> str:
        """Return the address in gRPC's format."""
        host = self.host or "::"
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def overlaps(self, other: Address) -> bool:
        """Return whether only one of two sockets can listen, because their addresses have the same port."""
        hosts = {_LOOPBACK.get(address.host, address.host) for address in (self, other)}
        return self.port == other.port != 0 and (len(hosts) == 1 or not _ALL.isdisjoint(hosts))


_ALL = frozenset({"", "0.0.0.0", "::"})
_LOOPBACK = {"localhost": "127.0.0.1"}


def format_peer(peer: Any) -> str:
    """Return the address of a socket's peer in gRPC's format, without the address family."""
    bare = format_host(peer)
    return f"[{bare}]:{peer[1]}" if ":" in bare else f"{bare}:{peer[1]}"


def format_host(peer: Any) -> str:
    """Return the address of a socket's peer without its port."""
    host: str = peer[0]
    return host.removeprefix("::ffff:")


def parse_address(text: str, flag: str) -> Address | None:
    """Return the address in "host:port", "[v6]:port" or ":port", or None for "". Raise FlagError if the text is
    invalid."""
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535 or (":" in host and bare == host):
        if "://" in text:
            hint = f"; write {text.partition('://')[2].rstrip('/')}"
        elif text.isdecimal():
            hint = f"; did you mean :{text}?"
        elif port.isdecimal() and int(port[:6]) > 65535:
            hint = "; ports end at 65535"
        elif ":" in host and port.isdecimal():
            hint = f"; did you mean [{host}]:{port}?"
        elif not colon:
            hint = f"; append the port, as in {text}:15010"
        else:
            hint = ""
        raise FlagError(f"invalid argument for --{flag}: {text!r} is not host:port or :port{hint}")
    return Address(bare, int(port), flag)
