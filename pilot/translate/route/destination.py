"""Finds where a route leads: the cluster that a destination means."""
from __future__ import annotations

from typing import NamedTuple

from pilot.model.config.virtual_service import Destination
from pilot.translate.names import outbound_cluster
from pilot.translate.route.session import StickySession

UNKNOWN_SERVICE = "UnknownService"


class RouteTarget(NamedTuple):
    """Holds a service that destinations name, as far as routes depend on it; `ports` are those that the listener sees."""

    ports: tuple[int, ...] = ()
    external_name: str = ""
    session: StickySession | None = None


class DestinationKey(NamedTuple):
    """Names a destination as DestinationRules tell them apart; `port` is 0 where it names none."""

    host: str
    subset: str
    port: int


def destination_key(destination: Destination) -> DestinationKey:
    return DestinationKey(destination.host, destination.subset, destination.port.number if destination.port is not None else 0)


def cluster_of(destination: Destination | None, target: RouteTarget | None, port: int) -> str:
    """Returns the cluster's name. Without a port of its own the destination has the one that its service has, else the listener's.

    `target` is None for a host that is no service in sight: it may be a cluster of the proxy's bootstrap.
    """
    if destination is None or not destination.host:
        return UNKNOWN_SERVICE
    host = target.external_name if target is not None and target.external_name else destination.host
    if destination.port is not None:
        port = destination.port.number
    elif target is not None and len(target.ports) == 1:
        port = target.ports[0]
    return outbound_cluster(port, destination.subset, host)
