"""Checks the Host header of HTTP requests to ports that trust callers on this machine."""

from __future__ import annotations

import ipaddress
import socket


def is_own_name(host: str) -> bool:
    """Return whether a Host header is empty, an IP address, localhost or this machine's name. A port is ignored.

    A browser that shows a page of another host sends that host's name, even if the name resolves to this machine (DNS
    rebinding).
    """
    name = host[1:].partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host
    if name.lower() in ("", "localhost", socket.gethostname().lower()):
        return True
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
