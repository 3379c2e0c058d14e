"""Encoding and export of spans over OTLP."""

from __future__ import annotations

import json
import logging
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, Status, StatusCode

from pilot.bootstrap.otlp import OtlpExporter, encode_spans, parse_headers
from testing.servers.trace_collectors import JsonCollector


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
