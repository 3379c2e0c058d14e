"""Spans of configuration changes and their export."""

from __future__ import annotations

import json
import logging
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, Status, StatusCode

from pilot.bootstrap import traces
from pilot.bootstrap.otlp import OtlpExporter, encode_spans, parse_headers
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


def spans_of(**attributes: Any) -> list[Any]:
    """Return an outer span from second 1 to 2 and an inner one from 2 to 3."""
    exporter, provider = (
        InMemorySpanExporter(),
        TracerProvider(resource=Resource({"service.name": "pilot", "count": 3})),
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("pyistiod")
    with tracer.start_as_current_span("outer", start_time=10**9, end_on_exit=False) as outer:
        inner = tracer.start_span("inner", start_time=2 * 10**9, attributes=attributes)
        inner.set_status(Status(StatusCode.ERROR, "too bad"))
        inner.end(3 * 10**9)
    outer.end(2 * 10**9)
    return list(exporter.get_finished_spans())


def identity(context: SpanContext) -> dict[str, str]:
    return {"traceId": format(context.trace_id, "032x"), "spanId": format(context.span_id, "016x")}


def test_otlp_encoding_of_spans() -> None:
    inner, outer = spans_of(yes=True, count=7, part=0.5, text="a")
    attributes = [
        {"key": "yes", "value": {"boolValue": True}},
        {"key": "count", "value": {"intValue": "7"}},
        {"key": "part", "value": {"doubleValue": 0.5}},
        {"key": "text", "value": {"stringValue": "a"}},
    ]
    spans = [
        {
            **identity(inner.context),
            "name": "inner",
            "kind": 1,
            "startTimeUnixNano": "2000000000",
            "endTimeUnixNano": "3000000000",
            "attributes": attributes,
            "status": {"code": 2, "message": "too bad"},
            "parentSpanId": identity(outer.context)["spanId"],
        },
        {
            **identity(outer.context),
            "name": "outer",
            "kind": 1,
            "startTimeUnixNano": "1000000000",
            "endTimeUnixNano": "2000000000",
            "attributes": [],
            "status": {"code": 0},
        },
    ]
    resource = [
        {"key": "service.name", "value": {"stringValue": "pilot"}},
        {"key": "count", "value": {"intValue": "3"}},
    ]
    scope = {"scope": {"name": "pyistiod"}, "spans": spans}
    assert encode_spans([inner, outer]) == {
        "resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [scope]}]
    }
    assert encode_spans([]) == {"resourceSpans": []}


@pytest.fixture
def collector() -> Iterator[JsonCollector]:
    stub = JsonCollector()
    yield stub
    stub.stop()


def test_spans_are_posted_with_the_configured_headers(collector: JsonCollector) -> None:
    exporter, spans = OtlpExporter(f"{collector.url}/", "x-tenant=a%20b"), spans_of()
    assert exporter.export(spans) is SpanExportResult.SUCCESS
    assert exporter.force_flush() is True
    [request] = collector.requests
    assert (request["path"], request["resourceSpans"]) == (
        "/v1/traces",
        json.loads(json.dumps(encode_spans(spans)))["resourceSpans"],
    )
    assert (collector.headers["x-tenant"], collector.headers["content-type"]) == ("a b", "application/json")


def test_unreachable_collector_is_logged_once(
    collector: JsonCollector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    exporter, real_urlopen = OtlpExporter(collector.url, ""), urllib.request.urlopen

    def refuse(*_: Any, **__: Any) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")

    with caplog.at_level(logging.WARNING, "pilot"):
        for _ in range(2):
            for urlopen, result in (
                *3 * ((refuse, SpanExportResult.FAILURE),),
                (real_urlopen, SpanExportResult.SUCCESS),
            ):
                monkeypatch.setattr(urllib.request, "urlopen", urlopen)
                assert exporter.export(spans_of()) is result
    assert caplog.messages == [f"cannot send traces to {collector.url}/v1/traces: [Errno 111] Connection refused"] * 2
    assert len(collector.requests) == 2


def test_invalid_endpoint_fails_the_export() -> None:
    assert OtlpExporter("collector", "").export(spans_of()) is SpanExportResult.FAILURE


def test_parsing_of_headers() -> None:
    assert parse_headers("a=b, c = d%2Ce ,,nonsense") == {"a": "b", "c": "d,e"}


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
