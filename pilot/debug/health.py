"""The health of the mesh is looked at when something changed, in the background: for the metrics of it, and for push_status."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from pilot.config.problem import Problem
from pilot.debug.health_findings import METRICS, Finding, look, show_findings
from pilot.debug.slices import all_of
from pilot.debug.sources import Fleet
from pilot.lib.log import scope
from pilot.mesh.tables.database import Mesh

_log, _ads = scope("default"), scope("ads")
LOGGED = 50
"""Findings of which more are only counted in the log."""
REST = 50
"""A look is followed by a rest of so many times the time that it took: it costs two percent of a core at most."""


def _ignore(metric: str, count: int) -> None:
    """Does nothing: these counts nobody wants."""


def log_status(found: Mapping[str, Mapping[str, Finding]]) -> None:
    """Writes to the log what the page push_status shows, where there is something; where there is very much, how much of each."""
    if sum(map(len, found.values())) > LOGGED:
        shown: Any = {metric: len(by_key) for metric, by_key in found.items() if by_key}
    else:
        shown = show_findings(found)
    if shown:
        _ads.info("Push Status: %s", json.dumps(shown, indent=4))


class Problems(Protocol):
    """All problems of users' objects that there are now."""

    def __iter__(self) -> Iterator[Problem]: ...
    def __len__(self) -> int: ...


class HealthFindings:
    """What was found in the last whole look, by metric and key. `tell` is given the number of findings of every metric after each."""

    def __init__(
        self,
        db: Mesh,
        fleet: Fleet,
        problems: Problems,
        tell: Callable[[str, int], None] = _ignore,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db, self._fleet, self._problems, self._tell, self._now = db, fleet, problems, tell, now
        self.found: Mapping[str, Mapping[str, Finding]] | None = None
        self._looked_at: Any = None
        self._not_before = 0.0
        self._looking: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Begins a look where something has changed since the last one, and that one is not under way nor was too long."""
        is_looking = self._looking is not None and not self._looking.done()
        if not is_looking and self._state() != self._looked_at and self._now() >= self._not_before:
            self._looking = asyncio.create_task(self._look_or_log(), name="look at the health of the mesh")

    async def stop(self) -> None:
        """Ends a look that is under way."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait((self._looking,))

    async def look(self) -> None:
        """Looks at everything; returns when `found` is of now."""
        started, self._looked_at = self._now(), self._state()
        found: dict[str, dict[str, Finding]] = {metric: {} for metric in METRICS}

        def keep() -> Iterator[None]:
            for findings in look(self._db, self._fleet.connections(), self._problems):
                for finding in findings:
                    found[finding.metric].setdefault(finding.key, finding)
                yield

        await all_of(keep())
        if found != self.found:
            log_status(found)
        self.found = found
        for metric, by_key in found.items():
            self._tell(metric, len(by_key))
        self._not_before = self._now() + REST * (self._now() - started)

    async def _look_or_log(self) -> None:
        try:
            await self.look()
        except Exception:
            _log.exception("cannot look at the health of the mesh")

    def _state(self) -> Any:
        """Returns what is another value once something has changed."""
        return self._db.revision, tuple(connection.id for connection in self._fleet.connections()), len(self._problems)
