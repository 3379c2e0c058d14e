"""Puts patched groups in the place of those that a plan names, where EnvoyFilters have patches for the proxy."""

from __future__ import annotations

from collections.abc import Iterator

from pilot.envoy.cluster.builtin_clusters import inbound_fixed_clusters
from pilot.envoy.cluster.hbone_clusters import (
    crossing_clusters,
    forwarding_clusters,
    originating_clusters,
    terminating_clusters,
    waypoint_fixed_clusters,
)
from pilot.envoy.cluster.inbound_clusters import inbound_clusters
from pilot.envoy.endpoint.east_west_upstreams import passage_clusters
from pilot.envoy.endpoint.waypoint_upstreams import vip_clusters
from pilot.envoy.envoy_filter.added import added, added_extensions
from pilot.envoy.envoy_filter.patched import PatchSourceKey, patched
from pilot.envoy.listener.connect_originate import crossing_listeners, forwarding_listeners, originating_listeners
from pilot.envoy.listener.connect_terminate import terminating_listeners
from pilot.envoy.listener.east_west import passage_listeners
from pilot.envoy.listener.inbound import inbound_listeners
from pilot.envoy.listener.inbound_hbone import tunnelled_listeners
from pilot.envoy.listener.main_internal import main_internal_listeners
from pilot.envoy.plans.plan import Group, NamedGroup, Plan
from pilot.lib.xds_types import CLUSTER, EXTENSION, LISTENER, ROUTE
from pilot.mesh.model.facets import PatchContext, PatchFacet
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.proxies.patches import patch_facet, proxy_patches
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy

_INBOUND = frozenset(
    (
        inbound_clusters,
        inbound_fixed_clusters,
        inbound_listeners,
        terminating_listeners,
        tunnelled_listeners,
        main_internal_listeners,
        passage_listeners,
    )
)
_OURS = frozenset(
    (
        originating_clusters,
        terminating_clusters,
        crossing_clusters,
        waypoint_fixed_clusters,
        vip_clusters,
        originating_listeners,
        crossing_listeners,
        forwarding_clusters,
        passage_clusters,
        forwarding_listeners,
    )
)
"""What tunnels are made of, and what is behind a waypoint: no context names it."""
_TYPES: dict[str, str] = {CLUSTER: "clusters", LISTENER: "listeners", ROUTE: "routes"}
_ADDED = (CLUSTER, LISTENER)


def patched_plan(db: Mesh, node_id: str, built: Plan) -> Plan:
    """Returns the plan with everything that patches may change named through them; the plan as it is where there are none. No node of its own."""
    patches = proxy_patches(db, node_id)
    if not patches:
        return built
    sidecar = find_proxy(db, node_id).type is not NodeType.ROUTER
    groups = dict(built.groups)
    for type_url, kind in _TYPES.items():
        facets = {context: patch_facet(db, node_id, patches, kind, context) for context in _contexts(sidecar)}
        found = (group if group.fn in _OURS else _patched(group, type_url, facets) for group in built.groups[type_url])
        groups[type_url] = (*found, *(_added(type_url, facets) if type_url in _ADDED else ()))
    return Plan(
        groups,
        {**built.named, **_extensions(built, patch_facet(db, node_id, patches, "extensions", _contexts(sidecar)[0]))},
    )


def _contexts(sidecar: bool) -> tuple[PatchContext, ...]:
    return ("SIDECAR_OUTBOUND", "SIDECAR_INBOUND") if sidecar else ("GATEWAY",)


def _patched(group: Group, type_url: str, facets: dict[PatchContext, PatchFacet]) -> Group:
    facet = next(iter(facets.values())) if group.fn not in _INBOUND else facets["SIDECAR_INBOUND"]
    return Group(patched, (PatchSourceKey(type_url, group.fn, group.args), facet)) if facet.patches else group


def _added(type_url: str, facets: dict[PatchContext, PatchFacet]) -> Iterator[Group]:
    for facet in facets.values():
        if facet.patches:
            yield Group(added, (type_url, facet))


def _extensions(built: Plan, facet: PatchFacet) -> dict[str, tuple[NamedGroup, ...]]:
    return (
        {EXTENSION: (*built.named.get(EXTENSION, ()), NamedGroup(added_extensions, (facet,)))} if facet.patches else {}
    )
