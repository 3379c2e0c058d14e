"""Every setting of the agent, declared once: flag, environment variable, default and one sentence. Names are those of Istio's agent."""

# ruff: noqa: RUF009 (the values of setting() and section() are immutable)
from __future__ import annotations

import dataclasses

from pilot.lib.duration import Duration, parse_duration
from pilot.settings.declaration import section, setting
from pilot.settings.process import LogSettings


@dataclasses.dataclass(frozen=True)
class PodSettings:
    """Who the proxy is."""

    name: str = setting("", "Name of the pod; the host name where it is empty.", env="POD_NAME")
    namespace: str = setting("default", "Namespace of the pod.", env="POD_NAMESPACE")
    ip: str = setting(
        "", "Addresses of the pod between commas; that of the default route where it is empty.", env="INSTANCE_IP"
    )
    service_account: str = setting("default", "Service account of the pod.", env="SERVICE_ACCOUNT")
    domain: str = setting(
        "", "Suffix of short host names; NAMESPACE.svc.cluster.local where it is empty.", flag="domain"
    )
    trust_domain: str = setting(
        "cluster.local", "Trust domain, for the common checks of a signing request.", env="TRUST_DOMAIN"
    )
    labels_file: str = setting(
        "./etc/istio/pod/labels", "File of labels, as the downward API writes it.", env="POD_LABELS_FILE"
    )
    annotations_file: str = setting(
        "./etc/istio/pod/annotations", "File of annotations, as the downward API writes it.", env="POD_ANNOTATIONS_FILE"
    )
    mesh_config: str = setting(
        "./etc/istio/config/mesh", "File with the mesh config, whose defaultConfig counts first.", flag="meshConfig"
    )
    proxy_config: str = setting("", "ProxyConfig as YAML or JSON; it wins over the mesh config.", env="PROXY_CONFIG")


@dataclasses.dataclass(frozen=True)
class EnvoySettings:
    """How Envoy is started, watched and ended."""

    service_cluster: str = setting("istio-proxy", "Name of the node's cluster.", flag="serviceCluster")
    log_level: str = setting(
        "warning", "Level of Envoy's log; scopes may follow, as in info,misc:error.", flag="proxyLogLevel"
    )
    component_log_level: str = setting("", "Levels of components of Envoy's log.", flag="proxyComponentLogLevel")
    concurrency: int = setting(
        0,
        "Worker threads; 0: as the ProxyConfig says, else the CPU limit (at least 2 without one).",
        flag="concurrency",
    )
    cpu_limit: int = setting(0, "CPUs that the container may use; 0: unknown.", env="ISTIO_CPU_LIMIT")
    outlier_log: str = setting("", "File for events of outlier detection.", flag="outlierLogPath")
    disable: bool = setting(False, "Serve certificates and configuration without an Envoy.", env="DISABLE_ENVOY")
    status_port: int = setting(15021, "Port of Envoy's /healthz/ready.", env="ENVOY_STATUS_PORT")
    status_proxy_protocol: bool = setting(
        False,
        "Take the PROXY protocol on that port too, for load balancers that look there.",
        env="ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL",
    )
    prometheus_port: int = setting(15090, "Port of Envoy's own /stats/prometheus.", env="ENVOY_PROMETHEUS_PORT")
    minimum_drain: Duration = setting(
        parse_duration("5s"), "Time that the end waits before it counts connections.", env="MINIMUM_DRAIN_DURATION"
    )
    exit_on_zero: bool = setting(
        False,
        "End once no connection is left, instead of after terminationDrainDuration.",
        env="EXIT_ON_ZERO_ACTIVE_CONNECTIONS",
    )
    delta: bool = setting(
        True, "Ask for configuration by delta; otherwise by state of the world.", env="ISTIO_DELTA_XDS"
    )


@dataclasses.dataclass(frozen=True)
class ControlPlaneSettings:
    """How the control plane and the certificate authority are reached."""

    authority: str = setting(
        "", "Address of the certificate authority; the discovery address where it is empty.", env="CA_ADDR"
    )
    authority_root: str = setting(
        "", "File of roots for the authority's own certificate; SYSTEM: those of the system.", env="CA_ROOT_CA"
    )
    xds_root: str = setting(
        "", "File of roots for the control plane's own certificate; SYSTEM: those of the system.", env="XDS_ROOT_CA"
    )
    server_name: str = setting(
        "",
        "Name that the control plane's certificate must have; the host of its address where it is empty.",
        env="ISTIOD_SAN",
    )
    cert_provider: str = setting(
        "istiod",
        "Who signs the control plane's certificate: istiod, kubernetes, custom or none.",
        env="PILOT_CERT_PROVIDER",
    )
    token: str = setting(
        "./var/run/secrets/tokens/istio-token",
        "File of the token that proves the service account.",
        env="ISTIO_TOKEN_FILE",
    )
    cluster: str = setting("Kubernetes", "Cluster that the token is from.", env="ISTIO_META_CLUSTER_ID")
    provisioned: str = setting(
        "", "Folder with a certificate to begin with, in place of a token, as virtual machines have.", env="PROV_CERT"
    )


@dataclasses.dataclass(frozen=True)
class CertificateSettings:
    """The workload's own certificate."""

    life: Duration = setting(parse_duration("24h"), "Life that is asked for.", env="SECRET_TTL")
    grace_ratio: float = setting(
        0.5, "Part of the life that is left when a certificate is renewed.", env="SECRET_GRACE_PERIOD_RATIO"
    )
    grace_jitter: float = setting(
        0.01,
        "Random change of that part, up or down, so that proxies do not come at once.",
        env="SECRET_GRACE_PERIOD_RATIO_JITTER",
    )
    mounted: bool = setting(False, "Serve the files below ./etc/certs, and ask no authority.", env="FILE_MOUNTED_CERTS")
    output: str = setting("", "Folder to which key and certificates are written too.", env="OUTPUT_CERTS")
    rsa_bits: int = setting(2048, "Bits of an RSA key.", env="WORKLOAD_RSA_KEY_SIZE")
    pkcs8: bool = setting(False, "Write the key as PKCS #8.", env="PKCS8_KEY")
    algorithm: str = setting("", "ECDSA for an elliptic key; RSA where it is empty.", env="ECC_SIGNATURE_ALGORITHM")
    curve: str = setting("P256", "Curve of an elliptic key: P256 or P384.", env="ECC_CURVE")
    signer: str = setting("", "Signer that the authority is asked for.", env="ISTIO_META_CERT_SIGNER")
    socket: str = setting(
        "socket", "Name of the socket in ./var/run/secrets/workload-spiffe-uds.", env="WORKLOAD_IDENTITY_SOCKET_FILE"
    )


@dataclasses.dataclass(frozen=True)
class GrpcSettings:
    """Applications that use gRPC's own xDS client."""

    bootstrap: str = setting(
        "",
        "File to which the bootstrap of gRPC's xDS client is written; empty: grpc-bootstrap.json beside Envoy's, where ISTIO_META_GENERATOR is "
        "grpc.",
        env="GRPC_XDS_BOOTSTRAP",
    )


@dataclasses.dataclass(frozen=True)
class StatusSettings:
    """Readiness, probes of the application, metrics."""

    probers: str = setting("", "Probes of the application by path, as JSON.", env="ISTIO_KUBE_APP_PROBERS")
    scrape: str = setting("", "Where the application's metrics are, as JSON.", env="ISTIO_PROMETHEUS_ANNOTATIONS")


@dataclasses.dataclass(frozen=True)
class DnsSettings:
    """Names of the mesh, answered for the application."""

    capture: bool = setting(
        False,
        "Answer names of the mesh; others go on to the resolver of /etc/resolv.conf.",
        env="ISTIO_META_DNS_CAPTURE",
    )
    at_gateway: bool = setting(False, "Answer names at a gateway too.", env="ISTIO_META_ENABLE_DNS_SERVER")
    address: str = setting("localhost:15053", "Address of the answers, over UDP and TCP.", env="DNS_PROXY_ADDR")
    timeout: Duration = setting(
        parse_duration("5s"), "Time that another resolver has to answer.", env="DNS_FORWARD_TIMEOUT"
    )


@dataclasses.dataclass(frozen=True)
class ModuleSettings:
    """Wasm modules, fetched for Envoy."""

    life: Duration = setting(
        parse_duration("24h"), "Time after which a module that nothing refers to is removed.", env="WASM_MODULE_EXPIRY"
    )
    purge: Duration = setting(parse_duration("1h"), "Time between looks for such modules.", env="WASM_PURGE_INTERVAL")
    insecure: tuple[str, ...] = setting(
        (),
        "Hosts of registries and servers that are not verified, with their ports, and may speak plain HTTP; * for all.",
        env="WASM_INSECURE_REGISTRIES",
    )
    retries: int = setting(
        5, "Times that a fetch is tried again that failed for the time being.", env="WASM_HTTP_REQUEST_MAX_RETRIES"
    )
    allowed: tuple[str, ...] = setting(
        (),
        "Blocks of addresses that modules are fetched from though they are private, such as those of a registry in the cluster.",
        env="ALLOWED_CIDRS_IN_WASM_FETCH",
    )
    blocked: tuple[str, ...] = setting(
        (), "Blocks of addresses that modules are never fetched from.", env="BLOCKED_CIDRS_IN_WASM_FETCH"
    )
    largest: int = setting(
        256 * 1024 * 1024, "Bytes of a module or layer; one that has more is not taken.", env="WASM_MODULE_MAX_BYTES"
    )
    extra_roots: str = setting(
        "", "File with more roots for registries and servers of modules.", env="WASM_EXTRA_ROOTS"
    )
    logins: str = setting(
        "",
        "Folder of Docker's config.json, whose logins count for modules without a pull secret; empty: ~/.docker.",
        env="DOCKER_CONFIG",
    )


@dataclasses.dataclass(frozen=True)
class AgentSettings:
    """Holds what flags and environment say. Durations are nanoseconds, as everywhere."""

    pod: PodSettings = section(PodSettings(), "Proxy")
    envoy: EnvoySettings = section(EnvoySettings(), "Envoy")
    control_plane: ControlPlaneSettings = section(ControlPlaneSettings(), "Control plane and authority")
    certificate: CertificateSettings = section(CertificateSettings(), "Certificate of the workload")
    grpc: GrpcSettings = section(GrpcSettings(), "gRPC without a proxy")
    status: StatusSettings = section(StatusSettings(), "Readiness, probes, metrics")
    dns: DnsSettings = section(DnsSettings(), "Names")
    modules: ModuleSettings = section(ModuleSettings(), "Wasm modules")
    log: LogSettings = section(LogSettings(), "Logs")
