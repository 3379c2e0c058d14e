"""The resources that this control plane derives for a proxy of the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pilot.debug.pages.config_dump import group_resources
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.envoy.plans.resource_group import Group
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import find_type, short_name
from pilot.mesh.proxies.proxyless import is_proxyless
from pilot.mesh.tables.database import Mesh
from pilot.shadow.reference_proxies import COMPARED, ReferenceProxy


class DerivedResource(NamedTuple):
    """A resource, and the group that it belongs to."""

    resource: Resource
    group: Group


DerivedResources = dict[str, dict[str, DerivedResource]]
"""Resources by the short name of their type and by name."""


def derive_resources(db: Mesh, one: ReferenceProxy) -> DerivedResources:
    """Return the resources of the types that a proxy subscribes to."""
    resources: DerivedResources = {name: {} for name in one.short_types}
    for url, names in one.watches.items():
        if short_name(url) in COMPARED:
            by_name = resources.setdefault(short_name(url), {})
            for derived in _of_type(db, one, url, names):
                by_name.setdefault(derived.resource.name, derived)
    return resources


def _of_type(db: Mesh, one: ReferenceProxy, url: str, names: frozenset[str]) -> Iterator[DerivedResource]:
    """Yield the resources of a type.

    istiod lists the names that it sent for a wildcard subscription. Only proxyless clients subscribe to clusters and
    listeners by name.
    """
    wildcard = not (find_type(url).is_named or is_proxyless(one.proxy))
    requested = frozenset() if wildcard else names - {"*"}
    for group in proxy_plan(db, one.node_id).groups_of(url, requested, wildcard) or ():
        for resource in group_resources(db, group):
            if wildcard or resource.name in requested or find_type(url).has_aliases:
                yield DerivedResource(resource, group)
