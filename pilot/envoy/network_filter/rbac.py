"""Builds the filter that says which connections are let through."""

from __future__ import annotations

from envoy.config.listener.v3 import listener_components_pb2
from envoy.config.rbac.v3 import rbac_pb2
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as filter_pb2

from pilot.envoy.rbac.rules import ActionRules
from pilot.envoy.typed import pack

NAME = "envoy.filters.network.rbac"
STAT_PREFIX = "tcp."


def build_network_rbac(rules: ActionRules) -> listener_components_pb2.Filter:
    """Returns the filter of an action's rules."""
    config = filter_pb2.RBAC(
        rules=rules.enforced,
        shadow_rules=rules.shadow,
        shadow_rules_stat_prefix=rules.shadow_prefix,
        stat_prefix=STAT_PREFIX,
    )
    return listener_components_pb2.Filter(name=NAME, typed_config=pack(config))


def build_network_denial(rules: rbac_pb2.RBAC) -> listener_components_pb2.Filter:
    """Returns the filter that denies what these rules match."""
    return listener_components_pb2.Filter(
        name=NAME, typed_config=pack(filter_pb2.RBAC(rules=rules, stat_prefix=STAT_PREFIX))
    )
