"""Builds the policies of RBAC, one of each rule of an AuthorizationPolicy."""

from __future__ import annotations

from envoy.config.rbac.v3 import rbac_pb2

from pilot.config.security.authorization_policy import From, Rule, To
from pilot.envoy.rbac.permission import NOTHING, build_permission, is_permission
from pilot.envoy.rbac.principal import NOBODY, RuleContext, build_principal

NEVER = rbac_pb2.Policy(permissions=[NOTHING], principals=[NOBODY])


def build_rule(rule: Rule, place: RuleContext, allows: bool) -> rbac_pb2.Policy | None:
    """Returns the policy of a rule; None for one that allows and that cannot be said whole, so that it lets nothing through."""
    ends = [condition for condition in rule.when if is_permission(condition.key)]
    clients = [condition for condition in rule.when if not is_permission(condition.key)]
    permissions = [build_permission(to.operation, ends, place.tcp, allows) for to in rule.to or (To(),)]
    principals = [build_principal(source.source, clients, place, allows) for source in rule.from_ or (From(),)]
    if None in permissions or None in principals:
        return None
    return rbac_pb2.Policy(permissions=permissions, principals=principals)
