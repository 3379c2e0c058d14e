"""VirtualServices with qualified names and merged delegates, and their visibility.

The binding of a VirtualService (`Binding`) is separate from its rules, so an edit to the rules affects only its hosts.
Lists are in order of precedence. VirtualServices in the viewer's namespace that are not public are first, followed by
those that other namespaces export to it by name, and then by public ones. Each group is ordered by age.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.networking.virtual_service import Delegate, HTTPRoute, VirtualService
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import Problems, warning
from pilot.derive import Gather, derived, hub
from pilot.lib.hosts import is_wildcard, matches, most_specific
from pilot.mesh.model.facets import ScopeFacet
from pilot.mesh.scope.egress_hosts import ANY_NAMESPACE, EgressHostsKey
from pilot.mesh.scope.sidecar_scope import egress_listeners
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config
from pilot.mesh.traffic.delegation import MAX_MERGED_PAIRS, count_pairs, merge_routes
from pilot.mesh.traffic.virtual_service_names import MESH, qualify_names

PUBLIC, NOBODY, OWN = "*", "~", "."
MAX_GATEWAYS = 32
"""Maximum number of gateways that a VirtualService is bound to. Further ones are ignored."""

K = TypeVar("K")


class Binding(msgspec.Struct, frozen=True, cache_hash=True):
    """The hosts, gateways and namespaces that a VirtualService is bound to.

    - `export_to`: the namespaces in which it is visible, {"*"} for all, or {} for none.
    - `by_route`: it was converted from routes of the Gateway API. Clients in the mesh use such routes if they are in
      their own namespace, where they are first, or in the service's namespace.
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
        """Return the binding's rank among the visible bindings in a namespace, or None if it is not visible."""
        if PUBLIC in self.export_to:
            return 2
        if viewer in self.export_to:
            return 0 if viewer == self.key.namespace else 1
        return None

    def is_own_route(self, viewer: str) -> bool:
        """Return whether the binding was converted from routes in the namespace `viewer`."""
        return self.by_route and self.key.namespace == viewer

    def applies(self, viewer: str, owner: str) -> bool:
        """Return whether the binding applies to clients in the namespace `viewer` that request a service in the
        namespace `owner`."""
        return not self.by_route or self.key.namespace in (viewer, owner)


# -- one VirtualService ------------------------------------------------------------------------------------------------


@derived
def qualified(db: Mesh, key: ObjectKey) -> Object[VirtualService] | None:
    """Return a VirtualService with qualified names, or None if it does not exist."""
    row: Object[VirtualService] | None = VIRTUAL_SERVICE.get(db, key)
    if row is None or is_made_of_routes(row):
        return row
    return replace(row, spec=qualify_names(row.spec, key.namespace, db.settings.registry.domain))


def is_made_of_routes(o: Object[VirtualService]) -> bool:
    """Return whether a VirtualService was converted from routes of the Gateway API. Its names are already qualified."""
    return o.origin is not None and o.origin.semantics == "gateway"


@derived
def virtual_service(db: Mesh, key: ObjectKey) -> Object[VirtualService] | None:
    """Return a VirtualService with qualified names and merged delegates, or None if it is missing or a delegate."""
    row = qualified(db, key)
    if row is None or not row.spec.hosts:
        return None
    if is_made_of_routes(row) or not any(rule.delegate for rule in row.spec.http):
        return row
    delegated = _delegations(db, key)
    rules = (delegated[index].rules if rule.delegate else (rule,) for index, rule in enumerate(row.spec.http))
    return replace(row, spec=replace(row.spec, http=tuple(itertools.chain.from_iterable(rules))))


class Delegation(NamedTuple):
    """The rules that replace a rule that has a delegate. `reason` explains why some or all rules are omitted.

    `pairs` is the number of pairs of matches that were merged.
    """

    rules: tuple[HTTPRoute, ...] = ()
    reason: str = ""
    pairs: int = 0


@derived
def _delegations(db: Mesh, root: ObjectKey) -> Mapping[int, Delegation]:
    """Return the delegations of a VirtualService by the index of the rule."""
    row = qualified(db, root)
    delegations: dict[int, Delegation] = {}
    pairs = MAX_MERGED_PAIRS
    for index, rule in enumerate(row.spec.http if row is not None else ()):
        if rule.delegate is not None:
            delegations[index] = _delegation(db, root, rule, rule.delegate, pairs)
            pairs -= delegations[index].pairs
    return delegations


def _delegation(db: Mesh, root: ObjectKey, rule: HTTPRoute, delegate: Delegate, pairs: int) -> Delegation:
    """Return the delegation of a rule, for which at most `pairs` pairs of matches are merged."""
    key = ObjectKey(delegate.namespace or root.namespace, delegate.name)
    row = qualified(db, key)
    if row is None:
        return Delegation(reason=f"VirtualService {key.namespace}/{key.name} not found")
    if row.spec.hosts:
        return Delegation(reason=f"VirtualService {key.namespace}/{key.name} has hosts, so it cannot be a delegate")
    if not {PUBLIC, root.namespace} & exported_to(db, row.spec.export_to, key.namespace):
        return Delegation(
            reason=f"VirtualService {key.namespace}/{key.name} is not exported to namespace {root.namespace}"
        )
    needed = count_pairs(rule, row.spec.http)
    if needed > pairs:
        return Delegation(
            reason=f"the matches of this rule and of VirtualService {key.namespace}/{key.name} have {needed} "
            f"combinations; all rules together can have at most {MAX_MERGED_PAIRS}"
        )
    merged = merge_routes(rule, row.spec.http)
    reason = f"matches of VirtualService {key.namespace}/{key.name} contradict those of the root"
    return Delegation(merged, "" if len(merged) == len(row.spec.http) else reason, needed)


def check_gateway_count(spec: VirtualService) -> Problems:
    """Yield a problem for a VirtualService with too many gateways."""
    if (count := len(set(spec.gateways))) > MAX_GATEWAYS:
        yield warning(
            "too-many", "gateways", f"of its {count} gateways, the first {MAX_GATEWAYS} are used and the others ignored"
        )


def check_delegates(db: Mesh, o: Object[VirtualService]) -> Problems:
    """Yield a problem for each rule of a VirtualService whose delegate is missing, not visible, contradictory or too
    large."""
    for index, delegation in _delegations(db, o.key).items() if o.spec.hosts else ():
        if delegation.reason:
            yield warning("delegate", f"http[{index}].delegate", delegation.reason)


@derived
def binding(db: Mesh, key: ObjectKey) -> Binding | None:
    """Return the binding of a VirtualService, or None if it is a delegate or does not exist."""
    row = qualified(db, key)
    if row is None or not row.spec.hosts:
        return None
    exported = exported_to(db, row.spec.export_to, key.namespace)
    gateways = tuple(dict.fromkeys(row.spec.gateways))[:MAX_GATEWAYS] or (MESH,)
    return Binding(key, row.created, row.spec.hosts, gateways, exported, is_made_of_routes(row))


def exported_to(db: Mesh, export_to: tuple[str, ...], namespace: str) -> frozenset[str]:
    """Return the namespaces in which an object with this exportTo is visible. If it is empty, the mesh's default
    applies."""
    return visible_to(export_to or default_export(db), namespace)


@derived
def default_export(db: Mesh) -> tuple[str, ...]:
    """Return `defaultVirtualServiceExportTo` in the mesh config."""
    return mesh_config(db).default_virtual_service_export_to or (PUBLIC,)


def visible_to(export_to: Iterable[str], namespace: str) -> frozenset[str]:
    """Return the namespaces in `export_to`, with `.` replaced with `namespace`.

    If it contains `*`, return only `*`. Otherwise, if it contains `~`, return no namespaces.
    """
    names = {namespace if e == OWN else e for e in export_to}
    if PUBLIC in names:
        return frozenset((PUBLIC,))
    return frozenset() if NOBODY in names else frozenset(names)


# -- visibility in namespaces ------------------------------------------------------------------------------------------


@hub
def virtual_service_keys(db: Mesh, namespace: str) -> tuple[ObjectKey, ...]:
    """Return the keys of a namespace's VirtualServices."""
    return VIRTUAL_SERVICE.keys(db, "namespace", namespace)


_bindings: Gather[ObjectKey, [str], Binding] = Gather(
    "bindings", virtual_service_keys, binding, passed=lambda key, namespace: ()
)


@derived
def bindings_in(db: Mesh, namespace: str) -> tuple[Binding, ...]:
    """Return the bindings of a namespace's VirtualServices, ordered by age."""
    return tuple(sorted(_bindings(db, namespace).values(), key=lambda b: b.age))


@derived
def _namespaces(db: Mesh) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key.namespace for key in VIRTUAL_SERVICE.all_keys(db)))


class BindingsByViewer(NamedTuple):
    """All bindings, ordered by age.

    Public bindings are keyed by gateway, and other bindings by the viewer's namespace and the gateway. `private`
    contains bindings in the viewer's namespace, and `exported` contains bindings in other namespaces.
    """

    public: Mapping[str, tuple[Binding, ...]]
    private: Mapping[tuple[str, str], tuple[Binding, ...]]
    exported: Mapping[tuple[str, str], tuple[Binding, ...]]


@hub
def bindings_by_viewer(db: Mesh) -> BindingsByViewer:
    """Return all bindings in the mesh, grouped by viewer and gateway."""
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
    """Return the bindings to a gateway (`mesh` or `namespace/name`) that are visible in a namespace, in order of
    precedence."""
    everything = bindings_by_viewer(db)
    own, other = everything.private.get((namespace, gateway), ()), everything.exported.get((namespace, gateway), ())
    public = everything.public.get(gateway, ())
    if any(b.is_own_route(namespace) for b in public):
        public = tuple(sorted(public, key=lambda b: not b.is_own_route(namespace)))
    return own + other + public if own or other else public


@derived
def virtual_services_for(db: Mesh, namespace: str, gateway: str) -> tuple[ObjectKey, ...]:
    """Return the VirtualServices of a gateway that are visible in a namespace, in order of precedence."""
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
    """Return the namespaces that do not have the default view of the mesh's VirtualServices.

    Either VirtualServices that are not public are visible in them, or their own routes take precedence.
    """
    everything = bindings_by_viewer(db)
    own = frozenset(b.key.namespace for b in everything.public.get(MESH, ()) if b.by_route)
    return own.union(
        viewer for by in (everything.private, everything.exported) for viewer, gateway in by if gateway == MESH
    )


@derived
def egress_virtual_services(db: Mesh, scope: ScopeFacet, index: int) -> tuple[ObjectKey, ...]:
    """Return the VirtualServices that the egress listener at `index` imports, in order of precedence."""
    hosts = None if scope.gateway else egress_listeners(db, scope)[index].hosts
    bindings = egress_bindings(db, scope.namespace, hosts)
    return _keys(db, bindings, MESH) if hosts is None or hosts.everything else tuple(b.key for b in bindings)


@derived
def egress_bindings(db: Mesh, namespace: str, hosts: EgressHostsKey | None) -> tuple[Binding, ...]:
    """Return the bindings to the mesh that are visible in a namespace and match the hosts of an egress listener.

    If `hosts` is None, they match all bindings.
    """
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
    """Return whether a VirtualService is imported.

    At least one of its hosts must overlap with a host that is imported from its namespace, and must not be excluded. An
    imported host must match those of routes of the Gateway API completely.
    """
    if hosts is None or hosts.everything:
        return True
    sets = [s for s in (hosts.find(bound.key.namespace), hosts.everywhere) if s is not None]
    return any(
        any(s.imports(h) if bound.by_route else s.overlaps(h) for s in sets) and not any(s.excludes(h) for s in sets)
        for h in bound.hosts
    )


# -- VirtualServices for a host ----------------------------------------------------------------------------------------


class ViewerKey(msgspec.Struct, frozen=True, cache_hash=True):
    """A view of the mesh's VirtualServices: those that are visible in a namespace and match `hosts`.

    If the namespace is "", only public ones are visible. If `hosts` is None, all match.
    """

    namespace: str
    hosts: EgressHostsKey | None = None

    def sort(self, bindings: Iterable[Binding]) -> list[Binding]:
        """Return the bindings in the view, in order of precedence."""
        ranked = [
            (rank, not b.is_own_route(self.namespace), b.age, b)
            for b in bindings
            if MESH in b.gateways and (rank := b.rank(self.namespace)) is not None and imports(self.hosts, b)
        ]
        return [b for *_, b in sorted(ranked)] if len(ranked) > 1 else [b for *_, b in ranked]


@derived
def virtual_services_of(db: Mesh, host: str, owner: str, viewer: ViewerKey) -> tuple[ObjectKey, ...]:
    """Return the VirtualServices that may route requests to a service, in order of precedence.

    These are the VirtualServices with exactly the host `host`. If there are none, the one with the longest wildcard
    that matches the host is returned. `owner` is the service's namespace.
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
    """Return the VirtualServices that a waypoint applies to requests to a service, in order of precedence.

    They are in the namespace of the waypoint or of the service. All VirtualServices that match the host apply,
    including those with wildcards.
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
    """Return the wildcard hosts in a view. Each is mapped to the first VirtualService that has it."""
    first: dict[str, ObjectKey] = {}
    for bound in viewer.sort(_wildcard_bindings(db)):
        for host in bound.hosts:
            if is_wildcard(host):
                first.setdefault(host.lower(), bound.key)
    return first
