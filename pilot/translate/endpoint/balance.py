"""How the endpoints of a cluster are spread over localities and priorities: which of all the settings count.

https://istio.io/latest/docs/tasks/traffic-management/locality-load-balancing/
"""
from __future__ import annotations

import msgspec

from pilot.lib import labels as label
from pilot.model.config.destination_rule import (
    Distribute,
    Failover,
    LoadBalancerSettings,
    LocalityLoadBalancerSetting,
    ZoneAwareLoadBalancerSetting,
)

NEAR_ZONE = (label.NETWORK, label.REGION, label.ZONE)
NEAR_NODE = (label.NETWORK, label.REGION, label.ZONE, label.SUBZONE, label.HOSTNAME)


class Balance(msgspec.Struct, frozen=True):
    """`distribute`: weights by locality, and then nothing else counts. Else priorities: first by the labels of
    `failover_priority` ("key" or "key=value"), then by locality where `by_locality` (only by region where `by_region`)."""

    distribute: tuple[Distribute, ...] = ()
    failover_priority: tuple[str, ...] = ()
    failover: tuple[Failover, ...] = ()
    by_locality: bool = False
    by_region: bool = False

    @property
    def needs_locality(self) -> bool:
        """Whether it depends on where the client runs."""
        return bool(self.distribute) or self.by_locality or self.by_region


def build_balance(
    settings: LoadBalancerSettings | None,
    traffic_distribution: str,
    mesh: LoadBalancerSettings,
    outlier_detection: bool,
) -> Balance | None:
    """The rule's settings come before the service's own distribution, that before the mesh's; None where none takes effect.

    Without outlier detection Envoy never leaves a priority, so that only weights and what a service asks for itself take effect.
    """
    if settings is not None and settings.zone_aware_lb_setting is not None:
        return _zone_aware(settings.zone_aware_lb_setting)
    if settings is not None and settings.locality_lb_setting is not None:
        return _locality(settings.locality_lb_setting, outlier_detection)
    if traffic_distribution:
        return Balance(failover_priority=NEAR_NODE if traffic_distribution == "PreferSameNode" else NEAR_ZONE)
    if mesh.zone_aware_lb_setting is not None:
        return _zone_aware(mesh.zone_aware_lb_setting)
    return _locality(mesh.locality_lb_setting, outlier_detection) if mesh.locality_lb_setting is not None else None


def _zone_aware(setting: ZoneAwareLoadBalancerSetting) -> Balance | None:
    """Envoy itself balances the zones of a priority; the regions are kept apart by priority."""
    if setting.enabled is False:
        return None
    return Balance(failover_priority=setting.failover_priority, failover=setting.failover, by_region=True)


def _locality(setting: LocalityLoadBalancerSetting, outlier_detection: bool) -> Balance | None:
    if setting.enabled is False:
        return None
    if setting.distribute:
        return Balance(distribute=setting.distribute)
    if not outlier_detection:
        return None
    by_locality = bool(setting.failover) or not setting.failover_priority
    return Balance(failover_priority=setting.failover_priority, failover=setting.failover, by_locality=by_locality)
