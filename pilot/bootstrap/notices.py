"""Reports configuration changes, users' mistakes and failed derivations in metrics and logs."""

from __future__ import annotations

import re
from collections.abc import Callable

from pilot.bootstrap.traces import ChangeTraces
from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.mesh.extension_provider import ExtensionProvider
from pilot.config.problem import Problem
from pilot.derive import UNSET, Node
from pilot.ingest.batch import Clock, Commit
from pilot.ingest.events import count_events, count_updates, first_and_more, push_reasons
from pilot.ingest.problems import log_problem
from pilot.lib.logging.log import fields, scope
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.analysis.mesh import MESH, SERVICE_NOT_FOUND
from pilot.mesh.registry.services import service_refs
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config
from pilot.xds.push.discovery import Discovery

_PROVIDER_PATH = re.compile(r"extensionProviders\[(\d+)\]", re.ASCII)
_PROVIDER_TYPES = {
    "zipkin": "zipkin",
    "datadog": "datadog",
    "skywalking": "skywalking",
    "opentelemetry": "opentelemetry",
    "opencensus": "opencensus",
    "lightstep": "lightstep",
    "envoy_http_als": "envoyHTTPAls",
    "envoy_tcp_als": "envoyTCPAls",
    "envoy_otel_als": "envoyOtelAls",
    "sds": "externalSds",
}
"""Mapping from the field of an extension provider to the label value of istiod's metric, which has no others."""
_log, _ads = scope("default"), scope("ads")


def ignore_change(event: int, commit: Commit, proxies: int) -> None:
    """Ignore a change."""


class ChangeReporter:
    """Reports changes, and notifies the proxies that a change affects.

    `on_change` is called with the number of each event, its commit and the number of affected proxies.
    """

    def __init__(
        self,
        db: Mesh,
        discovery: Discovery,
        metrics: Metrics,
        clock: Clock,
        traces: ChangeTraces | None = None,
        on_change: Callable[[int, Commit, int], None] = ignore_change,
    ) -> None:
        self._db, self._discovery, self._metrics, self._clock = db, discovery, metrics, clock
        self._services = db.watch(service_refs)
        self._traces, self._on_change = traces, on_change
        self._event = 0
        self._last_push: float | None = None

    def on_commit(self, commit: Commit) -> None:
        """Handle a committed batch of changes."""
        catalogue, metrics = self._db.catalogue, self._metrics
        self._event += 1
        now = self._clock.time()
        since = "" if self._last_push is None else f", {now - self._last_push:.3f}s since last push"
        is_forced = any(catalogue.find_by_table(table) is None for table in {table for table, _, _ in commit.edits})
        _ads.info(
            "Push debounce stable[%d] %d for config %s: %.3fs since last change%s, forced=%s",
            self._event,
            commit.arrivals,
            first_and_more(catalogue, commit),
            now - commit.last,
            since,
            str(is_forced).lower(),
            extra=fields(event=self._event),
        )
        self._last_push = now
        woken = self._discovery.wake(commit.hit, push_reasons(catalogue, commit), self._event, now - commit.first)
        if self._traces is not None:
            self._traces.on_commit(self._event, commit, woken)
        self._on_change(self._event, commit, woken)
        count_updates(metrics, catalogue, commit)
        count_events(metrics, catalogue, commit)
        metrics.committed(commit.took)
        metrics.debounced(self._clock.time() - commit.first)
        self._db.refresh(self._services)
        services = 0 if self._services.value is UNSET else len(self._services.value)
        metrics.counted(services, len(VIRTUAL_SERVICE.table(self._db)))
        text = "XDS: Pushing Services:%d ConnectedEndpoints:%d Version:%s"
        _ads.info(text, services, woken, self._discovery.version, extra=fields(event=self._event))

    def on_problem(self, problem: Problem) -> None:
        """Handle a new problem."""
        log_problem(problem)
        if provider := failed_provider_lookup(self._db, problem):
            self._metrics.provider_lookup_failed(provider)
        if problem.is_rejection and problem.object.name:
            kind, namespace, name = problem.object
            self._metrics.rejected_config(
                self._db.catalogue.short_name(kind).lower(), f"{namespace}/{name}" if namespace else name
            )


def report_failure(metrics: Metrics, node: Node, error: Exception) -> None:
    """Report a bug in a derivation. Values that depend on the derivation keep their last valid value."""
    metrics.derivation_failed(str(node.fn))
    _log.error("cannot derive %r", node.key, exc_info=error)


def failed_provider_lookup(db: Mesh, problem: Problem) -> str:
    """Return the type of the extension provider whose service does not exist. The type is a label value of istiod's
    metric.

    Return "" for other problems, and for types that the metric does not have.
    """
    is_lookup = problem.object == MESH and problem.code == SERVICE_NOT_FOUND
    match = _PROVIDER_PATH.fullmatch(problem.path) if is_lookup else None
    providers = mesh_config(db).extension_providers
    if match is None or int(match[1]) >= len(providers):
        return ""
    return _provider_type(providers[int(match[1])])


def _provider_type(provider: ExtensionProvider) -> str:
    return next((value for field, value in _PROVIDER_TYPES.items() if getattr(provider, field) is not None), "")
