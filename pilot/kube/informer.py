"""Follows one collection: all that it holds at first, and each change from then on, whatever happens to the connection.

Who receives it is told of changes alone. What has not changed since the last list is not told again, and what a list leaves out is told
as gone only when the list is complete; so losing a watch, or the server, for any time changes nothing by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from pilot.kube.client import JSON, ApiClient
from pilot.kube.errors import ApiError, Expired, KubeError, Status, Unreachable, error_from_status
from pilot.kube.wire import INITIAL_EVENTS_END, NamespacedName, ObjectChange, is_newer, read_event, read_head, read_page
from pilot.lib.backoff import Backoff, RetryDelays
from pilot.lib.log import scope

_log = scope("kube")
PAGE_SIZE = 500
DELETED_CAPACITY = 1_000
"""Objects that are gone whose version is remembered, so that an older event of them that comes late is none."""
METADATA_ONLY = f"{JSON};as=PartialObjectMetadata%s;g=meta.k8s.io;v=v1"
"""What is accepted of watches, and of lists with `List` in it. A server that is told of both sends streams without their end."""
Receive = Callable[[Sequence[ObjectChange]], Awaitable[None]]


class WatchedCollection(NamedTuple):
    """What is followed: the path of a collection, and selectors. `metadata_alone` leaves out all but the metadata of objects."""

    path: str
    labels: str = ""
    fields: str = ""
    metadata_alone: bool = False

    def query(self, **more: str) -> dict[str, str]:
        """Returns the query of a request, with these fields in it."""
        return {
            **({"labelSelector": self.labels} if self.labels else {}),
            **({"fieldSelector": self.fields} if self.fields else {}),
            **more,
        }

    def accept(self, what: str = "") -> str:
        """Returns what is accepted as the answer; `what` is "List" for a list."""
        return METADATA_ONLY % what if self.metadata_alone else JSON


def _ignore() -> None:
    """Does nothing: nobody counts failures."""


class WatchOptions(NamedTuple):
    """`streams`: first ask for a stream of all objects instead of pages. `watch`: the seconds after which a watch is begun anew, at least.
    `failed` is called for each attempt that failed."""

    backoff: Backoff = Backoff()
    streams: bool = False
    watch: int = 300
    failed: Callable[[], None] = _ignore


class Informer:
    """One collection. `run` never returns; `synced` is set once all that the collection held has been received.

    `versions` are the resource versions of the objects that are there, `receiving` tells that the last of them are on their way.
    """

    def __init__(
        self,
        client: ApiClient,
        collection: WatchedCollection,
        receive: Receive,
        pace: WatchOptions,
        choose: random.Random,
        synced: asyncio.Event | None = None,
    ) -> None:
        self.synced = synced or asyncio.Event()
        self.trouble = ""
        self.receiving = False
        self.collection = collection
        self._client, self._receive, self._pace, self._choose = client, receive, pace, choose
        self._streams = pace.streams
        self._revision = ""
        self.versions: dict[NamespacedName, str] = {}
        self._gone: dict[NamespacedName, str] = {}
        self._attempts = RetryDelays(pace.backoff, choose)

    async def run(self) -> None:
        """Follows until it is cancelled."""
        while True:
            wait = 0.0
            try:
                if not self._revision:
                    await self._read_all()
                    self._is_synced()
                if not await self._watch():
                    wait = self._attempts.wait()
            except Expired:
                _log.info(
                    "%s: what happened meanwhile is not to be had any more, reading all of it", self.collection.path
                )
                self._revision = ""
                again = self._attempts.wait()
                wait = again if self._attempts.failed > 1 else 0.0
            except KubeError as error:
                wait = self._attempts.wait(error.retry_after if isinstance(error, ApiError) else 0.0)
                self._pace.failed()
                self._note(str(error))
            except Exception as error:  # a bug of ours, or nonsense from the server: it must not end the following
                wait = self._attempts.wait()
                self._forget_versions()
                _log.error("cannot follow %s", self.collection.path, exc_info=error)
            await asyncio.sleep(wait)

    def move(self, collection: WatchedCollection) -> None:
        """Follows this collection of the same objects from now on; to be called while it is not running. All of it is told once more."""
        self.collection = collection
        self._forget_versions()

    def _forget_versions(self) -> None:
        """Has everything told again by the next reading, and what that leaves out told as gone."""
        self._revision, self.versions = "", dict.fromkeys(self.versions, "")

    async def forget(self) -> None:
        """Tells the receiver that all is gone, for a collection that is followed no more."""
        names, self.versions = list(self.versions), {}
        await self._hand_on([ObjectChange(name, None) for name in names])

    # -- all of it -----------------------------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        if self._streams:
            try:
                await self._read_stream()
                return
            except ApiError as error:
                if error.code not in (400, 403, 404, 405, 422):
                    raise
                _log.debug("%s: no stream of all objects (%s), reading pages", self.collection.path, error)
                self._streams = False
        await self._read_pages()

    async def _read_pages(self) -> None:
        seen: set[NamespacedName] = set()
        more = ""
        while True:
            query = self.collection.query(limit=str(PAGE_SIZE), **({"continue": more} if more else {}))
            page = read_page(
                await self._client.call("GET", self.collection.path, query, accept=self.collection.accept("List"))
            )
            await self._hand_on(self._changed(page.items or (), seen))
            more = page.metadata.continue_
            if not more:
                break
        await self._end_of_all(seen, page.metadata.resource_version)

    async def _end_of_all(self, seen: set[NamespacedName], revision: str) -> None:
        """Tells of those that are gone, and takes the revision that everything is of."""
        gone = [name for name in self.versions if name not in seen]
        for name in gone:
            del self.versions[name]
        await self._hand_on([ObjectChange(name, None) for name in gone])
        self._gone.clear()
        self._revision = revision

    def _changed(self, items: Iterable[msgspec.Raw], seen: set[NamespacedName]) -> list[ObjectChange]:
        """Returns those items that are not known as they are."""
        changes = []
        for raw in items:
            metadata = read_head(raw).metadata
            name = NamespacedName(metadata.namespace, metadata.name)
            seen.add(name)
            if self.versions.get(name) != metadata.resource_version:
                self.versions[name] = metadata.resource_version
                changes.append(ObjectChange(name, bytes(raw)))
        return changes

    async def _read_stream(self) -> None:
        """Reads all objects from a watch that begins with them."""
        seen: set[NamespacedName] = set()
        query = self._watch_query() | {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        async with contextlib.aclosing(
            self._client.lines(self.collection.path, query, self.collection.accept(), patient=False)
        ) as batches:
            async for lines in batches:
                items: list[msgspec.Raw] = []
                for line in filter(None, lines):
                    event = read_event(line)
                    if event.type == "ERROR":
                        raise error_from_status(msgspec.json.decode(event.object, type=Status))
                    if event.type != "BOOKMARK":
                        items.append(event.object)
                    elif INITIAL_EVENTS_END in ((metadata := read_head(event.object).metadata).annotations or ()):
                        await self._hand_on(self._changed(items, seen))
                        await self._end_of_all(seen, metadata.resource_version)
                        return
                await self._hand_on(self._changed(items, seen))
        raise Unreachable(f"{self.collection.path}: the stream of all objects ended before its end")

    # -- changes -------------------------------------------------------------------------------------------------------

    def _watch_query(self) -> dict[str, str]:
        seconds = self._choose.randint(
            self._pace.watch, 2 * self._pace.watch
        )  # those of many replicas do not end together
        return self.collection.query(watch="true", allowWatchBookmarks="true", timeoutSeconds=str(seconds))

    async def _watch(self) -> bool:
        """Receives changes until the watch ends; returns whether there were any lines."""
        query = self._watch_query() | {"resourceVersion": self._revision}
        told = False
        async with contextlib.aclosing(
            self._client.lines(self.collection.path, query, self.collection.accept())
        ) as batches:
            async for lines in batches:
                changes, error = self._events(lines)
                await self._hand_on(changes)
                if error is not None:
                    raise error
                if not told:
                    told = True
                    self._attempts.succeeded()
                    self._note("")
        return told

    def _events(self, lines: Iterable[bytes]) -> tuple[list[ObjectChange], ApiError | None]:
        """Returns the changes that lines tell of, up to one that tells of an error."""
        changes: list[ObjectChange] = []
        try:
            for line in filter(None, lines):
                changes += self._event(line)
        except ApiError as error:
            return changes, error
        return changes, None

    def _event(self, line: bytes) -> list[ObjectChange]:
        """Returns the change that a line tells of, if it is one. Expired or another ApiError where it tells of an error."""
        event = read_event(line)
        if event.type == "ERROR":
            raise error_from_status(msgspec.json.decode(event.object, type=Status))
        metadata = read_head(event.object).metadata
        version, name = metadata.resource_version, NamespacedName(metadata.namespace, metadata.name)
        if is_newer(version, self._revision):
            self._revision = version
        if event.type == "BOOKMARK":
            return []
        known = self.versions.get(name, self._gone.get(name, ""))
        if known and not is_newer(version, known):
            return []
        if event.type == "DELETED":
            self._gone[name] = version
            if len(self._gone) > DELETED_CAPACITY:
                del self._gone[next(iter(self._gone))]
            return [ObjectChange(name, None)] if self.versions.pop(name, None) is not None else []
        self._gone.pop(name, None)
        self.versions[name] = version
        return [ObjectChange(name, bytes(event.object))]

    async def _hand_on(self, changes: Sequence[ObjectChange]) -> None:
        if changes:
            self.receiving = True
            try:
                await self._receive(changes)
            finally:
                self.receiving = False

    # -- how it is going -----------------------------------------------------------------------------------------------

    def _is_synced(self) -> None:
        self._note("")
        if not self.synced.is_set():
            self.synced.set()
            _log.debug("%s: %d objects", self.collection.path, len(self.versions))

    def _note(self, trouble: str) -> None:
        """Logs trouble that is new, and its end."""
        if trouble != self.trouble:
            if trouble:
                _log.warning("%s", trouble)
            else:
                _log.info("%s: followed again", self.collection.path)
            self.trouble = trouble
