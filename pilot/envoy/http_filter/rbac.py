"""Builds the filter that says which requests are let through."""

from __future__ import annotations

from envoy.config.rbac.v3 import rbac_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as filter_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.envoy.rbac.rules import ActionRules
from pilot.envoy.typed import pack

NAME = "envoy.filters.http.rbac"


def build_http_rbac(rules: ActionRules) -> hcm_pb2.HttpFilter:
    """Returns the filter of an action's rules."""
    config = filter_pb2.RBAC(
        rules=rules.enforced, shadow_rules=rules.shadow, shadow_rules_stat_prefix=rules.shadow_prefix
    )
    return hcm_pb2.HttpFilter(name=NAME, typed_config=pack(config))


def build_http_denial(rules: rbac_pb2.RBAC) -> hcm_pb2.HttpFilter:
    """Returns the filter that denies what these rules match."""
    return hcm_pb2.HttpFilter(name=NAME, typed_config=pack(filter_pb2.RBAC(rules=rules)))
