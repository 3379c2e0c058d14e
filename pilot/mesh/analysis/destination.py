"""Checks that the service, port and subset of traffic destinations exist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.networking.virtual_service import Destination
from pilot.config.problem import Problems, below, error, info, warning
from pilot.lib.suggestion import suggest_likely
from pilot.mesh.model.service import Service
from pilot.mesh.registry.services import refs_by_hostname, service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import defined_subsets

LISTED = 10
"""Maximum number of subsets that a problem lists."""
_MAX_PORTS, _MAX_ELSEWHERE = 5, 3
"""Maximum numbers of ports, and of Services with the name of a missing one, that a problem lists."""


def services_named(db: Mesh, hostname: str) -> tuple[Service, ...]:
    """Return the services with a host name, oldest first, regardless of their visibility."""
    services = (service(db, ref) for ref in refs_by_hostname(db, hostname))
    return tuple(one for one in services if one is not None)


def check_destination(
    db: Mesh, to: Destination | None, clients: Iterable[str], effect: str = "", suggests: bool = True
) -> Problems:
    """Yield the problems of a destination, whose host must be fully qualified.

    `clients` are the namespaces of the clients. At least one of them must have an applicable DestinationRule that
    defines the subset. `effect` continues the message, and says what happens to requests if there is no cluster.
    With `suggests`, the message about a missing service suggests another one.
    """
    if to is None:
        return
    services = services_named(db, to.host)
    if not services:
        hint = suggest_service(db, to.host) if suggests else ""
        yield error("destination-not-found", "host", f"service {to.host} not found{effect}{hint}")
        return
    yield from below("port", _check_port(services, to, effect))
    if not to.subset:
        return
    subsets = {
        name for client in dict.fromkeys(clients) for s in services for name in defined_subsets(db, client, s.ref)
    }
    if to.subset not in subsets:
        text = f"no DestinationRule for {to.host} defines the subset {to.subset}"
        listed = f" (defined are {', '.join(sorted(subsets)[:LISTED])})" if subsets else ""
        yield error("subset-not-found", "subset", text + listed + effect)


def suggest_service(db: Mesh, hostname: str) -> str:
    """Return a hint on the Services that have the same name as a missing one in other namespaces, or else a similar
    name in its namespace.

    Return "" if there are none, or so many that the one that is meant is not obvious.
    """
    name, _, rest = hostname.partition(".")
    domain = f"svc.{db.settings.registry.domain}"
    if rest.partition(".")[2] != domain:
        return ""
    keys = SERVICE.keys(db, "named", name)
    if not keys:
        namespace = rest.partition(".")[0]
        names = (key.name for key in SERVICE.keys(db, "namespace", namespace))
        return suggest_likely(name, names, f"{{}}.{namespace}.{domain}")
    if len(keys) > _MAX_ELSEWHERE:
        return ""
    hosts = sorted({f"{name}.{key.namespace}.{domain}" for key in keys})
    return f"; write {' or '.join(hosts)}"


def _check_port(services: tuple[Service, ...], to: Destination, effect: str) -> Problems:
    if to.port is not None:
        if not any(s.port(to.port.number) for s in services):
            text = f"{to.host} has no port {to.port.number}{effect}{ports_hint(services, to.port.number)}"
            yield warning("port-not-found", "number", text)
    elif all(len({p.number for p in s.ports}) > 1 for s in services):
        yield info("port-not-said", "", f"{to.host} has several ports; the port of the request is used")


def ports_hint(services: Sequence[Service], number: int) -> str:
    """Return the ports of services, and the one that has a number as its target port."""
    ports = sorted({port.number for one in services for port in one.ports})
    if not ports:
        return ""
    listed = ", ".join(map(str, ports[:_MAX_PORTS]))
    return f"; its ports: {listed}{', …' if len(ports) > _MAX_PORTS else ''}{target_port_remedy(services, number)}"


def target_port_remedy(services: Iterable[Service], number: int) -> str:
    """Return the port of services that has a number as its target port, as a remedy, or "" if there is none."""
    own = min((port.number for one in services for port in one.ports if port.target == number), default=None)
    return f"; {number} is the targetPort of port {own}: write {own}" if own is not None else ""
