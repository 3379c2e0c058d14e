"""Stand-ins are sent for names that there is no resource for, where a type has an answer for those."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pilot.envoy.resource import Resource, length_delimited
from pilot.lib.xds_types import XdsType
from pilot.xds.frames import Payload

NAMES_A_PIECE = 500


class StandIns:
    """The stand-ins of some names, made when they are encoded. `size` is about their bytes."""

    __slots__ = ("_names", "_type", "size")

    def __init__(self, of: XdsType, names: Sequence[str]) -> None:
        self._type, self._names = of, names
        self.size = sum(map(len, names)) + (len(of.url) + 10) * len(names)

    def __len__(self) -> int:
        return len(self._names)

    def pieces(self) -> Iterator[Payload]:
        """Yields the stand-ins in payloads that take a few milliseconds each."""
        for start in range(0, len(self._names), NAMES_A_PIECE):
            yield Payload(stand_in(self._type, name) for name in sorted(self._names[start : start + NAMES_A_PIECE]))


def stand_in(of: XdsType, name: str) -> Resource:
    """Returns a message that has nothing but its name, which is field 1 of all types that are asked for by name."""
    return Resource(name, of.url, length_delimited(1, name.encode()))
