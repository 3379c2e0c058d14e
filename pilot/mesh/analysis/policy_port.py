"""Checks that the ports in policies are those of the workloads, and not those of their Services."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from pilot.config.object import Object
from pilot.config.problem import Problems, warning
from pilot.config.security.authorization_policy import AuthorizationPolicy
from pilot.config.security.peer_authentication import PeerAuthentication
from pilot.derive import derived
from pilot.mesh.registry.container_ports import PortsOfPod, ports_of_selected
from pilot.mesh.registry.service_targets import selecting_targets
from pilot.mesh.tables.database import Mesh

_MAX_PODS = 100
"""Maximum number of label sets of Pods whose ports are compared with those of a policy."""


def check_policy_ports(db: Mesh, o: Object[AuthorizationPolicy]) -> Problems:
    """Yield a problem for each port that no selected workload has, but a Service of them. Paths are below the spec."""
    lists = list(_port_lists(o.spec))
    if not lists or o.spec.target_ref is not None or o.spec.target_refs:
        return
    targets = _service_ports(db, o)
    for path, ports in lists:
        for index, text in enumerate(ports):
            number = int(text)
            if number in targets and targets[number].isdisjoint(map(int, ports)):
                message = f"{text!r} matches no request, {_reason(number, targets[number])}"
                yield warning("never-matches", f"{path}[{index}]", message)


def check_port_levels(db: Mesh, o: Object[PeerAuthentication]) -> Problems:
    """Yield a problem for each port with a mode that no selected workload has, but a Service of them.

    Paths are below the spec.
    """
    if not o.spec.port_level_mtls:
        return
    targets = _service_ports(db, o)
    for number in o.spec.port_level_mtls:
        if number in targets:
            message = f"the mode has no effect, {_reason(number, targets[number])}"
            yield warning("no-effect", f"portLevelMtls[{number}]", message)


def _reason(number: int, targets: set[int]) -> str:
    """Return why a port of a Service has no effect, and the ports of the workloads to write instead."""
    instead = " or ".join(map(str, sorted(targets)))
    return f"because ports are those of the workload, and {number} is a port of its Service; write {instead}"


def _service_ports(db: Mesh, o: Object[Any]) -> dict[int, set[int]]:
    """Return the ports that only the Services of the selected workloads have, each with the ports of the workloads."""
    labels = o.spec.selector.match_labels if o.spec.selector is not None else {}
    targets: dict[int, set[int]] = {}
    used: set[int] = set()
    for pod in islice(ports_of_selected(db, o.namespace, labels.items()), _MAX_PODS):
        used |= {port.number for port in pod.ports}
        for number, target in _targets(db, o.namespace, pod):
            targets.setdefault(number, set()).add(target)
    used |= {target for numbers in targets.values() for target in numbers}
    return {number: targets[number] for number in targets.keys() - used}


def _port_lists(spec: AuthorizationPolicy) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the lists of ports that must match, with their paths."""
    for r, rule in enumerate(spec.rules):
        for t, to in enumerate(rule.to):
            if to.operation is not None and to.operation.ports:
                yield f"rules[{r}].to[{t}].operation.ports", to.operation.ports
        for w, condition in enumerate(rule.when):
            if condition.key == "destination.port" and condition.values:
                yield f"rules[{r}].when[{w}].values", condition.values


@derived
def _targets(db: Mesh, namespace: str, pod: PortsOfPod) -> tuple[tuple[int, int], ...]:
    """Return the ports of the Services that select a Pod, each with the port of the Pod."""
    names = {port.name: port.number for port in pod.ports if port.name}
    pairs = []
    for number, target in selecting_targets(db, namespace, pod.labels):
        resolved = names.get(target) if isinstance(target, str) else target or number
        pairs += [(number, resolved)] if resolved is not None else []
    return tuple(sorted(pairs))
