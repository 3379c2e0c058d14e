"""Assembles responses from resources that are serialized only once.

The fields of a protobuf message may be encoded in any order, and the encodings of a repeated field may be concatenated.
A response therefore consists of a head, the encoded resources and a tail. DiscoveryResponse and DeltaDiscoveryResponse
use the same numbers for their common fields: version 1, resources 2, type URL 4, nonce 5. In DeltaDiscoveryResponse,
field 6 has the names of removed resources.
https://www.envoyproxy.io/docs/envoy/latest/api-v3/service/discovery/v3/discovery.proto
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from pilot.envoy.resource import Resource, length_delimited
from pilot.lib.xds_types import XdsType

Parts = tuple[bytes, ...]
RESOURCES_PER_PIECE = 2_500
NAMES_PER_PIECE = 5_000
PLACEHOLDERS_PER_PIECE = 500
"""Maximum number of placeholders in one piece, so that the piece is encoded within a few milliseconds."""


class Payload:
    """Resources that are sent together. For each protocol variant, the list of encoded parts is created only once."""

    __slots__ = ("_delta", "_pieces", "_sotw", "resources", "size")

    def __init__(self, resources: Iterable[Resource]) -> None:
        self.resources = tuple(resources)
        self.size = sum(map(attrgetter("size"), self.resources))
        self._delta: Parts | None = None
        self._sotw: Parts | None = None
        self._pieces: tuple[Payload, ...] = ()

    def __len__(self) -> int:
        return len(self.resources)

    @property
    def names(self) -> Iterator[str]:
        return map(attrgetter("name"), self.resources)

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
    """Empty resources for requested names that do not exist. They are created during encoding, so `size` is an
    estimate."""

    __slots__ = ("_type", "names", "size")

    def __init__(self, xds_type: XdsType, names: Sequence[str]) -> None:
        self._type, self.names = xds_type, names
        self.size = sum(map(len, names)) + (len(xds_type.url) + 10) * len(names)

    def __len__(self) -> int:
        return len(self.names)

    def pieces(self) -> Iterator[Payload]:
        """Yield the placeholders as payloads of limited size."""
        for start in range(0, len(self.names), PLACEHOLDERS_PER_PIECE):
            names = sorted(self.names[start : start + PLACEHOLDERS_PER_PIECE])
            yield Payload(placeholder(self._type, name) for name in names)


def placeholder(xds_type: XdsType, name: str) -> Resource:
    """Return a resource whose message has only a name. The name is field 1 in all types that are requested by name."""
    return Resource(name, xds_type.url, length_delimited(1, name.encode()))


@functools.lru_cache(256)
def head(version: str, type_url: str) -> bytes:
    """Return the bytes at the beginning of all responses of a type and version."""
    return length_delimited(1, version.encode()) + length_delimited(4, type_url.encode())


def tail(nonce: str) -> bytes:
    """Return the bytes at the end of a response, which follow the names of removed resources."""
    return length_delimited(5, nonce.encode())


def removals(names: Sequence[str]) -> Iterator[bytes]:
    """Yield the encoded names of removed resources, in pieces of limited size."""
    for start in range(0, len(names), NAMES_PER_PIECE):
        yield b"".join(length_delimited(6, name.encode()) for name in names[start : start + NAMES_PER_PIECE])
