"""Informers, which list a collection, watch it, and deliver each change to a receiver.

The receiver is sent only changes. Objects that are unchanged since the last list are not delivered again. Objects that
are missing from a list are reported as deleted only when the list is complete. Therefore, losing a watch or the server
causes no changes, even if it takes long to reconnect.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from pilot.kube.api_client import JSON, LARGEST_RESPONSE, ApiClient
from pilot.kube.api_errors import ApiError, Expired, KubeError, Status, Unreachable, error_from_status
from pilot.kube.deep_json import decode_any_depth
from pilot.kube.list_watch import (
    INITIAL_EVENTS_END,
    NamespacedName,
    ObjectChange,
    ObjectHead,
    WatchEvent,
    is_newer,
    read_event,
    read_head,
    read_page,
)
from pilot.kube.pages import read_names_pages, read_pages
from pilot.lib.backoff import Backoff, RetryDelays
from pilot.lib.logging.log import scope

_log = scope("kube")
DELETED_CAPACITY = 1_000
"""Maximum number of deleted objects whose resource versions are remembered, so that late, older events can be ignored.
While names are unread, there is no maximum, because the list of names may contain any of these objects.
"""
RECOVERY_SECONDS = 1.0
"""Seconds within which all watches reconnect after the server has responded to one of them."""
METADATA_ONLY = f"{JSON};as=PartialObjectMetadata%s;g=meta.k8s.io;v=v1"
"""Template of the Accept header. The placeholder is "" for watches and "List" for lists.

Only this format is offered. A server that is also offered complete objects sends streaming lists without the bookmark
that ends them.
"""
MAX_POSTPONED = 32
"""Maximum number of namespaces whose objects a list leaves out. Their names are part of the URL."""
MAX_STREAMS = 4
"""Maximum number of times that a streaming list starts, because it is cheaper without the objects of a namespace."""
Receive = Callable[[Sequence[ObjectChange]], Awaitable[None]]


class Postponement(Protocol):
    """Namespaces whose objects are not needed yet. Lists leave them out."""

    def namespaces(self) -> Collection[str]:
        """Return the namespaces."""

    def postpone(self, names: Iterable[NamespacedName]) -> None:
        """Receive the names of objects that are new or have changed, and were not delivered."""


class WatchedCollection(NamedTuple):
    """A collection to watch: its path, and the selectors of its objects. If `metadata_only` is set, only the metadata
    of the objects is requested."""

    path: str
    labels: str = ""
    fields: str = ""
    metadata_only: bool = False

    def query(self, **parameters: str) -> dict[str, str]:
        """Return the query parameters of a request, which are the selectors and `parameters`."""
        return {
            **({"labelSelector": self.labels} if self.labels else {}),
            **({"fieldSelector": self.fields} if self.fields else {}),
            **parameters,
        }

    def in_namespace(self, namespace: str) -> WatchedCollection:
        """Return the objects of this collection in a namespace.

        Their path selects them. With a field selector for the namespace, kube-apiserver 1.35 returns only the first
        page: it looks for the continued ones under another key of etcd, and returns an empty last page.
        """
        base, _, resource = self.path.rpartition("/")
        base = base.partition("/namespaces/")[0]
        return self._replace(path=f"{base}/namespaces/{namespace}/{resource}")

    def narrow(self, *fields: str) -> WatchedCollection:
        """Return the objects of this collection that other field selectors select too."""
        return self._replace(fields=",".join(filter(None, (self.fields, *fields))))

    def accept(self, suffix: str = "") -> str:
        """Return the Accept header of a watch, or of a list if `suffix` is "List"."""
        return METADATA_ONLY % suffix if self.metadata_only else JSON


def _do_nothing() -> None:
    """Do nothing. This is the default function to call on failures."""


class WatchOptions(NamedTuple):
    """Options of an informer.

    If `streaming_lists` is set, initial objects are requested as a stream, with pages as a fallback. `watch_seconds` is
    the minimum time before a watch is renewed. `on_failure` is called for each failed attempt.
    """

    backoff: Backoff = Backoff(maximum=10.0)
    streaming_lists: bool = False
    watch_seconds: int = 300
    on_failure: Callable[[], None] = _do_nothing


class Informer:
    """Lists and watches one collection.

    `run` never returns. `synced` is set when the first complete list has been delivered. `versions` maps existing
    objects to their resource versions. `receiving` is true while changes are being delivered. `error` is the current
    failure, or "" if there is none. `postponement` limits what lists contain, and `unread` has the namespaces that the
    last list left out, until `read_names` has read the names of their objects.
    """

    def __init__(
        self,
        client: ApiClient,
        collection: WatchedCollection,
        receive: Receive,
        options: WatchOptions,
        rng: random.Random,
        synced: asyncio.Event | None = None,
    ) -> None:
        self.synced = synced or asyncio.Event()
        self.error = ""
        self.receiving = False
        self.collection = collection
        self._client, self._receive, self._options, self._rng = client, receive, options, rng
        self._streaming_lists = options.streaming_lists
        self._revision = ""
        self.versions: dict[NamespacedName, str] = {}
        self._deleted: dict[NamespacedName, str] = {}
        self._attempts, self._has_expired = RetryDelays(options.backoff, rng), False
        self._is_unsure = False
        self.postponement: Postponement | None = None
        self.unread: Collection[str] = ()

    async def run(self) -> None:
        """List and watch the collection until cancelled."""
        while True:
            delay = 0.0
            try:
                if self._is_unsure and self._revision and await self._is_restored():
                    _log.warning("%s: the server has older objects than before; listing again", self.collection.path)
                    self._forget_versions()
                self._is_unsure = False
                if not self._revision:
                    await self._list()
                    self._set_synced()
                if not await self._watch():
                    delay = self._attempts.next_delay()
            except Expired:
                _log.info("%s: the resource version expired; listing again", self.collection.path)
                self._revision = ""
                if not self._has_expired:  # the server responds, so earlier failures do not delay the list
                    self._attempts.reset()
                backoff = self._attempts.next_delay()
                delay = backoff if self._has_expired else 0.0
                self._has_expired = True
            except KubeError as error:
                delay = self._attempts.next_delay(error.retry_after if isinstance(error, ApiError) else 0.0)
                self._is_unsure |= isinstance(error, Unreachable)
                self._options.on_failure()
                self._set_error(str(error))
            except Exception as error:  # a bug or an invalid response must not end the informer
                delay = self._attempts.next_delay()
                self._forget_versions()
                _log.error("cannot watch %s", self.collection.path, exc_info=error)
            await self._client.pause(delay, self._rng.uniform(0.0, RECOVERY_SECONDS))

    def watch_collection(self, collection: WatchedCollection) -> None:
        """Switch to another collection of the same objects, and deliver all of its objects again.

        Call this only while `run` is not active.
        """
        self.collection = collection
        self._forget_versions()

    def _forget_versions(self) -> None:
        """Make the next list deliver every object again. Objects that are missing from it are reported as deleted."""
        self._revision, self.versions = "", dict.fromkeys(self.versions, "")

    async def clear(self) -> None:
        """Report every object as deleted, because the collection is no longer watched."""
        names, self.versions = list(self.versions), {}
        await self._deliver([ObjectChange(name, None) for name in names])

    async def _is_restored(self) -> bool:
        """Return whether the server has an older state than the last change, because it was restored from a backup.

        It would accept a watch, but send no changes until its state is newer.
        """
        page = read_page(await self._fetch_page(self.collection, {"limit": "1"}, LARGEST_RESPONSE))
        return is_newer(self._revision, page.metadata.resource_version)

    # -- lists ---------------------------------------------------------------------------------------------------------

    async def _list(self) -> None:
        if self._streaming_lists:
            try:
                await self._read_stream()
                return
            except ApiError as error:
                if error.code not in (400, 403, 404, 405, 422):
                    raise
                _log.debug("%s: streaming lists are not supported (%s); listing in pages", self.collection.path, error)
                self._streaming_lists = False
        await self._read_pages()

    async def _read_pages(self) -> None:
        listed, postponed = set[NamespacedName](), set[str]()

        def fetch(query: dict[str, str], largest: int) -> Awaitable[bytes]:
            return self._fetch_page(self._needed(postponed), query, largest)  # selectors may change between pages

        revision = ""
        async for page in read_pages(fetch):
            await self._deliver(self._changed(page.items or (), listed))
            revision = page.metadata.resource_version
        await self._finish_list(listed, postponed, revision)

    def _needed(self, postponed: set[str]) -> WatchedCollection:
        """Return the collection without the objects of postponed namespaces, which are added to a set."""
        if self.postponement is not None:
            postponed.update(itertools.islice(self.postponement.namespaces(), MAX_POSTPONED - len(postponed)))
        return self.collection.narrow(*(f"metadata.namespace!={namespace}" for namespace in sorted(postponed)))

    def _has_more(self, postponed: set[str]) -> bool:
        """Return whether further namespaces are postponed."""
        return self.postponement is not None and not postponed.issuperset(self.postponement.namespaces())

    async def read_names(self) -> None:
        """Postpone the new and changed objects of the namespaces in `unread`. Changes may arrive meanwhile.

        Raise KubeError if the names cannot be read.
        """
        while self.unread:
            unread, namespace = self.unread, min(self.unread)
            collection = self.collection.in_namespace(namespace)._replace(metadata_only=True)
            listed, revision = set[NamespacedName](), ""
            async for page in read_names_pages(functools.partial(self._fetch_page, collection)):
                if self.unread is not unread:  # another list has replaced the one that left them out
                    break
                self._postpone(page.items or (), listed)
                revision = page.metadata.resource_version
            else:
                self.unread = {name for name in unread if name != namespace}
                await self._remove_missing(
                    name
                    for name, version in self.versions.items()
                    if name.namespace == namespace
                    and name not in listed
                    and not (version and is_newer(version, revision))
                )

    def _postpone(self, heads: Iterable[ObjectHead], listed: set[NamespacedName]) -> None:
        """Postpone new and changed objects, and add the names of all objects to `listed`."""
        assert self.postponement is not None
        names = []
        for metadata in (head.metadata for head in heads):
            name = NamespacedName(metadata.namespace, metadata.name)
            listed.add(name)
            if self._is_change(name, metadata.resource_version):
                self.versions[name] = metadata.resource_version
                names.append(name)
        self.postponement.postpone(names)

    async def read_namespace(self, namespace: str) -> AsyncIterator[list[ObjectChange]]:
        """Yield the objects of a namespace again, in pages, except those of which a change has not been delivered yet.

        Raise KubeError if they cannot be read.
        """
        async for page in read_pages(functools.partial(self._fetch_page, self.collection.in_namespace(namespace))):
            changes = self._read_items(page.items or ())
            yield [change for change, version in changes if self.versions.get(change.name) == version]

    async def _fetch_page(self, collection: WatchedCollection, query: dict[str, str], largest: int) -> bytes:
        return await self._client.call(
            "GET", collection.path, collection.query(**query), accept=collection.accept("List"), largest=largest
        )

    async def _finish_list(self, listed: set[NamespacedName], postponed: Collection[str], revision: str) -> None:
        """Report objects that are missing from the list as deleted, except those of postponed namespaces, and set the
        list's revision as the start of the next watch."""
        await self._remove_missing(
            name for name in self.versions if name not in listed and name.namespace not in postponed
        )
        self._deleted.clear()
        self._revision, self.unread = revision, postponed

    async def _remove_missing(self, names: Iterable[NamespacedName]) -> None:
        """Report objects as deleted."""
        missing = list(names)
        for name in missing:
            del self.versions[name]
        await self._deliver([ObjectChange(name, None) for name in missing])

    def _changed(self, items: Iterable[msgspec.Raw], listed: set[NamespacedName]) -> list[ObjectChange]:
        """Return the items whose resource version has changed, and add the names of all items to `listed`."""
        changes = []
        for change, version in self._read_items(items):
            listed.add(change.name)
            if self.versions.get(change.name) != version:
                self.versions[change.name] = version
                changes.append(change)
        return changes

    def _read_items(self, items: Iterable[msgspec.Raw]) -> Iterator[tuple[ObjectChange, str]]:
        """Yield the objects of a list, and their resource versions."""
        for raw in items:
            metadata = read_head(raw).metadata
            yield ObjectChange(NamespacedName(metadata.namespace, metadata.name), bytes(raw)), metadata.resource_version

    async def _read_stream(self) -> None:
        """Read all objects from a watch that starts with the existing objects. If more namespaces are postponed
        meanwhile, start again without their objects."""
        postponed = set[str]()
        for attempt in range(MAX_STREAMS):
            if await self._has_read_stream(postponed, may_end_early=attempt + 1 < MAX_STREAMS):
                return

    async def _has_read_stream(self, postponed: set[str], may_end_early: bool) -> bool:
        """Read a streaming list without postponed namespaces, which are added to a set. Return False if it ended early
        because more namespaces are postponed."""
        listed, needed = set[NamespacedName](), self._needed(postponed)
        query = self._watch_query(needed) | {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        async with contextlib.aclosing(self._client.lines(needed.path, query, needed.accept(), idle=False)) as batches:
            async for lines in batches:
                items: list[msgspec.Raw] = []
                for line in filter(None, lines):
                    event = await decode_any_depth(read_event, line)
                    if event.type == "ERROR":
                        raise error_from_status(msgspec.json.decode(event.object, type=Status))
                    if event.type != "BOOKMARK":
                        items.append(event.object)
                    elif INITIAL_EVENTS_END in ((metadata := read_head(event.object).metadata).annotations or ()):
                        await self._deliver(self._changed(items, listed))
                        await self._finish_list(listed, postponed, metadata.resource_version)
                        return True
                await self._deliver(self._changed(items, listed))
                if may_end_early and self._has_more(postponed):
                    return False
        raise Unreachable(f"{self.collection.path}: the streaming list ended early")

    # -- changes -------------------------------------------------------------------------------------------------------

    def _watch_query(self, collection: WatchedCollection) -> dict[str, str]:
        # Random, so that the watches of several replicas do not end at the same time.
        seconds = self._rng.randint(self._options.watch_seconds, 2 * self._options.watch_seconds)
        return collection.query(watch="true", allowWatchBookmarks="true", timeoutSeconds=str(seconds))

    async def _watch(self) -> bool:
        """Receive changes until the watch ends. Return whether the watch delivered any lines."""
        query = self._watch_query(self.collection) | {"resourceVersion": self._revision}
        is_alive = False
        async with contextlib.aclosing(
            self._client.lines(self.collection.path, query, self.collection.accept())
        ) as batches:
            async for lines in batches:
                changes, error = await self._read_events(lines)
                await self._deliver(changes)
                if error is not None:
                    raise error
                if not is_alive:
                    is_alive = True
                    self._has_expired = False
                    self._attempts.reset()
                    self._set_error("")
        return is_alive

    async def _read_events(self, lines: Iterable[bytes]) -> tuple[list[ObjectChange], ApiError | None]:
        """Return the changes up to the first error event, and the error of this event or None."""
        changes: list[ObjectChange] = []
        try:
            for line in filter(None, lines):
                changes += self._read_event(await decode_any_depth(read_event, line))
        except ApiError as error:
            return changes, error
        return changes, None

    def _read_event(self, event: WatchEvent) -> list[ObjectChange]:
        """Return the change that an event reports, or [] if it reports none. Raise Expired or another ApiError if it is
        an error event."""
        if event.type == "ERROR":
            raise error_from_status(msgspec.json.decode(event.object, type=Status))
        metadata = read_head(event.object).metadata
        version, name = metadata.resource_version, NamespacedName(metadata.namespace, metadata.name)
        if is_newer(version, self._revision):
            self._revision = version
        if event.type == "BOOKMARK":
            return []
        if not self._is_change(name, version):
            return []
        if event.type == "DELETED":
            self._deleted[name] = version
            while len(self._deleted) > DELETED_CAPACITY and not self.unread:
                del self._deleted[next(iter(self._deleted))]
            return [ObjectChange(name, None)] if self.versions.pop(name, None) is not None else []
        self._deleted.pop(name, None)
        self.versions[name] = version
        return [ObjectChange(name, bytes(event.object))]

    def _is_change(self, name: NamespacedName, version: str) -> bool:
        """Return whether a version of an object is newer than its last known version."""
        last_version = self.versions.get(name, self._deleted.get(name, ""))
        return not last_version or is_newer(version, last_version)

    async def _deliver(self, changes: Sequence[ObjectChange]) -> None:
        """Deliver changes. If this is interrupted, the next list or `clear` delivers these objects again."""
        if changes:
            self.receiving = True
            try:
                await self._receive(changes)
            except BaseException:
                self.versions |= {change.name: "" for change in changes}
                raise
            finally:
                self.receiving = False

    # -- state ---------------------------------------------------------------------------------------------------------

    def _set_synced(self) -> None:
        self._set_error("")
        if not self.synced.is_set():
            self.synced.set()
            _log.debug("%s: %d objects", self.collection.path, len(self.versions))

    def _set_error(self, error: str) -> None:
        """Set the current error. Log it if it is new. If it is "", log that the informer has reconnected."""
        if error != self.error:
            if error:
                _log.warning("%s", error)
            else:
                _log.info("%s: reconnected", self.collection.path)
            self.error = error
