"""Patched groups of resources.

If no patch can change a resource, the patched group contains the shared original. Proxies with the same patches share
each patched resource.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf import any_pb2
from msgspec.structs import replace

from pilot.derive import Derived, Gather, derived, derived_in_steps
from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch, patch, patches
from pilot.envoy.envoy_filter.patch_cluster import patch_cluster
from pilot.envoy.envoy_filter.patch_effects import Effects, Misfit
from pilot.envoy.envoy_filter.patch_listener import patch_listener
from pilot.envoy.envoy_filter.patch_match import can_change, required_text
from pilot.envoy.envoy_filter.patched_routes import patch_pieces
from pilot.envoy.resource import Resource
from pilot.lib.protobuf.constraints import unpack
from pilot.lib.xds_types import CLUSTER, LISTENER, ROUTE
from pilot.mesh.model.facets import PatchFacet, PatchKey
from pilot.mesh.tables.database import Mesh

MAX_PATCH_BYTES = 16 << 20
"""Maximum size of the patches that are applied to a group of resources, in bytes. Each application counts.

For each resource of the group, `MAX_PATCH_BYTES_PER_RESOURCE` are added. Large meshes have more resources to patch.
"""
MAX_PATCH_BYTES_PER_RESOURCE = 16 << 10
APPLICATION, COMPARISON = 512, 16
"""Bytes that are added to the size of a patch for its application, and for its comparison with a name, which take
time."""
ResourceKey = Any
"""The key of a resource in its group."""


class PatchedGroupKey(NamedTuple):
    """The group that is patched, and the type of its resources."""

    type_url: str
    fn: Derived[Any, Any] | Gather[Any, Any, Any]
    args: tuple[Any, ...]


class PatchTargetKey(NamedTuple):
    """A resource that patches can change. `facet` only contains these patches."""

    key: ResourceKey
    facet: PatchFacet


class PatchResult(NamedTuple):
    """The result of patching a resource.

    `resource` is None if a patch removed it. `applied` are the patches that changed it. `misfits` are the patches that
    do not fit it.
    """

    resource: Resource | None
    applied: tuple[PatchKey, ...]
    misfits: tuple[Misfit, ...]


# -- selection ---------------------------------------------------------------------------------------------------------


@derived
def _names(db: Mesh, source: PatchedGroupKey) -> tuple[tuple[ResourceKey, str], ...]:
    """Return the keys and names of the resources in a group. Changes to a resource do not affect them."""
    return tuple((key, resource.name) for key, resource in source.fn(db, *source.args).items())


class PatchSelection(NamedTuple):
    """The resources of a group that patches can change.

    `excessive` are patches that are not applied, because the patches would be copied into too many resources.
    """

    targets: tuple[PatchTargetKey, ...]
    excessive: tuple[PatchKey, ...]


@derived
def _selection(db: Mesh, source: PatchedGroupKey, facet: PatchFacet) -> PatchSelection:
    """Return the resources of a group that a facet's patches can change, each with the patches that can change it."""
    candidates = patches(db, facet)
    names = _names(db, source) if candidates else ()
    budget = MAX_PATCH_BYTES + MAX_PATCH_BYTES_PER_RESOURCE * len(names)
    matching: defaultdict[ResourceKey, list[PatchKey]] = defaultdict(list)
    excessive: list[PatchKey] = []
    for row in candidates:
        text = required_text(row, source.type_url, facet)
        if budget < COMPARISON * len(names):
            excessive.append(row.key)
            continue
        budget -= COMPARISON * len(names)
        matches = [
            key
            for key, name in names
            if text is None or (text in name and can_change(row, source.type_url, name, facet))
        ]
        size = (APPLICATION + (row.value.ByteSize() if row.value is not None else 0)) * len(matches)
        if size > budget:
            excessive.append(row.key)
            continue
        budget -= size
        for key in matches:
            matching[key].append(row.key)
    facets: dict[tuple[PatchKey, ...], PatchFacet] = {}
    targets: list[PatchTargetKey] = []
    for key, _ in names if matching else ():
        if keys := tuple(matching.get(key, ())):
            targets.append(PatchTargetKey(key, facets.setdefault(keys, replace(facet, patches=keys))))
    return PatchSelection(tuple(targets), tuple(excessive))


@derived
def _patch_targets(db: Mesh, source: PatchedGroupKey, facet: PatchFacet) -> tuple[PatchTargetKey, ...]:
    return _selection(db, source, facet).targets


@derived
def excessive_patches(db: Mesh, source: PatchedGroupKey, facet: PatchFacet) -> tuple[PatchKey, ...]:
    """Return the patches that are not applied to a group, because they would be copied into too many resources."""
    return _selection(db, source, facet).excessive


# -- patched groups ----------------------------------------------------------------------------------------------------


def _items(target: PatchTargetKey, source: PatchedGroupKey, _: PatchFacet) -> tuple[PatchedGroupKey]:
    """Return the group, with only the arguments that the item needs. Groups of several classes of proxies share the
    item."""
    args = source.fn.passed(target.key, *source.args) if isinstance(source.fn, Gather) else source.args
    return (source._replace(args=args),)


def _original(db: Mesh, key: ResourceKey, items: PatchedGroupKey) -> Resource | None:
    """Return a resource before it is patched. For a gather, only the item for this resource is computed."""
    if isinstance(items.fn, Gather):
        resource: Resource | None = items.fn.item(db, key, *items.args)
        return resource
    group: Mapping[Any, Resource] = items.fn(db, *items.args)
    return group.get(key)


@derived_in_steps
def patched_resource(
    db: Mesh, target: PatchTargetKey, items: PatchedGroupKey
) -> Generator[None, None, PatchResult | None]:
    """Return the result of applying all patches of a target.

    `items` identifies the group that contains the resource.
    """
    original = _original(db, target.key, items)
    if original is None:
        return None
    parsed = [row for name in target.facet.patches if (row := patch(db, name)) is not None]
    effects = Effects()
    if items.type_url == ROUTE:
        resource: Resource | None = yield from patch_pieces(db, original, parsed, target.facet, effects)
    else:
        resource = yield from apply_patches(original, items.type_url, parsed, target.facet, effects)
    return PatchResult(resource, tuple(effects.applied), tuple(effects.misfits))


patched_resources: Gather[PatchTargetKey, [PatchedGroupKey, PatchFacet], PatchResult]
patched_resources = Gather("patched resources", _patch_targets, patched_resource, passed=_items)
"""The results of patching a group. Resources that no patch can change are omitted."""


@derived
def patched(db: Mesh, source: PatchedGroupKey, facet: PatchFacet) -> Mapping[ResourceKey, Resource]:
    """Return the resources of a group, changed by the patches of a facet.

    If no patch can change a resource, the result contains the shared original.
    """
    group: Mapping[ResourceKey, Resource] = source.fn(db, *source.args)
    targets = _patch_targets(db, source, facet)
    if not targets:
        return group
    results, resources = patched_resources(db, source, facet), dict(group)
    for target in targets:
        result = results.get(target)
        if result is not None and result.resource is not None:
            resources[target.key] = result.resource
        else:
            resources.pop(target.key, None)
    return resources


# -- one resource ------------------------------------------------------------------------------------------------------

_PATCHERS: Mapping[str, Callable[[Any, Sequence[ParsedPatch], PatchFacet, Effects], Generator[None, None, bool]]] = {
    CLUSTER: patch_cluster,
    LISTENER: patch_listener,
}


def apply_patches(
    original: Resource, type_url: str, patches: Sequence[ParsedPatch], facet: PatchFacet, effects: Effects
) -> Generator[None, None, Resource | None]:
    """Return a patched copy of a cluster or listener.

    Return the original if no patch changes it, and None if a patch removes it.
    """
    message = unpack(any_pb2.Any.FromString(original.any))
    exists = yield from _PATCHERS[type_url](message, patches, facet, effects)
    if not exists:
        return None
    return as_resource(type_url, message) if effects.applied else original


def as_resource(type_url: str, message: Any) -> Resource:
    """Return the resource for a message. A cluster with EDS only becomes ready when its endpoints arrive."""
    eds = type_url == CLUSTER and message.HasField("eds_cluster_config")
    return Resource.of(
        type_url, message, warms=(message.eds_cluster_config.service_name or message.name) if eds else ""
    )
