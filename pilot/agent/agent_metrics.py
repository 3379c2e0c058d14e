"""What the agent counts of itself, under the names of Istio's agent."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from pilot.agent.certificates.workload_certificate import WorkloadCertificate
from pilot.lib.exposition import render

PREFIX = "istio_agent_"
_COUNTERS = {
    "scrapes_total": ("Scrapes of the merged metrics.", ()),
    "scrape_failures_total": ("Parts of the merged metrics that could not be had.", ("type",)),
    "num_outgoing_requests": ("Requests to the certificate authority.", ("request_type",)),
    "num_failed_outgoing_requests": (
        "Requests to the certificate authority that brought no certificate.",
        ("request_type",),
    ),
    "xds_proxy_requests": ("Requests passed to the control plane.", ()),
    "xds_proxy_responses": ("Responses that the control plane sent.", ()),
    "istiod_connection_failures": ("Streams to the control plane that never began.", ()),
    "istiod_connection_terminations": ("Streams to the control plane that ended.", ("type",)),
    "envoy_connection_terminations": ("Streams that Envoy ended.", ("type",)),
    "wasm_cache_lookup_count": ("Modules of Wasm that were looked for.", ("hit",)),
    "wasm_remote_fetch_count": ("Fetches of modules of Wasm.", ("result",)),
    "wasm_config_conversion_count": ("Configurations of extensions on their way to Envoy.", ("result",)),
    "dns_requests_total": ("Questions for names.", ()),
    "dns_upstream_requests_total": ("Questions that went on to another resolver.", ()),
    "dns_upstream_failures_total": ("Questions that no other resolver answered.", ()),
}


class AgentMetrics:
    """All metrics of one agent. Methods may be called from any thread."""

    def __init__(self, wall: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry, self._names = CollectorRegistry(auto_describe=False), dict[str, str]()
        self._wall, self._clock, self._began, self._ready = wall, clock, clock(), False
        self._counters = {name: self._counter(name, about, labels) for name, (about, labels) in _COUNTERS.items()}
        self._expiry = Gauge(
            f"{PREFIX}cert_expiry_seconds", "Time left of a certificate.", ["resource_name"], registry=self._registry
        )
        self._startup = Gauge(
            f"{PREFIX}startup_duration_seconds",
            "Time from the start until the proxy was ready.",
            registry=self._registry,
        )
        self._modules = Gauge(f"{PREFIX}wasm_cache_entries", "Modules of Wasm that are kept.", registry=self._registry)
        ProcessCollector(registry=self._registry, namespace="istio_agent")

    def _counter(self, name: str, about: str, labels: tuple[str, ...]) -> Counter:
        family = f"{PREFIX}{name}".removesuffix("_total")
        self._names[family] = f"{PREFIX}{name}"
        return Counter(family, about, labels, registry=self._registry)

    def render(self) -> bytes:
        """Returns all of them in the text format of Prometheus."""
        return render(self._registry.collect(), self._names)

    def ready(self) -> None:
        """The proxy is ready, for the first time or again."""
        if not self._ready:
            self._ready = True
            self._startup.set(self._clock() - self._began)

    def certificate(self, certificate: WorkloadCertificate) -> None:
        """A new certificate counts from now on."""
        ends = certificate.ends.timestamp()
        self._expiry.labels("default").set_function(lambda: ends - self._wall())

    def module_looked_up(self, hit: bool) -> None:
        """A module was looked for among those that are kept."""
        self._counters["wasm_cache_lookup_count"].labels("true" if hit else "false").inc()

    def module_fetched(self, result: str) -> None:
        """A module was fetched, or could not be had."""
        self._counters["wasm_remote_fetch_count"].labels(result).inc()

    def modules_kept(self, count: int) -> None:
        """So many modules are kept."""
        self._modules.set(count)

    def module_converted(self, result: str) -> None:
        """The configuration of an extension went on to Envoy."""
        self._counters["wasm_config_conversion_count"].labels(result).inc()

    def asked_authority(self) -> None:
        self._counters["num_outgoing_requests"].labels("csr").inc()

    def not_issued(self) -> None:
        self._counters["num_failed_outgoing_requests"].labels("csr").inc()

    def scraped(self) -> None:
        self._counters["scrapes_total"].inc()

    def scrape_failed(self, what: str) -> None:
        """A part of the merged metrics (envoy, application) could not be had."""
        self._counters["scrape_failures_total"].labels(what).inc()

    def request_forwarded(self) -> None:
        self._counters["xds_proxy_requests"].inc()

    def response_received(self) -> None:
        self._counters["xds_proxy_responses"].inc()

    def upstream_connection_failed(self) -> None:
        self._counters["istiod_connection_failures"].inc()

    def upstream_closed(self, by: str) -> None:
        self._counters["istiod_connection_terminations"].labels(by).inc()

    def envoy_closed(self, by: str) -> None:
        self._counters["envoy_connection_terminations"].labels(by).inc()

    def dns_asked(self) -> None:
        self._counters["dns_requests_total"].inc()

    def dns_forwarded(self) -> None:
        self._counters["dns_upstream_requests_total"].inc()

    def dns_failed(self) -> None:
        self._counters["dns_upstream_failures_total"].inc()
