"""Peers that send HTTP without TLS to a TLS port."""

from __future__ import annotations

import contextlib
import logging
import re
import socket

_HTTP = re.compile(rb"(GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT|PRI) ")
"""The start of a request in HTTP/1.1, or of a connection in HTTP/2, such as that of a gRPC client."""
_RESPONSE = (
    b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This port accepts TLS only: use https, or for gRPC a channel with TLS.\n"
)


def refuse_plaintext(connection: socket.socket, host: str, log: logging.Logger) -> bool:
    """Answer a peer that has sent HTTP, and log this. Return whether the peer did so. The caller closes the connection.

    The peer must have sent data. The line in the log is the same for all connections of a host, so its rate is limited.
    """
    with contextlib.suppress(OSError):  # the peer may already have disconnected
        if (start := _HTTP.match(connection.recv(8, socket.MSG_PEEK))) is not None:
            port = connection.getsockname()[1]
            fix = "configure TLS, or use port 15010 (--grpcAddr)" if start[1] == b"PRI" else "use https"
            log.warning("a client at %s speaks HTTP without TLS to the TLS port %d: %s", host, port, fix)
            connection.send(_RESPONSE)
            connection.recv(64 * 1024)  # unread data would reset the connection before the client reads the response
            return True
    return False
