"""Finds the traffic policy that one port of a service or of one of its subsets has in the end.

What overrides what: https://istio.io/latest/docs/reference/config/networking/destination-rule/#TrafficPolicy-PortTrafficPolicy
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
    """Holds the parts that apply; a part that nobody says is None."""

    connection_pool: ConnectionPoolSettings | None = None
    outlier_detection: OutlierDetection | None = None
    load_balancer: LoadBalancerSettings | None = None
    tls: ClientTLSSettings | None = None
    proxy_protocol: ProxyProtocol | None = None
    retry_budget: RetryBudget | None = None


NO_POLICY = EffectivePolicy()


def _for_port(policy: TrafficPolicy, port: int) -> PortTrafficPolicy | None:
    return next((p for p in policy.port_level_settings if p.port is not None and p.port.number == port), None)


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
    """Returns the policy of a rule for one port: what it says for the port stands alone, it inherits nothing; the mesh's defaults fill
    whole parts."""
    found = NO_POLICY
    if policy is not None:
        of_port = _for_port(policy, port)
        found = _port_parts(of_port) if of_port is not None else _parts(policy)
    if defaults is None:
        return found
    return found._replace(
        connection_pool=found.connection_pool or defaults.connection_pool,
        outlier_detection=found.outlier_detection or defaults.outlier_detection,
    )


def effective_subset_policy(rule: EffectivePolicy, subset: TrafficPolicy | None, port: int) -> EffectivePolicy:
    """Returns the policy of a subset for one port: its parts replace those of the rule; what it says for the port replaces them all, said or not."""
    if subset is None:
        return rule
    of_port = _for_port(subset, port)
    if of_port is not None:
        return _port_parts(of_port)._replace(proxy_protocol=rule.proxy_protocol, retry_budget=rule.retry_budget)
    own = _parts(subset)
    return rule._replace(**{part: said for part, said in own._asdict().items() if said is not None})


def passes_through(policy: TrafficPolicy | None) -> bool:
    """Returns whether the policy, whatever it says for single ports, leaves the choice of the endpoint to the client."""
    return policy is not None and policy.load_balancer is not None and policy.load_balancer.simple == "PASSTHROUGH"
