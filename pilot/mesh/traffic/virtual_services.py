"""VirtualServices as they are meant: whole names, delegates merged; and which of them a proxy's namespace sees.

What a VirtualService is bound to (`Binding`) is read apart from its rules, so that an edit of the rules reaches nothing but the
hosts that it is for. Lists are in the order in which VirtualServices that compete are tried: those exported to the viewer's
namespace alone, those exported to it from others, those exported to all; by age in each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.networking.virtual_service import HTTPRoute, VirtualService
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import Problems, warning
from pilot.derive import Gather, derived, hub
from pilot.lib.hosts import is_wildcard, matches, most_specific, subset_of
from pilot.mesh.model.facets import ScopeFacet
from pilot.mesh.scope.egress_hosts import ANY_NAMESPACE, EgressHostsKey, HostSet
from pilot.mesh.scope.sidecar_scope import egress_listeners
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config
from pilot.mesh.traffic.delegation import merge_routes
from pilot.mesh.traffic.virtual_service_names import MESH, qualify_names

PUBLIC, NOBODY, OWN = "*", "~", "."

K = TypeVar("K")


class Binding(msgspec.Struct, frozen=True, cache_hash=True):
    """The hosts, gateways and namespaces that a VirtualService is bound to. `export_to` is {"*"} for all namespaces, {} for none.

    `by_route`: it is made of routes of the Gateway API. Of those for the mesh a client follows the ones of its own namespace, which come
    first, and those of the service's namespace.
    """

    key: ObjectKey
    created: str
    hosts: tuple[str, ...]
    gateways: tuple[str, ...]
    export_to: frozenset[str]
    by_route: bool = False

    @property
    def age(self) -> tuple[str, str, str]:
        return self.created, self.key.name, self.key.namespace

    def rank(self, viewer: str) -> int | None:
        """Returns its place among what a namespace sees, None where that does not see it."""
        if PUBLIC in self.export_to:
            return 2
        if viewer in self.export_to:
            return 0 if viewer == self.key.namespace else 1
        return None

    def is_own_route(self, viewer: str) -> bool:
        """Returns whether it is made of routes of that namespace."""
        return self.by_route and self.key.namespace == viewer

    def reaches(self, viewer: str, owner: str) -> bool:
        """Returns whether clients of a namespace follow it to a service of namespace `owner`."""
        return not self.by_route or self.key.namespace in (viewer, owner)


# -- one VirtualService ----------------------------------------------------------------------------------------------------


@derived
def qualified(db: Mesh, key: ObjectKey) -> Object[VirtualService] | None:
    """Returns the object as written, with whole names."""
    row: Object[VirtualService] | None = VIRTUAL_SERVICE.get(db, key)
    if row is None or is_made_of_routes(row):
        return row
    return replace(row, spec=qualify_names(row.spec, key.namespace, db.settings.registry.domain))


def is_made_of_routes(o: Object[VirtualService]) -> bool:
    """Returns whether a VirtualService is what routes of the Gateway API became; its names are whole."""
    return o.origin is not None and o.origin.semantics == "gateway"


@derived
def virtual_service(db: Mesh, key: ObjectKey) -> Object[VirtualService] | None:
    """Returns the object with whole names (gateways are `namespace/name` or `mesh`) and delegates merged in; None if it is a delegate itself."""
    found = qualified(db, key)
    if found is None or not found.spec.hosts:
        return None
    if not any(rule.delegate for rule in found.spec.http):
        return found
    rules = tuple(
        r for rule in found.spec.http for r in (_delegated(db, key, rule).rules if rule.delegate else (rule,))
    )
    return replace(found, spec=replace(found.spec, http=rules))


class Delegated(NamedTuple):
    """The rules that a rule with a delegate becomes, or the reason why it becomes nothing."""

    rules: tuple[HTTPRoute, ...] = ()
    reason: str = ""


def _delegated(db: Mesh, root: ObjectKey, rule: HTTPRoute) -> Delegated:
    assert rule.delegate is not None
    key = ObjectKey(rule.delegate.namespace or root.namespace, rule.delegate.name)
    found = qualified(db, key)
    if found is None:
        return Delegated(reason=f"no VirtualService {key.namespace}/{key.name}")
    if found.spec.hosts:
        return Delegated(
            reason=f"VirtualService {key.namespace}/{key.name} has hosts of its own, so it cannot be a delegate"
        )
    if not {PUBLIC, root.namespace} & exported_to(db, found.spec.export_to, key.namespace):
        return Delegated(
            reason=f"VirtualService {key.namespace}/{key.name} is not exported to namespace {root.namespace}"
        )
    merged = merge_routes(rule, found.spec.http)
    return Delegated(
        merged,
        ""
        if len(merged) == len(found.spec.http)
        else f"conditions of {key.namespace}/{key.name} contradict the root's",
    )


def check_delegates(db: Mesh, o: Object[VirtualService]) -> Problems:
    """Yields a problem for each rule of a VirtualService with whole names whose delegate is missing, out of sight, or contradicts it."""
    for index, rule in enumerate(o.spec.http):
        reason = _delegated(db, o.key, rule).reason if rule.delegate and o.spec.hosts else ""
        if reason:
            yield warning("delegate", f"http[{index}].delegate", reason)


@derived
def binding(db: Mesh, key: ObjectKey) -> Binding | None:
    """Returns what a VirtualService is bound to; None for a delegate."""
    found = qualified(db, key)
    if found is None or not found.spec.hosts:
        return None
    exported = exported_to(db, found.spec.export_to, key.namespace)
    gateways = tuple(dict.fromkeys(found.spec.gateways)) or (MESH,)
    return Binding(key, found.created, found.spec.hosts, gateways, exported, is_made_of_routes(found))


def exported_to(db: Mesh, export_to: tuple[str, ...], namespace: str) -> frozenset[str]:
    """Returns the namespaces that may see an object which says `export_to`, by the mesh's default where it says nothing."""
    return visible_to(export_to or default_export(db), namespace)


@derived
def default_export(db: Mesh) -> tuple[str, ...]:
    """Returns `defaultVirtualServiceExportTo` of the mesh config."""
    return mesh_config(db).default_virtual_service_export_to or (PUBLIC,)


def visible_to(export_to: Iterable[str], namespace: str) -> frozenset[str]:
    """Returns `exportTo` with names in place of `.`; `*` beats all others, then `~` does."""
    names = {namespace if e == OWN else e for e in export_to}
    if PUBLIC in names:
        return frozenset((PUBLIC,))
    return frozenset() if NOBODY in names else frozenset(names)


# -- which of them a namespace sees ----------------------------------------------------------------------------------------


@hub
def virtual_service_keys(db: Mesh, namespace: str) -> tuple[ObjectKey, ...]:
    """Returns the keys of a namespace's VirtualServices."""
    return VIRTUAL_SERVICE.keys(db, "namespace", namespace)


_bindings: Gather[ObjectKey, [str], Binding] = Gather(
    "bindings", virtual_service_keys, binding, passed=lambda namespace: ()
)


@derived
def bindings_in(db: Mesh, namespace: str) -> tuple[Binding, ...]:
    """Returns the bindings of a namespace's VirtualServices, by age."""
    return tuple(sorted(_bindings(db, namespace).values(), key=lambda b: b.age))


@derived
def _namespaces(db: Mesh) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key.namespace for key in VIRTUAL_SERVICE.all_keys(db)))


class BindingsByViewer(NamedTuple):
    """Every VirtualService, by age: by gateway where it is exported to all, by viewer and gateway where it is not."""

    public: Mapping[str, tuple[Binding, ...]]
    private: Mapping[tuple[str, str], tuple[Binding, ...]]
    exported: Mapping[tuple[str, str], tuple[Binding, ...]]


@hub
def bindings_by_viewer(db: Mesh) -> BindingsByViewer:
    """Returns all VirtualServices of the mesh by who sees them."""
    public: dict[str, list[Binding]] = {}
    private: dict[tuple[str, str], list[Binding]] = {}
    exported: dict[tuple[str, str], list[Binding]] = {}
    for bound in sorted((b for namespace in _namespaces(db) for b in bindings_in(db, namespace)), key=lambda b: b.age):
        for gateway in bound.gateways:
            for viewer in bound.export_to:
                if viewer == PUBLIC:
                    public.setdefault(gateway, []).append(bound)
                else:
                    (private if viewer == bound.key.namespace else exported).setdefault((viewer, gateway), []).append(
                        bound
                    )
    return BindingsByViewer(_frozen(public), _frozen(private), _frozen(exported))


def _frozen(lists: dict[K, list[Binding]]) -> dict[K, tuple[Binding, ...]]:
    return {key: tuple(items) for key, items in lists.items()}


@derived
def bindings_for(db: Mesh, namespace: str, gateway: str) -> tuple[Binding, ...]:
    """Returns what a namespace sees that is bound to a gateway (`mesh` or `namespace/name`)."""
    everything = bindings_by_viewer(db)
    own, other = everything.private.get((namespace, gateway), ()), everything.exported.get((namespace, gateway), ())
    public = everything.public.get(gateway, ())
    if any(b.is_own_route(namespace) for b in public):
        public = tuple(sorted(public, key=lambda b: not b.is_own_route(namespace)))
    return own + other + public if own or other else public


@derived
def virtual_services_for(db: Mesh, namespace: str, gateway: str) -> tuple[ObjectKey, ...]:
    """Returns the keys of what a namespace sees that is bound to a gateway (`mesh` or `namespace/name`), in the order they are tried."""
    return _keys(db, bindings_for(db, namespace, gateway), gateway)


def _keys(db: Mesh, bindings: tuple[Binding, ...], gateway: str) -> tuple[ObjectKey, ...]:
    """Returns the keys of bindings. What all see is listed once, not for each namespace that does."""
    return (
        _public_keys(db, gateway)
        if bindings == bindings_by_viewer(db).public.get(gateway)
        else tuple(b.key for b in bindings)
    )


@hub
def _public_keys(db: Mesh, gateway: str) -> tuple[ObjectKey, ...]:
    return tuple(b.key for b in bindings_by_viewer(db).public.get(gateway, ()))


@derived
def viewers(db: Mesh) -> frozenset[str]:
    """Returns the namespaces that see a VirtualService of the mesh which not all see, or see their own routes first; all others see the same."""
    everything = bindings_by_viewer(db)
    own = frozenset(b.key.namespace for b in everything.public.get(MESH, ()) if b.by_route)
    return own.union(
        viewer for by in (everything.private, everything.exported) for viewer, gateway in by if gateway == MESH
    )


@derived
def egress_virtual_services(db: Mesh, scope: ScopeFacet, index: int) -> tuple[ObjectKey, ...]:
    """Returns the keys of what egress listener `index` of a scope imports, in the order they are tried."""
    hosts = None if scope.gateway else egress_listeners(db, scope)[index].hosts
    found = egress_bindings(db, scope.namespace, hosts)
    return _keys(db, found, MESH) if hosts is None or hosts.everything else tuple(b.key for b in found)


@derived
def egress_bindings(db: Mesh, namespace: str, hosts: EgressHostsKey | None) -> tuple[Binding, ...]:
    """Returns what a namespace sees of the mesh's VirtualServices through the host sets of an egress listener (None: everything)."""
    if hosts is None or hosts.everything:
        return bindings_for(db, namespace, MESH)
    if hosts.everywhere is not None and hosts.everywhere.hosts:
        return tuple(b for b in bindings_for(db, namespace, MESH) if imports(hosts, b))
    return tuple(
        ViewerKey(namespace, hosts).sort(
            b for where, _ in hosts.by_namespace if where != ANY_NAMESPACE for b in bindings_in(db, where)
        )
    )


def imports(hosts: EgressHostsKey | None, bound: Binding) -> bool:
    """Returns whether a VirtualService is imported: one of its hosts overlaps with one that is imported from its namespace."""
    if hosts is None or hosts.everything:
        return True
    sets = [s for s in (hosts.find(bound.key.namespace), hosts.everywhere) if s is not None]
    return any(
        any(_overlaps(s, h, bound.by_route) for s in sets) and not any(s.excludes(h) for s in sets) for h in bound.hosts
    )


def _overlaps(imported: HostSet, host: str, whole: bool) -> bool:
    """Returns whether a host is imported; where it is not asked for as a `whole`, some of a wildcard is enough."""
    wild, overlap = is_wildcard(host), subset_of if whole else matches
    return any(host == h or ((wild or is_wildcard(h)) and overlap(host, h)) for h in imported.hosts)


# -- which of them a host has ----------------------------------------------------------------------------------------------


class ViewerKey(msgspec.Struct, frozen=True, cache_hash=True):
    """Who looks at the mesh's VirtualServices: a namespace ("" for those that see only what all see) through `hosts` (None: all)."""

    namespace: str
    hosts: EgressHostsKey | None = None

    def sort(self, bindings: Iterable[Binding]) -> list[Binding]:
        """Returns those that the viewer sees, in the order they are tried."""
        seen = [
            (rank, not b.is_own_route(self.namespace), b.age, b)
            for b in bindings
            if MESH in b.gateways and (rank := b.rank(self.namespace)) is not None and imports(self.hosts, b)
        ]
        return [b for *_, b in sorted(seen)] if len(seen) > 1 else [b for *_, b in seen]


@derived
def virtual_services_of(db: Mesh, host: str, owner: str, viewer: ViewerKey) -> tuple[ObjectKey, ...]:
    """Returns the keys of those that may route a service of that host name and namespace, in the order they are tried.

    Those that name it; without any, the one with the longest wildcard that covers it.
    """
    name = host.lower()
    if not is_wildcard(name):
        found = [b for key in VIRTUAL_SERVICE.keys(db, "host", name) if (b := binding(db, key)) is not None]
        named = [b for b in found if b.reaches(viewer.namespace, owner)]
        if shown := viewer.sort(named):
            return tuple(b.key for b in shown)
    wild = _wildcards(db, viewer)
    closest = most_specific(name, wild) if wild else None
    return (wild[closest],) if closest is not None else ()


@derived
def virtual_services_at_waypoint(db: Mesh, host: str, owner: str, namespace: str) -> tuple[ObjectKey, ...]:
    """Returns the keys of those that a waypoint of a namespace applies to a service of that host name and namespace, in the order they are tried.

    Only the namespaces of the two have a say; all that cover the service count, wildcards too.
    """
    name = host.lower()
    named = (binding(db, key) for key in VIRTUAL_SERVICE.keys(db, "host", name))
    found = [b for b in (*named, *_wildcard_bindings(db)) if b is not None and b.key.namespace in (namespace, owner)]
    covering = {b.key: b for b in found if any(matches(h.lower(), name) for h in b.hosts)}
    return tuple(b.key for b in ViewerKey(namespace).sort(covering.values()))


@hub
def _wildcard_bindings(db: Mesh) -> tuple[Binding, ...]:
    found = (binding(db, key) for key in VIRTUAL_SERVICE.keys(db, "wildcard", True))
    return tuple(b for b in found if b is not None and not b.by_route)


@derived
def _wildcards(db: Mesh, viewer: ViewerKey) -> Mapping[str, ObjectKey]:
    """Returns wildcard hosts, each with the first VirtualService that has it."""
    found: dict[str, ObjectKey] = {}
    for bound in viewer.sort(_wildcard_bindings(db)):
        for host in bound.hosts:
            if is_wildcard(host):
                found.setdefault(host.lower(), bound.key)
    return found
