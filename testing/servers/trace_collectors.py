"""Stubs for trace collectors: Zipkin, the Datadog agent and the OpenTelemetry collector. They store received spans."""

from __future__ import annotations

import concurrent.futures
import http.server
import threading
from typing import Any, NamedTuple

import grpc
import msgspec
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class Span(NamedTuple):
    """A received span."""

    service: str
    name: str
    tags: dict[str, str]


class SpanServer:
    """Receives spans over HTTP, in Zipkin's JSON at /api/v2/spans or from Datadog tracers.

    `headers` are those of the last request.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.headers: dict[str, str] = {}
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self._body()
                outer.headers = {name.lower(): value for name, value in self.headers.items()}
                if self.path == "/api/v2/spans":
                    outer.spans += [_zipkin(span) for span in msgspec.json.decode(body)]
                elif self.path.endswith("/traces"):
                    outer.spans += [_datadog(span) for trace in msgspec.msgpack.decode(body) for span in trace]
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_PUT = do_POST

            def _body(self) -> bytes:
                if "chunked" not in self.headers.get("transfer-encoding", ""):
                    return self.rfile.read(int(self.headers.get("content-length", 0)))
                parts = []
                while size := int(self.rfile.readline(), 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _zipkin(span: dict[str, Any]) -> Span:
    return Span(span["localEndpoint"]["serviceName"], span.get("name", ""), span.get("tags", {}))


def _datadog(span: dict[str, Any]) -> Span:
    return Span(span["service"], span["name"], span.get("meta", {}))


class Collector:
    """Receives spans over gRPC, as the OpenTelemetry collector does."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        server: Any = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        self._server = server
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        if details.method != EXPORT:
            return None
        request, response = trace_service_pb2.ExportTraceServiceRequest, trace_service_pb2.ExportTraceServiceResponse
        return grpc.unary_unary_rpc_method_handler(self._export, request.FromString, response.SerializeToString)

    def _export(self, request: Any, _: grpc.ServicerContext) -> Any:
        for resource in request.resource_spans:
            attributes = {a.key: a.value.string_value for a in resource.resource.attributes}
            # newer versions call this scope_spans
            for span in (span for scope in resource.instrumentation_library_spans for span in scope.spans):
                tags = {a.key: a.value.string_value for a in span.attributes}
                self.spans.append(Span(attributes.get("service.name", ""), span.name, tags))
        return trace_service_pb2.ExportTraceServiceResponse()

    def stop(self) -> None:
        self._server.stop(None)


class JsonCollector:
    """Receives OTLP spans in JSON over HTTP."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: dict[str, str] = {}
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.headers = {name.lower(): value for name, value in self.headers.items()}
                outer.requests.append(
                    {"path": self.path, **msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])))}
                )
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def spans(self) -> list[dict[str, Any]]:
        """Return the spans of all requests, with attributes as a mapping."""
        flattened = [
            span
            for r in self.requests
            for resource in r["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]
        return [
            {**span, "attributes": {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}}
            for span in flattened
        ]

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
