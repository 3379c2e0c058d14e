"""What an API server keeps: every object with its revision, and the events since the oldest that a watch can still ask for."""

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


class Stored(NamedTuple):
    """An object at one revision. `rest`: its JSON without apiVersion and kind, from the quotation mark of its first other field on."""

    plain: Plain
    rest: bytes
    revision: int


class Event(NamedTuple):
    """A change. `before` is None for an object that is new, `after` for one that is gone; `last` is what a watch tells of it."""

    revision: int
    name: Name
    before: Stored | None
    after: Stored | None
    last: Stored


class Collection:
    """The objects of one resource, and what happened to them. `compacted`: the revision up to which events are forgotten."""

    def __init__(self) -> None:
        self.objects: dict[Name, Stored] = {}
        self.events: list[Event] = []
        self.compacted = 0
        self.watchers: set[asyncio.Event] = set()


class Store:
    """All collections under one counter of revisions. `now` returns Unix seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._collections: defaultdict[tuple[str, str], Collection] = defaultdict(Collection)
        self._now = now
        self.revision = 100
        self.on_change: list[Callable[[tuple[str, str], Event], None]] = []

    def collection(self, resource: tuple[str, str]) -> Collection:
        return self._collections[resource]

    def get(self, resource: tuple[str, str], name: Name) -> Stored | None:
        return self._collections[resource].objects.get(name)

    def timestamp(self) -> str:
        return datetime.datetime.fromtimestamp(self._now(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def put(self, resource: tuple[str, str], plain: Mapping[str, Any]) -> Stored:
        """Store an object under a new revision; one that equals what is stored stays as it is."""
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
        self._happened(resource, Event(self.revision, name, before, after, after))
        return after

    def delete(self, resource: tuple[str, str], name: Name) -> Stored:
        """Take an object away; KeyError where there is none."""
        collection = self._collections[resource]
        before = collection.objects.pop(name)
        self.revision += 1
        metadata = {**before.plain["metadata"], "resourceVersion": str(self.revision)}
        last = _stored({**before.plain, "metadata": metadata}, self.revision)
        self._happened(resource, Event(self.revision, name, before, None, last))
        return last

    def compact(self) -> None:
        """Forget all events: a watch that has not been told of them, and a page of a list that began before them, is told 410 Gone."""
        for collection in self._collections.values():
            if collection.events:
                collection.compacted = collection.events[-1].revision
            collection.events.clear()
            _wake(collection)

    def _happened(self, resource: tuple[str, str], event: Event) -> None:
        collection = self._collections[resource]
        collection.events.append(event)
        for told in self.on_change:
            told(resource, event)
        _wake(collection)


def _wake(collection: Collection) -> None:
    for watcher in collection.watchers:
        watcher.set()


def _copy(plain: Mapping[str, Any]) -> Plain:
    """Return a deep copy of JSON data. Encoding and decoding it is several times faster than copy.deepcopy."""
    copy: Plain = msgspec.json.decode(encode(plain))
    return copy


def _stored(plain: Plain, revision: int) -> Stored:
    rest = encode({key: value for key, value in plain.items() if key not in ("apiVersion", "kind")})
    return Stored(plain, rest[1:], revision)


def _without_revision(plain: Mapping[str, Any]) -> Plain:
    return {
        **plain,
        "metadata": {
            k: v for k, v in plain["metadata"].items() if k not in ("resourceVersion", "uid", "creationTimestamp")
        },
    }
