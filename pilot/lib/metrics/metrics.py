"""Metrics of the control plane. Each event has a method. An observation takes about a microsecond."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Literal

from pilot.lib.build_info import BuildInfo, build_info
from pilot.lib.metrics.call_metrics import CallMetrics, go_name
from pilot.lib.metrics.kubernetes_metrics import KubernetesMetrics
from pilot.lib.metrics.metric_catalogue import CATALOGUE
from pilot.lib.metrics.runtime_metrics import RuntimeMetrics
from pilot.lib.metrics.series import Series
from pilot.lib.xds_types import short_name

CHANGES, PUSHES = "changes", "pushes"
"""Names of two queues. In the first, changes wait for a commit. In the second, proxies wait for a push."""
Update = Literal["config", "eds", "svc", "svcdelete"]
Event = Literal["add", "update", "updatesame", "delete"]


class Metrics:
    """All metrics of one control plane.

    Times are in seconds, sizes in bytes, and types are type URLs. `responses` and `response_bytes` are totals.
    """

    def __init__(self, build: BuildInfo | None = None, now: Callable[[], float] = time.monotonic) -> None:
        build = build or build_info()
        self._series = Series()
        self._at = self._series.at
        self._largest_request = -1
        self._queues = False
        self.responses = self.response_bytes = 0
        self.kubernetes, self.calls = KubernetesMetrics(self._series), CallMetrics(self._series)
        RuntimeMetrics(self._series)
        started = now()
        self._at("istiod_uptime_seconds").set_function(lambda: now() - started)
        self._at("pilot_info", str(build)).set(1)
        self._at("istio_build", "pilot", build.tag).set(1)

    def count_nodes(self, count: Callable[[], int]) -> None:
        """Report the number of derived values. `count` returns this number, and is called whenever the metrics are
        read."""
        self._at("pyistiod_graph_nodes").set_function(count)

    def count_queues(self, depths: Mapping[str, Callable[[], int]]) -> None:
        """Report the depth of each queue.

        `depths` maps each queue to a function that returns its depth. The functions are called whenever the metrics are
        read.
        """
        self._queues = True
        for queue, depth in depths.items():
            self._at("pilot_worker_queue_depth", queue).set_function(depth)

    def count_cache(
        self, resources: Callable[[], int], rows: Callable[[], int], reads: Callable[[], tuple[int, int]]
    ) -> None:
        """Report the cache of serialized resources.

        `resources` returns the number of resources, `rows` returns the number of rows that they depend on, and `reads`
        returns the total hits and misses. The functions are called whenever the metrics are read.
        """
        self._at("xds_cache_size").set_function(resources)
        self._at("xds_cache_dependent_config_size").set_function(rows)
        reported = [0, 0]

        def update() -> None:
            for index, kind in enumerate(("hit", "miss")):
                if (count := reads()[index]) > reported[index]:
                    self._at("xds_cache_reads", kind).inc(count - reported[index])
                    reported[index] = count

        self._series.before_reading(update)

    def cache_evicted(self, cause: Literal["clear", "size"]) -> None:
        """Count an eviction of cached resources. `cause` tells whether it was requested or the cache was full."""
        self._at("xds_cache_evictions", cause).inc()

    def loop_stalled(self, seconds: float, work: str) -> None:
        """Record that a derivation or function has blocked the event loop."""
        self._at("pilot_event_loop_stall_seconds", work).observe(seconds)

    # -- connections ---------------------------------------------------------------------------------------------------

    def connected(self, version: str) -> None:
        """Count a stream that a proxy with this ISTIO_VERSION opened."""
        self._at("pilot_xds", version).inc()

    def disconnected(self, version: str) -> None:
        self._at("pilot_xds", version).dec()

    def received(self, size: int) -> None:
        """Record the size of a request."""
        if size > self._largest_request:
            self._largest_request = size
            self._at("pilot_xds_recv_max").set(size)

    def rejected(self, type_url: str, proxy: str, code: int) -> None:
        """Count a NACK. `proxy` is the ID of the proxy, and `code` the gRPC status code."""
        name = short_name(type_url)
        self._at("pilot_total_xds_rejects", name).inc()
        if (gauge := f"pilot_xds_{name}_reject") in CATALOGUE:
            self._at(gauge, go_name(code), proxy).set(1)

    def delivered(self, seconds: float) -> None:
        """Record that a proxy has acknowledged a change. `seconds` is the time since the change was read."""
        self._at("pilot_delivery_seconds").observe(seconds)

    def expired_nonce(self, type_url: str) -> None:
        """Count a request with the nonce of an outdated response."""
        self._at("pilot_xds_expired_nonce", short_name(type_url)).inc()

    def internal_error(self) -> None:
        """Count a stream that was closed because of an internal error."""
        self._at("pilot_total_xds_internal_errors").inc()

    def caller_limit_exceeded(self, limit: str) -> None:
        """Count a call that was rejected or ended because its caller exceeded a limit."""
        self._at("pilot_caller_limits_exceeded", limit).inc()

    # -- certificates --------------------------------------------------------------------------------------------------

    def csr_received(self) -> None:
        """Count a certificate signing request before it is checked."""
        self._at("citadel_server_csr_count").inc()

    def csr_unauthenticated(self) -> None:
        """Count a certificate signing request whose caller is not authenticated or not authorized."""
        self._at("citadel_server_authentication_failure_count").inc()

    def csr_failed(self, code: str) -> None:
        """Count a certificate signing request that failed. `code` is Istio's error code."""
        self._at("citadel_server_csr_sign_err_count", code).inc()

    def csr_signed(self) -> None:
        self._at("citadel_server_success_cert_issuance_count").inc()

    def root_expires(self, at: float, now: Callable[[], float] = time.time) -> None:
        """Set the expiry of the root certificate that expires first. `at` is a Unix timestamp."""
        self._expires("citadel_server_root_cert_expiry", at, now)

    def chain_expires(self, at: float, now: Callable[[], float] = time.time) -> None:
        """Set the expiry of the plugged-in signing certificate chain. `at` is a Unix timestamp."""
        self._expires("citadel_server_cert_chain_expiry", at, now)

    def _expires(self, name: str, at: float, now: Callable[[], float]) -> None:
        self._at(f"{name}_timestamp").set(at)
        self._at(f"{name}_seconds").set_function(lambda: at - now())

    # -- pushes --------------------------------------------------------------------------------------------------------

    def dequeued(self, waited: float, reasons: Mapping[str, int]) -> None:
        """Record that a proxy's push left the queue.

        `reasons` maps push reasons (config, endpoint, service, proxy, global, secret, …) to the number of merged
        changes.
        """
        self._at("pilot_proxy_queue_time").observe(waited)
        if self._queues:
            self._at("pilot_worker_queue_latency", PUSHES).observe(waited)
        for reason, count in reasons.items():
            self._at("pilot_push_triggers", reason).inc(count)

    def sent(self, type_url: str, size: int, took: float, writing: float) -> None:
        """Record a sent response.

        `took` is the time to build and send it, and `writing` is the part of this time that the write took.
        """
        name = short_name(type_url)
        self._at("pilot_xds_pushes", name).inc()
        self._at("pilot_xds_push_time", name).observe(took)
        self._at("pilot_xds_config_size_bytes", type_url).observe(size)
        self._at("pilot_xds_send_time").observe(writing)
        self.responses += 1
        self.response_bytes += size

    def send_failed(self, type_url: str) -> None:
        """Count a response that could not be sent although the peer is connected."""
        self._at("pilot_xds_pushes", short_name(type_url) + "_senderr").inc()

    def secrets_failed(self, count: int) -> None:
        """Count requested secrets that are unavailable or have expired."""
        self._at("pilot_sds_certificate_errors_total").inc(count)

    def write_timed_out(self) -> None:
        self._at("pilot_xds_write_timeout").inc()

    def converged(self, took: float) -> None:
        """Record that a proxy has received the complete push. `took` is the time since the push was queued."""
        self._at("pilot_proxy_convergence_time").observe(took)
        if self._queues:
            self._at("pilot_worker_queue_duration", PUSHES).observe(took)

    # -- configuration -------------------------------------------------------------------------------------------------

    def updated(self, kind: Update, count: int = 1) -> None:
        """Count updates before they are debounced."""
        self._at("pilot_inbound_updates", kind).inc(count)

    def debounced(self, waited: float) -> None:
        """Record the start of a batch. `waited` is the time since its first event."""
        self._at("pilot_debounce_time").observe(waited)
        if self._queues:
            self._at("pilot_worker_queue_latency", CHANGES).observe(waited)

    def committed(self, took: float) -> None:
        """Record the duration of a commit."""
        self._at("pilot_pushcontext_init_seconds").observe(took)
        if self._queues:
            self._at("pilot_worker_queue_duration", CHANGES).observe(took)

    def counted(self, services: int, virtual_services: int) -> None:
        """Set the numbers of services and VirtualServices after a commit."""
        self._at("pilot_services").set(services)
        self._at("pilot_virt_services").set(virtual_services)

    def config_event(self, kind: str, event: Event, count: int = 1) -> None:
        """Count events of configuration objects."""
        self._at("pilot_k8s_cfg_events", event, kind).inc(count)

    def registry_event(self, kind: str, event: Event, count: int = 1) -> None:
        """Count events of Services, EndpointSlices, Pods, Nodes and Namespaces."""
        self._at("pilot_k8s_reg_events", event, kind).inc(count)

    def cluster_secret(self, event: str) -> None:
        """Count an event (add, update, delete) of a Secret that configures remote clusters."""
        self._at("remote_cluster_secret_events_total", event).inc()

    def clusters(self, local: int, remote: int) -> None:
        """Set the numbers of local and remote clusters."""
        self._at("istiod_managed_clusters", "local").set(local)
        self._at("istiod_managed_clusters", "remote").set(remote)

    def cluster_status(self, cluster: str, status: str) -> None:
        """Set the sync status of a remote cluster: syncing, synced, timeout or closed."""
        for value in ("syncing", "synced", "timeout", "closed"):
            self._at("istiod_remote_cluster_sync_status", cluster, "remote", value).set(int(value == status))
        if status == "timeout":
            self._at("remote_cluster_sync_timeouts_total", cluster).inc()

    def envoy_filter(self, name: str, patch: str, result: str, value: int) -> None:
        """Set whether the current result of a patch is `result` ("applied" or "error").

        `name` is the EnvoyFilter as "namespace/name".
        """
        self._at("pilot_envoy_filter_status", name, patch, result).set(value)

    def rejected_config(self, kind: str, name: str) -> None:
        """Count an object that was rejected or ignored.

        `kind` is in lower case, such as "gateway", and `name` is "namespace/name".
        """
        self._at("pilot_total_rejected_configs", name, kind).inc()

    def provider_lookup_failed(self, kind: str) -> None:
        """Count a reference to an extension provider whose service does not exist."""
        self._at("provider_lookup_cluster_failures", kind).inc()

    def log_lines_dropped(self, count: int) -> None:
        """Count dropped log lines. This may be called in any thread."""
        self._at("pilot_log_lines_dropped").inc(count)

    def config_problems(self, code: str, severity: str, count: int) -> None:
        """Set the number of problems with a code and severity."""
        self._at("pilot_config_problems", code, severity).set(count)

    def health(self, metric: str, count: int) -> None:
        """Set a health metric to the number of distinct findings in the last health check."""
        self._at(metric).set(count)

    def key_set_fetched(self, success: bool) -> None:
        """Count a fetch of a JSON Web Key Set."""
        self._at(f"pilot_jwks_resolver_network_fetch_{'success' if success else 'fail'}_total").inc()

    def derivation_failed(self, derivation: str) -> None:
        """Count an internal error in a derivation. Proxies keep their last valid configuration."""
        self._at("pilot_derivation_failures", derivation).inc()

    # -- webhooks ------------------------------------------------------------------------------------------------------

    def injection_requested(self) -> None:
        """Count an injection request."""
        self._at("sidecar_injection_requests_total").inc()

    def injection_answered(self, took: float) -> None:
        """Record an answered injection request."""
        self._at("sidecar_injection_success_total").inc()
        self._at("sidecar_injection_time_seconds").observe(took)

    def injection_failed(self) -> None:
        """Count a failed injection. This may be called in any thread."""
        self._at("sidecar_injection_failure_total").inc()

    def injection_skipped(self) -> None:
        """Count a Pod that is not injected. This may be called in any thread."""
        self._at("sidecar_injection_skip_total").inc()

    def validation_passed(self, group: str, version: str, resource: str) -> None:
        """Count an object that passed validation. This may be called in any thread."""
        self._at("galley_validation_passed", group, resource, version).inc()

    def validation_failed(self, group: str, version: str, resource: str, reason: str) -> None:
        """Count an object that failed validation. This may be called in any thread."""
        self._at("galley_validation_failed", group, reason, resource, version).inc()

    def validation_http_error(self, status: int) -> None:
        """Count an invalid validation request."""
        self._at("galley_validation_http_error", str(status)).inc()

    def review_rejected(self, webhook: str, reason: str) -> None:
        """Count an admission review that exceeded a limit. `webhook` is "inject" or "validate"."""
        self._at("pilot_webhook_rejected_reviews", reason, webhook).inc()

    # -- exposition ----------------------------------------------------------------------------------------------------

    def value(self, name: str) -> float:
        """Return the value of a gauge without labels, or 0.0 if it has not been set."""
        return self._series.value(name)

    def exposition(self) -> bytes:
        """Return all metrics as text of the type `pilot.lib.metrics.exposition.CONTENT_TYPE`."""
        return self._series.exposition()
