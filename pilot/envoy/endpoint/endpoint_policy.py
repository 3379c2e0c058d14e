"""The policy for a cluster's endpoints: which endpoints it includes, and how it balances traffic between localities."""

from __future__ import annotations

import msgspec

from pilot.config.mesh.mesh_config import DefaultTrafficPolicy
from pilot.config.networking.destination_rule import (
    DestinationRule,
    Distribute,
    Failover,
    LocalityLoadBalancerSetting,
    Subset,
    TrafficPolicy,
    ZoneAwareLoadBalancerSetting,
)
from pilot.envoy.cluster.cluster_builder import ClusterDestination
from pilot.envoy.cluster.policy.effective_policy import NO_POLICY, effective_port_policy, effective_subset_policy
from pilot.mesh.model.facets import Labels
from pilot.mesh.registry.clusterset import EndpointVisibility
from pilot.mesh.traffic.locality_lb import EffectiveLocality, effective_locality


class EndpointPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The policy for a cluster's endpoints.

    Only endpoints with `labels` are included. `mtls` is the setting of the DestinationRule, or None to decide for each
    endpoint. If `send_draining` is set, draining endpoints are included for sticky sessions.
    """

    labels: Labels = frozenset()
    mtls: bool | None = None
    send_unhealthy: bool = True
    send_draining: bool = False
    node_local: bool = False
    endpoint_visibility: EndpointVisibility = EndpointVisibility()
    balancing: LocalityBalancing | None = None


class MeshLocalitySettings(msgspec.Struct, frozen=True):
    """The locality settings of the mesh config, and its default traffic policy."""

    locality: LocalityLoadBalancerSetting | None = None
    zone_aware: ZoneAwareLoadBalancerSetting | None = None
    defaults: DefaultTrafficPolicy | None = None


class UnhealthySettings(msgspec.Struct, frozen=True):
    """Settings that determine whether clients receive unhealthy endpoints."""

    send_unhealthy: bool = True
    always_send_unhealthy: bool = False


def build_endpoint_policy(
    destination: ClusterDestination,
    mesh: MeshLocalitySettings,
    inline: bool,
    unhealthy: UnhealthySettings,
    endpoint_visibility: EndpointVisibility,
) -> EndpointPolicy:
    """Return the policy for a cluster's endpoints.

    `inline` is set if the cluster contains them. With EDS, the mesh's default outlier detection does not apply.
    """
    service, port = destination.service, destination.port.number
    spec = destination.rule.spec if destination.rule is not None else None
    policy = NO_POLICY
    if spec is not None or (inline and mesh.defaults is not None):
        policy = effective_port_policy(
            spec.traffic_policy if spec is not None else None, port, mesh.defaults if inline else None
        )
    if destination.subset is not None:
        policy = effective_subset_policy(policy, destination.subset.traffic_policy, port)
    outlier = policy.outlier_detection
    always_unhealthy = unhealthy.always_send_unhealthy or bool(service.traffic_distribution)
    return EndpointPolicy(
        labels=frozenset(destination.subset.labels.items()) if destination.subset is not None else frozenset(),
        mtls=_mtls(spec, destination.subset, port) if spec is not None else None,
        send_unhealthy=always_unhealthy
        or (unhealthy.send_unhealthy and not (outlier is not None and outlier.min_health_percent > 0)),
        send_draining=bool(service.session_label),
        node_local=service.node_local,
        endpoint_visibility=endpoint_visibility,
        balancing=build_locality_balancing(
            effective_locality(policy.load_balancer, service, mesh.locality, mesh.zone_aware), outlier is not None
        ),
    )


def _mtls(rule: DestinationRule, subset: Subset | None, port: int) -> bool | None:
    """Return whether the rule requests mesh mTLS, or None if it has no TLS settings.

    The subset takes precedence over the rule. Settings for the port take precedence over those for all ports.
    """
    mode = (_tls_mode(subset.traffic_policy, port) if subset is not None else "") or _tls_mode(
        rule.traffic_policy, port
    )
    return mode == "ISTIO_MUTUAL" if mode else None


def _tls_mode(policy: TrafficPolicy | None, port: int) -> str:
    if policy is None:
        return ""
    port_tls = next(
        (
            p.tls
            for p in policy.port_level_settings
            if p.port is not None and p.port.number == port and p.tls is not None
        ),
        None,
    )
    tls = port_tls or policy.tls
    return tls.mode if tls is not None else ""


class LocalityBalancing(msgspec.Struct, frozen=True):
    """The balancing of traffic between localities. It uses weights if `distribute` is set, and otherwise priorities.

    Priorities first depend on the labels in `failover_priority`, which are "key" or "key=value". They then depend on
    the locality if `by_locality` is set, or on the region if `by_region` is set.
    """

    distribute: tuple[Distribute, ...] = ()
    failover_priority: tuple[str, ...] = ()
    failover: tuple[Failover, ...] = ()
    by_locality: bool = False
    by_region: bool = False

    @property
    def needs_locality(self) -> bool:
        """Return whether the balancing depends on the client's locality."""
        return bool(self.distribute) or self.by_locality or self.by_region


def build_locality_balancing(effective: EffectiveLocality, outlier_detection: bool) -> LocalityBalancing | None:
    """Return the balancing between localities, or None if it has no effect.

    Envoy uses the next priority only if endpoints are ejected or known to be unhealthy.
    https://istio.io/latest/docs/tasks/traffic-management/locality-load-balancing/
    """
    setting = effective.setting
    if setting is None or setting.enabled is False:
        return None
    # Envoy balances zones within a priority, so that priorities only separate regions.
    if isinstance(setting, ZoneAwareLoadBalancerSetting):
        return LocalityBalancing(failover_priority=setting.failover_priority, failover=setting.failover, by_region=True)
    if setting.distribute:
        return LocalityBalancing(distribute=setting.distribute)
    if not outlier_detection and not effective.forced:
        return None
    by_locality = bool(setting.failover) or not setting.failover_priority
    return LocalityBalancing(
        failover_priority=setting.failover_priority, failover=setting.failover, by_locality=by_locality
    )
