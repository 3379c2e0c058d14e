"""MeshConfig: settings for the whole mesh. https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/"""

from __future__ import annotations

from typing import ClassVar, Literal

from pilot.config.base import Int32, OneOf, Strict
from pilot.config.mesh.extension_provider import (
    EnvoyFileAccessLogProvider,
    ExtensionProvider,
    PrometheusMetricsProvider,
    StackdriverProvider,
)
from pilot.config.mesh.proxy_config import ProxyConfig
from pilot.config.networking.destination_rule import (
    ClientTLSSettings,
    ConnectionPoolSettings,
    LocalityLoadBalancerSetting,
    OutlierDetection,
    TcpKeepalive,
    ZoneAwareLoadBalancerSetting,
)
from pilot.config.networking.virtual_service import HTTPRetry
from pilot.config.selector import LabelSelector
from pilot.lib.duration import Duration

Resource = Literal["SERVICE_REGISTRY"]
IngressControllerMode = Literal["UNSPECIFIED", "OFF", "DEFAULT", "STRICT"]
AccessLogEncoding = Literal["TEXT", "JSON"]
H2UpgradePolicy = Literal["DO_NOT_UPGRADE", "UPGRADE"]
OutboundMode = Literal["REGISTRY_ONLY", "ALLOW_ANY", "ALLOW_ANY_DYNAMIC_DNS"]
InboundMode = Literal["PASSTHROUGH", "LOCALHOST"]
Scope = Literal["LOCAL", "GLOBAL"]
NormalizationType = Literal["DEFAULT", "NONE", "BASE", "MERGE_SLASHES", "DECODE_AND_MERGE_SLASHES"]
TLSProtocol = Literal["TLS_AUTO", "TLSV1_2", "TLSV1_3"]
Visibility = Literal["VISIBILITY_UNSPECIFIED", "NONE", "NAMESPACE", "PUBLIC"]


class OutboundTrafficPolicy(Strict, frozen=True):
    mode: OutboundMode = "REGISTRY_ONLY"
    tls: ClientTLSSettings | None = None


class InboundTrafficPolicy(Strict, frozen=True):
    mode: InboundMode = "PASSTHROUGH"


class CertificateData(OneOf, frozen=True):
    """A root certificate that workloads trust. It is inline or in the SPIFFE bundle at a URL."""

    groups: ClassVar = (("pem", "spiffe_bundle_url"),)

    pem: str | None = None
    spiffe_bundle_url: str | None = None
    cert_signers: tuple[str, ...] = ()
    trust_domains: tuple[str, ...] = ()


class Settings(Strict, frozen=True):
    cluster_local: bool = False


class ServiceSettings(Strict, frozen=True):
    settings: Settings | None = None
    hosts: tuple[str, ...] = ()


class ServiceScopeConfigs(Strict, frozen=True):
    namespace_selector: LabelSelector | None = None
    services_selector: LabelSelector | None = None
    scope: Scope = "LOCAL"


class CA(Strict, frozen=True):
    address: str = ""
    tls_settings: ClientTLSSettings | None = None
    request_timeout: Duration | None = None
    istiod_side: bool = False


class DefaultProviders(Strict, frozen=True):
    tracing: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    access_logging: tuple[str, ...] = ()


class ProxyPathNormalization(Strict, frozen=True):
    normalization: NormalizationType = "DEFAULT"


class TLSConfig(Strict, frozen=True):
    min_protocol_version: TLSProtocol = "TLS_AUTO"
    ecdh_curves: tuple[str, ...] = ()
    cipher_suites: tuple[str, ...] = ()


class DefaultTrafficPolicy(Strict, frozen=True):
    connection_pool: ConnectionPoolSettings | None = None
    outlier_detection: OutlierDetection | None = None


class Policy(Strict, frozen=True):
    visibility: Visibility = "VISIBILITY_UNSPECIFIED"
    matching_rules: tuple[MatchRule, ...] = ()


class MatchRule(Strict, frozen=True):
    namespace_selector: LabelSelector | None = None


class ServiceEntryVisibility(Strict, frozen=True):
    default_visibility: Visibility = "VISIBILITY_UNSPECIFIED"
    apply_to_sidecars: bool = False
    policies: tuple[Policy, ...] = ()


class ConfigSource(Strict, frozen=True):
    address: str = ""
    tls_settings: ClientTLSSettings | None = None
    subscribed_resources: tuple[Resource, ...] = ()


class Certificate(Strict, frozen=True):
    secret_name: str = ""
    dns_names: tuple[str, ...] = ()


DEFAULT_PROVIDERS = (
    ExtensionProvider(name="prometheus", prometheus=PrometheusMetricsProvider()),
    ExtensionProvider(name="stackdriver", stackdriver=StackdriverProvider()),
    ExtensionProvider(name="envoy", envoy_file_access_log=EnvoyFileAccessLogProvider(path="/dev/stdout")),
)


class MeshConfig(Strict, frozen=True):
    """The mesh config.

    The defaults apply to unset fields. A message that a user sets replaces the whole default message. The exceptions
    are `defaultConfig`, `defaultProviders` and `extensionProviders` (see pilot.ingest.mesh_config).
    """

    proxy_listen_port: Int32 = 15001
    proxy_inbound_listen_port: Int32 = 15006
    proxy_http_port: Int32 = 0
    connect_timeout: Duration = Duration.of(10)
    hbone_idle_timeout: Duration | None = None
    protocol_detection_timeout: Duration = Duration(0)
    tcp_keepalive: TcpKeepalive | None = None
    ingress_class: str = "istio"
    ingress_service: str = "istio-ingressgateway"
    ingress_controller_mode: IngressControllerMode = "STRICT"
    ingress_selector: str = ""
    enable_tracing: bool = True
    access_log_file: str = ""
    access_log_format: str = ""
    access_log_encoding: AccessLogEncoding = "TEXT"
    enable_envoy_access_log_service: bool = False
    disable_envoy_listener_log: bool = False
    default_config: ProxyConfig = ProxyConfig()
    outbound_traffic_policy: OutboundTrafficPolicy = OutboundTrafficPolicy(mode="ALLOW_ANY")
    inbound_traffic_policy: InboundTrafficPolicy = InboundTrafficPolicy(mode="PASSTHROUGH")
    config_sources: tuple[ConfigSource, ...] = ()
    enable_auto_mtls: bool = True
    trust_domain: str = "cluster.local"
    trust_domain_aliases: tuple[str, ...] = ()
    ca_certificates: tuple[CertificateData, ...] = ()
    default_service_export_to: tuple[str, ...] = ("*",)
    default_virtual_service_export_to: tuple[str, ...] = ("*",)
    default_destination_rule_export_to: tuple[str, ...] = ("*",)
    root_namespace: str = "istio-system"
    locality_lb_setting: LocalityLoadBalancerSetting = LocalityLoadBalancerSetting(enabled=True)
    zone_aware_lb_setting: ZoneAwareLoadBalancerSetting | None = None
    dns_refresh_rate: Duration = Duration.of(60)
    h2_upgrade_policy: H2UpgradePolicy = "DO_NOT_UPGRADE"
    inbound_cluster_stat_name: str = ""
    outbound_cluster_stat_name: str = ""
    certificates: tuple[Certificate, ...] = ()  # deprecated
    service_settings: tuple[ServiceSettings, ...] = ()
    service_scope_configs: tuple[ServiceScopeConfigs, ...] = ()
    enable_prometheus_merge: bool = True
    verify_certificate_at_client: bool | None = None  # deprecated
    ca: CA | None = None
    extension_providers: tuple[ExtensionProvider, ...] = DEFAULT_PROVIDERS
    default_providers: DefaultProviders = DefaultProviders()
    discovery_selectors: tuple[LabelSelector, ...] = ()
    path_normalization: ProxyPathNormalization | None = None
    default_http_retry_policy: HTTPRetry | None = None
    default_inbound_http_retry_policy: HTTPRetry | None = None
    mesh_mTLS: TLSConfig | None = None
    tls_defaults: TLSConfig | None = None
    default_traffic_policy: DefaultTrafficPolicy | None = None
    service_entry_visibility: ServiceEntryVisibility | None = None
