"""Listening sockets for an address."""

from __future__ import annotations

import asyncio
import errno
import socket

from pilot.xds.net.listen_address import Address

BACKLOG = 4096
"""Maximum number of connections that wait to be accepted. Additional connections are delayed by at least a second."""


async def listening_sockets(address: Address) -> list[socket.socket]:
    """Return non-blocking listening sockets. If the address has no host, they accept both IPv4 and IPv6.

    Raise OSError if the address is unavailable.
    """
    if not address.host:
        return [_nonblocking(_listen_on_all_interfaces(address.port))]
    infos = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    listeners: list[socket.socket] = []
    try:
        for family, _, _, _, where in dict.fromkeys(infos):
            port = listeners[0].getsockname()[1] if listeners else where[1]
            listeners.append(
                _nonblocking(socket.create_server((where[0], port, *where[2:]), family=family, backlog=BACKLOG))
            )
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _listen_on_all_interfaces(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
    return socket.create_server(("0.0.0.0", port), backlog=BACKLOG)


def _nonblocking(listener: socket.socket) -> socket.socket:
    listener.setblocking(False)
    return listener
