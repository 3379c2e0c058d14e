"""Chooses the objects that a client is sent which asks for a kind by group/version/Kind, whichever proxy it says to be."""

from __future__ import annotations

import functools

from pilot.config.catalogue import CATALOGUE
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.envoy.object_resources import mesh_config_resource, objects, services_as_entries
from pilot.envoy.plans.plan import Group
from pilot.lib.xds_types import is_object
from pilot.mcp.object_types import MESH_CONFIG, parse_object_type


@functools.lru_cache(1024)
def object_groups(type_url: str) -> tuple[Group, ...] | None:
    """Returns the groups of the objects of a type, none for a kind that there is nothing of; None for what is no type of objects."""
    if not is_object(type_url):
        return None
    if type_url == MESH_CONFIG:
        return (Group(mesh_config_resource, ()),)
    of = parse_object_type(type_url)
    kind = CATALOGUE.find(GroupKind(of.group, of.kind)) if of is not None else None
    if of is None or kind is None or of.version not in kind.versions or not kind.is_over_xds:
        return ()
    groups = (Group(objects, (kind.id,)),)
    return (*groups, Group(services_as_entries, ())) if kind.id == SERVICE_ENTRY.id else groups
