"""VirtualServices with qualified names and merged delegates, and their visibility.

The bindings of a VirtualService (`Binding`) are separate from its rules, so an edit of the rules affects only its
hosts. Lists are in order of precedence: those exported only to the viewer's namespace, those exported to it from
others, those exported to all; by age in each group.
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
    """The hosts, gateways and namespaces that a VirtualService is bound to.

    export_to: the namespaces that see it, {"*"} for all, {} for none.
    by_route: it was converted from routes of the Gateway API. Clients in the mesh use such routes in their own
    namespace,
        which come first, and in the service's namespace.
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
        """Return its rank among the bindings that a namespace sees, or None if it is not visible there."""
        if PUBLIC in self.export_to:
            return 2
        if viewer in self.export_to:
            return 0 if viewer == self.key.namespace else 1
        return None

    def is_own_route(self, viewer: str) -> bool:
        """Return whether it was converted from routes in a namespace."""
        return self.by_route and self.key.namespace == viewer

    def applies(self, viewer: str, owner: str) -> bool:
        """Return whether it applies to clients in one namespace and a service in the namespace `owner`."""
        return not self.by_route or self.key.namespace in (viewer, owner)


# -- one VirtualService ------------------------------------------------------------------------------------------------


@derived
def qualified(db: Mesh, key: ObjectKey) -> Object[VirtualService] | None:
    """Return the object with qualified names."""
    row: Object[VirtualService] | None = VIRTUAL_SERVICE.get(db, key)
    if row is None or is_made_of_routes(row):
        return row
    return replace(row, spec=qualify_names(row.spec, key.namespace, db.settings.registry.domain))


def is_made_of_routes(o: Object[VirtualService]) -> bool:
    """Return whether a VirtualService was converted from routes of the Gateway API. Its names are already qualified."""
    return o.origin is not None and o.origin.semantics == "gateway"


@derived
def virtual_service(db: Mesh, key: ObjectKey) -> Object[VirtualService] | None:
    """Return the object with qualified names and merged delegates, or None if it is a delegate itself."""
    row = qualified(db, key)
    if row is None or not row.spec.hosts:
        return None
    if not any(rule.delegate for rule in row.spec.http):
        return row
    rules = tuple(r for rule in row.spec.http for r in (_delegated(db, key, rule).rules if rule.delegate else (rule,)))
    return replace(row, spec=replace(row.spec, http=rules))


class Delegated(NamedTuple):
    """The rules that replace a rule with a delegate, and the reason if some or all are left out."""

    rules: tuple[HTTPRoute, ...] = ()
    reason: str = ""


def _delegated(db: Mesh, root: ObjectKey, rule: HTTPRoute) -> Delegated:
    assert rule.delegate is not None
    key = ObjectKey(rule.delegate.namespace or root.namespace, rule.delegate.name)
    row = qualified(db, key)
    if row is None:
        return Delegated(reason=f"VirtualService {key.namespace}/{key.name} not found")
    if row.spec.hosts:
        return Delegated(reason=f"VirtualService {key.namespace}/{key.name} has hosts, so it cannot be a delegate")
    if not {PUBLIC, root.namespace} & exported_to(db, row.spec.export_to, key.namespace):
        return Delegated(
            reason=f"VirtualService {key.namespace}/{key.name} is not exported to namespace {root.namespace}"
        )
    merged = merge_routes(rule, row.spec.http)
    complete = len(merged) == len(row.spec.http)
    return Delegated(merged, "" if complete else f"matches of {key.namespace}/{key.name} contradict the root's")


def check_delegates(db: Mesh, o: Object[VirtualService]) -> Problems:
    """Yield a problem for each rule of a qualified VirtualService whose delegate is missing, invisible or
    contradictory."""
    for index, rule in enumerate(o.spec.http):
        reason = _delegated(db, o.key, rule).reason if rule.delegate and o.spec.hosts else ""
        if reason:
            yield warning("delegate", f"http[{index}].delegate", reason)


@derived
def binding(db: Mesh, key: ObjectKey) -> Binding | None:
    """Return the binding of a VirtualService, or None for a delegate."""
    row = qualified(db, key)
    if row is None or not row.spec.hosts:
        return None
    exported = exported_to(db, row.spec.export_to, key.namespace)
    gateways = tuple(dict.fromkeys(row.spec.gateways)) or (MESH,)
    return Binding(key, row.created, row.spec.hosts, gateways, exported, is_made_of_routes(row))


def exported_to(db: Mesh, export_to: tuple[str, ...], namespace: str) -> frozenset[str]:
    """Return the namespaces that see an object with this exportTo. The mesh's default applies if it is empty."""
    return visible_to(export_to or default_export(db), namespace)


@derived
def default_export(db: Mesh) -> tuple[str, ...]:
    """Return `defaultVirtualServiceExportTo` of the mesh config."""
    return mesh_config(db).default_virtual_service_export_to or (PUBLIC,)


def visible_to(export_to: Iterable[str], namespace: str) -> frozenset[str]:
    """Return exportTo with `.` replaced by the namespace. `*` takes precedence over all others, then `~`."""
    names = {namespace if e == OWN else e for e in export_to}
    if PUBLIC in names:
        return frozenset((PUBLIC,))
    return frozenset() if NOBODY in names else frozenset(names)


# -- visibility by namespace -------------------------------------------------------------------------------------------


@hub
def virtual_service_keys(db: Mesh, namespace: str) -> tuple[ObjectKey, ...]:
    """Return the keys of a namespace's VirtualServices."""
    return VIRTUAL_SERVICE.keys(db, "namespace", namespace)


_bindings: Gather[ObjectKey, [str], Binding] = Gather(
    "bindings", virtual_service_keys, binding, passed=lambda namespace: ()
)


@derived
def bindings_in(db: Mesh, namespace: str) -> tuple[Binding, ...]:
    """Return the bindings of a namespace's VirtualServices, by age."""
    return tuple(sorted(_bindings(db, namespace).values(), key=lambda b: b.age))


@derived
def _namespaces(db: Mesh) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key.namespace for key in VIRTUAL_SERVICE.all_keys(db)))


class BindingsByViewer(NamedTuple):
    """All bindings by age: public ones by gateway, others by viewer and gateway.

    `private` has those in the viewer's namespace, `exported` those from other namespaces.
    """

    public: Mapping[str, tuple[Binding, ...]]
    private: Mapping[tuple[str, str], tuple[Binding, ...]]
    exported: Mapping[tuple[str, str], tuple[Binding, ...]]


@hub
def bindings_by_viewer(db: Mesh) -> BindingsByViewer:
    """Return all bindings in the mesh by viewer."""
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
    """Return the bindings to a gateway (`mesh` or `namespace/name`) that a namespace sees."""
    everything = bindings_by_viewer(db)
    own, other = everything.private.get((namespace, gateway), ()), everything.exported.get((namespace, gateway), ())
    public = everything.public.get(gateway, ())
    if any(b.is_own_route(namespace) for b in public):
        public = tuple(sorted(public, key=lambda b: not b.is_own_route(namespace)))
    return own + other + public if own or other else public


@derived
def virtual_services_for(db: Mesh, namespace: str, gateway: str) -> tuple[ObjectKey, ...]:
    """Return the keys of the VirtualServices of a gateway that a namespace sees, in order of precedence."""
    return _keys(db, bindings_for(db, namespace, gateway), gateway)


def _keys(db: Mesh, bindings: tuple[Binding, ...], gateway: str) -> tuple[ObjectKey, ...]:
    """Return the keys of bindings. The keys of public bindings are shared between namespaces."""
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
    """Return the namespaces whose view of the mesh's VirtualServices differs from that of all others.

    They see VirtualServices that are not public, or have their own routes, which come first.
    """
    everything = bindings_by_viewer(db)
    own = frozenset(b.key.namespace for b in everything.public.get(MESH, ()) if b.by_route)
    return own.union(
        viewer for by in (everything.private, everything.exported) for viewer, gateway in by if gateway == MESH
    )


@derived
def egress_virtual_services(db: Mesh, scope: ScopeFacet, index: int) -> tuple[ObjectKey, ...]:
    """Return the keys of the VirtualServices that egress listener `index` imports, in order of precedence."""
    hosts = None if scope.gateway else egress_listeners(db, scope)[index].hosts
    bindings = egress_bindings(db, scope.namespace, hosts)
    return _keys(db, bindings, MESH) if hosts is None or hosts.everything else tuple(b.key for b in bindings)


@derived
def egress_bindings(db: Mesh, namespace: str, hosts: EgressHostsKey | None) -> tuple[Binding, ...]:
    """Return the bindings to the mesh that a namespace sees through an egress listener's hosts, or all for None."""
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
    """Return whether a VirtualService is imported: one of its hosts overlaps with a host imported from its
    namespace."""
    if hosts is None or hosts.everything:
        return True
    sets = [s for s in (hosts.find(bound.key.namespace), hosts.everywhere) if s is not None]
    return any(
        any(_overlaps(s, h, bound.by_route) for s in sets) and not any(s.excludes(h) for s in sets) for h in bound.hosts
    )


def _overlaps(imported: HostSet, host: str, whole: bool) -> bool:
    """Return whether a host is imported. Unless `whole` is set, a partial overlap with a wildcard is enough."""
    wild, overlap = is_wildcard(host), subset_of if whole else matches
    return any(host == h or ((wild or is_wildcard(h)) and overlap(host, h)) for h in imported.hosts)


# -- VirtualServices by host -------------------------------------------------------------------------------------------


class ViewerKey(msgspec.Struct, frozen=True, cache_hash=True):
    """A view of the mesh's VirtualServices: by namespace ("" sees only public ones), limited to `hosts` (None: all)."""

    namespace: str
    hosts: EgressHostsKey | None = None

    def sort(self, bindings: Iterable[Binding]) -> list[Binding]:
        """Return the bindings that the viewer sees, in order of precedence."""
        ranked = [
            (rank, not b.is_own_route(self.namespace), b.age, b)
            for b in bindings
            if MESH in b.gateways and (rank := b.rank(self.namespace)) is not None and imports(self.hosts, b)
        ]
        return [b for *_, b in sorted(ranked)] if len(ranked) > 1 else [b for *_, b in ranked]


@derived
def virtual_services_of(db: Mesh, host: str, owner: str, viewer: ViewerKey) -> tuple[ObjectKey, ...]:
    """Return the keys of the VirtualServices that may route a service, by its host and namespace, in order of
    precedence.

    These are the VirtualServices with exactly this host, else the one with the longest wildcard that covers it.
    """
    name = host.lower()
    if not is_wildcard(name):
        exact = [b for key in VIRTUAL_SERVICE.keys(db, "host", name) if (b := binding(db, key)) is not None]
        if visible := viewer.sort(b for b in exact if b.applies(viewer.namespace, owner)):
            return tuple(b.key for b in visible)
    wild = _wildcards(db, viewer)
    closest = most_specific(name, wild) if wild else None
    return (wild[closest],) if closest is not None else ()


@derived
def virtual_services_at_waypoint(db: Mesh, host: str, owner: str, namespace: str) -> tuple[ObjectKey, ...]:
    """Return the keys of the VirtualServices that a waypoint applies to a service, in order of precedence.

    They are in the namespace of the waypoint or of the service, and all that cover the host apply, including wildcards.
    """
    name = host.lower()
    exact = (binding(db, key) for key in VIRTUAL_SERVICE.keys(db, "host", name))
    candidates = [b for b in (*exact, *_wildcard_bindings(db)) if b and b.key.namespace in (namespace, owner)]
    covering = {b.key: b for b in candidates if any(matches(h.lower(), name) for h in b.hosts)}
    return tuple(b.key for b in ViewerKey(namespace).sort(covering.values()))


@hub
def _wildcard_bindings(db: Mesh) -> tuple[Binding, ...]:
    bindings = (binding(db, key) for key in VIRTUAL_SERVICE.keys(db, "wildcard", True))
    return tuple(b for b in bindings if b is not None and not b.by_route)


@derived
def _wildcards(db: Mesh, viewer: ViewerKey) -> Mapping[str, ObjectKey]:
    """Return wildcard hosts, each with the first VirtualService that has it."""
    first: dict[str, ObjectKey] = {}
    for bound in viewer.sort(_wildcard_bindings(db)):
        for host in bound.hosts:
            if is_wildcard(host):
                first.setdefault(host.lower(), bound.key)
    return first
