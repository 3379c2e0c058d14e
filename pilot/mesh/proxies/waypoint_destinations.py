"""The services that a waypoint sends traffic to without serving them: route targets and services of extension
providers."""

from __future__ import annotations

from pilot.config.object import ObjectKey
from pilot.derive import derived
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.proxies.waypoint import served_by_host, served_services
from pilot.mesh.registry.mesh_services import find_service, provider_services
from pilot.mesh.registry.service_lookup import destination_ref
from pilot.mesh.registry.services import is_visible, service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.imports import ImportKey, find_route_targets
from pilot.mesh.traffic.virtual_services import virtual_service, virtual_services_at_waypoint


@derived
def _target_hosts(db: Mesh, key: ObjectKey) -> tuple[str, ...]:
    """Return the hosts that a VirtualService routes to."""
    row = virtual_service(db, key)
    return tuple(dict.fromkeys(target.host for target in find_route_targets(row.spec))) if row is not None else ()


@derived
def _onward(db: Mesh, ref: ServiceRef, waypoint: ObjectKey) -> tuple[ServiceRef, ...]:
    """Return the services that the routes for a service target and that the waypoint does not serve.

    Services outside the mesh are included even if the waypoint serves them, because clients may request them directly
    or be routed to them.
    """
    served, targets = served_by_host(db, waypoint), []
    for key in virtual_services_at_waypoint(db, ref.hostname, ref.namespace, waypoint.namespace):
        for host in _target_hosts(db, key):
            to = served.get(host) or destination_ref(db, host, key.namespace, waypoint.namespace)
            target = service(db, to) if to is not None else None
            if to is not None and target is not None and (host not in served or target.mesh_external):
                targets.append(to)
    return tuple(dict.fromkeys(targets))


@derived
def onward_services(db: Mesh, waypoint: ObjectKey) -> tuple[ImportKey, ...]:
    """Return the services for which a waypoint has outbound clusters. There is one for each host name."""
    provided = (find_service(db, name) for name in sorted(provider_services(db)))
    visible = [ref for ref in provided if ref is not None and is_visible(db, ref, waypoint.namespace)]
    refs = [*visible, *(to for ref in served_services(db, waypoint) for to in _onward(db, ref, waypoint))]
    return tuple(ImportKey(ref) for ref in {ref.hostname: ref for ref in reversed(refs)}.values())
