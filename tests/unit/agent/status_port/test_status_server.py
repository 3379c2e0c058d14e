"""The agent's status port: readiness, metrics and commands."""

from __future__ import annotations

import gzip
import http.client
import http.server
import socket
from collections.abc import Iterator

import pytest

from pilot.agent.agent_metrics import AgentMetrics
from pilot.agent.envoy.admin_client import AdminError
from pilot.agent.status_port.app_probes import Prober
from pilot.agent.status_port.merged_metrics import MetricsTarget
from pilot.agent.status_port.readiness import Readiness
from pilot.agent.status_port.status_server import MAX_CONNECTIONS, StatusPages, StatusServer
from pilot.lib.start_error import StartError
from testing.processes.process import eventually
from testing.security import certificates
from tests.unit.agent.conftest import App, closed_port

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


class Harness:
    """A status server with one Envoy and one application."""

    def __init__(self, envoy: Envoy, targets: tuple[MetricsTarget, ...] = ()) -> None:
        self.metrics, self.commands = AgentMetrics(), list[str]()
        self.pages = StatusPages(
            Readiness(envoy),
            Prober({}, "127.0.0.1", 0),
            self.metrics,
            targets,
            {"/quitquitquit": lambda: self.commands.append("quit")},
        )
        self.server = StatusServer(0, self.pages)
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


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("zstd", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("", False),
    ],
)
def test_metrics_page_is_compressed_for_clients_that_accept_it(
    status_server: Harness, header: str, expected: bool
) -> None:
    """Release note 58697."""
    connection = http.client.HTTPConnection("127.0.0.1", status_server.server.port, timeout=20)
    connection.request("GET", "/stats/prometheus", headers={"accept-encoding": header})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    assert response.headers.get("content-encoding") == ("gzip" if expected else None)
    assert b"istio_agent_" in (gzip.decompress(body) if expected else body)


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
        StatusServer(status_server.server.port, status_server.pages)
