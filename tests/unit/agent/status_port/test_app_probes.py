"""Probes of the application."""

from __future__ import annotations

import datetime
import json
import ssl
from typing import Any

import grpc
import pytest

from ca.csr import decode_csr
from ca.pem import key_pem
from pilot.agent.status_port.app_probes import Probe, Prober, parse_probes
from testing.security import certificates
from tests.unit.agent.conftest import App, closed_port


def probe(declared: Probe, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    return Prober({"/app-health/a/livez": declared}, "127.0.0.1", 15020).probe("/app-health/a/livez", headers or {})


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
    ("status", "expected"),
    [
        (200, (200, b"text")),
        (299, (299, b"text")),
        (300, (200, b"")),
        (399, (200, b"")),
        (400, (400, b"text")),
        (503, (503, b"text")),
    ],
)
def test_probe_returns_the_status_except_redirects(app: App, status: int, expected: tuple[int, bytes]) -> None:
    app.status, app.body = status, b"text"
    assert probe(Probe("http", app.port)) == expected


def test_probe_forwards_kubelet_headers(app: App) -> None:
    app.body = b"x" * 10241
    declared = Probe("http", app.port, "/live?x=1", headers=(("X-Mine", "1"), ("Accept", "text/plain")))
    kubelet = {"Host": "10.0.0.1:15020", "User-Agent": "kube-probe/1", "accept": "*/*"}
    assert probe(declared, {**kubelet, "Connection": "keep-alive", "TE": "trailers"}) == (200, b"x" * 10240)
    probe(Probe("http", app.port), {"Host": "web.example:80"})
    probe(Probe("http", app.port))
    forwarded = {"user-agent": "kube-probe/1", "accept": "text/plain", "x-mine": "1", "connection": "close"}
    assert [(path, headers) for path, headers, _ in app.requests] == [
        ("/live?x=1", {"host": f"10.0.0.1:{app.port}", **forwarded}),
        ("/", {"host": "web.example:80", "connection": "close"}),
        ("/", {"host": f"127.0.0.1:{app.port}", "connection": "close"}),
    ]
    assert {source for *_, source in app.requests} == {"127.0.0.6"}, "not captured by the redirection rules"


def test_undeclared_probe_returns_404() -> None:
    assert Prober({}, "127.0.0.1", 15020).probe("/app-health/a/livez", {}) == (404, b"no such probe\n")
