"""What a proxy refused: one response, and the objects that it follows from."""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.problem import ObjectRef


class NackKey(NamedTuple):
    """A proxy, by the key of its row, and a type of resources."""

    proxy: str
    type_url: str


class Nack(NamedTuple):
    """What a proxy said when it refused its last response of a type. `objects`: those that users wrote and what was refused follows from, as
    far as that can be told."""

    proxy: str
    type_name: str
    message: str
    objects: tuple[ObjectRef, ...] = ()
