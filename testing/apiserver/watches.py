"""Watches: events since a revision as JSON lines, with bookmarks, and watch lists that start with all objects."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
from collections.abc import Iterable, Iterator

from aiohttp import web

from testing.apiserver.faults import ActiveWatch, Faults
from testing.apiserver.representation import Representation
from testing.apiserver.request_info import RequestInfo
from testing.apiserver.selectors import selector
from testing.apiserver.status_error import StatusError, expired
from testing.apiserver.store import Collection, Event, Store, StoredObject, encode


class Watches:
    """Answers watch requests."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store, self._faults = store, faults

    async def answer(self, info: RequestInfo, request: web.Request) -> web.StreamResponse:
        """Send events until the requested timeout, the client disconnects, or a fault ends the watch."""
        sends_initial_events = info.flag("sendInitialEvents")
        if sends_initial_events and (
            self._faults.no_watch_lists or info.query.get("resourceVersionMatch") != "NotOlderThan"
        ):
            raise StatusError(
                422, 'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: not supported', "Invalid"
            )
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        watch = ActiveWatch(info)
        stream = _Stream(info, request.headers.get("Accept", ""), self._store, watch)
        self._faults.watches.add(watch)
        stream.collection.watchers.add(watch.wakeup)
        try:
            async with asyncio.timeout(float(info.query.get("timeoutSeconds") or 3600)):
                await self._send(stream, response, request)
        except (TimeoutError, ConnectionError):
            pass
        finally:
            self._faults.watches.discard(watch)
            stream.collection.watchers.discard(watch.wakeup)
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
        return response

    async def _send(self, stream: _Stream, response: web.StreamResponse, request: web.Request) -> None:
        watch = stream.watch
        while True:
            watch.wakeup.clear()
            is_initial = stream.is_initial  # the bookmark that ends the initial events must stay last
            lines: Iterable[bytes] = () if self._faults.silent else stream.new_lines()
            for line in lines if is_initial else self._faults.disorder_lines(list(lines)):
                await response.write(line)  # of the initial events, only those that the client reads are encoded
            if watch.bookmark and watch.info.flag("allowWatchBookmarks"):
                watch.bookmark = False
                await response.write(stream.representation.bookmark(stream.position))
            if stream.has_expired or watch.end == "close":
                return
            if watch.end == "expired":
                await response.write(error_line(expired(stream.position, self._store.revision)))
                return
            if watch.end is not None:
                if watch.end == "half a line":
                    await response.write(b'{"type":"ADDED","object":{"metadata":{"name":"ha')
                if request.transport is not None:
                    request.transport.abort()
                raise ConnectionResetError
            await watch.wakeup.wait()


class _Stream:
    """The progress of one watch.

    `position` is the last revision sent. `is_initial` is set until the existing objects have been sent, `has_expired`
    once the position has been compacted.
    """

    def __init__(self, info: RequestInfo, accept: str, store: Store, watch: ActiveWatch) -> None:
        self.collection: Collection = store.collection(info.resource.id)
        self.representation = Representation(info.resource, info.version, accept)
        self.watch, self.has_expired = watch, False
        self._store, self._info = store, info
        fields = info.query.get("fieldSelector", "")
        self._selects = selector(
            info.query.get("labelSelector", ""), f"{fields},metadata.name={info.name}" if info.name else fields
        )
        revision = int(info.query.get("resourceVersion") or 0)
        self.is_initial = info.flag("sendInitialEvents") or not revision
        self.position = revision if not self.is_initial else store.revision

    def new_lines(self) -> Iterator[bytes]:
        """Yield the lines that have not been sent yet."""
        if self.is_initial:
            self.is_initial = False
            self.position = self._store.revision
            for stored in self.collection.in_order():
                if self._selects_object(stored):
                    yield self.representation.event("ADDED", stored)
            if self._info.flag("sendInitialEvents"):
                yield self.representation.bookmark(self.position, ends_initial_events=True)
        if self.position < self.collection.compacted and not self.has_expired:
            self.has_expired = True
            yield error_line(expired(self.position, self.collection.compacted))
            return
        events = self.collection.events
        for event in events[bisect.bisect_right(events, self.position, key=lambda event: event.revision) :]:
            self.position = event.revision
            if kind := self._event_type(event):
                yield self.representation.event(kind, event.last)
        self.position = max(self.position, self._store.revision)

    def _event_type(self, event: Event) -> str:
        """Return the type of an event for this watch, or "" if the watch does not see it."""
        before, after = self._selects_object(event.before), self._selects_object(event.after)
        return "MODIFIED" if before and after else "ADDED" if after else "DELETED" if before else ""

    def _selects_object(self, stored: StoredObject | None) -> bool:
        if stored is None or self._info.namespace not in ("", stored.plain["metadata"].get("namespace", "")):
            return False
        return self._selects is None or self._selects(stored.plain)


def error_line(refusal: StatusError) -> bytes:
    return encode({"type": "ERROR", "object": refusal.status()}) + b"\n"
