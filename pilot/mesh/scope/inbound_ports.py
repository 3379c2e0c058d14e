"""The ports on which a sidecar takes traffic for its workload: those of its services, or those of its Sidecar.

Clusters and listeners both follow this one choice.
"""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.networking.sidecar import IstioIngressListener
from pilot.config.object import ObjectKey
from pilot.config.protocol import parse_protocol
from pilot.mesh.model.facets import InboundFacet, ServiceTarget
from pilot.mesh.model.service import Port
from pilot.mesh.scope.sidecar_scope import find_sidecar
from pilot.mesh.tables.database import Mesh


class InboundPort(NamedTuple):
    """A port that a workload listens on.

    `port`: as the oldest of its services declares it, or as the Sidecar does. `targets`: the ports of services that lead to it, oldest
    first. `ingress`: the Sidecar's listener, None where services declare the port; `declared_by`: that Sidecar.
    """

    number: int
    port: Port
    targets: tuple[ServiceTarget, ...] = ()
    ingress: IstioIngressListener | None = None
    declared_by: ObjectKey | None = None


def inbound_ports(db: Mesh, inbound: InboundFacet) -> list[InboundPort]:
    """Returns the ports of a sidecar, each number once. No node of its own.

    Ingress listeners of a Sidecar take the place of services, unless the setting adds these. A proxy that captures nothing takes
    traffic on ports of a Sidecar only.
    """
    sidecar = find_sidecar(db, inbound.scope.sidecar)
    served = _targets_by_number(inbound)
    if sidecar is None or not sidecar.ingress:
        return [_of_services(n, t) for n, t in served.items()] if inbound.listening.interception != "NONE" else []
    declared: dict[int, InboundPort] = {}
    for listener in sidecar.ingress:
        if listener.port is not None:
            number = listener.port.number
            port = Port(listener.port.name, number, parse_protocol(listener.port.protocol))
            declared.setdefault(
                number, InboundPort(number, port, served.get(number, ()), listener, inbound.scope.sidecar)
            )
    added = served.items() if db.settings.listeners.merge_ingress_with_services else ()
    return [*(_of_services(n, t) for n, t in added if n not in declared), *declared.values()]


def declared_port_numbers(db: Mesh, inbound: InboundFacet) -> frozenset[int]:
    """Returns the ports that a Sidecar's ingress listeners name, else those that services lead to, whether captured or not."""
    sidecar = find_sidecar(db, inbound.scope.sidecar)
    if sidecar is not None and sidecar.ingress:
        return frozenset(i.port.number for i in sidecar.ingress if i.port is not None)
    return frozenset(t.target_port for t in inbound.targets)


def _targets_by_number(inbound: InboundFacet) -> dict[int, tuple[ServiceTarget, ...]]:
    found: dict[int, tuple[ServiceTarget, ...]] = {}
    for target in inbound.targets:
        found[target.target_port] = (*found.get(target.target_port, ()), target)
    return found


def _of_services(number: int, targets: tuple[ServiceTarget, ...]) -> InboundPort:
    return InboundPort(number, targets[0].port, targets)
