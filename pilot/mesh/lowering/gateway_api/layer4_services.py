"""VirtualServices that are converted from TCPRoutes and TLSRoutes.

There is one for each listener or mesh host that a route attaches to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pilot.config.kinds.gateway_api import TCP_ROUTE
from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.networking.virtual_service import VirtualService
from pilot.config.object import Object, ObjectKey, Origin
from pilot.config.problem import ObjectRef
from pilot.derive import Gather, derived
from pilot.lib.hosts import matches, subset_of
from pilot.mesh.gateway_api.generated_names import layer4_service
from pilot.mesh.lowering.gateway_api.attachments import ListenerAttachment, attachments
from pilot.mesh.lowering.gateway_api.converted_routes import converted_destinations
from pilot.mesh.lowering.gateway_api.layer4_rules import tcp_rules, tls_rules
from pilot.mesh.lowering.gateway_api.parents import mesh_hosts
from pilot.mesh.lowering.gateway_api.routes import RouteKey, layer4_route_keys, route_binding
from pilot.mesh.tables.database import Mesh


@derived
def _services(db: Mesh, route: RouteKey) -> tuple[Object[VirtualService], ...] | None:
    binding = route_binding(db, route)
    if binding is None:
        return None
    accepted = sorted(
        (attachment for attachment in attachments(db, route) if attachment.rejection is None),
        key=lambda attachment: attachment.parent.gateway,
    )
    build = _tcp if route.kind == TCP_ROUTE.id else _tls
    specs = [spec for attachment in accepted for spec in build(db, route, attachment, binding.hostnames)]
    protocol, origin = (
        route.kind.name.removesuffix("Route").lower(),
        Origin(semantics="gateway", parents=(ObjectRef(*route),)),
    )
    return (
        tuple(
            Object(
                VIRTUAL_SERVICE.id,
                route.namespace,
                layer4_service(route.object, protocol, position),
                spec,
                created=binding.created,
                origin=origin,
            )
            for position, spec in enumerate(specs)
        )
        or None
    )


def _tcp(db: Mesh, route: RouteKey, attachment: ListenerAttachment, _: tuple[str, ...]) -> Iterator[VirtualService]:
    rules = tcp_rules(
        converted_destinations(db, route, attachment.is_mesh), attachment.ref.port if attachment.is_mesh else None
    )
    for host in mesh_hosts(db, attachment.kind, attachment.target) if attachment.is_mesh else ("*",):
        yield VirtualService(hosts=(host,), gateways=(attachment.parent.gateway,), tcp=rules)


def _tls(
    db: Mesh, route: RouteKey, attachment: ListenerAttachment, hostnames: tuple[str, ...]
) -> Iterator[VirtualService]:
    destinations = converted_destinations(db, route, attachment.is_mesh)
    if attachment.is_mesh:
        mesh_service_hosts = mesh_hosts(db, attachment.kind, attachment.target)
        for host in mesh_service_hosts:
            sni_hosts = (
                tuple(hostname for hostname in hostnames if matches(host, hostname))
                if len(hostnames) > 1
                else hostnames or mesh_service_hosts
            )
            yield VirtualService(
                hosts=(host,),
                gateways=(attachment.parent.gateway,),
                tls=tls_rules(destinations, sni_hosts, attachment.ref.port),
            )
        return
    hosts = intersect_hosts(hostnames or ("*",), attachment.parent.hostname)
    for host in hosts:
        yield VirtualService(hosts=(host,), gateways=(attachment.parent.gateway,), tls=tls_rules(destinations, hosts))


def intersect_hosts(hosts: Sequence[str], listener_hostname: str) -> tuple[str, ...]:
    """Return the intersection of hosts and a listener's hostname. The hostname "" matches every host."""
    if not listener_hostname:
        return tuple(hosts)
    return tuple(dict.fromkeys(_common(hosts, listener_hostname)))


def _common(hosts: Iterable[str], listener_hostname: str) -> Iterator[str]:
    for host in hosts:
        if subset_of(host, listener_hostname):
            yield host
        elif subset_of(listener_hostname, host):
            yield listener_hostname


_by_route: Gather[RouteKey, [], tuple[Object[VirtualService], ...]] = Gather(
    "virtual_services_of_layer4_routes", layer4_route_keys, _services
)


@derived
def virtual_services_of_layer4_routes(db: Mesh) -> Mapping[ObjectKey, Object[VirtualService]]:
    """Return the VirtualServices of all TCPRoutes and TLSRoutes."""
    return {service.key: service for services in _by_route(db).values() for service in services}
