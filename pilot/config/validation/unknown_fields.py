"""Security policies with unknown fields. They are made at least as strict as their authors intended.

An unknown field is ignored. In a policy, it may restrict what the policy permits: the requests of a rule, the tokens of
an issuer, or the workloads that the policy applies to. Each function receives a spec without its unknown fields, and
the paths of these fields in the object. It returns the spec to apply, and warnings that describe the consequences.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from pilot.config.problem import Problem, warning
from pilot.config.security.authorization_policy import AuthorizationPolicy, Operation, Rule, Source
from pilot.config.security.peer_authentication import MutualTLS, PeerAuthentication
from pilot.config.security.request_authentication import NO_KEYS, JWTRule, RequestAuthentication

S = TypeVar("S")
Tightened = tuple[S, list[Problem]]
_CODE = "fails-closed"
_STRICT = MutualTLS("STRICT")
_RULE = re.compile(r"spec\.rules\[(\d+)\]")
_PART = re.compile(r"spec\.rules\[(\d+)\]\.(from|to|when)\[(\d+)\]")
_JWT_RULE = re.compile(r"spec\.jwtRules\[(\d+)\]")
_PORT = re.compile(r"spec\.portLevelMtls\[(\d+)\]")


def _indexes(pattern: re.Pattern[str], paths: Sequence[str]) -> dict[int, None]:
    """Return the numbers that a pattern finds in paths, in order."""
    return {int(match[1]): None for path in paths if (match := pattern.match(path))}


# -- AuthorizationPolicy -----------------------------------------------------------------------------------------------


def tighten_authorization_policy(policy: AuthorizationPolicy, paths: Sequence[str]) -> Tightened[AuthorizationPolicy]:
    """Return a policy that allows at most, and denies at least, what the policy with its unknown fields does."""
    of_policy = [path for path in paths if not _RULE.match(path)]
    if policy.action == "ALLOW":
        if of_policy:
            message = "the policy allows nothing, because a field that restricts it may be unknown"
            return replace(policy, rules=()), [warning(_CODE, "spec", message)]
        broken = _indexes(_RULE, paths)
        rules = tuple(rule for index, rule in enumerate(policy.rules) if index not in broken)
        message = "the rule is left out and allows nothing, because a field that restricts it may be unknown"
        return replace(policy, rules=rules), [warning(_CODE, f"spec.rules[{index}]", message) for index in broken]
    problems = []
    if of_policy:
        policy = replace(policy, rules=policy.rules or (Rule(),))
        problems.append(warning(_CODE, "spec", "the policy may apply to more requests and workloads than intended"))
    provider = policy.provider.name if policy.provider is not None else ""
    if policy.action == "CUSTOM" and not provider and any(path.startswith("spec.provider.") for path in of_policy):
        policy = replace(policy, action="DENY", provider=None)
        problems.append(warning(_CODE, "spec.provider", "the provider is unknown, so matching requests are denied"))
    widened = list(policy.rules)
    for index in _indexes(_RULE, paths):
        widened[index] = _widen(widened[index], [path for path in paths if path.startswith(f"spec.rules[{index}].")])
        problems.append(warning(_CODE, f"spec.rules[{index}]", "the rule may match more requests than intended"))
    return replace(policy, rules=tuple(widened)), problems


def _widen(rule: Rule, paths: Sequence[str]) -> Rule:
    """Return a rule that matches everything that the rule with its unknown fields matches.

    The fields of a source and of an operation restrict each other, so one of them can be ignored. Other values are
    alternatives, whose whole list is ignored. So is a condition.
    """
    conditions = set()
    for path in paths:
        if (match := _PART.match(path)) is None:
            continue
        index, field = int(match[3]), path[match.end() :]
        if match[2] == "when":
            conditions.add(index)
        elif match[2] == "from" and rule.from_:
            is_empty = not field.startswith(".source.") or rule.from_[index].source == Source()
            rule = replace(rule, from_=()) if is_empty else rule
        elif match[2] == "to" and rule.to:
            is_empty = not field.startswith(".operation.") or rule.to[index].operation == Operation()
            rule = replace(rule, to=()) if is_empty else rule
    return replace(rule, when=tuple(c for index, c in enumerate(rule.when) if index not in conditions))


# -- authentication ----------------------------------------------------------------------------------------------------


def tighten_request_authentication(
    policy: RequestAuthentication, paths: Sequence[str]
) -> Tightened[RequestAuthentication]:
    """Return a policy whose rules with unknown fields accept no token."""
    broken = _indexes(_JWT_RULE, paths)
    if any(not _JWT_RULE.match(path) for path in paths):
        broken = dict.fromkeys(range(len(policy.jwt_rules)))
    rules = tuple(_without_keys(rule) if index in broken else rule for index, rule in enumerate(policy.jwt_rules))
    message = "tokens of the issuer are rejected, because a field that restricts the rule may be unknown"
    return replace(policy, jwt_rules=rules), [warning(_CODE, f"spec.jwtRules[{index}]", message) for index in broken]


def _without_keys(rule: JWTRule) -> JWTRule:
    return replace(rule, jwks=NO_KEYS, jwks_uri="")


def tighten_peer_authentication(policy: PeerAuthentication, paths: Sequence[str]) -> Tightened[PeerAuthentication]:
    """Return a policy that requires mutual TLS where an unknown field may require it."""
    ports = _indexes(_PORT, paths)
    if any(not path.startswith("spec.mtls.") and not _PORT.match(path) for path in paths):
        message = "mutual TLS is required, because a field that restricts the policy may be unknown"
        return replace(policy, mtls=_STRICT, port_level_mtls={}), [warning(_CODE, "spec", message)]
    message = "mutual TLS is required, because the mode may be in the unknown field"
    problems = []
    if any(path.startswith("spec.mtls.") for path in paths) and (policy.mtls is None or policy.mtls.mode == "UNSET"):
        policy = replace(policy, mtls=_STRICT)
        problems.append(warning(_CODE, "spec.mtls", message))
    levels = dict(policy.port_level_mtls)
    for port in ports:
        if port in levels and levels[port].mode == "UNSET":
            levels[port] = _STRICT
            problems.append(warning(_CODE, f"spec.portLevelMtls[{port}]", message))
    return replace(policy, port_level_mtls=levels), problems
