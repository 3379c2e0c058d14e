"""The services that a waypoint sends to without being theirs: where routes of those behind it lead, and what the mesh config names."""

from __future__ import annotations

from pilot.config.object import ObjectKey
from pilot.derive import derived
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.proxies.waypoint import served_by_host, served_services
from pilot.mesh.registry.mesh_services import find_service, provider_services
from pilot.mesh.registry.service_lookup import destination_ref
from pilot.mesh.registry.services import is_visible, service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.imports import ImportKey, find_leads
from pilot.mesh.traffic.virtual_services import virtual_service, virtual_services_at_waypoint


@derived
def _leads(db: Mesh, key: ObjectKey) -> tuple[str, ...]:
    """Returns the hosts that the routes of a VirtualService lead to."""
    found = virtual_service(db, key)
    return tuple(dict.fromkeys(lead.host for lead in find_leads(found.spec))) if found is not None else ()


@derived
def _onward(db: Mesh, ref: ServiceRef, waypoint: ObjectKey) -> tuple[ServiceRef, ...]:
    """Returns where the routes of one service lead, without what is behind the waypoint. What is there and outside of the mesh may be asked for
    both ways."""
    served, found = served_by_host(db, waypoint), []
    for key in virtual_services_at_waypoint(db, ref.hostname, ref.namespace, waypoint.namespace):
        for host in _leads(db, key):
            to = served.get(host) or destination_ref(db, host, key.namespace, waypoint.namespace)
            known = service(db, to) if to is not None else None
            if to is not None and known is not None and (host not in served or known.mesh_external):
                found.append(to)
    return tuple(dict.fromkeys(found))


@derived
def onward_services(db: Mesh, waypoint: ObjectKey) -> tuple[ImportKey, ...]:
    """Returns the services of a waypoint's outbound clusters; of one host name, one."""
    named = (find_service(db, name) for name in sorted(provider_services(db)))
    seen = [ref for ref in named if ref is not None and is_visible(db, ref, waypoint.namespace)]
    refs = [*seen, *(to for ref in served_services(db, waypoint) for to in _onward(db, ref, waypoint))]
    return tuple(ImportKey(ref) for ref in {ref.hostname: ref for ref in reversed(refs)}.values())
