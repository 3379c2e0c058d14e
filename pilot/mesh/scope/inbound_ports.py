"""The ports on which a sidecar accepts traffic for its workload. Services or the Sidecar declare them.

Clusters and listeners are both built from these ports.
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
    """A port on which a workload listens.

    - `port`: the port as declared by the Sidecar or by the oldest of its services.
    - `targets`: the service ports that target it, oldest first.
    - `ingress`: the listener in the Sidecar, or None if services declare the port.
    - `declared_by`: the Sidecar that declares the port, if any.
    """

    number: int
    port: Port
    targets: tuple[ServiceTarget, ...] = ()
    ingress: IstioIngressListener | None = None
    declared_by: ObjectKey | None = None


def inbound_ports(db: Mesh, inbound: InboundFacet) -> list[InboundPort]:
    """Return the inbound ports of a sidecar. Port numbers are unique. Not memoised.

    The ports of a Sidecar's ingress listeners replace the ports of services, unless a setting merges both. A proxy
    without traffic capture uses only the ports of a Sidecar.
    """
    sidecar = find_sidecar(db, inbound.scope.sidecar)
    targets = _targets_by_number(inbound)
    if sidecar is None or not sidecar.ingress:
        return (
            [_of_services(target_port, port_targets) for target_port, port_targets in targets.items()]
            if inbound.listening.interception != "NONE"
            else []
        )
    by_sidecar: dict[int, InboundPort] = {}
    for listener in sidecar.ingress:
        if listener.port is not None:
            number = listener.port.number
            port = Port(listener.port.name, number, parse_protocol(listener.port.protocol))
            by_sidecar.setdefault(
                number, InboundPort(number, port, targets.get(number, ()), listener, inbound.scope.sidecar)
            )
    service_targets = targets.items() if db.settings.listeners.merge_ingress_with_services else ()
    return [
        *(
            _of_services(target_port, port_targets)
            for target_port, port_targets in service_targets
            if target_port not in by_sidecar
        ),
        *by_sidecar.values(),
    ]


def declared_port_numbers(db: Mesh, inbound: InboundFacet) -> frozenset[int]:
    """Return the ports of a Sidecar's ingress listeners or, if there are none, the target ports of services.

    Target ports are included even if traffic is not captured.
    """
    sidecar = find_sidecar(db, inbound.scope.sidecar)
    if sidecar is not None and sidecar.ingress:
        return frozenset(listener.port.number for listener in sidecar.ingress if listener.port is not None)
    return frozenset(target.target_port for target in inbound.targets)


def _targets_by_number(inbound: InboundFacet) -> dict[int, tuple[ServiceTarget, ...]]:
    by_number: dict[int, tuple[ServiceTarget, ...]] = {}
    for target in inbound.targets:
        by_number[target.target_port] = (*by_number.get(target.target_port, ()), target)
    return by_number


def _of_services(number: int, targets: tuple[ServiceTarget, ...]) -> InboundPort:
    return InboundPort(number, targets[0].port, targets)
