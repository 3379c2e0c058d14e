"""Lookup of a DestinationRule's consistent hash settings."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.networking.destination_rule import ConsistentHashLB, DestinationRule, PortTrafficPolicy, TrafficPolicy


def hash_of_destination(rule: DestinationRule, subset: str, port: int) -> ConsistentHashLB | None:
    """Return the consistent hash settings for a destination of a route, or None if the rule has none.

    `port` is 0 if the route names none. The most specific settings win: the subset's port, the subset, the port, the
    rule.
    """
    matching = next((s for s in rule.subsets if s.name == subset), None)
    for policy in (matching.traffic_policy if matching is not None else None, rule.traffic_policy):
        settings = (_of_port(policy, port) or _of(policy)) if policy is not None else None
        if settings is not None:
            return settings
    return None


def hashes(rule: DestinationRule) -> bool:
    """Return whether any part of the rule has consistent hash settings."""
    policies = (rule.traffic_policy, *(s.traffic_policy for s in rule.subsets))
    return any(_of(p) or any(_of(setting) for setting in p.port_level_settings) for p in policies if p is not None)


def _of(policy: TrafficPolicy | PortTrafficPolicy) -> ConsistentHashLB | None:
    return policy.load_balancer.consistent_hash if policy.load_balancer is not None else None


def _of_port(policy: TrafficPolicy, port: int) -> ConsistentHashLB | None:
    """Return the settings of the first port policy for a port.

    None also if that policy has no consistent hash settings.
    """
    settings: Iterable[PortTrafficPolicy] = policy.port_level_settings
    port_policy = next((s for s in settings if s.port is not None and s.port.number == port), None) if port else None
    return _of(port_policy) if port_policy is not None else None
