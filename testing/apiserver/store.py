"""The object store of the API server: every object with its revision, and the events that watches can still request."""

from __future__ import annotations

import asyncio
import datetime
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

Plain = dict[str, Any]
Name = tuple[str, str]
"""Namespace and name."""
encode = msgspec.json.Encoder().encode


class StoredObject(NamedTuple):
    """An object at one revision.

    `rest` is its JSON without apiVersion and kind, starting at the quotation mark of the first remaining key.
    """

    plain: Plain
    rest: bytes
    revision: int


class Event(NamedTuple):
    """A change.

    `before` is None for a new object and `after` for a deleted one; `last` is the object of the watch event.
    """

    revision: int
    name: Name
    before: StoredObject | None
    after: StoredObject | None
    last: StoredObject


class Collection:
    """The objects of one resource and their events. Events up to the revision `compacted` are forgotten."""

    def __init__(self) -> None:
        self.objects: dict[Name, StoredObject] = {}
        self.events: list[Event] = []
        self.compacted = 0
        self.watchers: set[asyncio.Event] = set()
        self._order: list[Name] | None = None

    def in_order(self) -> list[StoredObject]:
        """Return the objects, sorted by namespace and name."""
        if self._order is None:
            self._order = sorted(self.objects)
        return [self.objects[name] for name in self._order]

    def record(self, event: Event) -> None:
        """Append an event."""
        self.events.append(event)
        if event.before is None or event.after is None:
            self._order = None


class Store:
    """All collections, with one revision counter. `now` returns Unix seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._collections: defaultdict[tuple[str, str], Collection] = defaultdict(Collection)
        self._now = now
        self.revision = 100
        self.on_change: list[Callable[[tuple[str, str], Event], None]] = []

    def collection(self, resource: tuple[str, str]) -> Collection:
        return self._collections[resource]

    def get(self, resource: tuple[str, str], name: Name) -> StoredObject | None:
        return self._collections[resource].objects.get(name)

    def timestamp(self) -> str:
        return datetime.datetime.fromtimestamp(self._now(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def put(self, resource: tuple[str, str], plain: Mapping[str, Any]) -> StoredObject:
        """Store an object under a new revision. An unchanged object keeps its revision."""
        collection = self._collections[resource]
        metadata = plain["metadata"]
        name = metadata.get("namespace", ""), metadata["name"]
        before = collection.objects.get(name)
        if before is not None and _without_revision(before.plain) == _without_revision(plain):
            return before
        self.revision += 1
        identity = (
            {"uid": f"00000000-0000-4000-8000-{self.revision:012}", "creationTimestamp": self.timestamp()}
            if before is None
            else {}
        )
        stored_metadata = {**identity, **metadata, "resourceVersion": str(self.revision)}
        after = _stored({**_copy(plain), "metadata": _copy(stored_metadata)}, self.revision)
        collection.objects[name] = after
        self._record(resource, Event(self.revision, name, before, after, after))
        return after

    def delete(self, resource: tuple[str, str], name: Name) -> StoredObject:
        """Delete an object. Raise KeyError if it does not exist."""
        collection = self._collections[resource]
        before = collection.objects.pop(name)
        self.revision += 1
        metadata = {**before.plain["metadata"], "resourceVersion": str(self.revision)}
        last = _stored({**before.plain, "metadata": metadata}, self.revision)
        self._record(resource, Event(self.revision, name, before, None, last))
        return last

    def compact(self) -> None:
        """Forget all events. Watches that have not sent them, and pages of older lists, get 410 Gone."""
        for collection in self._collections.values():
            if collection.events:
                collection.compacted = collection.events[-1].revision
            collection.events.clear()
            _wake(collection)

    def _record(self, resource: tuple[str, str], event: Event) -> None:
        collection = self._collections[resource]
        collection.record(event)
        for callback in self.on_change:
            callback(resource, event)
        _wake(collection)


def _wake(collection: Collection) -> None:
    for watcher in collection.watchers:
        watcher.set()


def _copy(plain: Mapping[str, Any]) -> Plain:
    """Return a deep copy of JSON data. Encoding and decoding it is several times faster than copy.deepcopy."""
    copy: Plain = msgspec.json.decode(encode(plain))
    return copy


def _stored(plain: Plain, revision: int) -> StoredObject:
    rest = encode({key: value for key, value in plain.items() if key not in ("apiVersion", "kind")})
    return StoredObject(plain, rest[1:], revision)


def _without_revision(plain: Mapping[str, Any]) -> Plain:
    return {
        **plain,
        "metadata": {
            k: v for k, v in plain["metadata"].items() if k not in ("resourceVersion", "uid", "creationTimestamp")
        },
    }
