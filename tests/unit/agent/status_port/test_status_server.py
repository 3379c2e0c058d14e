"""The agent's status port: readiness, application probes, merged metrics and commands."""

from __future__ import annotations

import datetime
import http.client
import http.server
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from ca.csr import decode_csr
from ca.pem import key_pem
from pilot.agent.agent_metrics import AgentMetrics
from pilot.agent.envoy.admin_client import AdminClient, AdminError
from pilot.agent.status_port.app_probes import Probe, Prober, parse_probes
from pilot.agent.status_port.merged_metrics import MetricsTarget, parse_targets
from pilot.agent.status_port.readiness import STATS, Readiness
from pilot.agent.status_port.status_server import MAX_CONNECTIONS, StatusPages, StatusServer
from pilot.lib.start_error import StartError
from testing.processes.process import eventually
from testing.security import certificates

READY = {
    "server.state": 0,
    "listener_manager.workers_started": 1,
    "cluster_manager.cds.update_success": 1,
    "listener_manager.lds.update_success": 1,
}


class Envoy:
    """Envoy with the statistics that a test sets. None stands for no response."""

    def __init__(self, stats: dict[str, int] | None) -> None:
        self.current, self.requests = stats, list[str]()

    def stats(self, regex: str) -> dict[str, int]:
        self.requests.append(regex)
        if self.current is None:
            raise AdminError("Envoy's admin port does not respond")
        return self.current


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"server.state": 2}, "Envoy is not live (state 2)"),
        ({"listener_manager.workers_started": 0}, "Envoy's workers have not started"),
        ({"cluster_manager.cds.update_success": 0}, "Envoy has not received clusters"),
        (
            {"cluster_manager.cds.update_success": 0, "listener_manager.lds.update_success": 0},
            "Envoy has not received clusters and listeners",
        ),
        ({"listener_manager.lds.update_success": 0, "listener_manager.lds.update_rejected": 1}, ""),
        ({"cluster_manager.cds.update_success": 0, "cluster_manager.cds.update_rejected": 1}, ""),
        ({"cluster_manager.cds.update_rejected": 1, "listener_manager.lds.update_rejected": 1}, ""),
    ],
)
def test_readiness_needs_a_live_configured_envoy(changes: dict[str, int], reason: str) -> None:
    assert Readiness(Envoy({**READY, **changes})).failure() == reason


def test_after_first_readiness_only_liveness_is_checked() -> None:
    envoy = Envoy(READY)
    readiness = Readiness(envoy)
    assert readiness.failure() == ""
    envoy.current = {"server.state": 0}
    assert readiness.failure() == ""
    envoy.current = None
    assert readiness.failure() == "Envoy's admin port does not respond"
    assert envoy.requests == [STATS, r"^server\.state$", r"^server\.state$"]


def test_draining_proxy_is_not_ready() -> None:
    readiness = Readiness(Envoy(READY))
    readiness.draining = True
    assert readiness.failure() == "the proxy is draining"


class App(http.server.ThreadingHTTPServer):
    """An application that responds with its status and records requests."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        app = self
        self.status, self.body, self.requests = 200, b"fine", list[Any]()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                app.requests.append(
                    (self.path, {k.lower(): v for k, v in self.headers.items()}, self.client_address[0])
                )
                self.send_response(app.status)
                self.send_header("location", "http://elsewhere.example/")
                self.end_headers()
                self.wfile.write(app.body)

            def log_message(self, *_: object) -> None:
                """Silence the log."""

        super().__init__(("127.0.0.1", 0), Handler)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.port: int = self.server_address[1]
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


@pytest.fixture
def app() -> Iterator[App]:
    server = App()
    yield server
    server.stop()


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def probe(declared: Probe, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    return Prober({"/app-health/a/livez": declared}, "127.0.0.1", 15020).probe("/app-health/a/livez", headers or {})


def test_http_probe_request(app: App) -> None:
    response = probe(
        Probe("http", app.port, "/live?x=1", headers=(("X-Probe", "me"),)),
        {"User-Agent": "kube-probe/1", "Host": "10.0.0.1:15020"},
    )
    assert response == (200, b"fine")
    path, headers, source = app.requests[0]
    assert path == "/live?x=1"
    assert headers["host"] == f"10.0.0.1:{app.port}"
    assert (headers["user-agent"], headers["x-probe"]) == ("kube-probe/1", "me")
    assert source == "127.0.0.6"  # not captured by the redirection rules


def test_application_status_is_returned(app: App) -> None:
    app.status = 503
    assert probe(Probe("http", app.port)) == (503, b"fine")
    app.status = 302
    assert probe(Probe("http", app.port))[0] == 200


def test_declared_host_header_wins(app: App) -> None:
    probe(Probe("http", app.port, headers=(("Host", "shop.example"),)), {"Host": "10.0.0.1:15020"})
    assert app.requests[0][1]["host"] == "shop.example"


def test_https_probe_accepts_any_certificate(tmp_path: Any) -> None:
    root, key = certificates.root(), certificates.ec_key(3)
    leaf = root.issue(
        decode_csr(certificates.csr(key)), ["expired.example"], datetime.timedelta(hours=1), certificates.NOW
    )
    (tmp_path / "pem").write_bytes(root.chain(leaf)[0].encode() + key_pem(key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pem")
    app = App(context)
    assert probe(Probe("https", app.port)) == (200, b"fine")
    app.stop()


def test_tcp_probe_connects(app: App) -> None:
    assert probe(Probe("tcp", app.port)) == (200, b"")
    status, reason = probe(Probe("tcp", closed_port()))
    assert status == 500
    assert b"does not respond" in reason


def test_unreachable_application_fails_its_probe() -> None:
    assert probe(Probe("http", closed_port()))[0] == 500


def test_grpc_probe_checks_service_health() -> None:
    from concurrent import futures

    requests = []

    def check(request: bytes, context: Any) -> bytes:
        requests.append(request)
        return b"\x08\x01" if request == b"\x0a\x03shp" else b"\x08\x02"

    server = grpc.server(futures.ThreadPoolExecutor(2))
    handler = grpc.method_handlers_generic_handler(
        "grpc.health.v1.Health", {"Check": grpc.unary_unary_rpc_method_handler(check)}
    )
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    assert probe(Probe("grpc", port, service="shp", timeout=10))[0] == 200
    assert probe(Probe("grpc", port, timeout=10))[0] == 500
    assert requests == [b"\x0a\x03shp", b""]
    server.stop(None)
    assert probe(Probe("grpc", closed_port(), timeout=10))[0] == 500


def test_parsing_of_injected_probes() -> None:
    declarations = {
        "/app-health/web/livez": {
            "httpGet": {"path": "live", "port": 8080, "scheme": "HTTPS", "httpHeaders": [{"name": "A", "value": "b"}]}
        },
        "/app-health/web/readyz": {"tcpSocket": {"port": 9000}, "timeoutSeconds": 3},
        "/app-health/web/startupz": {"grpc": {"port": 9001, "service": "s"}},
        "/app-lifecycle/web/prestopz": {"httpGet": {"port": 1}},
    }
    assert parse_probes(json.dumps(declarations)) == {
        "/app-health/web/livez": Probe("https", 8080, "/live", headers=(("A", "b"),)),
        "/app-health/web/readyz": Probe("tcp", 9000, timeout=3),
        "/app-health/web/startupz": Probe("grpc", 9001, service="s"),
        "/app-lifecycle/web/prestopz": Probe("http", 1),
    }
    assert parse_probes("") == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "is not an object"),
        ('{"/other": {"tcpSocket": {"port": 1}}}', "/other: invalid path"),
        ('{"/app-health/a/livez": {}}', "/app-health/a/livez: expected exactly one of httpGet, tcpSocket and grpc"),
        ('{"/app-health/a/livez": {"tcpSocket": {"port": 1}, "grpc": {"port": 1}}}', "expected exactly one of"),
        (
            '{"/app-health/a/livez": {"tcpSocket": {"port": "http"}}}',
            r"livez.tcpSocket.port: 'http' is not a port number",
        ),
        (
            '{"/app-health/a/livez": {"httpGet": {"port": 1, "scheme": "FTP"}}}',
            "livez.httpGet.scheme: 'FTP' is neither",
        ),
        (
            json.dumps({"/app-health/a/livez": {"grpc": {"port": 1, "service": "x" * 128}}}),
            "livez.grpc.service: must be at most 127 bytes",
        ),
    ],
)
def test_invalid_probe_is_rejected(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_probes(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ('{"scrape": "false", "port": "9000"}', []),
        ('{"scrape": "true"}', [(80, "/metrics")]),
        ('{"scrape": "true", "port": "9000", "path": "/m"}', [(9000, "/m")]),
        ('{"targets": [{"port": "9000", "path": "/m"}, {"port": "9001"}]}', [(9000, "/m"), (9001, "/metrics")]),
    ],
)
def test_parsing_of_scrape_targets(text: str, expected: list[tuple[int, str]]) -> None:
    assert [(target.port, target.path) for target in parse_targets(text, "127.0.0.1", 15020)] == expected


@pytest.mark.parametrize("port", ["15090", "15020", "016000", "0", "http", "70000"])
def test_reserved_or_invalid_scrape_port_is_rejected(port: str) -> None:
    with pytest.raises(ValueError, match="variable ISTIO_PROMETHEUS_ANNOTATIONS"):
        parse_targets(json.dumps({"port": port}), "127.0.0.1", 16000)


class Harness:
    """A status server with one Envoy and one application."""

    def __init__(self, envoy: Envoy, targets: tuple[MetricsTarget, ...] = ()) -> None:
        self.metrics, self.commands = AgentMetrics(), list[str]()
        pages = StatusPages(
            Readiness(envoy),
            Prober({}, "127.0.0.1", 0),
            self.metrics,
            targets,
            {"/quitquitquit": lambda: self.commands.append("quit")},
        )
        self.server = StatusServer(0, pages)
        self.server.start()

    def request(self, path: str, method: str = "GET", host: str = "127.0.0.1") -> tuple[int, str]:
        connection = http.client.HTTPConnection(host, self.server.port, timeout=20)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


@pytest.fixture
def status_server() -> Iterator[Harness]:
    harness = Harness(Envoy(READY))
    yield harness
    harness.server.stop()


def test_ready_endpoint_returns_the_status(status_server: Harness) -> None:
    assert status_server.request("/healthz/ready") == (200, "")
    assert "istio_agent_startup_duration_seconds" in status_server.metrics.render().decode()
    unready = Harness(Envoy(None))
    assert unready.request("/healthz/ready") == (503, "Envoy's admin port does not respond\n")
    unready.server.stop()


def test_metrics_page_ends_with_its_connection(status_server: Harness) -> None:
    with socket.create_connection(("127.0.0.1", status_server.server.port), timeout=20) as connection:
        connection.sendall(b"GET /stats/prometheus HTTP/1.1\r\nHost: a\r\n\r\n")
        response = b"".join(iter(lambda: connection.recv(65536), b""))
    head = response.partition(b"\r\n\r\n")[0].lower()
    assert head.startswith(b"http/1.1 200 ")
    assert b"\r\nconnection: close" in head
    assert b"\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8" in head
    assert b"content-length" not in head
    assert "istio_agent_scrapes_total 1\n" in status_server.metrics.render().decode()


def test_commands_require_post(status_server: Harness) -> None:
    assert status_server.request("/quitquitquit") == (405, "use POST\n")
    assert status_server.commands == []
    assert status_server.request("/quitquitquit", "POST") == (200, "OK\n")
    eventually(lambda: status_server.commands == ["quit"], 10, "the command runs after the response")
    assert status_server.request("/other", "POST")[0] == status_server.request("/other")[0] == 404


def test_remote_commands_are_rejected(status_server: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilot.agent.status_port.status_server._is_loopback", lambda address: False)
    assert status_server.request("/quitquitquit", "POST")[0] == 403
    assert status_server.commands == []


def test_metrics_page_merges_all_sources(app: App) -> None:
    app.body = b"# TYPE mine counter\nmine 1\n# EOF\nlost 2"
    unreachable_port = closed_port()
    harness = Harness(
        Envoy(READY),
        (
            MetricsTarget("envoy", "127.0.0.1", unreachable_port, "/stats"),
            MetricsTarget("application", "127.0.0.1", app.port, "/metrics"),
        ),
    )
    harness.metrics.certificate_updated(certificates.NOW)
    status, page = harness.request("/stats/prometheus")
    assert status == 200
    assert 'istio_agent_cert_expiry_seconds{resource_name="default"} -' in page
    assert "\nmine 1\n" in page
    assert "# EOF" not in page
    assert page.endswith("lost 2\n")
    assert 'istio_agent_scrape_failures_total{type="envoy"} 1' in harness.request("/stats/prometheus")[1]
    assert app.requests[0][1]["x-prometheus-scrape-timeout-seconds"] == "10"
    harness.server.stop()


def test_connections_are_limited(status_server: Harness) -> None:
    idle = [socket.create_connection(("127.0.0.1", status_server.server.port)) for _ in range(MAX_CONNECTIONS)]
    late = socket.create_connection(("127.0.0.1", status_server.server.port))
    late.settimeout(20)
    assert late.recv(1) == b""  # closed
    for connection in idle:
        connection.close()
    eventually(lambda: status_server.request("/healthz/ready") == (200, ""), 20, "closed connections free their slots")


def test_occupied_port_is_reported(status_server: Harness) -> None:
    with pytest.raises(StartError, match=f"cannot listen on the status port {status_server.server.port}"):
        StatusServer(status_server.server.port, status_server.server._server.pages)


def test_admin_client_parses_stats_and_reports_errors(app: App) -> None:
    admin = AdminClient("127.0.0.1", app.port)
    app.body = b"a.b: 3\nhistogram: P0(1,2)\nc: 4\n"
    assert admin.stats("^a|c$") == {"a.b": 3, "c": 4}
    assert app.requests[0][0] == "/stats?usedonly&filter=%5Ea%7Cc%24"
    app.status = 500
    with pytest.raises(AdminError, match="returned status 500 for GET"):
        admin.stats("x")
    with pytest.raises(AdminError, match="does not respond"):
        AdminClient("127.0.0.1", closed_port()).stats("x")
