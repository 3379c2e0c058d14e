"""The traffic policy that takes effect for a port of a service or subset.

Precedence: https://istio.io/latest/docs/reference/config/networking/destination-rule/#TrafficPolicy-PortTrafficPolicy
"""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.mesh.mesh_config import DefaultTrafficPolicy
from pilot.config.networking.destination_rule import (
    ClientTLSSettings,
    ConnectionPoolSettings,
    LoadBalancerSettings,
    OutlierDetection,
    PortTrafficPolicy,
    ProxyProtocol,
    RetryBudget,
    TrafficPolicy,
)


class EffectivePolicy(NamedTuple):
    """The parts of a traffic policy that apply to a cluster. Parts that are not configured are None."""

    connection_pool: ConnectionPoolSettings | None = None
    outlier_detection: OutlierDetection | None = None
    load_balancer: LoadBalancerSettings | None = None
    tls: ClientTLSSettings | None = None
    proxy_protocol: ProxyProtocol | None = None
    retry_budget: RetryBudget | None = None


NO_POLICY = EffectivePolicy()


def _parts(policy: TrafficPolicy) -> EffectivePolicy:
    return EffectivePolicy(
        policy.connection_pool,
        policy.outlier_detection,
        policy.load_balancer,
        policy.tls,
        policy.proxy_protocol,
        policy.retry_budget,
    )


def _port_parts(policy: PortTrafficPolicy) -> EffectivePolicy:
    return EffectivePolicy(policy.connection_pool, policy.outlier_detection, policy.load_balancer, policy.tls)


def effective_port_policy(
    policy: TrafficPolicy | None, port: int, defaults: DefaultTrafficPolicy | None
) -> EffectivePolicy:
    """Return the effective policy of a DestinationRule for one port.

    Port-level settings replace all other settings of the DestinationRule. Missing parts come from the mesh config's
    defaults.
    """
    effective = NO_POLICY
    if policy is not None:
        port_settings = policy.settings_by_port.get(port)
        effective = _port_parts(port_settings) if port_settings is not None else _parts(policy)
    if defaults is None:
        return effective
    return effective._replace(
        connection_pool=effective.connection_pool or defaults.connection_pool,
        outlier_detection=effective.outlier_detection or defaults.outlier_detection,
    )


def effective_subset_policy(rule: EffectivePolicy, subset: TrafficPolicy | None, port: int) -> EffectivePolicy:
    """Return the effective policy of a subset for one port.

    Parts that the subset sets replace the rule's parts. If the subset has settings for the port, they replace all parts
    that can be set per port, including parts that they omit.
    """
    if subset is None:
        return rule
    port_settings = subset.settings_by_port.get(port)
    if port_settings is not None:
        return _port_parts(port_settings)._replace(proxy_protocol=rule.proxy_protocol, retry_budget=rule.retry_budget)
    parts = _parts(subset)
    return rule._replace(**{part: value for part, value in parts._asdict().items() if value is not None})


def passes_through(policy: TrafficPolicy | None) -> bool:
    """Return whether the policy's load balancer is PASSTHROUGH. Settings for single ports are ignored."""
    return policy is not None and policy.load_balancer is not None and policy.load_balancer.simple == "PASSTHROUGH"
