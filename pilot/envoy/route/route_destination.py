"""Finds where a route leads: the cluster that a destination means."""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.networking.virtual_service import Destination
from pilot.envoy.names import HTTP, outbound_cluster, vip_cluster, vip_subset
from pilot.envoy.route.sticky_session import StickySession, find_sticky_session
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh

UNKNOWN_SERVICE = "UnknownService"


class DestinationService(NamedTuple):
    """Holds a service that destinations name, as far as routes depend on it; `ports` are those that the listener sees. `served`: what is spoken on
    each port of a service that is behind the waypoint whose routes these are, None for one that is not."""

    ports: tuple[int, ...] = ()
    external_name: str = ""
    session: StickySession | None = None
    served: tuple[tuple[int, str], ...] | None = None


def find_destination_service(db: Mesh, ref: ServiceRef, port: int = 0) -> DestinationService:
    """Returns a service as routes to it see it from a listener port, 0 for a listener that sees all ports. No node of its own."""
    found = service(db, ref)
    if found is None:
        return DestinationService()
    ports = (port,) if port else tuple(p.number for p in found.ports)
    return DestinationService(
        ports, found.external_name, find_sticky_session(found) if db.settings.listeners.persistent_sessions else None
    )


class DestinationKey(NamedTuple):
    """Names a destination as DestinationRules tell them apart; `port` is 0 where it names none."""

    host: str
    subset: str
    port: int


def destination_key(destination: Destination) -> DestinationKey:
    return DestinationKey(
        destination.host, destination.subset, destination.port.number if destination.port is not None else 0
    )


def destination_cluster(
    destination: Destination | None, known: DestinationService | None, port: int, waypoint: bool = False
) -> str:
    """Returns the cluster's name. Without a port of its own the destination has the one that its service has, else the listener's.

    `known` is None for a host that is no service in sight: it may be a cluster of the proxy's bootstrap. `waypoint`: of routes at a waypoint.
    """
    if destination is None or not destination.host:
        return UNKNOWN_SERVICE
    host = known.external_name if known is not None and known.external_name else destination.host
    if destination.port is not None:
        port = destination.port.number
    elif known is not None and len(known.ports) == 1:
        port = known.ports[0]
    if known.served is not None if known is not None else waypoint:
        speaks = dict(known.served or ()).get(port, HTTP) if known is not None else HTTP
        return vip_cluster(port, vip_subset(speaks, destination.subset), host)
    return outbound_cluster(port, destination.subset, host)
