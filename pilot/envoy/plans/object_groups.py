"""The resource groups for clients that request configuration objects by group/version/Kind."""

from __future__ import annotations

import functools

from pilot.config.catalogue import CATALOGUE
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.envoy.object_resources import mesh_config_resource, objects, services_as_entries
from pilot.envoy.plans.resource_group import Group, PatchSide
from pilot.lib.xds_types import is_object
from pilot.mcp.object_types import MESH_CONFIG, parse_object_type


@functools.lru_cache(1024)
def object_groups(type_url: str) -> tuple[Group, ...] | None:
    """Return the groups for a type URL.

    Return () for a kind that is not served, and None if the type URL does not name a kind of object.
    """
    if not is_object(type_url):
        return None
    if type_url == MESH_CONFIG:
        return (Group(mesh_config_resource, (), PatchSide.NONE),)
    object_type = parse_object_type(type_url)
    if object_type is None:
        return ()
    kind = CATALOGUE.find(GroupKind(object_type.group, object_type.kind))
    if kind is None or object_type.version not in kind.versions or not kind.is_over_xds:
        return ()
    groups = (Group(objects, (kind.id,), PatchSide.NONE),)
    return (*groups, Group(services_as_entries, (), PatchSide.NONE)) if kind.id == SERVICE_ENTRY.id else groups
