"""Background checks of mesh health, which run after changes. They provide the health metrics and push_status."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from pilot.config.problem import Problem
from pilot.debug.health_findings import METRICS, find_anomalies, show_findings
from pilot.debug.slices import collect_all
from pilot.debug.sources import Finding, Fleet
from pilot.lib.logging.log import scope
from pilot.mesh.tables.database import Mesh

_log, _ads = scope("default"), scope("ads")
LOGGED = 50
"""Maximum number of findings that are logged in full. If there are more, only their counts are logged."""
REST = 50
"""Pause after a check, as a multiple of the check's duration. It limits checks to two percent of a core."""


def _ignore(metric: str, count: int) -> None:
    """Ignore the count of a metric."""


def log_status(findings: Mapping[str, Mapping[str, Finding]]) -> None:
    """Log the content of push_status if there are findings. If there are many, log only their counts."""
    if sum(map(len, findings.values())) > LOGGED:
        report: Any = {metric: len(by_key) for metric, by_key in findings.items() if by_key}
    else:
        report = show_findings(findings)
    if report:
        _ads.info("Push Status: %s", json.dumps(report, indent=4))


class Problems(Protocol):
    """All current problems of users' objects."""

    def __iter__(self) -> Iterator[Problem]: ...
    def __len__(self) -> int: ...


class HealthChecker:
    """Runs the checks. `findings` contains the findings of the last complete check, keyed by metric and key.

    `tell` is called with the number of findings for each metric after every check.
    """

    def __init__(
        self,
        db: Mesh,
        fleet: Fleet,
        problems: Problems,
        tell: Callable[[str, int], None] = _ignore,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db, self._fleet, self._problems, self._tell, self._now = db, fleet, problems, tell, now
        self.findings: Mapping[str, Mapping[str, Finding]] | None = None
        self._checked_state: Any = None
        self._not_before = 0.0
        self._task: asyncio.Task[None] | None = None

    def schedule(self) -> None:
        """Start a check if something has changed, no check is running, and the pause after the last check is over."""
        is_running = self._task is not None and not self._task.done()
        if not is_running and self._state() != self._checked_state and self._now() >= self._not_before:
            self._task = asyncio.create_task(self._run_or_log(), name="check mesh health")

    async def stop(self) -> None:
        """Cancel a running check."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def run_checks(self) -> None:
        """Run all checks, and update `findings`."""
        started, self._checked_state = self._now(), self._state()
        by_metric: dict[str, dict[str, Finding]] = {metric: {} for metric in METRICS}

        def keep() -> Iterator[None]:
            for findings in find_anomalies(self._db, self._fleet.connections(), self._problems):
                for finding in findings:
                    by_metric[finding.metric].setdefault(finding.key, finding)
                yield

        await collect_all(keep())
        if by_metric != self.findings:
            log_status(by_metric)
        self.findings = by_metric
        for metric, by_key in by_metric.items():
            self._tell(metric, len(by_key))
        self._not_before = self._now() + REST * (self._now() - started)

    async def _run_or_log(self) -> None:
        try:
            await self.run_checks()
        except Exception:
            _log.exception("mesh health check failed")

    def _state(self) -> Any:
        """Return a value that changes whenever the checked state changes."""
        return self._db.revision, tuple(connection.id for connection in self._fleet.connections()), len(self._problems)
