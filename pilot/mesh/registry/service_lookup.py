"""The service that a host name means to a gateway or waypoint of a namespace, where several namespaces have one of that name."""

from __future__ import annotations

from pilot.derive import derived
from pilot.mesh.model.service import Registry, ServiceRef
from pilot.mesh.registry.services import is_visible, refs_by_hostname, service, service_summary
from pilot.mesh.tables.database import Mesh


@derived
def destination_ref(db: Mesh, host: str, owner: str, viewer: str) -> ServiceRef | None:
    """Returns the service that a destination of a VirtualService in namespace `owner` means to a router in `viewer`.

    It is the owner's own where the router sees that, else the one that the router has of that name.
    """
    own = ServiceRef(host, owner)
    return own if is_visible(db, own, viewer) else service_in_sight(db, host, viewer)


@derived
def service_in_sight(db: Mesh, host: str, viewer: str) -> ServiceRef | None:
    """Returns the service that a namespace means by a host name: its own, else Kubernetes' own, else the oldest.

    Those that are exported to it by name count as older than those that everybody sees.
    """
    seen = [ref for ref in refs_by_hostname(db, host) if is_visible(db, ref, viewer)]
    if len(seen) <= 1:
        return seen[0] if seen else None
    seen.sort(key=lambda ref: _is_public(db, ref))
    own = next((ref for ref in seen if ref.namespace == viewer), None)
    return own or next((ref for ref in seen if _is_kubernetes(db, ref)), seen[0])


def _is_public(db: Mesh, ref: ServiceRef) -> bool:
    listed = service_summary(db, ref)
    return listed is not None and "*" in listed.exported_to


def _is_kubernetes(db: Mesh, ref: ServiceRef) -> bool:
    found = service(db, ref)
    return found is not None and found.registry is Registry.KUBERNETES
