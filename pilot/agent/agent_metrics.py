"""The agent's own metrics, with the names that Istio's agent uses."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from pilot.lib.metrics.exposition import render

PREFIX = "istio_agent_"
_COUNTERS = {
    "scrapes_total": ("Scrapes of the merged metrics.", ()),
    "scrape_failures_total": ("Sources of the merged metrics that could not be scraped.", ("type",)),
    "num_outgoing_requests": ("Requests to the certificate authority.", ("request_type",)),
    "num_failed_outgoing_requests": ("Failed requests to the certificate authority.", ("request_type",)),
    "xds_proxy_requests": ("Requests forwarded to the control plane.", ()),
    "xds_proxy_responses": ("Responses received from the control plane.", ()),
    "istiod_connection_failures": ("Streams to the control plane that could not be established.", ()),
    "istiod_connection_terminations": ("Streams to the control plane that ended.", ("type",)),
    "envoy_connection_terminations": ("Streams that Envoy ended.", ("type",)),
    "wasm_cache_lookup_count": ("Lookups of Wasm modules in the cache.", ("hit",)),
    "wasm_remote_fetch_count": ("Fetches of Wasm modules.", ("result",)),
    "wasm_config_conversion_count": ("Extension configurations processed for Envoy.", ("result",)),
    "dns_requests_total": ("DNS queries received.", ()),
    "dns_upstream_requests_total": ("DNS queries forwarded to another resolver.", ()),
    "dns_upstream_failures_total": ("Forwarded DNS queries that no resolver answered.", ()),
}


class AgentMetrics:
    """All metrics of one agent. Thread-safe."""

    def __init__(self, wall: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry, self._names = CollectorRegistry(auto_describe=False), dict[str, str]()
        self._wall, self._clock, self._start_time, self._is_ready = wall, clock, clock(), False
        self._counters = {name: self._counter(name, text, labels) for name, (text, labels) in _COUNTERS.items()}
        self._expiry = Gauge(
            f"{PREFIX}cert_expiry_seconds",
            "Time until a certificate expires.",
            ["resource_name"],
            registry=self._registry,
        )
        self._startup = Gauge(
            f"{PREFIX}startup_duration_seconds",
            "Time from start until the proxy was first ready.",
            registry=self._registry,
        )
        self._modules = Gauge(f"{PREFIX}wasm_cache_entries", "Wasm modules in the cache.", registry=self._registry)
        ProcessCollector(registry=self._registry, namespace="istio_agent")

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        family = f"{PREFIX}{name}".removesuffix("_total")
        self._names[family] = f"{PREFIX}{name}"
        return Counter(family, text, labels, registry=self._registry)

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return render(self._registry.collect(), self._names)

    def ready(self) -> None:
        """Record that the proxy is ready. Only the first call has an effect."""
        if not self._is_ready:
            self._is_ready = True
            self._startup.set(self._clock() - self._start_time)

    def certificate_updated(self, not_after: datetime.datetime) -> None:
        """Record when the certificate in use expires."""
        expiry = not_after.timestamp()
        self._expiry.labels("default").set_function(lambda: expiry - self._wall())

    def module_looked_up(self, hit: bool) -> None:
        self._counters["wasm_cache_lookup_count"].labels("true" if hit else "false").inc()

    def module_fetched(self, result: str) -> None:
        """Count an attempt to fetch a module, with its result."""
        self._counters["wasm_remote_fetch_count"].labels(result).inc()

    def modules_cached(self, count: int) -> None:
        """Record the number of modules in the cache."""
        self._modules.set(count)

    def extension_converted(self, result: str) -> None:
        self._counters["wasm_config_conversion_count"].labels(result).inc()

    def ca_request_sent(self) -> None:
        self._counters["num_outgoing_requests"].labels("csr").inc()

    def ca_request_failed(self) -> None:
        self._counters["num_failed_outgoing_requests"].labels("csr").inc()

    def scraped(self) -> None:
        self._counters["scrapes_total"].inc()

    def scrape_failed(self, source: str) -> None:
        """Count a failed scrape. `source` is envoy or application."""
        self._counters["scrape_failures_total"].labels(source).inc()

    def request_forwarded(self) -> None:
        self._counters["xds_proxy_requests"].inc()

    def response_received(self) -> None:
        self._counters["xds_proxy_responses"].inc()

    def upstream_connection_failed(self) -> None:
        self._counters["istiod_connection_failures"].inc()

    def upstream_closed(self, cause: str) -> None:
        self._counters["istiod_connection_terminations"].labels(cause).inc()

    def envoy_closed(self, cause: str) -> None:
        self._counters["envoy_connection_terminations"].labels(cause).inc()

    def dns_query_received(self) -> None:
        self._counters["dns_requests_total"].inc()

    def dns_query_forwarded(self) -> None:
        self._counters["dns_upstream_requests_total"].inc()

    def dns_forward_failed(self) -> None:
        self._counters["dns_upstream_failures_total"].inc()
