"""The agent's own port: readiness, probes of the application, merged metrics, commands."""

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
    """Statistics as a test sets them; None is an Envoy that does not respond."""

    def __init__(self, stats: dict[str, int] | None) -> None:
        self.now, self.asked = stats, list[str]()

    def stats(self, regex: str) -> dict[str, int]:
        self.asked.append(regex)
        if self.now is None:
            raise AdminError("Envoy's admin port does not respond")
        return self.now


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
def test_a_proxy_is_ready_when_it_lives_and_has_been_configured(changes: dict[str, int], reason: str) -> None:
    assert Readiness(Envoy({**READY, **changes})).failure() == reason


def test_what_was_ready_needs_only_to_live() -> None:
    envoy = Envoy(READY)
    readiness = Readiness(envoy)
    assert readiness.failure() == ""
    envoy.now = {"server.state": 0}
    assert readiness.failure() == ""
    envoy.now = None
    assert readiness.failure() == "Envoy's admin port does not respond"
    assert envoy.asked == [STATS, r"^server\.state$", r"^server\.state$"]


def test_a_proxy_that_drains_is_not_ready() -> None:
    readiness = Readiness(Envoy(READY))
    readiness.draining = True
    assert readiness.failure() == "the proxy is draining"


class App(http.server.ThreadingHTTPServer):
    """The application: answers with its status and what it saw."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        app = self
        self.status, self.body, self.seen = 200, b"fine", list[Any]()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                app.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}, self.client_address[0]))
                self.send_response(app.status)
                self.send_header("location", "http://elsewhere.example/")
                self.end_headers()
                self.wfile.write(app.body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

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
    made = App()
    yield made
    made.stop()


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def probe(one: Probe, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    return Prober({"/app-health/a/livez": one}, "127.0.0.1", 15020).probe("/app-health/a/livez", headers or {})


def test_an_http_probe_is_asked_as_the_kubelet_asks(app: App) -> None:
    answer = probe(
        Probe("http", app.port, "/live?x=1", headers=(("X-Probe", "me"),)),
        {"User-Agent": "kube-probe/1", "Host": "10.0.0.1:15020"},
    )
    assert answer == (200, b"fine")
    path, headers, source = app.seen[0]
    assert path == "/live?x=1"
    assert headers["host"] == f"10.0.0.1:{app.port}"
    assert (headers["user-agent"], headers["x-probe"]) == ("kube-probe/1", "me")
    assert source == "127.0.0.6"  # redirections of traffic leave it alone


def test_the_applications_status_is_that_of_the_probe(app: App) -> None:
    app.status = 503
    assert probe(Probe("http", app.port)) == (503, b"fine")
    app.status = 302
    assert probe(Probe("http", app.port))[0] == 200


def test_a_host_that_a_probe_names_wins(app: App) -> None:
    probe(Probe("http", app.port, headers=(("Host", "shop.example"),)), {"Host": "10.0.0.1:15020"})
    assert app.seen[0][1]["host"] == "shop.example"


def test_a_probe_over_https_takes_any_certificate(tmp_path: Any) -> None:
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


def test_a_tcp_probe_connects(app: App) -> None:
    assert probe(Probe("tcp", app.port)) == (200, b"")
    status, reason = probe(Probe("tcp", closed_port()))
    assert status == 500
    assert b"does not respond" in reason


def test_an_application_that_does_not_answer_fails_its_probe() -> None:
    assert probe(Probe("http", closed_port()))[0] == 500


def test_a_grpc_probe_asks_for_the_health_of_a_service() -> None:
    from concurrent import futures

    seen = []

    def check(request: bytes, context: Any) -> bytes:
        seen.append(request)
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
    assert seen == [b"\x0a\x03shp", b""]
    server.stop(None)
    assert probe(Probe("grpc", closed_port(), timeout=10))[0] == 500


def test_probes_are_read_from_what_the_injector_writes() -> None:
    said = {
        "/app-health/web/livez": {
            "httpGet": {"path": "live", "port": 8080, "scheme": "HTTPS", "httpHeaders": [{"name": "A", "value": "b"}]}
        },
        "/app-health/web/readyz": {"tcpSocket": {"port": 9000}, "timeoutSeconds": 3},
        "/app-health/web/startupz": {"grpc": {"port": 9001, "service": "s"}},
        "/app-lifecycle/web/prestopz": {"httpGet": {"port": 1}},
    }
    assert parse_probes(json.dumps(said)) == {
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
def test_a_probe_that_cannot_be_used_is_named(text: str, reason: str) -> None:
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
def test_where_the_applications_metrics_are(text: str, expected: list[tuple[int, str]]) -> None:
    assert [(target.port, target.path) for target in parse_targets(text, "127.0.0.1", 15020)] == expected


@pytest.mark.parametrize("port", ["15090", "15020", "016000", "0", "http", "70000"])
def test_a_port_of_the_proxy_itself_is_no_target(port: str) -> None:
    with pytest.raises(ValueError, match="variable ISTIO_PROMETHEUS_ANNOTATIONS"):
        parse_targets(json.dumps({"port": port}), "127.0.0.1", 16000)


class Served:
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

    def ask(self, path: str, method: str = "GET", host: str = "127.0.0.1") -> tuple[int, str]:
        connection = http.client.HTTPConnection(host, self.server.port, timeout=20)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served(Envoy(READY))
    yield made
    made.server.stop()


def test_readiness_is_a_status(served: Served) -> None:
    assert served.ask("/healthz/ready") == (200, "")
    assert "istio_agent_startup_duration_seconds" in served.metrics.render().decode()
    unready = Served(Envoy(None))
    assert unready.ask("/healthz/ready") == (503, "Envoy's admin port does not respond\n")
    unready.server.stop()


def test_the_end_of_the_page_of_metrics_is_that_of_its_connection(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=20) as connection:
        connection.sendall(b"GET /stats/prometheus HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head = answer.partition(b"\r\n\r\n")[0].lower()
    assert head.startswith(b"http/1.1 200 ")
    assert b"\r\nconnection: close" in head
    assert b"\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8" in head
    assert b"content-length" not in head
    assert "istio_agent_scrapes_total 1\n" in served.metrics.render().decode()


def test_commands_are_posted(served: Served) -> None:
    assert served.ask("/quitquitquit") == (405, "use POST\n")
    assert served.commands == []
    assert served.ask("/quitquitquit", "POST") == (200, "OK\n")
    eventually(lambda: served.commands == ["quit"], 10, "what was asked for is done, once the answer is on its way")
    assert served.ask("/other", "POST")[0] == served.ask("/other")[0] == 404


def test_commands_of_others_are_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilot.agent.status_port.status_server._is_loopback", lambda address: False)
    assert served.ask("/quitquitquit", "POST")[0] == 403
    assert served.commands == []


def test_metrics_of_all_are_one_page(app: App) -> None:
    app.body = b"# TYPE mine counter\nmine 1\n# EOF\nlost 2"
    gone = closed_port()
    served = Served(
        Envoy(READY),
        (
            MetricsTarget("envoy", "127.0.0.1", gone, "/stats"),
            MetricsTarget("application", "127.0.0.1", app.port, "/metrics"),
        ),
    )
    served.metrics.certificate_updated(certificates.NOW)
    status, page = served.ask("/stats/prometheus")
    assert status == 200
    assert 'istio_agent_cert_expiry_seconds{resource_name="default"} -' in page
    assert "\nmine 1\n" in page
    assert "# EOF" not in page
    assert page.endswith("lost 2\n")
    assert 'istio_agent_scrape_failures_total{type="envoy"} 1' in served.ask("/stats/prometheus")[1]
    assert app.seen[0][1]["x-prometheus-scrape-timeout-seconds"] == "10"
    served.server.stop()


def test_only_so_many_connections_are_served_at_once(served: Served) -> None:
    silent = [socket.create_connection(("127.0.0.1", served.server.port)) for _ in range(MAX_CONNECTIONS)]
    late = socket.create_connection(("127.0.0.1", served.server.port))
    late.settimeout(20)
    assert late.recv(1) == b""  # closed
    for connection in silent:
        connection.close()
    eventually(lambda: served.ask("/healthz/ready") == (200, ""), 20, "there is a place again")


def test_a_port_that_is_taken_is_said_in_a_sentence(served: Served) -> None:
    with pytest.raises(StartError, match=f"cannot listen on the status port {served.server.port}"):
        StatusServer(served.server.port, served.server._server.pages)


def test_envoys_answers_are_read_or_said_to_be_missing(app: App) -> None:
    admin = AdminClient("127.0.0.1", app.port)
    app.body = b"a.b: 3\nhistogram: P0(1,2)\nc: 4\n"
    assert admin.stats("^a|c$") == {"a.b": 3, "c": 4}
    assert app.seen[0][0] == "/stats?usedonly&filter=%5Ea%7Cc%24"
    app.status = 500
    with pytest.raises(AdminError, match="returned status 500 for GET"):
        admin.stats("x")
    with pytest.raises(AdminError, match="does not respond"):
        AdminClient("127.0.0.1", closed_port()).stats("x")
