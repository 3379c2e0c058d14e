"""Responses that proxies rejected (NACKs)."""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.problem import ObjectRef


class NackKey(NamedTuple):
    """A proxy, by the key of its row, and a resource type."""

    proxy: str
    type_url: str


class Nack(NamedTuple):
    """A proxy's rejection of its last response of a type.

    `objects` are the user's objects from which the rejected resources are built, as far as they can be determined.
    """

    proxy: str
    type_name: str
    message: str
    objects: tuple[ObjectRef, ...] = ()
