"""The CPU time that the objects of a namespace may take before the control plane is ready."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from pilot.config.group_kind import GroupKind
from pilot.config.kind import AnyKind
from pilot.config.kinds.istio import (
    AUTHORIZATION_POLICY,
    ENVOY_FILTER,
    PEER_AUTHENTICATION,
    REQUEST_AUTHENTICATION,
    TRAFFIC_EXTENSION,
    WASM_PLUGIN,
)

RESTRICTING: frozenset[GroupKind] = frozenset(
    kind.id
    for kind in (
        *(AUTHORIZATION_POLICY, PEER_AUTHENTICATION, REQUEST_AUTHENTICATION),
        *(ENVOY_FILTER, TRAFFIC_EXTENSION, WASM_PLUGIN),
    )
)
"""Kinds whose objects may restrict access to workloads. They have budgets of their own."""
ALLOWANCE, ALLOWANCE_PER_BYTE = 100e-6, 300e-9
"""CPU seconds for each valid object, and for each of its bytes, that are not charged. Ordinary objects take a third of
both."""
ENVOY_FILTER_FACTOR = 3
"""The allowance of EnvoyFilters, as a multiple of that of other objects."""
MOST_PROBLEMS = 10
"""Number of problems beyond which a valid object has no allowance."""
PER_PROBLEM = 30e-6
"""CPU seconds for storing and logging a problem of an object."""
MAX_ALLOWANCE = 4.0
"""Maximum number of CPU seconds of a namespace's objects that are not charged."""


class _Limits:
    """The maximum CPU seconds of one namespace, and of all namespaces together."""

    def __init__(self, namespace: float, total: float) -> None:
        self._namespace, self._total = namespace, total
        self._charged, self._allowed = defaultdict[str, float](float), defaultdict[str, float](float)
        self._sum = 0.0

    def charge(self, namespace: str, seconds: float, allowance: float) -> None:
        """Charge a namespace with CPU seconds, except for an allowance."""
        allowed = min(allowance, MAX_ALLOWANCE - self._allowed[namespace])
        self._allowed[namespace] += allowed
        self._charged[namespace] += seconds - allowed
        self._sum += seconds - allowed

    def is_exceeded(self, namespace: str) -> bool:
        """Return whether a namespace has used its share: all of its maximum or, once the total is used up, a tenth."""
        return self._charged.get(namespace, 0.0) > self._namespace / (10 if self._sum > self._total else 1)

    def exceeded_by(self) -> Collection[str]:
        """Return the namespaces that have used their share."""
        return [namespace for namespace in self._charged if self.is_exceeded(namespace)]


class StartBudget:
    """Decides whose objects wait until the control plane is ready, because they take too long to check.

    A valid object is charged only the time beyond an allowance, and one that is invalid or has many problems all of it.
    Reports of problems are always charged. Therefore, the objects of a namespace wait only if about a hundred of them
    are invalid or extraordinarily expensive. Those of `trusted` namespaces never wait.
    """

    def __init__(self) -> None:
        self.trusted = frozenset[str]()
        self._is_open = True
        self._limits = {True: _Limits(0.05, 0.25), False: _Limits(0.02, 0.2)}

    def applies(self, kind: AnyKind, namespace: str) -> bool:
        """Return whether the objects of a kind in a namespace are limited now."""
        return self._is_open and bool(namespace) and not kind.is_built_in and namespace not in self.trusted

    def charge(
        self, kind: AnyKind, namespace: str, seconds: float, size: int, is_valid: bool, problems: int = 0
    ) -> None:
        """Record the CPU seconds that decoding an object took, its size in bytes, and the number of its problems."""
        is_charged = not is_valid or problems > MOST_PROBLEMS
        allowance = 0.0 if is_charged else ALLOWANCE + size * ALLOWANCE_PER_BYTE
        if kind is ENVOY_FILTER:
            allowance *= ENVOY_FILTER_FACTOR
        limits = self._limits[kind.id in RESTRICTING]
        limits.charge(namespace, seconds + problems * PER_PROBLEM, min(allowance, seconds))

    def is_exceeded(self, kind: AnyKind, namespace: str) -> bool:
        """Return whether the objects of a kind in a namespace have to wait."""
        return self.applies(kind, namespace) and self._limits[kind.id in RESTRICTING].is_exceeded(namespace)

    def exceeded_by(self, kind: AnyKind) -> Collection[str]:
        """Return the namespaces whose objects of a kind have to wait."""
        exceeded = self._limits[kind.id in RESTRICTING].exceeded_by()
        return [namespace for namespace in exceeded if self.applies(kind, namespace)]

    def close(self) -> None:
        """Limit nothing from now on."""
        self._is_open = False
