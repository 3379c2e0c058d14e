"""Destinations of routes, and their clusters."""

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
    """A service to which destinations refer. `ports` are the ports that the routes of the listener can use.

    If the routes belong to the service's waypoint, `vip_protocols` has the protocol of each port. Otherwise it is None.
    """

    ports: tuple[int, ...] = ()
    external_name: str = ""
    session: StickySession | None = None
    vip_protocols: tuple[tuple[int, str], ...] | None = None


def find_destination_service(db: Mesh, ref: ServiceRef, port: int = 0) -> DestinationService:
    """Return the properties of a service that affect the routes to it. Not memoised.

    `port` is the listener's port, or 0 for a listener that serves all ports.
    """
    row = service(db, ref)
    if row is None:
        return DestinationService()
    ports = (port,) if port else tuple(p.number for p in row.ports)
    return DestinationService(
        ports, row.external_name, find_sticky_session(row) if db.settings.listeners.persistent_sessions else None
    )


class DestinationKey(NamedTuple):
    """The parts of a destination that DestinationRules distinguish. `port` is 0 if the destination has no port."""

    host: str
    subset: str
    port: int


def destination_key(destination: Destination) -> DestinationKey:
    return DestinationKey(
        destination.host, destination.subset, destination.port.number if destination.port is not None else 0
    )


def destination_cluster(
    destination: Destination | None, target: DestinationService | None, port: int, waypoint: bool = False
) -> str:
    """Return the name of the destination's cluster.

    If the destination has no port, the cluster is for the service's only port or, if there is no such port, for the
    listener's port. `target` is None if no visible service has the host. The host may then name a cluster in the
    proxy's bootstrap. `waypoint` is set for routes at a waypoint.
    """
    if destination is None or not destination.host:
        return UNKNOWN_SERVICE
    host = target.external_name if target is not None and target.external_name else destination.host
    if destination.port is not None:
        port = destination.port.number
    elif target is not None and len(target.ports) == 1:
        port = target.ports[0]
    if target.vip_protocols is not None if target is not None else waypoint:
        protocol = dict(target.vip_protocols or ()).get(port, HTTP) if target is not None else HTTP
        return vip_cluster(port, vip_subset(protocol, destination.subset), host)
    return outbound_cluster(port, destination.subset, host)
