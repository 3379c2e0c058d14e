"""Resolves hostnames to services for gateways and waypoints. Several namespaces may declare the same hostname."""

from __future__ import annotations

from pilot.derive import derived
from pilot.mesh.model.service import Registry, ServiceRef
from pilot.mesh.registry.services import is_visible, refs_by_hostname, service, service_summary
from pilot.mesh.tables.database import Mesh


@derived
def destination_ref(db: Mesh, host: str, owner: str, viewer: str) -> ServiceRef | None:
    """Return the service for a destination host in a VirtualService, or None if there is none.

    The VirtualService is in the namespace `owner`, and the router in the namespace `viewer`. The service in `owner`
    takes precedence if it is visible to the router.
    """
    candidate = ServiceRef(host, owner)
    return candidate if is_visible(db, candidate, viewer) else visible_service(db, host, viewer)


@derived
def visible_service(db: Mesh, host: str, viewer: str) -> ServiceRef | None:
    """Return the service that clients in the namespace `viewer` use for a hostname, or None if none is visible to them.

    A service in the namespace takes precedence over a Kubernetes Service, which takes precedence over the oldest
    service. In each case, services that are exported to the namespace by name precede public services.
    """
    visible = [ref for ref in refs_by_hostname(db, host) if is_visible(db, ref, viewer)]
    if len(visible) <= 1:
        return visible[0] if visible else None
    visible.sort(key=lambda ref: _is_public(db, ref))
    local = next((ref for ref in visible if ref.namespace == viewer), None)
    return local or next((ref for ref in visible if _is_kubernetes(db, ref)), visible[0])


def _is_public(db: Mesh, ref: ServiceRef) -> bool:
    summary = service_summary(db, ref)
    return summary is not None and "*" in summary.exported_to


def _is_kubernetes(db: Mesh, ref: ServiceRef) -> bool:
    row = service(db, ref)
    return row is not None and row.registry is Registry.KUBERNETES
