"""security.istio.io AuthorizationPolicy. https://istio.io/latest/docs/reference/config/security/authorization-policy/"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pilot.config.base import Strict
from pilot.config.selector import PolicyTargetReference, WorkloadSelector

Action = Literal["ALLOW", "DENY", "AUDIT", "CUSTOM"]
DRY_RUN = "istio.io/dry-run"
_TRUE, _FALSE = (
    frozenset(("1", "t", "T", "true", "TRUE", "True")),
    frozenset(("0", "f", "F", "false", "FALSE", "False")),
)


class AuthorizationPolicy(Strict, frozen=True):
    """Specifies which requests and connections workloads accept."""

    selector: WorkloadSelector | None = None
    target_ref: PolicyTargetReference | None = None
    target_refs: tuple[PolicyTargetReference, ...] = ()
    rules: tuple[Rule, ...] = ()
    action: Action = "ALLOW"
    provider: ExtensionProviderReference | None = None


class ExtensionProviderReference(Strict, frozen=True):
    name: str = ""


class Rule(Strict, frozen=True):
    """A rule. It matches if one of `from_`, one of `to` and all of `when` match. An empty list matches everything."""

    from_: tuple[From, ...] = ()
    to: tuple[To, ...] = ()
    when: tuple[Condition, ...] = ()


class From(Strict, frozen=True):
    source: Source | None = None


class To(Strict, frozen=True):
    operation: Operation | None = None


class Source(Strict, frozen=True):
    principals: tuple[str, ...] = ()
    not_principals: tuple[str, ...] = ()
    request_principals: tuple[str, ...] = ()
    not_request_principals: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    not_namespaces: tuple[str, ...] = ()
    service_accounts: tuple[str, ...] = ()
    not_service_accounts: tuple[str, ...] = ()
    trust_domains: tuple[str, ...] = ()
    not_trust_domains: tuple[str, ...] = ()
    ip_blocks: tuple[str, ...] = ()
    not_ip_blocks: tuple[str, ...] = ()
    remote_ip_blocks: tuple[str, ...] = ()
    not_remote_ip_blocks: tuple[str, ...] = ()


class Operation(Strict, frozen=True):
    hosts: tuple[str, ...] = ()
    not_hosts: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    not_ports: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    not_methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    not_paths: tuple[str, ...] = ()


class Condition(Strict, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()
    not_values: tuple[str, ...] = ()


def dry_run(annotations: Mapping[str, str]) -> bool | None:
    """Return whether the annotations enable dry-run mode, or None if the annotation is not a Boolean."""
    annotation = annotations.get(DRY_RUN)
    if annotation is None or annotation in _FALSE:
        return False
    return True if annotation in _TRUE else None
