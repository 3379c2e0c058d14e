"""Settings of the process and of what it does for itself: reading, serving, showing, logging."""

# ruff: noqa: RUF009 (the values of setting() are immutable)
from __future__ import annotations

import dataclasses

from pilot.lib.duration import Duration, parse_duration
from pilot.settings.declaration import FOREVER, setting


@dataclasses.dataclass(frozen=True)
class ProcessSettings:
    """The process itself: its ports of HTTP, and how long it takes to end."""

    http_address: str = setting(":8080", "Address of /ready and the debug pages.", flag="httpAddr")
    monitoring_address: str = setting(
        ":15014", "Address of /metrics, /version and debug; empty for the HTTP address.", flag="monitoringAddr"
    )
    pod_name: str = setting(
        "",
        "Name of this pod, by which istioctl tells control planes apart, and replicas each other in elections; there, empty is a random one.",
        env="POD_NAME",
    )
    controlz_address: str = setting(
        "localhost", "Address of ControlZ; * for every interface. It asks nobody who they are.", flag="ctrlz_address"
    )
    controlz_port: int = setting(
        9876, "Port of ControlZ, the pages that change levels of logs while it runs. 0: none.", flag="ctrlz_port"
    )
    shutdown_duration: Duration = setting(
        parse_duration("10s"), "Time that open streams get to end after SIGTERM.", flag="shutdownDuration"
    )


@dataclasses.dataclass(frozen=True)
class IngestSettings:
    """Where configuration is read from, and when a change of it is applied."""

    registries: tuple[str, ...] = setting(
        ("Kubernetes",), "Service registries to read; only Kubernetes exists.", flag="registries"
    )
    config_dirs: tuple[str, ...] = setting(
        (),
        "Folder of YAML and JSON files to read and to follow: FOLDER holds the own cluster's objects, CLUSTER=FOLDER what runs in another. "
        "Repeat the flag for further folders.",
        flag="configDir",
        repeated=True,
    )
    largest_file: int = setting(
        64 * 1024 * 1024,
        "Bytes of a file of configuration; one that has more is not read.",
        env="PILOT_MAX_CONFIG_FILE_BYTES",
    )
    resolve_gateways: bool = setting(
        True,
        "Look up the host names of gateways between networks; otherwise only gateways with an address are used.",
        env="RESOLVE_HOSTNAME_GATEWAYS",
    )
    state_dir: str = setting(
        "",
        "Folder in which the last good objects of wrong files survive a restart; empty for none.",
        flag="stateDir",
        env="PILOT_STATE_DIR",
    )
    mesh_config: str = setting("./etc/istio/config/mesh", "File with the mesh config.", flag="meshConfig")
    networks_config: str = setting(
        "./etc/istio/config/meshNetworks", "File with the mesh networks.", flag="networksConfig"
    )
    revision: str = setting(
        "", "Revision: objects with the label istio.io/rev of another one are left out.", env="REVISION"
    )
    debounce_after: Duration = setting(
        parse_duration("100ms"), "Quiet time after a change before it is applied.", env="PILOT_DEBOUNCE_AFTER"
    )
    debounce_max: Duration = setting(
        parse_duration("10s"),
        "Longest time that changes without a pause wait; pods and slices: 250ms.",
        env="PILOT_DEBOUNCE_MAX",
    )
    debounce_endpoints: bool = setting(
        True,
        "Changes of pods and slices alone wait too; otherwise they are applied at once.",
        env="PILOT_ENABLE_EDS_DEBOUNCE",
    )


@dataclasses.dataclass(frozen=True)
class JwksSettings:
    """Fetching the key sets of issuers of tokens."""

    refresh: Duration = setting(
        parse_duration("20m"), "Time after which a key set is fetched again.", env="PILOT_JWT_PUB_KEY_REFRESH_INTERVAL"
    )
    insecure: bool = setting(
        False, "Fetch without verifying the server's certificate.", env="JWKS_RESOLVER_INSECURE_SKIP_VERIFY"
    )
    extra_roots: str = setting(
        "/cacerts/extra.pem", "File with more roots for servers of key sets.", env="PILOT_JWKS_EXTRA_ROOTS"
    )
    allowed: tuple[str, ...] = setting(
        (),
        "Blocks of addresses that key sets are fetched from though they are private, such as those of an issuer in the cluster.",
        env="PILOT_ALLOWED_CIDRS_IN_JWKS_URIS",
    )
    blocked: tuple[str, ...] = setting(
        (), "Blocks of addresses that key sets are never fetched from.", env="BLOCKED_CIDRS_IN_JWKS_URIS"
    )
    largest: int = setting(
        1024 * 1024, "Bytes of a key set; one that has more is not taken.", env="PILOT_JWKS_MAX_BYTES"
    )


@dataclasses.dataclass(frozen=True)
class ServeSettings:
    """The xDS server: its port, limits and keepalive."""

    grpc_address: str = setting(":15010", "Address of plaintext xDS; empty for none.", flag="grpcAddr")
    cluster_aliases: tuple[str, ...] = setting(
        (), "Other names of clusters in what proxies announce, as alias=cluster.", flag="clusterAliases"
    )
    keepalive_interval: Duration = setting(
        parse_duration("30s"),
        "Time without activity after which a connection is probed.",
        flag="keepaliveInterval",
        env="GRPC_KEEPALIVE_INTERVAL",
    )
    keepalive_timeout: Duration = setting(
        parse_duration("10s"),
        "Time within which a probed connection must answer.",
        flag="keepaliveTimeout",
        env="GRPC_KEEPALIVE_TIMEOUT",
    )
    max_connection_age: Duration = setting(
        FOREVER,
        "Age at which a connection is asked to reconnect, which spreads proxies over replicas.",
        flag="keepaliveMaxServerConnectionAge",
    )
    max_streams: int = setting(100_000, "Streams that one connection may have.", env="ISTIO_GPRC_MAXSTREAMS")
    max_receive_bytes: int = setting(
        4 * 1024 * 1024, "Largest request that is taken, in bytes.", env="ISTIO_GPRC_MAXRECVMSGSIZE"
    )
    stream_rate: float = setting(
        0.0,
        "New streams admitted a second; one that would wait for over a second is turned away. 0: no limit.",
        env="PILOT_MAX_REQUESTS_PER_SECOND",
    )
    max_types: int = setting(64, "Types that one stream may subscribe to; more end it.", env="PILOT_XDS_MAX_TYPES")
    max_names: int = setting(
        50_000, "Resources that one stream may name, over all types; more end it.", env="PILOT_XDS_MAX_NAMES"
    )
    max_node_bytes: int = setting(
        512 * 1024, "Size of the node that a proxy announces, with its labels.", env="PILOT_XDS_MAX_NODE_BYTES"
    )
    bytes_in_flight: int = setting(
        32 * 1024 * 1024,
        "Bytes of large responses that are written at once, over all connections.",
        env="PILOT_PUSH_BYTES_IN_FLIGHT",
    )
    stalled_bytes: int = setting(
        128 * 1024 * 1024,
        "Bytes of responses that proxies take slowly or not at all; beyond them streams are ended.",
        env="PILOT_PUSH_STALLED_BYTES",
    )
    write_timeout: Duration = setting(
        parse_duration("60s"),
        "Time in which a proxy must take a response, or its stream is ended.",
        env="PILOT_PUSH_WRITE_TIMEOUT",
    )


@dataclasses.dataclass(frozen=True)
class DebugSettings:
    """Which pages are served, and to whom."""

    pages: bool = setting(True, "Serve the pages below /debug.", env="ENABLE_DEBUG_ON_HTTP")
    profiles: bool = setting(True, "Serve the profiles below /debug/pprof.", flag="profile")
    unsafe_admin: bool = setting(False, "Serve /debug/force_disconnect.", env="UNSAFE_ENABLE_ADMIN_ENDPOINTS")
    endpoint_auth: bool = setting(
        True,
        "Callers that are not on this machine see the proxies of their own namespace alone, unless it is the control plane's.",
        env="ENABLE_DEBUG_ENDPOINT_AUTH",
    )
    allowed_namespaces: tuple[str, ...] = setting(
        (), "Further namespaces whose callers see all debug pages.", env="DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES"
    )
    cache_metrics: bool = setting(
        False, "Count how often what proxies are to have was made already.", env="PILOT_XDS_CACHE_STATS"
    )
    queue_metrics: bool = setting(
        False, "Count what waits in queues, and for how long.", env="ISTIO_ENABLE_CONTROLLER_QUEUE_METRICS"
    )
    patch_metrics: bool = setting(
        False, "Count which patches of EnvoyFilters apply and which do not fit.", env="PILOT_ENVOY_FILTER_STATS"
    )
    metrics_loopback_only: bool = setting(
        False, "Answer /metrics on the loopback interface only.", env="METRICS_LOCALHOST_ACCESS_ONLY"
    )


@dataclasses.dataclass(frozen=True)
class LogSettings:
    """Where logs go, how, and how much."""

    targets: tuple[str, ...] = setting(("stdout",), "Where logs go: stdout, stderr or file paths.", flag="log_target")
    as_json: bool = setting(False, "Log JSON objects instead of lines.", flag="log_as_json")
    output_level: str = setting(
        "default:info", "Levels as scope:level between commas; the scope all overrides.", flag="log_output_level"
    )


@dataclasses.dataclass(frozen=True)
class TraceSettings:
    """Where traces of changes go, and under which name."""

    endpoint: str = setting(
        "",
        "Address of a collector of OpenTelemetry, such as http://collector:4318, which gets a trace of every change; empty for none.",
        env="OTEL_EXPORTER_OTLP_ENDPOINT",
    )
    headers: str = setting(
        "", "Headers for the collector, as name=value between commas.", env="OTEL_EXPORTER_OTLP_HEADERS"
    )
    service: str = setting("istiod", "Name of this service in traces.", env="OTEL_SERVICE_NAME")
