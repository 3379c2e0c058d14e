"""Metrics of the agent."""

from __future__ import annotations

import datetime

from pilot.agent.agent_metrics import AgentMetrics

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
