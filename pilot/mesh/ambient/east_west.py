"""What gateways between networks let in: the global services of their network, and the waypoints of these."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pilot.derive import Gather, derived, hub
from pilot.mesh.ambient.attachments import MANAGED, service_attachment
from pilot.mesh.ambient.gateways import is_global_service
from pilot.mesh.ambient.waypoints import waypoint
from pilot.mesh.model.ambient_features import uses_double_hbone
from pilot.mesh.model.facets import ListeningFacet
from pilot.mesh.model.service import Service, ServiceRef
from pilot.mesh.model.virtual_addresses import AddressFamiliesFacet, virtual_addresses
from pilot.mesh.registry.services import service, service_refs
from pilot.mesh.registry.workloads import proxy_labels
from pilot.mesh.tables.database import Mesh

EAST_WEST = "istio.io-eastwest-controller"


class PassageKey(msgspec.Struct, frozen=True, cache_hash=True):
    """What the listeners of gateways between networks depend on."""

    listening: ListeningFacet
    families: AddressFamiliesFacet


class PassageEntry(NamedTuple):
    """The waypoint that connections to a service go to: its service and port. `ingress`: those from gateways of the edge too."""

    ref: ServiceRef
    port: int
    ingress: bool


class Passage(NamedTuple):
    """A service that is let in: its addresses, its ports, and its waypoint, None where it has none."""

    service: Service
    addresses: tuple[str, ...]
    entry: PassageEntry | None = None


@derived
def lets_in(db: Mesh, node_id: str) -> bool:
    """Returns whether a proxy is that of a gateway between networks, by its label."""
    return uses_double_hbone(db.settings.ambient) and proxy_labels(db, node_id).get(MANAGED) == EAST_WEST


@derived
def _entry_of(db: Mesh, ref: ServiceRef) -> PassageEntry | None:
    attached = service_attachment(db, ref)
    found = waypoint(db, attached.waypoint) if attached.waypoint is not None else None
    if found is None or not found.address.hostname:
        return None
    return PassageEntry(
        ServiceRef(found.address.hostname, found.address.namespace), found.address.port, bool(attached.ingress)
    )


@derived
def _let_in(db: Mesh, ref: ServiceRef) -> tuple[ServiceRef, ...] | None:
    """Returns a global service with its waypoint, whatever the scope of that; None for any other."""
    if not is_global_service(db, ref):
        return None
    entry = _entry_of(db, ref)
    return (ref, entry.ref) if entry is not None else (ref,)


@derived
def _refs(db: Mesh) -> tuple[ServiceRef, ...]:
    return service_refs(db)


_global: Gather[ServiceRef, [], tuple[ServiceRef, ...]] = Gather("services let into the network", _refs, _let_in)


@hub
def passed_services(db: Mesh) -> tuple[ServiceRef, ...]:
    """Returns the services that gateways between networks let in, oldest first; of one host name in several namespaces, the first."""
    wanted = {ref for refs in _global(db).values() for ref in refs}
    found: dict[str, ServiceRef] = {}
    for ref in service_refs(db):
        if ref in wanted:
            found.setdefault(ref.hostname, ref)
    return tuple(found.values())


@derived
def passage(db: Mesh, ref: ServiceRef, families: AddressFamiliesFacet) -> Passage | None:
    """Returns what gateways between networks need to know of a service; None where it is gone."""
    found = service(db, ref)
    if found is None:
        return None
    return Passage(found, tuple(sorted(set(virtual_addresses(found, families, single=False)))), _entry_of(db, ref))
