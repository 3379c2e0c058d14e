"""The services that other networks can reach through east-west gateways: global services, and the services of their
waypoints."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pilot.derive import Gather, derived, hub
from pilot.mesh.ambient.attachments import MANAGED, service_attachment
from pilot.mesh.ambient.remote_networks import is_global_service
from pilot.mesh.ambient.waypoints import waypoint
from pilot.mesh.model.ambient_features import uses_double_hbone
from pilot.mesh.model.facets import ListeningFacet
from pilot.mesh.model.service import Service, ServiceRef
from pilot.mesh.model.virtual_addresses import AddressFamiliesFacet, virtual_addresses
from pilot.mesh.registry.services import service, service_refs
from pilot.mesh.registry.workloads import proxy_labels
from pilot.mesh.tables.database import Mesh

EAST_WEST = "istio.io-eastwest-controller"


class EastWestKey(msgspec.Struct, frozen=True, cache_hash=True):
    """The properties that the listeners of east-west gateways depend on."""

    listening: ListeningFacet
    families: AddressFamiliesFacet


class EntryWaypoint(NamedTuple):
    """The service and port of the waypoint that receives connections to a service.

    `ingress` says that the waypoint also receives connections from ingress gateways.
    """

    ref: ServiceRef
    port: int
    ingress: bool


class AdmittedService(NamedTuple):
    """A service that other networks can reach through east-west gateways.

    It has its addresses, and its waypoint if it uses one.
    """

    service: Service
    addresses: tuple[str, ...]
    entry: EntryWaypoint | None = None


@derived
def is_east_west_gateway(db: Mesh, node_id: str) -> bool:
    """Return whether a proxy has the label of an east-west gateway."""
    return uses_double_hbone(db.settings.ambient) and proxy_labels(db, node_id).get(MANAGED) == EAST_WEST


@derived
def _entry_of(db: Mesh, ref: ServiceRef) -> EntryWaypoint | None:
    attached = service_attachment(db, ref)
    used = waypoint(db, attached.waypoint) if attached.waypoint is not None else None
    if used is None or not used.address.hostname:
        return None
    return EntryWaypoint(
        ServiceRef(used.address.hostname, used.address.namespace), used.address.port, bool(attached.ingress)
    )


@derived
def _with_entry(db: Mesh, ref: ServiceRef) -> tuple[ServiceRef, ...] | None:
    """Return a global service and the service of its waypoint, or None if the service is not global.

    The waypoint's service need not be global.
    """
    if not is_global_service(db, ref):
        return None
    entry = _entry_of(db, ref)
    return (ref, entry.ref) if entry is not None else (ref,)


@derived
def _refs(db: Mesh) -> tuple[ServiceRef, ...]:
    return service_refs(db)


_global: Gather[ServiceRef, [], tuple[ServiceRef, ...]] = Gather(
    "services admitted into the network", _refs, _with_entry
)


@hub
def admitted_services(db: Mesh) -> tuple[ServiceRef, ...]:
    """Return the services that other networks can reach through east-west gateways, oldest first. There is one service
    per host name."""
    admitted = {ref for refs in _global(db).values() for ref in refs}
    by_host: dict[str, ServiceRef] = {}
    for ref in service_refs(db):
        if ref in admitted:
            by_host.setdefault(ref.hostname, ref)
    return tuple(by_host.values())


@derived
def admitted_service(db: Mesh, ref: ServiceRef, families: AddressFamiliesFacet) -> AdmittedService | None:
    """Return a service as the listeners of east-west gateways need it, or None if the service does not exist."""
    target = service(db, ref)
    if target is None:
        return None
    addresses = tuple(sorted(set(virtual_addresses(target, families, single=False))))
    return AdmittedService(target, addresses, _entry_of(db, ref))
