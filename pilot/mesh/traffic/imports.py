"""The services that a scope sees: those that its egress listeners import, and those that virtual services there lead to.

Only the namespaces that a Sidecar names are read, so that a service which it does not see costs its proxies nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pilot.config.networking.virtual_service import Destination, VirtualService
from pilot.config.object import ObjectKey
from pilot.derive import Gather, derived, hub
from pilot.mesh.model.facets import ScopeFacet
from pilot.mesh.model.service import Port, Registry, Service, ServiceRef
from pilot.mesh.registry.services import (
    is_visible,
    public_refs,
    refs_by_hostname,
    refs_in_namespace,
    service,
    service_summary,
    visible_refs,
)
from pilot.mesh.scope.egress_hosts import ANY_NAMESPACE, EgressHostsKey
from pilot.mesh.scope.sidecar_scope import egress_listeners
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.virtual_services import egress_virtual_services, virtual_service, virtual_service_keys


class ImportKey(NamedTuple):
    """A service that a scope sees; `ports` are the numbers of those that it sees, None for all."""

    ref: ServiceRef
    ports: tuple[int, ...] | None = None

    def visible_ports(self, seen: Service) -> tuple[Port, ...]:
        """Returns the imported ports of the service that `ref` names."""
        return seen.ports if self.ports is None else tuple(p for p in seen.ports if p.number in self.ports)


@derived
def egress_services(db: Mesh, scope: ScopeFacet, index: int) -> tuple[ImportKey, ...]:
    """Returns the services that egress listener `index` imports, by age; of one host name in several namespaces, one."""
    listener = egress_listeners(db, scope)[index]
    if listener.hosts.everything:
        refs: Iterable[ServiceRef] = visible_refs(db, scope.namespace)
        if not listener.match_port and refs == public_refs(db) and (shared := _public_imports(db)) is not None:
            return shared
    else:
        refs = [
            r
            for r in _candidates(db, listener.hosts, scope.namespace)
            if listener.hosts.imports(r.hostname, r.namespace)
        ]
    imports: list[ImportKey] = []
    if listener.match_port and listener.port is not None:
        imports = [i for r in refs if (i := _at_port(db, r, listener.port.number)) is not None]
    else:
        imports = [ImportKey(r) for r in refs]
    return _one_namespace_each(db, imports, scope.namespace)


@hub
def _public_imports(db: Mesh) -> tuple[ImportKey, ...] | None:
    """Returns the imports of all who see just what everybody sees; None where that depends on who looks, because a host name repeats."""
    refs = public_refs(db)
    return tuple(map(ImportKey, refs)) if len({ref.hostname for ref in refs}) == len(refs) else None


def _candidates(db: Mesh, hosts: EgressHostsKey, namespace: str) -> list[ServiceRef]:
    """Returns visible services that may be imported, found in the buckets that the hosts name: by age, but where there are wildcards those that are
    exported to the namespace by name come before public ones."""
    everywhere = hosts.everywhere
    if everywhere is not None and everywhere.wildcards:
        return list(visible_refs(db, namespace))
    buckets: list[Iterable[ServiceRef]] = []
    for where, imported in hosts.by_namespace:
        if imported.wildcards:
            buckets.append(refs_in_namespace(db, where))
        else:
            buckets.extend(
                [r for r in refs_by_hostname(db, host) if where in (ANY_NAMESPACE, r.namespace)]
                for host in sorted(imported.exact)
            )
    exact = everywhere is None and not any(s.wildcards for _, s in hosts.by_namespace)
    seen: dict[ServiceRef, tuple[bool, tuple[str, str, str]]] = {}
    for ref in (r for bucket in buckets for r in bucket):
        listed = service_summary(db, ref)
        if listed is not None and listed.seen_from(namespace):
            seen[ref] = not exact and "*" in listed.exported_to, listed.age
    return sorted(seen, key=lambda r: seen[r])


@derived
def _at_port(db: Mesh, ref: ServiceRef, number: int) -> ImportKey | None:
    """Returns the import of one port of a service; None where it has no such port."""
    found = service(db, ref)
    if found is None or found.port(number) is None:
        return None
    return ImportKey(ref) if len(found.ports) == 1 else ImportKey(ref, (number,))


def _is_kubernetes(db: Mesh, ref: ServiceRef) -> bool:
    found = service(db, ref)
    return found is not None and found.registry is Registry.KUBERNETES


def _one_namespace_each(db: Mesh, imports: list[ImportKey], namespace: str) -> tuple[ImportKey, ...]:
    """Returns the imports with one namespace for each host name: the own namespace's, else Kubernetes' own, else the oldest."""
    chosen: dict[str, str] = {}
    repeated = False
    for ref, _ in imports:
        before = chosen.setdefault(ref.hostname, ref.namespace)
        if before == ref.namespace:
            continue
        repeated = True
        if ref.namespace == namespace or (
            before != namespace and _is_kubernetes(db, ref) and not _is_kubernetes(db, ServiceRef(ref.hostname, before))
        ):
            chosen[ref.hostname] = ref.namespace
    return tuple(i for i in imports if chosen[i.ref.hostname] == i.ref.namespace) if repeated else tuple(imports)


@derived
def scope_services(db: Mesh, scope: ScopeFacet) -> Mapping[str, ImportKey]:
    """Returns every service that the scope needs clusters for, by host name: what its egress listeners import, and where the virtual services of
    these lead to."""
    found: dict[str, ImportKey] = {}
    for index in range(len(egress_listeners(db, scope))):
        for item in egress_services(db, scope, index):
            _add(db, found, item)
        if not scope.gateway:
            for item in _inferred_imports(db, scope, index):
                _add(db, found, item)
    return found


@derived
def imported(db: Mesh, scope: ScopeFacet, hostname: str) -> ImportKey | None:
    """Returns the service that a host name means in a scope."""
    return scope_services(db, scope).get(hostname)


def _add(db: Mesh, found: dict[str, ImportKey], item: ImportKey) -> None:
    """Takes one more import. The first of a host name stays, except that Kubernetes' services come before others; the ports of one service that
    several listeners import add up."""
    before = found.get(item.ref.hostname)
    if before is None:
        found[item.ref.hostname] = item
    elif before.ref == item.ref:
        if before.ports is not None:
            found[item.ref.hostname] = ImportKey(
                item.ref, None if item.ports is None else tuple(dict.fromkeys(before.ports + item.ports))
            )
    elif _is_kubernetes(db, item.ref) and not _is_kubernetes(db, before.ref):
        found[item.ref.hostname] = item


# -- where virtual services lead to ----------------------------------------------------------------------------------------


class Lead(NamedTuple):
    """A host name that a virtual service leads to, with the ports that its routes name, () for all.

    `namespaces`: the only ones whose proxies are led there, () for all.
    """

    host: str
    ports: tuple[int, ...]
    namespaces: tuple[str, ...]


@derived
def _inferred_imports(db: Mesh, scope: ScopeFacet, index: int) -> tuple[ImportKey, ...]:
    """Returns the services that the virtual services of an egress listener lead to, without those that the listener imports anyway."""
    listener = egress_listeners(db, scope)[index]
    keys = egress_virtual_services(db, scope, index)
    leads = {namespace: _leads(db, namespace) for namespace in {key.namespace for key in keys}}
    imported = {i.ref.hostname for i in egress_services(db, scope, index)} if listener.hosts.everything else frozenset()
    port = listener.port.number if listener.match_port and listener.port is not None else None
    found = [
        _inferred(db, lead.host, scope.namespace, port, lead.ports)
        for key in keys
        for lead in leads[key.namespace].get(key, ())
        if lead.host not in imported and (not lead.namespaces or scope.namespace in lead.namespaces)
    ]
    return tuple(i for i in found if i is not None)


@derived
def _inferred(db: Mesh, hostname: str, namespace: str, port: int | None, ports: tuple[int, ...]) -> ImportKey | None:
    """Returns the service that a route to a host name means, with the ports that the routes name (() for all).

    A service of the own namespace comes first, then one of Kubernetes, then the oldest; or, as the settings say, the first by namespace.
    """
    refs = refs_by_hostname(db, hostname)
    chosen = next((r for r in refs if r.namespace == namespace), None)
    if chosen is None:
        seen = [r for r in refs if is_visible(db, r, namespace)]
        if db.settings.registry.best_namespace:
            chosen = next((r for r in seen if _is_kubernetes(db, r)), seen[0] if seen else None)
        else:
            chosen = min(seen, key=lambda ref: ref.namespace, default=None)
    found = service(db, chosen) if chosen is not None else None
    if chosen is None or found is None:
        return None
    if port is not None:
        return _at_port(db, chosen, port)
    have = tuple(p.number for p in found.ports if p.number in ports)
    if not ports or len(have) == len(found.ports):
        return ImportKey(chosen)
    return ImportKey(chosen, have) if have else None


@derived
def _leads_of(db: Mesh, key: ObjectKey, _: str) -> tuple[Lead, ...] | None:
    found = virtual_service(db, key)
    return find_leads(found.spec) or None if found is not None else None


_leads: Gather[ObjectKey, [str], tuple[Lead, ...]] = Gather("leads", virtual_service_keys, _leads_of)


def find_leads(spec: VirtualService) -> tuple[Lead, ...]:
    """Returns where the routes of a virtual service lead to. A destination without a port means all of the service's ports."""
    found: dict[tuple[str, tuple[str, ...]], set[int]] = {}

    def add(to: Destination | None, namespaces: tuple[str, ...]) -> None:
        if to is not None:
            found.setdefault((to.host, namespaces), set()).add(to.port.number if to.port is not None else 0)

    for route in spec.http:
        sources = [m.source_namespace for m in route.match]
        namespaces = tuple(sorted({n for n in sources if n}))
        for to in (*(w.destination for w in route.route), route.mirror, *(m.destination for m in route.mirrors)):
            add(to, namespaces)
    for weighted in (w for routes in (*(r.route for r in spec.tcp), *(r.route for r in spec.tls)) for w in routes):
        add(weighted.destination, ())
    return tuple(
        Lead(host, () if 0 in ports else tuple(sorted(ports)), namespaces)
        for (host, namespaces), ports in found.items()
    )
