"""What the process counts: one observer whose methods say what happened. An observation costs about a microsecond."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Literal

from pilot.lib.build_info import BuildInfo, build_info
from pilot.lib.call_metrics import CallMetrics, go_name
from pilot.lib.kubernetes_metrics import KubernetesMetrics
from pilot.lib.metric_catalogue import CATALOGUE
from pilot.lib.runtime_metrics import RuntimeMetrics
from pilot.lib.series import Series
from pilot.lib.xds_types import short_name

CHANGES, PUSHES = "changes", "pushes"
"""The queues: changes of configuration that wait to be committed, and proxies that wait for their push."""
Update = Literal["config", "eds", "svc", "svcdelete"]
Event = Literal["add", "update", "updatesame", "delete"]


class Metrics:
    """All metrics of one control plane. Times are seconds, sizes bytes, types full type URLs. `responses` and `response_bytes` are of all that was
    sent."""

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
        """Asks `count` for the number of derived values whenever the metrics are read."""
        self._at("pyistiod_graph_nodes").set_function(count)

    def count_queues(self, depths: Mapping[str, Callable[[], int]]) -> None:
        """Counts the queues too: `depths` has how many wait in each, which is asked whenever the metrics are read."""
        self._queues = True
        for queue, depth in depths.items():
            self._at("pilot_worker_queue_depth", queue).set_function(depth)

    def count_cache(
        self, resources: Callable[[], int], rows: Callable[[], int], reads: Callable[[], tuple[int, int]]
    ) -> None:
        """Counts what is kept of serialized resources too: how many there are, how many rows they depend on, how often they were there when they
        were to be sent and how often not; which is asked whenever the metrics are read."""
        self._at("xds_cache_size").set_function(resources)
        self._at("xds_cache_dependent_config_size").set_function(rows)
        told = [0, 0]

        def tell() -> None:
            for index, kind in enumerate(("hit", "miss")):
                if (count := reads()[index]) > told[index]:
                    self._at("xds_cache_reads", kind).inc(count - told[index])
                    told[index] = count

        self._series.before_reading(tell)

    def cache_evicted(self, cause: Literal["clear", "size"]) -> None:
        """What was kept of serialized resources was given up, because somebody said so or because it was too much."""
        self._at("xds_cache_evictions", cause).inc()

    # -- connections ---------------------------------------------------------------------------------------------------

    def connected(self, version: str) -> None:
        """A proxy of that ISTIO_VERSION opened a stream."""
        self._at("pilot_xds", version).inc()

    def disconnected(self, version: str) -> None:
        self._at("pilot_xds", version).dec()

    def received(self, size: int) -> None:
        """A request of `size` bytes arrived."""
        if size > self._largest_request:
            self._largest_request = size
            self._at("pilot_xds_recv_max").set(size)

    def rejected(self, type_url: str, proxy: str, code: int) -> None:
        """A proxy (its id) sent a NACK with that gRPC status code."""
        name = short_name(type_url)
        self._at("pilot_total_xds_rejects", name).inc()
        if (counted := f"pilot_xds_{name}_reject") in CATALOGUE:
            self._at(counted, go_name(code), proxy).set(1)

    def expired_nonce(self, type_url: str) -> None:
        """A request answered an older response than the last one."""
        self._at("pilot_xds_expired_nonce", short_name(type_url)).inc()

    def internal_error(self) -> None:
        """A stream ended by an error of ours."""
        self._at("pilot_total_xds_internal_errors").inc()

    # -- certificates --------------------------------------------------------------------------------------------------

    def csr_received(self) -> None:
        """A request for a certificate came; nothing of it has been looked at."""
        self._at("citadel_server_csr_count").inc()

    def csr_unauthenticated(self) -> None:
        """The caller who asks for a certificate is unknown, or may not have it."""
        self._at("citadel_server_authentication_failure_count").inc()

    def csr_failed(self, code: str) -> None:
        """A request for a certificate could not be answered; `code` is the cause in Istio's words."""
        self._at("citadel_server_csr_sign_err_count", code).inc()

    def csr_signed(self) -> None:
        self._at("citadel_server_success_cert_issuance_count").inc()

    def root_expires(self, at: float, now: Callable[[], float] = time.time) -> None:
        """The first root ends at `at`, in seconds since 1970."""
        self._expires("citadel_server_root_cert_expiry", at, now)

    def chain_expires(self, at: float, now: Callable[[], float] = time.time) -> None:
        """The plugged-in signing chain ends at `at`, in seconds since 1970."""
        self._expires("citadel_server_cert_chain_expiry", at, now)

    def _expires(self, name: str, at: float, now: Callable[[], float]) -> None:
        self._at(f"{name}_timestamp").set(at)
        self._at(f"{name}_seconds").set_function(lambda: at - now())

    # -- pushes --------------------------------------------------------------------------------------------------------

    def dequeued(self, waited: float, reasons: Mapping[str, int]) -> None:
        """A proxy's push got its turn. `reasons`: config, endpoint, service, proxy, global, secret … → how many were merged."""
        self._at("pilot_proxy_queue_time").observe(waited)
        if self._queues:
            self._at("pilot_worker_queue_latency", PUSHES).observe(waited)
        for reason, count in reasons.items():
            self._at("pilot_push_triggers", reason).inc(count)

    def sent(self, type_url: str, size: int, took: float, writing: float) -> None:
        """A response of `size` bytes was sent; `took` includes making it, `writing` is the write alone."""
        name = short_name(type_url)
        self._at("pilot_xds_pushes", name).inc()
        self._at("pilot_xds_push_time", name).observe(took)
        self._at("pilot_xds_config_size_bytes", type_url).observe(size)
        self._at("pilot_xds_send_time").observe(writing)
        self.responses += 1
        self.response_bytes += size

    def send_failed(self, type_url: str) -> None:
        """A response could not be sent, not because the peer went away."""
        self._at("pilot_xds_pushes", short_name(type_url) + "_senderr").inc()

    def secrets_failed(self, count: int) -> None:
        """A proxy asked for so many secrets that it does not get, or that have expired."""
        self._at("pilot_sds_certificate_errors_total").inc(count)

    def write_timed_out(self) -> None:
        self._at("pilot_xds_write_timeout").inc()

    def converged(self, took: float) -> None:
        """One proxy has everything of a push, `took` after the push was queued."""
        self._at("pilot_proxy_convergence_time").observe(took)
        if self._queues:
            self._at("pilot_worker_queue_duration", PUSHES).observe(took)

    # -- configuration -------------------------------------------------------------------------------------------------

    def updated(self, kind: Update, count: int = 1) -> None:
        """Updates arrived, before debouncing."""
        self._at("pilot_inbound_updates", kind).inc(count)

    def debounced(self, waited: float) -> None:
        """A batch starts to be pushed, `waited` after its first event."""
        self._at("pilot_debounce_time").observe(waited)
        if self._queues:
            self._at("pilot_worker_queue_latency", CHANGES).observe(waited)

    def committed(self, took: float) -> None:
        """A batch is in the tables and what it reaches is known."""
        self._at("pilot_pushcontext_init_seconds").observe(took)
        if self._queues:
            self._at("pilot_worker_queue_duration", CHANGES).observe(took)

    def counted(self, services: int, virtual_services: int) -> None:
        """There are that many after a commit."""
        self._at("pilot_services").set(services)
        self._at("pilot_virt_services").set(virtual_services)

    def config_event(self, kind: str, event: Event, count: int = 1) -> None:
        """An object of Istio's kinds came, changed or went."""
        self._at("pilot_k8s_cfg_events", event, kind).inc(count)

    def registry_event(self, kind: str, event: Event, count: int = 1) -> None:
        """Like `config_event`, of Services, EndpointSlice, Pods, Nodes, Namespaces."""
        self._at("pilot_k8s_reg_events", event, kind).inc(count)

    def cluster_secret(self, event: str) -> None:
        """A Secret that names other clusters came (add), changed (update) or went (delete)."""
        self._at("remote_cluster_secret_events_total", event).inc()

    def clusters(self, local: int, remote: int) -> None:
        """So many clusters are read."""
        self._at("istiod_managed_clusters", "local").set(local)
        self._at("istiod_managed_clusters", "remote").set(remote)

    def cluster_status(self, cluster: str, status: str) -> None:
        """The reading of another cluster is syncing, synced, timeout or closed now."""
        for known in ("syncing", "synced", "timeout", "closed"):
            self._at("istiod_remote_cluster_sync_status", cluster, "remote", known).set(int(known == status))
        if status == "timeout":
            self._at("remote_cluster_sync_timeouts_total", cluster).inc()

    def envoy_filter(self, name: str, patch: str, result: str, value: int) -> None:
        """A patch of an EnvoyFilter ("namespace/name") was applied to something, or left out of it ("error"); 0: is so no more."""
        self._at("pilot_envoy_filter_status", name, patch, result).set(value)

    def rejected_config(self, kind: str, name: str) -> None:
        """An object ("namespace/name") was refused or ignored; `kind` in lower case, "gateway"."""
        self._at("pilot_total_rejected_configs", name, kind).inc()

    def provider_lookup_failed(self, kind: str) -> None:
        """The service of an extension provider is not there (any more)."""
        self._at("provider_lookup_cluster_failures", kind).inc()

    def log_lines_dropped(self, count: int) -> None:
        """Lines of a log were not written, because nobody reads it; called from any thread."""
        self._at("pilot_log_lines_dropped").inc(count)

    def config_problems(self, code: str, severity: str, count: int) -> None:
        """There are that many problems of a code now."""
        self._at("pilot_config_problems", code, severity).set(count)

    def health(self, metric: str, count: int) -> None:
        """So many different things of a metric of health were found in the last look at the mesh."""
        self._at(metric).set(count)

    def key_set_fetched(self, success: bool) -> None:
        """A key set of an issuer was fetched, or could not be."""
        self._at(f"pilot_jwks_resolver_network_fetch_{'success' if success else 'fail'}_total").inc()

    def derivation_failed(self, derivation: str) -> None:
        """A bug of ours, whose effect is that a proxy keeps what it has."""
        self._at("pilot_derivation_failures", derivation).inc()

    # -- webhooks ------------------------------------------------------------------------------------------------------

    def injection_requested(self) -> None:
        """A request to inject a pod came."""
        self._at("sidecar_injection_requests_total").inc()

    def injection_answered(self, took: float) -> None:
        """A review of a pod was answered."""
        self._at("sidecar_injection_success_total").inc()
        self._at("sidecar_injection_time_seconds").observe(took)

    def injection_failed(self) -> None:
        """A pod could not be injected; called from any thread."""
        self._at("sidecar_injection_failure_total").inc()

    def injection_skipped(self) -> None:
        """A pod gets no proxy; called from any thread."""
        self._at("sidecar_injection_skip_total").inc()

    def validation_passed(self, group: str, version: str, resource: str) -> None:
        """An object was found right; called from any thread."""
        self._at("galley_validation_passed", group, resource, version).inc()

    def validation_failed(self, group: str, version: str, resource: str, reason: str) -> None:
        """An object was found wrong; called from any thread."""
        self._at("galley_validation_failed", group, reason, resource, version).inc()

    def validation_http_error(self, status: int) -> None:
        """A request to validate an object was none."""
        self._at("galley_validation_http_error", str(status)).inc()

    # -- exposition ----------------------------------------------------------------------------------------------------

    def value(self, name: str) -> float:
        """Returns the value of a gauge without labels, 0.0 before it is set."""
        return self._series.value(name)

    def exposition(self) -> bytes:
        """Returns everything observed so far, as text (`pilot.lib.exposition.CONTENT_TYPE`)."""
        return self._series.exposition()
