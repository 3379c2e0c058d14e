"""Locality load balancing settings. The DestinationRule takes precedence over the service, and the service over the
mesh.

https://istio.io/latest/docs/tasks/traffic-management/locality-load-balancing/
"""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.networking.destination_rule import (
    LoadBalancerSettings,
    LocalityLoadBalancerSetting,
    ZoneAwareLoadBalancerSetting,
)
from pilot.lib.labels import HOSTNAME, NETWORK, REGION, SUBZONE, ZONE
from pilot.mesh.model.service import Service


class EffectiveLocality(NamedTuple):
    """The locality load balancing setting that takes effect. If it is None, localities are ignored.

    `forced` says that endpoints have priorities even without outlier detection.
    """

    setting: LocalityLoadBalancerSetting | ZoneAwareLoadBalancerSetting | None = None
    forced: bool = False


SAME_ZONE = EffectiveLocality(
    LocalityLoadBalancerSetting(enabled=True, failover_priority=(NETWORK, REGION, ZONE)), forced=True
)
SAME_NODE = EffectiveLocality(
    LocalityLoadBalancerSetting(enabled=True, failover_priority=(NETWORK, REGION, ZONE, SUBZONE, HOSTNAME)), forced=True
)
_DISTRIBUTIONS = {"PreferSameZone": SAME_ZONE, "PreferSameNode": SAME_NODE}


def effective_locality(
    rule: LoadBalancerSettings | None,
    service: Service | None,
    mesh: LocalityLoadBalancerSetting | None,
    mesh_zones: ZoneAwareLoadBalancerSetting | None,
) -> EffectiveLocality:
    """Return the setting of the rule, or else the service's traffic distribution, or else the setting of the mesh.

    In the rule and in the mesh config, the zone-aware setting takes precedence. It applies even if it is disabled,
    because it then prevents Envoy from preferring its own zone.
    """
    if rule is not None and rule.zone_aware_lb_setting is not None:
        return _zone_aware(rule.zone_aware_lb_setting)
    if rule is not None and rule.locality_lb_setting is not None:
        return _unless_off(rule.locality_lb_setting)
    if service is not None and service.traffic_distribution in _DISTRIBUTIONS:
        return _DISTRIBUTIONS[service.traffic_distribution]
    if mesh_zones is not None:
        return _zone_aware(mesh_zones)
    return _unless_off(mesh) if mesh is not None else EffectiveLocality()


def _zone_aware(setting: ZoneAwareLoadBalancerSetting) -> EffectiveLocality:
    return EffectiveLocality(setting, forced=setting.enabled is not False)


def _unless_off(setting: LocalityLoadBalancerSetting) -> EffectiveLocality:
    return EffectiveLocality() if setting.enabled is False else EffectiveLocality(setting)
