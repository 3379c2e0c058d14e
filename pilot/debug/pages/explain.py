"""The debug page explain, which shows the objects from which a resource was built, and the derivations in between."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

from pilot.config.group_kind import parse_kind
from pilot.config.object import ObjectKey, RegistryKey
from pilot.config.problem import ObjectRef
from pilot.debug.page import Later, Query, Refused, requested_connection
from pilot.debug.pages.config_dump import group_resources, requested_names
from pilot.debug.pages.places import FilePlace, find_places
from pilot.debug.pages.rejections import explain_missing_cluster, explain_rejections, unknown_cluster
from pilot.debug.slices import collect_all, collect_present
from pilot.debug.sources import ConnectedProxy, Sources
from pilot.derive import Node
from pilot.derive.explanation import Explanation, Reason, Step, explanation, search_origin, walk
from pilot.envoy.envoy_filter.added_resources import find_patches
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.envoy.plans.resource_group import Group
from pilot.lib.xds_types import BY_SHORT_NAME, short_name
from pilot.mesh.model.facets import PatchKey

PlaceOf = Callable[[Reason], FilePlace | None]
"""Returns the place in a file where an object is defined, or None if it is not from a file."""
# Topics of the derivations in a module or package, in the terms of Istio and Envoy. The longest name applies.
_TOPICS = {
    "pilot.envoy.cluster": "clusters",
    "pilot.envoy.endpoint": "endpoints",
    "pilot.envoy.envoy_filter": "patches",
    "pilot.envoy.listener": "listeners",
    "pilot.envoy.route": "routes",
    "pilot.envoy.secret": "secrets",
    "pilot.mesh.ambient": "ambient mesh",
    "pilot.mesh.gateway_api": "listeners of the Gateway API",
    "pilot.mesh.gateways": "servers of Gateways",
    "pilot.mesh.lowering": "conversion to Istio's kinds",
    "pilot.mesh.proxies": "properties of the proxy",
    "pilot.mesh.registry": "services and endpoints",
    "pilot.mesh.scope": "visible services",
    "pilot.mesh.security": "security policies",
    "pilot.mesh.tables.mesh_config": "mesh config",
    "pilot.mesh.tables.proxies": "properties of the proxy",
    "pilot.mesh.telemetry": "telemetry",
    "pilot.mesh.traffic": "VirtualServices of the host",
    "pilot.mesh.traffic.destination_rules": "DestinationRules of the host",
    "pilot.mesh.traffic.locality_lb": "DestinationRules of the host",
    "pilot.mesh.traffic.rule_pools": "DestinationRules of the host",
}


async def explain_page(sources: Sources, query: Query) -> Any:
    """Explain a resource of the proxy.

    The query contains the name in `resource`. All subscribed types that have a resource with this name are explained,
    unless `type` (such as cds) selects one.
    """
    connection = requested_connection(sources, query)
    name, short_type = query.get("resource", ""), query.get("type", "").lower()
    if not name:
        raise Refused(400, "You must provide a resource in the query string\n")
    if short_type and short_type not in BY_SHORT_NAME:
        raise Refused(400, f"unknown type {short_type!r}; valid types are {', '.join(BY_SHORT_NAME)}\n")
    groups = await collect_all(_groups(sources, connection, BY_SHORT_NAME.get(short_type, "")))
    explained = [
        part for url, group in groups if (part := await _explained(sources, connection, group, name, url)) is not None
    ]
    if not explained:
        names = [
            resource.name
            for resources in await collect_all(group_resources(sources.db, group) for _, group in groups)
            for resource in resources
        ]
        why = await _missing_cluster(sources, connection, name)
        return Later(lambda: _refuse(connection.proxy.id, name, names, why))
    own_cluster = sources.db.settings.registry.cluster_id
    refs = (_ref(reason, own_cluster) for part in explained for reason in part.reasons())
    places = await find_places(sources, ((ref, "") for ref in refs if ref is not None))

    def place_of(reason: Reason) -> FilePlace | None:
        ref = _ref(reason, own_cluster)
        return places.get((ref, "")) if ref is not None else None

    return Later(
        lambda: {
            "proxy": connection.proxy.id,
            "resource": name,
            "explanations": [part.show(place_of) for part in explained],
        }
    )


def _groups(sources: Sources, connection: ConnectedProxy, type_url: str) -> Iterator[tuple[str, Group]]:
    """Yield each resource group of a proxy with its type URL. If `type_url` is "", include all subscribed types."""
    plan = proxy_plan(sources.db, connection.proxy_key)
    for url in (type_url,) if type_url else tuple(connection.subscriptions):
        watch = connection.subscriptions.get(url)
        for group in plan.groups_of(url, requested_names(watch) if watch is not None else frozenset()) or ():
            yield url, group


class _ExplainedResource(NamedTuple):
    """The explanation of a resource: the steps to its objects and to the objects that determine the proxy's facets."""

    type_url: str
    steps: list[Step]
    proxy_steps: list[Step]
    patches: list[dict[str, Any]]

    def reasons(self) -> Iterator[Reason]:
        """Yield the rows of all steps."""
        return (step for step in (*self.steps, *self.proxy_steps) if isinstance(step, Reason))

    def show(self, place_of: PlaceOf) -> dict[str, Any]:
        """Return the explanation as a JSON object."""
        explained = show(explanation(self.steps), place_of)
        return (
            {"type": short_name(self.type_url)}
            | explained
            | {"patches": self.patches}
            | {"proxy": _proxy_objects(self.proxy_steps, explained["objects"], place_of)}
        )


async def _explained(
    sources: Sources, connection: ConnectedProxy, group: Group, name: str, type_url: str
) -> _ExplainedResource | None:
    """Return the explanation of a resource, or None if the group has no resource with this name."""
    resource = next((r for r in group_resources(sources.db, group) if r.name == name), None)
    node = sources.db.find_node(group.fn, *group.args)
    if resource is None or node is None:
        return None
    steps: list[Step] = await collect_present(walk(sources.db, node, resource))
    patches = [_patch(key) for key in find_patches(sources.db, group.fn, group.args, name)]
    return _ExplainedResource(type_url, steps, await _proxy_steps(sources, connection, group), patches)


def _patch(key: PatchKey) -> dict[str, Any]:
    return {"namespace": key.filter.namespace, "name": key.filter.name, "patch": f"configPatches[{key.position}]"}


async def _proxy_steps(sources: Sources, connection: ConnectedProxy, group: Group) -> list[Step]:
    """Return the steps that explain why the proxy has the group's facets, such as which services select the proxy."""
    root = sources.db.find_node(proxy_plan, connection.proxy_key)
    facets = (
        [facet for argument in group.args for facet in await collect_present(search_origin(root, argument))]
        if root is not None
        else []
    )
    all_steps: list[Step] = []
    for facet in facets:
        steps: list[Step] = await collect_present(walk(sources.db, facet))
        all_steps += steps
    return all_steps


def _proxy_objects(steps: list[Step], explained: list[dict[str, Any]], place_of: PlaceOf) -> list[dict[str, Any]]:
    """Return the objects in the steps, except those in `explained`."""
    objects, names = (
        [_object(reason, place_of) for reason in explanation(steps).rows],
        {_identity(o) for o in explained},
    )
    return list({_identity(o): o for o in objects if o["kind"] != "Proxy" and _identity(o) not in names}.values())


def _identity(o: dict[str, Any]) -> tuple[str, ...]:
    return o.get("group", ""), o["kind"], o.get("cluster", ""), o.get("namespace", ""), o["name"]


def show(explanation: Explanation, place_of: PlaceOf) -> dict[str, Any]:
    """Return the objects with the derivations in between, nearest first, and the names of the lists that were read.

    `via` and `searched` describe the same derivations and lists in the terms of Istio and Envoy.
    """
    return {
        "objects": [_object(reason, place_of) for reason in explanation.rows],
        "lists": sorted({_name(node) for node in explanation.lists}),
        "searched": sorted(set(_topics(explanation.lists))),
    }


def _ref(reason: Reason, own_cluster: str) -> ObjectRef | None:
    """Return the reference to an object of the local cluster, or None for another row."""
    key = reason.key
    if isinstance(key, ObjectKey) or (isinstance(key, RegistryKey) and key.cluster == own_cluster):
        return ObjectRef(parse_kind(reason.table), key.namespace, key.name)
    return None


def _object(reason: Reason, place_of: PlaceOf) -> dict[str, Any]:
    key = reason.key if isinstance(reason.key, ObjectKey | RegistryKey) else ObjectKey("", str(reason.key))
    kind = parse_kind(reason.table)
    fields = {"group": kind.group, "kind": kind.name} | key._asdict()
    if (place := place_of(reason)) is not None:
        fields |= place._asdict()
    return {field: text for field, text in fields.items() if text} | {
        "through": [_name(node) for node in reason.path],
        "via": list(_topics(reason.path)),
    }


def _topics(nodes: Iterable[Node]) -> dict[str, None]:
    """Return the topics of derivations in order, each once. Derivations that are only technical have none."""
    topics: dict[str, None] = {}
    for node in nodes:
        parts = str(node.fn.__module__).split(".")
        prefixes = (".".join(parts[:length]) for length in range(len(parts), 1, -1))
        if topic := next((_TOPICS[prefix] for prefix in prefixes if prefix in _TOPICS), ""):
            topics[topic] = None
    return topics


def _name(node: Node) -> str:
    """Return the name of a derivation.

    The name of a table's index includes the indexed field, as in "networking.istio.io/VirtualService by host".
    """
    name = str(node.fn)
    return f"{name} {node.args[0]}" if name.endswith(" by") else name


async def _missing_cluster(sources: Sources, connection: ConnectedProxy, name: str) -> str:
    """Return why a proxy does not have a cluster, and its rejections that name the cluster, or "" for other names."""
    why = await explain_missing_cluster(sources, connection, name)
    watches = connection.subscriptions.values()
    if any(unknown_cluster(watch.last_error) == name for watch in watches):
        rejections = [one.text for one in await explain_rejections(sources, connection, is_brief=True)]
        return "; ".join(filter(None, (why, *(f"{connection.proxy.id} {text}" for text in rejections if name in text))))
    return why


def _refuse(proxy: str, name: str, names: list[str], why: str) -> NoReturn:
    close = difflib.get_close_matches(name, dict.fromkeys(names), n=3, cutoff=0.5)
    close = close or [other for other in dict.fromkeys(names) if name and name in other][:3]
    lists = f"pilotctl proxy-config all {proxy} lists the names"
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else lists
    raise Refused(404, f"{proxy} has no resource {name!r}{f': {why}' if why else ''}; {hint}\n")
