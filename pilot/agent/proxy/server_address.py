"""Addresses of servers in the settings of an agent."""

from __future__ import annotations


def split_address(address: str) -> tuple[str, int]:
    """Return the host and port of "host:port". An IPv6 host may be in brackets. Raises ValueError."""
    scheme, separator, bare = address.partition("://")
    if separator and scheme:
        raise ValueError(f"{address!r} has a scheme; write {bare.rstrip('/') or 'HOST:PORT'}")
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        hint = f"; append the port, as in {address}:15012" if ":" not in address and not address.isdecimal() else ""
        raise ValueError(f"{address!r} is not host:port{hint}")
    return host.strip("[]"), int(port)


def parse_address(source: str, address: str) -> tuple[str, int]:
    """Return the host and port of the address in a setting. Raises ValueError with the name of the setting."""
    try:
        return split_address(address)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
