"""Peers of the TLS port whose handshake has not started.

A peer that has sent nothing costs a socket. A handshake also needs about 50 kB of memory, and milliseconds of the event
loop.
"""

from __future__ import annotations

import socket
from collections import OrderedDict
from typing import Any, NamedTuple


class Peer(NamedTuple):
    """An accepted connection. `name` is the address of the peer, and `since` is the time at which it was accepted."""

    connection: socket.socket
    name: Any
    since: float

    @property
    def host(self) -> str:
        host: str = self.name[0]
        return host


class WaitingPeers:
    """Accepted connections by source address, and those that have sent data, in the order of their handshakes."""

    def __init__(self) -> None:
        self._by_host: dict[str, dict[Peer, None]] = {}  # oldest first
        self._ready: OrderedDict[str, dict[Peer, None]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def has_ready(self) -> bool:
        """Return whether a peer that has sent data waits for its handshake."""
        return bool(self._ready)

    def add(self, peer: Peer) -> None:
        self._by_host.setdefault(peer.host, {})[peer] = None
        self._size += 1

    def mark_ready(self, peer: Peer) -> None:
        """Record that a peer has sent data."""
        self._ready.setdefault(peer.host, {})[peer] = None

    def take_ready(self) -> Peer | None:
        """Remove and return the next peer that has sent data, or None if there is none. Source addresses take turns."""
        if not self._ready:
            return None
        host, peers = next(iter(self._ready.items()))
        self._ready.move_to_end(host)
        peer = next(iter(peers))
        self.remove(peer)
        return peer

    def take_oldest_of_busiest(self) -> Peer:
        """Remove and return the oldest peer of the source address with the most peers."""
        busiest = max(self._by_host.values(), key=len)
        peer = next(iter(busiest))
        self.remove(peer)
        return peer

    def take_since(self, limit: float) -> list[Peer]:
        """Remove and return the peers that were accepted before a time."""
        peers = [peer for peers in self._by_host.values() for peer in peers if peer.since <= limit]
        for peer in peers:
            self.remove(peer)
        return peers

    def remove(self, peer: Peer) -> None:
        """Remove a peer that waits."""
        for by_host in (self._by_host, self._ready):
            peers = by_host.get(peer.host, {})
            peers.pop(peer, None)
            if not peers:
                by_host.pop(peer.host, None)
        self._size -= 1
