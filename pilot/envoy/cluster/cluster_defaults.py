"""Settings of the mesh config and the control plane that apply to every cluster."""

from __future__ import annotations

import msgspec

from pilot.config.mesh.mesh_config import DefaultTrafficPolicy, TLSConfig
from pilot.config.networking.destination_rule import (
    LocalityLoadBalancerSetting,
    TcpKeepalive,
    ZoneAwareLoadBalancerSetting,
)
from pilot.derive import hub
from pilot.lib.duration import Duration
from pilot.mesh.model.ambient_features import exchanges_baggage, sends_hbone
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config


class ClusterDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that affect clusters. Changes to other settings do not affect clusters."""

    connect_timeout: Duration
    dns_refresh_rate: Duration
    auto_mtls: bool = True
    h2_upgrade: bool = False
    tcp_keepalive: TcpKeepalive | None = None
    traffic_policy: DefaultTrafficPolicy | None = None
    locality_lb: LocalityLoadBalancerSetting | None = None
    zone_aware_lb: ZoneAwareLoadBalancerSetting | None = None
    tls: TLSConfig | None = None
    inbound_stat_name: str = ""
    outbound_stat_name: str = ""
    inbound_localhost: bool = False
    dns_jitter: Duration = Duration(0)
    dns_udp_max_queries: int = 100
    dual_stack: bool = False
    ipv6_only_has_ipv4: bool = False
    locality_weighted: bool = False
    send_unhealthy: bool = True
    always_send_unhealthy: bool = False
    headless_eds: bool = False
    publish_remaining: bool = False
    external_tls_by_rule: bool = True
    compliance: str = ""
    send_hbone: bool = False
    baggage: bool = False
    hbone_idle_timeout: Duration | None = None
    hbone_stream_window: int = 0
    hbone_connection_window: int = 0
    telemetry_label: bool = True
    metadata_exchange: bool = True
    metadata_exchange_alpn: bool = True
    metadata_exchange_labels: tuple[str, ...] = ()


@hub
def cluster_defaults(db: Mesh) -> ClusterDefaults:
    """Return the defaults of this mesh."""
    mesh, settings = mesh_config(db), db.settings
    return ClusterDefaults(
        connect_timeout=mesh.connect_timeout,
        dns_refresh_rate=mesh.dns_refresh_rate,
        auto_mtls=mesh.enable_auto_mtls,
        h2_upgrade=mesh.h2_upgrade_policy == "UPGRADE",
        tcp_keepalive=mesh.tcp_keepalive,
        traffic_policy=mesh.default_traffic_policy,
        locality_lb=mesh.locality_lb_setting,
        zone_aware_lb=mesh.zone_aware_lb_setting,
        tls=mesh.tls_defaults,
        inbound_stat_name=mesh.inbound_cluster_stat_name,
        outbound_stat_name=mesh.outbound_cluster_stat_name,
        inbound_localhost=mesh.inbound_traffic_policy.mode == "LOCALHOST",
        dns_jitter=settings.clusters.dns_jitter,
        dns_udp_max_queries=settings.clusters.dns_udp_max_queries,
        dual_stack=settings.registry.dual_stack,
        ipv6_only_has_ipv4=settings.listeners.ipv6_only_has_ipv4,
        locality_weighted=settings.clusters.locality_weighted_lb,
        send_unhealthy=settings.clusters.send_unhealthy_endpoints,
        always_send_unhealthy=settings.clusters.always_send_unhealthy_endpoints,
        headless_eds=settings.clusters.headless_eds,
        publish_remaining=not settings.clusters.disable_remaining_metrics,
        external_tls_by_rule=settings.tls.external_tls_by_rule,
        compliance=settings.tls.compliance_policy,
        send_hbone=sends_hbone(settings.ambient),
        baggage=exchanges_baggage(settings.ambient),
        hbone_idle_timeout=mesh.hbone_idle_timeout,
        hbone_stream_window=settings.ambient.stream_window,
        hbone_connection_window=settings.ambient.connection_window,
        telemetry_label=settings.telemetry.cluster_label,
        metadata_exchange=settings.telemetry.metadata_exchange,
        metadata_exchange_alpn=settings.telemetry.metadata_exchange
        and not settings.telemetry.disable_metadata_exchange_alpn,
        metadata_exchange_labels=settings.telemetry.metadata_exchange_labels,
    )
