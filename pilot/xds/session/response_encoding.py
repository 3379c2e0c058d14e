"""Assembles responses from resources that were serialized once.

Fields of a protobuf message may come in any order, and repeated fields concatenate. A response is therefore a head, the
encoded resources and a tail. DiscoveryResponse and DeltaDiscoveryResponse number their common fields alike: version 1,
resources 2, type URL 4, nonce 5. Field 6 of the latter has the names of removed resources.
https://www.envoyproxy.io/docs/envoy/latest/api-v3/service/discovery/v3/discovery.proto
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

from pilot.envoy.resource import Resource, length_delimited
from pilot.lib.xds_types import XdsType

Parts = tuple[bytes, ...]
RESOURCES_PER_PIECE = 10_000
NAMES_PER_PIECE = 5_000
PLACEHOLDERS_PER_PIECE = 500
"""A piece is encoded within a few milliseconds."""


class Payload:
    """Resources that are sent together. Their encoded parts are listed once for each protocol variant."""

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
        """Return the resources as payloads of limited size."""
        if len(self.resources) <= RESOURCES_PER_PIECE:
            return (self,)
        if not self._pieces:
            starts = range(0, len(self.resources), RESOURCES_PER_PIECE)
            self._pieces = tuple(Payload(self.resources[start : start + RESOURCES_PER_PIECE]) for start in starts)
        return self._pieces

    @property
    def delta(self) -> Parts:
        """Return the parts for a DeltaDiscoveryResponse."""
        if self._delta is None:
            self._delta = tuple(part for r in self.resources for part in (r.head, *r.pieces))
        return self._delta

    @property
    def sotw(self) -> Parts:
        """Return the parts for a DiscoveryResponse."""
        if self._sotw is None:
            self._sotw = tuple(part for r in self.resources for part in r.pieces)
        return self._sotw


class Placeholders:
    """Empty resources for requested names that do not exist, created on encoding. `size` is approximate."""

    __slots__ = ("_names", "_type", "size")

    def __init__(self, xds_type: XdsType, names: Sequence[str]) -> None:
        self._type, self._names = xds_type, names
        self.size = sum(map(len, names)) + (len(xds_type.url) + 10) * len(names)

    def __len__(self) -> int:
        return len(self._names)

    def pieces(self) -> Iterator[Payload]:
        """Yield the placeholders as payloads of limited size."""
        for start in range(0, len(self._names), PLACEHOLDERS_PER_PIECE):
            names = sorted(self._names[start : start + PLACEHOLDERS_PER_PIECE])
            yield Payload(placeholder(self._type, name) for name in names)


def placeholder(xds_type: XdsType, name: str) -> Resource:
    """Return a message with only a name, which is field 1 of all types that are requested by name."""
    return Resource(name, xds_type.url, length_delimited(1, name.encode()))


@functools.lru_cache(256)
def head(version: str, type_url: str) -> bytes:
    """Return the bytes that all responses of a type and version start with."""
    return length_delimited(1, version.encode()) + length_delimited(4, type_url.encode())


def tail(nonce: str) -> bytes:
    """Return the bytes that a response ends with, after the names of removed resources."""
    return length_delimited(5, nonce.encode())


def removals(names: Sequence[str]) -> Iterator[bytes]:
    """Yield the encoded names of removed resources in pieces of limited size."""
    for start in range(0, len(names), NAMES_PER_PIECE):
        yield b"".join(length_delimited(6, name.encode()) for name in names[start : start + NAMES_PER_PIECE])
