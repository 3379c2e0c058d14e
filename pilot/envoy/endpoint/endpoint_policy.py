"""Decides which endpoints a cluster has and how they are arranged, by the service and the DestinationRule."""

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
from pilot.mesh.registry.clusterset import Bounds
from pilot.mesh.traffic.locality_lb import EffectiveLocality, effective_locality


class EndpointPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Says which endpoints count. `labels`: those that they must have. `mtls`: the rule's word on mesh mTLS, None where each endpoint
    tells.

    `unhealthy`: send endpoints that are not ready. `sticky`: send those that drain, for sessions that stick to them.
    """

    labels: Labels = frozenset()
    mtls: bool | None = None
    unhealthy: bool = True
    sticky: bool = False
    node_local: bool = False
    bounds: Bounds = Bounds()
    balance: LocalityBalancing | None = None


class MeshLocalitySettings(msgspec.Struct, frozen=True):
    """Holds the mesh config's word on localities, and what rules leave open."""

    locality: LocalityLoadBalancerSetting | None = None
    zones: ZoneAwareLoadBalancerSetting | None = None
    defaults: DefaultTrafficPolicy | None = None


class UnhealthySettings(msgspec.Struct, frozen=True):
    """Holds what the settings say about endpoints that are not ready."""

    unhealthy: bool = True
    always_unhealthy: bool = False


def build_endpoint_policy(
    to: ClusterDestination, mesh: MeshLocalitySettings, inline: bool, sending: UnhealthySettings, bounds: Bounds
) -> EndpointPolicy:
    """Returns the policy of one cluster. `inline`: it holds its endpoints; with EDS the mesh's outlier detection does not count."""
    service, port = to.service, to.port.number
    spec = to.rule.spec if to.rule is not None else None
    policy = NO_POLICY
    if spec is not None or (inline and mesh.defaults is not None):
        policy = effective_port_policy(
            spec.traffic_policy if spec is not None else None, port, mesh.defaults if inline else None
        )
    if to.subset is not None:
        policy = effective_subset_policy(policy, to.subset.traffic_policy, port)
    outlier = policy.outlier_detection
    always = sending.always_unhealthy or bool(service.traffic_distribution)
    return EndpointPolicy(
        labels=frozenset(to.subset.labels.items()) if to.subset is not None else frozenset(),
        mtls=_mtls(spec, to.subset, port) if spec is not None else None,
        unhealthy=always or (sending.unhealthy and not (outlier is not None and outlier.min_health_percent > 0)),
        sticky=bool(service.session_label),
        node_local=service.node_local,
        bounds=bounds,
        balance=build_locality_balancing(
            effective_locality(policy.load_balancer, service, mesh.locality, mesh.zones), outlier is not None
        ),
    )


def _mtls(rule: DestinationRule, subset: Subset | None, port: int) -> bool | None:
    """Returns whether the rule asks for mesh mTLS: the subset's word, else the rule's, for the port before for all; None where nobody
    says."""
    said = (_tls_mode(subset.traffic_policy, port) if subset is not None else "") or _tls_mode(
        rule.traffic_policy, port
    )
    return said == "ISTIO_MUTUAL" if said else None


def _tls_mode(policy: TrafficPolicy | None, port: int) -> str:
    if policy is None:
        return ""
    of_port = next(
        (
            p.tls
            for p in policy.port_level_settings
            if p.port is not None and p.port.number == port and p.tls is not None
        ),
        None,
    )
    tls = of_port or policy.tls
    return tls.mode if tls is not None else ""


class LocalityBalancing(msgspec.Struct, frozen=True):
    """Says how endpoints are spread. `distribute`: weights by locality, and then nothing else counts. Else priorities: first by the
    labels of `failover_priority` ("key" or "key=value"), then by locality where `by_locality` (only by region where `by_region`)."""

    distribute: tuple[Distribute, ...] = ()
    failover_priority: tuple[str, ...] = ()
    failover: tuple[Failover, ...] = ()
    by_locality: bool = False
    by_region: bool = False

    @property
    def needs_locality(self) -> bool:
        """Returns whether the balance depends on where the client runs."""
        return bool(self.distribute) or self.by_locality or self.by_region


def build_locality_balancing(effective: EffectiveLocality, outlier_detection: bool) -> LocalityBalancing | None:
    """Returns None where nothing takes effect: Envoy never leaves a priority unless something ejects its endpoints or tells their health."""
    setting = effective.setting
    if setting is None or setting.enabled is False:
        return None
    if isinstance(
        setting, ZoneAwareLoadBalancerSetting
    ):  # Envoy itself balances the zones of a priority; priorities keep regions apart
        return LocalityBalancing(failover_priority=setting.failover_priority, failover=setting.failover, by_region=True)
    if setting.distribute:
        return LocalityBalancing(distribute=setting.distribute)
    if not outlier_detection and not effective.forced:
        return None
    by_locality = bool(setting.failover) or not setting.failover_priority
    return LocalityBalancing(
        failover_priority=setting.failover_priority, failover=setting.failover, by_locality=by_locality
    )


# DOC """Decides how the endpoints of a cluster are spread over localities and priorities.
#
# https://istio.io/latest/docs/tasks/traffic-management/locality-load-balancing/
# """
