"""The VirtualServices of TCPRoutes and TLSRoutes: one for each listener, or host of the mesh, that a route attaches to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pilot.config.kinds.gateway_api import TCP_ROUTE
from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.networking.virtual_service import VirtualService
from pilot.config.object import Object, ObjectKey, Origin
from pilot.config.problem import ObjectRef
from pilot.derive import Gather, derived
from pilot.lib.hosts import matches, subset_of
from pilot.mesh.gateway_api.names import layer4_service
from pilot.mesh.lowering.gateway_api.attachments import ListenerAttachment, attachments
from pilot.mesh.lowering.gateway_api.conversion import converted_destinations
from pilot.mesh.lowering.gateway_api.hosts import mesh_hosts
from pilot.mesh.lowering.gateway_api.layer4_rules import tcp_rules, tls_rules
from pilot.mesh.lowering.gateway_api.route_objects import RouteKey, layer4_route_keys, route_binding
from pilot.mesh.tables.database import Mesh


@derived
def _services(db: Mesh, route: RouteKey) -> tuple[Object[VirtualService], ...] | None:
    binding = route_binding(db, route)
    if binding is None:
        return None
    taken = sorted((a for a in attachments(db, route) if a.denied is None), key=lambda a: a.parent.gateway)
    make = _tcp if route.kind == TCP_ROUTE.id else _tls
    specs = [spec for one in taken for spec in make(db, route, one, binding.hostnames)]
    protocol, origin = (
        route.kind.name.removesuffix("Route").lower(),
        Origin(semantics="gateway", parents=(ObjectRef(*route),)),
    )
    return (
        tuple(
            Object(
                VIRTUAL_SERVICE.id,
                route.namespace,
                layer4_service(route.object, protocol, n),
                spec,
                created=binding.created,
                origin=origin,
            )
            for n, spec in enumerate(specs)
        )
        or None
    )


def _tcp(db: Mesh, route: RouteKey, one: ListenerAttachment, _: tuple[str, ...]) -> Iterator[VirtualService]:
    rules = tcp_rules(converted_destinations(db, route, one.is_mesh), one.ref.port if one.is_mesh else None)
    for host in mesh_hosts(db, one.kind, one.target) if one.is_mesh else ("*",):
        yield VirtualService(hosts=(host,), gateways=(one.parent.gateway,), tcp=rules)


def _tls(db: Mesh, route: RouteKey, one: ListenerAttachment, hostnames: tuple[str, ...]) -> Iterator[VirtualService]:
    found = converted_destinations(db, route, one.is_mesh)
    if one.is_mesh:
        served = mesh_hosts(db, one.kind, one.target)
        for host in served:
            asked = tuple(h for h in hostnames if matches(host, h)) if len(hostnames) > 1 else hostnames or served
            yield VirtualService(
                hosts=(host,), gateways=(one.parent.gateway,), tls=tls_rules(found, asked, one.ref.port)
            )
        return
    hosts = narrowed(hostnames or ("*",), one.parent.hostname)
    for host in hosts:
        yield VirtualService(hosts=(host,), gateways=(one.parent.gateway,), tls=tls_rules(found, hosts))


def narrowed(hosts: Sequence[str], by: str) -> tuple[str, ...]:
    """Returns what hosts have in common with a listener's, which is every host where it is ""."""
    if not by:
        return tuple(hosts)
    return tuple(dict.fromkeys(_common(hosts, by)))


def _common(hosts: Iterable[str], by: str) -> Iterator[str]:
    for host in hosts:
        if subset_of(host, by):
            yield host
        elif subset_of(by, host):
            yield by


_by_route: Gather[RouteKey, [], tuple[Object[VirtualService], ...]] = Gather(
    "virtual_services_of_layer4_routes", layer4_route_keys, _services
)


@derived
def virtual_services_of_layer4_routes(db: Mesh) -> Mapping[ObjectKey, Object[VirtualService]]:
    """Returns the VirtualServices of all TCPRoutes and TLSRoutes."""
    return {made.key: made for found in _by_route(db).values() for made in found}
