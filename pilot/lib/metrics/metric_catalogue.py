"""The catalogue of all metrics that the process exposes."""

from __future__ import annotations

from typing import Literal, NamedTuple


class DeclaredMetric(NamedTuple):
    """The declaration of a metric.

    name: the exposed name.
    labels: label names in alphabetical order.
    buckets: the finite bounds of a histogram.
    foreign: the labels whose values clients and users choose. Beyond `limit` series,
        these values are merged into one series.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    foreign: tuple[str, ...] = ()
    limit: int = 1000


_PUSH = (0.01, 0.1, 0.5, 1, 3, 5, 10, 20, 30)
_SIZES = (1, 1e4, 1e6, 4e6, 1e7, 4e7)
_WORKER = (0.01, 0.1, 0.2, 0.5, 1, 3, 5)
_CALLS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_CALL = ("grpc_method", "grpc_service", "grpc_type")
_QUEUE = (0.1, 0.5, 1, 3, 5, 10, 20, 30)
_DELIVERY = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60)
_STALLS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10)

_DECLARED = (
    # the process
    DeclaredMetric("istiod_uptime_seconds", "gauge", "Seconds since the process started."),
    DeclaredMetric("pilot_info", "gauge", "Always 1. The label is the version of the control plane.", ("version",)),
    DeclaredMetric("pilot_log_lines_dropped", "counter", "Log lines dropped because the log was not read fast enough."),
    DeclaredMetric(
        "pilot_event_loop_stall_seconds",
        "histogram",
        "Periods of more than 50 ms in which the event loop was blocked, by derivation or function.",
        ("work",),
        _STALLS,
    ),
    DeclaredMetric("istio_build", "gauge", "Always 1. The labels are the component and its tag.", ("component", "tag")),
    DeclaredMetric("go_goroutines", "gauge", "Event loop tasks and threads."),
    DeclaredMetric("go_threads", "gauge", "Threads of the process."),
    DeclaredMetric("go_memstats_alloc_bytes", "gauge", "Resident anonymous memory in bytes."),
    DeclaredMetric(
        "go_memstats_alloc_bytes_total", "counter", "Growth of go_memstats_alloc_bytes between reads of the metrics."
    ),
    DeclaredMetric(
        "go_memstats_mallocs_total", "counter", "Growth of go_memstats_heap_objects between reads of the metrics."
    ),
    DeclaredMetric("go_memstats_heap_alloc_bytes", "gauge", "The same as go_memstats_alloc_bytes."),
    DeclaredMetric("go_memstats_heap_inuse_bytes", "gauge", "The same as go_memstats_alloc_bytes."),
    DeclaredMetric("go_memstats_heap_sys_bytes", "gauge", "The same as go_memstats_alloc_bytes."),
    DeclaredMetric("go_memstats_heap_objects", "gauge", "Memory blocks allocated by Python's allocator."),
    DeclaredMetric("go_memstats_stack_inuse_bytes", "gauge", "Stack of the main thread in bytes."),
    DeclaredMetric("go_memstats_stack_sys_bytes", "gauge", "The same as go_memstats_stack_inuse_bytes."),
    DeclaredMetric("go_memstats_sys_bytes", "gauge", "Resident memory in bytes."),
    # connections
    DeclaredMetric(
        "pilot_xds",
        "gauge",
        "Connected proxies, by version.",
        ("version",),
        foreign=("version",),
        limit=100,
    ),
    DeclaredMetric("pilot_total_xds_internal_errors", "counter", "Streams closed because of an internal error."),
    DeclaredMetric(
        "pilot_caller_limits_exceeded",
        "counter",
        "Calls that were rejected or ended because their caller exceeded a limit.",
        ("limit",),
    ),
    DeclaredMetric(
        "pilot_total_xds_rejects",
        "counter",
        "Responses rejected by proxies (NACK), by type.",
        ("type",),
        (),
        ("type",),
        50,
    ),
    DeclaredMetric(
        "pilot_xds_cds_reject",
        "gauge",
        "1 for each proxy that rejected its clusters.",
        ("err", "node"),
        foreign=("err", "node"),
    ),
    DeclaredMetric(
        "pilot_xds_eds_reject",
        "gauge",
        "1 for each proxy that rejected its endpoints.",
        ("err", "node"),
        foreign=("err", "node"),
    ),
    DeclaredMetric(
        "pilot_xds_lds_reject",
        "gauge",
        "1 for each proxy that rejected its listeners.",
        ("err", "node"),
        foreign=("err", "node"),
    ),
    DeclaredMetric(
        "pilot_xds_rds_reject",
        "gauge",
        "1 for each proxy that rejected its routes.",
        ("err", "node"),
        foreign=("err", "node"),
    ),
    DeclaredMetric(
        "pilot_xds_expired_nonce",
        "counter",
        "Requests with the nonce of an outdated response, by type.",
        ("type",),
        (),
        ("type",),
        50,
    ),
    DeclaredMetric("pilot_xds_write_timeout", "counter", "Responses whose write timed out."),
    DeclaredMetric("pilot_xds_recv_max", "gauge", "Size of the largest request so far, in bytes."),
    # certificates
    DeclaredMetric("citadel_server_csr_count", "counter", "Certificate signing requests received."),
    DeclaredMetric(
        "citadel_server_authentication_failure_count",
        "counter",
        "Certificate signing requests whose caller was not authenticated or not authorized.",
    ),
    DeclaredMetric(
        "citadel_server_csr_sign_err_count",
        "counter",
        "Certificate signing requests that failed, by cause.",
        ("error",),
    ),
    DeclaredMetric("citadel_server_success_cert_issuance_count", "counter", "Certificates issued."),
    DeclaredMetric(
        "citadel_server_root_cert_expiry_timestamp",
        "gauge",
        "Expiry of the root certificate that expires first, as a Unix timestamp.",
    ),
    DeclaredMetric(
        "citadel_server_root_cert_expiry_seconds",
        "gauge",
        "Seconds until the first root certificate expires. Negative after that.",
    ),
    DeclaredMetric(
        "citadel_server_cert_chain_expiry_timestamp",
        "gauge",
        "Expiry of the plugged-in signing certificate chain, as a Unix timestamp.",
    ),
    DeclaredMetric(
        "citadel_server_cert_chain_expiry_seconds",
        "gauge",
        "Seconds until the plugged-in signing certificate chain expires. Negative after that.",
    ),
    DeclaredMetric("grpc_server_started_total", "counter", "Unary calls started.", _CALL),
    DeclaredMetric("grpc_server_handled_total", "counter", "Unary calls completed, by status.", ("grpc_code", *_CALL)),
    DeclaredMetric("grpc_server_msg_received_total", "counter", "Requests of unary calls received.", _CALL),
    DeclaredMetric("grpc_server_msg_sent_total", "counter", "Responses of unary calls sent.", _CALL),
    DeclaredMetric("grpc_server_handling_seconds", "histogram", "Duration of unary calls in seconds.", _CALL, _CALLS),
    # pushes
    DeclaredMetric(
        "pilot_xds_pushes",
        "counter",
        "Responses sent, by type. Failed sends have the type <type>_senderr.",
        ("type",),
        (),
        ("type",),
        50,
    ),
    DeclaredMetric(
        "pilot_xds_push_time", "histogram", "Seconds to build and send a response.", ("type",), _PUSH, ("type",), 50
    ),
    DeclaredMetric(
        "pilot_xds_send_time",
        "histogram",
        "Seconds to write a response to its stream.",
        (),
        (0.01, 0.1, 1, 3, 5, 10, 20, 30),
    ),
    DeclaredMetric(
        "pilot_xds_config_size_bytes",
        "histogram",
        "Size of a response in bytes, by type URL.",
        ("type",),
        _SIZES,
        ("type",),
        50,
    ),
    DeclaredMetric(
        "pilot_sds_certificate_errors_total",
        "counter",
        "Requested secrets that were unavailable or have expired.",
    ),
    DeclaredMetric(
        "pilot_debounce_time", "histogram", "Seconds from the first event of a batch to its push.", (), _PUSH
    ),
    DeclaredMetric(
        "pilot_pushcontext_init_seconds", "histogram", "Seconds to commit a batch.", (), (0.01, 0.1, 0.5, 1, 3, 5)
    ),
    DeclaredMetric(
        "pilot_proxy_queue_time", "histogram", "Seconds that a proxy's push waited in the queue.", (), _QUEUE
    ),
    DeclaredMetric(
        "pilot_proxy_convergence_time",
        "histogram",
        "Seconds from a change until a proxy has received all of it.",
        (),
        _QUEUE,
    ),
    DeclaredMetric(
        "pilot_delivery_seconds",
        "histogram",
        "Seconds from the reading of a change until a proxy has acknowledged it, for each proxy that it changes.",
        (),
        _DELIVERY,
    ),
    DeclaredMetric("pilot_push_triggers", "counter", "Pushes by reason, counted once per proxy.", ("type",)),
    DeclaredMetric("pilot_inbound_updates", "counter", "Updates received, by kind.", ("type",)),
    DeclaredMetric("pilot_worker_queue_depth", "gauge", "Items waiting in a queue.", ("queueID",)),
    DeclaredMetric(
        "pilot_worker_queue_latency", "histogram", "Seconds that an item waited in a queue.", ("queueID",), _WORKER
    ),
    DeclaredMetric(
        "pilot_worker_queue_duration",
        "histogram",
        "Seconds to process an item of a queue.",
        ("queueID",),
        _WORKER,
    ),
    DeclaredMetric("xds_cache_size", "gauge", "Serialized resources in the cache."),
    DeclaredMetric(
        "xds_cache_dependent_config_size", "gauge", "Configuration objects that cached resources depend on."
    ),
    DeclaredMetric(
        "xds_cache_reads", "counter", "Reads of resources that were cached (hit) or had to be built (miss).", ("type",)
    ),
    DeclaredMetric("xds_cache_evictions", "counter", "Evictions of cached resources, by cause.", ("type",)),
    # configuration
    DeclaredMetric("pilot_services", "gauge", "Services in the mesh."),
    DeclaredMetric("pilot_virt_services", "gauge", "VirtualServices in the mesh."),
    DeclaredMetric("pilot_k8s_cfg_events", "counter", "Events of mesh configuration, by kind.", ("event", "type")),
    DeclaredMetric("pilot_k8s_reg_events", "counter", "Events of the service registry, by kind.", ("event", "type")),
    # clusters
    DeclaredMetric("istiod_managed_clusters", "gauge", "Clusters that are read: local or remote.", ("cluster_type",)),
    DeclaredMetric(
        "istiod_remote_cluster_sync_status",
        "gauge",
        "1 for the current sync status of a remote cluster, 0 for the others.",
        ("cluster", "cluster_type", "status"),
        foreign=("cluster",),
    ),
    DeclaredMetric(
        "remote_cluster_sync_timeouts_total",
        "counter",
        "Remote clusters that did not sync in time.",
        ("cluster",),
        foreign=("cluster",),
    ),
    DeclaredMetric(
        "remote_cluster_secret_events_total", "counter", "Events of Secrets that configure remote clusters.", ("event",)
    ),
    DeclaredMetric(
        "controller_sync_errors_total",
        "counter",
        "Failures to list or watch a collection of a cluster.",
        ("cluster",),
        foreign=("cluster",),
    ),
    DeclaredMetric("webhook_patch_attempts_total", "counter", "Attempts to patch webhook configurations.", ("name",)),
    DeclaredMetric(
        "webhook_patch_retries_total",
        "counter",
        "Retries to patch webhook configurations.",
        ("name",),
        foreign=("name",),
    ),
    DeclaredMetric(
        "webhook_patch_failures_total",
        "counter",
        "Failures to patch webhook configurations.",
        ("name", "reason"),
        foreign=("name",),
    ),
    DeclaredMetric("galley_validation_config_updates", "counter", "Updates of validating webhook configurations."),
    DeclaredMetric(
        "galley_validation_config_update_error",
        "counter",
        "Failed updates of validating webhook configurations.",
        ("reason",),
        foreign=("reason",),
    ),
    DeclaredMetric("auto_registration_success_total", "counter", "Automatic registrations of workloads."),
    DeclaredMetric("auto_registration_updates_total", "counter", "Reconnections of registered workloads."),
    DeclaredMetric("auto_registration_unregister_total", "counter", "Disconnections of registered workloads."),
    DeclaredMetric(
        "auto_registration_deletes_total", "counter", "WorkloadEntries deleted after their workload disconnected."
    ),
    DeclaredMetric(
        "auto_registration_errors_total",
        "counter",
        "Failures to register a workload or to delete its WorkloadEntry.",
    ),
    # objects
    DeclaredMetric(
        "pilot_total_rejected_configs",
        "counter",
        "Objects that were rejected or ignored.",
        ("name", "type"),
        foreign=("name",),
        limit=10_000,
    ),
    DeclaredMetric(
        "provider_lookup_cluster_failures",
        "counter",
        "Lookups of extension providers whose service was not found.",
        ("type",),
    ),
    DeclaredMetric(
        "pilot_config_problems",
        "gauge",
        "Problems in the configuration, by code and severity.",
        ("code", "severity"),
    ),
    DeclaredMetric(
        "pilot_envoy_filter_status",
        "gauge",
        "Status of Envoy filters whether it was applied or errored.",
        ("name", "patch", "result"),
        foreign=("name",),
        limit=10_000,
    ),
    DeclaredMetric(
        "pilot_jwks_resolver_network_fetch_success_total", "counter", "Successful fetches of JSON Web Key Sets."
    ),
    DeclaredMetric("pilot_jwks_resolver_network_fetch_fail_total", "counter", "Failed fetches of JSON Web Key Sets."),
    # health: number of distinct findings in the last check of the mesh
    DeclaredMetric("endpoint_no_pod", "gauge", "Services with endpoints that have no Pod."),
    DeclaredMetric("pilot_no_ip", "gauge", "Proxies that no service selects."),
    DeclaredMetric("pilot_endpoint_not_ready", "gauge", "Proxies whose own endpoint is not ready."),
    DeclaredMetric(
        "pilot_conflict_outbound_listener_tcp_over_current_tcp", "gauge", "Addresses shared by several TCP services."
    ),
    DeclaredMetric(
        "pilot_conflict_inbound_listener", "gauge", "Workload ports for which services declare different protocols."
    ),
    DeclaredMetric("pilot_duplicate_envoy_clusters", "gauge", "Duplicate clusters. Always 0."),
    DeclaredMetric(
        "pilot_dns_cluster_without_endpoints", "gauge", "Service ports resolved by DNS that have no endpoints."
    ),
    DeclaredMetric("pilot_eds_no_instances", "gauge", "Service ports without endpoints."),
    DeclaredMetric(
        "pilot_vservice_dup_domain", "gauge", "Hosts of VirtualServices that an older VirtualService already claims."
    ),
    DeclaredMetric(
        "pilot_destrule_subsets", "gauge", "Subsets of DestinationRules that an older DestinationRule already defines."
    ),
    # webhooks
    DeclaredMetric("sidecar_injection_requests_total", "counter", "Injection requests received."),
    DeclaredMetric("sidecar_injection_success_total", "counter", "Injection requests answered."),
    DeclaredMetric("sidecar_injection_failure_total", "counter", "Injections that failed, and invalid requests."),
    DeclaredMetric("sidecar_injection_skip_total", "counter", "Pods without injection."),
    DeclaredMetric(
        "sidecar_injection_time_seconds",
        "histogram",
        "Seconds to answer an injection request.",
        (),
        (0.1, 1, 3, 5, 10, 20, 30, 60),
    ),
    DeclaredMetric(
        "galley_validation_passed",
        "counter",
        "Objects that passed validation.",
        ("group", "resource", "version"),
        foreign=("group", "resource", "version"),
    ),
    DeclaredMetric(
        "galley_validation_failed",
        "counter",
        "Objects that failed validation, by reason.",
        ("group", "reason", "resource", "version"),
        foreign=("group", "resource", "version"),
    ),
    DeclaredMetric(
        "galley_validation_http_error",
        "counter",
        "Invalid validation requests, by HTTP status.",
        ("status",),
    ),
    DeclaredMetric(
        "pilot_webhook_rejected_reviews",
        "counter",
        "Admission reviews that exceeded a limit: cpu, memory, wait, requests (of the caller), or crash of the worker.",
        ("reason", "webhook"),
    ),
    DeclaredMetric(
        "pyistiod_graph_nodes",
        "gauge",
        "Derived values in memory, including those that the next collection frees.",
    ),
    DeclaredMetric(
        "pilot_derivation_failures",
        "counter",
        "Internal errors in derivations, by name. The last good value stays in force.",
        ("derivation",),
    ),
)

CATALOGUE = {declared.name: declared for declared in _DECLARED}
