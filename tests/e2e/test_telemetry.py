"""A stock Envoy under Telemetry resources: access logs, spans, and CEL filters."""

from __future__ import annotations

import json
import pathlib
import random
import subprocess
import urllib.request
from collections.abc import Callable, Iterator

import pytest
import yaml

from pilot.agent.envoy.envoy_bootstrap import ProxyNode
from testing.mesh.objects import Plain, make
from testing.processes.process import ControlPlane, Envoy, envoy_binary, eventually, free_port
from testing.servers.backends import Backend, HttpResponse, send_request
from testing.servers.trace_collectors import Collector, Span, SpanServer
from tests.unit.lib.test_cel import ACCEPTED, REJECTED

LABELS = {"istio": "edge"}
CANONICAL = "edge-0.edge"
TEXT_AND_JSON = "providers: [{name: text}, {name: json}]"


def server(name: str, port: int, protocol: str) -> Plain:
    """Return a ServiceEntry for a local server."""
    return make(
        "ServiceEntry",
        name,
        json.dumps(
            {
                "hosts": [f"{name}.test"],
                "resolution": "STATIC",
                "location": "MESH_EXTERNAL",
                "ports": [{"number": 80, "name": "p", "protocol": protocol}],
                "endpoints": [{"address": "127.0.0.1", "ports": {"p": port}}],
            }
        ),
        "edge",
    )


class Edge:
    """A gateway in front of a server, with span collectors and log files."""

    def __init__(self, work: pathlib.Path) -> None:
        self.work, self.folder = work, work / "config"
        self.folder.mkdir()
        self.port = free_port()
        self.backend, self.http, self.collector = Backend("usual"), SpanServer(), Collector()
        self._write("base", self._base())
        self.plane = ControlPlane(work, self.folder, self._mesh(), environ={"SPAN_TOKEN": "open sesame"})
        self.plane.wait_ready()
        self.envoy = Envoy(
            work,
            ProxyNode(type="router", name="edge-0", namespace="edge", ip="10.99.0.3", labels=LABELS),
            self.plane.xds,
        )
        self._round = 0

    def _mesh(self) -> str:
        logs = {
            "text": {"text": "%REQ(:METHOD)% %REQ(:PATH)% %RESPONSE_CODE%"},
            "json": {"labels": {"code": "%RESPONSE_CODE%", "of": {"path": "%REQ(:PATH)%"}}},
            "errors": {"text": "%RESPONSE_CODE% %REQ(:PATH)%"},
        }
        providers: list[Plain] = [
            {"name": name, "envoyFileAccessLog": {"path": str(self.work / f"{name}.log"), "logFormat": log_format}}
            for name, log_format in logs.items()
        ]
        headers = [{"name": "x-tenant", "value": "shop"}, {"name": "x-token", "envName": "SPAN_TOKEN"}]
        providers += [
            {"name": "zipkin", "zipkin": {"service": "http.test", "port": 80, "headers": headers}},
            {"name": "datadog", "datadog": {"service": "edge/http.test", "port": 80}},
            {
                "name": "otel",
                "opentelemetry": {"service": "collector.test", "port": 80, "resourceDetectors": {"environment": {}}},
            },
        ]
        return yaml.safe_dump({"extensionProviders": providers})

    def _base(self) -> list[Plain]:
        servers = [
            {"port": {"number": self.port, "name": "http", "protocol": "HTTP"}, "hosts": ["*"], "bind": "127.0.0.1"}
        ]
        routes = [
            {"match": [{"uri": {"prefix": "/tea"}}], "directResponse": {"status": 418}},
            {"route": [{"destination": {"host": "usual.test"}}]},
        ]
        return [
            make("Gateway", "front", json.dumps({"selector": LABELS, "servers": servers}), "edge"),
            make("VirtualService", "all", json.dumps({"hosts": ["*"], "gateways": ["front"], "http": routes}), "edge"),
            server("usual", self.backend.port, "HTTP"),
            server("http", self.http.port, "HTTP"),
            server("collector", self.collector.port, "GRPC"),
        ]

    def _write(self, name: str, objects: list[Plain]) -> None:
        (self.folder / f"{name}.next").write_text(yaml.safe_dump_all(objects))
        (self.folder / f"{name}.next").rename(self.folder / f"{name}.yaml")

    def apply(self, spec: str, tracing: str = "providers: [{name: otel}]") -> str:
        """Replace the Telemetry of the gateway, wait until it is active in its Envoy, and return a tag of its spans."""
        self._round += 1
        mark = f"round-{self._round}"
        tags = f"customTags: {{mark: {{literal: {{value: {mark}}}}}, path: {{formatter: {{value: '%REQ(:PATH)%'}}}}}}"
        self._write(
            "telemetry",
            [make("Telemetry", "t", f"{{tracing: [{{{tracing}, {tags}}}]{', ' + spec if spec else ''}}}", "edge")],
        )

        def active() -> bool:
            self.envoy.check_alive()
            listeners = json.loads(self.envoy.get("/config_dump?resource=dynamic_listeners")).get("configs", ())
            return any(f'"{mark}"' in json.dumps(listener.get("active_state", {})) for listener in listeners)

        eventually(active, 30, f"{mark} in Envoy: {self.envoy.tail(5)}")
        return mark

    def ask(self, path: str) -> HttpResponse:
        return send_request(("127.0.0.1", self.port), path, host="a.test")

    def lines(self, name: str, count: int) -> list[str]:
        """Return the lines of a log once it has at least this many."""
        urllib.request.urlopen(
            urllib.request.Request(f"http://{self.envoy.admin}/reopen_logs", method="POST"), timeout=5
        ).close()
        file = self.work / f"{name}.log"
        return eventually(
            lambda: lines if len(lines := file.read_text().splitlines()) >= count else None, 15, f"lines of {name}"
        )

    def spans(self, mark: str, collected: Callable[[], list[Span]]) -> list[Span]:
        """Send some requests and return their spans from a collector."""
        for _ in range(6):
            assert self.ask("/traced").status == 200
        return eventually(lambda: [s for s in collected() if s.tags.get("mark") == mark], 20, f"spans of {mark}")

    def stop(self) -> None:
        self.envoy.stop()
        self.plane.stop()
        for server in (self.backend, self.http, self.collector):
            server.stop()


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    env = Edge(tmp_path_factory.mktemp("edge"))
    try:
        env.apply("")
        eventually(lambda: env.ask("/").status == 200, 20, "the gateway answers")
        yield env
        assert env.envoy.rejected() == {}, env.envoy.tail()
    finally:
        env.stop()


def test_access_logs_of_providers(edge: Edge) -> None:
    error_filter = "filter: {expression: 'response.code >= 400 && request.url_path.startsWith(\"/te\")'}"
    edge.apply(f"accessLogging: [{{{TEXT_AND_JSON}}}, {{providers: [{{name: errors}}], {error_filter}}}]")
    for path in ("/one", "/tea", "/two"):
        edge.ask(path)
    assert edge.lines("text", 3)[-3:] == ["GET /one 200", "GET /tea 418", "GET /two 200"]
    assert json.loads(edge.lines("json", 3)[-1]) == {"code": 200, "of": {"path": "/two"}}
    assert edge.lines("errors", 1) == ["418 /tea"]
    edge.apply(f"accessLogging: [{{{TEXT_AND_JSON}}}, {{disabled: true, providers: [{{name: text}}]}}]")
    count = len(edge.lines("text", 3))
    edge.ask("/three")
    assert "/three" in edge.lines("json", 4)[-1]
    assert len(edge.lines("text", count)) == count


def test_zipkin_spans_have_headers_and_tags(edge: Edge) -> None:
    mark = edge.apply("", "providers: [{name: zipkin}], randomSamplingPercentage: 100")
    spans = edge.spans(mark, lambda: edge.http.spans)
    assert {s.tags["path"] for s in spans} == {"/traced"}
    assert spans[0].tags["istio.namespace"] == "edge"
    assert (edge.http.headers["x-tenant"], edge.http.headers["x-token"]) == ("shop", "open sesame")
    assert edge.backend.requests[-1].headers["x-b3-sampled"] == "1"


def test_zero_sampling(edge: Edge) -> None:
    edge.apply("", "providers: [{name: zipkin}], randomSamplingPercentage: 0")
    edge.ask("/untraced")
    assert edge.backend.requests[-1].headers["x-b3-sampled"] == "0"


def test_datadog_spans_have_the_node_name(edge: Edge) -> None:
    mark = edge.apply("", "providers: [{name: datadog}], randomSamplingPercentage: 100, enableIstioTags: false")
    spans = edge.spans(mark, lambda: edge.http.spans)
    assert {s.service for s in spans} == {CANONICAL}
    assert not any(tag.startswith("istio.") for s in spans for tag in s.tags)


def test_opentelemetry_spans(edge: Edge) -> None:
    mark = edge.apply("", "providers: [{name: otel}], randomSamplingPercentage: 100")
    spans = edge.spans(mark, lambda: edge.collector.spans)
    assert {s.service for s in spans} == {CANONICAL}
    assert {s.tags["path"] for s in spans} == {"/traced"}


def test_disabled_context_propagation(edge: Edge) -> None:
    edge.apply("", "providers: [{name: zipkin}], randomSamplingPercentage: 100, disableContextPropagation: true")
    edge.ask("/quiet")
    assert "x-b3-traceid" not in edge.backend.requests[-1].headers


def is_accepted(*expressions: str) -> bool:
    """Return whether Envoy accepts a listener whose access logs have these filters."""
    api = "type.googleapis.com/envoy.extensions.access_loggers"
    logs = [
        {
            "name": "log",
            "filter": {
                "extension_filter": {
                    "name": "cel",
                    "typed_config": {"@type": f"{api}.filters.cel.v3.ExpressionFilter", "expression": e},
                }
            },
            "typed_config": {"@type": f"{api}.stream.v3.StdoutAccessLog"},
        }
        for e in expressions
    ]
    tcp = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "a",
        "cluster": "c",
    }
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    listener = {
        "name": "l",
        "address": address,
        "access_log": logs,
        "filter_chains": [{"filters": [{"name": "tcp", "typed_config": tcp}]}],
    }
    config = json.dumps({"static_resources": {"listeners": [listener], "clusters": [{"name": "c"}]}})
    return (
        subprocess.run(
            [envoy_binary(), "--mode", "validate", "--config-yaml", config], capture_output=True, check=False
        ).returncode
        == 0
    )


def test_cel_validation_agrees_with_envoy(seed: int) -> None:
    assert is_accepted(*ACCEPTED)
    for expression in random.Random(seed).sample(REJECTED, 3):
        assert not is_accepted(expression), expression
