"""Puts the policies of one action together: those that decide, and those that are only tried and counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from envoy.config.rbac.v3 import rbac_pb2

from pilot.config.security.authorization_policy import Action, From, Rule, To
from pilot.envoy.rbac.permission import NOTHING, build_permission, is_permission
from pilot.envoy.rbac.principal import NOBODY, RuleContext, build_principal

ACTIONS: Mapping[Action, rbac_pb2.RBAC.Action] = {
    "ALLOW": rbac_pb2.RBAC.ALLOW,
    "DENY": rbac_pb2.RBAC.DENY,
    "AUDIT": rbac_pb2.RBAC.LOG,
    "CUSTOM": rbac_pb2.RBAC.DENY,  # of policies that never deny: what they match is sent to the authorizer
}
_SHADOW_PREFIXES = {"ALLOW": "istio_dry_run_allow_", "DENY": "istio_dry_run_deny_", "AUDIT": "", "CUSTOM": ""}


class CompiledPolicy(msgspec.Struct, frozen=True):
    """An AuthorizationPolicy in Envoy's words; `rules` by their names. `provider`: whom a policy with action CUSTOM asks."""

    action: Action
    rules: tuple[tuple[str, rbac_pb2.Policy], ...] = ()
    dry_run: bool = False
    provider: str = ""


class ActionRules(msgspec.Struct, frozen=True):
    """The rules of all policies of one action: `enforced` is None where none decides, `shadow` where none is tried; `shadow_prefix` begins
    the names of what is counted."""

    enforced: rbac_pb2.RBAC | None
    shadow: rbac_pb2.RBAC | None
    shadow_prefix: str


def rule_name(namespace: str, name: str, index: int, provider: str = "") -> str:
    """Returns the name of a rule, as it stands in logs and in the metadata of requests."""
    authorizer = f"{authorizer_prefix(provider)}-" if provider else ""
    return f"{authorizer}ns[{namespace}]-policy[{name}]-rule[{index}]"


def authorizer_prefix(provider: str) -> str:
    """Returns how the names of the rules begin that ask an authorizer."""
    return f"istio-ext-authz-{provider}"


def build_rbac(action: Action, policies: Iterable[CompiledPolicy], suffix: str = "") -> rbac_pb2.RBAC:
    """Returns the rules of some policies of one action, their names with a suffix."""
    rules = rbac_pb2.RBAC(action=ACTIONS[action])
    for policy in policies:
        for name, rule in policy.rules:
            rules.policies[name + suffix].CopyFrom(rule)
    return rules


def build_action(action: Action, policies: Iterable[CompiledPolicy]) -> ActionRules | None:
    """Returns the rules of an action; None where no policy has it. Rules that are there and empty let nothing through where they allow."""
    of_action = [policy for policy in policies if policy.action == action]
    if not of_action:
        return None
    enforced, tried = ([p for p in of_action if p.dry_run is dry_run] for dry_run in (False, True))
    return ActionRules(
        build_rbac(action, enforced) if enforced else None,
        build_rbac(action, tried) if tried else None,
        _SHADOW_PREFIXES[action if tried else "ALLOW"],
    )


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
