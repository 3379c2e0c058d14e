"""Settings of the process: its ports, configuration sources, xDS server, debug pages, logs and traces."""

# ruff: noqa: RUF009 (the values of setting() are immutable)
from __future__ import annotations

import dataclasses

from pilot.lib.duration import Duration, format_duration, parse_duration
from pilot.settings import checks
from pilot.settings.declaration import FOREVER, setting


@dataclasses.dataclass(frozen=True)
class ProcessSettings:
    """Settings of the HTTP ports and the shutdown of the process."""

    http_address: str = setting(":8080", "Address for /ready and the debug pages.", flag="httpAddr")
    monitoring_address: str = setting(
        ":15014",
        "Address for /metrics, /version and the debug pages. If empty, they are served at --httpAddr.",
        flag="monitoringAddr",
    )
    pod_name: str = setting(
        "",
        "Name of this pod. istioctl and leader election use it to tell replicas apart. If empty, leader "
        "election uses a random name.",
        env="POD_NAME",
    )
    controlz_address: str = setting(
        "localhost",
        "Address for ControlZ; * for all interfaces. ControlZ performs no authentication.",
        flag="ctrlz_address",
    )
    controlz_port: int = setting(
        9876,
        "Port of ControlZ, which shows the state of the process and changes log levels at run time. 0 disables it.",
        flag="ctrlz_port",
    )
    shutdown_duration: Duration = setting(
        parse_duration("10s"), "Maximum time to wait after SIGTERM for open streams to finish.", flag="shutdownDuration"
    )


@dataclasses.dataclass(frozen=True)
class IngestSettings:
    """Settings of configuration sources, and of how changes are debounced."""

    registries: tuple[str, ...] = setting(
        ("Kubernetes",), "Service registries to read. Only Kubernetes is supported.", flag="registries"
    )
    config_dirs: tuple[str, ...] = setting(
        (),
        "Directory of YAML and JSON files to read and watch. DIR contains the objects of the local cluster. "
        "CLUSTER=DIR contains the workloads and services of another cluster. Repeat the flag to add "
        "directories.",
        flag="configDir",
        repeated=True,
    )
    largest_file: int = setting(
        64 * 1024 * 1024,
        "Maximum size of a configuration file, in bytes. Larger files are not read.",
        env="PILOT_MAX_CONFIG_FILE_BYTES",
    )
    resolve_gateways: bool = setting(
        True,
        "Resolve the hostnames of network gateways. If false, only gateways with an IP address are used.",
        env="RESOLVE_HOSTNAME_GATEWAYS",
    )
    state_dir: str = setting(
        "",
        "Directory for state that survives restarts: fetched key sets, the addresses allocated to ServiceEntries, and "
        "the last valid version of each object that is currently invalid. If empty, this state is lost on restart.",
        flag="stateDir",
        env="PILOT_STATE_DIR",
    )
    mesh_config: str = setting(
        "./etc/istio/config/mesh",
        "File with the mesh configuration. If the flag is set, the file must exist.",
        flag="meshConfig",
    )
    networks_config: str = setting(
        "./etc/istio/config/meshNetworks",
        "File with the mesh networks. If the flag is set, the file must exist.",
        flag="networksConfig",
    )
    allow_invalid_mesh_config: bool = setting(
        False,
        "Start even if the mesh configuration or the mesh networks are invalid. The defaults, or the valid ConfigMaps, "
        "apply until they are corrected. If false, the process refuses to start.",
        flag="allow-invalid-mesh-config",
        env="PILOT_ALLOW_INVALID_MESH_CONFIG",
    )
    revision: str = setting(
        "",
        "Revision of this control plane. Objects whose istio.io/rev label names another revision are ignored.",
        env="REVISION",
    )
    debounce_after: Duration = setting(
        parse_duration("100ms"),
        "Quiet period: a change is applied when no further change has arrived for this long.",
        env="PILOT_DEBOUNCE_AFTER",
    )
    debounce_max: Duration = setting(
        parse_duration("10s"),
        "Maximum time that a change is delayed while further changes arrive. For Pods and EndpointSlices, the "
        "maximum is the longer of 250ms and PILOT_DEBOUNCE_AFTER.",
        env="PILOT_DEBOUNCE_MAX",
    )
    debounce_endpoints: bool = setting(
        True,
        "Debounce changes that affect only Pods and EndpointSlices. If false, they are applied immediately.",
        env="PILOT_ENABLE_EDS_DEBOUNCE",
    )


def debounce_warnings(settings: IngestSettings) -> list[str]:
    """Return a warning if the quiet period of changes is longer than their maximum delay."""
    if settings.debounce_after <= settings.debounce_max:
        return []
    after, longest = format_duration(settings.debounce_after), format_duration(settings.debounce_max)
    return [
        f"PILOT_DEBOUNCE_AFTER ({after}) is longer than PILOT_DEBOUNCE_MAX ({longest}): each change is applied after "
        f"{longest}, without a quiet period"
    ]


@dataclasses.dataclass(frozen=True)
class JwksSettings:
    """Settings for fetching the key sets (JWKS) that token issuers publish."""

    refresh: Duration = setting(
        parse_duration("20m"), "Interval at which key sets are refreshed.", env="PILOT_JWT_PUB_KEY_REFRESH_INTERVAL"
    )
    insecure: bool = setting(
        False, "Do not verify the certificates of JWKS servers.", env="JWKS_RESOLVER_INSECURE_SKIP_VERIFY"
    )
    extra_roots: str = setting(
        "/cacerts/extra.pem", "File with additional root certificates for JWKS servers.", env="PILOT_JWKS_EXTRA_ROOTS"
    )
    allowed: tuple[str, ...] = setting(
        (),
        "Private CIDRs from which key sets may be fetched. Required for an issuer inside the cluster.",
        env="PILOT_ALLOWED_CIDRS_IN_JWKS_URIS",
    )
    blocked: tuple[str, ...] = setting(
        (), "CIDRs from which key sets are never fetched.", env="BLOCKED_CIDRS_IN_JWKS_URIS"
    )


@dataclasses.dataclass(frozen=True)
class ServeSettings:
    """Port, limits and keepalive of the xDS server."""

    grpc_address: str = setting(
        ":15010", "Address for plaintext xDS. If empty, plaintext xDS is disabled.", flag="grpcAddr"
    )
    cluster_aliases: tuple[str, ...] = setting(
        (), "Alternative cluster IDs that proxies may report, as ALIAS=CLUSTER pairs.", flag="clusterAliases"
    )
    keepalive_interval: Duration = setting(
        parse_duration("30s"),
        "Idle time after which a keepalive ping is sent.",
        flag="keepaliveInterval",
        env="GRPC_KEEPALIVE_INTERVAL",
    )
    keepalive_timeout: Duration = setting(
        parse_duration("10s"),
        "Time to wait for the acknowledgement of a keepalive ping.",
        flag="keepaliveTimeout",
        env="GRPC_KEEPALIVE_TIMEOUT",
    )
    max_connection_age: Duration = setting(
        FOREVER,
        "Maximum age of a connection. The server asks the client of an older connection to reconnect, so that "
        "proxies spread across replicas.",
        flag="keepaliveMaxServerConnectionAge",
    )
    max_streams: int = setting(
        250,
        "Maximum number of concurrent streams per connection. Clients open another connection for further streams.",
        env="ISTIO_GPRC_MAXSTREAMS",
    )
    max_receive_bytes: int = setting(
        4 * 1024 * 1024, "Maximum size of a request, in bytes.", env="ISTIO_GPRC_MAXRECVMSGSIZE"
    )
    stream_rate: float = setting(
        -1.0,
        "Maximum number of new streams per second, for which callers take turns by address. A stream that would have "
        "to wait for more than a second is rejected. 0 means 15, and 5 more for each CPU, but at most 100. A negative "
        "number means no limit.",
        env="PILOT_MAX_REQUESTS_PER_SECOND",
    )
    max_types: int = setting(
        64,
        "Maximum number of resource types per stream. A stream that exceeds it is closed.",
        env="PILOT_XDS_MAX_TYPES",
    )
    max_names: int = setting(
        50_000,
        "Maximum number of resource names per stream, across all types. A stream that exceeds it is closed.",
        env="PILOT_XDS_MAX_NAMES",
    )
    max_name_bytes: int = setting(
        8 * 1024 * 1024,
        "Maximum size in bytes of the resource names and types that a stream requests. A name uses about 50 bytes more "
        "than its length. A stream that exceeds it is closed.",
        env="PILOT_XDS_MAX_NAME_BYTES",
    )
    max_caller_streams: int = setting(
        2_000,
        "Maximum number of open streams of a caller. Callers with different addresses or verified identities count "
        "separately.",
        env="PILOT_XDS_MAX_CALLER_STREAMS",
    )
    max_caller_bytes: int = setting(
        32 * 1024 * 1024,
        "Maximum size in bytes of the nodes and resource names of all streams of a caller. Equal sets of names count "
        "once.",
        env="PILOT_XDS_MAX_CALLER_BYTES",
    )
    max_node_bytes: int = setting(
        512 * 1024,
        "Maximum size in bytes of the node that a proxy sends, including its labels.",
        env="PILOT_XDS_MAX_NODE_BYTES",
    )
    bytes_in_flight: int = setting(
        32 * 1024 * 1024,
        "Maximum number of bytes in large responses that are being written at the same time, across all connections.",
        env="PILOT_PUSH_BYTES_IN_FLIGHT",
    )
    stalled_bytes: int = setting(
        128 * 1024 * 1024,
        "Maximum number of bytes held for proxies that read slowly or not at all. If it is exceeded, streams "
        "that make no progress are closed.",
        env="PILOT_PUSH_STALLED_BYTES",
    )
    write_timeout: Duration = setting(
        parse_duration("60s"),
        "Maximum time for a proxy to read a response. After that, its stream is closed.",
        env="PILOT_PUSH_WRITE_TIMEOUT",
    )


@dataclasses.dataclass(frozen=True)
class DebugSettings:
    """Debug pages, their access control, and optional metrics."""

    pages: bool = setting(True, "Serve the pages under /debug.", env="ENABLE_DEBUG_ON_HTTP")
    profiles: bool = setting(True, "Serve the profiles under /debug/pprof.", flag="profile")
    unsafe_admin: bool = setting(False, "Serve /debug/force_disconnect.", env="UNSAFE_ENABLE_ADMIN_ENDPOINTS")
    endpoint_auth: bool = setting(
        True,
        "Restrict remote callers to the proxies in their own namespace. Callers from the control plane's "
        "namespace are not restricted.",
        env="ENABLE_DEBUG_ENDPOINT_AUTH",
    )
    allowed_namespaces: tuple[str, ...] = setting(
        (),
        "Additional namespaces whose callers are not restricted by ENABLE_DEBUG_ENDPOINT_AUTH.",
        env="DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES",
    )
    cache_metrics: bool = setting(
        False,
        "Export the xds_cache_* metrics, which describe the cache of generated resources.",
        env="PILOT_XDS_CACHE_STATS",
    )
    queue_metrics: bool = setting(
        False,
        "Export the pilot_worker_queue_* metrics, which report queue depths and waiting times.",
        env="ISTIO_ENABLE_CONTROLLER_QUEUE_METRICS",
    )
    patch_metrics: bool = setting(
        False,
        "Export pilot_envoy_filter_status, which reports applied and failed EnvoyFilter patches.",
        env="PILOT_ENVOY_FILTER_STATS",
    )
    prometheus: str = setting(
        "",
        "URL of a Prometheus server, such as http://prometheus.istio-system:9090, from which the dashboard reads the "
        "request rate, success rate and latency of services. If empty, the dashboard shows no traffic.",
        flag="prometheusURL",
    )
    metrics_loopback_only: bool = setting(
        False, "Serve /metrics on the loopback interface only.", env="METRICS_LOCALHOST_ACCESS_ONLY"
    )


@dataclasses.dataclass(frozen=True)
class LogSettings:
    """Destinations, format and levels of the log."""

    targets: tuple[str, ...] = setting(
        ("stdout",), "Destinations of the log: stdout, stderr or file paths.", flag="log_target"
    )
    as_json: bool = setting(False, "Write log entries as JSON.", flag="log_as_json")
    output_level: str = setting(
        "default:info",
        'Comma-separated log levels, each SCOPE:LEVEL. A level for the scope "all" overrides those of other scopes.',
        flag="log_output_level",
    )


@dataclasses.dataclass(frozen=True)
class TraceSettings:
    """Settings for exporting traces to an OpenTelemetry collector."""

    endpoint: str = setting(
        "",
        "Address of an OpenTelemetry collector, such as http://collector:4318, that receives a trace of each "
        "change. If empty, no traces are sent.",
        env="OTEL_EXPORTER_OTLP_ENDPOINT",
        check=checks.url,
    )
    headers: str = setting(
        "", "Headers for the collector, as comma-separated NAME=VALUE pairs.", env="OTEL_EXPORTER_OTLP_HEADERS"
    )
    service: str = setting("istiod", "Name of this service in traces.", env="OTEL_SERVICE_NAME")
