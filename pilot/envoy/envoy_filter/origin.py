"""Tells which patches made a resource what it is."""

from __future__ import annotations

from typing import Any

from pilot.envoy.envoy_filter.added import added, added_extensions
from pilot.envoy.envoy_filter.patch import patch
from pilot.envoy.envoy_filter.patched import patched, patched_resources
from pilot.mesh.model.facets import PatchKey
from pilot.mesh.tables.database import Mesh


def find_patches(db: Mesh, fn: Any, args: tuple[Any, ...], name: str) -> tuple[PatchKey, ...]:
    """Returns the patches that changed or added the resource of a name in a group `fn(db, *args)`, in their order."""
    if fn is added:
        return tuple(key for key, resource in added(db, *args).items() if resource.name == name)[:1]
    if fn is added_extensions:
        return tuple(
            k
            for k in args[-1].patches
            if (p := patch(db, k)) is not None and p.value is not None and p.value.name == name
        )[:1]
    if fn is not patched:
        return ()
    found = (
        one for one in patched_resources(db, *args).values() if one.resource is not None and one.resource.name == name
    )
    return next((one.applied for one in found), ())
