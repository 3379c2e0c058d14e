"""The settings of the agent: flags, environment variables, defaults and descriptions.

The flags and variables have the same names as in Istio's agent.
"""

# ruff: noqa: RUF009 (the values of setting() and section() are immutable)
from __future__ import annotations

import dataclasses

from pilot.lib.duration import Duration, parse_duration
from pilot.settings.declaration import section, setting
from pilot.settings.process import LogSettings


@dataclasses.dataclass(frozen=True)
class PodSettings:
    """Identity and configuration of the proxy."""

    name: str = setting("", "Name of the pod. If empty, the hostname is used.", env="POD_NAME")
    namespace: str = setting("default", "Namespace of the pod.", env="POD_NAMESPACE")
    ip: str = setting(
        "",
        "Comma-separated IP addresses of the pod. If empty, the source address of the default route is used.",
        env="INSTANCE_IP",
    )
    service_account: str = setting("default", "Service account of the pod.", env="SERVICE_ACCOUNT")
    domain: str = setting(
        "", "DNS suffix of short hostnames. If empty, NAMESPACE.svc.cluster.local is used.", flag="domain"
    )
    trust_domain: str = setting(
        "cluster.local", "Trust domain of the identity in certificate signing requests.", env="TRUST_DOMAIN"
    )
    labels_file: str = setting(
        "./etc/istio/pod/labels", "File with the pod's labels, as the downward API writes it.", env="POD_LABELS_FILE"
    )
    annotations_file: str = setting(
        "./etc/istio/pod/annotations",
        "File with the pod's annotations, as the downward API writes it.",
        env="POD_ANNOTATIONS_FILE",
    )
    mesh_config: str = setting(
        "./etc/istio/config/mesh",
        "File with the mesh configuration. Its defaultConfig is the base of the ProxyConfig.",
        flag="meshConfig",
    )
    proxy_config: str = setting(
        "", "ProxyConfig as YAML or JSON, which overrides the mesh configuration.", env="PROXY_CONFIG"
    )


@dataclasses.dataclass(frozen=True)
class EnvoySettings:
    """Startup, health and draining of Envoy."""

    service_cluster: str = setting(
        "istio-proxy", "Cluster name of the node in Envoy's bootstrap.", flag="serviceCluster"
    )
    log_level: str = setting(
        "warning",
        "Log level of Envoy, optionally followed by component levels, as in info,misc:error.",
        flag="proxyLogLevel",
    )
    component_log_level: str = setting("", "Log levels of Envoy's components.", flag="proxyComponentLogLevel")
    concurrency: int = setting(
        0,
        "Number of worker threads. If 0, the concurrency in the ProxyConfig is used, or if that is unset, the "
        "CPU limit. Without a CPU limit, the default is the number of CPUs, but at most 2.",
        flag="concurrency",
        maximum=4096,
    )
    cpu_limit: int = setting(0, "CPU limit of the container. 0 means unknown.", env="ISTIO_CPU_LIMIT")
    outlier_log: str = setting("", "File for the outlier detection event log.", flag="outlierLogPath")
    disable: bool = setting(False, "Serve certificates and configuration without starting Envoy.", env="DISABLE_ENVOY")
    readiness_port: int = setting(15021, "Port of Envoy's /healthz/ready.", env="ENVOY_STATUS_PORT", maximum=65535)
    readiness_proxy_protocol: bool = setting(
        False,
        "Also accept the PROXY protocol on the port ENVOY_STATUS_PORT, for the health checks of load balancers.",
        env="ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL",
    )
    prometheus_port: int = setting(
        15090, "Port of Envoy's /stats/prometheus.", env="ENVOY_PROMETHEUS_PORT", maximum=65535
    )
    secure_metrics_port: int = setting(
        0,
        "Port of Envoy's /stats/prometheus for clients with a certificate of the mesh. 0 disables it.",
        env="ENVOY_SECURE_METRICS_PORT",
        maximum=65535,
    )
    secure_merged_metrics_port: int = setting(
        0,
        "Port of the merged metrics for clients with a certificate of the mesh. 0 disables it.",
        env="ENVOY_SECURE_MERGED_METRICS_PORT",
        maximum=65535,
    )
    bootstrap: str = setting(
        "",
        "File with a complete bootstrap, which Envoy uses instead of the generated one and of "
        "ProxyConfig.customConfigFile. It is not a template.",
        env="ISTIO_BOOTSTRAP",
    )
    bootstrap_override: str = setting(
        "",
        "File with a bootstrap in YAML or JSON that Envoy merges over the generated one. $(HOST_IP) is replaced with "
        "the variable HOST_IP.",
        env="ISTIO_BOOTSTRAP_OVERRIDE",
    )
    host_ip: str = setting("", "IP address of the node, for $(HOST_IP) in a bootstrap override.", env="HOST_IP")
    minimum_drain: Duration = setting(
        parse_duration("5s"),
        "With EXIT_ON_ZERO_ACTIVE_CONNECTIONS, time to drain before the agent first counts the remaining connections.",
        env="MINIMUM_DRAIN_DURATION",
    )
    exit_on_zero_connections: bool = setting(
        False,
        "Exit as soon as no connections remain, instead of after terminationDrainDuration.",
        env="EXIT_ON_ZERO_ACTIVE_CONNECTIONS",
    )
    delta_xds: bool = setting(True, "Use delta xDS. If false, state-of-the-world xDS is used.", env="ISTIO_DELTA_XDS")


@dataclasses.dataclass(frozen=True)
class ControlPlaneSettings:
    """Connections to the control plane and the certificate authority."""

    ca_address: str = setting(
        "", "Address of the certificate authority. If empty, the discovery address is used.", env="CA_ADDR"
    )
    ca_root: str = setting(
        "",
        "File with the root certificates of the certificate authority's server; SYSTEM for the system's roots.",
        env="CA_ROOT_CA",
    )
    xds_root: str = setting(
        "", "File with the root certificates of the xDS server; SYSTEM for the system's roots.", env="XDS_ROOT_CA"
    )
    server_name: str = setting(
        "",
        "Name that the control plane's certificate must have. If empty, it must have the host name of the "
        "control plane's address.",
        env="ISTIOD_SAN",
    )
    cert_provider: str = setting(
        "istiod",
        "Issuer of the control plane's certificate: istiod, kubernetes, custom or none.",
        env="PILOT_CERT_PROVIDER",
    )
    token_file: str = setting(
        "./var/run/secrets/tokens/istio-token",
        "File with the service account token.",
        env="ISTIO_TOKEN_FILE",
    )
    credential_fetcher: str = setting(
        "JWT",
        "Source of the token: JWT if another program writes the file, or GoogleComputeEngine to fetch the token of the "
        "virtual machine and write it to the file.",
        env="CREDENTIAL_FETCHER_TYPE",
    )
    metadata_server: str = setting(
        "169.254.169.254", "Metadata server of a virtual machine, for GoogleComputeEngine.", env="GCE_METADATA_HOST"
    )
    cluster_id: str = setting("Kubernetes", "ID of the cluster that issued the token.", env="ISTIO_META_CLUSTER_ID")
    provisioned_directory: str = setting(
        "",
        "Directory with a certificate to authenticate with instead of a token, for example on virtual machines.",
        env="PROV_CERT",
    )


@dataclasses.dataclass(frozen=True)
class CertificateSettings:
    """The certificate of the workload."""

    ttl: Duration = setting(parse_duration("24h"), "Lifetime to request for a certificate.", env="SECRET_TTL")
    grace_ratio: float = setting(
        0.5,
        "A certificate is renewed when this fraction of its lifetime remains.",
        env="SECRET_GRACE_PERIOD_RATIO",
        maximum=1,
    )
    grace_jitter: float = setting(
        0.01,
        "Maximum random deviation from SECRET_GRACE_PERIOD_RATIO, so that renewals are spread over time.",
        env="SECRET_GRACE_PERIOD_RATIO_JITTER",
        maximum=1,
    )
    file_mounted: bool = setting(
        False,
        "Serve the certificate files in ./etc/certs instead of requesting a certificate.",
        env="FILE_MOUNTED_CERTS",
    )
    output_directory: str = setting(
        "", "Directory to which the key and the certificates are also written.", env="OUTPUT_CERTS"
    )
    rsa_bits: int = setting(2048, "Size of RSA keys, in bits.", env="WORKLOAD_RSA_KEY_SIZE")
    pkcs8: bool = setting(False, "Encode the private key as PKCS #8.", env="PKCS8_KEY")
    algorithm: str = setting(
        "", "ECDSA for an elliptic-curve key. If empty, an RSA key is used.", env="ECC_SIGNATURE_ALGORITHM"
    )
    curve: str = setting("P256", "Curve of elliptic-curve keys: P256 or P384.", env="ECC_CURVE")
    signer: str = setting("", "Signer that the certificate authority is asked to use.", env="ISTIO_META_CERT_SIGNER")
    socket: str = setting(
        "socket",
        "Name of the SDS socket in ./var/run/secrets/workload-spiffe-uds.",
        env="WORKLOAD_IDENTITY_SOCKET_FILE",
    )


@dataclasses.dataclass(frozen=True)
class GrpcSettings:
    """Support for applications that use gRPC's xDS client."""

    bootstrap_file: str = setting(
        "",
        "File to which the bootstrap of gRPC's xDS client is written. If empty, it is grpc-bootstrap.json "
        "next to Envoy's bootstrap, and is written only if ISTIO_META_GENERATOR is grpc.",
        env="GRPC_XDS_BOOTSTRAP",
    )


@dataclasses.dataclass(frozen=True)
class StatusSettings:
    """Application probes and metrics."""

    app_probers: str = setting("", "Probes of the application by path, as JSON.", env="ISTIO_KUBE_APP_PROBERS")
    prometheus_scrape: str = setting(
        "", "Location of the application's metrics, as JSON.", env="ISTIO_PROMETHEUS_ANNOTATIONS"
    )
    merges_envoy: bool = setting(
        True, "Merge Envoy's metrics into the metrics page of the agent.", env="PILOT_AGENT_MERGE_ENVOY_STATS"
    )


@dataclasses.dataclass(frozen=True)
class DnsSettings:
    """The DNS server for the application."""

    capture: bool = setting(
        False,
        "Resolve the names of mesh services. Other queries are forwarded to the resolvers in /etc/resolv.conf.",
        env="ISTIO_META_DNS_CAPTURE",
    )
    on_gateways: bool = setting(False, "Also resolve names on gateways.", env="ISTIO_META_ENABLE_DNS_SERVER")
    address: str = setting("localhost:15053", "Address of the DNS server, over UDP and TCP.", env="DNS_PROXY_ADDR")
    forward_timeout: Duration = setting(
        parse_duration("5s"), "Maximum time to wait for the response to a forwarded query.", env="DNS_FORWARD_TIMEOUT"
    )


@dataclasses.dataclass(frozen=True)
class ModuleSettings:
    """Fetching and caching of Wasm modules for Envoy."""

    expiry: Duration = setting(
        parse_duration("24h"), "Time after which an unused module is removed.", env="WASM_MODULE_EXPIRY"
    )
    purge_interval: Duration = setting(
        parse_duration("1h"), "Interval at which unused modules are removed.", env="WASM_PURGE_INTERVAL"
    )
    insecure_hosts: tuple[str, ...] = setting(
        (),
        "Registries and servers (HOST:PORT) that may use plain HTTP or an unverified certificate; * for all.",
        env="WASM_INSECURE_REGISTRIES",
    )
    max_retries: int = setting(
        5, "Maximum number of retries after a transient failure to fetch a module.", env="WASM_HTTP_REQUEST_MAX_RETRIES"
    )
    request_timeout: Duration = setting(
        parse_duration("15s"), "Maximum time of an attempt to fetch a module.", env="WASM_HTTP_REQUEST_TIMEOUT"
    )
    allowed_cidrs: tuple[str, ...] = setting(
        (),
        "Private CIDRs from which modules may be fetched. Required for a registry inside the cluster.",
        env="ALLOWED_CIDRS_IN_WASM_FETCH",
    )
    blocked_cidrs: tuple[str, ...] = setting(
        (), "CIDRs from which modules are never fetched.", env="BLOCKED_CIDRS_IN_WASM_FETCH"
    )
    max_bytes: int = setting(
        256 * 1024 * 1024,
        "Maximum size of a module or image layer, in bytes. Larger ones are rejected.",
        env="ISTIO_WASM_MAX_BINARY_SIZE_BYTES",
    )
    extra_roots: str = setting(
        "",
        "File with additional root certificates for the servers that modules are fetched from.",
        env="WASM_EXTRA_ROOTS",
    )
    docker_config_directory: str = setting(
        "",
        "Directory of the Docker config.json with the credentials for modules that have no pull secret. If "
        "empty, ~/.docker is used.",
        env="DOCKER_CONFIG",
    )


@dataclasses.dataclass(frozen=True)
class AgentSettings:
    """The values of all flags and environment variables. Durations are in nanoseconds."""

    pod: PodSettings = section(PodSettings(), "Proxy")
    envoy: EnvoySettings = section(EnvoySettings(), "Envoy")
    control_plane: ControlPlaneSettings = section(ControlPlaneSettings(), "Control plane and certificate authority")
    certificate: CertificateSettings = section(CertificateSettings(), "Workload certificate")
    grpc: GrpcSettings = section(GrpcSettings(), "Proxyless gRPC")
    status: StatusSettings = section(StatusSettings(), "Probes and metrics")
    dns: DnsSettings = section(DnsSettings(), "DNS")
    modules: ModuleSettings = section(ModuleSettings(), "Wasm modules")
    log: LogSettings = section(LogSettings(), "Logs")
