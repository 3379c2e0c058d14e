"""Metrics of the agent, and the merge of other metrics pages."""

from __future__ import annotations

import datetime
import http.server
import threading
from collections.abc import Iterator

import pytest

from pilot.agent.agent_metrics import AgentMetrics
from pilot.agent.status_port.app_probes import Probe, Prober
from pilot.agent.status_port.merged_metrics import RESERVED, MetricsTarget, merge_metrics, parse_targets

NOT_AFTER = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def nonzero_samples(metrics: AgentMetrics) -> dict[str, str]:
    """Return the samples that are neither process metrics nor 0."""
    lines = (
        line for line in metrics.render().decode().splitlines() if not line.startswith(("#", "istio_agent_process_"))
    )
    return {
        name: value
        for name, _, value in (line.removeprefix("istio_agent_").partition(" ") for line in lines)
        if value != "0"
    }


def test_metric_names_match_istio() -> None:
    metrics = AgentMetrics(wall=lambda: NOT_AFTER.timestamp() - 90)
    metrics.certificate_updated(NOT_AFTER)
    for hit in (True, False, False):
        metrics.module_looked_up(hit)
    for result in ("success", "download_failure"):
        metrics.module_fetched(result)
        metrics.extension_converted(result)
    metrics.modules_cached(3)
    for increment in (
        metrics.ca_request_sent,
        metrics.ca_request_failed,
        metrics.scraped,
        metrics.request_forwarded,
        metrics.response_received,
        metrics.upstream_connection_failed,
        metrics.dns_query_received,
        metrics.dns_query_forwarded,
        metrics.dns_forward_failed,
    ):
        increment()
    metrics.request_forwarded()
    metrics.scrape_failed("envoy")
    metrics.upstream_closed("closed")
    metrics.envoy_closed("cancelled")
    assert nonzero_samples(metrics) == {
        'cert_expiry_seconds{resource_name="default"}': "90",
        'wasm_cache_lookup_count{hit="true"}': "1",
        'wasm_cache_lookup_count{hit="false"}': "2",
        "wasm_cache_entries": "3",
        'wasm_remote_fetch_count{result="success"}': "1",
        'wasm_remote_fetch_count{result="download_failure"}': "1",
        'wasm_config_conversion_count{result="success"}': "1",
        'wasm_config_conversion_count{result="download_failure"}': "1",
        'num_outgoing_requests{request_type="csr"}': "1",
        'num_failed_outgoing_requests{request_type="csr"}': "1",
        "scrapes_total": "1",
        'scrape_failures_total{type="envoy"}': "1",
        "xds_proxy_requests": "2",
        "xds_proxy_responses": "1",
        "istiod_connection_failures": "1",
        'istiod_connection_terminations{type="closed"}': "1",
        'envoy_connection_terminations{type="cancelled"}': "1",
        "dns_requests_total": "1",
        "dns_upstream_requests_total": "1",
        "dns_upstream_failures_total": "1",
    }


def test_startup_duration_ends_at_first_readiness() -> None:
    times = iter([10.0, 12.5, 99.0])
    metrics = AgentMetrics(clock=lambda: next(times))
    assert nonzero_samples(metrics) == {}
    metrics.ready()
    metrics.ready()
    assert nonzero_samples(metrics) == {"startup_duration_seconds": "2.5"}


class Site(http.server.ThreadingHTTPServer):
    """Serves a status and body, and records requests."""

    daemon_threads = True

    def __init__(self) -> None:
        site = self
        self.status, self.body, self.requests = 200, b"", list[tuple[str, dict[str, str]]]()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append((self.path, dict(self.headers.items())))
                self.send_response_only(site.status)
                self.send_header("Content-Length", str(len(site.body)))
                self.end_headers()
                self.wfile.write(site.body)

            def log_message(self, *_: object) -> None:
                """Silence the log."""

        super().__init__(("127.0.0.1", 0), Handler)
        self.port: int = self.server_address[1]
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


@pytest.fixture
def site() -> Iterator[Site]:
    server = Site()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", b"agent\n"),
        (b"a 1\nb 2\n", b"agent\na 1\nb 2\n"),
        (b"a 1\n# EOF\nb 2", b"agent\na 1\nb 2\n"),
        (b"# EOF \r\n", b"agent\n"),
        (b"# EOFS\n", b"agent\n# EOFS\n"),
        (b"x" * 65536 + b"# EOF\n", b"agent\n" + b"x" * 65536 + b"# EOF\n"),
    ],
)
def test_page_is_merged_without_its_eof_marker(site: Site, body: bytes, expected: bytes) -> None:
    site.body = body
    assert (
        b"".join(
            merge_metrics(
                b"agent\n", [MetricsTarget("application", "127.0.0.1", site.port, "mine?a=b")], 2.5, lambda *_: None
            )
        )
        == expected
    )
    [(path, headers)] = site.requests
    assert (path, headers["accept"], headers["x-prometheus-scrape-timeout-seconds"]) == (
        "/mine?a=b",
        "text/plain;version=0.0.4;q=1.0,*/*;q=0.1",
        "2.5",
    )


def test_failed_scrape_is_reported_and_others_remain(site: Site) -> None:
    site.status = 404
    failures: list[str] = []
    pages = [MetricsTarget(name, "127.0.0.1", site.port, "/") for name in ("envoy", "application")]
    assert list(
        merge_metrics(b"agent\n", pages, 1, lambda page, error: failures.append(f"{page.source}: {error}"))
    ) == [b"agent\n"]
    assert failures == ["envoy: status 404", "application: status 404"]


def test_invalid_scrape_annotations_are_rejected() -> None:
    assert sorted(RESERVED) == [15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090]
    for text, reason in (
        ("{", "is not JSON: "),
        ("[]", "is not an object"),
        ('{"port": 80}', ": 80 is not a port"),
        ('{"port": "x"}', ": 'x' is not a port"),
        ('{"port": "65536"}', ": '65536' is not a port"),
        ('{"port": "15090"}', ": port 15090 is reserved for the proxy"),
    ):
        with pytest.raises(
            ValueError,
            match=f"^variable ISTIO_PROMETHEUS_ANNOTATIONS {reason}|^variable ISTIO_PROMETHEUS_ANNOTATIONS{reason}",
        ):
            parse_targets(text, "127.0.0.1", 15020)
    assert parse_targets('{"port": "65535"}', "::1", 15020) == [MetricsTarget("application", "::1", 65535, "/metrics")]


def run_probe(site: Site, declared: Probe, **headers: str) -> tuple[int, bytes]:
    return Prober({"/p": declared}, "127.0.0.1", 15020).probe("/p", headers)


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
def test_probe_returns_the_status_except_redirects(site: Site, status: int, expected: tuple[int, bytes]) -> None:
    site.status, site.body = status, b"text"
    assert run_probe(site, Probe("http", site.port)) == expected


def test_probe_forwards_kubelet_headers(site: Site) -> None:
    site.body = b"x" * 10241
    declared = Probe("http", site.port, "/live", headers=(("X-Mine", "1"), ("Accept", "text/plain")))
    assert run_probe(site, declared, Host="10.0.0.1:15020", accept="*/*", Connection="keep-alive", TE="trailers") == (
        200,
        b"x" * 10240,
    )
    run_probe(site, Probe("http", site.port), Host="web.example:80")
    run_probe(site, Probe("http", site.port))
    assert site.requests == [
        ("/live", {"host": f"10.0.0.1:{site.port}", "accept": "text/plain", "x-mine": "1", "connection": "close"}),
        ("/", {"host": "web.example:80", "connection": "close"}),
        ("/", {"host": f"127.0.0.1:{site.port}", "connection": "close"}),
    ]


def test_undeclared_probe_returns_404() -> None:
    assert Prober({}, "127.0.0.1", 15020).probe("/app-health/a/livez", {}) == (404, b"no such probe\n")
