"""The TCP connections that gRPC holds are looked at from outside: what they have delivered, and their end.

gRPC's asyncio server does not tell how far a write is. It can end a call only behind what is being written on it, and without a status not
at all: to a peer that does not read, the message and the call would stay for as long as the peer likes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import struct
from collections.abc import Iterator

from pilot.xds.address import shown_address

_OPEN_FILES = "/dev/fd"
_RESET = struct.pack("ii", 1, 0)
_BYTES_ACKED = struct.Struct("120xQ")  # of struct tcp_info, linux/tcp.h
_SCAN_SECONDS = 0.1


class Sockets:
    """This process's TCP connections by their peers' addresses, "host:port" as gRPC writes them."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._scanned = float("-inf")
        self._to_reset: set[str] = set()

    def delivered(self, address: str) -> int | None:
        """Returns the bytes that a peer has acknowledged since it connected; None if there is no such connection, or the system does not tell."""
        with contextlib.suppress(OSError, AttributeError, struct.error), self._open(address) as found:
            count: int = _BYTES_ACKED.unpack_from(
                found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.size)
            )[0]
            return count
        return None

    def reset_soon(self, address: str) -> None:
        """Resets the connection of a peer; what is unsent is lost."""
        if not self._to_reset:
            asyncio.get_running_loop().call_soon(self._reset)
        self._to_reset.add(address)

    def _reset(self) -> None:
        addresses, self._to_reset = self._to_reset, set()
        self._scanned = float("-inf")
        for address in addresses:
            with contextlib.suppress(OSError), self._open(address) as found:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                found.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def _open(self, address: str) -> Iterator[socket.socket]:
        """Yields the connection of a peer, as a copy that is closed afterwards, and raises OSError if there is none."""
        file = self._find(address)
        if file is None:
            raise ConnectionError(address)
        with _copy(file) as found:
            yield found

    def _find(self, address: str) -> int | None:
        file = self._files.pop(address, None)
        if file is not None:
            with contextlib.suppress(OSError), _copy(file) as found:
                if shown_address(found.getpeername()) == address:
                    self._files[address] = file
                    return file
        self._scan()
        return self._files.get(address)

    def _scan(self) -> None:
        """Looks at all open files, not more often than needs be: a thousand take 10 ms."""
        now = asyncio.get_running_loop().time()
        if now < self._scanned + _SCAN_SECONDS:
            return
        self._scanned, self._files = now, {}
        for name in os.listdir(_OPEN_FILES):
            with contextlib.suppress(OSError), _copy(int(name)) as found:
                self._files[shown_address(found.getpeername())] = int(name)


@contextlib.contextmanager
def _copy(file: int) -> Iterator[socket.socket]:
    """Yields the TCP connection of a file descriptor, and raises OSError if it is none."""
    if not stat.S_ISSOCK(os.fstat(file).st_mode):
        raise ConnectionError
    with socket.socket(fileno=os.dup(file)) as found:
        if found.family not in (socket.AF_INET, socket.AF_INET6) or found.type != socket.SOCK_STREAM:
            raise ConnectionError
        yield found
