"""IP addresses as strings."""

from __future__ import annotations

import functools
import ipaddress
import socket


def is_ipv4(text: str) -> bool:
    """Return whether a string is an IPv4 address in dotted decimal notation."""
    return text[-1:].isdigit() and _parses(socket.AF_INET, text)


def is_ipv6(text: str) -> bool:
    """Return whether a string is an IPv6 address with neither brackets nor a zone."""
    return ":" in text and _parses(socket.AF_INET6, text)


def is_ip(text: str) -> bool:
    """Return whether a string is an IPv4 or IPv6 address."""
    return is_ipv4(text) or is_ipv6(text)


def joined(host: str, port: int) -> str:
    """Return "host:port". An IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@functools.lru_cache(1024)
def find_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address in "host:port", or None if the host is not an address. An IPv4-mapped address becomes IPv4."""
    host = text.rpartition(":")[0].removeprefix("[").removesuffix("]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, ipaddress.IPv6Address) else address


def _parses(family: socket.AddressFamily, text: str) -> bool:
    try:
        socket.inet_pton(family, text)
    except (OSError, ValueError):
        return False
    return True
