"""Traces of changes for OpenTelemetry: one of each, from what was read over the commit to the proxies that acknowledged what follows from it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from pilot.ingest.batch import Commit
from pilot.lib.log import scope
from pilot.lib.xds_types import short_name
from pilot.settings.process import TraceSettings
from pilot.xds.progress import KEPT, EventOutcome
from pilot.xds.pusher import Pushed

SCOPE = "pyistiod"
_log = scope("default")


@dataclasses.dataclass
class _Change:
    """An event on its way. Times are monotonic seconds, 0.0 where there is none yet."""

    commit: Commit
    committed: float
    attributes: dict[str, Any]
    derived_from: float = 0.0
    derived: float = 0.0
    deriving: float = 0.0
    pushed_from: float = 0.0
    pushed: float = 0.0
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    responses: dict[str, int] = dataclasses.field(default_factory=dict)


class Traces:
    """Makes spans when an event is over. `tracer`: of OpenTelemetry."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self._changes: dict[int, _Change] = {}

    def committed(self, event: int, commit: Commit, proxies: int) -> None:
        """A batch of changes is in the tables, and concerns so many proxies."""
        kinds = {f"pilot.changes.{table}.{what}": count for (table, what), count in sorted(commit.events.items())}
        attributes = {"pilot.event": event, "pilot.changes": len(commit.edits), "pilot.proxies": proxies, **kinds}
        self._changes[event] = _Change(commit, time.monotonic(), attributes)
        if not proxies:
            self.finished(EventOutcome(event, 0, 0, 0, 0, 0.0))
        elif len(self._changes) > KEPT:
            del self._changes[next(iter(self._changes))]

    def pushed(self, push: Pushed) -> None:
        """A response has been written."""
        kind = short_name(push.type_url)
        for event in push.events:
            change = self._changes.get(event)
            if change is None:
                continue
            change.derived_from, change.pushed_from = change.derived_from or push.began, change.pushed_from or push.made
            change.derived, change.deriving = max(change.derived, push.made), change.deriving + push.made - push.began
            change.pushed = max(change.pushed, push.written)
            change.sizes[kind] = change.sizes.get(kind, 0) + push.size
            change.responses[kind] = change.responses.get(kind, 0) + 1

    def finished(self, outcome: EventOutcome) -> None:
        """All proxies have answered what follows from an event, or are gone."""
        change = self._changes.pop(outcome.event, None)
        if change is not None:
            self._tell(change, outcome)

    def _tell(self, change: _Change, outcome: EventOutcome) -> None:
        commit, now = change.commit, time.monotonic()
        since = time.time_ns() - round(now * 1e9)
        answers = {
            "pilot.acknowledged": outcome.acknowledged,
            "pilot.refused": outcome.refused,
            "pilot.gone": outcome.gone,
        }
        from opentelemetry import trace

        root = self._tracer.start_span(
            "change", start_time=_nanoseconds(commit.first, since), attributes={**change.attributes, **answers}
        )
        if outcome.refused:
            root.set_status(trace.Status(trace.StatusCode.ERROR, f"{outcome.refused} proxies have refused some of it"))
        within = trace.set_span_in_context(root)

        def span(name: str, start: float, end: float, attributes: Mapping[str, Any]) -> None:
            made = self._tracer.start_span(name, within, start_time=_nanoseconds(start, since), attributes=attributes)
            made.end(_nanoseconds(max(start, end), since))

        span("read", commit.first, commit.last, {"pilot.arrivals": commit.arrivals})
        span("commit", change.committed - commit.took, change.committed, {"pilot.reached": len(commit.hit)})
        if change.pushed:
            span("derive", change.derived_from, change.derived, {"pilot.seconds": change.deriving})
            sizes = {f"pilot.bytes.{kind}": size for kind, size in change.sizes.items()}
            span(
                "push",
                change.pushed_from,
                change.pushed,
                {**sizes, **{f"pilot.responses.{kind}": n for kind, n in change.responses.items()}},
            )
            span("ack", change.pushed_from, now, answers)
        root.end(_nanoseconds(now, since))


def _nanoseconds(monotonic: float, since: int) -> int:
    """Returns Unix nanoseconds of a monotonic time."""
    return round(monotonic * 1e9) + since


class Exporting:
    """A provider of tracers that sends spans to a collector in the background, and its end."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    @property
    def traces(self) -> Traces:
        return Traces(self._provider.get_tracer(SCOPE))

    def stop(self) -> None:
        """Sends what is left."""
        self._provider.shutdown()


def start_export(settings: TraceSettings, version: str) -> Exporting | None:
    """Returns what exports traces; None where no endpoint is set, or OpenTelemetry is not installed."""
    if not settings.endpoint:
        return None
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from pilot.bootstrap.otlp import OtlpExporter
    except ImportError:
        _log.warning("traces go nowhere: OpenTelemetry is not installed; it is with pip install 'pyistiod[tracing]'")
        return None
    provider = TracerProvider(resource=Resource.create({"service.name": settings.service, "service.version": version}))
    provider.add_span_processor(BatchSpanProcessor(OtlpExporter(settings.endpoint, settings.headers)))
    return Exporting(provider)
