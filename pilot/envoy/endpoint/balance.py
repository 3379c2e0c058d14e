"""Decides how the endpoints of a cluster are spread over localities and priorities.

https://istio.io/latest/docs/tasks/traffic-management/locality-load-balancing/
"""

from __future__ import annotations

import msgspec

from pilot.config.networking.destination_rule import Distribute, Failover, ZoneAwareLoadBalancerSetting
from pilot.mesh.traffic.locality_lb import EffectiveLocality


class Balance(msgspec.Struct, frozen=True):
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


def build_balance(effective: EffectiveLocality, outlier_detection: bool) -> Balance | None:
    """Returns None where nothing takes effect: Envoy never leaves a priority unless something ejects its endpoints or tells their health."""
    setting = effective.setting
    if setting is None or setting.enabled is False:
        return None
    if isinstance(
        setting, ZoneAwareLoadBalancerSetting
    ):  # Envoy itself balances the zones of a priority; priorities keep regions apart
        return Balance(failover_priority=setting.failover_priority, failover=setting.failover, by_region=True)
    if setting.distribute:
        return Balance(distribute=setting.distribute)
    if not outlier_detection and not effective.forced:
        return None
    by_locality = bool(setting.failover) or not setting.failover_priority
    return Balance(failover_priority=setting.failover_priority, failover=setting.failover, by_locality=by_locality)
