"""Comparison of the resources of proxies. Equal pairs of resources are compared once for all proxies."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any, NamedTuple

from pilot.envoy.resource import Resource
from pilot.shadow.derived_resources import DerivedResource, DerivedResources
from pilot.shadow.normal_form import derived_form, leaves_of, reference_form
from pilot.shadow.reference_proxies import RawResources, ReferenceProxy

MOST_LEAVES = 1000
"""Maximum number of differing leaves that are kept of one resource."""


class Side(enum.Enum):
    """The sides that have a resource."""

    BOTH = "different"
    REFERENCE = "missing"
    DERIVED = "surplus"


class LeafDifference(NamedTuple):
    """A leaf that differs. The value is None on a side that lacks the leaf."""

    path: str
    reference: Any
    derived: Any


class ResourceDifference(NamedTuple):
    """A resource that differs. A resource that only one side has differs in the leaf "", which is its name."""

    kind: str
    name: str
    side: Side
    leaves: tuple[LeafDifference, ...]


class DifferingResource(NamedTuple):
    """A resource that differs for some proxies.

    `raw` is the resource of the reference, and `derived` the resource of this control plane, if they have it.
    """

    difference: ResourceDifference
    raw: bytes | None
    derived: DerivedResource | None
    proxies: list[ReferenceProxy]


class ResourceComparison:
    """Compares proxies, one after another, and collects the resources that differ.

    `proxies` and `resources` are the numbers of compared proxies and resources.
    """

    def __init__(self) -> None:
        self.proxies = self.resources = 0
        self._outcomes: dict[tuple[bytes, Resource], ResourceDifference | None] = {}
        self._reference_forms: dict[bytes, Any] = {}
        self._derived_forms: dict[Resource, Any] = {}
        self._differing: dict[tuple[str, str, bytes | None, Resource | None], DifferingResource] = {}

    @property
    def differing(self) -> list[DifferingResource]:
        return list(self._differing.values())

    def add(self, one: ReferenceProxy, reference: RawResources, derived: DerivedResources) -> None:
        """Compare the resources of a proxy."""
        self.proxies += 1
        for kind, name, raw, resource in _pairs(reference, derived):
            self.resources += 1
            difference = self._compare(kind, name, raw, resource)
            if difference is not None:
                key = (kind, name, raw, resource.resource if resource is not None else None)
                entry = self._differing.setdefault(key, DifferingResource(difference, raw, resource, []))
                entry.proxies.append(one)

    def count_differing(self, reference: RawResources, derived: DerivedResources) -> int:
        """Return the number of resources of a proxy that differ. They are not collected."""
        return sum(self._compare(*pair) is not None for pair in _pairs(reference, derived))

    def _compare(
        self, kind: str, name: str, raw: bytes | None, derived: DerivedResource | None
    ) -> ResourceDifference | None:
        if raw is None or derived is None:
            side = Side.DERIVED if raw is None else Side.REFERENCE
            if is_empty_placeholder(kind, raw, derived):
                return None
            values = (None, name) if raw is None else (name, None)
            return ResourceDifference(kind, name, side, (LeafDifference("", *values),))
        key = (raw, derived.resource)
        if key not in self._outcomes:
            self._outcomes[key] = self._compare_forms(kind, name, raw, derived.resource)
        return self._outcomes[key]

    def _compare_forms(self, kind: str, name: str, raw: bytes, resource: Resource) -> ResourceDifference | None:
        if raw not in self._reference_forms:
            self._reference_forms[raw] = reference_form(raw)
        if resource not in self._derived_forms:
            self._derived_forms[resource] = derived_form(resource)
        forms = self._reference_forms[raw], self._derived_forms[resource]
        if forms[0] == forms[1]:
            return None
        leaves = tuple(differing_leaves(*forms))
        return ResourceDifference(kind, name, Side.BOTH, leaves[:MOST_LEAVES]) if leaves else None


def _pairs(
    reference: RawResources, derived: DerivedResources
) -> Iterator[tuple[str, str, bytes | None, DerivedResource | None]]:
    """Yield the type and the name of each resource of a proxy, with the resources of both sides."""
    for kind in {**reference, **derived}:
        raws, ours = reference.get(kind, {}), _keyed(kind, derived.get(kind, {}))
        for name in {**raws, **ours}:
            yield kind, name, raws.get(name), ours.get(name)


def differing_leaves(reference: Any, derived: Any) -> Iterator[LeafDifference]:
    """Yield the leaves that differ between two normal forms, in the order of their paths."""
    ones, others = leaves_of(reference), leaves_of(derived)
    for path in sorted(ones.keys() | others.keys()):
        one, other = ones.get(path), others.get(path)
        if one != other:
            yield LeafDifference(path, one, other)


def _keyed(kind: str, derived: dict[str, DerivedResource]) -> dict[str, DerivedResource]:
    """Return resources by the names that istiod's pages show."""
    return {"" if kind == "nds" else name: resource for name, resource in derived.items()}


def is_empty_placeholder(kind: str, raw: bytes | None, derived: DerivedResource | None) -> bool:
    """Return whether a resource that one side lacks is a ClusterLoadAssignment without endpoints, which has the same
    effect as none."""
    if kind != "eds":
        return False
    form = reference_form(raw) if raw is not None else derived_form(derived.resource) if derived is not None else {}
    return not form.get("endpoints")
