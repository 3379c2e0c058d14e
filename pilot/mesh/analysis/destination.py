"""Destinations of traffic: the service, its port and its subset have to be there."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.networking.virtual_service import Destination
from pilot.config.problem import Problems, below, warning
from pilot.mesh.model.service import Service
from pilot.mesh.registry.services import refs_by_hostname, service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import defined_subsets


def services_named(db: Mesh, hostname: str) -> tuple[Service, ...]:
    """Returns the services of a host name, whoever sees them, oldest first."""
    return tuple(found for ref in refs_by_hostname(db, hostname) if (found := service(db, ref)) is not None)


def check_destination(db: Mesh, to: Destination | None, clients: Iterable[str]) -> Problems:
    """Yields the problems of a destination whose host is a full name. `clients` are the namespaces whose rules say which subsets there are."""
    if to is None:
        return
    found = services_named(db, to.host)
    if not found:
        yield warning("destination-not-found", "host", f"there is no service {to.host}")
        return
    yield from below("port", _check_port(found, to))
    if to.subset and not any(
        to.subset in defined_subsets(db, client, s.ref) for client in dict.fromkeys(clients) for s in found
    ):
        yield warning("subset-not-found", "subset", f"no DestinationRule for {to.host} has a subset {to.subset}")


def _check_port(found: tuple[Service, ...], to: Destination) -> Problems:
    if to.port is not None:
        if not any(s.port(to.port.number) for s in found):
            yield warning("port-not-found", "number", f"{to.host} has no port {to.port.number}")
    elif all(len({p.number for p in s.ports}) > 1 for s in found):
        yield warning("port-not-said", "", f"{to.host} has several ports, so that the port of the request counts")
