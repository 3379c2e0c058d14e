"""Inspects and resets the gRPC server's TCP connections from outside the server.

gRPC's asyncio server does not report the progress of a write. It can end a call only after the current write, and only
with a status. If a peer does not read, the message and the call would otherwise stay in memory indefinitely.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import struct
from collections.abc import Iterator

from pilot.xds.net.listen_address import format_peer

_OPEN_FILES = "/dev/fd"
_RESET = struct.pack("ii", 1, 0)
_BYTES_ACKED = struct.Struct("120xQ")  # of struct tcp_info, linux/tcp.h
_SCAN_INTERVAL = 0.1
"""Minimum number of seconds between scans. A scan of a thousand files takes 10 ms."""


class TcpConnections:
    """The TCP connections of this process, identified by the peer's address as "host:port" in gRPC's format."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._scanned_at = float("-inf")
        self._to_reset: set[str] = set()

    def acked_bytes(self, address: str) -> int | None:
        """Return the number of bytes that a peer has acknowledged since it connected.

        Return None if there is no such connection, or if the system does not report the number.
        """
        with contextlib.suppress(OSError, AttributeError, struct.error), self._open(address) as connection:
            count: int = _BYTES_ACKED.unpack_from(
                connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.size)
            )[0]
            return count
        return None

    def reset_soon(self, address: str) -> None:
        """Reset the connection of a peer in the next iteration of the event loop. Unsent data is lost."""
        if not self._to_reset:
            asyncio.get_running_loop().call_soon(self._reset)
        self._to_reset.add(address)

    def _reset(self) -> None:
        addresses, self._to_reset = self._to_reset, set()
        self._scanned_at = float("-inf")
        for address in addresses:
            with contextlib.suppress(OSError), self._open(address) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                connection.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def _open(self, address: str) -> Iterator[socket.socket]:
        """Yield a duplicate of a peer's connection, and close it afterwards. Raise OSError if there is no such
        connection."""
        file = self._find(address)
        if file is None:
            raise ConnectionError(address)
        with _duplicate(file) as connection:
            yield connection

    def _find(self, address: str) -> int | None:
        file = self._files.pop(address, None)
        if file is not None:
            with contextlib.suppress(OSError), _duplicate(file) as connection:
                if format_peer(connection.getpeername()) == address:
                    self._files[address] = file
                    return file
        self._scan()
        return self._files.get(address)

    def _scan(self) -> None:
        """Scan all open files for connections."""
        now = asyncio.get_running_loop().time()
        if now < self._scanned_at + _SCAN_INTERVAL:
            return
        self._scanned_at, self._files = now, {}
        for name in os.listdir(_OPEN_FILES):
            with contextlib.suppress(OSError), _duplicate(int(name)) as connection:
                self._files[format_peer(connection.getpeername())] = int(name)


@contextlib.contextmanager
def _duplicate(file: int) -> Iterator[socket.socket]:
    """Yield a duplicate of the TCP connection with a file descriptor. Raise OSError if the file is not a TCP
    connection."""
    if not stat.S_ISSOCK(os.fstat(file).st_mode):
        raise ConnectionError
    with socket.socket(fileno=os.dup(file)) as connection:
        if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
            raise ConnectionError
        yield connection
