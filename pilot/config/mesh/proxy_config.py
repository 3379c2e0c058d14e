"""ProxyConfig: settings for proxies. It occurs in MeshConfig.defaultConfig and in the node metadata PROXY_CONFIG."""

from __future__ import annotations

from typing import ClassVar, Literal

from pilot.config.base import Int32, OneOf, Strict, UInt32
from pilot.config.mesh.tracing import Tracing
from pilot.config.networking.destination_rule import ClientTLSSettings, TcpKeepalive
from pilot.config.networking.workload_group import ReadinessProbe
from pilot.config.selector import WorkloadSelector
from pilot.lib.duration import Duration

AuthenticationPolicy = Literal["NONE", "MUTUAL_TLS", "INHERIT"]
ForwardClientCertDetails = Literal[
    "UNDEFINED", "SANITIZE", "FORWARD_ONLY", "APPEND_FORWARD", "SANITIZE_SET", "ALWAYS_FORWARD_ONLY"
]
TracingServiceName = Literal["APP_LABEL_AND_NAMESPACE", "CANONICAL_NAME_ONLY", "CANONICAL_NAME_AND_NAMESPACE"]
InboundInterceptionMode = Literal["REDIRECT", "TPROXY", "NONE"]
MetadataExchangeMode = Literal["UNDEFINED", "IN_MESH"]
Profile = Literal["SIDECAR", "EDGE"]
HeadersWithUnderscoresAction = Literal[
    "HEADERS_WITH_UNDERSCORES_UNSPECIFIED",
    "HEADERS_WITH_UNDERSCORES_ALLOW",
    "HEADERS_WITH_UNDERSCORES_REJECT_REQUEST",
    "HEADERS_WITH_UNDERSCORES_DROP_HEADER",
]
PathWithEscapedSlashesAction = Literal[
    "PATH_WITH_ESCAPED_SLASHES_UNSPECIFIED",
    "KEEP_UNCHANGED",
    "REJECT_REQUEST",
    "UNESCAPE_AND_REDIRECT",
    "UNESCAPE_AND_FORWARD",
]


class SDS(Strict, frozen=True):
    enabled: bool = False
    k8s_sa_jwt_path: str = ""


class ProxyProtocolConfiguration(Strict, frozen=True):
    pass


class Topology(Strict, frozen=True):
    num_trusted_proxies: UInt32 = 0
    forward_client_cert_details: ForwardClientCertDetails = "UNDEFINED"
    proxy_protocol: ProxyProtocolConfiguration | None = None


class CryptoMb(Strict, frozen=True):
    poll_delay: Duration | None = None
    fallback: bool | None = None


class QAT(Strict, frozen=True):
    poll_delay: Duration | None = None
    fallback: bool | None = None


class PrivateKeyProvider(OneOf, frozen=True):
    groups: ClassVar = (("cryptomb", "qat"),)

    cryptomb: CryptoMb | None = None
    qat: QAT | None = None


class ProxyStatsMatcher(Strict, frozen=True):
    inclusion_prefixes: tuple[str, ...] = ()
    inclusion_suffixes: tuple[str, ...] = ()
    inclusion_regexps: tuple[str, ...] = ()


class Server(Strict, frozen=True):
    """Settings of the `server` header of responses."""

    disabled: bool | None = None
    value: str = ""


class RequestId(Strict, frozen=True):
    disabled: bool | None = None


class AttemptCount(Strict, frozen=True):
    disabled: bool | None = None


class XForwardedHost(Strict, frozen=True):
    enabled: bool | None = None


class XForwardedPort(Strict, frozen=True):
    enabled: bool | None = None


class EnvoyDebugHeaders(Strict, frozen=True):
    disabled: bool | None = None


class MetadataExchangeHeaders(Strict, frozen=True):
    mode: MetadataExchangeMode = "UNDEFINED"


class SetCurrentClientCertDetails(Strict, frozen=True):
    subject: bool | None = None
    cert: bool | None = None
    chain: bool | None = None
    dns: bool | None = None
    uri: bool | None = None


class ProxyHeaders(Strict, frozen=True):
    forwarded_client_cert: ForwardClientCertDetails = "UNDEFINED"
    set_current_client_cert_details: SetCurrentClientCertDetails | None = None
    request_id: RequestId | None = None
    server: Server | None = None
    attempt_count: AttemptCount | None = None
    envoy_debug_headers: EnvoyDebugHeaders | None = None
    metadata_exchange_headers: MetadataExchangeHeaders | None = None
    preserve_http1_header_case: bool | None = None
    x_forwarded_host: XForwardedHost | None = None
    x_forwarded_port: XForwardedPort | None = None


class ConnectionSettings(Strict, frozen=True):
    profile: Profile = "SIDECAR"
    listener_per_connection_buffer_limit_bytes: Int32 | None = None
    cluster_per_connection_buffer_limit_bytes: Int32 | None = None
    http_idle_timeout: Duration | None = None
    http_max_connection_duration: Duration | None = None
    http_drain_timeout: Duration | None = None
    http_request_timeout: Duration | None = None
    http_request_headers_timeout: Duration | None = None
    http_stream_idle_timeout: Duration | None = None
    http_max_stream_duration: Duration | None = None
    http_max_concurrent_streams: Int32 | None = None
    http2_initial_stream_window_size: Int32 | None = None
    http2_initial_connection_window_size: Int32 | None = None
    http_headers_with_underscores_action: HeadersWithUnderscoresAction = "HEADERS_WITH_UNDERSCORES_UNSPECIFIED"
    http_merge_slashes: bool | None = None
    http_path_with_escaped_slashes_action: PathWithEscapedSlashesAction = "PATH_WITH_ESCAPED_SLASHES_UNSPECIFIED"
    listener_connection_limit: Int32 | None = None
    global_downstream_connection_limit: Int32 | None = None


class ProxyImage(Strict, frozen=True):
    image_type: str = ""


class ProxyConfig(Strict, frozen=True):
    """The proxy config, with Istio's defaults. `tracing_service_name` overrides `service_cluster`."""

    config_path: str = "./etc/istio/proxy"
    binary_path: str = "/usr/local/bin/envoy"
    service_cluster: str | None = "istio-proxy"
    tracing_service_name: TracingServiceName | None = None
    drain_duration: Duration = Duration.of(45)
    discovery_address: str = "istiod.istio-system.svc:15012"
    discovery_refresh_delay: Duration | None = None  # deprecated
    zipkin_address: str = ""  # deprecated
    statsd_udp_address: str = ""
    envoy_metrics_service_address: str = ""  # deprecated
    proxy_admin_port: Int32 = 15000
    availability_zone: str = ""  # deprecated
    control_plane_auth_policy: AuthenticationPolicy = "MUTUAL_TLS"
    custom_config_file: str = ""
    stat_name_length: Int32 = 189
    concurrency: Int32 | None = None
    proxy_bootstrap_template_path: str = ""
    interception_mode: InboundInterceptionMode = "REDIRECT"
    tracing: Tracing | None = None
    sds: SDS | None = None  # deprecated
    envoy_access_log_service: RemoteService | None = None
    envoy_metrics_service: RemoteService | None = None
    proxy_metadata: dict[str, str] = {}
    runtime_values: dict[str, str] = {}
    status_port: Int32 = 15020
    extra_stat_tags: tuple[str, ...] = ()
    gateway_topology: Topology | None = None
    termination_drain_duration: Duration = Duration.of(5)
    mesh_id: str = ""
    readiness_probe: ReadinessProbe | None = None
    proxy_stats_matcher: ProxyStatsMatcher | None = None
    hold_application_until_proxy_starts: bool | None = None
    ca_certificates_pem: tuple[str, ...] = ()
    image: ProxyImage | None = None
    private_key_provider: PrivateKeyProvider | None = None
    proxy_headers: ProxyHeaders | None = None
    file_flush_interval: Duration | None = None
    file_flush_min_size_kb: UInt32 = 0
    stats_compression: bool | None = None
    connection_settings: ConnectionSettings | None = None


class RemoteService(Strict, frozen=True):
    address: str = ""
    tls_settings: ClientTLSSettings | None = None
    tcp_keepalive: TcpKeepalive | None = None


class ProxyConfigOverride(Strict, frozen=True):
    """The spec of a ProxyConfig object.

    It overrides the proxy config of the Pods that it selects or, without a selector, of all Pods in its namespace.
    """

    selector: WorkloadSelector | None = None
    concurrency: Int32 | None = None
    environment_variables: dict[str, str] = {}
    image: ProxyImage | None = None
