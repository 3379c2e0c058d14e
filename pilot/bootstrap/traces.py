"""OpenTelemetry traces of configuration changes, from reading to the commit and the proxies' acknowledgements."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pilot.ingest.batch import Commit
from pilot.lib.logging.log import scope
from pilot.lib.xds_types import short_name
from pilot.settings.process import TraceSettings
from pilot.xds.push.event_progress import MAX_EVENTS, EventOutcome
from pilot.xds.push.pusher import Pushed

SCOPE = "pyistiod"
_log = scope("default")


@dataclasses.dataclass
class _Change:
    """An event in progress. Times are in monotonic seconds. A time that is not known yet is 0.0."""

    commit: Commit
    committed_at: float
    attributes: dict[str, Any]
    derive_start: float = 0.0
    derive_end: float = 0.0
    derive_seconds: float = 0.0
    push_start: float = 0.0
    push_end: float = 0.0
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    responses: dict[str, int] = dataclasses.field(default_factory=dict)


class ChangeTraces:
    """Creates the spans of an event when the event has finished. `tracer` is an OpenTelemetry tracer."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self._changes: dict[int, _Change] = {}

    def on_commit(self, event: int, commit: Commit, proxies: int) -> None:
        """Handle a committed batch of changes. `proxies` is the number of affected proxies."""
        kinds: Counter[str] = Counter()
        for (table, what), count in sorted(commit.events.items()):
            kinds[f"pilot.changes.{table.rpartition('/')[2]}.{what}"] += count
        attributes = {"pilot.event": event, "pilot.changes": len(commit.edits), "pilot.proxies": proxies, **kinds}
        self._changes[event] = _Change(commit, time.monotonic(), attributes)
        if not proxies:
            self.on_outcome(EventOutcome(event, 0, 0, 0, 0, 0.0))
        elif len(self._changes) > MAX_EVENTS:
            del self._changes[next(iter(self._changes))]

    def on_push(self, push: Pushed) -> None:
        """Handle a response that was written to a stream."""
        type_name = short_name(push.type_url)
        for event in push.events:
            change = self._changes.get(event)
            if change is None:
                continue
            change.derive_start = change.derive_start or push.began
            change.push_start = change.push_start or push.encoded
            change.derive_end = max(change.derive_end, push.encoded)
            change.derive_seconds = change.derive_seconds + push.encoded - push.began
            change.push_end = max(change.push_end, push.written)
            change.sizes[type_name] = change.sizes.get(type_name, 0) + push.size
            change.responses[type_name] = change.responses.get(type_name, 0) + 1

    def on_outcome(self, outcome: EventOutcome) -> None:
        """Handle the end of an event. All proxies have responded or disconnected."""
        change = self._changes.pop(outcome.event, None)
        if change is not None:
            self._create_spans(change, outcome)

    def _create_spans(self, change: _Change, outcome: EventOutcome) -> None:
        commit, now = change.commit, time.monotonic()
        offset = time.time_ns() - round(now * 1e9)
        answers = {
            "pilot.acknowledged": outcome.acknowledged,
            "pilot.refused": outcome.nacked,
            "pilot.gone": outcome.disconnected,
        }
        from opentelemetry import trace

        root = self._tracer.start_span(
            "change", start_time=_nanoseconds(commit.first, offset), attributes={**change.attributes, **answers}
        )
        if outcome.nacked:
            root.set_status(trace.Status(trace.StatusCode.ERROR, f"{outcome.nacked} proxies rejected some of it"))
        context = trace.set_span_in_context(root)

        def add_span(name: str, start: float, end: float, attributes: Mapping[str, Any]) -> None:
            span = self._tracer.start_span(name, context, start_time=_nanoseconds(start, offset), attributes=attributes)
            span.end(_nanoseconds(max(start, end), offset))

        add_span("read", commit.first, commit.last, {"pilot.arrivals": commit.arrivals})
        commit_start = change.committed_at - commit.took
        add_span("commit", commit_start, change.committed_at, {"pilot.reached": len(commit.hit)})
        if change.push_end:
            derive_attributes = {"pilot.seconds": change.derive_seconds}
            add_span("derive", change.derive_start, change.derive_end, derive_attributes)
            sizes = {f"pilot.bytes.{type_name}": size for type_name, size in change.sizes.items()}
            counts = {f"pilot.responses.{type_name}": count for type_name, count in change.responses.items()}
            add_span("push", change.push_start, change.push_end, {**sizes, **counts})
            add_span("ack", change.push_start, now, answers)
        root.end(_nanoseconds(now, offset))


def _nanoseconds(monotonic: float, offset: int) -> int:
    """Return a monotonic time as Unix time in nanoseconds."""
    return round(monotonic * 1e9) + offset


class TraceExport:
    """A tracer provider that sends spans to a collector in the background."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self.traces = ChangeTraces(provider.get_tracer(SCOPE))

    def stop(self) -> None:
        """Send the remaining spans."""
        self._provider.shutdown()


def start_export(settings: TraceSettings, version: str) -> TraceExport | None:
    """Return the trace export, or None if no endpoint is set or OpenTelemetry is not installed."""
    if not settings.endpoint:
        return None
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from pilot.bootstrap.otlp import OtlpExporter
    except ImportError:
        _log.warning("traces are disabled: OpenTelemetry is not installed (pip install 'pyistiod[tracing]')")
        return None
    provider = TracerProvider(resource=Resource.create({"service.name": settings.service, "service.version": version}))
    provider.add_span_processor(BatchSpanProcessor(OtlpExporter(settings.endpoint, settings.headers)))
    return TraceExport(provider)
