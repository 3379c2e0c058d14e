"""What is counted and logged when configuration changes, is wrong, or cannot be derived."""
from __future__ import annotations

from pilot.derive import UNSET, Node
from pilot.ingest.batch import Clock, Commit
from pilot.ingest.events import count_events, count_updates, push_reasons
from pilot.ingest.problems import log_problem
from pilot.lib.log import scope
from pilot.lib.metrics import Metrics
from pilot.model.inputs import Mesh
from pilot.model.problem import Problem, Severity
from pilot.model.views.services import service_refs
from pilot.serve.discovery import Discovery

_log = scope("default")


class Notices:
    """Is told of what happens, and wakes the proxies that a change concerns."""

    def __init__(self, db: Mesh, discovery: Discovery, metrics: Metrics, clock: Clock) -> None:
        self._db, self._discovery, self._metrics, self._clock = db, discovery, metrics, clock
        self._services = db.watch(service_refs)

    def committed(self, commit: Commit) -> None:
        """Called when a batch of changes is in the tables."""
        catalogue, metrics = self._db.catalogue, self._metrics
        woken = self._discovery.wake(commit.hit, push_reasons(catalogue, commit))
        count_updates(metrics, catalogue, commit)
        count_events(metrics, catalogue, commit)
        metrics.committed(commit.took)
        metrics.debounced(self._clock.time() - commit.first)
        self._db.refresh(self._services)
        metrics.counted(0 if self._services.value is UNSET else len(self._services.value), len(self._db.virtual_services))
        _log.info("%d changes, %d proxies concerned", len(commit.edits), woken)

    def noticed(self, problem: Problem) -> None:
        """Called with a user's mistake that was not there before."""
        log_problem(problem)
        if problem.severity is Severity.ERROR and problem.object.name:
            kind, namespace, name = problem.object
            self._metrics.rejected_config(self._db.catalogue.short_name(kind).lower(), f"{namespace}/{name}" if namespace else name)

    def failed(self, node: Node, error: Exception) -> None:
        """Called with a bug of ours: what depends on the derivation keeps its last good value."""
        self._metrics.derivation_failed(str(node.fn))
        _log.error("cannot derive %r", node.key, exc_info=error)
