"""The AuthorizationPolicies of a workload that reject all callers without an identity of the mesh."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.object import Object
from pilot.config.security.authorization_policy import AuthorizationPolicy, Rule, Source, dry_run

_KEYS = ("source.principal", "source.namespace", "source.serviceAccount")


def identity_policies(policies: Iterable[Object[AuthorizationPolicy]]) -> list[Object[AuthorizationPolicy]]:
    """Return the policies because of which plaintext callers are rejected, or [] if some of them may be admitted.

    These are DENY policies that match every caller without an identity, or the ALLOW policies if all their rules
    require an identity.
    """
    in_force = [row for row in policies if not dry_run(row.annotations)]
    denying = [row for row in in_force if row.spec.action == "DENY" and any(map(_denies_anonymous, row.spec.rules))]
    allowing = [row for row in in_force if row.spec.action == "ALLOW"]
    return denying or (allowing if all(_needs_identity(rule) for row in allowing for rule in row.spec.rules) else [])


def _needs_identity(rule: Rule) -> bool:
    return any(condition.key in _KEYS and condition.values for condition in rule.when) or (
        bool(rule.from_)
        and all(
            source is not None and bool(source.principals or source.namespaces or source.service_accounts)
            for source in (origin.source for origin in rule.from_)
        )
    )


def _denies_anonymous(rule: Rule) -> bool:
    """Return whether a rule matches every request without an identity, such as one with `notPrincipals: ["*"]`."""
    if rule.to or rule.when:
        return False
    return not rule.from_ or any(_includes_anonymous(origin.source or Source()) for origin in rule.from_)


def _includes_anonymous(source: Source) -> bool:
    excluded = Source(
        not_principals=source.not_principals,
        not_namespaces=source.not_namespaces,
        not_service_accounts=source.not_service_accounts,
    )
    return source == excluded
