"""The envelopes of list and watch responses. The objects inside them are not decoded."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import msgspec

from pilot.kube.deep_json import REPLACEMENT

Item = TypeVar("Item")
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class _ListMetadata(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct, Generic[Item], frozen=True):
    """A list, or one page of a list."""

    metadata: _ListMetadata = _ListMetadata()
    items: tuple[Item, ...] | None = None


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch response."""

    type: str
    object: msgspec.Raw


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class ObjectHead(msgspec.Struct, frozen=True):
    """The metadata of any object."""

    metadata: _Metadata = _Metadata()


class NamespacedName(NamedTuple):
    """The namespace and name of an object. The namespace of cluster-scoped objects is ""."""

    namespace: str
    name: str


class ObjectChange(NamedTuple):
    """A change to an object. `raw` is the object's current JSON, or None if it was deleted."""

    name: NamespacedName
    raw: bytes | None

    @property
    def is_too_deep(self) -> bool:
        """Return whether parts of the JSON have been replaced because they are nested too deeply."""
        return self.raw is not None and REPLACEMENT in self.raw


read_page = msgspec.json.Decoder(ListPage[msgspec.Raw]).decode
read_heads = msgspec.json.Decoder(ListPage[ObjectHead]).decode
read_event = msgspec.json.Decoder(WatchEvent).decode
read_head = msgspec.json.Decoder(ObjectHead).decode


def is_newer(version: str, than: str) -> bool:
    """Return whether one resource version is newer than another.

    Versions are opaque by contract, but all known servers use numbers. If a version is not a number, any different
    version is considered newer.
    """
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than
