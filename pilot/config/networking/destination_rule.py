"""networking.istio.io DestinationRule. https://istio.io/latest/docs/reference/config/networking/destination-rule/"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

import msgspec

from pilot.config.base import Int32, OneOf, Strict, UInt32, UInt64
from pilot.config.networking.virtual_service import PortSelector
from pilot.config.selector import WorkloadSelector
from pilot.lib.duration import Duration

ProxyProtocolVersion = Literal["V1", "V2"]
SimpleLB = Literal["UNSPECIFIED", "LEAST_CONN", "RANDOM", "PASSTHROUGH", "ROUND_ROBIN", "LEAST_REQUEST"]
H2UpgradePolicy = Literal["DEFAULT", "DO_NOT_UPGRADE", "UPGRADE"]
ClientTLSMode = Literal["DISABLE", "SIMPLE", "MUTUAL", "ISTIO_MUTUAL"]


class DestinationRule(Strict, frozen=True):
    """Policies that apply to traffic after routing. An empty `export_to` means the default of the mesh config."""

    host: str = ""
    traffic_policy: TrafficPolicy | None = None
    subsets: tuple[Subset, ...] = ()
    export_to: tuple[str, ...] = ()
    workload_selector: WorkloadSelector | None = None

    @property
    def policies(self) -> list[TrafficPolicy | PortTrafficPolicy]:
        """All traffic policies: of the service, of the subsets, and of their ports."""
        policies: list[TrafficPolicy | PortTrafficPolicy] = []
        for policy in (self.traffic_policy, *(subset.traffic_policy for subset in self.subsets)):
            if policy is not None:
                policies += [policy, *policy.port_level_settings]
        return policies


class PortTrafficPolicy(Strict, frozen=True):
    """A traffic policy for one port. It replaces the whole traffic policy for that port."""

    port: PortSelector | None = None
    load_balancer: LoadBalancerSettings | None = None
    connection_pool: ConnectionPoolSettings | None = None
    outlier_detection: OutlierDetection | None = None
    tls: ClientTLSSettings | None = None


class TunnelSettings(Strict, frozen=True):
    protocol: str = ""
    target_host: str = ""
    target_port: UInt32 = 0


class ProxyProtocol(Strict, frozen=True):
    version: ProxyProtocolVersion = "V1"


class RetryBudget(Strict, frozen=True):
    percent: float | None = None
    min_retry_concurrency: UInt32 = 0
    budget_interval: Duration | None = None


class TrafficPolicy(Strict, frozen=True, dict=True, gc=True):
    """A traffic policy. None means unspecified at this level."""

    load_balancer: LoadBalancerSettings | None = None
    connection_pool: ConnectionPoolSettings | None = None
    outlier_detection: OutlierDetection | None = None
    tls: ClientTLSSettings | None = None
    port_level_settings: tuple[PortTrafficPolicy, ...] = ()
    tunnel: TunnelSettings | None = None
    proxy_protocol: ProxyProtocol | None = None
    retry_budget: RetryBudget | None = None

    @functools.cached_property
    def settings_by_port(self) -> Mapping[int, PortTrafficPolicy]:
        """The settings for each port. The first settings for a port take precedence."""
        return {p.port.number: p for p in reversed(self.port_level_settings) if p.port is not None}


class Subset(Strict, frozen=True):
    """Endpoints of a service, selected by labels."""

    name: str = ""
    labels: dict[str, str] = {}
    traffic_policy: TrafficPolicy | None = None


class RingHash(Strict, frozen=True):
    minimum_ring_size: UInt64 = 0


class MagLev(Strict, frozen=True):
    table_size: UInt64 = 0


class Attribute(Strict, frozen=True):
    name: str = ""
    value: str = ""


class HTTPCookie(Strict, frozen=True):
    name: str = ""
    path: str = ""
    ttl: Duration | None = None
    attributes: tuple[Attribute, ...] = ()


class ConsistentHashLB(OneOf, frozen=True):
    """Consistent hash settings. They have one hash key, and at most one algorithm."""

    groups: ClassVar = (
        ("http_header_name", "http_cookie", "use_source_ip", "http_query_parameter_name"),
        ("ring_hash", "maglev"),
    )

    http_header_name: str | None = None
    http_cookie: HTTPCookie | None = None
    use_source_ip: bool | None = None
    http_query_parameter_name: str | None = None
    ring_hash: RingHash | None = None
    maglev: MagLev | None = None
    minimum_ring_size: UInt64 = 0  # deprecated


class BackendUtilizationLB(Strict, frozen=True):
    """Weights by the utilization that endpoints report. It has no effect."""

    weight_stabilization_period: Duration | None = None
    weight_expiration_period: Duration | None = None
    weight_update_period: Duration | None = None
    error_utilization_penalty_percent: UInt32 = 0
    metric_names_for_computing_utilization: tuple[str, ...] = ()


class LoadBalancerSettings(OneOf, frozen=True):
    groups: ClassVar = (("simple", "consistent_hash", "backend_utilization"),)

    simple: SimpleLB | None = None
    consistent_hash: ConsistentHashLB | None = None
    backend_utilization: BackendUtilizationLB | None = None
    locality_lb_setting: LocalityLoadBalancerSetting | None = None
    zone_aware_lb_setting: ZoneAwareLoadBalancerSetting | None = None
    warmup_duration_secs: Duration | None = None
    warmup: WarmupConfiguration | None = None


class WarmupConfiguration(Strict, frozen=True):
    duration: Duration | None = None
    minimum_percent: float | None = None
    aggression: float | None = None


class TcpKeepalive(Strict, frozen=True):
    probes: UInt32 = 0
    time: Duration | None = None
    interval: Duration | None = None


class TCPSettings(Strict, frozen=True):
    max_connections: Int32 = 0
    connect_timeout: Duration | None = None
    tcp_keepalive: TcpKeepalive | None = None
    max_connection_duration: Duration | None = None
    idle_timeout: Duration | None = None


class ConnectionKeepalive(Strict, frozen=True):
    interval: Duration | None = None
    timeout: Duration | None = None


class HTTPSettings(Strict, frozen=True):
    http1_max_pending_requests: Int32 = 0
    http2_max_requests: Int32 = 0
    max_requests_per_connection: Int32 = 0
    max_retries: Int32 = 0
    idle_timeout: Duration | None = None
    h2_upgrade_policy: H2UpgradePolicy = "DEFAULT"
    use_client_protocol: bool = False
    max_concurrent_streams: Int32 = 0
    http2_keep_alive: ConnectionKeepalive | None = None


class ConnectionPoolSettings(Strict, frozen=True):
    tcp: TCPSettings | None = None
    http: HTTPSettings | None = None


class OutlierDetection(Strict, frozen=True):
    """Outlier detection. Percentages range from 0 to 100. None means unspecified."""

    consecutive_errors: Int32 = 0  # deprecated
    split_external_local_origin_errors: bool = False
    consecutive_local_origin_failures: UInt32 | None = None
    consecutive_gateway_errors: UInt32 | None = None
    consecutive_5xx_errors: UInt32 | None = None
    interval: Duration | None = None
    base_ejection_time: Duration | None = None
    max_ejection_percent: Int32 = 0
    min_health_percent: Int32 = 0
    outlier_detection_http_error_codes: tuple[UInt32, ...] = ()


class ClientTLSSettings(Strict, frozen=True):
    """TLS settings of a client."""

    mode: ClientTLSMode = "DISABLE"
    client_certificate: str = ""
    private_key: str = ""
    ca_certificates: str = ""
    credential_name: str = ""
    subject_alt_names: tuple[str, ...] = ()
    sni: str = ""
    insecure_skip_verify: bool | None = None
    ca_crl: str = ""


class Distribute(Strict, frozen=True):
    """The percentage of traffic for each locality, such as "region/zone/*". The percentages add up to 100."""

    from_: str = msgspec.field(default="", name="from")
    to: dict[str, UInt32] = {}


class Failover(Strict, frozen=True):
    from_: str = msgspec.field(default="", name="from")
    to: str = ""


class LocalityLoadBalancerSetting(Strict, frozen=True):
    """Locality settings. Either `distribute` is set, or `failover` with an optional `failover_priority`."""

    distribute: tuple[Distribute, ...] = ()
    failover: tuple[Failover, ...] = ()
    failover_priority: tuple[str, ...] = ()
    enabled: bool | None = None


class ZoneAwareLoadBalancerSetting(Strict, frozen=True):
    enabled: bool | None = None
    failover: tuple[Failover, ...] = ()
    failover_priority: tuple[str, ...] = ()
    min_cluster_size: UInt32 | None = None


def destination_hash(rule: DestinationRule, subset: str, port: int) -> ConsistentHashLB | None:
    """Return the consistent hash settings for a route's destination, or None if there are none.

    `port` is 0 if the route specifies no port. The most specific settings win, in the order: port of the subset,
    subset, port of the rule, rule.
    """
    matching = next((s for s in rule.subsets if s.name == subset), None)
    for policy in (matching.traffic_policy if matching is not None else None, rule.traffic_policy):
        settings = (_of_port(policy, port) or _of(policy)) if policy is not None else None
        if settings is not None:
            return settings
    return None


def has_consistent_hash(rule: DestinationRule) -> bool:
    """Return whether any part of the rule has consistent hash settings."""
    policies = (rule.traffic_policy, *(s.traffic_policy for s in rule.subsets))
    return any(_of(p) or any(_of(setting) for setting in p.port_level_settings) for p in policies if p is not None)


def _of(policy: TrafficPolicy | PortTrafficPolicy) -> ConsistentHashLB | None:
    return policy.load_balancer.consistent_hash if policy.load_balancer is not None else None


def _of_port(policy: TrafficPolicy, port: int) -> ConsistentHashLB | None:
    """Return the consistent hash settings of the first policy for a port.

    Return None if there is no such policy, or if it has no consistent hash settings.
    """
    settings: Iterable[PortTrafficPolicy] = policy.port_level_settings
    port_policy = next((s for s in settings if s.port is not None and s.port.number == port), None) if port else None
    return _of(port_policy) if port_policy is not None else None
