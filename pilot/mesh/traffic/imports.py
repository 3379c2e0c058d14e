"""The services that a scope imports: those of its egress listeners, and the destinations of their VirtualServices.

Only the namespaces that the Sidecar names are read, so services in other namespaces do not affect its proxies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pilot.config.networking.virtual_service import Destination, VirtualService
from pilot.config.object import ObjectKey
from pilot.derive import Gather, Steps, derived, derived_in_steps, hub_in_steps
from pilot.mesh.model.facets import ScopeFacet
from pilot.mesh.model.service import Port, Registry, Service, ServiceRef
from pilot.mesh.registry.services import (
    STEP,
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
    """An imported service. `ports` are the imported port numbers, or None for all ports."""

    ref: ServiceRef
    ports: tuple[int, ...] | None = None

    def visible_ports(self, imported_service: Service) -> tuple[Port, ...]:
        """Return the imported ports of the service that `ref` refers to."""
        ports = imported_service.ports
        return ports if self.ports is None else tuple(p for p in ports if p.number in self.ports)


@derived
def egress_services(db: Mesh, scope: ScopeFacet, index: int) -> tuple[ImportKey, ...]:
    """Return the services that the egress listener at `index` imports, ordered by age. Host names are unique."""
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
    return _one_namespace_each(db, imports, "" if scope.gateway else scope.namespace)


@hub_in_steps
def _public_imports(db: Mesh) -> Steps[tuple[ImportKey, ...] | None]:
    """Return the imports of scopes to which only public services are visible.

    Return None if several services have the same host name, because the imports then depend on the scope.
    """
    refs = public_refs(db)
    imports: list[ImportKey] = []
    hostnames: set[str] = set()
    for start in range(0, len(refs), STEP):
        imports += map(ImportKey, refs[start : start + STEP])
        hostnames.update(ref.hostname for ref in refs[start : start + STEP])
        yield None
    return tuple(imports) if len(hostnames) == len(refs) else None


def _candidates(db: Mesh, hosts: EgressHostsKey, namespace: str) -> list[ServiceRef]:
    """Return the visible services that may match the hosts, ordered by age.

    If the hosts contain wildcards, services that are exported to the namespace by name precede public ones.
    """
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
    order: dict[ServiceRef, tuple[bool, tuple[str, str, str]]] = {}
    for ref in (r for bucket in buckets for r in bucket):
        listed = service_summary(db, ref)
        if listed is not None and listed.is_visible_from(namespace):
            order[ref] = not exact and "*" in listed.exported_to, listed.age
    return sorted(order, key=lambda r: order[r])


@derived
def _at_port(db: Mesh, ref: ServiceRef, number: int) -> ImportKey | None:
    """Return the import of one port of a service, or None if the service does not have the port."""
    target = service(db, ref)
    if target is None or target.port(number) is None:
        return None
    return ImportKey(ref) if len(target.ports) == 1 else ImportKey(ref, (number,))


def _is_kubernetes(db: Mesh, ref: ServiceRef) -> bool:
    target = service(db, ref)
    return target is not None and target.registry is Registry.KUBERNETES


def _one_namespace_each(db: Mesh, imports: list[ImportKey], namespace: str) -> tuple[ImportKey, ...]:
    """Return the imports with one service for each host name.

    A service in `namespace` takes precedence over a Kubernetes Service, which takes precedence over the oldest service.
    """
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


@derived_in_steps
def scope_services(db: Mesh, scope: ScopeFacet) -> Steps[Mapping[str, ImportKey]]:
    """Return the services for which a scope needs clusters, keyed by host name.

    These are the imports of its egress listeners, and the destinations of their VirtualServices.
    """
    imports: dict[str, ImportKey] = {}
    for index in range(len(egress_listeners(db, scope))):
        yield inferred_imports.step(scope, index) if not scope.gateway else None
        for number, item in enumerate(egress_services(db, scope, index)):
            _add(db, imports, item)
            if number % STEP == 0:
                yield None
        if not scope.gateway:
            for item in inferred_imports(db, scope, index):
                _add(db, imports, item)
    return imports


@derived
def imported(db: Mesh, scope: ScopeFacet, hostname: str) -> ImportKey | None:
    """Return the service with a host name in a scope, or None if the scope does not import it."""
    return scope_services(db, scope).get(hostname)


def _add(db: Mesh, imports: dict[str, ImportKey], item: ImportKey) -> None:
    """Add an import.

    The first import of a host name takes precedence, except that Kubernetes Services precede other services. If several
    listeners import ports of the same service, all these ports are imported.
    """
    before = imports.get(item.ref.hostname)
    if before is None:
        imports[item.ref.hostname] = item
    elif before.ref == item.ref:
        if before.ports is not None:
            imports[item.ref.hostname] = ImportKey(
                item.ref, None if item.ports is None else tuple(dict.fromkeys(before.ports + item.ports))
            )
    elif _is_kubernetes(db, item.ref) and not _is_kubernetes(db, before.ref):
        imports[item.ref.hostname] = item


# -- destinations of VirtualServices -----------------------------------------------------------------------------------


class RouteTarget(NamedTuple):
    """A host name that a VirtualService routes to.

    `ports` are those that its routes name, or () for all. `namespaces` are the client namespaces that the routes are
    limited to, or () for all.
    """

    host: str
    ports: tuple[int, ...]
    namespaces: tuple[str, ...]


@derived_in_steps
def inferred_imports(db: Mesh, scope: ScopeFacet, index: int) -> Steps[tuple[ImportKey, ...]]:
    """Return the services that the VirtualServices of an egress listener route to.

    If the listener imports everything, the services that it already imports are omitted.
    """
    listener = egress_listeners(db, scope)[index]
    keys = egress_virtual_services(db, scope, index)
    targets = {namespace: _route_targets(db, namespace) for namespace in {key.namespace for key in keys}}
    applicable = [
        target
        for key in keys
        for target in targets[key.namespace].get(key, ())
        if not target.namespaces or scope.namespace in target.namespaces
    ]
    if listener.hosts.everything and applicable:
        missing = {target.host for target in applicable}
        for number, item in enumerate(egress_services(db, scope, index), 1):
            missing.discard(item.ref.hostname)
            if number % STEP == 0:
                yield None
        applicable = [target for target in applicable if target.host in missing]
    port = listener.port.number if listener.match_port and listener.port is not None else None
    inferred = [_inferred(db, target.host, scope.namespace, port, target.ports) for target in applicable]
    return tuple(i for i in inferred if i is not None)


@derived
def _inferred(db: Mesh, hostname: str, namespace: str, port: int | None, ports: tuple[int, ...]) -> ImportKey | None:
    """Return the service that routes to a host name refer to, with the ports that the routes name, or () for all.

    A service in the scope's namespace takes precedence over a Kubernetes Service, which takes precedence over the
    oldest service. If the setting `best_namespace` is off, the name of the namespace decides instead of kind and age.
    """
    refs = refs_by_hostname(db, hostname)
    chosen = next((r for r in refs if r.namespace == namespace), None)
    if chosen is None:
        visible = [r for r in refs if is_visible(db, r, namespace)]
        if db.settings.registry.best_namespace:
            chosen = next((r for r in visible if _is_kubernetes(db, r)), visible[0] if visible else None)
        else:
            chosen = min(visible, key=lambda ref: ref.namespace, default=None)
    target = service(db, chosen) if chosen is not None else None
    if chosen is None or target is None:
        return None
    if port is not None:
        return _at_port(db, chosen, port)
    existing = tuple(p.number for p in target.ports if p.number in ports)
    if not ports or len(existing) == len(target.ports):
        return ImportKey(chosen)
    return ImportKey(chosen, existing) if existing else None


@derived
def route_targets_of(db: Mesh, key: ObjectKey, _: str) -> tuple[RouteTarget, ...] | None:
    row = virtual_service(db, key)
    return find_route_targets(row.spec) or None if row is not None else None


_route_targets: Gather[ObjectKey, [str], tuple[RouteTarget, ...]] = Gather(
    "route targets", virtual_service_keys, route_targets_of
)


def find_route_targets(spec: VirtualService) -> tuple[RouteTarget, ...]:
    """Return the targets of a VirtualService's routes. A destination without a port targets all ports of a service."""
    ports_by_target: dict[tuple[str, tuple[str, ...]], set[int]] = {}

    def add(to: Destination | None, namespaces: tuple[str, ...]) -> None:
        if to is not None:
            ports = ports_by_target.setdefault((to.host, namespaces), set())
            ports.add(to.port.number if to.port is not None else 0)

    for route in spec.http:
        sources = [m.source_namespace for m in route.match]
        namespaces = tuple(sorted({n for n in sources if n}))
        for to in (*(w.destination for w in route.route), route.mirror, *(m.destination for m in route.mirrors)):
            add(to, namespaces)
    for weighted in (w for routes in (*(r.route for r in spec.tcp), *(r.route for r in spec.tls)) for w in routes):
        add(weighted.destination, ())
    return tuple(
        RouteTarget(host, () if 0 in ports else tuple(sorted(ports)), namespaces)
        for (host, namespaces), ports in ports_by_target.items()
    )
