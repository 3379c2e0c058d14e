"""The callers that the AuthorizationPolicies of a service admit, with the requests that they may make.

All pages and commands that name the callers of a service use this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pilot.config.kinds.istio import AUTHORIZATION_POLICY
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import ObjectRef, plain_ref
from pilot.config.security.authorization_policy import AuthorizationPolicy, Rule, Source, dry_run
from pilot.debug.dashboard.mesh import source_callers
from pilot.debug.rule_text import MAX_ITEMS, requests_text

MAX_CALLERS = 20
"""Maximum number of callers."""


class Requests(NamedTuple):
    """Requests as text, such as "GET, POST /v1/*", and the policy that admits or denies them."""

    text: str
    by: ObjectKey

    def plain(self) -> dict[str, Any]:
        return {"text": self.text, "by": plain_ref(ObjectRef(AUTHORIZATION_POLICY.id, *self.by))}


class CallerAccess(NamedTuple):
    """A caller with the requests that are admitted, and those that are denied although they are admitted.

    `account` is "" for all service accounts of the namespace. Both are "" for everybody.
    """

    namespace: str
    account: str
    requests: tuple[Requests, ...]
    exceptions: tuple[Requests, ...]

    def plain(self) -> dict[str, Any]:
        """Return the caller as a JSON object."""
        return {
            "namespace": self.namespace,
            "account": self.account,
            "requests": [requests.plain() for requests in self.requests[:MAX_ITEMS]],
            "exceptions": [requests.plain() for requests in self.exceptions[:MAX_ITEMS]],
        }


def list_callers(policies: Sequence[Object[AuthorizationPolicy]]) -> list[CallerAccess]:
    """Return the callers that ALLOW policies name. If no ALLOW policy applies, return one caller: everybody."""
    in_force = [row for row in policies if not dry_run(row.annotations)]
    denied = [(row, rule) for row in in_force if row.spec.action == "DENY" for rule in row.spec.rules]
    allowing = [row for row in in_force if row.spec.action == "ALLOW"]
    if not allowing:
        return [CallerAccess("", "", (), tuple(_exceptions(denied, "", "")))]
    admitted: dict[tuple[str, str], dict[Requests, None]] = {}
    for row in allowing:
        for rule in row.spec.rules:
            for caller in _callers_of(rule, row.namespace):
                admitted.setdefault(caller, {})[Requests(requests_text(rule), row.key)] = None
    return [
        CallerAccess(*caller, tuple(requests), tuple(_exceptions(denied, *caller)))
        for caller, requests in list(admitted.items())[:MAX_CALLERS]
    ]


def _callers_of(rule: Rule, namespace: str) -> Iterator[tuple[str, str]]:
    """Yield the namespaces and the accounts that a rule names, or ("", "") if it has no source."""
    if not rule.from_:
        yield "", ""
    for origin in rule.from_:
        yield from source_callers(origin.source or Source(), namespace)


def _exceptions(
    denied: Iterable[tuple[Object[AuthorizationPolicy], Rule]], namespace: str, account: str
) -> Iterator[Requests]:
    """Yield the requests of a caller that DENY rules match.

    Conditions of a rule that depend on more than the caller are part of the text.
    """
    for row, rule in denied:
        sources = [origin.source or Source() for origin in rule.from_]
        if not sources or any(_includes(source, row.namespace, namespace, account) for source in sources):
            yield Requests(requests_text(rule), row.key)


def _includes(source: Source, policy_namespace: str, namespace: str, account: str) -> bool:
    """Return whether a source names a caller, or all callers but some others."""
    named = list(source_callers(source, policy_namespace))
    if (namespace, account) in named or (namespace, "") in named:
        return True
    excluded = Source(
        principals=source.not_principals,
        namespaces=source.not_namespaces,
        service_accounts=source.not_service_accounts,
    )
    others = list(source_callers(excluded, policy_namespace))
    return not named and bool(others) and (namespace, account) not in others and (namespace, "") not in others
