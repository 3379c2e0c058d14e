"""Builds the RBAC policies of authorization rules, grouped by action and split into enforced and dry-run rules."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

import msgspec
from envoy.config.rbac.v3 import rbac_pb2

from pilot.config.security.authorization_policy import Action, From, Rule, To
from pilot.envoy.rbac.permission import NOTHING, build_permission, is_permission
from pilot.envoy.rbac.principal import NOBODY, RuleContext, build_principal

ACTIONS: Mapping[Action, rbac_pb2.RBAC.Action] = {
    "ALLOW": rbac_pb2.RBAC.ALLOW,
    "DENY": rbac_pb2.RBAC.DENY,
    "AUDIT": rbac_pb2.RBAC.LOG,
    "CUSTOM": rbac_pb2.RBAC.DENY,  # used only for shadow rules, which select the requests for the authorizer
}
DENY_ALL = rbac_pb2.RBAC(action=rbac_pb2.RBAC.ALLOW)
"""Allows only what matches one of its rules, and has no rules."""
_SHADOW_PREFIXES = {"ALLOW": "istio_dry_run_allow_", "DENY": "istio_dry_run_deny_", "AUDIT": "", "CUSTOM": ""}


class CompiledPolicy(msgspec.Struct, frozen=True):
    """An AuthorizationPolicy as named RBAC rules. `provider` is the external authorizer of a CUSTOM policy."""

    action: Action
    rules: tuple[tuple[str, rbac_pb2.Policy], ...] = ()
    dry_run: bool = False
    provider: str = ""


class ActionRules(msgspec.Struct, frozen=True):
    """The rules of all policies with the same action.

    `enforced` is None if no policy is enforced. `shadow` is None if no policy is in dry-run mode. `shadow_prefix` is
    the prefix of the shadow rules' statistics.
    """

    enforced: rbac_pb2.RBAC | None
    shadow: rbac_pb2.RBAC | None
    shadow_prefix: str


def rule_name(namespace: str, name: str, index: int, provider: str = "") -> str:
    """Return the name of a rule, which appears in logs and in request metadata."""
    authorizer = f"{authorizer_prefix(provider)}-" if provider else ""
    return f"{authorizer}ns[{namespace}]-policy[{name}]-rule[{index}]"


def authorizer_prefix(provider: str) -> str:
    """Return the prefix of the names of rules that call this authorizer."""
    return f"istio-ext-authz-{provider}"


def build_rbac(
    action: Action, policies: Iterable[CompiledPolicy], suffix: str = ""
) -> Generator[None, None, rbac_pb2.RBAC]:
    """Return the rules of the policies that have this action, after yielding between them.

    `suffix` is appended to the rules' names.
    """
    rules = rbac_pb2.RBAC(action=ACTIONS[action])
    for policy in policies:
        for name, rule in policy.rules:
            rules.policies[name + suffix].CopyFrom(rule)
            yield
    return rules


def build_action(action: Action, policies: Iterable[CompiledPolicy]) -> Generator[None, None, ActionRules | None]:
    """Return the rules of an action, or None if no policy has this action, after yielding between rules.

    An ALLOW action without rules denies everything.
    """
    of_action = [policy for policy in policies if policy.action == action]
    if not of_action:
        return None
    enforced, dry_runs = ([p for p in of_action if p.dry_run is dry_run] for dry_run in (False, True))
    return ActionRules(
        (yield from build_rbac(action, enforced)) if enforced else None,
        (yield from build_rbac(action, dry_runs)) if dry_runs else None,
        _SHADOW_PREFIXES[action if dry_runs else "ALLOW"],
    )


NEVER = rbac_pb2.Policy(permissions=[NOTHING], principals=[NOBODY])


def build_rule(rule: Rule, context: RuleContext, allows: bool) -> Generator[None, None, rbac_pb2.Policy | None]:
    """Return the RBAC policy of a rule, after yielding between its sources and operations.

    Return None if `allows` is set and the rule cannot be fully expressed.
    """
    permission_conditions = [condition for condition in rule.when if is_permission(condition.key)]
    principal_conditions = [condition for condition in rule.when if not is_permission(condition.key)]
    permissions, principals = [], []
    for to in rule.to or (To(),):
        permissions.append(build_permission(to.operation, permission_conditions, context.tcp, allows))
        yield
    for source in rule.from_ or (From(),):
        principals.append(build_principal(source.source, principal_conditions, context, allows))
        yield
    if None in permissions or None in principals:
        return None
    return rbac_pb2.Policy(permissions=permissions, principals=principals)
