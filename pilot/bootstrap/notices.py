"""What is counted and logged when configuration changes, is wrong, or cannot be derived."""

from __future__ import annotations

from pilot.bootstrap.provider_lookups import find_lookup
from pilot.bootstrap.traces import Traces
from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.problem import Problem, Severity
from pilot.derive import UNSET, Node
from pilot.ingest.batch import Clock, Commit
from pilot.ingest.events import count_events, count_updates, first_and_more, push_reasons
from pilot.ingest.problems import log_problem
from pilot.lib.log import fields, scope
from pilot.lib.metrics import Metrics
from pilot.mesh.registry.services import service_refs
from pilot.mesh.tables.database import Mesh
from pilot.xds.discovery import Discovery

_log, _ads = scope("default"), scope("ads")


class Notices:
    """Is told of what happens, and wakes the proxies that a change concerns."""

    def __init__(
        self, db: Mesh, discovery: Discovery, metrics: Metrics, clock: Clock, traces: Traces | None = None
    ) -> None:
        self._db, self._discovery, self._metrics, self._clock = db, discovery, metrics, clock
        self._services = db.watch(service_refs)
        self._traces = traces
        self._event = 0
        self._last_push: float | None = None

    def committed(self, commit: Commit) -> None:
        """Called when a batch of changes is in the tables."""
        catalogue, metrics = self._db.catalogue, self._metrics
        self._event += 1
        now = self._clock.time()
        since = "" if self._last_push is None else f", {now - self._last_push:.3f}s since last push"
        is_forced = any(catalogue.find_by_table(table) is None for table, _, _ in commit.edits)
        text = "Push debounce stable[%d] %d for config %s: %.3fs since last change%s, forced=%s"
        told = (
            self._event,
            commit.arrivals,
            first_and_more(catalogue, commit),
            now - commit.last,
            since,
            str(is_forced).lower(),
        )
        _ads.info(text, *told, extra=fields(event=self._event))
        self._last_push = now
        woken = self._discovery.wake(commit.hit, push_reasons(catalogue, commit), self._event)
        if self._traces is not None:
            self._traces.committed(self._event, commit, woken)
        count_updates(metrics, catalogue, commit)
        count_events(metrics, catalogue, commit)
        metrics.committed(commit.took)
        metrics.debounced(self._clock.time() - commit.first)
        self._db.refresh(self._services)
        services = 0 if self._services.value is UNSET else len(self._services.value)
        metrics.counted(services, len(VIRTUAL_SERVICE.table(self._db)))
        text = "XDS: Pushing Services:%d ConnectedEndpoints:%d Version:%s"
        _ads.info(text, services, woken, self._discovery.version, extra=fields(event=self._event))

    def noticed(self, problem: Problem) -> None:
        """Called with a user's mistake that was not there before."""
        log_problem(problem)
        if provider := find_lookup(self._db, problem):
            self._metrics.provider_lookup_failed(provider)
        if problem.severity is Severity.ERROR and problem.object.name:
            kind, namespace, name = problem.object
            self._metrics.rejected_config(
                self._db.catalogue.short_name(kind).lower(), f"{namespace}/{name}" if namespace else name
            )

    def failed(self, node: Node, error: Exception) -> None:
        """Called with a bug of ours: what depends on the derivation keeps its last good value."""
        self._metrics.derivation_failed(str(node.fn))
        _log.error("cannot derive %r", node.key, exc_info=error)
