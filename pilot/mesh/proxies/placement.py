"""The properties of a proxy's location that its configuration depends on.

Other properties do not split classes of proxies.
"""

from __future__ import annotations

import msgspec

from pilot.config.kinds.istio import DESTINATION_RULE
from pilot.config.networking.destination_rule import (
    DestinationRule,
    LoadBalancerSettings,
)
from pilot.config.object import ObjectKey
from pilot.derive import Gather, derived, hub
from pilot.lib import labels as label
from pilot.mesh.registry.networks import all_network_gateways
from pilot.mesh.registry.services import traffic_distributions
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config

TOPOLOGY = frozenset((label.REGION, label.ZONE, label.SUBZONE, label.CLUSTER, label.HOSTNAME))


class Placement(msgspec.Struct, frozen=True):
    """The properties of a proxy's location that endpoints may depend on. `labels` are the keys used in failover
    priorities."""

    locality: bool = False
    node: bool = False
    network: bool = False
    labels: frozenset[str] = frozenset()


class Nearness(msgspec.Struct, frozen=True):
    """The properties of a proxy's location that the load balancing settings of one object use."""

    locality: bool = False
    labels: frozenset[str] = frozenset()


@hub
def placement(db: Mesh) -> Placement:
    """Return the properties of a proxy's location that any configuration uses.

    The configuration can be the mesh config, a DestinationRule, a network gateway or the traffic distribution of a
    service.
    """
    mesh = mesh_config(db)
    defaults = [
        nearness(
            LoadBalancerSettings(
                locality_lb_setting=mesh.locality_lb_setting, zone_aware_lb_setting=mesh.zone_aware_lb_setting
            )
        )
    ]
    rules = list(_nearness_of_rules(db).values())
    preferences = traffic_distributions(db)
    keys: frozenset[str] = frozenset().union(*(n.labels for n in (*defaults, *rules)))
    if preferences & {"PreferSameZone", "PreferSameNode"}:
        keys |= {label.NETWORK}
    fails_over = mesh.default_traffic_policy is not None and mesh.default_traffic_policy.outlier_detection is not None
    return Placement(
        locality=bool(rules) or fails_over or any(n.locality for n in defaults) or bool(preferences - {"node-local"}),
        node=bool(preferences & {"PreferSameNode", "node-local"}) or label.HOSTNAME in keys,
        network=bool(all_network_gateways(db).gateways) or label.NETWORK in keys,
        labels=keys - TOPOLOGY,
    )


@derived
def _rule_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return DESTINATION_RULE.all_keys(db)


@derived
def _nearness_of_rule(db: Mesh, key: ObjectKey) -> Nearness | None:
    row = DESTINATION_RULE.get(db, key)
    return rule_nearness(row.spec) if row is not None else None


_nearness_of_rules: Gather[ObjectKey, [], Nearness] = Gather(
    "nearness_of_rules", _rule_keys, _nearness_of_rule, hub=True
)


def rule_nearness(spec: DestinationRule) -> Nearness | None:
    """Return the properties of a proxy's location that a DestinationRule uses, or None if it uses none.

    With outlier detection, the load balancing settings in the mesh config take effect too.
    """
    policies = spec.policies
    uses = [nearness(p.load_balancer) for p in policies]
    if not any(p.outlier_detection is not None for p in policies) and not any(n.locality for n in uses):
        return None
    return Nearness(True, frozenset().union(*(n.labels for n in uses)))


def nearness(settings: LoadBalancerSettings | None) -> Nearness:
    """Return the properties of a proxy's location that load balancer settings use. `labels` have an effect only with
    outlier detection."""
    if settings is None:
        return Nearness()
    zones, places = settings.zone_aware_lb_setting, settings.locality_lb_setting
    priorities = (
        *(zones.failover_priority if zones is not None else ()),
        *(places.failover_priority if places is not None else ()),
    )
    by_itself = zones is not None or (places is not None and bool(places.distribute))
    return Nearness(by_itself, frozenset(p.partition("=")[0] for p in priorities))
