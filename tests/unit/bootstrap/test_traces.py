"""Spans of configuration changes."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from pilot.bootstrap import traces
from pilot.bootstrap.traces import SCOPE, ChangeTraces, start_export
from pilot.config.kinds.kubernetes import SERVICE
from pilot.ingest.batch import Commit
from pilot.settings.process import TraceSettings
from pilot.xds.push.event_progress import MAX_EVENTS, EventOutcome
from pilot.xds.push.pusher import Pushed
from testing.servers.trace_collectors import JsonCollector

CDS, EDS = (
    "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
)
COMMIT = Commit(
    [None, None, None],
    [("services", "a", 1), ("services", "b", None)],
    4,
    100.0,
    101.0,
    Counter({(SERVICE.table_name, "add"): 2}),
    0.25,
)


class Harness:
    """Traces with a monotonic clock that the test sets. Unix time is 1000 seconds ahead."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 102.0
        patch.setattr(traces, "time", self)
        self._exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.traces = ChangeTraces(provider.get_tracer(SCOPE))

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return round((self.now + 1000) * 1e9)

    def spans(self) -> list[Any]:
        return list(self._exporter.get_finished_spans())

    def rows(self) -> dict[str, tuple[float, float, dict[str, Any]]]:
        """Return the start, end and attributes of each span by name, in monotonic seconds."""
        return {s.name: (s.start_time / 1e9 - 1000, s.end_time / 1e9 - 1000, dict(s.attributes)) for s in self.spans()}


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Harness:
    return Harness(monkeypatch)


def test_change_span_covers_first_edit_to_last_ack(harness: Harness) -> None:
    harness.traces.on_commit(7, COMMIT, 2)
    harness.traces.on_push(Pushed((6, 7), CDS, 1000, 103.0, 103.5, 104.0))
    harness.traces.on_push(Pushed((7,), CDS, 24, 102.5, 102.75, 106.0))
    harness.traces.on_push(Pushed((7,), EDS, 3, 105.0, 105.5, 105.75))
    assert harness.spans() == []
    harness.now = 108.0
    harness.traces.on_outcome(EventOutcome(7, 2, 2, 0, 0, 6.0))
    acks = {"pilot.acknowledged": 2, "pilot.refused": 0, "pilot.gone": 0}
    sizes = {"pilot.bytes.cds": 1024, "pilot.bytes.eds": 3, "pilot.responses.cds": 2, "pilot.responses.eds": 1}
    change = {"pilot.event": 7, "pilot.changes": 2, "pilot.proxies": 2, "pilot.changes.Service.add": 2, **acks}
    assert harness.rows() == {
        "read": (100.0, 101.0, {"pilot.arrivals": 4}),
        "commit": (101.75, 102.0, {"pilot.reached": 3}),
        "derive": (103.0, 105.5, {"pilot.seconds": 1.25}),
        "push": (103.5, 106.0, sizes),
        "ack": (103.5, 108.0, acks),
        "change": (100.0, 108.0, change),
    }
    root = next(span for span in harness.spans() if span.name == "change")
    assert root.status.status_code is StatusCode.UNSET
    assert {span.parent.span_id for span in harness.spans() if span is not root} == {root.context.span_id}
    harness.traces.on_outcome(EventOutcome(7, 2, 2, 0, 0, 6.0))
    assert len(harness.spans()) == 6, "outcomes are reported once"


def test_change_without_proxies_is_reported_at_once(harness: Harness) -> None:
    harness.traces.on_commit(1, COMMIT, 0)
    assert list(harness.rows()) == ["read", "commit", "change"]
    assert harness.rows()["change"][2]["pilot.proxies"] == 0
    assert {harness.rows()["change"][2][f"pilot.{name}"] for name in ("acknowledged", "refused", "gone")} == {0}


def test_nacked_change_is_an_error(harness: Harness) -> None:
    harness.traces.on_commit(1, COMMIT, 3)
    harness.traces.on_outcome(EventOutcome(1, 3, 0, 2, 1, 1.0))
    [root] = [span for span in harness.spans() if span.name == "change"]
    assert (root.status.status_code, root.status.description) == (StatusCode.ERROR, "2 proxies rejected some of it")
    assert {name: root.attributes[f"pilot.{name}"] for name in ("acknowledged", "refused", "gone")} == {
        "acknowledged": 0,
        "refused": 2,
        "gone": 1,
    }


def test_span_never_ends_before_it_starts(harness: Harness) -> None:
    harness.traces.on_commit(1, COMMIT._replace(first=100.0, last=99.0), 0)
    assert harness.rows()["read"][:2] == (100.0, 100.0)


def test_unacknowledged_changes_are_limited(harness: Harness) -> None:
    for event in range(MAX_EVENTS + 1):
        harness.traces.on_commit(event, COMMIT, 1)
    for event in (0, 1):
        harness.traces.on_outcome(EventOutcome(event, 1, 1, 0, 0, 1.0))
    assert [span.attributes["pilot.event"] for span in harness.spans() if span.name == "change"] == [1]


# -- export ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def collector() -> Iterator[JsonCollector]:
    stub = JsonCollector()
    yield stub
    stub.stop()


def test_export_needs_an_endpoint() -> None:
    assert start_export(TraceSettings(), "1") is None


def test_missing_opentelemetry_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert start_export(TraceSettings(endpoint="http://127.0.0.1:1"), "1") is None
    assert caplog.messages == ["traces are disabled: OpenTelemetry is not installed (pip install 'pyistiod[tracing]')"]


def test_stop_flushes_spans_with_the_service_resource(collector: JsonCollector) -> None:
    export = start_export(TraceSettings(endpoint=collector.url, headers="x-tenant=b", service="blue"), "1.2")
    assert export is not None
    now = time.monotonic()
    export.traces.on_commit(1, COMMIT._replace(first=now, last=now), 0)
    export.stop()
    assert [span["name"] for span in collector.spans()] == ["read", "commit", "change"]
    [resource] = {json.dumps(request["resourceSpans"][0]["resource"]) for request in collector.requests}
    attributes = {item["key"]: item["value"]["stringValue"] for item in json.loads(resource)["attributes"]}
    assert (attributes["service.name"], attributes["service.version"]) == ("blue", "1.2")
    assert collector.headers["x-tenant"] == "b"
