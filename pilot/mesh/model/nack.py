"""Rejections of responses by proxies (NACKs)."""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.problem import ObjectRef


class NackKey(NamedTuple):
    """The key of a proxy's row, and a resource type."""

    proxy: str
    type_url: str


class Nack(NamedTuple):
    """The rejection of a proxy's last response of a type.

    `objects` are the user's objects from which the rejected resources were built, as far as these objects are known.
    """

    proxy: str
    type_name: str
    message: str
    objects: tuple[ObjectRef, ...] = ()
