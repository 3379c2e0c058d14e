"""The clusters, listeners and extension configs that patches add.

Also finds the patches that changed or added a resource.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilot.derive import Lookup, derived
from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch, patch, patches
from pilot.envoy.envoy_filter.patched_groups import as_resource, patched, patched_resources
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import CLUSTER, EXTENSION, LISTENER
from pilot.mesh.model.facets import PatchFacet, PatchKey
from pilot.mesh.tables.database import Mesh

_TYPES = {CLUSTER: "CLUSTER", LISTENER: "LISTENER"}


@derived
def added(db: Mesh, type_url: str, facet: PatchFacet) -> Mapping[PatchKey, Resource]:
    """Return a mapping from patch to the cluster or listener that the patch adds.

    Patches whose context is ANY do not add resources to the inbound side.
    """
    return {p.key: as_resource(type_url, p.value) for p in patches(db, facet) if _adds(p, _TYPES[type_url], facet)}


def _adds(patch: ParsedPatch, apply_to: str, facet: PatchFacet) -> bool:
    return (
        patch.apply_to == apply_to
        and patch.operation == "ADD"
        and (patch.match.context != "ANY" or facet.context != "SIDECAR_INBOUND")
    )


@derived
def _extension(db: Mesh, name: str, facet: PatchFacet) -> Resource | None:
    """Return the first extension config with this name that a patch adds, or None if there is none."""
    additions = (p for key in facet.patches if (p := patch(db, key)) is not None and p.operation == "ADD")
    return next((Resource.of(EXTENSION, p.value) for p in additions if p.value.name == name), None)


added_extensions: Lookup[str, [frozenset[str], PatchFacet], Resource] = Lookup(
    "extension configs of EnvoyFilters", _extension
)
"""The extension configs that patches add, for proxies that request them by name."""


def find_patches(db: Mesh, fn: Any, args: tuple[Any, ...], name: str) -> tuple[PatchKey, ...]:
    """Return the patches that changed or added a resource in the group `fn(db, *args)`, in order of application."""
    if fn is added:
        return tuple(key for key, resource in added(db, *args).items() if resource.name == name)[:1]
    if fn is added_extensions:
        return tuple(
            key
            for key in args[-1].patches
            if (p := patch(db, key)) is not None and p.value is not None and p.value.name == name
        )[:1]
    if fn is not patched:
        return ()
    results = (
        result
        for result in patched_resources(db, *args).values()
        if result.resource is not None and result.resource.name == name
    )
    return next((result.applied for result in results), ())
