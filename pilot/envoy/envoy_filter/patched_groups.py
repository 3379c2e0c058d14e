"""Derives patched groups of resources from those that are built.

A resource that no patch can touch is the shared one itself, and what the same patches touch is shared by all proxies that have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf import any_pb2
from msgspec.structs import replace

from pilot.derive import Derived, Gather, derived
from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch, patch, patches
from pilot.envoy.envoy_filter.patch_cluster import patch_cluster
from pilot.envoy.envoy_filter.patch_effects import Effects, Misfit
from pilot.envoy.envoy_filter.patch_listener import patch_listener
from pilot.envoy.envoy_filter.patch_match import can_touch, touched_text
from pilot.envoy.envoy_filter.patched_routes import patch_pieces
from pilot.envoy.resource import Resource
from pilot.lib.protobuf.constraints import unpack
from pilot.lib.xds_types import CLUSTER, LISTENER, ROUTE
from pilot.mesh.model.facets import PatchFacet, PatchKey
from pilot.mesh.tables.database import Mesh

ResourceKey = Any
"""The key of a resource in its group, whatever that is made of."""


class PatchSourceKey(NamedTuple):
    """Names the group that is patched, and the type of its resources."""

    type_url: str
    fn: Derived[Any, Any] | Gather[Any, Any, Any]
    args: tuple[Any, ...]


class TouchedKey(NamedTuple):
    """Names a resource that patches can touch. `facet` has nothing but these."""

    key: ResourceKey
    facet: PatchFacet


class PatchedMessage(NamedTuple):
    """Holds what became of one resource. `resource` is None where it is removed; `misfits` are the patches that do not fit it."""

    resource: Resource | None
    applied: tuple[PatchKey, ...]
    misfits: tuple[Misfit, ...]


# -- which resources -------------------------------------------------------------------------------------------------------


@derived
def _names(db: Mesh, source: PatchSourceKey) -> tuple[tuple[ResourceKey, str], ...]:
    """Returns the resources of a group by name alone, which is all that an edit of one of them leaves as it was."""
    return tuple((key, resource.name) for key, resource in source.fn(db, *source.args).items())


@derived
def _touched(db: Mesh, source: PatchSourceKey, facet: PatchFacet) -> tuple[TouchedKey, ...]:
    """Returns the resources that some patch of a facet can touch."""
    found: list[TouchedKey] = []
    facets: dict[tuple[PatchKey, ...], PatchFacet] = {}
    ready = [(p, touched_text(p, source.type_url, facet)) for p in patches(db, facet)]
    for key, name in _names(db, source) if ready else ():
        touching = tuple(
            [
                p.key
                for p, text in ready
                if text is None or (text in name and can_touch(p, source.type_url, name, facet))
            ]
        )
        if touching:
            found.append(TouchedKey(key, facets.setdefault(touching, replace(facet, patches=touching))))
    return tuple(found)


# -- what becomes of them --------------------------------------------------------------------------------------------------


def _items(source: PatchSourceKey, _: PatchFacet) -> tuple[PatchSourceKey]:
    """Returns the source with the arguments that its items have, which groups of several classes of proxies have in common."""
    return (source._replace(args=source.fn.passed(*source.args)) if isinstance(source.fn, Gather) else source,)


def _original(db: Mesh, key: ResourceKey, items: PatchSourceKey) -> Resource | None:
    """Returns a resource as it is built; that of a gather without reading the others."""
    if isinstance(items.fn, Gather):
        found: Resource | None = items.fn.item(db, key, *items.args)
        return found
    group: Mapping[Any, Resource] = items.fn(db, *items.args)
    return group.get(key)


@derived
def patched_resource(db: Mesh, touched: TouchedKey, items: PatchSourceKey) -> PatchedMessage | None:
    """Returns a resource with all patches of a facet applied. `items`: its group, with the arguments of the items."""
    original = _original(db, touched.key, items)
    if original is None:
        return None
    found = [p for name in touched.facet.patches if (p := patch(db, name)) is not None]
    effects = Effects()
    if items.type_url == ROUTE:
        resource: Resource | None = patch_pieces(db, original, found, touched.facet, effects)
    else:
        resource = apply_patches(original, items.type_url, found, touched.facet, effects)
    return PatchedMessage(resource, tuple(effects.applied), tuple(effects.misfits))


patched_resources: Gather[TouchedKey, [PatchSourceKey, PatchFacet], PatchedMessage]
patched_resources = Gather("patched resources", _touched, patched_resource, passed=_items)
"""What became of each resource of a group that patches can touch."""


@derived
def patched(db: Mesh, source: PatchSourceKey, facet: PatchFacet) -> Mapping[ResourceKey, Resource]:
    """Returns the resources of a group with the patches of a facet; what no patch can touch is the shared resource itself."""
    group: Mapping[ResourceKey, Resource] = source.fn(db, *source.args)
    touched = _touched(db, source, facet)
    if not touched:
        return group
    done, found = patched_resources(db, source, facet), dict(group)
    for at in touched:
        one = done.get(at)
        if one is not None and one.resource is not None:
            found[at.key] = one.resource
        else:
            found.pop(at.key, None)
    return found


# -- one resource ----------------------------------------------------------------------------------------------------------

_PATCHERS: Mapping[str, Callable[[Any, Sequence[ParsedPatch], PatchFacet, Effects], bool]] = {
    CLUSTER: patch_cluster,
    LISTENER: patch_listener,
}


def apply_patches(
    original: Resource, type_url: str, found: Sequence[ParsedPatch], facet: PatchFacet, effects: Effects
) -> Resource | None:
    """Returns a cluster or listener with the patches applied to a copy of it: the same one where none changed it, None where one removes it."""
    message = unpack(any_pb2.Any.FromString(original.any))
    if not _PATCHERS[type_url](message, found, facet, effects):
        return None
    return as_resource(type_url, message) if effects.applied else original


def as_resource(type_url: str, message: Any) -> Resource:
    """Returns the resource of a message; a cluster with endpoints by EDS is ready only with these."""
    eds = type_url == CLUSTER and message.HasField("eds_cluster_config")
    return Resource.of(
        type_url, message, warms=(message.eds_cluster_config.service_name or message.name) if eds else ""
    )
