"""Exports spans as OTLP JSON over HTTP. https://opentelemetry.io/docs/specs/otlp/#otlphttp"""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.sdk.trace.export import SpanExportResult

from pilot.lib.logging.log import scope

TIMEOUT = 10.0
_INTERNAL = 1
_log = scope("default")


class OtlpExporter:
    """An OpenTelemetry SpanExporter that posts spans to `endpoint`/v1/traces. It runs in its own thread.

    `headers` has the form "name=value,other=value".
    """

    def __init__(self, endpoint: str, headers: str) -> None:
        self._url = f"{endpoint.rstrip('/')}/v1/traces"
        self._headers = {"Content-Type": "application/json", **parse_headers(headers)}
        self._failed = False

    def shutdown(self) -> None:
        """Do nothing."""

    def force_flush(self, timeout_millis: int = 0) -> bool:
        """Return True, because nothing is buffered."""
        return True

    def export(self, spans: Sequence[Any]) -> Any:
        """Send spans. If that fails, the spans are lost. Only the first failure is logged."""
        body = json.dumps(encode_spans(spans), separators=(",", ":")).encode()
        try:
            request = urllib.request.Request(self._url, body, self._headers)
            with urllib.request.urlopen(request, timeout=TIMEOUT):
                self._failed = False
                return SpanExportResult.SUCCESS
        except (OSError, ValueError) as error:
            if not self._failed:
                _log.warning("cannot send traces to %s: %s", self._url, error)
            self._failed = True
            return SpanExportResult.FAILURE


def parse_headers(text: str) -> dict[str, str]:
    """Return the headers in a string of the form "name=value,other=value". Values may be percent-encoded."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip(): urllib.parse.unquote(value.strip()) for name, _, value in pairs}


def encode_spans(spans: Sequence[Any]) -> dict[str, Any]:
    """Return the spans of one process as an OTLP request."""
    if not spans:
        return {"resourceSpans": []}
    scope_spans = {"scope": {"name": spans[0].instrumentation_scope.name}, "spans": [_span(span) for span in spans]}
    return {
        "resourceSpans": [
            {"resource": {"attributes": _attributes(spans[0].resource.attributes)}, "scopeSpans": [scope_spans]}
        ]
    }


def _span(span: Any) -> dict[str, Any]:
    encoded = {
        "traceId": f"{span.context.trace_id:032x}",
        "spanId": f"{span.context.span_id:016x}",
        "name": span.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": _attributes(span.attributes or {}),
        "status": {
            "code": span.status.status_code.value,
            **({"message": span.status.description} if span.status.description else {}),
        },
    }
    return encoded | ({"parentSpanId": f"{span.parent.span_id:016x}"} if span.parent is not None else {})


def _attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}
