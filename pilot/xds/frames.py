"""The bytes of responses are put together from resources that were serialized once.

Fields of a protobuf message may come in any order and repeated ones concatenate, so a response is its head, the frames of the
resources and its tail. DiscoveryResponse and DeltaDiscoveryResponse number the fields that both have alike:
version 1, resources 2, type URL 4, nonce 5; names of removed resources are field 6 of the latter.
https://www.envoyproxy.io/docs/envoy/latest/api-v3/service/discovery/v3/discovery.proto
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

from pilot.envoy.resource import Resource, length_delimited

Parts = tuple[bytes, ...]
RESOURCES_A_PIECE = 10_000
NAMES_A_PIECE = 5_000


class Payload:
    """Resources that are sent together; the parts of their frames are listed once for each protocol variant."""

    __slots__ = ("_delta", "_pieces", "_sotw", "resources", "size")

    def __init__(self, resources: Iterable[Resource]) -> None:
        self.resources = tuple(resources)
        self.size = sum(r.size for r in self.resources)
        self._delta: Parts | None = None
        self._sotw: Parts | None = None
        self._pieces: tuple[Payload, ...] = ()

    def __len__(self) -> int:
        return len(self.resources)

    def pieces(self) -> tuple[Payload, ...]:
        """Returns the resources as payloads that take a few milliseconds each."""
        if len(self.resources) <= RESOURCES_A_PIECE:
            return (self,)
        if not self._pieces:
            starts = range(0, len(self.resources), RESOURCES_A_PIECE)
            self._pieces = tuple(Payload(self.resources[start : start + RESOURCES_A_PIECE]) for start in starts)
        return self._pieces

    @property
    def delta(self) -> Parts:
        """Returns the parts for a DeltaDiscoveryResponse."""
        if self._delta is None:
            self._delta = tuple(part for r in self.resources for part in (r.head, *r.pieces))
        return self._delta

    @property
    def sotw(self) -> Parts:
        """Returns the parts for a DiscoveryResponse."""
        if self._sotw is None:
            self._sotw = tuple(part for r in self.resources for part in r.pieces)
        return self._sotw


@functools.lru_cache(256)
def head(version: str, type_url: str) -> bytes:
    """Returns the bytes that all responses of a type under one version start with."""
    return length_delimited(1, version.encode()) + length_delimited(4, type_url.encode())


def tail(nonce: str) -> bytes:
    """Returns the bytes that a response ends with, but for the names of removed resources."""
    return length_delimited(5, nonce.encode())


def removals(names: Sequence[str]) -> Iterator[bytes]:
    """Yields the names of removed resources, in pieces that take a few milliseconds each."""
    for start in range(0, len(names), NAMES_A_PIECE):
        yield b"".join(length_delimited(6, name.encode()) for name in names[start : start + NAMES_A_PIECE])
