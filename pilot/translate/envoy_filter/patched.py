"""Derives patched groups of resources from those that are built.

A resource that no patch can touch is the shared one itself, and what the same patches touch is shared by all proxies that have them.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf import any_pb2
from msgspec.structs import replace

from pilot.derive import Derived, Gather, derived
from pilot.lib.protobuf.constraints import unpack
from pilot.lib.xds_types import CLUSTER, LISTENER, ROUTE
from pilot.model.facets import PatchFacet, PatchKey
from pilot.model.inputs import Mesh
from pilot.translate.envoy_filter.cluster import patch_cluster
from pilot.translate.envoy_filter.effects import Effects, Misfit
from pilot.translate.envoy_filter.listener import patch_listener
from pilot.translate.envoy_filter.match import can_touch
from pilot.translate.envoy_filter.patch import Patch, patch, patches
from pilot.translate.envoy_filter.routes import patch_routes
from pilot.translate.resource import Resource

ResourceKey = Any
"""The key of a resource in its group, whatever that is made of."""


class PatchSourceKey(NamedTuple):
    """Names the group that is patched, and the type of its resources."""

    type_url: str
    fn: Derived[Any, Any] | Gather[Any, Any, Any]
    args: tuple[Any, ...]


class Patched(NamedTuple):
    """Holds what became of one resource. `resource` is None where it is removed; `misfits` are the patches that do not fit it."""

    resource: Resource | None
    applied: tuple[PatchKey, ...]
    misfits: tuple[Misfit, ...]


@derived
def _keys(db: Mesh, source: PatchSourceKey, _: PatchFacet) -> tuple[Any, ...]:
    keys = source.fn.keys if isinstance(source.fn, Gather) else source.fn
    return tuple(keys(db, *source.args))


def _items(source: PatchSourceKey) -> PatchSourceKey:
    """Returns the source with the arguments that its items have, which groups of several classes of proxies have in common."""
    return source._replace(args=source.fn.passed(*source.args)) if isinstance(source.fn, Gather) else source


def _original(db: Mesh, key: ResourceKey, items: PatchSourceKey) -> Resource | None:
    """Returns a resource as it is built; that of a gather without reading the others."""
    if isinstance(items.fn, Gather):
        found: Resource | None = items.fn.item(db, key, *items.args)
        return found
    group: Mapping[Any, Resource] = items.fn(db, *items.args)
    return group.get(key)


def _touching(db: Mesh, found: Resource, source: PatchSourceKey, facet: PatchFacet) -> PatchFacet:
    """Returns the facet with nothing but the patches that can touch a resource."""
    keys = tuple(p.key for p in patches(db, facet) if can_touch(p, source.type_url, found.name, facet))
    return replace(facet, patches=keys)


@derived
def patched_resource(db: Mesh, key: ResourceKey, items: PatchSourceKey, facet: PatchFacet) -> Patched:
    """Returns a resource with all patches of a facet applied. `items`: its group, with the arguments of the items."""
    original = _original(db, key, items)
    if original is None:
        return Patched(None, (), ())
    found = [p for name in facet.patches if (p := patch(db, name)) is not None]
    effects = Effects()
    resource = apply_patches(original, items.type_url, found, facet, effects)
    return Patched(resource, tuple(effects.applied), tuple(effects.misfits))


@derived
def _patched(db: Mesh, key: ResourceKey, source: PatchSourceKey, facet: PatchFacet) -> Resource | None:
    items = _items(source)
    original = _original(db, key, items)
    if original is None:
        return None
    touching = _touching(db, original, source, facet)
    return patched_resource(db, key, items, touching).resource if touching.patches else original


patched: Gather[Any, [PatchSourceKey, PatchFacet], Resource] = Gather("patched resources", _keys, _patched)
"""The resources of a group with the patches of a facet."""


def find_patched(db: Mesh, key: ResourceKey, source: PatchSourceKey, facet: PatchFacet) -> Patched | None:
    """Returns what became of one resource of a group; None where no patch can touch it. No node of its own."""
    items = _items(source)
    original = _original(db, key, items)
    touching = _touching(db, original, source, facet) if original is not None else None
    return patched_resource(db, key, items, touching) if touching is not None and touching.patches else None


# -- one resource ----------------------------------------------------------------------------------------------------------

def _route_configuration(config: Any, found: Sequence[Patch], facet: PatchFacet, effects: Effects) -> bool:
    patch_routes(config, found, facet, effects)
    return True


_PATCHERS: Mapping[str, Callable[[Any, Sequence[Patch], PatchFacet, Effects], bool]] = {
    CLUSTER: patch_cluster,
    LISTENER: patch_listener,
    ROUTE: _route_configuration,
}


def apply_patches(original: Resource, type_url: str, found: Sequence[Patch], facet: PatchFacet, effects: Effects) -> Resource | None:
    """Returns the resource with the patches applied to a copy of it: the same one where none changed it, None where one removes it."""
    message = unpack(any_pb2.Any.FromString(original.any))
    if not _PATCHERS[type_url](message, found, facet, effects):
        return None
    return as_resource(type_url, message) if effects.applied else original


def as_resource(type_url: str, message: Any) -> Resource:
    """Returns the resource of a message; a cluster with endpoints by EDS is ready only with these."""
    eds = type_url == CLUSTER and message.HasField("eds_cluster_config")
    return Resource.of(type_url, message, warms=(message.eds_cluster_config.service_name or message.name) if eds else "")
