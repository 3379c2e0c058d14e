"""IP addresses as text."""

from __future__ import annotations

import ipaddress
import socket


def is_ipv4(text: str) -> bool:
    """Returns whether a text is four decimal numbers with dots between."""
    return _parses(socket.AF_INET, text)


def is_ipv6(text: str) -> bool:
    """Returns whether a text is an IPv6 address, without brackets and without a zone."""
    return ":" in text and _parses(socket.AF_INET6, text)


def is_ip(text: str) -> bool:
    """Returns whether a text is an address of either family."""
    return is_ipv4(text) or is_ipv6(text)


def joined(host: str, port: int) -> str:
    """Returns "host:port", an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def find_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Returns the address in "host:port", IPv4 also where it is written as IPv6; None where the host is no address."""
    host = text.rpartition(":")[0].removeprefix("[").removesuffix("]").partition("%")[0]
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, ipaddress.IPv6Address) else found


def _parses(family: socket.AddressFamily, text: str) -> bool:
    try:
        socket.inet_pton(family, text)
    except (OSError, ValueError):
        return False
    return True
