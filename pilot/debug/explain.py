"""Why a proxy has a resource: the users' objects that it was made from, and through which derivations."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from pilot.config.group_kind import parse_kind
from pilot.config.object import ObjectKey, RegistryKey
from pilot.debug.config_dump import asked_names, group_resources
from pilot.debug.page import Later, Query, Refused, asked_connection
from pilot.debug.slices import all_of, those_of
from pilot.debug.sources import ConnectedProxy, Sources
from pilot.derive import Node
from pilot.derive.explain import Explanation, Reason, Step, explanation, search_origin, walk
from pilot.envoy.envoy_filter.added_resources import find_patches
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.envoy.plans.resource_group import Group
from pilot.lib.xds_types import BY_SHORT_NAME, short_name
from pilot.mesh.model.facets import PatchKey


async def explain_page(sources: Sources, query: Query) -> Any:
    """Returns what `resource` of proxyID is made from: of every type that it watches and that has one of that name, or of `type` (cds …)."""
    connection = asked_connection(sources, query)
    name, wanted = query.get("resource", ""), query.get("type", "").lower()
    if not name:
        raise Refused(400, "You must provide a resource in the query string\n")
    if wanted and wanted not in BY_SHORT_NAME:
        raise Refused(400, f"unknown type {wanted!r}; the types are {', '.join(BY_SHORT_NAME)}\n")
    groups = await all_of(_groups(sources, connection, BY_SHORT_NAME.get(wanted, "")))
    found = [
        made for url, group in groups if (made := await _explained(sources, connection, group, name, url)) is not None
    ]
    if not found:
        names = [
            resource.name
            for resources in await all_of(group_resources(sources.db, group) for _, group in groups)
            for resource in resources
        ]
        return Later(lambda: _refuse(connection.proxy.id, name, names))
    return Later(lambda: {"proxy": connection.proxy.id, "resource": name, "explanations": [make() for make in found]})


def _groups(sources: Sources, connection: ConnectedProxy, wanted: str) -> Iterator[tuple[str, Group]]:
    """Yields the groups that the proxy follows, with their type URLs; `wanted` is the one type that matters, "" for all that it watches."""
    planned = proxy_plan(sources.db, connection.proxy_key)
    for url in (wanted,) if wanted else tuple(connection.subscriptions):
        watch = connection.subscriptions.get(url)
        for group in planned.groups_of(url, asked_names(watch) if watch is not None else frozenset()) or ():
            yield url, group


async def _explained(
    sources: Sources, connection: ConnectedProxy, group: Group, name: str, type_url: str
) -> Callable[[], dict[str, Any]] | None:
    """Returns what shows why a group has a resource of that name; None where it has none."""
    resource = next((r for r in group_resources(sources.db, group) if r.name == name), None)
    node = sources.db.find_node(group.fn, *group.args)
    if resource is None or node is None:
        return None
    found: list[Step] = await those_of(walk(sources.db, node, resource))
    patched = {"patches": [_patch(key) for key in find_patches(sources.db, group.fn, group.args, name)]}
    of_proxy = await _proxy_steps(sources, connection, group)

    def make() -> dict[str, Any]:
        shown = show(explanation(found))
        return {"type": short_name(type_url)} | shown | patched | {"proxy": _proxy_objects(of_proxy, shown["objects"])}

    return make


def _patch(key: PatchKey) -> dict[str, Any]:
    return {"namespace": key.filter.namespace, "name": key.filter.name, "patch": f"configPatches[{key.position}]"}


async def _proxy_steps(sources: Sources, connection: ConnectedProxy, group: Group) -> list[Step]:
    """Returns what makes the proxy what the group is for, such as the services that select it."""
    root = sources.db.find_node(proxy_plan, connection.proxy_key)
    facets = (
        [facet for argument in group.args for facet in await those_of(search_origin(root, argument))]
        if root is not None
        else []
    )
    found: list[Step] = []
    for facet in facets:
        steps: list[Step] = await those_of(walk(sources.db, facet))
        found += steps
    return found


def _proxy_objects(found: list[Step], known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the objects of such steps; those of `known` left out."""
    objects, names = [_object(reason) for reason in explanation(found).rows], {_identity(o) for o in known}
    return list({_identity(o): o for o in objects if o["kind"] != "Proxy" and _identity(o) not in names}.values())


def _identity(o: dict[str, Any]) -> tuple[str, ...]:
    return o.get("group", ""), o["kind"], o.get("cluster", ""), o.get("namespace", ""), o["name"]


def show(explanation: Explanation) -> dict[str, Any]:
    """Returns plain data: the objects with the derivations between, nearest first, and the lists that were consulted."""
    return {
        "objects": [_object(reason) for reason in explanation.rows],
        "lists": sorted({_name(node) for node in explanation.lists}),
    }


def _object(reason: Reason) -> dict[str, Any]:
    key = reason.key if isinstance(reason.key, ObjectKey | RegistryKey) else ObjectKey("", str(reason.key))
    named = parse_kind(reason.table)
    fields = {"group": named.group, "kind": named.name} | key._asdict()
    return {field: text for field, text in fields.items() if text} | {"through": [_name(node) for node in reason.path]}


def _name(node: Node) -> str:
    """Returns the name of a derivation; that of a table's index has what it goes by: "networking.istio.io/VirtualService by host"."""
    name = str(node.fn)
    return f"{name} {node.args[0]}" if name.endswith(" by") else name


def _refuse(proxy: str, name: str, names: list[str]) -> NoReturn:
    close = difflib.get_close_matches(name, dict.fromkeys(names), n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise Refused(404, f"{proxy} has no resource {name!r}{hint}\n")
