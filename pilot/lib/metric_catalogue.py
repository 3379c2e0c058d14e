"""Every metric that the process may expose is declared here, once."""

from __future__ import annotations

from typing import Literal, NamedTuple


class DeclaredMetric(NamedTuple):
    """A metric. `name` is exactly what is exposed, and `labels` are in alphabetical order. `buckets`: the finite bounds of a histogram.

    `foreign`: the labels whose values clients and users choose. There are `limit` series with such values; what comes after them counts
    together.
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

_DECLARED = (
    # the process
    DeclaredMetric("istiod_uptime_seconds", "gauge", "Seconds since the process started."),
    DeclaredMetric("pilot_info", "gauge", "Always 1; the label is the version of the control plane.", ("version",)),
    DeclaredMetric(
        "pilot_log_lines_dropped", "counter", "Lines of logs that were not written, because nobody read them."
    ),
    DeclaredMetric("istio_build", "gauge", "Always 1; the labels are the component and its tag.", ("component", "tag")),
    DeclaredMetric("go_goroutines", "gauge", "Tasks of the event loop and threads."),
    DeclaredMetric("go_threads", "gauge", "Threads of the process."),
    DeclaredMetric("go_memstats_alloc_bytes", "gauge", "Resident bytes that belong to no file."),
    DeclaredMetric(
        "go_memstats_alloc_bytes_total", "counter", "Bytes by which that grew between readings of the metrics."
    ),
    DeclaredMetric(
        "go_memstats_mallocs_total", "counter", "Pieces by which Python's memory grew between readings of the metrics."
    ),
    DeclaredMetric("go_memstats_heap_alloc_bytes", "gauge", "The same as go_memstats_alloc_bytes."),
    DeclaredMetric("go_memstats_heap_inuse_bytes", "gauge", "The same as go_memstats_alloc_bytes."),
    DeclaredMetric("go_memstats_heap_sys_bytes", "gauge", "The same as go_memstats_alloc_bytes."),
    DeclaredMetric("go_memstats_heap_objects", "gauge", "Pieces of memory that Python's allocator has handed out."),
    DeclaredMetric("go_memstats_stack_inuse_bytes", "gauge", "Bytes of the main thread's stack."),
    DeclaredMetric("go_memstats_stack_sys_bytes", "gauge", "The same as go_memstats_stack_inuse_bytes."),
    DeclaredMetric("go_memstats_sys_bytes", "gauge", "Resident bytes."),
    # connections
    DeclaredMetric(
        "pilot_xds",
        "gauge",
        "Proxies that are connected, by their version.",
        ("version",),
        foreign=("version",),
        limit=100,
    ),
    DeclaredMetric("pilot_total_xds_internal_errors", "counter", "Streams that ended by an error of ours."),
    DeclaredMetric(
        "pilot_total_xds_rejects",
        "counter",
        "Responses that a proxy refused (NACK), by type.",
        ("type",),
        (),
        ("type",),
        50,
    ),
    DeclaredMetric(
        "pilot_xds_cds_reject",
        "gauge",
        "1 for a proxy that refused its clusters.",
        ("err", "node"),
        foreign=("err", "node"),
    ),
    DeclaredMetric(
        "pilot_xds_eds_reject",
        "gauge",
        "1 for a proxy that refused its endpoints.",
        ("err", "node"),
        foreign=("err", "node"),
    ),
    DeclaredMetric(
        "pilot_xds_lds_reject",
        "gauge",
        "1 for a proxy that refused its listeners.",
        ("err", "node"),
        foreign=("err", "node"),
    ),
    DeclaredMetric(
        "pilot_xds_rds_reject",
        "gauge",
        "1 for a proxy that refused its routes.",
        ("err", "node"),
        foreign=("err", "node"),
    ),
    DeclaredMetric(
        "pilot_xds_expired_nonce",
        "counter",
        "Requests that answer an older response than the last, by type.",
        ("type",),
        (),
        ("type",),
        50,
    ),
    DeclaredMetric("pilot_xds_write_timeout", "counter", "Responses that could not be written in time."),
    DeclaredMetric("pilot_xds_recv_max", "gauge", "Bytes of the largest request so far."),
    # certificates
    DeclaredMetric("citadel_server_csr_count", "counter", "Requests for a certificate."),
    DeclaredMetric(
        "citadel_server_authentication_failure_count",
        "counter",
        "Requests for a certificate whose caller may not have it.",
    ),
    DeclaredMetric(
        "citadel_server_csr_sign_err_count",
        "counter",
        "Requests for a certificate that could not be answered, by cause.",
        ("error",),
    ),
    DeclaredMetric("citadel_server_success_cert_issuance_count", "counter", "Certificates issued."),
    DeclaredMetric(
        "citadel_server_root_cert_expiry_timestamp", "gauge", "When the first root ends, in seconds since 1970."
    ),
    DeclaredMetric(
        "citadel_server_root_cert_expiry_seconds", "gauge", "Seconds until the first root ends; negative once it has."
    ),
    DeclaredMetric(
        "citadel_server_cert_chain_expiry_timestamp",
        "gauge",
        "When the plugged-in signing chain ends, in seconds since 1970.",
    ),
    DeclaredMetric(
        "citadel_server_cert_chain_expiry_seconds",
        "gauge",
        "Seconds until the plugged-in signing chain ends; negative once it has.",
    ),
    DeclaredMetric("grpc_server_started_total", "counter", "Calls with one answer that began.", _CALL),
    DeclaredMetric(
        "grpc_server_handled_total", "counter", "Calls with one answer that ended, by status.", ("grpc_code", *_CALL)
    ),
    DeclaredMetric("grpc_server_msg_received_total", "counter", "Requests of calls with one answer.", _CALL),
    DeclaredMetric("grpc_server_msg_sent_total", "counter", "Answers of calls with one answer.", _CALL),
    DeclaredMetric(
        "grpc_server_handling_seconds", "histogram", "Seconds that calls with one answer took.", _CALL, _CALLS
    ),
    # pushes
    DeclaredMetric(
        "pilot_xds_pushes",
        "counter",
        "Responses sent, by type, and sends that failed (<type>_senderr).",
        ("type",),
        (),
        ("type",),
        50,
    ),
    DeclaredMetric(
        "pilot_xds_push_time", "histogram", "Seconds to make and send one response.", ("type",), _PUSH, ("type",), 50
    ),
    DeclaredMetric(
        "pilot_xds_send_time",
        "histogram",
        "Seconds to write one response to its stream.",
        (),
        (0.01, 0.1, 1, 3, 5, 10, 20, 30),
    ),
    DeclaredMetric(
        "pilot_xds_config_size_bytes",
        "histogram",
        "Bytes of one response, by type URL.",
        ("type",),
        _SIZES,
        ("type",),
        50,
    ),
    DeclaredMetric(
        "pilot_sds_certificate_errors_total",
        "counter",
        "Secrets that proxies asked for and did not get, or that have expired.",
    ),
    DeclaredMetric(
        "pilot_debounce_time", "histogram", "Seconds from the first event of a batch to its push.", (), _PUSH
    ),
    DeclaredMetric(
        "pilot_pushcontext_init_seconds", "histogram", "Seconds to commit a batch.", (), (0.01, 0.1, 0.5, 1, 3, 5)
    ),
    DeclaredMetric(
        "pilot_proxy_queue_time", "histogram", "Seconds that a proxy's push waited for its turn.", (), _QUEUE
    ),
    DeclaredMetric(
        "pilot_proxy_convergence_time", "histogram", "Seconds from a change to one proxy having all of it.", (), _QUEUE
    ),
    DeclaredMetric("pilot_push_triggers", "counter", "Reasons of pushes, counted once a proxy.", ("type",)),
    DeclaredMetric("pilot_inbound_updates", "counter", "Updates received, by kind.", ("type",)),
    DeclaredMetric("pilot_worker_queue_depth", "gauge", "What waits in a queue.", ("queueID",)),
    DeclaredMetric(
        "pilot_worker_queue_latency", "histogram", "Seconds that something waited in a queue.", ("queueID",), _WORKER
    ),
    DeclaredMetric(
        "pilot_worker_queue_duration",
        "histogram",
        "Seconds that it took to do what waited in a queue.",
        ("queueID",),
        _WORKER,
    ),
    DeclaredMetric("xds_cache_size", "gauge", "Serialized resources that are kept."),
    DeclaredMetric("xds_cache_dependent_config_size", "gauge", "Rows of configuration that what is kept depends on."),
    DeclaredMetric(
        "xds_cache_reads", "counter", "How often what was to be sent was made already (hit), or not (miss).", ("type",)
    ),
    DeclaredMetric("xds_cache_evictions", "counter", "How often what is kept was given up, and why.", ("type",)),
    # configuration
    DeclaredMetric("pilot_services", "gauge", "Services known."),
    DeclaredMetric("pilot_virt_services", "gauge", "VirtualServices known."),
    DeclaredMetric("pilot_k8s_cfg_events", "counter", "Events of mesh configuration, by kind.", ("event", "type")),
    DeclaredMetric("pilot_k8s_reg_events", "counter", "Events of the service registry, by kind.", ("event", "type")),
    # clusters
    DeclaredMetric(
        "istiod_managed_clusters", "gauge", "Clusters that are read, by whether it is the own one.", ("cluster_type",)
    ),
    DeclaredMetric(
        "istiod_remote_cluster_sync_status",
        "gauge",
        "1 for how the reading of another cluster is, 0 for how it is not.",
        ("cluster", "cluster_type", "status"),
        foreign=("cluster",),
    ),
    DeclaredMetric(
        "remote_cluster_sync_timeouts_total",
        "counter",
        "Clusters that could not be read in time.",
        ("cluster",),
        foreign=("cluster",),
    ),
    DeclaredMetric(
        "remote_cluster_secret_events_total", "counter", "Events of Secrets that name other clusters.", ("event",)
    ),
    DeclaredMetric(
        "controller_sync_errors_total",
        "counter",
        "Collections of a cluster that could not be followed.",
        ("cluster",),
        foreign=("cluster",),
    ),
    DeclaredMetric(
        "webhook_patch_attempts_total", "counter", "Webhook configurations that were to be written.", ("name",)
    ),
    DeclaredMetric(
        "webhook_patch_retries_total",
        "counter",
        "Webhook configurations that were to be written again.",
        ("name",),
        foreign=("name",),
    ),
    DeclaredMetric(
        "webhook_patch_failures_total",
        "counter",
        "Webhook configurations that could not be written.",
        ("name", "reason"),
        foreign=("name",),
    ),
    DeclaredMetric(
        "galley_validation_config_updates", "counter", "Configurations of validating webhooks that were written."
    ),
    DeclaredMetric(
        "galley_validation_config_update_error",
        "counter",
        "Configurations of validating webhooks that could not be written.",
        ("reason",),
        foreign=("reason",),
    ),
    DeclaredMetric("auto_registration_success_total", "counter", "Workloads that registered themselves."),
    DeclaredMetric(
        "auto_registration_updates_total", "counter", "Workloads that were registered already and came back."
    ),
    DeclaredMetric("auto_registration_unregister_total", "counter", "Workloads that left."),
    DeclaredMetric(
        "auto_registration_deletes_total", "counter", "Entries of workloads that were deleted after they had left."
    ),
    DeclaredMetric(
        "auto_registration_errors_total",
        "counter",
        "Workloads that could not be registered, or whose entry could not be deleted.",
    ),
    # objects
    DeclaredMetric(
        "pilot_total_rejected_configs",
        "counter",
        "Objects that were refused or ignored.",
        ("name", "type"),
        foreign=("name",),
        limit=10_000,
    ),
    DeclaredMetric(
        "provider_lookup_cluster_failures", "counter", "Services of extension providers that were not found.", ("type",)
    ),
    DeclaredMetric(
        "pilot_config_problems",
        "gauge",
        "Problems of users' objects, by what is wrong and how bad it is.",
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
        "pilot_jwks_resolver_network_fetch_success_total", "counter", "Key sets of issuers that were fetched."
    ),
    DeclaredMetric(
        "pilot_jwks_resolver_network_fetch_fail_total", "counter", "Fetches of key sets of issuers that failed."
    ),
    # health: how many different things were found when the mesh was looked at last
    DeclaredMetric("endpoint_no_pod", "gauge", "Services with endpoints whose Pod is not there."),
    DeclaredMetric("pilot_no_ip", "gauge", "Proxies that no service selects."),
    DeclaredMetric("pilot_endpoint_not_ready", "gauge", "Proxies whose own endpoint is not ready."),
    DeclaredMetric(
        "pilot_conflict_outbound_listener_tcp_over_current_tcp", "gauge", "Addresses that several services of TCP have."
    ),
    DeclaredMetric(
        "pilot_conflict_inbound_listener", "gauge", "Ports of workloads that services speak different protocols with."
    ),
    DeclaredMetric("pilot_duplicate_envoy_clusters", "gauge", "Clusters that a proxy would get twice: always 0."),
    DeclaredMetric(
        "pilot_dns_cluster_without_endpoints", "gauge", "Ports of services that have no endpoints for DNS to resolve."
    ),
    DeclaredMetric("pilot_eds_no_instances", "gauge", "Ports of services without endpoints."),
    DeclaredMetric("pilot_vservice_dup_domain", "gauge", "Hosts of VirtualServices that an older one has."),
    DeclaredMetric("pilot_destrule_subsets", "gauge", "Subsets of DestinationRules that an older one has."),
    # webhooks
    DeclaredMetric("sidecar_injection_requests_total", "counter", "Requests to inject a pod."),
    DeclaredMetric(
        "sidecar_injection_success_total", "counter", "Reviews of pods that were answered, whatever the answer."
    ),
    DeclaredMetric(
        "sidecar_injection_failure_total", "counter", "Pods that could not be injected, and requests that were none."
    ),
    DeclaredMetric("sidecar_injection_skip_total", "counter", "Pods that get no proxy."),
    DeclaredMetric(
        "sidecar_injection_time_seconds",
        "histogram",
        "Seconds to answer a request.",
        (),
        (0.1, 1, 3, 5, 10, 20, 30, 60),
    ),
    DeclaredMetric(
        "galley_validation_passed",
        "counter",
        "Objects found right.",
        ("group", "resource", "version"),
        foreign=("group", "resource", "version"),
    ),
    DeclaredMetric(
        "galley_validation_failed",
        "counter",
        "Objects found wrong, and why.",
        ("group", "reason", "resource", "version"),
        foreign=("group", "resource", "version"),
    ),
    DeclaredMetric(
        "galley_validation_http_error",
        "counter",
        "Requests to validate an object that were none, by HTTP status.",
        ("status",),
    ),
    DeclaredMetric(
        "pyistiod_graph_nodes",
        "gauge",
        "Derived values that are kept: what connected proxies need, and what the next sweep frees.",
    ),
    DeclaredMetric(
        "pilot_derivation_failures",
        "counter",
        "Bugs: derivations that raised, by name; the last good value stays.",
        ("derivation",),
    ),
)

CATALOGUE = {declared.name: declared for declared in _DECLARED}
