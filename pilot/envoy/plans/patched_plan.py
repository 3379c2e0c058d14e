"""Replaces the groups of a plan with patched groups if EnvoyFilters select the proxy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pilot.envoy.envoy_filter.added_resources import added, added_extensions
from pilot.envoy.envoy_filter.patched_groups import PatchedGroupKey, patched
from pilot.envoy.plans.resource_group import Group, NamedGroup, PatchSide, ProxyPlan
from pilot.lib.xds_types import CLUSTER, EXTENSION, LISTENER, ROUTE
from pilot.mesh.model.facets import PatchFacet, ProxyPatchContext
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.proxies.patches import patch_facet, proxy_patches
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy

_SIDECAR: dict[PatchSide, ProxyPatchContext] = {
    PatchSide.OUTBOUND: "SIDECAR_OUTBOUND",
    PatchSide.INBOUND: "SIDECAR_INBOUND",
}
_GATEWAY: dict[PatchSide, ProxyPatchContext] = {PatchSide.OUTBOUND: "GATEWAY"}
_PATCHED_TYPES = {CLUSTER: "clusters", LISTENER: "listeners", ROUTE: "routes"}
_ADDED_TYPES = (CLUSTER, LISTENER)


def patched_plan(db: Mesh, node_id: str, plan: ProxyPlan) -> ProxyPlan:
    """Return the plan, with patched groups in place of the groups that patches may change. Not memoised.

    If there are no patches, the plan is returned unchanged.
    """
    patches = proxy_patches(db, node_id)
    if not patches:
        return plan
    contexts = _GATEWAY if find_proxy(db, node_id).type is NodeType.ROUTER else _SIDECAR
    groups = dict(plan.groups)
    for type_url, kind in _PATCHED_TYPES.items():
        facets = {side: patch_facet(db, node_id, patches, kind, context) for side, context in contexts.items()}
        patched_groups = (_patched(group, type_url, facets) for group in plan.groups[type_url])
        groups[type_url] = (*patched_groups, *(_added(type_url, facets) if type_url in _ADDED_TYPES else ()))
    extensions = patch_facet(db, node_id, patches, "extensions", contexts[PatchSide.OUTBOUND])
    return ProxyPlan(groups, {**plan.by_name, **_extensions(plan, extensions)})


def _patched(group: Group, type_url: str, facets: Mapping[PatchSide, PatchFacet]) -> Group:
    if group.patch_side is PatchSide.NONE or not (facet := facets[group.patch_side]).patches:
        return group
    return Group(patched, (PatchedGroupKey(type_url, group.fn, group.args), facet), group.patch_side)


def _added(type_url: str, facets: Mapping[PatchSide, PatchFacet]) -> Iterator[Group]:
    for side, facet in facets.items():
        if facet.patches:
            yield Group(added, (type_url, facet), side)


def _extensions(plan: ProxyPlan, facet: PatchFacet) -> dict[str, tuple[NamedGroup, ...]]:
    if not facet.patches:
        return {}
    return {EXTENSION: (*plan.by_name.get(EXTENSION, ()), NamedGroup(added_extensions, (facet,)))}
