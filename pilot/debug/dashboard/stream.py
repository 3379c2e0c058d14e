"""The event stream of the dashboard. Changes are computed once a second and sent to all open pages."""

from __future__ import annotations

import asyncio
import os
import pathlib
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec

from pilot.config.problem import plain_problem
from pilot.debug.dashboard import certificates
from pilot.debug.dashboard.fleet import Difference, ProxyRows
from pilot.debug.dashboard.graph import CachedGraph
from pilot.debug.sources import Sources
from pilot.lib.logging.log import scope
from pilot.lib.loop_watchdog import Stall

SECONDS = 1.0
PROBLEMS = 1_000
SLOWEST = 30
"""Maximum number of queued events for a page.

If the queue is full, the page is disconnected. It then reconnects and receives the current state.
"""
_STATM = pathlib.Path("/proc/self/statm")
_log = scope("default")


class PushCounts(NamedTuple):
    """Counters at one point in time: responses, their bytes, and CPU seconds of the process."""

    responses: int
    bytes: int
    cpu: float


class EventStream:
    """The events of the dashboard, for callers with full access. Nothing is computed while no page is open."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._pages: set[asyncio.Queue[bytes]] = set()
        self._refreshing = asyncio.Lock()
        self._ticking: asyncio.Task[None] | None = None
        self.graph = CachedGraph(sources.db)
        self._rows = ProxyRows(sources.fleet)
        self._counts = PushCounts(0, 0, 0)
        self._problems: list[dict[str, Any]] = []
        self._revision: Any = None
        self._sent_graph = self.graph.number

    async def events(self) -> AsyncIterator[bytes]:
        """Yield events in the text/event-stream format: first a `state`, then a `change` every second."""
        queue: asyncio.Queue[bytes] = asyncio.Queue(SLOWEST)
        try:
            async with self._refreshing:
                if not self._pages:
                    self.graph.keep()
                    await self._poll()
                self._pages.add(queue)
                state = _event("state", await self._state())
            if self._ticking is None:
                self._ticking = asyncio.create_task(self._tick(), name="dashboard events")
            yield state
            while queue in self._pages or not queue.empty():
                yield await queue.get()
        finally:
            self._pages.discard(queue)
            if not self._pages and self._ticking is not None:
                self._ticking.cancel()
                self._ticking = None
            if not self._pages:
                self.graph.release()

    async def tell(self) -> None:
        """Send the changes to every page. Disconnect pages that have `SLOWEST` unread events."""
        async with self._refreshing:
            event = _event("change", await self._change())
            for queue in list(self._pages):
                if queue.full():
                    self._pages.discard(queue)
                else:
                    queue.put_nowait(event)

    def close(self) -> None:
        """Close the streams of all pages. The pages will try to reconnect."""
        for queue in self._pages:
            while queue.full():
                queue.get_nowait()
            queue.put_nowait(b"")
        self._pages.clear()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            try:
                await self.tell()
            except Exception:
                _log.exception("cannot update the dashboard")

    async def _state(self) -> dict[str, Any]:
        """Return the initial state for a page."""
        secret_certificates = await asyncio.to_thread(certificates.validity, certificates.material(self._sources.db))
        valid = [*certificates.of_authority(self._sources.metrics), *secret_certificates]
        return {
            "time": time.time(),
            "build": str(self._sources.build),
            "pod": self._sources.pod,
            "revision": self._sources.db.revision,
            "proxies": self._rows.plain(),
            "problems": self._problems,
            "certificates": [certificate._asdict() for certificate in valid],
        }

    async def _change(self) -> dict[str, Any]:
        counts, problems, revision = self._counts, self._problems, self._revision
        changed, gone, reached = await self._poll()
        await self.graph.get()
        changes: dict[str, Any] = {
            "time": time.time(),
            "memory": _memory(),
            "cpu": self._counts.cpu - counts.cpu,
            "responses": self._counts.responses - counts.responses,
            "bytes": self._counts.bytes - counts.bytes,
            "stall": _plain_stall(self._sources.worst_stall()),
            "waiting": self._rows.waiting,
            "reached": reached,
        }
        if changed or gone:
            changes |= {"proxies": [row.plain() for row in changed], "gone": gone}
        if self._problems != problems:
            changes["problems"] = self._problems
        if self._revision != revision:
            changes["revision"] = self._revision
        if self.graph.number != self._sent_graph:
            self._sent_graph = changes["picture"] = self.graph.number
        return changes

    async def _poll(self) -> Difference:
        difference, metrics = await self._rows.poll(), self._sources.metrics
        self._counts = PushCounts(metrics.responses, metrics.response_bytes, time.process_time())
        if self._revision != self._sources.db.revision or len(self._problems) < PROBLEMS:
            self._problems = [plain_problem(p) for _, p in zip(range(PROBLEMS), self._sources.problems(), strict=False)]
        self._revision = self._sources.db.revision
        return difference


def _plain_stall(stall: Stall | None) -> dict[str, Any] | None:
    """Return a stall of the event loop as a JSON object."""
    return {"seconds": stall.seconds, "time": stall.time, **stall.cause._asdict()} if stall is not None else None


def _memory() -> int:
    """Return the resident memory of this process in bytes, or 0 if it is unknown."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _event(name: str, value: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(value))
