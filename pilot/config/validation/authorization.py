"""Validation of AuthorizationPolicies."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.base import json_name
from pilot.config.object import Object
from pilot.config.problem import Problem, Problems, below, each, error, info
from pilot.config.security.authorization_policy import (
    DRY_RUN,
    Action,
    AuthorizationPolicy,
    From,
    Operation,
    Rule,
    Source,
    To,
    dry_run,
)
from pilot.config.validation.authorization_values import VALUES, check_condition, check_values
from pilot.config.validation.expansion import check_authorization_policy, limited
from pilot.config.validation.policy import check_attachment

_TCP_SOURCES = (
    "principals",
    "not_principals",
    "namespaces",
    "not_namespaces",
    "service_accounts",
    "not_service_accounts",
    "ip_blocks",
    "not_ip_blocks",
    "remote_ip_blocks",
    "not_remote_ip_blocks",
)
_IDENTITIES = ("principals", "not_principals", "namespaces", "not_namespaces")
_UNKNOWN_TO_CUSTOM = (
    *_IDENTITIES,
    "service_accounts",
    "not_service_accounts",
    "trust_domains",
    "not_trust_domains",
    "request_principals",
    "not_request_principals",
)
_KEYS_UNKNOWN_TO_CUSTOM = ("source.namespace", "source.serviceAccount", "source.trustDomain", "source.principal")


def validate_authorization_policy(o: Object[AuthorizationPolicy]) -> Problems:
    yield from _check_dry_run(o)
    yield from below("spec", limited(check_authorization_policy(o.spec), _validate(o.spec)))


def _check_dry_run(o: Object[AuthorizationPolicy]) -> Problems:
    if DRY_RUN not in o.annotations:
        return
    path = f"metadata.annotations[{DRY_RUN}]"
    if o.spec.action not in ("ALLOW", "DENY"):
        yield error("not-supported", path, f"dry run supports only ALLOW and DENY policies, not {o.spec.action}")
    elif dry_run(o.annotations) is None:
        yield error("bad-annotation", path, f"{o.annotations[DRY_RUN]!r} is not a Boolean")


def _validate(policy: AuthorizationPolicy) -> Problems:
    yield from check_attachment(policy.selector, policy.target_ref, policy.target_refs)
    if policy.action in ("DENY", "CUSTOM") and not policy.rules:
        yield error(
            "missing-field",
            "rules",
            f"a {policy.action} policy without rules matches no requests; use an empty rule {{}} to match all",
        )
    if policy.action == "CUSTOM":
        if policy.rules and not (policy.provider is not None and policy.provider.name):
            yield error(
                "missing-field", "provider.name", "a CUSTOM policy requires an extension provider of the mesh config"
            )
    elif policy.provider is not None:
        yield error("exclusive-fields", "provider", f"only CUSTOM policies may have a provider, not {policy.action}")
    for index, rule in enumerate(policy.rules):
        yield from below(f"rules[{index}]", _validate_rule(rule, policy.action))


def _validate_rule(rule: Rule, action: Action) -> Problems:
    yield from each("from", rule.from_, _validate_from)
    yield from each("to", rule.to, _validate_to)
    yield from each("when", rule.when, check_condition)
    if action == "CUSTOM":
        yield from _check_custom(rule)
    if action == "DENY":
        yield from _warn_of_tcp(rule)


def _validate_from(item: From) -> Iterable[Problem]:
    source = item.source
    if source is None or source == Source():
        yield error("missing-field", "source", "a source with at least one field is required")
        return
    for field in source.__struct_fields__:
        yield from below(f"source.{json_name(field)}", check_values(getattr(source, field), VALUES[field], field))
    if (source.service_accounts or source.not_service_accounts) and any(
        getattr(source, field) for field in _IDENTITIES
    ):
        yield error("exclusive-fields", "source", "serviceAccounts cannot be combined with namespaces or principals")


def _validate_to(item: To) -> Iterable[Problem]:
    operation = item.operation
    if operation is None or operation == Operation():
        yield error("missing-field", "operation", "an operation with at least one field is required")
        return
    for field in operation.__struct_fields__:
        yield from below(f"operation.{json_name(field)}", check_values(getattr(operation, field), VALUES[field], field))


def _check_custom(rule: Rule) -> Problems:
    """Yield an error for each field of a CUSTOM rule that is unknown when the external authorizer is called.

    The authorizer is called before the token is read.
    """
    for index, item in enumerate(rule.from_):
        for field in _UNKNOWN_TO_CUSTOM:
            if item.source is not None and getattr(item.source, field):
                yield error(
                    "not-supported", f"from[{index}].source.{json_name(field)}", "not supported in CUSTOM policies"
                )
    for index, condition in enumerate(rule.when):
        if condition.key in _KEYS_UNKNOWN_TO_CUSTOM or condition.key.startswith("request.auth."):
            yield error("not-supported", f"when[{index}].key", f"{condition.key} is not supported in CUSTOM policies")


def _warn_of_tcp(rule: Rule) -> Problems:
    """Yield a note if a DENY rule denies all TCP connections because it has only HTTP attributes."""
    sources = [item.source for item in rule.from_ if item.source is not None]
    operations = [item.operation for item in rule.to if item.operation is not None]
    knows_source = any(getattr(source, field) for source in sources for field in _TCP_SOURCES)
    knows_port = any(operation.ports or operation.not_ports for operation in operations)
    if (sources and not operations and not knows_source) or (operations and not knows_port):
        yield info(
            "denies-tcp",
            "",
            "denies all connections to TCP ports, because the rule uses only HTTP attributes; add ports to restrict it",
        )
