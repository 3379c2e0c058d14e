"""IP addresses as text."""
from __future__ import annotations

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


def _parses(family: socket.AddressFamily, text: str) -> bool:
    try:
        socket.inet_pton(family, text)
    except (OSError, ValueError):
        return False
    return True
