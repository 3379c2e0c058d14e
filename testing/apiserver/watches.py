"""Watches: events since a revision as lines of JSON, with bookmarks, and WatchList streams that begin with all there is."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
from collections.abc import Iterator

from aiohttp import web

from testing.apiserver.faults import Faults, OpenWatch
from testing.apiserver.representation import Form
from testing.apiserver.request_info import Asked
from testing.apiserver.selectors import selector
from testing.apiserver.status_error import Refusal, expired
from testing.apiserver.store import Collection, Event, Store, Stored, encode


class Watches:
    """Answers watches."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store, self._faults = store, faults

    async def answer(self, asked: Asked, request: web.Request) -> web.StreamResponse:
        """Send events until the time that was asked for is over, the client goes, or a fault ends it."""
        first = asked.flag("sendInitialEvents")
        if first and (self._faults.no_watch_lists or asked.query.get("resourceVersionMatch") != "NotOlderThan"):
            raise Refusal(
                422, 'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: not supported', "Invalid"
            )
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        watch = OpenWatch(asked)
        stream = _Stream(asked, request.headers.get("Accept", ""), self._store, watch)
        self._faults.watches.add(watch)
        stream.collection.watchers.add(watch.woken)
        try:
            async with asyncio.timeout(float(asked.query.get("timeoutSeconds") or 3600)):
                await self._send(stream, response, request)
        except (TimeoutError, ConnectionError):
            pass
        finally:
            self._faults.watches.discard(watch)
            stream.collection.watchers.discard(watch.woken)
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
        return response

    async def _send(self, stream: _Stream, response: web.StreamResponse, request: web.Request) -> None:
        watch = stream.watch
        while True:
            watch.woken.clear()
            begins = stream.begins  # the bookmark behind all that there is says that nothing is missing
            lines = [] if self._faults.silent else list(stream.lines())
            for line in lines if begins else self._faults.disturb(lines):
                await response.write(line)
            if watch.bookmark and watch.asked.flag("allowWatchBookmarks"):
                watch.bookmark = False
                await response.write(stream.form.bookmark(stream.position))
            if stream.over or watch.end == "close":
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
            await watch.woken.wait()


class _Stream:
    """What one watch has been told. `position` is the revision up to which, `over` whether nothing more can be, `begins` whether all that
    there is comes first."""

    def __init__(self, asked: Asked, accept: str, store: Store, watch: OpenWatch) -> None:
        self.collection: Collection = store.collection(asked.resource.id)
        self.form = Form(asked.resource, asked.version, accept)
        self.watch, self.over = watch, False
        self._store, self._asked = store, asked
        fields = asked.query.get("fieldSelector", "")
        self._selects = selector(
            asked.query.get("labelSelector", ""), f"{fields},metadata.name={asked.name}" if asked.name else fields
        )
        revision = int(asked.query.get("resourceVersion") or 0)
        self.begins = asked.flag("sendInitialEvents") or not revision
        self.position = revision if not self.begins else store.revision

    def lines(self) -> Iterator[bytes]:
        """Yield what is new."""
        if self.begins:
            self.begins = False
            self.position = self._store.revision
            for _, stored in sorted(self.collection.objects.items()):
                if self._sees(stored):
                    yield self.form.event("ADDED", stored)
            if self._asked.flag("sendInitialEvents"):
                yield self.form.bookmark(self.position, end_of_first=True)
        if self.position < self.collection.compacted and not self.over:
            self.over = True
            yield error_line(expired(self.position, self.collection.compacted))
            return
        events = self.collection.events
        for event in events[bisect.bisect_right(events, self.position, key=lambda event: event.revision) :]:
            self.position = event.revision
            if kind := self._tells(event):
                yield self.form.event(kind, event.last)
        self.position = max(self.position, self._store.revision)

    def _tells(self, event: Event) -> str:
        """Return what an event is to this watch; "" where it is none."""
        before, after = self._sees(event.before), self._sees(event.after)
        return "MODIFIED" if before and after else "ADDED" if after else "DELETED" if before else ""

    def _sees(self, stored: Stored | None) -> bool:
        if stored is None or self._asked.namespace not in ("", stored.plain["metadata"].get("namespace", "")):
            return False
        return self._selects is None or self._selects(stored.plain)


def error_line(refusal: Refusal) -> bytes:
    return encode({"type": "ERROR", "object": refusal.status()}) + b"\n"
