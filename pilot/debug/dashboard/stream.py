"""The event stream of the dashboard. Changes are computed once a second and sent to all open pages."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from itertools import islice
from typing import Any

import msgspec

from pilot.config.problem import Problem, Severity, plain_problem, plain_ref
from pilot.debug.certificates import list_certificates
from pilot.debug.dashboard.effects import ErrorEffect, effect_of
from pilot.debug.dashboard.findings import (
    InjectedFault,
    MeshState,
    count_services,
    faults_in,
    find_all,
)
from pilot.debug.dashboard.fleet import ProxyRow, ProxyRows
from pilot.debug.dashboard.gists import gists_of_added
from pilot.debug.dashboard.graph import CachedGraph
from pilot.debug.dashboard.mesh import (
    MeshContext,
    UnhealthyProxy,
    gateways_of_proxy,
    problem_hosts,
    services_of_proxy,
)
from pilot.debug.dashboard.traffic import Traffic
from pilot.debug.finding_parts import MeshFinding
from pilot.debug.history import resident_memory
from pilot.debug.reuse import Reuse
from pilot.debug.slices import collect_all, collect_present
from pilot.debug.sources import Sources
from pilot.lib.logging.log import scope
from pilot.lib.loop_watchdog import Stall
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.analysis.nack import likely_causes
from pilot.mesh.model.nack import NackKey
from pilot.mesh.tables.database import Mesh

SECONDS = 1.0
PROBLEMS = 500
"""Maximum number of problems that are sent. Errors are sent first."""
CHANGES = 200
"""Maximum number of changes that are sent. After the first event, only those that differ are sent."""
CAUSES = 10
"""Maximum number of objects that are named as causes of a rejection."""
SLOWEST = 30
"""Maximum number of queued events for a page.

If the queue is full, the page is disconnected. It then reconnects and receives the current state.
"""
_ORDER = tuple(Severity)
_log = scope("default")


class EventStream:
    """The events of the dashboard, for callers with full access. Nothing is computed while no page is open."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._pages: set[asyncio.Queue[bytes]] = set()
        self._refreshing = asyncio.Lock()
        self._reuse = Reuse()
        self._ticking: asyncio.Task[None] | None = None
        self.graph = CachedGraph(sources.db)
        self.traffic = Traffic(sources.settings.prometheus)
        self._rows = ProxyRows(sources.fleet)
        self._problems: list[Problem] = []
        self._errors: list[Problem] = []
        self._unhealthy: list[UnhealthyProxy] = []
        self._shown: dict[str, Any] = {}
        self._revision: Any = None
        self._point = 0
        self._counters = (0, 0, 0.0)
        self._certificates: list[dict[str, Any]] = []
        self._faults: tuple[int, list[InjectedFault]] = (-1, [])
        self._gists: tuple[tuple[int, ...], dict[str, str]] = ((), {})
        self._findings: list[dict[str, Any]] = []

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

    async def context(self) -> MeshContext:
        """Return the problems and proxies of the graph."""
        async with self._refreshing:
            await self._poll_for_request()
            problems = await collect_all((problem, problem_hosts(self._sources, problem)) for problem in self._problems)
            counts = {name: of["proxies"] for name, of in self._shown["fleet"]["namespaces"].items()}
            return MeshContext(problems, self._unhealthy, counts)

    async def findings(self) -> list[MeshFinding]:
        """Return what is wrong with the mesh, the worst first."""
        async with self._refreshing:
            await self._poll_for_request()
            return await self._find(await list_certificates(self._sources))

    async def _find(self, certificates: list[dict[str, Any]]) -> list[MeshFinding]:
        db = self._sources.db
        if self._faults[0] != db.revision:
            self._faults = db.revision, await collect_present(faults_in(db))
        return find_all(MeshState(self._shown, certificates, self._faults[1], count_services(db)), time.time())

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
        self._certificates = await list_certificates(self._sources)
        return {
            "time": time.time(),
            "build": str(self._sources.build),
            "pod": self._sources.pod,
            "traffic": self.traffic.is_enabled,
            "history": list(self._sources.history.points),
            "certificates": self._certificates,
            "findings": [finding.plain() for finding in await self._find(self._certificates)],
            **self._measurements(),
            **self._shown,
        }

    async def _change(self) -> dict[str, Any]:
        """Return what has changed since the last call, for all pages."""
        shown, points = self._shown, self._sources.history
        await self._poll()
        await self.graph.get()
        changes = {
            "time": time.time(),
            **self._measurements(),
            **{name: part for name, part in self._shown.items() if shown.get(name) != part},
        }
        if "changes" in changes:
            last = {change["number"]: change for change in shown["changes"]}
            changes["changes"] = [c for c in self._shown["changes"] if last.get(c["number"]) != c]
        if self.graph.number != shown.get("graph"):
            self._shown["graph"] = changes["graph"] = self.graph.number
        findings = [finding.plain() for finding in await self._find(self._certificates)]
        if findings != self._findings:
            self._findings = changes["findings"] = findings
        if points.number != self._point:
            self._point = points.number
            changes["point"] = points.points[-1]
        return changes

    def _measurements(self) -> dict[str, Any]:
        """Return the use of resources since the last call, and the longest stall of the event loop."""
        metrics = self._sources.metrics
        before, self._counters = self._counters, (metrics.responses, metrics.response_bytes, time.process_time())
        responses, sent, cpu = (now - then for now, then in zip(self._counters, before, strict=True))
        return {
            "responses": responses,
            "bytes": sent,
            "cpu": cpu,
            "memory": resident_memory(),
            "stall": _plain_stall(self._sources.worst_stall()),
        }

    async def _poll_for_request(self) -> None:
        """Update the parts, unless a page is open or a request has just updated them."""
        if not self._pages and self._reuse.must_compute():
            await self._poll()
            self._reuse.end()

    async def _poll(self) -> None:
        """Update the parts that are sent when they differ from the last ones."""
        await self._rows.poll()
        sources, problems = self._sources, self._sources.problems()
        revision = problems.revision, sources.db.revision
        if self._revision != revision:
            self._revision = revision
            every = await collect_all(problems)
            await asyncio.to_thread(every.sort, key=lambda problem: _ORDER.index(problem.severity))
            self._problems = every[:PROBLEMS]
            self._errors = [problem for problem in every if problem.severity is Severity.ERROR]
            numbers = Counter(problem.severity for problem in every)
            counts = {f"{level}s": numbers[level] for level in Severity}
            items = await collect_all(_plain_problem(sources.db, problem) for problem in self._problems)
            plain = {"counts": counts, "items": items}
        else:
            plain = self._shown["problems"]
        log, now = sources.changes, time.time()
        basis = (log.number, sources.db.revision, self._rows.summary(now)["proxies"])
        if self._gists[0] != basis:
            self._gists = basis, await gists_of_added(sources, islice(log, CHANGES))
        rows = self._rows.unhealthy(now)
        self._unhealthy = await collect_all(_unhealthy(sources.db, row, self._rows.key_of(row), now) for row in rows)
        unhealthy = [
            row.plain(now) | {"services": p.services, "causes": _causes(sources.db, row, self._rows.key_of(row))}
            for row, p in zip(rows, self._unhealthy, strict=True)
        ]
        self._shown = {
            "revision": sources.db.revision,
            "graph": self._shown.get("graph", self.graph.number),
            "fleet": self._rows.summary(now) | {"unhealthy": unhealthy},
            "problems": plain,
            "changes": log.list_plain(self._errors, CHANGES),
            "gists": self._gists[1],
        }


def _plain_problem(db: Mesh, problem: Problem) -> dict[str, Any]:
    """Return a problem as a JSON object, with the effect of an error."""
    effect = effect_of(db, problem) if problem.severity is Severity.ERROR else ErrorEffect("")
    return plain_problem(problem) | ({"effect": effect.text, "fails": effect.fails} if effect.text else {})


def _unhealthy(db: Mesh, row: ProxyRow, key: str, now: float) -> UnhealthyProxy:
    """Return the parts of the graph that a proxy belongs to."""
    return UnhealthyProxy(row.state(now), row.namespace, services_of_proxy(db, key), gateways_of_proxy(db, key))


def _causes(db: Mesh, row: ProxyRow, key: str) -> list[dict[str, str]]:
    """Return the objects that may have caused what a proxy rejects, the most likely first."""
    nacks = (db.nacks.peek(NackKey(key, BY_SHORT_NAME[name])) for name in row.error_types if name in BY_SHORT_NAME)
    return [plain_ref(ref) for nack in nacks if nack is not None for ref in likely_causes(nack.objects)[:CAUSES]]


def _plain_stall(stall: Stall | None) -> dict[str, Any] | None:
    """Return a stall of the event loop as a JSON object."""
    return {"seconds": stall.seconds, "time": stall.time, **stall.cause._asdict()} if stall is not None else None


def _event(name: str, value: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(value))
